#!/bin/bash
# Checks a built kit on this machine's CPU and prints a summary: what libtorch there is, whether it computes what it
# should, and how fast. Then gpu_check.sh, where there is a GPU. Ends with 1 when anything failed. Logs go to check/.
#
#   ./check.sh                 everything: 5 to 20 minutes
#   ./check.sh --quick         a few steps of each benchmark: about a minute
#   ./check.sh --no-bench      no benchmarks
#   PEER=torch_floor.py ./check.sh      benchmarks beside that PyTorch program
set -uo pipefail
cd "$(dirname "$0")" || exit 1
bench=(--repeats 3)
for arg in "$@"; do
	case $arg in
	--quick) bench=(--repeats 1 --steps 3 --queries 320) ;;
	--no-bench) bench=() ;;
	*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
done
if [ ! -e bin/lib/libfulcrum_torch.so ]; then echo "check: run ./build.sh first" >&2; exit 2; fi
out=$PWD/check
rm -rf "$out"
mkdir -p "$out"
failed=0
summary=()
# step NAME COMMAND…: runs it, keeps its output in a file, notes how it ended.
step() {
	local name=$1 begin=$SECONDS verdict=ok
	shift
	echo "== $name"
	("$@") >"$out/$name.log" 2>&1 || { verdict=FAILED; failed=1; }
	summary+=("$(printf '%-28s %-7s %4d s' "$name" "$verdict" $((SECONDS - begin)))")
	[ $verdict = ok ] || tail -n 20 "$out/$name.log"
}
# golden PACKAGE [FLAGS]: its test program, in the folder of its testdata.
golden() {
	cd "goldens/$1" || return 1
	FULCRUM_SHARED=$root/goldens/shared FULCRUM_PROGRAM=$root/bin/run FULCRUM_DEVICE=cpu \
		"$root/bin/${1//\//-}.test" -test.short -test.timeout 30m "${@:2}"
}
root=$PWD

step doctor bin/run doctor
cat "$out/doctor.log"
step losses bin/bench losses --device cpu
cat "$out/losses.log"
for package in internal/tensorfile internal/torchx beamdata rewardutil/{advantage,control,group,recorded,reward,schedule,text,torchorder,vqa} selector/{pointer,tokens,vl,seq2seq,clip} phases phases/{rce,grpo}; do
	step "golden-${package//\//-}" golden "$package"
done
step golden-parity golden experiments -test.run '^TestParity$' -test.v
grep -q 'reference data absent' "$out/golden-parity.log" && summary[-1]+="  (skipped: the kit has no recordings)"
if [ ${#bench[@]} -gt 0 ]; then
	if [ -n "${PEER:-}" ]; then bench+=(--peer "$PEER"); fi
	step bench-cpu bin/bench workloads --dir "$out/data" "${bench[@]}"
	cat "$out/bench-cpu.log"
	rm -rf "$out/data"
fi

cuda="cuda: none here, so nothing was checked on a GPU"
if grep -q '^cuda:0 ' "$out/doctor.log"; then
	./gpu_check.sh || failed=1
	cuda="the GPU's summary stands above"
fi
echo
echo "== summary of the CPU"
printf '%s\n' "${summary[@]}"
echo "$cuda"
exit $failed
