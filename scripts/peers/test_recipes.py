"""The recipes' GRPO and weighted imitation, written out here in float64 upon transformers' T5, BART and Qwen2: gradients and weights of
three AdamW steps, all weights trained or adapters. Ours computes in float32."""

import peft
import pytest
import torch
from safetensors.torch import load_file

import families
import peers

EPS, LR, BETA = 1e-3, 1e-3, 0.04
MODELS = {"t5": peers.t5, "t5 gated": lambda: peers.untie(peers.t5(gated=True)), "bart": peers.bart, "qwen2": lambda: peers.qwen2(rope_theta=100.0),
          **{name: lambda name=name: families.large(name) for name in ("llama 3", "qwen3", "mistral", "smollm3")}}
TARGETS = {"t5": ["q", "v"], "bart": ["q_proj", "v_proj"], **dict.fromkeys(peers.TEXT, ["q_proj", "k_proj", "v_proj", "o_proj"])}
# exp=qwen2_5_vl_notebook: the mean of each completion first, at the temperature of sampling. exp=t5_summarize: over all tokens.
RECIPES = {"notebook": dict(loss="grpo", epsilon=0.2, temperature=0.9), "summarisation": dict(loss="bnpo", epsilon=0.1, temperature=1.0)}


def token_logps(model, prompt, completion, temperature=1.0):
    """[T] with gradient."""
    if model.config.is_encoder_decoder:
        decoder = torch.tensor([[model.config.decoder_start_token_id, *completion[:-1]]])
        z = model(input_ids=torch.tensor([prompt]), decoder_input_ids=decoder).logits[0]
    else:
        z = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return (z / temperature).log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def grpo(logps, old, ref, rewards, loss, epsilon, **_):
    """-min(ρA, clip(ρ)A) + β k3, by token: over all tokens of the batch, or over each completion first."""
    terms = []
    for group, olds, refs, r in zip(logps, old, ref, rewards):
        r = torch.tensor(r, dtype=torch.float64)
        for lp, o, f, a in zip(group, olds, refs, (r - r.mean()) / r.std()):
            ratio, d = (lp - o).exp(), f - lp
            terms.append(-torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) + BETA * (d.exp() - d - 1))
    return torch.cat(terms).mean() if loss == "bnpo" else torch.stack([t.mean() for t in terms]).mean()


def rce(logps, rewards, tau):
    """Cross entropy of whole completions, weighted by softmax(reward / τ), the mean over prompts."""
    return torch.stack([-(torch.tensor(r, dtype=torch.float64) / tau).softmax(0) @ torch.stack([lp.sum() for lp in group])
                        for group, r in zip(logps, rewards)]).mean()


def compare(model, loss, ours, steps):
    # names as published: the shared table stands for its ties
    names = {n.replace(".default.weight", ".weight"): p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(names.values(), lr=LR, eps=EPS, weight_decay=0)
    for i in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        largest = max(p.grad.abs().max().item() for p in names.values() if p.grad is not None)
        partners = [n for n in names if f"{i}/gradient/{n}" in ours]
        assert len(partners) == len([k for k in ours if k.startswith(f"{i}/gradient/")]), "a tensor has no partner"
        for n in partners:
            got, want = ours[f"{i}/gradient/{n}"], names[n].grad
            if want.abs().max() > 1e-12 * largest:
                peers.close(f"step {i}, gradient of {n}", got, want, 1e-5)
            else:  # it is 0 but for rounding: a constant in all scores of a query
                assert n.endswith("k_proj.bias") and model.config.model_type == "bart" and got.abs().max() < 1e-6 * largest, n
        optimizer.step()
        for n in partners:
            peers.close(f"step {i}, {n}", ours[f"{i}/weight/{n}"], names[n], 1e-5)


def trained(probe, tmp_path, name, phase, settings, steps, tuned="all"):
    model = peers.soft(MODELS[name]())
    kind = peers.kind_of(model)
    policy, folder = peers.POLICY[kind], tmp_path / "model"
    model.save_pretrained(folder)
    options = {"Path": str(folder), **({"TuneAll": True} if policy == "seq2seq" else {"TuneMMLLM": True})}
    if tuned == "lora":
        adapter = peers.adapter_of(probe, policy, folder, tmp_path / "adapter", TARGETS[kind], Rank=8, Alpha=32)
        options = {"Path": str(folder), "Adapter": str(adapter)}
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True).eval()
    prompts, completions = peers.questions(300, ((7, (5, 3, 8, 4)), (11, (6, 2, 7, 9))))
    rewards = [[0.1, 0.9, 0.4, 0.3], [0.8, 0.2, 0.2, 0.6]]
    out = str(tmp_path / "ours.safetensors")
    probe("train", Policy=policy, Options=options, Prompts=prompts, Completions=completions, Out=out,
          Train={"Phase": phase, "Settings": {"LR": LR, **settings}, "Optim": {"Eps": EPS}, "Steps": steps, "Batch": 2, "Rewards": rewards, "MaxTokens": 12})

    def logps(m, temperature=1.0):
        return [[token_logps(m, p, c, temperature) for c in group] for p, group in zip(prompts, completions)]

    return model.double(), logps, rewards, load_file(out)


@pytest.mark.parametrize("tuned", ["all", "lora"])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MODELS)
def test_grpo(probe, tmp_path, name, recipe, tuned):
    how = RECIPES[recipe]
    settings = {"Rollout": "online", "OldPolicy": "batch", "NumIterations": 3, "GroupSize": 4, "Loss": how["loss"], "SampleTemp": how["temperature"],
                "Clip": {"Epsilon": how["epsilon"]}, "MaxLogRatio": 1e9, "Advantage": {"Method": "z_score", "MinStd": 0, "Clip": 1e30},
                "KL": {"Beta": BETA, "Estimator": "k3", "Controller": "fixed", "Reference": "init"}}
    model, logps, rewards, ours = trained(probe, tmp_path, name, "grpo", settings, 3, tuned)
    with torch.no_grad():
        old = logps(model, how["temperature"])
    compare(model, lambda m: grpo(logps(m, how["temperature"]), old, old, rewards, **how), ours, 3)


@pytest.mark.parametrize("name", MODELS)
def test_rce(probe, tmp_path, name):
    settings = {"Rewards": "raw", "Temperature": {"Start": 0.5, "End": 0.5}}
    model, logps, rewards, ours = trained(probe, tmp_path, name, "rce", settings, 3)
    compare(model, lambda m: rce(logps(m), rewards, 0.5), ours, 3)
