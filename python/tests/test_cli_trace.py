"""gemloupe trace: what it reads, edits and saves against the reference; files are whole, whatever ends it."""

import fcntl
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from cli import call, executable, refused, run, run_json
from conftest import token_ids

IDS = token_ids(11, 396)
LIST = ",".join(map(str, IDS[0].tolist()))


@pytest.fixture(scope="module")
def folder(zoo):
    return zoo.folder("mqa")


# ------------------------------------------------------------------------------------------------ values and edits

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


# ------------------------------------------------------------------------------------------------ refusals


def test_wrong_usage_ends_with_2(folder):
    refused(2, "trace", folder, "it", "logits", "--out", "x.pt", words=[r"x\.pt", "safetensors"])


@pytest.mark.parametrize(
    "edit", ["logits", "=2", "logits=", "logits=two", "logits*=@file", "logits[=2", "logits[a]=2", "logits[1:2:0]=2"]
)
def test_an_edit_that_cannot_be_read_is_wrong_usage(folder, edit):
    refused(2, "trace", folder, "it", "logits", "--edit", edit, words=[re.escape(f"'{edit}'"), "An edit is"])


def test_errors_end_with_1_and_name_their_page(folder, steer, tmp_path):
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


def test_a_full_disk_is_an_error(folder, tmp_path):
    (tmp_path / "x.npz").symlink_to("/dev/full")
    refused(1, "trace", folder, "it", "logits", "--out", tmp_path / "x.npz", words=["No space left"])


# ------------------------------------------------------------------------------------------------ Ctrl-C


def interrupted(delay: float, *arguments, stop=signal.SIGINT) -> int:
    process = subprocess.Popen([executable(), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(delay)
    process.send_signal(stop)
    process.communicate(timeout=60)
    return process.returncode


def test_what_a_killed_run_left_is_removed(folder, tmp_path):
    """A folder that a run still writes into is locked; a name that is no run's is none of ours."""
    for name in ("x.gemloupe-12", "x.gemloupe-13", "x.gemloupe-notes", "x.gemloupe-", "y.gemloupe-12"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "logits.npy").write_text("")
    (tmp_path / "x.gemloupe-14").symlink_to("y.gemloupe-12")
    written = os.open(tmp_path / "x.gemloupe-13", os.O_RDONLY)
    fcntl.flock(written, fcntl.LOCK_EX)
    for _ in range(2):  # a new folder, and one that is there
        run("trace", folder, LIST, "logits", "--ids", "--out", f"{tmp_path}/x/")
        left = {"x", "x.gemloupe-13", "x.gemloupe-14", "x.gemloupe-notes", "x.gemloupe-", "y.gemloupe-12"}
        assert set(os.listdir(tmp_path)) == left
        assert os.listdir(tmp_path / "y.gemloupe-12")
    os.close(written)


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
