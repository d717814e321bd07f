# Each target sets up what it needs first: Python packages in .venv, every build in target.
#
#   make demo     real weights cross from a producer to a consumer, no byte copied
#   make test     lint, then every test; the seconds of each part at the end
#   make bench    the device layer, then side by side with NumPy, torch, tvm-ffi and pyhurray 0.1.0
#   make fuzz     FUZZ_RUNS changed inputs (a million) for each of FUZZ_TARGETS, with libFuzzer; by hand, make test has a short run
#   make gpu-test what only a GPU can show, as a table: see docs/gpu-results.md
#   make lint     formatting, warnings (of the documentation too), and whether hurray.h is what the source gives
#   make header   writes hurray.h anew
#
# TORCH=0 leaves PyTorch out (5 GB); PYTHON=... names another interpreter, 3.11 or newer.

PYTHON ?= python3
TORCH ?= 1

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check

# One target folder for all builds, the package outside the workspace and the tools included.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# PyO3 asks this interpreter, so that cargo and maturin build against the same one.
export PYO3_PYTHON := $(BIN)/python

CBINDGEN_VERSION := 0.29.4
CBINDGEN_ROOT := $(CARGO_TARGET_DIR)/tools/cbindgen-$(CBINDGEN_VERSION)
CBINDGEN := $(CBINDGEN_ROOT)/bin/cbindgen
HEADER := $(CBINDGEN) --quiet --config crates/ffi/cbindgen.toml --crate hurray-ffi \
	--output crates/ffi/include/hurray.h
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ_ROOT := $(CARGO_TARGET_DIR)/tools/cargo-fuzz-$(CARGO_FUZZ_VERSION)
CARGO_FUZZ := $(CARGO_FUZZ_ROOT)/bin/cargo-fuzz
FUZZ_TARGETS ?= descriptor capsule file stream conversion
FUZZ_RUNS ?= 1000000
# What a run learns is kept for the next one.
FUZZ_CORPUS := $(CARGO_TARGET_DIR)/fuzz
INTEROP := --manifest-path tests/interop/Cargo.toml
# Linked as a Python module, hurray-python has no test binary; tests/python are its tests.
CARGO_TEST := cargo test --locked --workspace --exclude hurray-python
# Every interleaving of small programs over the device layer's event pool and reclaimer.
LOOM := RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off cargo test --locked --release --package hurray-cuda --lib loom_

MODULE_SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find crates -name '*.rs' -o -name 'Cargo.toml' -o -name '*.h')

TIMES := $(CARGO_TARGET_DIR)/times.txt
# $(call timed,name,command): runs the command and notes its seconds.
timed = @echo "== $(1)"; start=$$(date +%s); $(2) && \
	printf '%6d s  %s\n' $$(($$(date +%s) - start)) '$(1)' >> $(TIMES)

# What travels to a machine with a GPU, beside the checkout.
GPU_KIT := $(CARGO_TARGET_DIR)/gpu
# The interpreter there that has PyTorch and CuPy.
GPU_PYTHON ?= $(PYTHON)

.PHONY: demo test bench fuzz examples gpu-kit gpu-test gpu-simulator lint lint-format lint-warnings lint-header header
.PHONY: module packages examples-packages peer
.NOTPARALLEL:

demo: examples-packages module
	$(BIN)/python examples/demo.py

# Quick failures first, the long installation of torch late.
test:
	@mkdir -p $(CARGO_TARGET_DIR) && : > $(TIMES)
	$(call timed,lint,$(MAKE) --no-print-directory lint)
	$(call timed,Rust tests,$(CARGO_TEST))
	$(call timed,loom models,$(LOOM))
	$(call timed,differential tests,cargo test --locked $(INTEROP))
	$(call timed,build of the module,$(MAKE) --no-print-directory module)
	$(call timed,Python packages,$(MAKE) --no-print-directory packages)
	$(call timed,examples,$(MAKE) --no-print-directory examples)
	$(call timed,pyhurray 0.1.0,$(MAKE) --no-print-directory peer)
	$(call timed,Python tests,HURRAY_PEER=$(CARGO_TARGET_DIR)/pyhurray/bin/python $(BIN)/pytest)
	$(call timed,GPU rows on the stand-in driver,$(MAKE) --no-print-directory gpu-simulator)
	@echo "== seconds"; cat $(TIMES)

# The README's program is one of them.
examples: examples-packages module
	sed -n '/^```python$$/,/^```$$/{/^```/!p}' README.md | $(BIN)/python -
	$(BIN)/python examples/buffer_protocol.py
	$(BIN)/python examples/demo.py
	cargo build --quiet --locked --package hurray-cuda-sim
	$(BIN)/python examples/pipeline.py

bench: packages module peer
	cargo bench --locked --package hurray-benches
	$(BIN)/python benches/side_by_side.py --pyhurray $(CARGO_TARGET_DIR)/pyhurray/bin/python \
		--json $(CARGO_TARGET_DIR)/bench/side_by_side.json

# Stable has the instrumentation under a flag; without LTO, which only makes the build longer.
fuzz: $(CARGO_FUZZ)
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ_CORPUS)/$$target; \
		RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=off $(CARGO_FUZZ) run \
			--fuzz-dir tests/fuzz --features libfuzzer $$target \
			$(FUZZ_CORPUS)/$$target tests/fuzz/corpus/$$target $(wildcard tests/vectors/*/) \
			-- -runs=$(FUZZ_RUNS) -max_len=32768 -timeout=20 || exit 1; \
	done

# The wheel, and programs without symbols: a few MB in all.
gpu-kit: $(VENV)/.tools
	rm -rf $(GPU_KIT) && mkdir -p $(GPU_KIT)/cuda-sim
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --quiet --release --locked --out $(GPU_KIT)
	cargo build --locked --release --package hurray-cuda-programs --package hurray-cuda-sim --lib --bin rules
	install -s $(CARGO_TARGET_DIR)/release/rules $(GPU_KIT)
	install -s $(CARGO_TARGET_DIR)/release/libhurray_cuda_sim.so $(GPU_KIT)/cuda-sim/libcuda.so
	ln -s libcuda.so $(GPU_KIT)/cuda-sim/libcuda.so.1
	install -s $$(cargo bench --locked --no-run --package hurray-benches --message-format=json | \
		sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') $(GPU_KIT)/device-bench

gpu-test: gpu-kit
	$(GPU_PYTHON) tests/gpu/run.py --kit $(GPU_KIT) --output $(GPU_KIT)/results.md

# The rows that need no GPU, with what the Rust tests have built; only that they are fit to run.
gpu-simulator: packages module
	cargo build --quiet --locked --package hurray-cuda-sim --package hurray-cuda-programs --lib --bins
	mkdir -p $(CARGO_TARGET_DIR)/debug/cuda-sim
	ln -sf ../libhurray_cuda_sim.so $(CARGO_TARGET_DIR)/debug/cuda-sim/libcuda.so
	ln -sf ../libhurray_cuda_sim.so $(CARGO_TARGET_DIR)/debug/cuda-sim/libcuda.so.1
	$(BIN)/python tests/gpu/run.py --kit $(CARGO_TARGET_DIR)/debug --simulator

lint: lint-format lint-warnings lint-header

lint-format: $(VENV)/.tools
	cargo fmt --all --check
	cargo fmt $(INTEROP) --check
	$(BIN)/ruff format --quiet --check .
	$(BIN)/ruff check --quiet .

lint-warnings: $(VENV)/.created
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked $(INTEROP) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps

lint-header: $(CBINDGEN)
	$(HEADER) --verify crates/ffi || { echo "hurray.h is stale: run make header" >&2; exit 1; }

header: $(CBINDGEN)
	$(HEADER) crates/ffi

module: $(VENV)/.module
packages: $(VENV)/.tests $(if $(filter-out 0,$(TORCH)),$(VENV)/.torch)
examples-packages: $(VENV)/.examples
peer: $(CARGO_TARGET_DIR)/pyhurray/.installed

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "The venv module is needed; on Debian: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.tools: tests/requirements.txt $(VENV)/.created
	$(PIP) install -c tests/requirements.txt maturin numpy ruff
	@touch $@

$(VENV)/.tests: tests/requirements.txt $(VENV)/.created
	$(PIP) install -r tests/requirements.txt
	@touch $@

$(VENV)/.torch: tests/requirements-torch.txt $(VENV)/.tests
	$(PIP) install -r tests/requirements-torch.txt
	@touch $@

$(VENV)/.examples: examples/requirements.txt tests/requirements.txt $(VENV)/.created
	$(PIP) install --no-deps -r examples/requirements.txt
	@touch $@

$(VENV)/.module: $(MODULE_SOURCES) $(VENV)/.tools
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --locked
	@touch $@

$(CARGO_TARGET_DIR)/pyhurray/.installed: benches/requirements-pyhurray.txt tests/requirements.txt
	$(PYTHON) -m venv $(CARGO_TARGET_DIR)/pyhurray
	$(CARGO_TARGET_DIR)/pyhurray/bin/pip --quiet --disable-pip-version-check \
		install -r benches/requirements-pyhurray.txt
	@touch $@

$(CBINDGEN):
	cargo install --quiet --locked --root $(CBINDGEN_ROOT) cbindgen --version $(CBINDGEN_VERSION)

$(CARGO_FUZZ):
	cargo install --quiet --locked --root $(CARGO_FUZZ_ROOT) cargo-fuzz --version $(CARGO_FUZZ_VERSION)
