# make demo: the main job on a real training script.   make test: the whole suite.
# make lint: style, formatting, types.   make bench: the speed figures.   Needs Python 3.10+ and pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean
.DEFAULT_GOAL := demo

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "Setting up $(VENV) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/cuda2npu rewrite fixtures/scripts/yolo_train/before.py --diff --color always

test: $(STAMP)
	@$(BIN)/python -m pytest -q -n 2

lint: $(STAMP)
	@echo "== ruff check";  $(BIN)/ruff check .
	@echo "== ruff format"; $(BIN)/ruff format --check .
	@echo "== mypy";        $(BIN)/mypy

bench: $(STAMP)
	@$(BIN)/python tools/bench.py

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
