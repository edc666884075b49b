#!/bin/bash
# Checks a built kit on this machine's CUDA GPU, in at most 8 minutes: what is there, whether it computes what it should,
# and how fast. Needs neither Go nor nvcc nor a network. Ends with 1 when anything failed, was cut or not run. A short table comes
# last, after Ctrl-C too; logs and result.json go to gpu_check/.
#
#   ./gpu_check.sh                     everything
#   GPU_CHECK_SECONDS=1500 ./gpu_check.sh bench shapes     with more time than 480 s; a part has its own limit, and no more than is left
#   ./gpu_check.sh doctor oom          these parts
#   SHAPE_PEER=peer_gpu.py ./gpu_check.sh shapes     published shapes in turns with that PyTorch program
#   SHAPES="qwen2_5_1_5b --phases shape-decode" ./gpu_check.sh shapes     some of them
#
# Parts: doctor     CUDA, driver, device, memory, bfloat16, flash attention, run-time compilation
#        losses     short trainings against PyTorch's losses in float64 and the CPU's
#        goldens    the tests of every policy on CUDA: float32 and bfloat16 against float64 and the CPU, recorded runs
#        resume     runs killed with SIGKILL end as those that were not: the same rows and the same bytes
#        processes  runs of two processes, over TCP and by NCCL, end as that of one: the same rows and the same bytes
#        memory     the forecast before the first step against the peak of the run
#        oom        a full memory ends in one line that says what to lower, and leaves nothing half-written
#        bench      the pointer's training workloads
#        shapes     decoding, update and GRPO step of published shapes with random weights
set -uo pipefail
cd "$(dirname "$0")" || exit 1
root=$PWD
every=(doctor losses goldens resume processes memory oom bench shapes)
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${every[@]}")
for part in "${parts[@]}"; do
	case " ${every[*]} " in
	*" $part "*) ;;
	*) echo "gpu_check: no part $part; there are: ${every[*]}" >&2; exit 2 ;;
	esac
done
limit=${GPU_CHECK_SECONDS:-480}
case $limit in '' | *[!0-9]*) echo "gpu_check: GPU_CHECK_SECONDS=$limit: want a number of seconds" >&2; exit 2 ;; esac
run=$root/bin/run
bench=$root/bin/bench
for program in "$run" "$bench"; do [ -x "$program" ] || { echo "gpu_check: no $program" >&2; exit 2; }; done
out=${OUT_DIR:-$root/gpu_check}
rm -rf "$out"
mkdir -p "$out"
timeout -k 5 60 "$run" doctor >"$out/doctor.log" 2>&1
if ! grep -q '^cuda:0 ' "$out/doctor.log"; then
	why=$(sed -n 's/^libtorch  */libtorch /; s/^libtorch .*/& sees no CUDA device/p; s/^run: //p' "$out/doctor.log" | tail -n 1)
	echo "gpu_check: nothing can be checked: ${why:-bin/run doctor did not end}" >&2
	exit 2
fi

child='' stopped=''
stop() {
	stopped=yes
	[ -z "$child" ] || kill "$child" 2>/dev/null
}
trap stop INT TERM HUP
# within SECONDS COMMAND…: runs it for at most that long, no longer than time is left, and until Ctrl-C. It waits beside the command,
# since a shell hears of signals only between commands.
within() {
	local most=$1 begin=$SECONDS code
	shift
	[ -z "$stopped" ] || return 130
	[ "$most" -le $((limit - begin)) ] || most=$((limit - begin))
	if [ "$most" -le 0 ]; then note "no time left"; return 124; fi
	timeout -k 5 "$most" "$@" &
	child=$!
	[ -z "$stopped" ] || kill $child # it came in between
	wait $child 2>/dev/null # without bash's word on how it ended
	code=$?
	while kill -0 $child 2>/dev/null; do wait $child 2>/dev/null; done # a signal ends the first wait
	child=''
	if [ $code -ne 0 ] && [ -z "$stopped" ] && [ $((SECONDS - begin)) -ge "$most" ]; then note "cut after $most s"; fi
	return $code
}

note() { echo "$*" >>"$out/$part.note"; } # one line for the summary
quoted() { iconv -c -f UTF-8 -t UTF-8 | tr '\t\n' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/ *$//'; }

part_doctor() {
	cat "$out/doctor.log"
	note "$(sed -n 's/^cuda:0 *//p' "$out/doctor.log" | head -n 1)"
	grep -q 'matrix product is right' "$out/doctor.log" && ! grep -q 'not usable' "$out/doctor.log"
}

part_losses() { within 120 "$bench" losses --device cuda; }

# golden PACKAGE TESTS: its test program, in the folder of its testdata; a program that this kit lacks is named.
golden() {
	local name=${1//\//-} log
	log=$out/golden-$name.log
	if [ ! -x "bin/$name.test" ]; then note "skipped: no $name.test here"; return; fi
	if [ -n "$stopped" ] || [ $SECONDS -ge "$limit" ]; then note "$name: not run"; failed_golden=1; return; fi
	mkdir -p "goldens/$1"
	within 150 env -C "goldens/$1" FULCRUM_SHARED="${FULCRUM_SHARED:-$root/goldens/shared}" FULCRUM_PROGRAM="$run" FULCRUM_DEVICE=cuda \
		"$root/bin/$name.test" -test.short -test.v -test.run "$2" >"$log" 2>&1
	local code=$?
	grep -E '^ *--- (FAIL|SKIP)|_test.go:[0-9]+: ' "$log" | cut -c1-400
	local ran skipped
	ran=$(grep -c '^--- PASS' "$log")
	skipped=$(grep '^--- SKIP' "$log" | awk '{ print $3 }' | tr '\n' ' ')
	note "$name: $ran passed${skipped:+, skipped ${skipped% }}"
	if [ $code -ne 0 ]; then tail -n 30 "$log" | cut -c1-400; failed_golden=1; fi
	tried=$((tried + 1))
	if [ "$ran" -eq 0 ] && [ -z "$skipped" ]; then echo "$name: no test ran"; failed_golden=1; fi
}
part_goldens() {
	failed_golden=0 tried=0
	golden internal/torchx .
	golden phases/rce CUDA
	golden selector/pointer AgainstFloat64
	golden selector/vl 'CUDA|AgainstFloat64'
	golden selector/seq2seq 'CUDA|AgainstFloat64'
	golden selector/clip 'CUDA|AgainstFloat64'
	golden experiments '^TestParity$'
	if [ $tried -eq 0 ]; then note "no test program in this kit: nothing was checked"; return 1; fi
	return $failed_golden
}

# tiny POLICY: a training of seconds. The last row of its last epoch is what a kill comes before.
tiny() {
	case $1 in
	pointer) echo exp=beams_v3 seed=3 data.batch_size=16 selector.hidden_dim=32 data.shapes.train_queries=48 \
		data.shapes.reader_questions=30 data.shapes.val_queries=16 data.shapes.dev_queries=16 rce.epochs=2 grpo.epochs=3 ;;
	qwen2_5_vl) echo exp=shapes_vl seed=3 data.batch_size=16 data.conversations.demos=24 data.shapes.train_queries=48 \
		data.shapes.val_queries=16 data.shapes.dev_queries=16 vl.scratch.hidden_size=64 vl.scratch.intermediate_size=96 \
		vl.scratch.num_hidden_layers=2 vl.scratch.image_pixels=3136 sft.epochs=1 rce.epochs=1 grpo.epochs=3 grpo.group_size=4 \
		rewards.length.weight=0.1 ;;
	seq2seq) echo exp=summaries_tiny seed=3 'schedule=[sft,grpo]' data.batch_size=8 data.summaries.train=24 data.summaries.val=8 \
		data.summaries.test=8 seq2seq.scratch.d_model=32 seq2seq.scratch.d_ff=48 seq2seq.scratch.num_heads=2 \
		seq2seq.generation.max_new_tokens=24 sft.epochs=1 grpo.epochs=3 grpo.group_size=3 ;;
	esac
}
# rows FOLDER: the rows of its steps without times.
rows() { grep '"kind":"step"' "$1/metrics.jsonl" | sed -E 's/"([a-z_]*time|[a-z_]*seconds[a-z_]*|[a-z_]*_per_second)":[^,}]*,?//g'; }
part_resume() {
	local policy bad=0 whole cut common
	for policy in pointer qwen2_5_vl seq2seq; do
		whole=$out/resume-$policy-whole cut=$out/resume-$policy-cut
		common="device=cuda deterministic=true report.plots=false checks.off=[preflight]"
		# shellcheck disable=SC2046,SC2086 # words
		within 60 "$run" $(tiny $policy) $common hydra.run.dir="$whole" >"$whole.log" 2>&1 || { tail -n 3 "$whole.log"; bad=1; continue; }
		[ $SECONDS -lt "$limit" ] || { note "no time left"; bad=1; break; }
		# shellcheck disable=SC2046,SC2086
		"$run" $(tiny $policy) $common hydra.run.dir="$cut" >"$cut.log" 2>&1 &
		local pid=$! wait=0
		until grep -qs '"kind":"step","phase":"grpo","epoch":2' "$cut/metrics.jsonl" || [ $wait -gt 600 ] || ! kill -0 $pid 2>/dev/null; do
			[ -z "$stopped" ] && [ $SECONDS -lt "$limit" ] || break
			sleep 0.05
			wait=$((wait + 1))
		done
		kill -9 $pid 2>/dev/null
		wait $pid 2>/dev/null
		if [ -e "$cut/summary.json" ]; then echo "$policy: the run ended before it could be killed"; bad=1; continue; fi
		within 60 "$run" resume "$cut" >>"$cut.log" 2>&1 || { tail -n 3 "$cut.log"; bad=1; continue; }
		same "$whole" "$cut" "$policy" || bad=1
	done
	return $bad
}
# same ONE OTHER NAME: whether two runs have the same rows and weights.
same() {
	local code=0
	if ! diff <(rows "$1") <(rows "$2") >"$2.diff"; then
		code=1
		echo "$3: rows differ:"
		head -c 1500 "$2.diff"
	fi
	if ! cmp -s "$1/checkpoints/last.safetensors" "$2/checkpoints/last.safetensors"; then
		code=1
		echo "$3: the weights differ"
	fi
	[ $code = 0 ] && note "$3 the same to the last bit" || note "$3 differs"
	return $code
}

# NCCL takes two processes of one GPU for a mistake, unless they say that they are on two machines.
# shellcheck disable=SC2016 # of the inner shell
pair='RANK=1 NCCL_HOSTID=b "$@" & RANK=0 NCCL_HOSTID=a "$@"; code=$?; wait $! && exit $code'
# spread POLICY HOW: a run of two shards. HOW is its processes and how they exchange tensors: 1_gloo, 2_gloo, 2_nccl, pair_nccl.
spread() {
	local policy=$1 how=$2 dir=$out/processes-$1-$2 processes=${2%_*} by=()
	if [ "$processes" = pair ]; then
		processes=1
		by=(env WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
			NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_DEBUG="${NCCL_DEBUG:-WARN}" bash -c "$pair" pair)
	fi
	# shellcheck disable=SC2046 # words
	within 60 "${by[@]}" "$run" $(tiny "$policy") device=cuda deterministic=true report.plots=false checks.off=[preflight] \
		parallel.shards=2 parallel.processes="$processes" parallel.backend="${how#*_}" hydra.run.dir="$dir" >"$dir.log" 2>&1 ||
		{ echo "$policy $how:"; tail -n 3 "$dir.log"; return 1; }
}
part_processes() {
	local policy how bad=0 ways='1_gloo 2_gloo'
	if ! grep -q 'by NCCL' "$out/doctor.log"; then
		note "NCCL not tried: no libnccl.so.2"
		bad=1
	elif [ "$(grep -c '^cuda:[0-9]' "$out/doctor.log")" -lt 2 ]; then
		ways+=' pair_nccl'
	else
		ways+=' 2_nccl'
	fi
	for policy in pointer qwen2_5_vl seq2seq; do
		for how in $ways; do
			if ! spread $policy "$how"; then
				bad=1
				note "$policy $how failed"
			elif [ "$how" != 1_gloo ]; then
				same "$out/processes-$policy-1_gloo" "$out/processes-$policy-$how" "$policy ${how#*_}" || bad=1
			fi
		done
	done
	return $bad
}

# bytes TEXT: 1.5 GiB → a number
bytes() { awk '{ u = $2; f = u == "KiB" ? 1024 : u == "MiB" ? 1048576 : u == "GiB" ? 1073741824 : 1; print $1 * f }' <<<"$1"; }
part_memory() {
	local dir=$out/memory forecast peak
	# shellcheck disable=SC2046
	within 120 "$run" $(tiny qwen2_5_vl) device=cuda report.plots=false data.batch_size=64 data.shapes.train_queries=256 \
		vl.scratch.hidden_size=256 vl.scratch.intermediate_size=1024 grpo.epochs=1 hydra.run.dir="$dir" >"$dir.log" 2>&1 ||
		{ tail -n 3 "$dir.log"; return 1; }
	grep -h 'memory: ' "$dir/run.log"
	forecast=$(sed -n 's/.*largest step.*cuda:0: \([0-9.]* [KMG]*iB\) at the peak.*/\1/p' "$dir/run.log" | head -n 1)
	peak=$(sed -n 's/.*memory: cuda:0: \([0-9.]* [KMG]*iB\) at the peak of the run.*/\1/p' "$dir/run.log" | head -n 1)
	note "forecast ${forecast:-none}, peak ${peak:-none}"
	[ -n "$forecast" ] && [ -n "$peak" ] || return 1
	awk -v f="$(bytes "$forecast")" -v p="$(bytes "$peak")" 'BEGIN { exit !(p <= 1.15 * f) }'
}

part_oom() {
	local dir=$out/oom code
	# shellcheck disable=SC2046
	PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.002 PYTORCH_ALLOC_CONF=per_process_memory_fraction:0.002 \
		within 120 "$run" $(tiny qwen2_5_vl) device=cuda report.plots=false data.batch_size=512 data.shapes.train_queries=1024 \
		vl.scratch.hidden_size=256 vl.scratch.intermediate_size=1024 hydra.run.dir="$dir" >"$out/oom.out" 2>"$out/oom.err"
	code=$?
	tail -n 3 "$out/oom.err"
	local bad=0
	[ $code -eq 1 ] || { echo "exit code $code, want 1"; bad=1; }
	[ "$(grep -c '^run: ' "$out/oom.err")" -eq 1 ] || { echo "want one line that begins with run:"; bad=1; }
	grep -q '^run: .*CUDA out of memory.*micro_batch.*gradient_checkpointing' "$out/oom.err" || { echo "the line names nothing to lower"; bad=1; }
	if grep -qE 'goroutine|panic|terminate' "$out/oom.err"; then echo "a stack instead of a line"; bad=1; fi
	if [ -d "$dir" ] && find "$dir" -name '*.tmp*' | grep .; then echo "half-written files"; bad=1; fi
	note "$(grep -m 1 '^run: ' "$out/oom.err" | cut -c1-150)"
	return $bad
}

# table NAME: what a benchmark's JSON says; after a failure, that of before it. A file that cannot be read is removed.
table() {
	if [ ! -s "$out/$1.json" ] || ! "$bench" workloads --from "$out/$1.json"; then
		rm -f "$out/$1.json"
		return 1
	fi
}
part_bench() {
	within 150 "$bench" workloads --device cuda legacy_k64_b256 own_k64_b256 rl_k64_b1 --steps 60 --repeats 1 --dir "$out/data" \
		--format json >"$out/bench.json"
	local code=$?
	rm -rf "$out/data"
	table bench && return $code
}
part_shapes() {
	local peer=()
	[ -n "${SHAPE_PEER:-}" ] && peer=(--shape-peer "$SHAPE_PEER")
	# shellcheck disable=SC2086
	within "$limit" "$bench" workloads --device cuda ${SHAPES:-qwen2_5_1_5b qwen2_5_vl_3b} --repeats 1 --threads 4 "${peer[@]}" --format json \
		>"$out/shapes.json"
	local code=$?
	table shapes && return $code
}

failed=0
summary=()
json=()
for part in "${parts[@]}"; do
	echo "== $part"
	begin=$SECONDS verdict=ok
	if [ -n "$stopped" ] || [ $SECONDS -ge "$limit" ]; then
		verdict="not run" failed=1
		note "$([ -n "$stopped" ] && echo stopped || echo no time left)"
	else
		"part_$part" >"$out/$part.txt" 2>&1 || { verdict=FAILED; failed=1; }
		[ -z "$stopped" ] || note stopped
		cat "$out/$part.txt"
	fi
	took=$((SECONDS - begin))
	text=$([ -e "$out/$part.note" ] && paste -sd ';' "$out/$part.note" | sed 's/;/; /g')
	summary+=("$(printf '%-10s %-7s %4d s  %s' "$part" "$verdict" $took "$text")")
	json+=("$(printf '{"part": "%s", "verdict": "%s", "seconds": %d, "note": "%s"}' "$part" "$verdict" $took "$(quoted <<<"$text")")")
done
{
	printf '{"date": "%s", "device": "%s",\n "parts": [\n  ' "$(date -u +%FT%TZ)" "$(sed -n 's/^cuda:0 *//p' "$out/doctor.log" | head -n 1 | quoted)"
	for i in "${!json[@]}"; do
		[ "$i" -eq 0 ] || printf ',\n  '
		printf '%s' "${json[$i]}"
	done
	printf ']'
	for name in bench shapes; do
		if [ -s "$out/$name.json" ]; then printf ',\n "%s": ' "$name"; cat "$out/$name.json"; fi
	done
	echo '}'
} >"$out/result.json"

echo
echo "== summary ($out/result.json)"
printf '%s\n' "${summary[@]}"
exit $failed
