#!/bin/bash
# Measures training and replaces the table of docs/benchmarks.md between its marks. Flags go to `run bench`.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/benchmarks.md
grep -q '^<!-- bench -->$' $page && grep -q '^<!-- /bench -->$' $page || { echo "$page: want the marks <!-- bench --> and <!-- /bench -->" >&2; exit 1; }
table=$(mktemp)
trap 'rm -f "$table"' EXIT
bin/run bench --format markdown "$@" >"$table"
[ -s "$table" ]
awk -v table="$table" '
	/^<!-- bench -->$/ { print; print ""; while ((getline line < table) > 0) print line; print ""; inside = 1 }
	/^<!-- \/bench -->$/ { inside = 0 }
	!inside && !/^<!-- bench -->$/ { print }' $page >$page.new
mv $page.new $page
