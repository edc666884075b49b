#!/bin/sh
# Runs groups of tests in the environment of `make peers`, each for at most an hour, and says how each ended:
# run.sh FOLDER GROUP… Skipped tests are named with their reasons.
set -u
python=$1/bin/python
here=$(dirname "$0")
shift
failed=0
summary=
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${PEERS_THREADS:-1}"
for group in "$@"; do
	start=$(date +%s)
	echo "== $group"
	if [ -e "$here/test_$group.sh" ]; then
		timeout 3600 "$here/test_$group.sh" "$python"
	else
		timeout 3600 "$python" -m pytest -q -rs --no-header -p no:cacheprovider -W ignore "$here/test_$group.py"
	fi
	code=$?
	[ $code -eq 0 ] || failed=1
	[ $code -eq 0 ] && how=passed || how="FAILED, exit code $code"
	summary="$summary$(printf '%-12s %s after %d s' "$group" "$how" $(($(date +%s) - start)))
"
done
printf '\n%s' "$summary"
exit $failed
