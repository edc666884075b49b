#!/bin/bash
# Shows that the core stands alone. Builds the program without its annexes (-tags core leaves cmd/run/annexes.go out, and what only it
# names), trains a selector, a vision-language model and a T5 with it, resumes after a kill, sweeps with the local launcher, writes
# reports, and asks for what is not there. The tests that make test-core then runs take the program, build/core.
set -euo pipefail
cd "$(dirname "$0")/.."
eval "$(scripts/env)"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -tags core -o build/core ./cmd/run
cp build/core "$tmp/run"
cd "$tmp"

run() { ./run "$@" >log 2>&1 || { echo "run $*" >&2; cat log >&2; exit 1; }; }
has() { for f; do [ -s "$f" ] || { echo "no $f" >&2; exit 1; }; done; }
lacks() { # lacks WHAT_THE_ONE_LINE_SAYS ARGUMENT…
	local want=$1; shift
	if ./run "$@" >log 2>&1 || [ "$(wc -l <log)" != 1 ] || ! grep -qF -- "$want" log; then
		echo "run $*: want an error of one line that says: $want; got:" >&2; cat log >&2; exit 1
	fi
}
pictures=(data.shapes.train_queries=48 data.shapes.val_queries=16 data.shapes.dev_queries=16 threads=1)
selector=(exp=okvqa_v3 "${pictures[@]}" data.shapes.reader_questions=40 data.batch_size=16 rce.epochs=2 grpo.epochs=1)

run "${selector[@]}" hydra.run.dir=pointer
has pointer/summary.json pointer/report.md pointer/report.html
run task=predict data=shapes "${pictures[@]}" data.shapes.reader_questions=40 init.checkpoint=pointer hydra.run.dir=choices
has choices/predictions.jsonl
run exp=shapes_vl "${pictures[@]}" data.conversations.demos=16 sft.epochs=1 rce.epochs=1 grpo.epochs=1 hydra.run.dir=vl
has vl/summary.json vl/report.html
run exp=summaries_tiny data.summaries.train=64 data.summaries.val=8 data.summaries.test=8 data.batch_size=16 seq2seq.scratch.d_model=32 \
	seq2seq.scratch.num_layers=1 seq2seq.scratch.num_decoder_layers=1 sft.epochs=1 grpo.epochs=1 grpo.epoch_queries=16 hydra.run.dir=t5
has t5/summary.json t5/report.html

./run "${selector[@]}" rce.epochs=200 hydra.run.dir=killed >log 2>&1 & pid=$!
until grep -qs '"epoch":2' killed/metrics.jsonl; do sleep 0.1; done
kill -KILL $pid; wait $pid 2>/dev/null || true
./run resume killed >log 2>&1 & pid=$!
until grep -qs '"epoch":6' killed/metrics.jsonl; do kill -0 $pid || { cat log; exit 1; }; sleep 0.1; done
kill -INT $pid; wait $pid || [ $? = 130 ]

run -m "${selector[@]}" seed=1,2 report.plots=false hydra/launcher=local hydra.sweep.dir=seeds
has seeds/1/report.md
lacks 'sweep reports' report seeds
run report pointer

lacks 'task=embed: this program is built without the annex "the loop around a frozen model"' task=embed
lacks 'lever_plus: this program is built without the annex "the Python reference"' compat=lever_plus
lacks 'lvlm: this program is built without the annex "the loop around a frozen model"' lvlm.reward=vqa
lacks 'hydra/sweeper=tpe: this program is built without the annex "search"' -m "${selector[@]}" seed=1,2 hydra/sweeper=tpe hydra.sweep.dir=tpe
lacks 'hydra/launcher=slurm: this program is built without the annex "Slurm"' -m "${selector[@]}" seed=1,2 hydra/launcher=slurm hydra.sweep.dir=slurm
lacks 'the annex "board, watch and curves"' board
lacks 'the annex "what judges and compares finished runs"' verify pointer
lacks 'the annex "what judges and compares finished runs"' report pointer vl
echo "the core trains, resumes, sweeps and reports"
