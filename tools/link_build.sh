#!/usr/bin/env bash
# Makes a build folder the one that .venv uses: .venv/bin/gemloupe and `import gemloupe` lead to it and to python/gemloupe,
# so that nothing is copied, and an edited Python file counts at once.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/$1
ln -sfn "$build/apps/gemloupe/gemloupe" .venv/bin/gemloupe
ln -sf "$build"/python/src/_core.*.so python/gemloupe/
for site in .venv/lib/python3*/site-packages; do echo "$PWD/python" >"$site/gemloupe.pth"; done
