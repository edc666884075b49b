"""How long a step takes here and in transformers with TRL: the same Qwen2, prompts and completions, float32 on a CPU, the same
threads (PEERS_THREADS, 1), taking turns. A line a case: median seconds of both, and the ratio of theirs to ours, median and range over the
turns.

    make bench-peers BENCH_ARGS="tiny mid"
"""

import os
import statistics
import sys
import tempfile
import time
import pathlib

import datasets
import torch
import transformers

import peers
import test_trl

SIZES = {
    "tiny": dict(config=dict(vocab_size=640, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4), prompt=64, answer=64,
                 turns=9),
    "mid": dict(config=dict(vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8), prompt=256,
                answer=128, turns=3),
}
GROUP, STEPS = 4, 2


class Clock(transformers.TrainerCallback):
    """Seconds of each optimizer step, its data and rollouts included, but for the first."""

    def __init__(self):
        self.at = []

    def on_step_end(self, *_, **__):
        self.at.append(time.perf_counter())

    def seconds(self):
        return [b - a for a, b in zip(self.at, self.at[1:])]


def trl_step(trainer):
    clock = Clock()
    trainer.add_callback(clock)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return clock.seconds()


def timed(work):
    work()
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def cases(probe, folder, size):
    vocab, prompt, answer = size["config"]["vocab_size"], size["prompt"], size["answer"]
    prompts = [peers.ids(prompt, vocab, 1)]
    completions = [[peers.ids(answer, vocab, 2 + j) for j in range(GROUP)]]
    rewards = [[0.0, 1.0, 0.5, 0.25]]
    options = {"Path": str(folder), "DType": "float32"}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = torch.tensor([prompts[0] + c for c in completions[0]])
    four = [peers.ids(prompt, vocab, 40 + i) for i in range(4)]

    @torch.no_grad()
    def score():
        z = model(rows, logits_to_keep=answer + 1).logits[:, :-1].log_softmax(-1)
        return z.gather(2, rows[:, prompt:, None])

    @torch.no_grad()
    def generate():
        return model.generate(torch.tensor(four), attention_mask=torch.ones(4, prompt, dtype=torch.long), max_new_tokens=answer // 2,
                              min_new_tokens=answer // 2, do_sample=False)

    yield "score", lambda: timed(score), lambda: probe("score", Policy="vl", Options=options, Prompts=prompts, Completions=completions,
                                                       Repeats=STEPS)["seconds"]
    yield "generate", lambda: timed(generate), lambda: probe("generate", Policy="vl", Options=options, Prompts=four, Tokens=answer // 2,
                                                             Repeats=STEPS)["seconds"]

    def ours(phase, adapter=None, **settings):
        how = {**options, **({"Adapter": str(adapter)} if adapter else {"TuneMMLLM": True})}
        sft = phase == "sft"
        return probe("train", Policy="vl", Options=how, Prompts=prompts * GROUP if sft else prompts,
                     Completions=[[c] for c in completions[0]] if sft else completions,
                     Train={"Phase": phase, "Settings": settings, "Steps": 1, "Repeats": STEPS, "Batch": GROUP if sft else 1,
                            "Rewards": None if sft else rewards, "MaxTokens": answer})["seconds"]

    def their_sft(adapter):
        made = test_trl.their_model(folder, adapter)
        optimizer, schedule, _ = test_trl.trained(made)
        data = {"input_ids": rows.tolist() * (STEPS + 1), "completion_mask": [[0] * prompt + [1] * answer] * GROUP * (STEPS + 1)}
        args = test_trl.trl.SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=GROUP, max_steps=STEPS + 1, packing=False,
                                      completion_only_loss=True, max_length=None, **test_trl.COMMON)
        return trl_step(test_trl.InOrder(model=made, args=args, processing_class=test_trl.tokenizer(),
                                         train_dataset=datasets.Dataset.from_dict(data), optimizers=(optimizer, schedule)))

    def their_grpo(adapter):
        made = test_trl.their_model(folder, adapter)
        optimizer, schedule, _ = test_trl.trained(made)

        def rollout(asked, trainer):
            return {"prompt_ids": prompts * GROUP, "completion_ids": completions[0], "logprobs": None}

        args = test_trl.trl.GRPOConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=GROUP, num_generations=GROUP,
                                       max_steps=STEPS + 1, max_completion_length=answer, beta=0.04, **test_trl.COMMON)
        return trl_step(test_trl.trl.GRPOTrainer(model=made, args=args, reward_funcs=lambda prompts, **_: rewards[0], rollout_func=rollout,
                                                 processing_class=test_trl.tokenizer(),
                                                 train_dataset=datasets.Dataset.from_dict({"prompt": ["0"] * (STEPS + 1)}),
                                                 optimizers=(optimizer, schedule)))

    adapter = peers.adapter_of(probe, "vl", folder, pathlib.Path(tempfile.mkdtemp()) / "adapter", test_trl.TARGETS)
    grpo = {"Rollout": "online", "OldPolicy": "batch", "GroupSize": GROUP, "Loss": "dapo", "KL": {"Beta": 0.04, "Estimator": "k3", "Reference": "init",
                                                                                                   "Controller": "fixed"}}
    for how, given in ("full", None), ("lora", adapter):
        yield f"sft, {how}", lambda g=given: their_sft(g), lambda g=given: ours("sft", g, Average="token")
        yield f"grpo, {how}", lambda g=given: their_grpo(g), lambda g=given: ours("grpo", g, **grpo)


def main():
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, TRL {test_trl.trl.__version__}, {threads} threads each")
    print("| size | case | theirs, s | ours, s | theirs / ours | load |\n|---|---|---:|---:|---:|---:|")
    for name in sys.argv[1:] or list(SIZES):
        size = SIZES[name]
        with tempfile.TemporaryDirectory() as folder:
            peers.qwen2(**size["config"], num_key_value_heads=2, max_position_embeddings=1024).save_pretrained(folder)
            probe = peers.Probe(threads)
            for case, theirs, ours in cases(probe, folder, size):
                found = [(statistics.median(theirs()), statistics.median(ours())) for _ in range(size["turns"])]
                ratios = sorted(t / o for t, o in found)
                t, o = (statistics.median(turn[i] for turn in found) for i in (0, 1))
                print(f"| {name} | {case} | {t:.4f} | {o:.4f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}) | "
                      f"{os.getloadavg()[0]:.0f} |", flush=True)
            probe.close()


if __name__ == "__main__":
    main()
