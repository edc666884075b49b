#!/bin/bash
# Builds Fulcrum's libtorch library against a PyTorch of this machine. Needs a C++ compiler and nm
# (binutils) only. Then bin/run works from any folder.
#
#   ./build.sh                            the PyTorch of python3, else the system's libtorch
#   LIBTORCH=/opt/libtorch ./build.sh     that one
set -euo pipefail
cd "$(dirname "$0")"
if [ -z "${LIBTORCH:-}" ] && LIBTORCH=python src/libtorch.sh >/dev/null 2>&1; then LIBTORCH=python; fi
export LIBTORCH=${LIBTORCH:-}
# The program was linked on a machine with this much.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')
if [ -n "$glibc" ] && [ "$(printf '%s\n' 2.34 "$glibc" | sort -V | head -n 1)" != 2.34 ]; then
	echo "build: glibc $glibc here, bin/run needs 2.34 or newer (Debian 12, Ubuntu 22.04, RHEL 9)" >&2
	exit 1
fi
settings=$(src/libtorch.sh)
setting() { sed -n "s/^$1 = //p" <<<"$settings"; }
cxx=${CXX:-g++}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo "building against libtorch $(setting TORCH_VERSION) in $(setting TORCH_LIB)"
flags="$(setting TORCH_CXXFLAGS) -Isrc/gotorch -Isrc/csrc"
echo '#include <torch/torch.h>' >"$out/torch.h"
(cd src/gotorch && printf '#include "%s"\n' cgotorch/*.cc) >"$out/gotorch.cc"
# shellcheck disable=SC2086 # flags are words
$cxx $flags -x c++-header "$out/torch.h" -o "$out/torch.h.gch"
printf '%s\n' "$out/gotorch.cc" src/csrc/*.cc | xargs -P "$(nproc)" -I '{}' sh -c \
	'"$1" $2 -w -include "$3/torch.h" -c "$4" -o "$3/$(basename "$4" .cc).o"' sh "$cxx" "$flags" "$out" '{}'
# shellcheck disable=SC2046
$cxx -o bin/lib/libfulcrum_torch.so.new "$out"/*.o $(setting TORCH_LDFLAGS)
mv bin/lib/libfulcrum_torch.so.new bin/lib/libfulcrum_torch.so
echo "done: check.sh runs doctor, goldens and benchmarks"
