# make demo   the main job on a real network, from a clean checkout
# make test   lint, types, import rules, tests
# The first that is new enough and really starts: version managers leave names that do not.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
NATIVE := CMakeLists.txt $(shell find csrc -type f 2>/dev/null)
C_SOURCES := $(filter %.c %.h,$(NATIVE))
# Two at most: each worker loads the whole toolchain.
JOBS ?= 2

.PHONY: demo test check-all lint types imports pytest witness hub format docs install clean

demo: $(STAMP)
	$(BIN)/tilewright fetch demo
	$(BIN)/python -m tilewright.cli.demo -o demo

test: lint types imports pytest witness

# What a release needs besides: everything that `test` leaves out for time.
check-all: test
	$(BIN)/python -m build --version >/dev/null 2>&1 || $(BIN)/pip install -q build
	$(BIN)/python -m build --outdir build/dist
	$(MAKE) demo
	$(BIN)/tilewright fetch benchmarks tests transformers
	$(BIN)/python benchmarks/bits.py --no-write
	$(MAKE) hub

lint: $(DEV_STAMP)
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	@if [ -n "$(C_SOURCES)" ]; then $(BIN)/clang-format --dry-run --Werror $(C_SOURCES); fi

types: $(DEV_STAMP)
	$(BIN)/mypy
	MYPYPATH=src:benchmarks $(BIN)/mypy --strict $(wildcard benchmarks/*.py)

imports: $(DEV_STAMP)
	$(BIN)/lint-imports

pytest: $(DEV_STAMP)
	$(BIN)/pytest -n $(JOBS) --dist worksteal

# Arm's TOSA reference model pins other libraries than ours, so it has an environment of its own.
WITNESS := $(VENV)-witness
WITNESS_STAMP := $(WITNESS)/.installed

$(WITNESS_STAMP): Makefile | $(BIN)/python
	"$(PYTHON)" -m venv $(WITNESS)
	$(WITNESS)/bin/python -m pip install -q tosa-tools==2026.8.0
	@touch $@

witness: $(DEV_STAMP) $(WITNESS_STAMP)
	TOSA_PYTHON=$(abspath $(WITNESS))/bin/python $(BIN)/pytest tests/witness

# The extra `hub` brings torch, which nothing else needs.
HUB := $(VENV)-hub
HUB_STAMP := $(HUB)/.installed

$(HUB_STAMP): pyproject.toml | $(BIN)/python
	"$(PYTHON)" -m venv $(HUB)
	$(HUB)/bin/python -m pip install -q -e '.[hub,dev]'
	@touch $@

hub: $(HUB_STAMP)
	$(HUB)/bin/pytest tests/hub

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix-only -q src tests benchmarks examples
	$(BIN)/ruff format -q src tests benchmarks examples
	@if [ -n "$(C_SOURCES)" ]; then $(BIN)/clang-format -i $(C_SOURCES); fi

# Pages that are generated from the code.
docs: $(DEV_STAMP)
	$(BIN)/python -m tilewright.cli.reference .

install: $(STAMP)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Tilewright needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(STAMP): pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(DEV_STAMP): pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $(STAMP) $@

clean:
	rm -rf build demo out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
