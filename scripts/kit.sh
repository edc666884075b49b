#!/bin/bash
# Packs what a machine with a C++ compiler and a PyTorch needs to run Fulcrum: the Go program, the
# forwarding library, and the C++ sources with one script that builds them against that PyTorch.
# Neither Go nor nvcc is needed there.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$(go env GOARCH)
name=fulcrum-kit-linux-$arch
dir=build/kit/$name
rm -rf build/kit
mkdir -p "$dir/bin/lib" "$dir/src/gotorch"
cp bin/run "$dir/bin/"
cp bin/lib/libcgotorch.so "$dir/bin/lib/"
cp -r internal/torchx/csrc "$dir/src/"
gotorch=$(scripts/gotorch-dir)
cp -r "$gotorch/cgotorch" "$gotorch/LICENSE" "$dir/src/gotorch/"
chmod -R u+w "$dir"
cp scripts/libtorch.sh "$dir/src/"
cp scripts/kit_build.sh "$dir/build.sh"
cp LICENSE "$dir/"
tar -C build/kit -czf "build/$name.tar.gz" --owner=0 --group=0 --sort=name "$name"
echo "build/$name.tar.gz"
