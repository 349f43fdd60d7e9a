"""The C++ example programs, run on a tiny checkpoint."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import gemloupe

BUILD = Path(gemloupe._core.__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("GEMLOUPE_EXAMPLES", BUILD / "examples"))
EXPECTED = {
    "load": "blocks",
    "read": "true",
    "edit": "logits move by at most",
    "stop": "refused: this trace has ended",
    "generate": "\n",
    "lens": "  0  ",
}


@pytest.mark.parametrize("example", EXPECTED)
def test_an_example_runs(example: str, zoo) -> None:
    model = zoo.folder("mqa")
    arguments = [str(model)] + ([] if example == "load" else ["The quick brown fox"])
    run = subprocess.run([str(FOLDER / example), *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert EXPECTED[example] in run.stdout


def test_a_missing_model_is_one_clear_error() -> None:
    run = subprocess.run([str(FOLDER / "load"), "no/such-model"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 1
    assert "no/such-model" in run.stderr and "docs/errors/not-found.md" in run.stderr
