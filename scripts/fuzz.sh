#!/bin/bash
# Runs every fuzz target for the given time: go test takes one target at a time.
#   scripts/fuzz.sh 30s ./...
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
shift
count=0
for package in $(scripts/env go list "$@"); do
	for target in $(scripts/env go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "fuzz $package $target $time"
		scripts/env go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
		count=$((count + 1))
	done
done
echo "fuzzed $count targets, $time each"
