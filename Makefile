# wordline: every target sets up what it needs. On a fresh machine: Python 3.11+, make and a C++20 compiler.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV   := .venv
PY     := $(VENV)/bin/python
JOBS   ?= 2
BUILD  := build/dev
STAMP  := $(VENV)/.wordline-env
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) -q
# Tests that drive the native core; `make test-all` repeats them on the sanitizer build.
NATIVE_TESTS := $(wildcard tests/native tests/numerics tests/sim tests/runtime)
# One build at a time, where the tool for that exists: two shells of one developer must not write the same objects.
LOCK   := $(if $(shell command -v flock),flock build/.lock)

PROMPT ?= What is a word line in a memory chip?
TOKENS ?= 48

.DEFAULT_GOAL := help
.PHONY: help run test test-all bench bench-report env native sanitized lint format types contracts docs-check clean

help: ## what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

run: native ## compile SmolLM2-135M-Instruct and generate text with it on the simulated device
	$(VENV)/bin/wordline generate --chat --prompt "$(PROMPT)" --max-tokens $(TOKENS)

test: native ## the test suite, without the exhaustive and slow tests
	$(PYTEST) -m "not exhaustive and not slow" $(ARGS)

test-all: native sanitized ## every test, then the native tests again on a build with ASan and UBSan
	$(PYTEST) $(ARGS)
	OMP_NUM_THREADS=1 $(PY) scripts/sanitized_pytest.py build/asan/python -q -m "not exhaustive and not slow" $(NATIVE_TESTS)

bench: native ## the deterministic cycle table, compared with the committed baseline
	OMP_NUM_THREADS=1 $(PY) -m benchmarks $(ARGS)

bench-report: native ## the cycle table as an HTML page with plots: build/bench.html
	OMP_NUM_THREADS=1 $(PY) -m benchmarks --html build/bench.html $(ARGS)

env: $(STAMP) ## the environment in .venv

$(STAMP): pyproject.toml constraints.txt scripts/make_env.sh
	bash scripts/make_env.sh $(VENV)
	touch $@

native: $(STAMP) ## build the native core into src/wordline/ (incremental)
	@mkdir -p build
	@$(LOCK) bash scripts/build_native.sh $(PY) $(BUILD) src/wordline $(JOBS)

sanitized: $(STAMP) ## the native core with ASan and UBSan, in a copy of the package under build/asan/python
	@mkdir -p build/asan/python
	@rm -rf build/asan/python/wordline && cp -R src/wordline build/asan/python/wordline
	@$(LOCK) bash scripts/build_native.sh $(PY) build/asan build/asan/python/wordline $(JOBS) -DWORDLINE_SANITIZE=ON

lint: $(STAMP) ## style
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(STAMP) ## rewrite to the style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: native ## static types
	$(PY) -m mypy

contracts: native ## import contracts, and the kernels' linkage
	$(VENV)/bin/lint-imports
	$(PY) scripts/check_kernel_symbols.py $(BUILD)

docs-check: native ## links and commands named in the documentation exist
	$(PY) scripts/check_docs.py

clean: ## remove everything that was built (not .venv)
	rm -rf build src/wordline/_native.*
