"""The bench's side of the pipes: the peers as processes, and cold starts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"

#: A peer that is measured only where its module is installed, by `make bench-peers`: none is a dependency of ours.
OPTIONAL = {"nnsight": "nnsight", "nnsight_eager": "nnsight", "llamacpp": "llama_cpp"}


class PeerFailed(RuntimeError):
    pass


def missing(peer: str) -> str | None:
    """The module that this peer lacks here."""
    module = OPTIONAL.get(peer)
    return module if module and importlib.util.find_spec(module) is None else None


def environment(threads: int) -> dict[str, str]:
    """The same for every peer: so many threads, nothing from the network, no chatter."""
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])),
    }


class Worker:
    """One peer with one model, kept running between its turns."""

    def __init__(self, peer: str, model: Path, threads: int, dtype: str | None = None) -> None:
        self.peer = peer
        self._process = subprocess.Popen(
            [sys.executable, PEERS / f"{peer}_worker.py"],
            env=environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("load", model=str(model), threads=threads, dtype=dtype)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"{self.peer} ended with status {self._process.wait()}; see above for why.")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.peer}, asked to {do}: {answer['error']}")
        return answer["answer"]

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def cold(command: list[str], threads: int) -> dict[str, Any]:
    """From the start of a process to the first byte of its answer on stdout."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment(threads), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout
    first = process.stdout.read(1)
    seconds = time.perf_counter() - began
    answer = (first + process.stdout.read()).decode(errors="replace").strip()
    # The process has ended, but is still there to be asked how long it stood in the run queue.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        stood = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        stood = 0.0
    if process.wait() or not first:
        raise PeerFailed(f"{' '.join(map(str, command))} ended with status {process.returncode}")
    return {"samples": [{"seconds": seconds, "waited": stood}], "check": answer}


def read_whole(checkpoint: Path) -> None:
    """Brings a checkpoint, a folder or a file, into the page cache, so that no peer pays for the disk."""
    for path in checkpoint.iterdir() if checkpoint.is_dir() else [checkpoint]:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
