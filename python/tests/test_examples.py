"""The C++ programs of examples/ do what they say."""

import os
import subprocess
from pathlib import Path

import pytest

from cli import executable, run, run_json


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


@pytest.mark.parametrize("name", ["load", "read", "edit", "stop", "generate", "lens"])
def test_an_error_is_a_message_and_exit_code_1(name, tmp_path):
    prompts = {"load": 0, "edit": 2}.get(name, 1)
    done = call_example(name, tmp_path / "none", *["it is"] * prompts)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tmp_path / "none") in done.stderr
