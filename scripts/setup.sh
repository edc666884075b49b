#!/bin/sh
# Installs what is missing to build Fulcrum on Debian or Ubuntu, and nothing else: g++, libtorch
# (headers and library), OpenBLAS with its own threads. Needs root or sudo only when something is
# missing; without either it names the packages and exits 1. LIBTORCH=… (see scripts/libtorch.sh)
# brings its own libtorch and BLAS: then only a compiler is asked for.
set -eu
cd "$(dirname "$0")/.."
say() { echo "setup: $*" >&2; }

command -v go >/dev/null || { say "no go command: install Go $(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl"; exit 1; }

packages=
want() { packages="$packages $1"; }
command -v "${CXX:-g++}" >/dev/null || want g++
command -v "${CC:-gcc}" >/dev/null || want gcc
command -v nm >/dev/null || want binutils
# A bare compiler package may lack the C headers.
[ -e /usr/include/stdlib.h ] || want libc6-dev
[ -e /etc/ssl/certs/ca-certificates.crt ] || want ca-certificates

if [ -z "${LIBTORCH:-}" ]; then
	[ -e /usr/include/torch/csrc/api/include/torch/torch.h ] && ls /usr/lib/*/libtorch.so >/dev/null 2>&1 || want libtorch-dev
	ls /usr/lib/*/openblas-pthread/libblas.so.3 >/dev/null 2>&1 || want libopenblas0-pthread
fi

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
can_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

if [ -n "$packages" ]; then
	if ! command -v apt-get >/dev/null; then
		say "missing:$packages (Debian's names), and this system has no apt-get: install them, or set LIBTORCH=/path to an unpacked libtorch"
		exit 1
	fi
	if ! can_root; then
		say "missing:$packages; installing needs root or sudo. Run as root: apt-get install$packages"
		exit 1
	fi
	say "installing$packages"
	export DEBIAN_FRONTEND=noninteractive
	apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@"; }
	# The package lists may be missing or old: refresh them only if need be.
	# shellcheck disable=SC2086 # a list of packages
	apt install -y --no-install-recommends -qq $packages >/dev/null ||
		{ apt update -qq && apt install -y --no-install-recommends -qq $packages >/dev/null; } ||
		{ say "apt-get could not install$packages; without libtorch-dev in your release, set LIBTORCH=python or LIBTORCH=/path"; exit 1; }
fi

# Another BLAS may have been chosen before; the reference BLAS is ten times slower, and OpenBLAS with
# OpenMP threads would share libtorch's pool.
if [ -z "${LIBTORCH:-}" ]; then
	for openblas in /usr/lib/*/openblas-pthread; do
		folder=$(dirname "$openblas")
		for name in libblas.so.3 liblapack.so.3; do
			case $(readlink -f "$folder/$name") in "$openblas"/*) continue ;; esac
			choose="update-alternatives --set $name-$(basename "$folder") $openblas/$name"
			if can_root; then
				as_root $choose >/dev/null
				say "chose $openblas/$name for $name"
			else
				say "warning: $name is not OpenBLAS with its own threads, training will be slow; as root: $choose"
			fi
		done
	done
fi
scripts/libtorch.sh >/dev/null
