# `make help` lists the targets. All that is assumed: Python 3.11 to 3.13, and make.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
PORT ?= 8080

# Tests start hundreds of processes, each of which would compile everything anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist loadfile

# The first interpreter that is new enough and can make a virtual environment.
SUITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c '$(SUITS)' >/dev/null 2>&1 && { command -v "$$p"; break; }; done)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: $(VENV)/.installed ## install, and run the router in front of simulated backends (PORT=8080)
	@$(BIN)/pointsman demo --port $(PORT)

.PHONY: test
test: $(VENV)/.installed-dev ## run every test but those of the next two (PYTEST_ARGS=...)
	$(PYTEST) --numprocesses 4 -m 'not integration and not soak' $(PYTEST_ARGS)

.PHONY: integration
integration: $(VENV)/.installed-integration ## run the tests with other programs: agents, SDKs, Prometheus
	$(PYTEST) --numprocesses 2 -m 'integration and not soak' $(PYTEST_ARGS)

.PHONY: soak
soak: $(VENV)/.installed-dev ## run the minutes of load, kills and outages
	$(PYTEST) --numprocesses 2 -m soak $(PYTEST_ARGS)

.PHONY: check
check: $(VENV)/.installed-dev ## lint, format, types, and the layers of the imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/.installed-dev ## measure speed and memory (BENCH_ARGS=...)
	$(BIN)/python -m tests.bench.run $(BENCH_ARGS)

.PHONY: clean
clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "No Python 3.11 to 3.13 with the venv module was found (Debian and Ubuntu: apt install" \
	    "python3-venv). Name one with: make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@"$(PYTHON)" -c '$(SUITS)' || { \
	  echo "$(PYTHON) is not a Python 3.11 to 3.13 with the venv module" >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)

# The order-only prerequisite: a newer time stamp of the interpreter is no reason to install again.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing Pointsman and what it needs, by pip: a minute or two, once"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing Pointsman and what its tests need, by pip: some minutes, once"
	@$(PIP) install --editable '.[dev,clients]'
	@touch $@ $(VENV)/.installed

# Beside it, SDKs that need packages of their own are installed by their tests (tests/support/guests.py).
$(VENV)/.installed-integration: $(VENV)/.installed-dev
	@touch $@
