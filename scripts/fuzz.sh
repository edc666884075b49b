#!/bin/bash
# Runs every fuzz target for the given time: go test takes one target at a time.
#   scripts/fuzz.sh 30s ./...
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
shift
count=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for package in $(scripts/env go list "$@"); do
	for target in $(scripts/env go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "fuzz $package $target $time"
		# Unless told otherwise, go test spends up to a minute on making one new input smaller: all of a short time.
		if ! scripts/env go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$package" 2>&1 | tee "$output"; then
			# When an input is still running at the end of the time, go test calls that a failure, with no
			# input to blame. A real one always says where it was written.
			if ! grep -q 'context deadline exceeded' "$output" || grep -q 'Failing input written' "$output"; then
				exit 1
			fi
			echo "fuzz $package $target: the time ended in the middle of an input; no failing input"
		fi
		count=$((count + 1))
	done
done
echo "fuzzed $count targets, $time each"
