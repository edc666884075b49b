#!/bin/bash
# Packs the kit, unpacks it elsewhere, builds it there against a PyTorch as pip lays it out, and runs its
# checks, without Go on the path.
#
#   scripts/kit_test.sh            with the PyTorch of python3 where it has headers, else Debian's libtorch in such a layout
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory kit
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tar -C "$dir" -xzf build/fulcrum-kit-*.tar.gz
path=/usr/bin:/bin
if PATH=$path command -v go >/dev/null; then echo "kit_test: go is in $path, so this proves less than it should" >&2; fi
python=()
if ! LIBTORCH=python PYTHON=/usr/bin/python3 scripts/libtorch.sh >/dev/null 2>&1; then
	lib=$(scripts/libtorch.sh | sed -n 's/^TORCH_LIB = //p')
	mkdir -p "$dir/site/torch/include" "$dir/site/torch/lib"
	touch "$dir/site/torch/__init__.py"
	for name in torch ATen c10 caffe2; do ln -s "/usr/include/$name" "$dir/site/torch/include/$name"; done
	for name in "$lib"/libtorch*.so* "$lib"/libc10*.so*; do ln -s "$name" "$dir/site/torch/lib/"; done
	python=(PYTHONPATH="$dir/site")
fi
cd "$dir"
clean() { env -i HOME="$dir" PATH=$path "${python[@]}" "$@"; }
clean "$dir"/fulcrum-kit-*/build.sh
clean "$dir"/fulcrum-kit-*/check.sh --quick
