# `make demo` and `make test` do everything from a fresh clone: see `make help`.
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
CTEST := $(VENV)/bin/ctest
CPP_FILES = git ls-files -co --exclude-standard '*.h' '*.cpp'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo test wheel bench bench-peers bench-growth bench-guard lint format asan clean

help: ## say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: ## system packages and .venv, nothing when they are there
	@tools/setup.sh

build: setup ## the library, the command line and the Python package, usable from .venv/bin
	@$(CMAKE) --preset release >/dev/null
	@$(CMAKE) --build --preset release
	@tools/link_build.sh build/release

demo: build ## look inside a real Gemma 3 270M
	@model=$$($(PY) tools/demo_model.py) && mkdir -p build/demo && \
	  $(VENV)/bin/gemloupe lens "$$model" "The Eiffel Tower is in the city of" --html build/demo/lens.html && \
	  echo "The page: build/demo/lens.html"

test: build ## every test, C++ and Python
	@$(CTEST) --preset release; cpp=$$?; $(PY) -m pytest; python=$$?; exit $$((cpp || python))

wheel: build ## pip install . into a scratch venv, and a look at what it left
	@tools/test_wheel.sh

bench: build ## speed beside the reference, as ratios
	@$(PY) bench/bench.py

# torch stays the pinned one. llama.cpp is built for this processor, as its users do; what the bench does not run is left out.
bench-peers: setup ## llama.cpp and nnsight into .venv, for their rows of the bench
	@CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF" \
	  $(PY) -m pip install --disable-pip-version-check -c tools/requirements.txt -r tools/requirements-bench.txt

bench-growth: build ## how time and memory grow with tokens, layers, batch and saved values, as plots
	@$(PY) bench/growth.py

bench-guard: ## whether the last bench lost against bench/baseline.json, by ratios
	@$(PY) bench/guard.py

lint: setup ## formatting, clang-tidy over our headers, ruff, the direction of includes
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(VENV)/bin/clang-format --dry-run -Werror $$($(CPP_FILES))
	@$(PY) tools/check_includes.py
	@$(CMAKE) --preset tidy >/dev/null
	@$(CMAKE) --build --preset tidy

format: setup ## what lint can mend by itself
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format
	@$(VENV)/bin/clang-format -i $$($(CPP_FILES))

asan: setup ## the C++ tests under the address and undefined-behaviour sanitizers
	@$(CMAKE) --preset asan >/dev/null
	@$(CMAKE) --build --preset asan
	@$(CTEST) --preset asan

clean: ## remove what was built; .venv and the demo's model stay
	rm -rf build .pytest_cache .ruff_cache python/gemloupe/_core.*.so
