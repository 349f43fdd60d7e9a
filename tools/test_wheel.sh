#!/usr/bin/env bash
# `pip install .` into a scratch venv, which borrows torch and the build's tools from .venv; then the package, its types and
# the command line must work from there. Compiler and torch are named as make build names them, so that ccache has it all.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$PWD/build/wheel-venv
rm -rf "$scratch"
.venv/bin/python -m venv --without-pip "$scratch"
site=$(echo "$scratch"/lib/python3*/site-packages)
for package in .venv/lib/python3*/site-packages/*; do
  case $(basename "$package") in gemloupe* | pip* | __pycache__) ;; *) ln -s "$PWD/$package" "$site/" ;; esac
done
PATH=$PWD/.venv/bin:$PATH CXX=c++ .venv/bin/python -m pip --python "$scratch/bin/python" install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps -C "cmake.define.Libtorch_ROOT=$(echo "$PWD"/.venv/lib/python3*/site-packages/torch)" .

cd /
"$scratch/bin/gemloupe" --version
"$scratch/bin/python" -c 'import gemloupe; print("gemloupe", gemloupe.__version__, "in", gemloupe.__file__)' | tee "$scratch/said"
grep -q "$scratch" "$scratch/said"
ldd "$scratch/bin/gemloupe" >"$scratch/libraries" # fails for a script
grep -q "$scratch/.*/gemloupe/lib/libgemloupe" "$scratch/libraries"
grep -q "$scratch/.*/torch/lib/libtorch_cpu" "$scratch/libraries"
ls "$site"/gemloupe/py.typed "$site"/gemloupe/*.pyi "$site"/gemloupe/lib/libgemloupe.so.* >/dev/null
echo "The wheel works."
