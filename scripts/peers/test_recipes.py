"""The recipes' GRPO and weighted imitation, written out here in float64 upon transformers' T5, BART and Qwen2: gradients and weights of
three AdamW steps, all weights trained. Ours computes in float32."""

import copy

import pytest
import torch
from safetensors.torch import load_file

import peers

EPS, LR, BETA, EPSILON = 1e-3, 1e-3, 0.04, 0.1
MODELS = {"t5": peers.t5, "t5 gated": lambda: peers.untie(peers.t5(gated=True)), "bart": peers.bart, "qwen2": peers.qwen2}


def token_logps(model, prompt, completion):
    """[T] with gradient."""
    if model.config.is_encoder_decoder:
        decoder = torch.tensor([[model.config.decoder_start_token_id, *completion[:-1]]])
        z = model(input_ids=torch.tensor([prompt]), decoder_input_ids=decoder).logits[0]
    else:
        z = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return z.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def grpo(logps, old, ref, rewards, average):
    """-min(ρA, clip(ρ)A) + β k3, by token: over all tokens of the batch, or over each completion first."""
    terms = []
    for group, olds, refs, r in zip(logps, old, ref, rewards):
        r = torch.tensor(r, dtype=torch.float64)
        for lp, o, f, a in zip(group, olds, refs, (r - r.mean()) / r.std()):
            ratio, d = (lp - o).exp(), f - lp
            terms.append(-torch.minimum(ratio * a, ratio.clamp(1 - EPSILON, 1 + EPSILON) * a) + BETA * (d.exp() - d - 1))
    return torch.cat(terms).mean() if average == "token" else torch.stack([t.mean() for t in terms]).mean()


def rce(logps, rewards, tau):
    """Cross entropy of whole completions, weighted by softmax(reward / τ), the mean over prompts."""
    return torch.stack([-(torch.tensor(r, dtype=torch.float64) / tau).softmax(0) @ torch.stack([lp.sum() for lp in group])
                        for group, r in zip(logps, rewards)]).mean()


def compare(model, loss, ours, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, eps=EPS, weight_decay=0)
    # names as published: the shared table stands for its ties
    names = {n: p for n, p in model.named_parameters()}
    for i in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        largest = max(p.grad.abs().max().item() for p in names.values() if p.grad is not None)
        optimizer_names = [n for n in names if f"{i}/gradient/{n}" in ours]
        assert len(optimizer_names) == len([k for k in ours if k.startswith(f"{i}/gradient/")]), "a tensor has no partner"
        for n in optimizer_names:
            if names[n].grad.abs().max() > 1e-6 * largest:  # biases of keys have none but rounding
                peers.close(f"step {i}, gradient of {n}", ours[f"{i}/gradient/{n}"], names[n].grad, 3e-5)
        optimizer.step()
        for n in optimizer_names:
            peers.close(f"step {i}, {n}", ours[f"{i}/weight/{n}"], names[n], 3e-6)


def asked(kind):
    prompts, completions = peers.questions(300, ((7, (5, 3, 8, 4)), (11, (6, 2, 7, 9))))
    return prompts, completions, [[0.1, 0.9, 0.4, 0.3], [0.8, 0.2, 0.2, 0.6]]


def trained(probe, tmp_path, model, phase, settings, steps):
    kind = peers.kind_of(model)
    model.save_pretrained(tmp_path / "model")
    options = {"Path": str(tmp_path / "model"), **({"TuneAll": True} if peers.POLICY[kind] == "seq2seq" else {"TuneMMLLM": True})}
    prompts, completions, rewards = asked(kind)
    out = str(tmp_path / "ours.safetensors")
    probe("train", Policy=peers.POLICY[kind], Options=options, Prompts=prompts, Completions=completions, Out=out,
          Train={"Phase": phase, "Settings": {"LR": LR, **settings}, "Optim": {"Eps": EPS}, "Steps": steps, "Batch": 2, "Rewards": rewards, "MaxTokens": 12})
    return model.double(), prompts, completions, rewards, load_file(out)


@pytest.mark.parametrize("average", ["token", "completion"])
@pytest.mark.parametrize("name", MODELS)
def test_grpo(probe, tmp_path, name, average):
    settings = {"Rollout": "online", "OldPolicy": "batch", "NumIterations": 3, "GroupSize": 4, "Loss": "bnpo" if average == "token" else "grpo",
                "Clip": {"Epsilon": EPSILON}, "MaxLogRatio": 1e9, "Advantage": {"Method": "z_score", "MinStd": 0, "Clip": 1e30},
                "KL": {"Beta": BETA, "Estimator": "k3", "Controller": "fixed", "Reference": "init"}}
    model, prompts, completions, rewards, ours = trained(probe, tmp_path, MODELS[name](), "grpo", settings, 3)

    def logps(m):
        return [[token_logps(m, p, c) for c in group] for p, group in zip(prompts, completions)]

    with torch.no_grad():
        old = logps(copy.deepcopy(model))
    compare(model, lambda m: grpo(logps(m), old, old, rewards, average), ours, 3)


@pytest.mark.parametrize("name", MODELS)
def test_rce(probe, tmp_path, name):
    settings = {"Rewards": "raw", "Temperature": {"Start": 0.5, "End": 0.5}}
    model, prompts, completions, rewards, ours = trained(probe, tmp_path, MODELS[name](), "rce", settings, 3)
    compare(model, lambda m: rce([[token_logps(m, p, c) for c in g] for p, g in zip(prompts, completions)], rewards, 0.5), ours, 3)
