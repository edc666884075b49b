#!/bin/sh
# Finds libtorch and prints how to compile and link against it, as KEY = value lines.
#
#   scripts/libtorch.sh                    Debian's or Ubuntu's libtorch-dev
#   LIBTORCH=/opt/libtorch scripts/libtorch.sh    an unpacked libtorch, or the torch folder of a Python install
#   LIBTORCH=python scripts/libtorch.sh           the torch of python3 ($PYTHON, if set), found without importing it
set -eu
fail() { echo "libtorch: $*" >&2; exit 1; }

# The folder that holds include/ and lib/; empty for the system's.
root=${LIBTORCH:-}
if [ "$root" = python ]; then
	python=${PYTHON:-python3}
	root=$("$python" -c '
import importlib.util, os
spec = importlib.util.find_spec("torch")
print(os.path.dirname(spec.origin) if spec and spec.origin else "")' 2>/dev/null) || root=
	[ -n "$root" ] || fail "$python has no torch; install it there, or set PYTHON or LIBTORCH=/path"
fi

if [ -n "$root" ]; then
	[ -d "$root" ] || fail "LIBTORCH=$root: no such folder"
	root=$(cd "$root" && pwd -P)
	include=$root/include
	lib=$root/lib
else
	include=/usr/include
	lib=
	# Debian keeps libraries in a folder of the machine's triplet, others in lib64 or lib.
	for dir in "/usr/lib/$(${CC:-cc} -dumpmachine 2>/dev/null || uname -m)" /usr/lib/*-linux-gnu /usr/lib64 /usr/lib; do
		if [ -e "$dir/libtorch.so" ]; then lib=$dir; break; fi
	done
	[ -n "$lib" ] || fail "not installed: run make setup, or set LIBTORCH=/path or LIBTORCH=python"
fi
api=$include/torch/csrc/api/include
[ -e "$api/torch/torch.h" ] || fail "no headers at $api/torch/torch.h (Debian's python3-torch has none: use libtorch-dev)"
[ -e "$lib/libtorch.so" ] || fail "no library at $lib/libtorch.so"

# The C++ ABI is the library's own: old PyTorch wheels use the one from before 2011.
abi=0
if nm -D --defined-only "$lib/libc10.so" | grep -q __cxx11; then abi=1; fi

std=gnu++17
if grep -qs 'C++20 or later' "$api/torch/all.h" "$include/ATen/ATen.h"; then std=gnu++20; fi

libs="-ltorch -ltorch_cpu -lc10"
cuda=
defs=-Wl,-z,defs
if [ -e "$lib/libtorch_cuda.so" ]; then
	libs="$libs -ltorch_cuda -lc10_cuda"
	# CUDA's headers: pip puts them beside torch, a toolkit in CUDA_HOME. Without them our kernels are left out.
	for dir in "$root"/../nvidia/cu[0-9]*/include "$root"/../nvidia/cuda_runtime/include "${CUDA_HOME:-/usr/local/cuda}/include"; do
		if [ ! -e "$dir/cuda_runtime_api.h" ]; then continue; fi
		cuda=" -isystem $(cd "$dir" && pwd -P) -DFULCRUM_CUDA"
		# pip's headers of CUDA 13 lack crt/, a package of nvcc's; triton, which PyTorch brings, has it.
		triton=$root/../triton/backends/nvidia/include
		if [ ! -e "$dir/crt" ] && [ -e "$triton/crt" ]; then cuda="$cuda -isystem $(cd "$triton" && pwd -P)"; fi
		if [ ! -e "$dir/crt" ] && [ ! -e "$triton/crt" ]; then cuda=; continue; fi
		break
	done
	# Libtorch's headers call CUDA's runtime. It is not linked: libtorch_cuda brings the one it needs, wherever that lies.
	if [ -n "$cuda" ]; then defs=; fi
fi

# Processes of a run exchange tensors by libtorch's gloo, which a build of libtorch may lack.
gloo=
if [ -e "$include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp" ] && grep -qs _ZN4c10d16ProcessGroupGlooC1 "$lib/libtorch_cpu.so"; then
	gloo=' -DFULCRUM_GLOO'
fi

# at::parallel_for is OpenMP in the headers; it must run on libtorch's own OpenMP library.
openmp=-lgomp
for file in "$lib"/libgomp*.so* "$lib"/../../torch.libs/libgomp*.so* "$lib"/libiomp5.so; do
	if [ -n "$root" ] && [ -e "$file" ]; then openmp=$file; break; fi
done

# Bsymbolic-functions: our library's own calls must not go round through the forwarding library, which
# has functions of the same names.
version=$api/torch/version.h
if [ -e "$include/torch/headeronly/version.h" ]; then version=$include/torch/headeronly/version.h; fi
number() { sed -n "s/^#define TORCH_VERSION_$1 //p" "$version"; }
includes="-isystem $api"
if [ "$include" != /usr/include ]; then includes="-isystem $include $includes"; fi
cat <<EOF
TORCH_VERSION = $(number MAJOR).$(number MINOR).$(number PATCH)
TORCH_LIB = $lib
TORCH_CXXFLAGS = -O2 -fno-math-errno -fno-trapping-math -fPIC -fopenmp -pthread -std=$std -D_GLIBCXX_USE_CXX11_ABI=$abi $includes$cuda$gloo
TORCH_LDFLAGS = -shared -pthread -Wl,-Bsymbolic-functions $defs -L$lib -Wl,-rpath,$lib -Wl,--no-as-needed $libs $openmp
EOF
