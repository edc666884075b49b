"""Four AdamW steps of a step cut into two shards, as two processes of ours compute it (the program's own tests show that their number
changes no byte), beside PyTorch's DistributedDataParallel on two gloo ranks that have one prompt each. And runs that torchrun starts."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import peers
from test_recipes import EPS, LR, MODELS, RECIPES, grpo, rce, token_logps

STEPS, REWARDS = 4, [[0.1, 0.9, 0.4, 0.3], [0.8, 0.2, 0.2, 0.6]]
LENGTHS = ((7, (5, 3, 8, 4)), (11, (6, 2, 7, 9)))
SETTINGS = {
    "rce": {"Rewards": "raw", "Temperature": {"Start": 0.5, "End": 0.5}},
    "grpo": {"Rollout": "online", "OldPolicy": "batch", "NumIterations": STEPS, "GroupSize": 4, "Loss": "grpo", "SampleTemp": 0.9,
             "Clip": {"Epsilon": 0.2}, "MaxLogRatio": 1e9, "Advantage": {"Method": "z_score", "MinStd": 0, "Clip": 1e30},
             "KL": {"Beta": 0.04, "Estimator": "k3", "Controller": "fixed", "Reference": "init"}},
}


class Share(torch.nn.Module):
    """The loss of one prompt, which DistributedDataParallel averages over the ranks."""

    def __init__(self, model, phase, prompt, completions, rewards):
        super().__init__()
        self.model, self.phase = model, phase
        self.logps = lambda: [[token_logps(self.model, prompt, c, RECIPES["notebook"]["temperature"] if phase == "grpo" else 1.0)
                               for c in completions]]
        self.rewards = [rewards]
        with torch.no_grad():
            self.old = self.logps()

    def forward(self):
        if self.phase == "rce":
            return rce(self.logps(), self.rewards, 0.5)
        return grpo(self.logps(), self.old, self.old, self.rewards, **RECIPES["notebook"])


def rank(number, name, phase, port, out):
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    model = peers.soft(MODELS[name]()).double()
    prompts, completions = peers.questions(300, LENGTHS)
    share = Share(model, phase, prompts[number], completions[number], REWARDS[number])
    parallel = torch.nn.parallel.DistributedDataParallel(share)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, eps=EPS, weight_decay=0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        parallel().backward()
        optimizer.step()
    if number == 0:
        save_file({n: p.detach().float().clone() for n, p in model.named_parameters()}, out)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("phase", SETTINGS)
@pytest.mark.parametrize("name", ["qwen2", "llama 3", "t5", "bart"])
def test_two_ranks(probe, tmp_path, name, phase):
    model = peers.soft(MODELS[name]())
    policy, folder, out = peers.POLICY[peers.kind_of(model)], tmp_path / "model", tmp_path / "ours.safetensors"
    model.save_pretrained(folder)
    prompts, completions = peers.questions(300, LENGTHS)
    probe("train", Policy=policy, Options={"Path": str(folder), **({"TuneAll": True} if policy == "seq2seq" else {"TuneMMLLM": True})},
          Prompts=prompts, Completions=completions, Out=str(out),
          Train={"Phase": phase, "Settings": {"LR": LR, **SETTINGS[phase]}, "Optim": {"Eps": EPS}, "Steps": STEPS, "Batch": 2, "Shards": 2,
                 "Rewards": REWARDS, "MaxTokens": 12})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    theirs = tmp_path / "theirs.safetensors"
    torch.multiprocessing.spawn(rank, (name, phase, port, str(theirs)), nprocs=2)
    ours, want = load_file(out), load_file(theirs)
    last = {n.removeprefix(f"{STEPS - 1}/weight/"): w for n, w in ours.items() if n.startswith(f"{STEPS - 1}/weight/")}
    assert len(last) > 10 and last.keys() <= want.keys(), last.keys() - want.keys()
    for n, w in last.items():
        peers.close(n, w, want[n], 1e-5)


SMALL = ["threads=1", "seed=3", "parallel.shards=8", "checks.off=[preflight]", "report.plots=false", "logging.tensorboard=false"]
RUNS = {
    "pointer": ["exp=beams_v3", "data.batch_size=16", "selector.hidden_dim=256", "data.shapes.train_queries=48", "data.shapes.reader_questions=30",
                "data.shapes.val_queries=16", "data.shapes.dev_queries=16", "schedule=[sft,rce,grpo,grpo_online]", "sft.epochs=1", "rce.epochs=1",
                "grpo.epochs=1", "grpo_online.epochs=1", "grpo_online.group_size=4"],
    "t5": ["exp=summaries_tiny", "schedule=[sft,rce,grpo]", "data.batch_size=8", "data.summaries.train=24", "data.summaries.val=8",
           "data.summaries.test=8", "seq2seq.scratch.d_model=16", "seq2seq.scratch.d_ff=24", "seq2seq.scratch.num_heads=2",
           "seq2seq.scratch.vocab_size=300", "seq2seq.generation.max_new_tokens=8", "sft.epochs=1", "rce.epochs=1", "rce.rollout=online",
           "rce.average=token", "grpo.epochs=1", "grpo.group_size=3"],
}


def outcome(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    files = {f.name: f.read_bytes() for f in (folder / "checkpoints").glob("*.safetensors")}
    assert len(rows) > 5 and len(files) > 3
    return [{k: v for k, v in row.items() if k not in ("time", "step_seconds")} for row in rows], files


@pytest.mark.parametrize("name", RUNS)
def test_torchrun(tmp_path, name):
    program = [str(peers.ROOT / "bin" / "run"), *RUNS[name], *SMALL, f"evidence.ledger={tmp_path / 'looks'}"]
    subprocess.run([*program, f"hydra.run.dir={tmp_path / 'alone'}"], check=True, capture_output=True)
    want = outcome(tmp_path / "alone")
    for n in (2, 3, 8):
        subprocess.run([os.path.join(os.path.dirname(sys.executable), "torchrun"), "--no-python", f"--nproc-per-node={n}", "--rdzv-backend=c10d",
                        "--rdzv-endpoint=localhost:0", *program, f"hydra.run.dir={tmp_path / str(n)}"], check=True, capture_output=True)
        assert outcome(tmp_path / str(n)) == want, n
        shutil.rmtree(tmp_path / str(n))
