# make demo: converts a training script and runs it on a simulated NPU.   make test: the suite.
# make lint: style, formatting, types.   make docs: the site, in site/.   make bench: the speed
# figures.   Needs Python 3.10+ and pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint docs bench clean
.DEFAULT_GOAL := demo

$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "Setting up $(VENV) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,smoke,transformers,export]' \
		|| { echo "torch and torch-npu 2.13 could not be installed: they need Linux, Python 3.10 to 3.13 and 2 GB" >&2; \
			echo "of disk. Rewriting alone needs neither: $(PYTHON) -m pip install ." >&2; exit 1; }
	@touch $@

demo: $(STAMP)
	@$(BIN)/cuda2npu rewrite fixtures/scripts/yolo_train/before.py --diff --color always
	@echo; echo "The result on a simulated NPU, compared with the original on the CPU:"
	@$(BIN)/cuda2npu smoke fixtures/scripts/yolo_train/before.py --steps 2 || test $$? -eq 1
	@echo "The one edit that changes results, bilinear to nearest, is found by the layer it changes."

test: $(STAMP)
	@CUDA2NPU_ALL_TESTS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: $(STAMP)
	@echo "== ruff check";  $(BIN)/ruff check .
	@echo "== ruff format"; $(BIN)/ruff format --check .
	@echo "== mypy";        $(BIN)/mypy

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The documentation: site/index.html"

bench: $(STAMP)
	@$(BIN)/python tools/bench.py

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
