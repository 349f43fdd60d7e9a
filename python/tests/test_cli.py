"""The command line: what it answers against the reference, what it writes, what it refuses, and Ctrl-C."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from conftest import token_ids
from reference import checkpoints
from reference.greedy import greedy

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("lens", "trace", "show", "support", "tokenize", "generate")
IDS = token_ids(11, 396)
LIST = ",".join(map(str, IDS[0].tolist()))


def executable() -> str:
    """$GEMLOUPE, else the one beside the Python that runs the tests."""
    return os.environ.get("GEMLOUPE") or str(Path(sys.executable).parent / "gemloupe")


def call(*arguments, threads=1, **options) -> subprocess.CompletedProcess:
    command = [executable(), *map(str, arguments), "--threads", str(threads)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def run(*arguments, **options) -> str:
    done = call(*arguments, **options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def run_json(*arguments, **options):
    return json.loads(run(*arguments, "--json", **options))


def refused(code: int, *arguments, words=(), **options):
    """The call ends with `code` and one line that has the words; nothing is on standard output."""
    done = call(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("gemloupe: "), lines
    page = re.fullmatch(r"  see (docs/errors/[a-z-]+\.md|gemloupe .*--help)", lines[1])
    assert page and (page[1].endswith("--help") or (ROOT / page[1]).exists()), lines[1]
    for word in words:
        assert re.search(word, done.stderr), done.stderr


@pytest.fixture(scope="module")
def folder(zoo):
    return zoo.folder("mqa")


# ------------------------------------------------------------------------------------------------ lens


def lens_of(reference, ids):
    """Each block's distribution: the reference's own norm, head and softcap on each block's output."""
    values = reference.capture(ids)
    model, distributions = reference.model, []
    for i in range(model.config.num_hidden_layers):
        with torch.no_grad():
            logits = model.lm_head(model.model.norm(values[f"layers.{i}.layer_output"][0]))
        if cap := model.config.final_logit_softcapping:
            logits = (logits / cap).tanh() * cap
        distributions.append(logits.float().softmax(-1))
    return torch.stack(distributions)


@pytest.mark.parametrize("name", ["mqa", "softcap", "minimal"])
def test_lens_is_the_model_own_head_on_every_block(zoo, name):
    ids = token_ids(11, checkpoints.RECIPES[name].config["vocab_size"])
    text = ",".join(map(str, ids[0].tolist()))
    said = run_json("lens", zoo.folder(name), text, "--ids", "--every-position", "--top", 3)
    expected = lens_of(zoo.reference(name), ids)
    assert said["prompt"]["ids"] == ids[0].tolist()
    assert said["first_position"] == 0
    assert (len(said["layers"]), len(said["layers"][0])) == expected.shape[:2]
    best = expected.topk(3)
    for found, probabilities in zip(said["layers"], best.values, strict=True):
        for cell, row in zip(found, probabilities, strict=True):
            assert [guess["probability"] for guess in cell] == pytest.approx(row.tolist(), abs=1e-5)
    for found, tokens in zip(said["layers"][-1], best.indices[-1], strict=True):
        assert found[0]["id"] == tokens[0]


def test_lens_prints_a_row_a_layer(zoo, folder):
    lines = run("lens", folder, "it is in the city", "--top", 2).splitlines()
    last = run_json("lens", folder, "it is in the city", "--top", 2)["layers"][-1][-1]
    assert lines[0].startswith("<bos>it is in the")
    assert [line.split()[0] for line in lines[4:]] == [str(i) for i in range(8)]
    assert f"{last[0]['probability']:.3f} " in lines[-1]
    assert last[0]["token"].strip() in lines[-1]


def test_lens_without_a_tokenizer_shows_numbers(zoo):
    assert re.search(r'0\.\d{3} "#\d+"', run("lens", zoo.folder("minimal"), "2,5,7", "--ids"))


def test_lens_page_needs_nothing_from_elsewhere(folder, tmp_path):
    run("lens", folder, "</script><b>&", "--html", tmp_path / "lens.html")
    page = (tmp_path / "lens.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<td") == 8 * len(run_json("tokenize", folder, "</script><b>&")["ids"])
    assert page.count("<script") == page.count("</script>") == 3
    assert not re.search(r"https?:|src=|@import|url\(|<link", page)
    origin = json.loads(re.search(r'<script type="application/json" id="origin">(.*?)</script>', page)[1])
    assert origin["schema"] == "gemloupe.lens/1"


# ------------------------------------------------------------------------------------------------ trace

NAMES = ["layers.*.layer_output", "layers.3.self_attn.o_proj.input", "layers.0.self_attn.attention_keys", "logits"]


def expected_values(reference):
    values = reference.capture(IDS)
    names = [f"layers.{i}.layer_output" for i in range(8)] + ["layers.0.self_attn.attention_keys", "logits"]
    expected = {name: values[name] for name in names}
    expected["layers.3.self_attn.o_proj.input"] = values["layers.3.self_attn.o_proj.inputs"][0][0]
    return expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("target", ["x.safetensors", "x.npz", "x/"])
def test_trace_saves_what_the_reference_computes(zoo, tmp_path, target, dtype):
    folder = zoo.folder("mqa", dtype)
    assert run("trace", folder, LIST, *NAMES, "--ids", "--attn", "eager", "--out", f"{tmp_path}/{target}") == ""
    found, metadata = read_saved(tmp_path / target)
    expected = expected_values(zoo.reference("mqa", dtype))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value if target == "x.safetensors" else value.float()), name
    assert metadata["schema"] == "gemloupe.trace/1"
    assert (metadata["torch"], metadata["dtype"], metadata["attn_implementation"]) == ("2.13.0", dtype, "eager")
    assert len(metadata["model"]) == 32
    assert json.loads(metadata["threads"]) == 1
    assert json.loads(metadata["seed"]) is None
    assert json.loads(metadata["prompt_ids"]) == IDS[0].tolist()
    assert os.listdir(tmp_path) == [target.rstrip("/")]


def read_saved(path: Path):
    if path.is_dir():
        found = {file.stem: torch.from_numpy(numpy.load(file)) for file in path.glob("*.npy")}
        metadata = json.loads((path / "metadata.json").read_text())
        return found, {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    if path.suffix == ".npz":
        with numpy.load(path) as file:
            metadata = json.loads(bytes(file["__metadata__"]))
            return {name: torch.from_numpy(file[name]) for name in file.files if name != "__metadata__"}, metadata
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


OUTPUT = "layers.2.mlp.mlp_output"
EDITS = {
    f"{OUTPUT}*=0.5": lambda t: t * 0.5,
    f"{OUTPUT} /= 4": lambda t: t / 4,
    f"{OUTPUT} += 1.5": lambda t: t + 1.5,
    f"{OUTPUT} -= -2e-1": lambda t: t - -0.2,
    f"{OUTPUT} = 0": lambda t: t * 0,
    f"{OUTPUT}[:, -1] *= 0": lambda t: t.index_put((torch.tensor(0), torch.tensor(-1)), torch.tensor(0.0)),
    f"{OUTPUT}[..., 1:9:3] = 2": lambda t: t.index_fill(2, torch.tensor([1, 4, 7]), 2.0),
    f"{OUTPUT} += @steer.safetensors:direction": lambda t: t + torch.arange(48.0),
    f"{OUTPUT} = @steer.safetensors:whole": lambda t: torch.arange(11 * 48.0).view(1, 11, 48),
    f"{OUTPUT}[:, 2] = @steer.npz:direction": lambda t: t.index_copy(
        1, torch.tensor([2]), torch.arange(48.0)[None, None]
    ),
}


@pytest.fixture(scope="module")
def steer(tmp_path_factory):
    where = tmp_path_factory.mktemp("steer")
    tensors = {"direction": torch.arange(48.0), "whole": torch.arange(11 * 48.0).view(1, 11, 48)}
    save_file(tensors, where / "steer.safetensors")
    numpy.savez(where / "steer.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})
    return where


@pytest.mark.parametrize("edit", EDITS)
def test_edits_reach_what_is_downstream(zoo, folder, steer, tmp_path, edit):
    names = ["logits", OUTPUT]
    run(
        "trace",
        folder,
        LIST,
        *names,
        "--ids",
        "--attn=eager",
        "--edit",
        edit,
        "--out",
        tmp_path / "x.safetensors",
        cwd=steer,
    )
    found, metadata = read_saved(tmp_path / "x.safetensors")
    expected = zoo.reference("mqa").capture(IDS, edits={OUTPUT: EDITS[edit]})
    for name in names:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-5)
    assert json.loads(metadata["edits"]) == [edit]


def test_edits_and_names_in_any_order_and_by_glob(zoo, folder, tmp_path):
    edits = ["--edit", "layers.*.self_attn.attention_output[:, -1] = 0", "--edit", "layers.1.layer_output *= 2"]
    run("trace", folder, LIST, "logits", "layers.0.layer_input", "--ids", *edits, "--out", tmp_path / "x.npz")
    found, _ = read_saved(tmp_path / "x.npz")

    def last_zero(value):
        value[:, -1] = 0

    wanted = {f"layers.{i}.self_attn.attention_output": last_zero for i in range(8)}
    expected = zoo.reference("mqa").capture(IDS, edits=wanted | {"layers.1.layer_output": lambda t: t * 2})
    torch.testing.assert_close(found["logits"], expected["logits"], rtol=0, atol=1e-4)


def test_trace_prints_a_summary(zoo, folder):
    said = run_json("trace", folder, LIST, "layers.4.layer_output", "input_ids", "--ids", "--attn", "eager")
    ids, value = said["values"]
    expected = zoo.reference("mqa").capture(IDS)["layers.4.layer_output"].double()
    assert (value["name"], value["shape"], value["dtype"]) == ("layers.4.layer_output", [1, 11, 48], "float32")
    assert (ids["shape"], ids["dtype"], ids["min"]) == ([1, 11], "int64", IDS.min())
    for name in ("mean", "min", "max"):
        assert value[name] == pytest.approx(getattr(expected, name)().item(), rel=1e-6)
    assert value["std"] == pytest.approx(expected.std(correction=0).item(), rel=1e-6)
    text = run("trace", folder, LIST, "layers.4.layer_output", "--ids")
    assert text.split()[:7] == ["value", "shape", "dtype", "mean", "std", "min", "max"]


def test_a_value_that_fused_attention_leaves_out_is_named(folder):
    done = call("trace", folder, LIST, "layers.0.self_attn.output.*", "--ids")
    assert done.returncode == 0
    assert "layers.0.self_attn.output.1 is not made in this run" in done.stderr
    assert call("trace", folder, LIST, "layers.0.self_attn.output.*", "--ids", "--quiet").stderr == ""


# ------------------------------------------------------------------------------------------------ show, support


@pytest.fixture(scope="module")
def gemma_1b(tmp_path_factory):
    """The config of google/gemma-3-1b-pt, without weights."""
    config = dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=1152, head_dim=256)
    config |= dict(intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1)
    config |= dict(vocab_size=262144, sliding_window=512, dtype="bfloat16")
    where = tmp_path_factory.mktemp("gemma-3-1b")
    (where / "config.json").write_text(json.dumps(config))
    return where


def test_show_prints_the_page_tree_from_the_config_alone(gemma_1b):
    assert run("show", gemma_1b) == (ROOT / "tests/data/report/gemma-3-1b.txt").read_text()


def test_show_names_every_parameter(zoo, folder):
    def parameters(module):
        yield from ((p["name"], p["shape"]) for p in module.get("parameters", []))
        for child in module.get("modules", []):
            yield from parameters(child)

    found = dict(parameters(run_json("show", folder)))
    expected = {name: list(tensor.shape) for name, tensor in zoo.reference("mqa").model.state_dict().items()}
    assert found == expected


def test_support_speaks_of_every_value(gemma_1b, tmp_path):
    said = run_json("support", gemma_1b)
    assert list(said) == ["model", "blocks", "values", "identity", "config", "notes", "more_config"]
    assert said["model"]["model.qk_head_dim"] == 256
    assert {kind["kind"]: kind["layers"] for kind in said["blocks"]}["full_attention"] == "5, 11, 17, 23"
    shown = re.findall(r"\((\w+)\)(?: ->|: \[)", run("show", gemma_1b))
    listed = [value["value"] for values in said["values"].values() for value in values]
    assert sorted(listed) == sorted(shown)
    assert all(value["read at"] for values in said["values"].values() for value in values)
    assert "head_dim" in run("support", gemma_1b)
    run("support", gemma_1b, "--html", tmp_path / "x.html")
    assert "attention_queries" in (tmp_path / "x.html").read_text()


# ------------------------------------------------------------------------------------------------ tokenize, generate

TEXT = "it is the city\nof é 中 <start_of_turn> 12"


def test_tokenize_as_the_reference_does(folder, tmp_path):
    import tokenizers

    expected = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT)
    said = run_json("tokenize", folder, TEXT)
    assert (said["ids"], said["tokens"]) == (expected.ids, expected.tokens)
    assert [line.split()[0] for line in run("tokenize", folder, TEXT).splitlines()] == [str(id) for id in expected.ids]
    assert run_json("tokenize", folder, TEXT, "--no-bos")["ids"] == expected.ids[1:]
    (tmp_path / "text").write_text(TEXT)
    assert run_json("tokenize", folder, "--file", tmp_path / "text") == said
    assert run_json("tokenize", folder, "--file", "-", input=TEXT) == said


def test_generate_as_the_reference_does(zoo, folder):
    expected = greedy(zoo.reference("mqa"), IDS, 20)
    assert run_json("generate", folder, LIST, "--ids", "-n", 20)["ids"] == expected
    assert run("generate", folder, LIST, "--ids", "-n", 20) == ",".join(map(str, expected)) + "\n"


def test_generate_streams_the_text_that_it_makes(folder):
    compared = 0
    for prompt in TEXT.split():
        said = run_json("generate", folder, prompt, "-n", 3)
        # A random model makes bytes that are no text; what has been printed of them cannot be taken back.
        if "\ufffd" not in said["text"]:
            assert run("generate", folder, prompt, "-n", 3) == said["text"] + "\n"
            compared += 1
    assert compared


def test_generate_puts_a_message_into_the_chat_template(folder):
    said = run_json("generate", folder, "it is", "--chat", "-n", 1)
    text = "<bos><start_of_turn>user\nit is<end_of_turn>\n<start_of_turn>model\n"
    assert said["prompt_ids"] == run_json("tokenize", folder, text)["ids"]


def test_a_gguf_file_is_a_model_too(zoo):
    file = checkpoints.gguf_file(zoo.root)
    expected = greedy(zoo.reference("gguf"), IDS, 8)
    assert run_json("generate", file, LIST, "--ids", "-n", 8)["ids"] == expected


# ------------------------------------------------------------------------------------------------ help and refusals


def test_version():
    assert re.fullmatch(r"gemloupe \d+\.\d+\.\d+\ntorch 2\.13\.0\S*\nCPU capability \w+\n", run("--version"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples(command):
    assert re.search(rf"Examples:\n  gemloupe {command} ", run(command, "--help"))


def test_wrong_usage_ends_with_2(folder, tmp_path):
    refused(2)
    refused(2, "lense", words=["did you mean 'lens'"])
    refused(2, "lens", folder, words=["PROMPT"])
    refused(2, "lens", folder, "it", "--top", "0", words=["top"])
    refused(2, "lens", folder, "it", "--dtype", "float7", words=["float7", "bfloat16"])
    refused(2, "lens", folder, "it", "--attn", "flash", words=["flash", "eager"])
    refused(2, "tokenize", folder, words=["TEXT"])
    refused(2, "generate", folder, "it", "-n", "-1")
    refused(2, "trace", folder, "it", "logits", "--out", "x.pt", words=[r"x\.pt", "safetensors"])
    refused(2, "show", folder, env={**os.environ, "GEMLOUPE_LOG": "loud"}, words=["loud", "debug"])


@pytest.mark.parametrize(
    "edit", ["logits", "=2", "logits=", "logits=two", "logits*=@file", "logits[=2", "logits[a]=2", "logits[1:2:0]=2"]
)
def test_an_edit_that_cannot_be_read_is_wrong_usage(folder, edit):
    refused(2, "trace", folder, "it", "logits", "--edit", edit, words=[re.escape(f"'{edit}'"), "An edit is"])


def test_errors_end_with_1_and_name_their_page(zoo, folder, steer, tmp_path):
    refused(1, "lens", tmp_path / "none", "it", words=["none"])
    refused(1, "lens", zoo.folder("minimal"), "it", words=["tokenizer"])
    refused(1, "lens", folder, "2,x", "--ids", words=["'x'", "2,818,5"])
    refused(1, "lens", folder, "2,400", "--ids", words=["400"])
    refused(1, "trace", folder, "it", "layers.2.mlp.mlp_outputs", words=["did you mean 'layers.2.mlp.mlp_output'"])
    refused(1, "trace", folder, "it", "layers.*.nothing", words=["layers.*.nothing", "gemloupe show"])
    refused(1, "trace", folder, "it", "logits", "--edit", "next_token_probs=0", words=["derived"])
    refused(1, "trace", folder, "it", "logits", "--edit", "layers.0.layer_output[0, 99]=0", words=["hidden_size 48"])
    refused(
        1, "trace", folder, "it", "logits", "--edit", "logits+=@steer.npz:direction", cwd=steer, words=["vocab_size"]
    )
    refused(
        1, "trace", folder, "it", "logits", "--edit", "logits=@steer.npz:directions", cwd=steer, words=["direction"]
    )
    refused(1, "trace", folder, "it", "logits", "--edit", "logits=@none.safetensors:x", words=["none.safetensors"])
    refused(1, "trace", folder, "it", "logits", "--out", tmp_path / "none" / "x.npz", words=["does not exist"])
    refused(1, "lens", folder, "it", "--html", tmp_path / "none" / "x.html", words=["does not exist"])
    refused(1, "tokenize", folder, "--file", tmp_path / "none", words=["none"])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    refused(1, "show", tmp_path, words=["llama", "gemma3_text"])


def test_a_full_disk_is_an_error(folder, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([executable(), "show", folder], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    (tmp_path / "x.npz").symlink_to("/dev/full")
    refused(1, "trace", folder, "it", "logits", "--out", tmp_path / "x.npz", words=["No space left"])


def test_the_log_says_where_time_goes(folder):
    done = call("generate", folder, "it", "-n", 1, env={**os.environ, "GEMLOUPE_LOG": "debug"})
    assert re.search(r"gemloupe: debug: the model was loaded in [\d.]+ ms\n", done.stderr)
    done = call("generate", folder, "it", "-n", 1, env={**os.environ, "GEMLOUPE_LOG": "info"})
    assert re.fullmatch(r"gemloupe: info: \S+: Gemma3ForCausalLM, 8 layers, float32, .*\n", done.stderr)


# ------------------------------------------------------------------------------------------------ Ctrl-C


def interrupted(delay: float, *arguments, stop=signal.SIGINT) -> int:
    process = subprocess.Popen([executable(), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(delay)
    process.send_signal(stop)
    process.communicate(timeout=60)
    return process.returncode


def test_ctrl_c_ends_a_generation_at_once(folder):
    command = [executable(), "generate", str(folder), LIST, "--ids", "-n", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(8)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, b"gemloupe: interrupted.\n")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("target", ["x.safetensors", "x.npz", "x/"])
def test_whatever_ends_it_no_file_is_half_written(folder, tmp_path, target, stop):
    ids = ",".join(map(str, token_ids(500, 400)[0].tolist()))
    names = ["layers.*.self_attn.attention_scores", "logits"]
    arguments = ["trace", folder, ids, *names, "--ids", "--attn", "eager", "--out", f"{tmp_path}/{target}"]
    start = time.monotonic()
    assert call(*arguments).returncode == 0
    whole = time.monotonic() - start
    expected = read_saved(tmp_path / target)[0].keys()
    codes = {0, 128 + stop, -stop}  # by the signal itself while libraries are still being loaded
    for _ in range(3):
        subprocess.run(["rm", "-r", tmp_path / target.rstrip("/")], check=False, stderr=subprocess.DEVNULL)
        code = interrupted(random.uniform(0.2, 1.1) * whole, *arguments, stop=stop)
        assert code in codes
        left = os.listdir(tmp_path)
        if code == 0 or left:
            assert left == [target.rstrip("/")]
            assert read_saved(tmp_path / target)[0].keys() == expected


# ------------------------------------------------------------------------------------------------ the C++ examples


def example(name: str, *arguments) -> str:
    folder = Path(executable()).resolve().parents[2] / "examples"
    if not folder.exists():
        pytest.skip("built without GEMLOUPE_EXAMPLES")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([folder / name, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=alone)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_in_cpp_do_what_they_say(folder):
    prompt = "it is in the city"
    said = example("load", folder)
    assert said.startswith("Gemma3ForCausalLM: 8 layers, hidden size 48, float32\n")
    assert said.endswith(run("show", folder))
    assert "input + attention + mlp == output: true" in example("read", folder, prompt)
    assert [line.split(":")[0] for line in example("edit", folder, prompt, "the of it").splitlines()] == [
        "unchanged",
        "without the attention of layer 2",
        "with the MLP of layer 1 doubled",
        "with the other prompt's stream after layer 3",
    ]
    assert example("stop", folder, prompt).count("refused: ") == 2
    assert example("generate", folder, prompt) == run("generate", folder, prompt, "-n", 16)
    last = run_json("lens", folder, prompt)["layers"][-1][-1][0]
    number, probability, token = example("lens", folder, prompt).splitlines()[-1].split("\t")
    assert (number, token) == ("7", f'"{last["token"]}"')
    assert float(probability) == pytest.approx(last["probability"], abs=1e-5)
