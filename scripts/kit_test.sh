#!/bin/bash
# Packs the kit, unpacks it elsewhere, builds it there and asks the program for its account of libtorch.
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory kit
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tar -C "$dir" -xzf build/fulcrum-kit-*.tar.gz
"$dir"/fulcrum-kit-*/build.sh
cd "$dir"
env -i HOME="$dir" PATH=/usr/bin:/bin "$dir"/fulcrum-kit-*/bin/run doctor
