#!/bin/bash
# Runs the commands that README.md, or the page that is named, promises: each ```sh block below a line `<!-- ci -->`,
# in order. They run in a scratch folder that shows the built program as bin/ and the pages as docs/, and passes make on
# to the repository, so their run folders vanish with it. A block with a failing command fails all.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
readme=${1:-$root/README.md}
page=$(basename "$readme")
[ -e "$readme" ] || { echo "no $readme: no commands to check"; exit 0; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$root/bin" "$scratch/bin"
ln -s "$root/docs" "$scratch/docs"
printf '%%:\n\t@+$(MAKE) --no-print-directory -C %s $@\n' "$root" >"$scratch/Makefile"

# Splits the marked blocks into files named by their line in the README.
awk -v dir="$scratch" -v page="$page" '
	/^<!-- ci -->[[:space:]]*$/ { marked = 1; next }
	marked && /^```sh[[:space:]]*$/ { file = sprintf("%s/block-%05d.sh", dir, NR); marked = 0; printf "" > file; next }
	/^```/ { file = ""; next }
	/[^[:space:]]/ && marked { printf "%s:%d: want a ```sh block after <!-- ci -->\n", page, NR > "/dev/stderr"; exit 1 }
	file { print > file }' "$readme"

count=0
for block in "$scratch"/block-*.sh; do
	[ -e "$block" ] || continue
	line=$((10#$(basename "$block" .sh | tr -dc 0-9)))
	echo "$page:$line"
	(cd "$scratch" && bash -euxo pipefail "$block" </dev/null) || { echo "$page:$line: the commands failed" >&2; exit 1; }
	count=$((count + 1))
done
echo "$page: $count blocks of commands work"
