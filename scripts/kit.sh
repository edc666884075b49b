#!/bin/bash
# Packs what a machine with a C++ compiler and a PyTorch needs to run Fulcrum and to check that it does
# so rightly: the Go program, the forwarding library, the C++ sources with one script that builds them
# against that PyTorch, the numeric tests with their goldens, and one script that runs all checks.
# Neither Go nor nvcc nor a network is needed there.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$(go env GOARCH)
name=fulcrum-kit-linux-$arch
dir=build/kit/$name
rm -rf build/kit
mkdir -p "$dir/bin/lib" "$dir/src/gotorch" "$dir/goldens"
cp bin/run bin/bench "$dir/bin/"
cp bin/lib/libcgotorch.so "$dir/bin/lib/"
cp -r internal/torchx/csrc "$dir/src/"
gotorch=$(scripts/gotorch-dir)
cp -r "$gotorch/cgotorch" "$gotorch/LICENSE" "$dir/src/gotorch/"
cp scripts/libtorch.sh "$dir/src/"

# The tests of the packages that compute, as programs; each runs in a folder with its testdata.
for package in internal/tensorfile internal/torchx beamdata rewardutil/{advantage,control,group,recorded,reward,schedule,text,torchorder,vqa} selector/{pointer,tokens,vl,seq2seq,clip} phases phases/{rce,grpo} experiments; do
	scripts/env go test -c -trimpath -ldflags='-s -w' -o "$dir/bin/${package//\//-}.test" "./$package"
	mkdir -p "$dir/goldens/$package"
	if [ -d "$package/testdata" ]; then cp -r "$package/testdata" "$dir/goldens/$package/"; fi
done
cp -r rewardutil/testdata "$dir/goldens/rewardutil/" # its packages share one
# Fixtures: the repository's own, and over them what this machine has of the large ones. Tests that miss theirs skip and are named.
mkdir -p "$dir/goldens/shared"
cp -r internal/testkit/golden/testdata/. "$dir/goldens/shared/"
for fixtures in parity qwen2_5_vl seq2seq; do
	if [ -d "${FULCRUM_SHARED:-../shared}/$fixtures" ]; then cp -rL "${FULCRUM_SHARED:-../shared}/$fixtures" "$dir/goldens/shared/"; fi
done

cp scripts/kit_build.sh "$dir/build.sh"
cp scripts/kit_check.sh "$dir/check.sh"
cp scripts/gpu_check.sh scripts/peer_gpu.py "$dir/"
cp LICENSE "$dir/"
cat >"$dir/README" <<EOF
Fulcrum for Linux on $arch, with glibc 2.34 or newer (Debian 12, Ubuntu 22.04, RHEL 9).

  ./build.sh     builds the libtorch part against the PyTorch of python3 (LIBTORCH=/path: another one)
  ./check.sh     doctor, goldens and benchmarks on the CPU, then gpu_check.sh where there is a GPU
  ./gpu_check.sh     the GPU alone, in parts: doctor, losses, goldens, resume, memory, oom, bench, shapes
  peer_gpu.py    the same steps in transformers and peft, for SHAPE_PEER=peer_gpu.py ./gpu_check.sh shapes
  bin/run        the program: bin/run --help
  bin/bench      speed and losses of training: bin/bench --help

Needed: a C++ compiler, nm (binutils), and a PyTorch or libtorch with its headers, 1.13 or newer.
EOF
chmod -R u+w "$dir"
tar -C build/kit -czf "build/$name.tar.gz" --owner=0 --group=0 --sort=name "$name"
echo "build/$name.tar.gz"
