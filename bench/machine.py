"""Where and with what a table was taken."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _instructions() -> list[str]:
    flags = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), ""
    ).split()
    return [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if flag in flags]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "tokenizers", "nnsight", "llama_cpp_python"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "python", "apps")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def describe(threads: int) -> dict[str, Any]:
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "instructions": _instructions(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
        "threads": threads,
        "versions": _versions(),
        "commit": _commit(),
    }
