#!/usr/bin/env python3
"""The peer of `bin/bench workloads` for token policies: Qwen2.5's text decoder in plain PyTorch.

It computes what HuggingFace's eager modelling code computes, with the same operations: separate q, k and v layers, keys
and values repeated for their query heads, an additive four-dimensional causal mask, softmax in float32, RMSNorm from
elementwise operations, rotary positions by rotate_half, a cache that grows by concatenation, logits of every position in
training, a generate loop with one model call a token, and PEFT's LoRA modules (float32, dropout 0).

    peer_qwen2_5_vl.py --size tiny --cases forward,backward,lora,generate,grpo --repeats 5

prints one line of JSON for each case: {"size", "case", "unit", "value", "cpu", "all", "peak_mb"}. value is the median
wall time in seconds, or tokens a second, and cpu the same in CPU time.
"""

import argparse
import json
import resource
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("peer_qwen2_5_vl.py: this Python has no torch: nothing is measured", file=sys.stderr)
    sys.exit(3)

SIZES = {
    "tiny": dict(hidden=64, mlp=128, layers=4, heads=4, kv=2, vocab=640, tokens=128),
    "mid": dict(hidden=512, mlp=1408, layers=8, heads=8, kv=2, vocab=32000, tokens=512),
}
PROMPT = 64  # tokens before the first generated one
GROUP = 4  # completions of a prompt in a policy step: half of `tokens` is the prompt, half the completion
RANK, ALPHA = 8, 32


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(kind)


class LoRA(nn.Module):
    """A frozen linear layer and its low-rank addition."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.normal_(self.lora_B.weight, std=0.02)  # zeros would hide the gradient of A
        self.dropout = nn.Identity()
        self.scaling = ALPHA / RANK

    def forward(self, x):
        kind = x.dtype
        result = self.base(x)
        x = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(self.dropout(x))) * self.scaling
        return result.to(kind)


class Rotary(nn.Module):
    def __init__(self, dim, theta=1e6):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim), persistent=False)
        space = dim * 3 // 16  # channels of height and of width; time has the rest, as in the 3B model (16, 24, 24 of 64)
        self.section = [dim // 2 - 2 * space, space, space]

    @torch.no_grad()
    def forward(self, x, positions):  # positions [3, B, S]: time, height, width
        inv = self.inv_freq[None, None, :, None].expand(3, positions.shape[1], -1, 1)
        angles = (inv @ positions[:, :, None, :].float()).transpose(2, 3)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary(q, k, cos, sin, section):
    parts = section * 2
    cos = torch.cat([m[i % 3] for i, m in enumerate(cos.split(parts, dim=-1))], dim=-1).unsqueeze(1)
    sin = torch.cat([m[i % 3] for i, m in enumerate(sin.split(parts, dim=-1))], dim=-1).unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def repeat_kv(x, times):
    if times == 1:
        return x
    b, heads, length, width = x.shape
    return x[:, :, None].expand(b, heads, times, length, width).reshape(b, heads * times, length, width)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.width = c["heads"], c["kv"], c["hidden"] // c["heads"]
        self.q_proj = nn.Linear(c["hidden"], self.heads * self.width)
        self.k_proj = nn.Linear(c["hidden"], self.kv * self.width)
        self.v_proj = nn.Linear(c["hidden"], self.kv * self.width)
        self.o_proj = nn.Linear(self.heads * self.width, c["hidden"], bias=False)

    def forward(self, x, mask, cos, sin, section, cache, layer):
        b, length, _ = x.shape
        q = self.q_proj(x).view(b, length, -1, self.width).transpose(1, 2)
        k = self.k_proj(x).view(b, length, -1, self.width).transpose(1, 2)
        v = self.v_proj(x).view(b, length, -1, self.width).transpose(1, 2)
        q, k = apply_rotary(q, k, cos, sin, section)
        if cache is not None:
            k, v = cache.update(k, v, layer)
        k, v = repeat_kv(k, self.heads // self.kv), repeat_kv(v, self.heads // self.kv)
        weights = torch.matmul(q, k.transpose(2, 3)) * self.width**-0.5
        weights = weights + mask[:, :, :, : k.shape[-2]]
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(out.reshape(b, length, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden"], c["mlp"], bias=False)
        self.up_proj = nn.Linear(c["hidden"], c["mlp"], bias=False)
        self.down_proj = nn.Linear(c["mlp"], c["hidden"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c["hidden"]), RMSNorm(c["hidden"])
        self.self_attn, self.mlp = Attention(c), MLP(c)

    def forward(self, x, *args):
        x = x + self.self_attn(self.input_layernorm(x), *args)
        return x + self.mlp(self.post_attention_layernorm(x))


class Cache:
    def __init__(self):
        self.keys, self.values = [], []

    def update(self, k, v, layer):
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], dim=-2)
            self.values[layer] = torch.cat([self.values[layer], v], dim=-2)
        return self.keys[layer], self.values[layer]

    def length(self):
        return self.keys[0].shape[-2] if self.keys else 0


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = RMSNorm(c["hidden"])
        self.lm_head = nn.Linear(c["hidden"], c["vocab"], bias=False)
        self.rotary = Rotary(c["hidden"] // c["heads"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.lm_head.weight = self.embed_tokens.weight  # tied, as in the 3B model

    def add_lora(self):
        self.requires_grad_(False)
        for layer in self.layers:
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer.self_attn, name, LoRA(getattr(layer.self_attn, name)))

    def forward(self, ids, cache=None):
        x = self.embed_tokens(ids)
        past = cache.length() if cache is not None else 0
        length = ids.shape[1]
        positions = torch.arange(past, past + length).view(1, 1, -1).expand(3, ids.shape[0], -1)
        lowest = torch.finfo(x.dtype).min
        mask = torch.full((length, past + length), lowest)
        if length != 1:
            mask = torch.triu(mask, diagonal=past + 1)
        else:
            mask = mask * 0
        mask = mask[None, None].expand(ids.shape[0], 1, -1, -1)
        cos, sin = self.rotary(x, positions)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, cos, sin, self.rotary.section, cache, i)
        return self.lm_head(self.norm(x)).float()


@torch.no_grad()
def generate(model, ids, tokens):
    """Greedy decoding, as generate() does it; no token ends a row, so that every run is as long."""
    cache = Cache()
    unfinished = torch.ones(ids.shape[0], dtype=torch.long)
    step = ids
    for _ in range(tokens):
        scores = model(step, cache)[:, -1, :]
        scores = scores.clone().float()
        chosen = torch.argmax(scores, dim=-1)
        chosen = chosen * unfinished
        ids = torch.cat([ids, chosen[:, None]], dim=-1)
        unfinished = unfinished & (chosen != -1).long()
        if unfinished.max() == 0:
            break
        step = chosen[:, None]
    return ids


def token_logps(logits, ids):
    return logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def grpo_step(model, optimizer, ids, mask, advantages, old, ref, beta=0.04):
    logps = token_logps(model(ids), ids)
    ratio = torch.exp(logps - old)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    loss = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
    delta = ref - logps
    loss = loss + beta * (torch.exp(delta) - delta - 1)
    loss = (loss * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    optimizer.step()


def measure(f, repeats):
    """Wall and CPU seconds of each repetition, after one that is not counted."""
    f()
    wall, cpu = [], []
    for _ in range(repeats):
        w, c = time.perf_counter(), time.process_time()
        f()
        wall.append(time.perf_counter() - w)
        cpu.append(time.process_time() - c)
    return wall, cpu


def cases(size, names, repeats):
    c = SIZES[size]
    torch.manual_seed(0)
    ids = torch.randint(c["vocab"], (1, c["tokens"]))
    generated = 64 if size == "tiny" else 24

    def loss(model):
        return -token_logps(model(ids), ids).mean()

    def training(model):
        model.zero_grad()
        loss(model).backward()

    for name in names:
        model = Decoder(c)
        if name in ("lora", "grpo"):
            model.add_lora()
        work, tokens = None, 0
        if name == "forward":
            work = lambda: torch.no_grad()(loss)(model)
        elif name in ("backward", "lora"):
            work = lambda: training(model)
        elif name in ("generate1", "generate4"):
            batch = int(name[-1])
            tokens = batch * generated
            prompt = torch.randint(c["vocab"], (batch, PROMPT))
            work = lambda: generate(model, prompt, generated)
        elif name == "grpo":
            half = c["tokens"] // 2
            prompt = torch.randint(c["vocab"], (1, half)).expand(GROUP, -1)
            rows = torch.cat([prompt, torch.randint(c["vocab"], (GROUP, half))], dim=1)
            mask = torch.zeros(GROUP, c["tokens"] - 1)
            mask[:, half - 1 :] = 1
            with torch.no_grad():
                old = token_logps(model(rows), rows)
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
            advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
            work = lambda: grpo_step(model, optimizer, rows, mask, advantages, old, old)
        else:
            sys.exit(f"peer_qwen2_5_vl.py: no case {name}")
        wall, cpu = measure(work, repeats)
        if tokens:
            wall, cpu = [tokens / t for t in wall], [tokens / t for t in cpu]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        unit = "tokens/s" if tokens else "s"
        print(json.dumps({"size": size, "case": name, "unit": unit, "value": statistics.median(wall), "cpu": statistics.median(cpu), "all": wall, "peak_mb": peak}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", choices=sorted(SIZES), default="tiny")
    p.add_argument("--cases", default="forward,backward,lora,generate1,generate4,grpo")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    cases(args.size, args.cases.split(","), args.repeats)


if __name__ == "__main__":
    main()
