"""The C++ programs of examples/ do what they say."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from cli import executable, run, run_json
from gemloupe.interventions import activation_patching, attribution_patching


@pytest.fixture(scope="module")
def folder(zoo):
    return zoo.folder("mqa")


def call_example(name: str, *arguments) -> subprocess.CompletedProcess:
    folder = Path(executable()).resolve().parents[2] / "examples"
    if not folder.exists():
        pytest.skip("built without GEMLOUPE_EXAMPLES")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([folder / name, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=alone)


def example(name: str, *arguments) -> str:
    done = call_example(name, *arguments)
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


def test_standing_edits_and_sweeps_in_cpp_are_those_of_python(zoo, folder):
    model = zoo.model("mqa", "float32", None)
    prompt, other = "it is in the city", "it is of the city"
    lines = example("standing", folder, prompt).splitlines()
    with model.edit() as edited:
        model.layers[2].self_attn.attention_output[:] = 0
    texts = [m.generate_text(prompt, max_new_tokens=16, do_sample=False) for m in (model, edited)]
    assert lines[0].startswith("queries of layer 2: [1, ") and lines[1] == "edited: layer 2 attends to nothing"
    assert "\n".join(lines[2:]) == "\n".join(texts)

    best = model(prompt)[0, -1].argmax().item()
    arguments = (prompt, other, lambda logits: logits[:, best].mean())
    patched = activation_patching(model, *arguments, progress=False)
    estimated = attribution_patching(model, *arguments, progress=False)
    lines = example("sweep", folder, prompt, other).splitlines()
    found = torch.tensor([[float(number) for number in line.split("\t")] for line in lines[2:-1]])
    torch.testing.assert_close(found[:, 2], patched.patched.flatten().float(), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found[:, 3], estimated.patched.flatten().float(), atol=1e-3, rtol=1e-3)
    assert float(lines[-1].split()[-1]) == pytest.approx(patched.clean, abs=1e-3)


@pytest.mark.parametrize("name", ["load", "read", "edit", "stop", "generate", "lens", "standing", "sweep"])
def test_an_error_is_a_message_and_exit_code_1(name, tmp_path):
    prompts = {"load": 0, "edit": 2, "sweep": 2}.get(name, 1)
    done = call_example(name, tmp_path / "none", *["it is"] * prompts)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tmp_path / "none") in done.stderr
