#!/bin/sh
# Makes build/fulcrum_VERSION_ARCH.deb of what `make build` has built with Debian's libtorch: /usr/bin/run, its libraries
# and completion. It depends on the packages whose libraries ours are linked to.
set -eu
cd "$(dirname "$0")/.."
[ -z "${LIBTORCH:-}" ] || { echo "deb: a package needs Debian's libtorch: build without LIBTORCH" >&2; exit 1; }
command -v dpkg-deb >/dev/null || { echo "deb: no dpkg-deb: this is no Debian or Ubuntu" >&2; exit 1; }
version=$(bin/run --version | sed 's/^run //; s/[^A-Za-z0-9.+~].*//')
arch=$(dpkg --print-architecture)
package=build/fulcrum_${version}_$arch.deb
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
DESTDIR=$tree scripts/install.sh /usr >/dev/null

# The packages of the libraries that ours name.
depends=libopenblas0-pthread # libtorch takes any BLAS; the reference one is ten times slower
for name in $(objdump -p bin/run bin/lib/*.so | awk '$1 == "NEEDED" { print $2 }' | sort -u); do
	case $name in libcgotorch.so | ld-linux*) continue ;; esac
	file=$(ldd bin/lib/libfulcrum_torch.so bin/run | awk -v name="$name" '$1 == name { print $3; exit }')
	real=$(readlink -f "$file")
	owner=$(for path in "$real" "${real#/usr}" "$file" "${file#/usr}"; do # with and without the merge of /lib into /usr
		dpkg -S "$path" 2>/dev/null && break
	done | head -n 1 | cut -d: -f1)
	[ -n "$owner" ] || { echo "deb: no package has $name ($file)" >&2; exit 1; }
	case ", $depends," in *", $owner,"*) ;; *) depends=${depends:+$depends, }$owner ;; esac
done
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: fulcrum
Version: $version
Architecture: $arch
Maintainer: Fulcrum <fulcrum@localhost>
Depends: $depends
Section: science
Priority: optional
Description: post-training of selection policies with SFT, RCE and GRPO
 Trains example selectors, vision-language models and encoder-decoders, and says
 in a report whether the policy got better and how sure that is.
CONTROL
dpkg-deb --root-owner-group -Zxz -z1 --build "$tree" "$package" >/dev/null
echo "$package (depends on $depends)"
