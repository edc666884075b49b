"""Four AdamW steps of a step cut into two shards, as two processes of ours compute it (the program's own tests show that their number
changes no byte), beside PyTorch's DistributedDataParallel on two gloo ranks that have one prompt each."""

import socket

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
