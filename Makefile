# Fulcrum's build. `make` builds; `make help` lists what else there is.

SHELL := /bin/bash
.DEFAULT_GOAL := build

# Which libtorch: empty for Debian's libtorch-dev, python for the one of python3, or a folder.
LIBTORCH ?=
export LIBTORCH
# Arguments of `make run`.
ARGS ?= exp=okvqa_v3
# C++ compilations at a time: one a core, and 2 GB of memory for each.
JOBS ?= $(shell awk -v cpu=$$(nproc) '/MemAvailable/ { n = int($$2 / 2e6); if (n > cpu) n = cpu; if (n < 1) n = 1; print n }' /proc/meminfo)

GO := scripts/env go
# Stamp the version only where git works here (a tarball or another user's clone has none).
VCS := $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET [LIBTORCH=/path|python] [ARGS=\"exp=okvqa_v3 …\"]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is missing: libtorch, OpenBLAS, g++ (root or sudo)
	@scripts/setup.sh

.PHONY: native
native:
	@+$(MAKE) --no-print-directory -j$(JOBS) -f scripts/native.mk

.PHONY: build
build: native ## build bin/run
	@$(GO) build -buildvcs=$(VCS) -o bin/run ./cmd/run
