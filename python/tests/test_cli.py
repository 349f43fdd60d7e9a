"""The command line: what it answers against the reference, its help, what it refuses."""

import json
import os
import re
import signal
import subprocess

import pytest
import torch

import gemloupe
from cli import ROOT, call, executable, refused, run, run_json
from conftest import token_ids
from reference import checkpoints
from reference.greedy import greedy

COMMANDS = ("lens", "trace", "show", "support", "tokenize", "generate", "quantize")
IDS = token_ids(11, 396)
LIST = ",".join(map(str, IDS[0].tolist()))


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


def test_generate_puts_a_message_into_the_chat_template(zoo, folder):
    said = run_json("generate", folder, "it is", "--chat", "-n", 1)
    text = "<bos><start_of_turn>user\nit is<end_of_turn>\n<start_of_turn>model\n"
    assert said["prompt_ids"] == run_json("tokenize", folder, text)["ids"]
    refused(1, "generate", zoo.folder("minimal"), "it is", "--chat", words=["no chat template", "bad-tokenizer"])


def test_a_gguf_file_is_a_model_too(zoo):
    file = checkpoints.gguf_file(zoo.root)
    expected = greedy(zoo.reference("gguf"), IDS, 8)
    assert run_json("generate", file, LIST, "--ids", "-n", 8)["ids"] == expected


def test_ctrl_c_ends_a_generation_at_once(folder):
    command = [executable(), "generate", str(folder), LIST, "--ids", "-n", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(8)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, b"gemloupe: interrupted.\n")


# ------------------------------------------------------------------------------------------------ help and refusals


def test_version():
    assert re.fullmatch(r"gemloupe \d+\.\d+\.\d+\ntorch 2\.13\.0\S*\nCPU capability \w+\n", run("--version"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples(command):
    assert re.search(rf"Examples:\n  gemloupe {command} ", run(command, "--help"))


def test_wrong_usage_ends_with_2(folder):
    refused(2)
    refused(2, "lense", words=["did you mean 'lens'"])
    refused(2, "lens", folder, words=["PROMPT"])
    refused(2, "lens", folder, "it", "--top", "0", words=["top"])
    refused(2, "lens", folder, "it", "--dtype", "float7", words=["float7", "bfloat16"])
    refused(2, "lens", folder, "it", "--attn", "flash", words=["flash", "eager"])
    refused(2, "tokenize", folder, words=["TEXT"])
    refused(2, "generate", folder, "it", "-n", "-1")
    refused(2, "show", folder, env={**os.environ, "GEMLOUPE_LOG": "loud"}, words=["loud", "debug"])


def test_errors_end_with_1_and_name_their_page(zoo, folder, tmp_path):
    refused(1, "lens", tmp_path / "none", "it", words=["none"])
    refused(1, "lens", zoo.folder("minimal"), "it", words=["tokenizer"])
    refused(1, "lens", folder, "2,x", "--ids", words=["'x'", "2,818,5"])
    refused(1, "lens", folder, "2,400", "--ids", words=["400"])
    refused(1, "lens", folder, "it", "--html", tmp_path / "none" / "x.html", words=["does not exist"])
    refused(1, "tokenize", folder, "--file", tmp_path / "none", words=["none"])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    refused(1, "show", tmp_path, words=["llama", "gemma3_text"])


def test_a_full_disk_is_an_error(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([executable(), "show", folder], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr


def test_what_a_load_option_makes_of_the_model_is_a_warning(zoo, folder):
    done = call("generate", folder, "it", "-n", 1, "--dtype", "float16")
    assert done.returncode == 0
    assert re.fullmatch(r"gemloupe: warning: float16 ends at 65504.*\n", done.stderr), done.stderr
    with pytest.warns(UserWarning, match="float16 ends at 65504"):
        gemloupe.StandardizedTransformer(zoo.folder("mqa"), dtype=torch.float16)
    done = call("generate", zoo.folder("gemma2"), "it", "-n", 1, "--attn", "sdpa")
    assert re.fullmatch(r"gemloupe: warning: .*softcap.*\n", done.stderr), done.stderr


def test_the_log_says_where_time_goes(folder):
    done = call("generate", folder, "it", "-n", 1, env={**os.environ, "GEMLOUPE_LOG": "debug"})
    assert re.search(r"gemloupe: debug: the model was loaded in [\d.]+ ms\n", done.stderr)
    done = call("generate", folder, "it", "-n", 1, env={**os.environ, "GEMLOUPE_LOG": "info"})
    assert re.fullmatch(r"gemloupe: info: \S+: Gemma3ForCausalLM, 8 layers, float32, .*\n", done.stderr)
