#!/bin/bash
# Measures training and replaces the table of docs/benchmarks.md between its marks. Flags go to `bin/bench workloads`.
#
#   scripts/bench_docs.sh --repeats 5
#   scripts/bench_docs.sh --from bench.json shapes.json    measures nothing: the GPU's tables, from what gpu_check.sh has kept
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/benchmarks.md
mark=bench
if [ "${1:-}" = --from ]; then mark=gpu; fi
grep -q "^<!-- $mark -->$" $page && grep -q "^<!-- /$mark -->$" $page || { echo "$page: want the marks <!-- $mark --> and <!-- /$mark -->" >&2; exit 1; }
table=$(mktemp)
trap 'rm -f "$table"' EXIT
if [ $mark = gpu ]; then
	for file in "${@:2}"; do bin/bench workloads --format markdown --from "$file" && echo; done >"$table"
else
	bin/bench workloads --format markdown "$@" >"$table"
fi
[ -s "$table" ]
awk -v table="$table" -v from="<!-- $mark -->" -v to="<!-- /$mark -->" '
	$0 == from { print; print ""; while ((getline line < table) > 0) print line; print ""; inside = 1; next }
	$0 == to { inside = 0 }
	!inside { print }' $page >$page.new
mv $page.new $page
