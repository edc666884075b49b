#!/usr/bin/env python3
"""The peer of `bin/bench workloads` for published shapes: transformers, peft and PyTorch, as people train with them.

    peer_gpu.py '{"workload": {...}, "case": "step", "device": "cuda", "repeats": 1}'

takes what one of our measuring processes takes (bench.ShapeSpec) and prints what it prints (bench.ShapeMeasurement): random
weights of the same config in bfloat16, SDPA attention, LoRA on q, k, v and o. decode is generate() with sampling; update and step
are what TRL's GRPOTrainer computes: every completion beside its own copy of the prompt, logits of the completion's positions,
reference log-probabilities with the adapters switched off, clipped ratios and k3, gradient accumulation over micro-batches. Where
TRL can be imported, a step of words is GRPOTrainer's own. A micro-batch that does not fit is halved until it does.
"""

import gc
import json
import statistics
import sys
import tempfile
import time

try:
    import peft
    import torch
    import transformers
except ImportError as e:
    print(f"peer_gpu.py: {e}: nothing is measured", file=sys.stderr)
    sys.exit(3)

try:
    import datasets
    import tokenizers
    import trl
except ImportError:
    trl = None


def selective_log_softmax(logits, index):
    """TRL's for 16 bits: a row at a time, to bound memory."""
    rows = [
        torch.nn.functional.log_softmax(row, dim=-1).gather(dim=-1, index=at.unsqueeze(-1)).squeeze(-1) for row, at in zip(logits, index)
    ]
    return torch.stack(rows)


BETA, EPSILON = 0.04, 0.2


def config_of(w):
    half = w["Hidden"] // w["Heads"] // 2
    across = (half - half // 4) // 2
    text = dict(
        vocab_size=w["Vocab"], hidden_size=w["Hidden"], intermediate_size=w["MLP"], num_hidden_layers=w["Layers"],
        num_attention_heads=w["Heads"], num_key_value_heads=w["KVHeads"], rms_norm_eps=1e-6, tie_word_embeddings=True,
        max_position_embeddings=32768, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    v = w["Vision"]
    if not v:
        return transformers.Qwen2Config(rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **text)
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [half - 2 * across, across, across]}
    return transformers.Qwen2_5_VLConfig(
        text_config=text, tie_word_embeddings=True, image_token_id=w["Vocab"] - 1, video_token_id=w["Vocab"] - 2,
        vision_start_token_id=w["Vocab"] - 3, vision_end_token_id=w["Vocab"] - 4,
        vision_config=dict(
            depth=v["Depth"], hidden_size=v["Hidden"], intermediate_size=v["MLP"], num_heads=v["Heads"], out_hidden_size=w["Hidden"],
            window_size=v["Window"], fullatt_block_indexes=v["Full"], tokens_per_second=2,
        ),
    )  # fmt: skip


class Peer:
    def __init__(self, spec):
        self.w = w = spec["workload"]
        self.device = torch.device("cuda" if spec["device"].startswith("cuda") else "cpu")
        self.dtype = getattr(torch, w["DType"])
        torch.manual_seed(1)
        kind = transformers.Qwen2_5_VLForConditionalGeneration if w["Vision"] else transformers.Qwen2ForCausalLM
        config = config_of(w)
        config._attn_implementation = "sdpa"
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        with torch.device(self.device):
            base = kind(config)
        torch.set_default_dtype(before)
        base.generation_config.eos_token_id = base.generation_config.pad_token_id = None
        lora = peft.LoraConfig(r=w["Rank"], lora_alpha=32, lora_dropout=0.0, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
        self.model = peft.get_peft_model(base, lora)
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-6)
        self.micro = w["Micro"]
        self.pixels = self.seconds = None  # seconds: of a step that was timed by itself
        if w["Vision"]:
            side = w["Vision"]["Image"] // 14
            self.grid = [1, side, side]
            self.pixels = torch.randn(side * side, 1176, device=self.device, dtype=self.dtype)
            self.cells = side * side // 4

    def prompts(self, n):
        """Random tokens [n, P], behind an image where the model sees."""
        w = self.w
        ids = torch.randint(w["Vocab"] - 4, (n, w["Prompt"]), device=self.device)
        if self.pixels is None:
            return ids
        row = [w["Vocab"] - 3] + [w["Vocab"] - 1] * self.cells + [w["Vocab"] - 4]
        return torch.cat([torch.tensor(row, device=self.device).expand(n, -1), ids], dim=1)

    def inputs(self, ids):
        """What the model takes beside the ids."""
        more = {"attention_mask": torch.ones_like(ids)}
        if self.pixels is not None:
            more["pixel_values"] = self.pixels.repeat(len(ids), 1)
            more["image_grid_thw"] = torch.tensor([self.grid] * len(ids), device=self.device)
            more["mm_token_type_ids"] = (ids == self.w["Vocab"] - 1).int()
        return more

    @torch.no_grad()
    def generate(self, ids, new):
        self.model.eval()
        out = self.model.generate(
            input_ids=ids, **self.inputs(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new,
            min_new_tokens=new, use_cache=True, pad_token_id=0,
        )  # fmt: skip
        self.model.train()
        assert out.shape[1] == ids.shape[1] + new, out.shape
        return out

    def logps(self, rows, new):
        """Log-probabilities of the last `new` tokens of each row, as GRPOTrainer takes them."""
        logits = self.model(input_ids=rows, **self.inputs(rows), logits_to_keep=new + 1, use_cache=False).logits[:, :-1]
        return selective_log_softmax(logits[:, -new:], rows[:, -new:])

    def loss(self, rows, advantages, ref, new):
        logps = self.logps(rows, new)
        ratio = torch.exp(logps - logps.detach())
        surrogate = torch.min(ratio * advantages, torch.clamp(ratio, 1 - EPSILON, 1 + EPSILON) * advantages)
        delta = ref - logps
        per_token = -surrogate + BETA * (torch.exp(delta) - delta - 1)
        return per_token.sum(-1).mean() / new

    def passes(self, rows, ref_of):
        """Forward and backward over micro-batches, and the optimizer's step."""
        w, new = self.w, self.w["New"]
        advantages = torch.randn(len(rows), 1, device=self.device)
        size = self.micro * w["Group"]
        seconds = 0.0
        for at in range(0, len(rows), size):
            part = rows[at : at + size]
            begin = self.now()
            ref = ref_of(part)
            seconds += self.now() - begin
            (self.loss(part, advantages[at : at + size], ref, new) * (len(part) / len(rows))).backward()
        torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.requires_grad], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return seconds

    @torch.no_grad()
    def reference(self, part):
        with self.model.disable_adapter():
            return self.logps(part, self.w["New"])

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def halving(self, work):
        """Calls work with ever smaller micro-batches until it fits."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                if self.micro == 1:
                    raise
                self.micro //= 2
                self.optimizer.zero_grad()
            gc.collect()
            torch.cuda.empty_cache()

    # Cases return completion tokens and the seconds of the parts.

    def decode(self, first):
        w = self.w
        new = min(8, w["New"]) if first else w["New"]  # the first one only warms up
        self.generate(self.prompts(w["Sequences"]), new)
        return w["Sequences"] * new, {}

    def update(self, first):
        w = self.w
        rows = torch.cat([self.prompts(w["Micro"]).repeat_interleave(w["Group"], 0),
                          torch.randint(w["Vocab"] - 4, (w["Micro"] * w["Group"], w["New"]), device=self.device)], dim=1)  # fmt: skip
        zeros = lambda part: torch.zeros(len(part), w["New"], device=self.device)
        self.halving(lambda: self.passes(rows, zeros))
        return w["Micro"] * w["Group"] * w["New"], {}

    def step(self, first):
        if trl and self.pixels is None:
            return self.trl_step(first)
        w = self.w
        prompts = self.prompts(w["Prompts"]).repeat_interleave(w["Group"], 0)
        begin = self.now()
        if first:  # warms up, and finds the micro-batch that fits
            rows = torch.cat([prompts, torch.randint(w["Vocab"] - 4, (len(prompts), w["New"]), device=self.device)], dim=1)
            self.generate(prompts, min(8, w["New"]))
            rows = rows[: w["Micro"] * w["Group"]]
        else:
            rows = self.generate(prompts, w["New"])
        generated = self.now()
        reference = self.halving(lambda: self.passes(rows, self.reference))
        done = self.now()
        return len(rows) * w["New"], {
            "generation_share": generated - begin, "logprob_share": reference, "update_share": done - generated - reference,
        }  # fmt: skip

    def trl_step(self, first):
        """Two steps of GRPOTrainer; the times are of the second. One trainer makes both, so the first call makes none."""
        if first:
            return 0, {}
        return self.halving(self.trained)

    def trained(self):
        w = self.w
        rows = self.micro * w["Group"]
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(w["Vocab"])}, unk_token="t1"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        names = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t2", unk_token="t1")
        draw = torch.randint(3, w["Vocab"] - 4, (2 * w["Prompts"], w["Prompt"]))
        data = datasets.Dataset.from_dict({"prompt": [" ".join(f"t{i}" for i in row) for row in draw.tolist()]})
        seconds = {"generation_share": [], "logprob_share": [], "step": []}

        def timed(of, work, *args, **kwargs):
            begin = self.now()
            out = work(*args, **kwargs)
            seconds[of].append(self.now() - begin)
            return out

        class Clock(transformers.TrainerCallback):
            def on_step_begin(self, *_, **__):
                self.begin = peer.now()
                for parts in seconds.values():
                    parts.clear()

            def on_step_end(self, *_, **__):
                seconds["step"] = [peer.now() - self.begin]

        peer = self
        args = trl.GRPOConfig(
            output_dir=tempfile.mkdtemp(), per_device_train_batch_size=rows, gradient_accumulation_steps=w["Prompts"] * w["Group"] // rows,
            num_generations=w["Group"], max_completion_length=w["New"], max_steps=2, beta=BETA, epsilon=EPSILON, learning_rate=1e-6,
            generation_kwargs={"min_new_tokens": w["New"]}, gradient_checkpointing=False, bf16=self.dtype == torch.bfloat16, save_strategy="no",
            use_cpu=self.device.type == "cpu", report_to=[], disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer = trl.GRPOTrainer(
            model=self.model, args=args, processing_class=names, train_dataset=data, callbacks=[Clock()],
            reward_funcs=lambda completions, **_: torch.randn(len(completions)).tolist(),
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        generate, logps = trainer._generate, trainer._get_per_token_logps_and_entropies
        trainer._generate = lambda *a, **k: timed("generation_share", generate, *a, **k)
        trainer._get_per_token_logps_and_entropies = lambda *a, **k: (
            logps(*a, **k) if torch.is_grad_enabled() else timed("logprob_share", logps, *a, **k)
        )
        trainer.train()
        self.seconds = seconds.pop("step")[0]
        parts = {k: sum(v) for k, v in seconds.items()}
        return w["Prompts"] * w["Group"] * w["New"], {**parts, "update_share": self.seconds - sum(parts.values())}


def main():
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(spec.get("threads", 1))
    transformers.utils.logging.set_verbosity_error()
    peer = Peer(spec)
    work = {"decode": peer.decode, "update": peer.update, "step": peer.step}[spec["case"]]
    begin = peer.now()
    work(True)
    first = peer.now() - begin
    cuda = peer.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds, shares, tokens = [], [], 0
    for _ in range(spec["repeats"]):
        begin = peer.now()
        tokens, parts = work(False)
        seconds.append(peer.seconds or peer.now() - begin)
        shares.append({k: v / seconds[-1] for k, v in parts.items()})
    median = statistics.median(seconds)
    out = {
        "workload": spec["workload"]["Name"], "case": spec["case"], "who": f"transformers {transformers.__version__}" + (f", TRL {trl.__version__}" if peer.seconds else ""),
        "device": torch.cuda.get_device_name() if cuda else "cpu", "dtype": spec["workload"]["DType"], "seconds": median,
        "tokens": tokens, "tokens_per_second": tokens / median, "first_seconds": first,
    }  # fmt: skip
    for key in shares[0]:
        out[key] = statistics.median(s[key] for s in shares)
    if cuda:
        out["peak_gb"], out["reserved_gb"] = torch.cuda.max_memory_allocated() / 1e9, torch.cuda.max_memory_reserved() / 1e9
    print(json.dumps(out))


if __name__ == "__main__":
    main()
