#!/usr/bin/env python3
"""Checks that includes point one way, and that no file names this machine.

A folder of src/gemloupe may include itself and the folders before it in ORDER. The facade (src/gemloupe/*.h), the apps,
the bindings, the tests and the examples stand above all of them.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ORDER = ["base", "store", "ops", "plan", "family", "text", "run", "report"]
ONLY = {"text": ["base", "store"]}  # narrower than its place in ORDER
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
# Paths of a machine and hosts of registries, written so that this file does not contain them.
FOREIGN = re.compile(
    r"(?<![\w.])/(work|root)/|\.\./share[d]\b|\b(pypi|pythonhosted|download\.pytorch|deb\.debian|anaconda)\.org\b"
)


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for path in map(ROOT.joinpath, listed.stdout.splitlines()) if path.is_file()]


def allowed(folder: str) -> list[str]:
    return [*ONLY.get(folder, ORDER[: ORDER.index(folder)]), folder]


def include_faults(path: Path, lines: list[str]) -> list[str]:
    parts = path.relative_to(ROOT).parts
    folder = parts[2] if parts[:2] == ("src", "gemloupe") and len(parts) > 3 else None
    if folder is not None and folder not in ORDER:
        return [f"{'/'.join(parts)}: the folder {folder} has no place in ORDER of tools/check_includes.py"]
    faults = []
    for number, line in enumerate(lines, 1):
        if not (match := INCLUDE.match(line)):
            continue
        target = match[1]
        where = f"{'/'.join(parts)}:{number}: includes {target}"
        if target == "torch/torch.h" or target == "torch/all.h":
            faults.append(f"{where}; include the ATen header that is needed (it takes 15 s a file)")
        elif folder and path.suffix == ".h" and re.match("(ATen|torch)/(?!core/Tensor.h)", target):
            faults.append(f"{where}; a header may include only ATen/core/Tensor.h of torch")
        elif folder and target.startswith("gemloupe/"):
            toward = target.split("/")[1]
            if "/" not in target.removeprefix("gemloupe/"):
                if toward != "version.h":
                    faults.append(f"{where}; folders know nothing of the facade")
            elif toward not in allowed(folder):
                faults.append(f"{where}; {folder} may include only {', '.join(allowed(folder))}")
    return faults


def foreign_faults(path: Path, lines: list[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: names a path of one machine or a registry's host: {match[0]}"
        for number, line in enumerate(lines, 1)
        if (match := FOREIGN.search(line))
    ]


def main() -> int:
    faults = []
    for path in files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture or another binary file
        faults += foreign_faults(path, lines)
        if path.suffix in (".h", ".cpp"):
            faults += include_faults(path, lines)
    print("\n".join(faults) or "Includes point one way; no file names this machine.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
