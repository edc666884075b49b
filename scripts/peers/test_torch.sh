#!/bin/bash
# The suite built against the PyTorch of the peers' environment and run on its CPU, our C++ under -Werror first, its CUDA part
# too: test_torch.sh PYTHON [PACKAGE…]. It works on a copy of the checkout, build/peers: what is built here stays, and
# two checkouts can use one environment.
set -euo pipefail
PYTHON=$1 LIBTORCH=python
export PYTHON LIBTORCH
shift
root=$(cd "$(dirname "$0")/../.." && pwd -P)
copy=$root/build/peers
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name build ! -name bin -exec rm -rf {} +
cd "$root"
export FULCRUM_SHARED="${FULCRUM_SHARED:-$root/../shared}"
git ls-files -coz --exclude-standard | tar --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -C "$copy" -xf -
cd "$copy"
if [ $# -eq 0 ]; then
	make lint-cuda
	set -- ./internal/torchx/... ./selector/... ./phases/...
fi
make build
[ "$1" = build ] && exit
scripts/env go test -short -p 1 -timeout 58m -skip '^TestOnSlurm' -json "$@" 2>&1 | go run ./scripts/testsummary
