# The words people type; CI types the same ones.
#   make demo     set up everything, run a job that dies, print its report
#   make test     the same set-up, then all tests; of the crash matrix and the distributed jobs a part

PYTHON ?= python3
# Any pip requirement, e.g. make demo TORCH=torch==2.12.1
TORCH ?= torch==2.13.0
VENV ?= .venv
CXX ?= g++
JOBS ?= 2
ARGS ?=
# The CUDA half: a torch for CUDA without NVIDIA's packages, on the fake runtime of tests/fakecuda; its headers come from PyPI.
CUDA_TORCH ?= torch==2.14.1
CUDA_HEADERS ?= nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88
CUDA_VENV ?= .venv-cuda
INTEGRATIONS_VENV ?= .venv-integrations
BROWSER_VENV ?= .venv-browser

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := CXX="$(CXX)" PYTRACER_PRESET=dev $(PIP) install --no-build-isolation
CUDA_PIP := $(CUDA_VENV)/bin/python -m pip --disable-pip-version-check
TORCH_STAMP := $(VENV)/.torch-$(subst /,_,$(subst =,_,$(firstword $(TORCH))))
CUDA_STAMP := $(CUDA_VENV)/.torch-$(subst /,_,$(subst =,_,$(CUDA_TORCH)))
CUDA_TREE := build/cuda-tree
ASAN_TREE := build/asan-tree
TSAN_TREE := build/tsan-tree
ALL_TESTS := not full_matrix and not every_job and not every_row and not every_home and not every_case
SOURCES := $(shell find csrc -type f) CMakeLists.txt CMakePresets.json setup.py pyproject.toml
BUILD_TOOLS := "setuptools>=77" "cmake>=3.21" "ninja>=1.11" wheel
FORMATTED_CPP := $(filter-out csrc/blackbox/layout.h,$(filter %.cpp %.h,$(SOURCES) $(shell find tests/fakecuda -type f)))
FORMATTED_PY := pytracer scripts benchmarks examples tests setup.py

.PHONY: demo test test-slow test-all test-crash test-corpus test-generated test-harm test-peers test-homes test-distributed test-integrations test-browser test-cuda test-gpu build-cuda build-aarch64 test-aarch64 test-asan test-tsan fuzz build wheel test-wheel test-corners matrix lint format docs bench soak instructions clean help tools
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up .venv, build, run a job that dies, print its report"
	@echo "make test    the same set-up, then the quick tests    (ARGS='-k name', JOBS=$(JOBS))"
	@echo "make test-slow  the tests that make test leaves out      (the same); make test-all: both, with every parameter"
	@echo "make test-crash  the whole crash matrix, and its table  (ARGS='-k name', ARGS='--write docs/measurements/crash-matrix.md')"
	@echo "make test-harm  traced programs against untraced ones   (ARGS='-k waits --times 20', ARGS='--write docs/measurements/harm.md')"
	@echo "make test-corpus  all crashes from public issues      (ARGS='-k name')"
	@echo "make test-generated  2,000 crashes with known cause       (ARGS='--seeds 17', ARGS='--write docs/measurements/calibration.md')"
	@echo "make test-peers  other projects' tests and programs     (ARGS=--quick, ARGS='OpenJDK', ARGS='--all --write docs/measurements/peers.md')"
	@echo "make test-homes  six deaths in each launcher and framework  (ARGS='-k torchrun', ARGS='--times 3 --write docs/measurements/homes.md')"
	@echo "make test-distributed  all jobs of several ranks        (ARGS='-k name')"
	@echo "make test-integrations  Perfetto, MLflow, W&B, Sentry, OpenTelemetry and others, the real ones, in $(INTEGRATIONS_VENV)  (ARGS='-k name')"
	@echo "make test-browser  the page of inspect --html in chromium, in $(BROWSER_VENV)  (ARGS='-k name')"
	@echo "make test-cuda  real torch CUDA code on a fake CUDA runtime, in $(CUDA_VENV)  (ARGS='-k name')"
	@echo "make test-gpu   the same and 128 known faults on a real GPU   (PYTHON=python3 with torch for CUDA, in a tree built there)"
	@echo "make test-tsan  the lock-free structures with real threads, with ThreadSanitizer"
	@echo "make test-asan  the same with AddressSanitizer and UBSan; tests/native with a core that traps  (ARGS='-k name')"
	@echo "make fuzz    damaged and hostile recordings for the reader  (ARGS='--guided --minutes 60')"
	@echo "make build   set up and build only; again when csrc changes"
	@echo "make build-aarch64  cross-compile the native half for aarch64; needs g++-aarch64-linux-gnu"
	@echo "make test-aarch64  run it in a Debian for aarch64 under qemu; needs root, debootstrap, qemu-user-static  (ARGS=tests/native)"
	@echo "make wheel   dist/pytracer-*.whl for every torch; no compiler is needed to install it  (ARGS='--torch 2.13', ARGS='--machine aarch64')"
	@echo "make test-wheel  a wheel for the torch of $(VENV), in a new environment without a compiler"
	@echo "make test-corners  one wheel beside torch 2.11 and 2.15, which must have everything"
	@echo "make matrix  the wheel in dist/ under every CPython and torch  (ARGS='--python python3.12 --torch 2.14.1', ARGS='--write docs/reference/support.md')"
	@echo "make lint    ruff, mypy, import-linter, generated files, crash safety, clang-format"
	@echo "make format  ruff and clang-format"
	@echo "make docs    write the generated files"
	@echo "make bench   all benchmarks, half an hour               (ARGS=--quick: ten minutes)"
	@echo "make soak    a job of two ranks for half an hour        (ARGS='--minutes 10')"
	@echo "make instructions  instructions of the hot paths against docs/measurements/cost.md; needs valgrind"
	@echo "make clean   remove what was built; .venv, .venv-cuda, .venv-integrations, .venv-browser and runs stay"
	@echo
	@echo "PYTHON=$(PYTHON)  TORCH=$(TORCH)  VENV=$(VENV)  CXX=$(CXX)"

demo: build
	@rm -f runs/demo/report.json
	@echo '$$ pytracer run -- torchrun --nproc-per-node 2 examples/ddp_use_after_free.py'
	@OMP_NUM_THREADS=1 $(BIN)/pytracer run --force -o runs/demo -- \
	    $(BIN)/torchrun --standalone --nproc-per-node 2 examples/ddp_use_after_free.py; \
	    test -f runs/demo/report.json || { echo "the demo did not die as it should: see above" >&2; exit 1; }

test: build
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(ARGS)

# Tests that are not part of another target.
test-slow: build
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -m "slow and not every_parameter and $(ALL_TESTS)" $(ARGS)

# Both, and every parameter of tests that have many: half an hour to an hour.
test-all: build
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -m "$(ALL_TESTS)" $(ARGS)

# Every kind of death x thread x state x way to record, each a process that dies.
test-crash: build
	$(BIN)/python scripts/crash_matrix.py -n $(JOBS) $(ARGS)

# Every crash of public issues that is re-made in tests/corpus; make test-slow has the first ones, and of one in twenty-four of the
# others those that do not wait for a time limit; of all, those that need no extension.
test-corpus: build
	$(BIN)/python -m pytest tests/corpus -n $(JOBS) -m "" --dist worksteal $(ARGS)

# 2,000 crashes with known cause: how sure the reports were, and how often they were right. Half an hour to an hour. ARGS='--seeds 17'
# runs one, ARGS='--write docs/measurements/calibration.md' writes the tables. Then 198 calls of torch's operators that a search found.
test-generated: build
	$(BIN)/python scripts/generated_crashes.py -n $(JOBS) $(ARGS)
	$(BIN)/python scripts/operator_crashes.py -n $(JOBS)
	$(BIN)/python -m pip install --quiet expecttest  # torch's own test samples need it
	$(BIN)/python scripts/check_preconditions.py

# Every program x way to trace x set of powers against the same program untraced. 1,000 crashes for each kind of wait, an hour:
# ARGS='-k test_waits --times 1000'.
test-harm: build
	$(BIN)/python scripts/harm_table.py -n $(JOBS) $(ARGS)

# Test suites and programs of other projects, untraced and traced. Missing ones are listed; docs/measurements/peers.md has the packages.
test-peers: build $(VENV)/.peers
	$(BIN)/python scripts/peers.py $(ARGS)

# Each launcher and framework in an environment of its own, below build/homes: 3 GB. One job at a time.
test-homes: build
	$(BIN)/python tests/homes/environments.py
	$(BIN)/python scripts/homes_table.py $(ARGS)
	$(BIN)/python -m pytest tests/homes --ignore tests/homes/test_homes.py -m ""

# Every real job of 2 to 4 ranks. More at a time than two cores can feed runs into their short time-outs.
test-distributed: build
	$(BIN)/python -m pytest tests/distributed -n $(JOBS) -m "" --dist worksteal $(ARGS)

# The real tools that read what pytracer writes, on loopback, in a venv of their own: half a gigabyte. The reader needs no build.
test-integrations: $(INTEGRATIONS_VENV)/.installed
	$(INTEGRATIONS_VENV)/bin/python -m pytest tests/integrations $(ARGS)

$(INTEGRATIONS_VENV)/.installed: tests/integrations/requirements.txt | tools
	$(PYTHON) -m venv $(INTEGRATIONS_VENV)
	$(INTEGRATIONS_VENV)/bin/python -m pip --disable-pip-version-check install -r tests/integrations/requirements.txt
	@touch $@

# The page of `inspect --html` in Debian's chromium, in a venv of its own: 150 MB. The reader needs no build.
test-browser: $(BROWSER_VENV)/.installed
	$(BROWSER_VENV)/bin/python -m pytest tests/browser $(ARGS)

$(BROWSER_VENV)/.installed: tests/browser/requirements.txt | tools
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || command -v chromium-browser >/dev/null || \
	    { echo "there is no chromium: apt-get install chromium" >&2; exit 1; }
	$(PYTHON) -m venv $(BROWSER_VENV)
	$(BROWSER_VENV)/bin/python -m pip --disable-pip-version-check install -r tests/browser/requirements.txt
	@touch $@

# Built in a second tree: one tree holds the build for one torch.
test-cuda: build-cuda
	cd $(CUDA_TREE) && PYTHONPATH="$$PWD" PYTRACER_FAKECUDA="$$PWD/build/native/fakecuda" \
	    $(abspath $(CUDA_VENV))/bin/python -m pytest tests/cuda -n $(JOBS) $(ARGS)

# On a real GPU, with the python that has a torch for CUDA, in a tree that was built for it: 10 minutes.
test-gpu:
	$(PYTHON) scripts/gpu_check.py
	PYTRACER_REAL_CUDA=1 $(PYTHON) -m pytest tests/cuda $(ARGS)
	$(PYTHON) scripts/gpu_faults.py

build-cuda: $(CUDA_STAMP)
	$(CUDA_VENV)/bin/python scripts/second_tree.py $(CUDA_TREE)
	cd $(CUDA_TREE) && CXX="$(CXX)" PYTRACER_PRESET=fakecuda PYTRACER_CUDA_HEADERS="$(abspath $(CUDA_VENV))/headers/nvidia/cu13/include" \
	    $(abspath $(CUDA_VENV))/bin/python setup.py -q build_ext --inplace

$(CUDA_STAMP): | tools
	$(PYTHON) -m venv $(CUDA_VENV)
	$(CUDA_PIP) install --no-deps $(CUDA_TORCH)
	$(CUDA_PIP) install filelock typing-extensions sympy networkx jinja2 fsspec \
	    click msgspec pyelftools rich capstone $(BUILD_TOOLS) "numpy>=1.26" pytest==9.2.0 pytest-timeout==2.4.0 pytest-xdist==3.8.0
	@# Aside: a real libcudart among the installed packages would be found before the fake one.
	$(CUDA_PIP) install --no-deps --upgrade --target $(CUDA_VENV)/headers $(CUDA_HEADERS)
	@rm -f $(CUDA_VENV)/.torch-* && touch $@

# The core under the sanitizers, without torch, in separate trees: lock-free publication, used by real threads
# (csrc/testing/stress.cpp), and tests/native with a core whose undefined behaviour traps. On two cores 1 and 3 minutes, and one more
# when they are built for the first time. Two tests of a minute each only test the capacity of the tables.
test-tsan: build
	$(BIN)/python scripts/second_tree.py $(TSAN_TREE)
	cd $(TSAN_TREE) && CXX="$(CXX)" PYTRACER_WITHOUT_TORCH=1 PYTRACER_PRESET=tsan $(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd $(TSAN_TREE) && PYTHONPATH="$$PWD" $(abspath $(BIN))/python -m pytest tests/sanitizers $(ARGS)

test-asan: build
	$(BIN)/python scripts/second_tree.py $(ASAN_TREE)
	cd $(ASAN_TREE) && CXX="$(CXX)" PYTRACER_WITHOUT_TORCH=1 PYTRACER_PRESET=asan $(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd $(ASAN_TREE) && PYTHONPATH="$$PWD" $(abspath $(BIN))/python -m pytest tests/sanitizers tests/native -n $(JOBS) \
	    -m "not every_parameter and $(ALL_TESTS)" -k "not test_killed_process_leaves and not test_full_table_loses" $(ARGS)

# Compiles core, helper, test libraries and the hooks for one torch without warnings, and checks the crash path's symbols; nothing is run.
build-aarch64: build
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/build_aarch64.py $(ARGS)
	$(BIN)/python scripts/check_crashsafe.py --build build/aarch64

# Downloads 0.5 GB for each torch, which build/torch keeps; a quarter of an hour on two cores.
wheel: build
	$(BIN)/python scripts/build_wheel.py $(ARGS)

test-wheel: build
	$(BIN)/python scripts/build_wheel.py --installed --output build/wheel
	$(BIN)/python -m pytest tests/wheel -n $(JOBS) $(ARGS)

# In a Debian for aarch64 that is made once, with the newest torch for aarch64 that needs no NVIDIA libraries: 10 minutes, later 3.
test-aarch64: build
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/build_aarch64.py --torch 2.10
	$(BIN)/python scripts/check_crashsafe.py --build build/aarch64
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/test_aarch64.py $(ARGS)

# One to two minutes and 0.5 to 0.9 GB to download for each torch under each CPython. docs/reference/support.md has the results.
matrix: build
	$(BIN)/python scripts/support_matrix.py $(ARGS)

# The oldest and the newest torch of tier 1 with one wheel: 5 minutes and 2 GB to download on two cores.
test-corners: build
	$(BIN)/python scripts/build_wheel.py --torch 2.11 2.15 --output build/corners
	$(BIN)/python scripts/support_matrix.py --wheel build/corners/*.whl --torch 2.11.0 2.15.0

# Each input in a process with 5 s and 512 MiB. Failures are in build/fuzz, with the command to replay them.
fuzz: build
	$(BIN)/python tests/fuzz/fuzz.py $(ARGS)

build: $(VENV)/.built

lint: build $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/gen_layout.py --check
	$(BIN)/python scripts/gen_redaction.py --check
	$(BIN)/python scripts/gen_docs.py --check
	$(BIN)/python scripts/gen_schema.py --check
	$(BIN)/python scripts/check_crashsafe.py
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED_CPP)
	sh -n scripts/pytracer-run

format: $(VENV)/.lint
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED_CPP)

docs: build
	$(BIN)/python scripts/gen_layout.py
	$(BIN)/python scripts/gen_redaction.py
	$(BIN)/python scripts/gen_docs.py
	$(BIN)/python scripts/gen_schema.py

# Other tools are measured for comparison: memray, py-spy. ARGS=--write writes the tables to docs/measurements/cost.md. soak.py is a
# job of half an hour, and has its own target.
bench: build $(VENV)/.bench
	@for file in $(filter-out benchmarks/soak.py,$(wildcard benchmarks/*.py)); do \
	    echo "== $$file" >&2; begun=$$(date +%s); $(BIN)/python $$file $(ARGS) || exit 1; \
	    echo "== $$file took $$(($$(date +%s) - begun)) s" >&2; done

soak: build
	$(BIN)/python benchmarks/soak.py $(ARGS)

# Needs valgrind with its headers. Fails when a hot path is longer than in docs/measurements/cost.md.
instructions: build
	$(BIN)/python scripts/instruction_counts.py $(or $(ARGS),--check)

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache $(VENV)/.built
	rm -rf pytracer/*.so pytracer/_helper pytracer/_torch
	find pytracer scripts tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "pytracer needs Python 3.10 or newer: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || \
	    { echo "$(PYTHON) has no headers: apt-get install python3-dev" >&2; exit 1; }
	@command -v $(CXX) >/dev/null || { echo "there is no C++ compiler ($(CXX)): apt-get install g++" >&2; exit 1; }

# Stamps, so that the second call is quick.
$(VENV)/.python: | tools
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(TORCH_STAMP): | $(VENV)/.python
	$(PIP) install $(TORCH) $(BUILD_TOOLS) "numpy>=1.26"
	@rm -f $(VENV)/.torch-* && touch $@

$(VENV)/.built: $(TORCH_STAMP) $(SOURCES)
	$(INSTALL) -e ".[test,disasm,symbols]"
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.built
	$(INSTALL) -e ".[bench]"
	@touch $@

$(VENV)/.peers: pyproject.toml | $(VENV)/.built
	$(INSTALL) -e ".[test,peers]"
	@touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.built
	$(INSTALL) -e ".[lint]"
	@touch $@
