#!/usr/bin/env bash
# Readies what a build needs: the system packages, then .venv with the pinned Python packages.
# Installs nothing when everything is there; PYTHON=python3.12 picks another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

fail() { echo "gemloupe: $*" >&2; exit 1; }
has_header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ -o /dev/null - 2>/dev/null; }
python_has() { "$python" -c "$1" >/dev/null 2>&1; }

# The Debian names of the system packages that are missing.
missing_packages() {
  [ "$(g++ -dumpversion 2>/dev/null | cut -d. -f1)" -ge 12 ] 2>/dev/null || echo g++
  for program in make git ccache; do command -v $program >/dev/null || echo $program; done
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header CLI/CLI.hpp || echo libcli11-dev
  has_header doctest/doctest.h || echo doctest-dev
  has_header zlib.h || echo zlib1g-dev
  has_header xxhash.h || echo libxxhash-dev
  command -v "$python" >/dev/null || echo python3
  python_has 'import ensurepip, venv' || echo python3-venv
  python_has 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' || echo python3-dev
}

install_system_packages() {
  local missing as_root=()
  missing=$(missing_packages | xargs)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi
  if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
    echo "Installing system packages: $missing"
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    # shellcheck disable=SC2086
    { "${install[@]}" update && "${install[@]}" install -y --no-install-recommends $missing; } >/dev/null || true
    missing=$(missing_packages | xargs)
  fi
  [ -z "$missing" ] || fail "please install: $missing (on Debian 12: sudo apt-get install -y $missing), then run make again."
}

make_venv() {
  local stamp=.venv/gemloupe-setup wanted
  wanted=$("$python" -VV; pwd; sha256sum tools/requirements*.txt)
  if [ "$(cat $stamp 2>/dev/null)" = "$wanted" ] && .venv/bin/python -c 'import pip' 2>/dev/null; then return; fi
  echo "Setting up .venv (torch and the other Python packages; some minutes the first time)"
  # A .venv of another interpreter, or a broken one, is made anew.
  [ "$(.venv/bin/python -VV 2>/dev/null)" = "$("$python" -VV)" ] && .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    "$python" -m venv --clear .venv || fail "$python cannot make a virtual environment in .venv; see above."
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt \
    -r tools/requirements-test.txt || fail "pip could not install the packages of tools/requirements*.txt; see above for why."
  echo "$wanted" >$stamp
}

install_system_packages
python_has 'import sys; assert sys.version_info >= (3, 11)' ||
  fail "Python 3.11 or newer is needed, and $python is $("$python" -V 2>&1); name another with PYTHON=python3.12 make ..."
make_venv
