#!/bin/sh
# Installs Slurm and munge on Debian or Ubuntu for the tests of hydra/launcher=slurm, which start a
# cluster of one node by themselves. Nobody else needs it: a cluster's login node has Slurm's commands.
# Starts no service. Needs root; without it, it says what to do and exits 0: the tests then say why they
# are skipped. FULCRUM_REQUIRE_SLURM=1 makes them fail instead, and lets this script use sudo.
set -eu
say() { echo "setup-slurm: $*" >&2; }
have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

if have slurmctld && have slurmd && have munged && have sbatch; then
	exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" != 0 ] && [ "${FULCRUM_REQUIRE_SLURM:-}" = 1 ] && command -v sudo >/dev/null; then
	exec sudo FULCRUM_REQUIRE_SLURM=1 "$0"
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	say "Slurm is not installed: tests of hydra/launcher=slurm are skipped. As root on Debian or Ubuntu: $0"
	exit 0
fi
say "installing slurm-wlm munge"
export DEBIAN_FRONTEND=noninteractive
# Packages start their services after installation unless told not to: the tests bring their own.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	made=1
fi
trap '[ -z "$made" ] || rm -f "$policy"' EXIT
apt() { apt-get install -y --no-install-recommends -qq slurm-wlm munge >/dev/null; }
apt || { apt-get update -qq && apt; } || {
	say "apt-get could not install slurm-wlm and munge"
	[ "${FULCRUM_REQUIRE_SLURM:-}" != 1 ] || exit 1
}
