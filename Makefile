# Fulcrum's build. `make` builds; `make help` lists what else there is.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

# Which libtorch: empty for Debian's libtorch-dev, python for that of python3, or a folder.
LIBTORCH ?=
export LIBTORCH
# Arguments of `make run`.
ARGS ?= exp=okvqa_v3
# Where `make install` puts the program.
PREFIX ?= /usr/local
# What `make bench` measures: workloads and flags of `bin/bench workloads --help`.
BENCH_ARGS ?=
# The program that `make bench` compares with, where it and a Python with torch are there.
PEER ?= $(or $(FULCRUM_SHARED),../shared)/bench/torch_floor.py
# What `make gobench` and `make fuzz` cover, and how long each fuzz target runs.
PKG ?= ./...
BENCH ?= .
FUZZTIME ?= 30s
# How long the tests of one package may take (minutes on a quiet machine), and which want a Slurm cluster.
TIMEOUT ?= 30m
ON_SLURM := '^TestOnSlurm'
SHORT := -short
# C++ compilations at a time: one a core, and 2 GB of memory for each.
JOBS ?= $(shell awk -v cpu=$$(nproc) '/MemAvailable/ { n = int($$2 / 2e6); if (n > cpu) n = cpu; if (n < 1) n = 1; print n }' /proc/meminfo)

# Go, told where the forwarding library lies.
GO := scripts/env go
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := go run golang.org/x/tools/cmd/deadcode@v0.52.0
# Stamp the version only where git works here (a tarball or another user's clone has none).
LINK := -ldflags='-s -w' -buildvcs=$(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help
help: ## list the targets
	@echo 'usage: make [TARGET] [ARGS="exp=okvqa_v3 seed=1"] [LIBTORCH=/path|python]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: setup build ## install what is missing, build, and run bin/run $(ARGS)
	@bin/run $(ARGS)

.PHONY: setup
setup: ## install what is missing: libtorch, OpenBLAS, g++ (root or sudo)
	@scripts/setup.sh

.PHONY: build
build: native ## build bin/run, bin/bench and their libraries
	@if [ -e bin/run ]; then $(GO) build $(LINK) -o bin/ ./cmd/...; else \
		echo "go   bin/run (the first build fetches modules and takes some minutes)"; n=$$($(GO) list -deps -f '{{if .Stale}}.{{end}}' ./cmd/... | wc -w); \
		$(GO) build -v $(LINK) -o bin/ ./cmd/... 2>&1 | { i=0; while IFS= read -r line; do case $$line in \
		*[\ :#]*) echo "$$line";; *) (( ++i % 25 )) || echo "go   $$i of $$n packages";; esac; done; }; fi
	@case ' $(or $(MAKECMDGOALS),build) ' in *' build '*) \
		echo 'built bin/run, bin/bench and their libraries in bin/lib: "bin/run" prints examples and commands, "make run" starts a first run';; esac

.PHONY: install
install: build ## install the program with completion: make install PREFIX=/usr/local (DESTDIR too)
	@scripts/install.sh $(PREFIX)

.PHONY: deb
deb: build ## build/fulcrum_VERSION_ARCH.deb, which depends on Debian's libtorch
	@scripts/deb.sh

.PHONY: native
native: # the C++ part; one build at a time in a checkout
	@mkdir -p build
	@+flock build/lock $(MAKE) --no-print-directory -j$(JOBS) -f scripts/native.mk

.PHONY: test
test: setup build ## install what is missing, build, and run the tests (small sizes; TIMEOUT=0 on a busy machine)
	@$(GO) vet ./...
	@$(GO) test -short -timeout $(TIMEOUT) -skip $(ON_SLURM) -json ./... 2>&1 | go run ./scripts/testsummary -reference build/reference-tests

.PHONY: test-reference
test-reference: build ## the tests that make test has skipped for want of reference data (FULCRUM_SHARED, else ../shared)
	@while read -r package tests; do $(GO) test -short -timeout $(TIMEOUT) -run "$$tests" -json $$package </dev/null || exit; done \
		< build/reference-tests 2>&1 | go run ./scripts/testsummary

# A processor with AVX2 and no AVX-512, and one with SSE alone on one thread.
AVX2 := ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell
SSE := ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=1

.PHONY: test-processors
test-processors: build ## the tests that compute numbers, with the kernels of two other x86-64 processors
	@$(CC) -shared -fPIC -o build/plain_cpu.so scripts/plain_cpu.c -ldl
	@for processor in '$(AVX2)' '$(SSE)'; do echo "as a processor with $$processor"; \
		$(GO) test -short -count 1 -timeout $(TIMEOUT) -exec "env LD_PRELOAD=$$PWD/build/plain_cpu.so $$processor" -json $$(scripts/number-packages) 2>&1 \
			| go run ./scripts/testsummary || exit; done

.PHONY: test-core
test-core: build ## build the program without its annexes, use it, and run the core's tests with it
	@scripts/core.sh
	@FULCRUM_PROGRAM=$$PWD/build/core $(GO) test -tags core -short -timeout $(TIMEOUT) -skip $(ON_SLURM) -json $$(scripts/core-packages) 2>&1 \
		| go run ./scripts/testsummary

.PHONY: test-slurm
test-slurm: setup build ## install Slurm and munge (root) and run the tests on a real one-node cluster
	@scripts/setup-slurm.sh
	@FULCRUM_REQUIRE_SLURM=1 $(GO) test $(SHORT) -timeout 30m -run $(ON_SLURM) -json ./experiments/... 2>&1 | go run ./scripts/testsummary

.PHONY: test-long
test-long: setup build ## the tests in their full sizes, Slurm's too, the race detector, fuzzing, the kit and the package
	@$(GO) vet ./...
	@$(GO) test -timeout 6h -skip $(ON_SLURM) -json ./... 2>&1 | go run ./scripts/testsummary
	@$(MAKE) --no-print-directory test-slurm SHORT=
	@$(GO) test -race -short -timeout 1h $$(scripts/pure-packages)
	@$(MAKE) --no-print-directory fuzz FUZZTIME=2m
	@scripts/kit_test.sh
	@$(MAKE) --no-print-directory deb && scripts/deb_test.sh

.PHONY: lint
lint: native deadcode ## gofmt, go vet, staticcheck, tidy modules, package order, our C++ under -Werror
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); [ -z "$$files" ] || { echo "gofmt -w these:" $$files >&2; exit 1; }
	@$(GO) vet ./...
	@scripts/env $(STATICCHECK) ./...
	@go mod tidy -diff
	@$(GO) test ./internal/arrows
	@+$(MAKE) --no-print-directory -j$(JOBS) -f scripts/native.mk lint

# What only tests reach: live tensors and what crossed to the host, the table of checks, a comparison and an optimizer in one call;
# which keys of a model folder are read (beside transformers), the end of a mapping, a table of records made by hand.
FOR_TESTS := '^(beamdata/icl/.*: TableOf|internal/tensorfile/.*: Array[.]Close|selector/(clip|seq2seq|vl)/.*: Keys|internal/torchx/.*: (Live|Counted|Counts[.]Minus|NewAdamW|PlantRounding)|phases/doctor/.*: Checks|reports/stats/.*: ComparePaired)$$'

.PHONY: lint-cuda
lint-cuda: ## our C++ under -Werror against a libtorch with CUDA: make lint-cuda LIBTORCH=python
	@[ -n "$(LIBTORCH)" ] || { echo 'lint-cuda: want LIBTORCH=python or LIBTORCH=/path of a PyTorch with CUDA' >&2; exit 2; }
	@scripts/libtorch.sh | grep -q -- -DFULCRUM_CUDA || { echo "lint-cuda: LIBTORCH=$(LIBTORCH) has no CUDA, or no headers of it" >&2; exit 2; }
	@mkdir -p build/cuda
	@+flock build/cuda/lock $(MAKE) --no-print-directory -j$(JOBS) -f scripts/native.mk OUT=build/cuda lint

.PHONY: deadcode
deadcode: native ## functions that the programs cannot reach; none is wanted
	@out=$$(scripts/env $(DEADCODE) ./cmd/run ./cmd/bench) || exit; out=$$(grep -vE $(FOR_TESTS) <<<"$$out"); [ -z "$$out" ] || { echo "$$out" >&2; exit 1; }

.PHONY: fmt
fmt: ## gofmt everything
	@git ls-files -co --exclude-standard '*.go' | xargs gofmt -w

.PHONY: bench
bench: build ## training speed on named workloads: make bench BENCH_ARGS="rl_k64_b1 --repeats 5"
	@bin/bench workloads $(if $(wildcard $(PEER)),--peer $(PEER)) $(BENCH_ARGS)

.PHONY: bench-docs
bench-docs: build ## measure and replace the training table of docs/benchmarks.md
	@scripts/bench_docs.sh $(if $(wildcard $(PEER)),--peer $(PEER)) $(BENCH_ARGS)

# Records of the largest set that growth trains on.
MOST ?= 640000

.PHONY: growth
growth: build ## how processor time and memory grow with records, candidates, jobs and runs: a table; fails where more than linear
	@$(GO) run ./scripts/growth -most $(MOST) bin/run

.PHONY: gobench
gobench: native ## Go benchmarks: make gobench PKG=./beamdata BENCH=Read
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 2h $(PKG)

.PHONY: fuzz
fuzz: native ## every fuzz target for FUZZTIME (30s) each
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

# The environment of the peers, and which groups of their tests run: scripts/peers/test_GROUP.*
PEERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fulcrum/peers
PEER_GROUPS ?= models families keys adapters program tokenizers images clip trl recipes processes loggers torch device experiments servers vllm icl

.PHONY: peers
peers: ## a virtual environment with today's transformers, peft, TRL and PyTorch: PEERS=DIR (5 GB)
	@scripts/peers/install.sh $(PEERS)

# Where `make real` keeps the published model, its problems and its runs.
REAL ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fulcrum/real

.PHONY: real
real: build ## a published SmolLM2 on this machine: beside transformers, then GRPO on sums and its controls: REAL=DIR (93 MB)
	@scripts/real/real.sh $(REAL) $(PEERS)

.PHONY: test-peers
test-peers: build peers ## beside transformers, peft and TRL, and our suite on their PyTorch: PEER_GROUPS="models trl"
	@$(GO) build -o build/probe ./scripts/peers/probe
	@scripts/peers/run.sh $(PEERS) $(PEER_GROUPS)

.PHONY: bench-peers
bench-peers: build peers ## steps, generation and scoring beside transformers and TRL, in turns: BENCH_ARGS="tiny mid"
	@$(GO) build -o build/probe ./scripts/peers/probe
	@$(PEERS)/bin/python -W ignore scripts/peers/bench.py $(BENCH_ARGS)

.PHONY: bench-peers-icl
bench-peers-icl: build peers ## answers scored behind demonstrations, beside plain transformers, in turns: BENCH_ARGS="tiny mid"
	@$(GO) build -o build/probe ./scripts/peers/probe
	@$(PEERS)/bin/python -W ignore scripts/peers/bench_icl.py $(BENCH_ARGS)

.PHONY: kit
kit: build ## build/fulcrum-kit-*.tar.gz: programs and sources for a machine with a PyTorch, without Go
	@scripts/kit.sh

.PHONY: clean
clean: ## remove what was built
	@rm -rf bin build
