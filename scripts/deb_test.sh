#!/bin/sh
# Installs build/fulcrum_*.deb (make deb) in a bare Debian from its mirror and trains there:
#
#   scripts/deb_test.sh [FOLDER]      the Debian of an earlier call is used again; default build/debian
#
# It needs root, debootstrap and a mirror ($MIRROR), and says so where one is missing. About 1.5 GB.
set -eu
cd "$(dirname "$0")/.."
root=${1:-build/debian}
[ "$(id -u)" = 0 ] || { echo "deb_test: want root: it makes a chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "deb_test: install debootstrap" >&2; exit 1; }
package=$(ls -t build/fulcrum_*.deb 2>/dev/null | head -n 1)
[ -n "$package" ] || { echo "deb_test: make deb first" >&2; exit 1; }
if [ ! -e "$root/.complete" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}" >/dev/null
	touch "$root/.complete"
fi
cp "$package" "$root/fulcrum.deb"
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -d /etc/apt/apt.conf.d ] || cp -n /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
	${http_proxy:+http_proxy=$http_proxy} "$@"; }
mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
inside apt-get -qq update
inside apt-get -qq install -y --no-install-recommends /fulcrum.deb >/dev/null
inside run doctor | grep 'product is right'
inside sh -c 'cd /tmp && run exp=okvqa_v3 data.shapes.train_queries=200 data.shapes.val_queries=50 data.shapes.dev_queries=50 \
	rce.epochs=1 grpo.epochs=1 report.plots=false hydra.run.dir=/tmp/first logging.progress=false && run verify /tmp/first'
inside apt-get -qq remove -y fulcrum >/dev/null
[ ! -e "$root/usr/bin/run" ] || { echo "deb_test: the package leaves /usr/bin/run behind" >&2; exit 1; }
echo "deb_test: $package installs, trains, verifies and is removed in a bare Debian"
