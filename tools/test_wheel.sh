#!/usr/bin/env bash
# `pip install .` into a scratch venv, which borrows torch and the build's tools from .venv; then the package, its types and
# the command line must work from there, with nothing of the clone in sight. CXX is as in the presets: ccache has it all.
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
  --no-build-isolation --no-deps --force-reinstall .

cd /
"$scratch/bin/gemloupe" --version
"$scratch/bin/python" -c 'import gemloupe; print("gemloupe", gemloupe.__version__, "in", gemloupe.__file__)' | tee "$scratch/said"
grep -q "$scratch" "$scratch/said"
head -c4 "$scratch/bin/gemloupe" | grep -q ELF
ls "$site"/gemloupe/py.typed "$site"/gemloupe/*.pyi "$site"/gemloupe/lib/libgemloupe.so.* >/dev/null
echo "The wheel works."
