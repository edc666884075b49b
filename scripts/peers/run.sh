#!/bin/bash
# Runs groups of tests in the environment of `make peers`, each for at most an hour: run.sh FOLDER GROUP…
# It ends with a table: how each group ended, what passed, failed and was skipped; below it the reasons of what was skipped.
set -u
python=$1/bin/python
here=$(dirname "$0")
shift
failed=0
summary=
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${PEERS_THREADS:-1}"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for group in "$@"; do
	start=$(date +%s)
	echo "== $group"
	if [ -e "$here/test_$group.sh" ]; then
		timeout 3600 "$here/test_$group.sh" "$python"
	else
		timeout 3600 "$python" -m pytest -q -rs --no-header -p no:cacheprovider -W ignore "$here/test_$group.py"
	fi 2>&1 | tee "$output"
	code=${PIPESTATUS[0]}
	case $code in
	0) how=passed ;;
	124) how="FAILED, its hour ended" failed=1 ;;
	*) how="FAILED, exit code $code" failed=1 ;;
	esac
	# pytest's last line or that of scripts/testsummary; none where a build failed or the hour ended.
	counts=$(grep -E '^[0-9]+ (passed|failed|skipped|error)' "$output" | tail -1)
	summary+=$(printf '%-12s %s after %d s: %s' "$group" "$how" $(($(date +%s) - start)) "${counts% in *}")$'\n'
	summary+=$(sed -n '/(set FULCRUM_SHARED)/d; s/^\(SKIPPED\|skipped\) /             skipped /p' "$output" | cut -c1-200)$'\n'
	reference=$(grep -c '^skipped .*(set FULCRUM_SHARED)' "$output") &&
		summary+="             $reference skipped for want of reference data (set FULCRUM_SHARED)"$'\n'
done
printf '\n%s' "${summary//$'\n\n'/$'\n'}"
exit $failed
