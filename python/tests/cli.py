"""How the tests call the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
