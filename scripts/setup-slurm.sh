#!/bin/sh
# Installs Slurm and munge on Debian or Ubuntu for `make test-slurm`, whose tests start a cluster of one node by
# themselves. Nobody else needs it: a cluster's login node has Slurm's commands. Starts no service. Needs root or
# sudo; without either it says what to do and exits 1.
set -eu
say() { echo "setup-slurm: $*" >&2; }
have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

if have slurmctld && have slurmd && have munged && have sbatch; then
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	say "Slurm is not installed, and this system has no apt-get: install slurmctld, slurmd, the commands and munge"
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null && exec sudo "$0"
	say "Slurm is not installed; as root: $0"
	exit 1
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
	exit 1
}
