.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# compiled JAX programs are kept between test runs
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.jax_cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.3
# the many small programs of the quick tests take longer to compile than to run, so they are compiled
# without optimisation; the slow tests run optimised programs, as users do
UNOPTIMISED := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

.PHONY: help setup demo test slow lint bench peers lock

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(READY)  ## create .venv from the pinned lock file

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY)  ## train on the embedded digits, sample from noise, write a report
	$(BIN)/thalweg train digits --run-dir runs/demo --fresh

test: $(READY)  ## run the quick tests, README blocks and docstring examples
	XLA_FLAGS="$(UNOPTIMISED) $(XLA_FLAGS)" $(BIN)/python -m pytest -n 2 -m "not slow"

# in three runs: a process that compiles for an hour takes gigabytes of memory and most of its memory maps
slow: $(READY)  ## run the slow tests
	$(BIN)/python -m pytest -n 2 -m slow tests/contracts
	$(BIN)/python -m pytest -n 2 -m slow tests/posteriors tests/samplers
	$(BIN)/python -m pytest -n 2 -m slow --ignore=tests/contracts --ignore=tests/posteriors --ignore=tests/samplers

lint: $(READY)  ## check style, types and imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: $(READY) peers  ## compare speed and memory with other libraries
	$(BIN)/python benchmarks/run.py

peers: .venv-peers/.ready  ## create the environment of the other libraries

.venv-peers/.ready: benchmarks/peers-requirements.txt | $(READY)
	$(BIN)/python benchmarks/make_peers.py
	touch $@

lock: $(READY)  ## update the lock file from pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --extra dev --strip-extras --allow-unsafe --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options -o requirements.lock pyproject.toml
