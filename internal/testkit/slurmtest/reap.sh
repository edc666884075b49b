read -r _
for _ in 1 2 3; do
	for p in $(grep -lzxF "SLURM_CONF=$1/slurm.conf" /proc/[0-9]*/environ 2>/dev/null); do
		kill -9 "$(basename "${p%/environ}")"
	done
	for p in $(grep -lx 'slurm[a-z]*' /proc/[0-9]*/comm 2>/dev/null); do
		p=${p%/comm}
		if ls -l "$p/fd" 2>/dev/null | grep -qF " $1/"; then
			kill -9 "${p#/proc/}"
		fi
	done
done
rm -rf "$1"
