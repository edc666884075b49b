"""Optimizer steps of TRL's GRPOTrainer and SFTTrainer beside ours: the same model, prompts, completions, rewards and settings,
float32 on a CPU. Gradients agree within 1e-5 of each tensor's largest entry, step by step, and so do the weights."""

import json
import os
import shutil
import sys

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func is how completions in hand get in

import datasets
import peft
import pytest
import tokenizers
import torch
import transformers
import trl
from PIL import Image
from safetensors.torch import load_file

import peers

PAD, END, VOCAB = 0, 2, 320
EPS, LR = 1e-3, 2e-3
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
datasets.disable_progress_bars()


def tokenizer():
    """One that TRL can ask for names of tokens; no text is encoded."""
    words = {f"t{i}": i for i in range(VOCAB)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t1"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="t0", eos_token="t2", unk_token="t1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model = peers.soft(peers.qwen2(rope_theta=100.0))
    model.save_pretrained(path)
    return path


def batch(groups=4, size=4):
    """Prompts with completions that end, but for two that are cut; rewards whose deviation is the same in every group."""
    draw = torch.Generator().manual_seed(5)
    prompts = [peers.ids(5 + 2 * i, VOCAB, 30 + i) for i in range(groups)]
    completions, rewards, cut = [], [], []
    for i in range(groups):
        group = [peers.ids(3 + (3 * i + 2 * j) % 8, VOCAB, 500 + 10 * i + j) for j in range(size)]
        short = [(i, j) in [(0, 1), (2, 3)] for j in range(size)]
        completions.append([ids if s else [*ids, END] for ids, s in zip(group, short)])
        cut.append(short)
        base = torch.tensor([0.0, 0.25, 0.5, 1.0])[:size]
        rewards.append(base[torch.randperm(size, generator=draw)].tolist())
    return prompts, completions, rewards, cut


LONGEST = 12


class Watch:
    """Keeps the gradients before and the weights after every optimizer step."""

    def __init__(self, model, optimizer):
        self.gradients, self.weights = [], []
        names = {p: self.ours(n) for n, p in model.named_parameters() if p.requires_grad}
        optimizer.register_step_pre_hook(lambda *_: self.gradients.append({n: p.grad.clone() for p, n in names.items() if p.grad is not None}))
        optimizer.register_step_post_hook(lambda *_: self.weights.append({n: p.detach().clone() for p, n in names.items()}))

    @staticmethod
    def ours(name):
        name = name.replace(".default.weight", ".weight")
        return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")  # as published


def trained(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.999), eps=EPS, weight_decay=0)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0), Watch(model, optimizer)


COMMON = dict(learning_rate=LR, max_grad_norm=0, report_to=[], logging_steps=1, save_strategy="no", use_cpu=True, bf16=False,
              gradient_checkpointing=False, disable_tqdm=True, dataloader_pin_memory=False)


def their_model(folder, adapter):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return model


def their_grpo(folder, out, data, steps, adapter=None, batch_groups=4, accumulate=1, **config):
    prompts, completions, rewards, _ = data
    size = len(completions[0])
    model = their_model(folder, adapter)
    optimizer, schedule, watch = trained(model)

    def rollout(asked, trainer):
        places = [(int(p), k % size) for k, p in enumerate(asked)]
        chosen = [completions[i][j] for i, j in places]
        return {"prompt_ids": [prompts[i] for i, _ in places], "completion_ids": chosen, "logprobs": None,
                "place": [f"{i},{j}" for i, j in places]}

    def reward(prompts, completions, place, **_):
        return [rewards[int(p.split(",")[0])][int(p.split(",")[1])] for p in place]

    args = trl.GRPOConfig(output_dir=str(out), per_device_train_batch_size=batch_groups * size // accumulate, max_steps=steps,
                          gradient_accumulation_steps=accumulate, num_generations=size, max_completion_length=LONGEST,
                          shuffle_dataset=False, **{"use_bias_correction_kl": False, **COMMON, **config})
    trainer = trl.GRPOTrainer(model=model, args=args, reward_funcs=reward, rollout_func=rollout, processing_class=tokenizer(),
                              train_dataset=datasets.Dataset.from_dict({"prompt": [str(i) for i in range(len(prompts))]}),
                              optimizers=(optimizer, schedule))
    kept = []
    score = trainer._generate_and_score_completions

    def watched(inputs):
        found = score(inputs)
        kept.append({k: found[k].clone() for k in ("advantages", "old_per_token_logps", "completion_mask") if k in found})
        return found

    trainer._generate_and_score_completions = watched
    trainer.train()
    watch.found, watch.advantages = kept[0], torch.cat([k["advantages"] for k in kept])
    watch.rows = [row for row in trainer.state.log_history if "loss" in row]
    return watch


def our_grpo(probe, folder, scratch, data, steps, adapter=None, batch_groups=4, **settings):
    prompts, completions, rewards, cut = data
    out = str(scratch / "ours.safetensors")
    options = {"Path": str(folder), "DType": "float32"}
    options.update({"Adapter": str(adapter)} if adapter else {"TuneMMLLM": True})
    # The same floor for every group stands for TRL's deviation + 1e-4: the deviations are equal.
    floor = torch.tensor(rewards[0]).std().item() + 1e-4
    opt = {"Rollout": "online", "OldPolicy": "batch", "GroupSize": len(completions[0]), "MaxLogRatio": 1e9, "LR": LR,
           "Advantage": {"Method": "z_score", "MinStd": floor, "Clip": 1e30},
           "KL": {"Beta": 0.0, "Estimator": "k3", "Controller": "fixed", "Reference": "init"}}
    for key, value in settings.items():
        opt[key] = {**opt[key], **value} if isinstance(value, dict) and key in opt else value
    answer = probe("train", Policy="vl", Options=options, Prompts=prompts, Completions=completions, Out=out,
                   Train={"Phase": "grpo", "Settings": opt, "Optim": {"Eps": EPS}, "Steps": steps, "Batch": batch_groups,
                          "Rewards": rewards, "Truncated": cut, "MaxTokens": LONGEST})
    return answer, load_file(out)


def compare(watch, ours, steps, tolerance=1e-5):
    assert len(watch.gradients) == steps
    worst = 0.0
    for i in range(steps):
        for what, theirs in ("gradient", watch.gradients[i]), ("weight", watch.weights[i]):
            names = {n for n in ours if n.startswith(f"{i}/{what}/")}
            assert {f"{i}/{what}/{n}" for n in theirs} == names, sorted(names)[:3]
            for n, want in theirs.items():
                worst = max(worst, peers.close(f"step {i}, {what} of {n}", ours[f"{i}/{what}/{n}"], want, tolerance))
    return worst


LOSSES = {"grpo": {"Loss": "grpo"}, "bnpo": {"Loss": "bnpo"}, "dapo": {"Loss": "dapo"}, "dr_grpo": {"Loss": "dr_grpo"}, "gspo": {"Loss": "gspo"}}


def theirs_of(loss):
    return dict(loss_type="grpo", importance_sampling_level="sequence") if loss == "gspo" else dict(loss_type=loss)


def rows_agree(watch, answer):
    for i, (theirs, ours) in enumerate(zip(watch.rows, answer["steps"])):
        for name, got, want in [
            ("loss", ours["loss"], theirs["loss"]),
            ("KL per token", ours["kl_per_token"], theirs.get("kl", 0.0)),
            ("clipped below", ours["clip_fraction_low"], theirs["clip_ratio/low_mean"]),
            ("clipped above", ours["clip_fraction_high"], theirs["clip_ratio/high_mean"]),
            ("entropy", ours["entropy"], theirs["entropy"]),
            ("gradient norm", ours["grad_norm"], theirs["grad_norm"]),
        ]:
            assert abs(got - want) <= 2e-5 * max(1, abs(want)), f"step {i}, {name}: {got}, want {want}"


def logps_agree(probe, folder, data, found):
    """The old policy's log-probability of every token of every completion."""
    options = {"Path": str(folder), "DType": "float32"}
    groups = probe("score", Policy="vl", Options=options, Prompts=data[0], Completions=data[1])["logp"]
    ours = [logp for group in groups for logp in group]
    assert len(ours) == len(found["old_per_token_logps"])
    for i, (logp, theirs, mask) in enumerate(zip(ours, found["old_per_token_logps"], found["completion_mask"].bool())):
        peers.close(f"log-probabilities of completion {i}", logp, theirs[mask], 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses(probe, folder, tmp_path, loss):
    """Three passes over one rollout with a KL penalty: ratios leave 1 and the clip acts."""
    data, epsilon = batch(), 3e-3 if loss == "gspo" else 0.1
    watch = their_grpo(folder, tmp_path, data, 3, num_iterations=3, beta=0.04, epsilon=epsilon, epsilon_high=epsilon * 1.4, **theirs_of(loss))
    answer, ours = our_grpo(probe, folder, tmp_path, data, 3, NumIterations=3, Clip={"Epsilon": epsilon, "EpsilonHigh": epsilon * 1.4},
                            KL={"Beta": 0.04}, **LOSSES[loss])
    assert any(row["clip_fraction_low"] + row["clip_fraction_high"] > 0 for row in answer["steps"][1:]), "nothing was clipped"
    assert answer["steps"][2]["kl_per_token"] > 1e-4
    logps_agree(probe, folder, data, watch.found)
    peers.close("advantages", sorted(answer["advantages"]), sorted(watch.advantages.tolist()), 1e-6)
    compare(watch, ours, 3)
    rows_agree(watch, answer)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo"])
def test_accumulation(probe, folder, tmp_path, loss):
    """Two micro-batches a step, three rollouts. TRL shuffles rows between its micro-batches; these losses do not mind."""
    data = batch(groups=6)
    watch = their_grpo(folder, tmp_path, data, 3, accumulate=2, batch_groups=2, beta=0.02, epsilon=0.2, **theirs_of(loss))
    answer, ours = our_grpo(probe, folder, tmp_path, data, 3, batch_groups=2, MicroBatch=1, KL={"Beta": 0.02}, **LOSSES[loss])
    compare(watch, ours, 3)
    for theirs, row in zip(watch.rows, answer["steps"]):
        assert abs(row["loss"] - theirs["loss"]) <= 2e-5 * max(1, abs(theirs["loss"]))


def test_bnpo_accumulation_differs(probe, folder, tmp_path):
    """TRL's bnpo divides each micro-batch by its own tokens, and draws which rows stand in it: docs/algorithms.md. Ours is
    the loss of the whole batch, whatever the micro-batch."""
    data = batch()
    whole = their_grpo(folder, tmp_path, data, 1, loss_type="bnpo")
    parts = their_grpo(folder, tmp_path, data, 1, loss_type="bnpo", accumulate=2)
    _, ours = our_grpo(probe, folder, tmp_path, data, 1, MicroBatch=1, Loss="bnpo")
    compare(whole, ours, 1)
    with pytest.raises(AssertionError):
        compare(parts, ours, 1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_truncated(probe, folder, tmp_path, loss, masked):
    data = batch()
    watch = their_grpo(folder, tmp_path, data, 3, num_iterations=3, beta=0.04, epsilon=0.2, mask_truncated_completions=masked, **theirs_of(loss))
    answer, ours = our_grpo(probe, folder, tmp_path, data, 3, NumIterations=3, MaskTruncated=masked, KL={"Beta": 0.04}, **LOSSES[loss])
    compare(watch, ours, 3)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_temperature(probe, folder, tmp_path, temperature):
    """All log-probabilities of the loss are taken at the temperature of sampling, on both sides."""
    data = batch()
    watch = their_grpo(folder, tmp_path, data, 2, num_iterations=2, beta=0.04, epsilon=0.2, loss_type="dapo", temperature=temperature)
    answer, ours = our_grpo(probe, folder, tmp_path, data, 2, NumIterations=2, SampleTemp=temperature, KL={"Beta": 0.04}, Loss="dapo")
    compare(watch, ours, 2)
    rows_agree(watch, answer)


def test_entropy_bonus(probe, folder, tmp_path):
    data = batch()
    watch = their_grpo(folder, tmp_path, data, 2, num_iterations=2, epsilon=0.2, loss_type="dapo", entropy_coef=0.03)
    _, ours = our_grpo(probe, folder, tmp_path, data, 2, NumIterations=2, EntropyWeight=0.03, Loss="dapo")
    compare(watch, ours, 2)


def test_mean_only(probe, folder, tmp_path):
    """scale_rewards=none."""
    data = batch()
    data[2][1] = [0.0, 0.0, 0.0, 1.0]
    data[2][3] = [0.5, 0.5, 0.5, 0.5]
    watch = their_grpo(folder, tmp_path, data, 1, loss_type="dr_grpo", scale_rewards="none")
    answer, ours = our_grpo(probe, folder, tmp_path, data, 1, Advantage={"Method": "mean_only"}, Loss="dr_grpo")
    peers.close("advantages", sorted(answer["advantages"]), sorted(watch.advantages.tolist()), 1e-6)
    compare(watch, ours, 1)


def test_advantages_of_unequal_deviations(probe, folder, tmp_path):
    """TRL adds 1e-4 to the deviation, ours has a floor under it: equal but for that factor."""
    data = batch()
    data[2][1], data[2][2] = [0.0, 0.0, 0.0, 1.0], [0.1, 0.2, 0.1, 0.9]
    watch = their_grpo(folder, tmp_path, data, 1)
    answer, _ = our_grpo(probe, folder, tmp_path, data, 1, Advantage={"MinStd": 1e-6})
    factors = [s / (s + 1e-4) for s in torch.tensor(data[2]).std(1).tolist() for _ in range(4)]
    peers.close("advantages", sorted(a * f for a, f in zip(answer["advantages"], factors)), sorted(watch.advantages.tolist()), 1e-6)


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_lora(probe, folder, tmp_path, loss):
    data, adapter = batch(), peers.adapter_of(probe, "vl", folder, tmp_path / "adapter", TARGETS)
    watch = their_grpo(folder, tmp_path, data, 3, adapter=adapter, num_iterations=3, beta=0.04, epsilon=0.1, **theirs_of(loss))
    answer, ours = our_grpo(probe, folder, tmp_path, data, 3, adapter=adapter, NumIterations=3, Clip={"Epsilon": 0.1}, KL={"Beta": 0.04}, **LOSSES[loss])
    compare(watch, ours, 3)
    rows_agree(watch, answer)


# --- pictures

PICTURES = {"Which colour?": "img1.png", "What is it, and where?": "img3.png"}


@pytest.mark.parametrize("tuned,side", [("all", "left"), ("lora", "left"), ("lora", "right")])
def test_pictures(probe, tmp_path, tuned, side):
    """The vision-language policy: two pictures, a group of 4 each, three passes. The vision tower learns too, or adapters alone do. With a
    processor that pads on the right, as the folder's does, TRL takes text for pictures in the shorter prompt: docs/algorithms.md."""
    fixture = peers.DATA / "qwen2_5_vl" / "tiny_tied"
    model = peers.soft(peers.qwen2_5_vl(rope_theta=100.0))
    folder = tmp_path / "model"
    shutil.copytree(fixture, folder)
    model.save_pretrained(folder)
    adapter = peers.adapter_of(probe, "vl", folder, tmp_path / "adapter", TARGETS) if tuned == "lora" else None
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    optimizer, schedule, watch = trained(model)
    _, completions, rewards, _ = batch(groups=2)
    pictures = {text: Image.open(peers.DATA / "qwen2_5_vl" / "images" / file) for text, file in PICTURES.items()}
    asked = [[{"role": "user", "content": [{"type": "image", "image": str(peers.DATA / "qwen2_5_vl" / "images" / file)}, {"type": "text", "text": text}]}]
             for text, file in PICTURES.items()]
    out = tmp_path / "ours.safetensors"
    options = {"Path": str(folder), "DType": "float32"}
    options.update({"Adapter": str(adapter)} if adapter else {"TuneMMLLM": True, "TuneMMVision": True, "TuneMMMLP": True})
    floor = torch.tensor(rewards[0]).std().item() + 1e-4
    answer = probe("train", Policy="vl", Options=options, Folder=str(folder), Messages=asked, Completions=completions, Out=str(out),
                   Train={"Phase": "grpo", "Optim": {"Eps": EPS}, "Steps": 3, "Batch": 2, "Rewards": rewards, "MaxTokens": LONGEST, "Settings": {
                       "Rollout": "online", "OldPolicy": "batch", "GroupSize": 4, "NumIterations": 3, "MaxLogRatio": 1e9, "LR": LR, "Loss": "dapo",
                       "Advantage": {"Method": "z_score", "MinStd": floor, "Clip": 1e30},
                       "KL": {"Beta": 0.04, "Estimator": "k3", "Controller": "fixed", "Reference": "init"}}})

    def rollout(messages, trainer):
        places = [(list(PICTURES).index(m[-1]["content"][-1]["text"]), k % 4) for k, m in enumerate(messages)]
        return {"prompt_ids": [answer["ids"][i] for i, _ in places], "completion_ids": [completions[i][j] for i, j in places], "logprobs": None,
                "reward": [rewards[i][j] for i, j in places]}

    args = trl.GRPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=8, max_steps=3, num_generations=4, num_iterations=3, beta=0.04,
                          max_completion_length=LONGEST, shuffle_dataset=False, loss_type="dapo", use_bias_correction_kl=False, **COMMON)
    rows = {"prompt": [[{"role": "user", "content": text}] for text in PICTURES], "image": list(pictures.values())}
    data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    processor = transformers.AutoProcessor.from_pretrained(folder, use_fast=False, padding_side=side)  # resizes as Pillow does
    trainer = trl.GRPOTrainer(model=model, args=args, reward_funcs=lambda reward, **_: reward, rollout_func=rollout, processing_class=processor,
                              train_dataset=data, optimizers=(optimizer, schedule))
    trainer.train()
    watch.rows = [row for row in trainer.state.log_history if "loss" in row]
    if side == "right":
        with pytest.raises(AssertionError):
            compare(watch, load_file(out), 3, 1e-2)
        return
    compare(watch, load_file(out), 3)
    rows_agree(watch, answer)


# --- SFT


class InOrder(trl.SFTTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("tuned", ["all", "lora"])
def test_sft(probe, folder, tmp_path, tuned, accumulate):
    """Cross entropy of the completions, the mean over all tokens of a step."""
    prompts, completions, _, _ = batch(groups=12, size=1)
    adapter = peers.adapter_of(probe, "vl", folder, tmp_path / "adapter", TARGETS) if tuned == "lora" else None
    model = their_model(folder, adapter)
    optimizer, schedule, watch = trained(model)
    rows = {"input_ids": [p + c[0] for p, c in zip(prompts, completions)],
            "completion_mask": [[0] * len(p) + [1] * len(c[0]) for p, c in zip(prompts, completions)]}
    args = trl.SFTConfig(output_dir=str(tmp_path), per_device_train_batch_size=4 // accumulate, gradient_accumulation_steps=accumulate,
                         max_steps=3, packing=False, completion_only_loss=True, max_length=None, **COMMON)
    trainer = InOrder(model=model, args=args, processing_class=tokenizer(), train_dataset=datasets.Dataset.from_dict(rows),
                      optimizers=(optimizer, schedule))
    trainer.train()
    out = str(tmp_path / "ours.safetensors")
    options = {"Path": str(folder), "DType": "float32", **({"Adapter": str(adapter)} if adapter else {"TuneMMLLM": True})}
    answer = probe("train", Policy="vl", Options=options, Prompts=prompts, Completions=completions, Out=out,
                   Train={"Phase": "sft", "Settings": {"LR": LR, "Average": "token", "MicroBatch": 4 // accumulate}, "Optim": {"Eps": EPS},
                          "Steps": 3, "Batch": 4, "MaxTokens": LONGEST})
    for theirs, ours in zip([r for r in trainer.state.log_history if "loss" in r], answer["steps"]):
        assert abs(theirs["loss"] - ours["loss"]) < 2e-5, (theirs["loss"], ours["loss"])
    compare(watch, load_file(out), 3)


def test_the_peer_of_the_benchmark():
    """scripts/peer_gpu.py measures each case of `bin/bench workloads` for published shapes, here tiny ones; a step of words is GRPOTrainer's own."""
    sizes = ("hidden=32,mlp=48,layers=2,heads=4,kv_heads=2,vocab=300,rank=2,sequences=4,prompts=2,group=2,micro=1,prompt=8,new=6,vision_depth=2,"
             "vision_hidden=32,vision_mlp=48,vision_heads=2,image=56")
    shapes = ["qwen2_5_1_5b", "qwen2_5_vl_3b"]
    out = peers.run("workloads", *shapes, "--device", "cpu", "--threads", 1, "--repeats", 1, "--format", "json", "--sizes", sizes, "--python", sys.executable,
                    "--shape-peer", peers.ROOT / "scripts" / "peer_gpu.py", program="bench")
    rows = json.loads(out)["shapes"]
    assert [(r["workload"], r["case"], r["who"].split()[0]) for r in rows] == [
        (shape, case, who) for shape in shapes for case in ("decode", "update", "step") for who in ("fulcrum", "transformers")
    ]
    assert all(r["tokens_per_second"] > 0 for r in rows) and "TRL" in rows[5]["who"]
