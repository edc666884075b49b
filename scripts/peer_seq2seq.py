#!/usr/bin/env python3
"""The peer of selector/seq2seq's speed: T5 and BART in plain PyTorch.

It computes what HuggingFace's eager modelling code (transformers 4.51) computes, with the same operations and names:
batches with attention masks, T5's position bias made in the first layer of a stack and added to the scores of all,
softmax in float32, T5's norm and gated GELU from elementwise operations, BART's scaled queries and batched products,
logits of every position, caches that grow by concatenation, one model call a generated token, PEFT's LoRA modules.
float32, one thread, no dropout.

Lines of standard input name a model and a case; each is run once, and answered with one line of JSON, its wall and CPU
seconds: {"wall", "cpu"}. So another program's repetitions can take turns with these.

    printf 'mid_t5 forward\\nmid_t5 forward\\n' | peer_seq2seq.py      (the first repetition warms up)
    peer_seq2seq.py --check FIXTURES                                   (its numbers against those of the published code)

Models: tiny_t5 tiny_t5_v11 tiny_bart mid_t5 mid_t5_v11 mid_bart. Cases: forward (encoder, decoder and logits, batch 4),
backward (and the gradient of all weights of the mean cross-entropy), greedy4, greedy1 (whole calls at that batch),
grpo, lora (forward and backward of GRPO's loss of five completions of one prompt, all weights or adapters; no optimiser).
"""

import json
import math
import os
import sys
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("peer_seq2seq.py: this Python has no torch: nothing is measured", file=sys.stderr)
    sys.exit(3)

TINY = dict(source=40, target=20, generated=32)
MID = dict(source=256, target=64, generated=64, d=512, heads=(8, 8), dim=64, ff=(2048, 2048), layers=(6, 6), vocab=8192, buckets=32, distance=128, positions=1024)
MODELS = {
    "tiny_t5": dict(TINY, kind="t5", gated=False, tied=True, d=48, heads=(4, 4), dim=16, ff=(96, 96), layers=(3, 2), vocab=384, buckets=32, distance=128),
    "tiny_t5_v11": dict(TINY, kind="t5", gated=True, tied=False, d=40, heads=(6, 6), dim=8, ff=(72, 72), layers=(2, 3), vocab=384, buckets=16, distance=20),
    "tiny_bart": dict(TINY, kind="bart", d=48, heads=(4, 6), ff=(96, 80), layers=(3, 2), vocab=384, positions=128),
    "mid_t5": dict(MID, kind="t5", gated=False, tied=True),
    "mid_t5_v11": dict(MID, kind="t5", gated=True, tied=False, ff=(1024, 1024)),
    "mid_bart": dict(MID, kind="bart"),
}
BATCH, GROUP = 4, 5
RANK, ALPHA = 8, 32
LOWEST = torch.finfo(torch.float32).min


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
        result = self.base(x)
        return result + self.lora_B(self.lora_A(self.dropout(x.to(self.lora_A.weight.dtype)))) * self.scaling


class Cache:
    """Keys and values of a decoder: those of its own tokens grow, those of the source are computed once."""

    def __init__(self):
        self.own, self.source = {}, {}

    def length(self):
        return self.own[0][0].shape[2] if self.own else 0

    def grow(self, layer, k, v):
        if layer in self.own:
            k, v = torch.cat([self.own[layer][0], k], dim=-2), torch.cat([self.own[layer][1], v], dim=-2)
        self.own[layer] = k, v
        return k, v


def masks(attention_mask):
    """[B, S] of ones and zeros → what is added to scores [B, 1, 1, S]."""
    return (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * LOWEST


def causal(rows, past, batch):
    mask = torch.full((rows, past + rows), LOWEST)
    mask = torch.triu(mask, diagonal=1) if rows != 1 else mask
    mask = mask * (torch.arange(past + rows) > torch.arange(past, past + rows).reshape(-1, 1))
    return mask[None, None].expand(batch, 1, -1, -1)


# --- T5


class T5LayerNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))


class T5Attention(nn.Module):
    def __init__(self, c, side, biased, layer):
        super().__init__()
        self.n_heads, self.dim, self.decoder, self.layer = c["heads"][side], c["dim"], side == 1, layer
        self.buckets, self.distance = c["buckets"], c["distance"]
        inner = self.n_heads * self.dim
        self.q, self.k, self.v = (nn.Linear(c["d"], inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, c["d"], bias=False)
        self.biased = biased
        if biased:
            self.relative_attention_bias = nn.Embedding(self.buckets, self.n_heads)

    def bucket(self, relative):
        buckets, start = self.buckets, 0
        if not self.decoder:
            buckets //= 2
            start = (relative > 0).to(torch.long) * buckets
            relative = torch.abs(relative)
        else:
            relative = -torch.min(relative, torch.zeros_like(relative))
        exact = buckets // 2
        large = exact + (torch.log(relative.float() / exact) / math.log(self.distance / exact) * (buckets - exact)).to(torch.long)
        large = torch.min(large, torch.full_like(large, buckets - 1))
        return start + torch.where(relative < exact, relative, large)

    def compute_bias(self, rows, keys, past):
        relative = torch.arange(keys)[None, :] - torch.arange(past, past + rows)[:, None]
        return self.relative_attention_bias(self.bucket(relative)).permute([2, 0, 1]).unsqueeze(0)

    def forward(self, x, mask, position_bias, memory=None, cache=None, past=0):
        b, rows = x.shape[:2]
        split = lambda y: y.view(b, -1, self.n_heads, self.dim).transpose(1, 2)
        q = split(self.q(x))
        if memory is not None and cache is not None and self.layer in cache.source:
            k, v = cache.source[self.layer]
        else:
            seen = x if memory is None else memory
            k, v = split(self.k(seen)), split(self.v(seen))
            if cache is not None and memory is not None:
                cache.source[self.layer] = k, v
            elif cache is not None:
                k, v = cache.grow(self.layer, k, v)
        scores = torch.matmul(q, k.transpose(3, 2))
        if position_bias is None:
            keys = k.shape[-2]
            if self.biased:
                position_bias = self.compute_bias(rows, keys, past)[:, :, -rows:, :]
            else:
                position_bias = torch.zeros((1, self.n_heads, rows, keys))
            position_bias = position_bias + mask[:, :, :, :keys]
        scores += position_bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, -1, self.n_heads * self.dim)
        return self.o(out), position_bias


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class T5FF(nn.Module):
    def __init__(self, c, side):
        super().__init__()
        self.gated = c["gated"]
        if self.gated:
            self.wi_0, self.wi_1 = nn.Linear(c["d"], c["ff"][side], bias=False), nn.Linear(c["d"], c["ff"][side], bias=False)
        else:
            self.wi = nn.Linear(c["d"], c["ff"][side], bias=False)
        self.wo = nn.Linear(c["ff"][side], c["d"], bias=False)

    def forward(self, x):
        if self.gated:
            return self.wo(new_gelu(self.wi_0(x)) * self.wi_1(x))
        return self.wo(F.relu(self.wi(x)))


class T5Sub(nn.Module):
    def __init__(self, c, name, inside):
        super().__init__()
        setattr(self, name, inside)
        self.layer_norm = T5LayerNorm(c["d"])


class T5Block(nn.Module):
    def __init__(self, c, side, i):
        super().__init__()
        self.layer = nn.ModuleList([T5Sub(c, "SelfAttention", T5Attention(c, side, i == 0, i))])
        if side == 1:
            self.layer.append(T5Sub(c, "EncDecAttention", T5Attention(c, side, False, i)))
        self.layer.append(T5Sub(c, "DenseReluDense", T5FF(c, side)))

    def forward(self, x, mask, bias, memory, memory_mask, cross_bias, cache, past):
        own = self.layer[0]
        y, bias = own.SelfAttention(own.layer_norm(x), mask, bias, None, cache, past)
        x = x + y
        if memory is not None:
            cross = self.layer[1]
            y, cross_bias = cross.EncDecAttention(cross.layer_norm(x), memory_mask, cross_bias, memory, cache)
            x = x + y
        ff = self.layer[-1]
        return x + ff.DenseReluDense(ff.layer_norm(x)), bias, cross_bias


class T5Stack(nn.Module):
    def __init__(self, c, side):
        super().__init__()
        self.block = nn.ModuleList(T5Block(c, side, i) for i in range(c["layers"][side]))
        self.final_layer_norm = T5LayerNorm(c["d"])

    def forward(self, x, mask, memory=None, memory_mask=None, cache=None, past=0):
        bias = cross_bias = None
        for block in self.block:
            x, bias, cross_bias = block(x, mask, bias, memory, memory_mask, cross_bias, cache, past)
        return self.final_layer_norm(x)


class T5(nn.Module):
    start, targets = 0, ("q", "v")

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.shared = nn.Embedding(c["vocab"], c["d"])
        self.encoder, self.decoder = T5Stack(c, 0), T5Stack(c, 1)
        self.lm_head = nn.Linear(c["d"], c["vocab"], bias=False)
        if c["tied"]:
            self.lm_head.weight = self.shared.weight

    def encode(self, ids, mask):
        return self.encoder(self.shared(ids), masks(mask))

    def decode(self, ids, memory, memory_mask, cache=None):
        past = cache.length() if cache is not None else 0
        x = self.decoder(self.shared(ids), causal(ids.shape[1], past, ids.shape[0]), memory, masks(memory_mask), cache, past)
        if self.c["tied"]:
            x = x * self.c["d"] ** -0.5
        return self.lm_head(x)


# --- BART


class BartAttention(nn.Module):
    def __init__(self, d, heads, layer):
        super().__init__()
        self.num_heads, self.head_dim, self.layer = heads, d // heads, layer
        self.scaling = self.head_dim**-0.5
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, mask, memory=None, cache=None):
        b, rows, d = x.shape
        split = lambda y: y.view(b, -1, self.num_heads, self.head_dim).transpose(1, 2).contiguous()
        q = self.q_proj(x) * self.scaling
        if memory is not None and cache is not None and self.layer in cache.source:
            k, v = cache.source[self.layer]
        else:
            seen = x if memory is None else memory
            k, v = split(self.k_proj(seen)), split(self.v_proj(seen))
            if cache is not None and memory is not None:
                cache.source[self.layer] = k, v
            elif cache is not None:
                k, v = cache.grow(self.layer, k, v)
        flat = (b * self.num_heads, -1, self.head_dim)
        q, k, v = split(q).view(*flat), k.reshape(*flat), v.reshape(*flat)
        keys = k.size(1)
        weights = torch.bmm(q, k.transpose(1, 2))
        if mask is not None:
            weights = (weights.view(b, self.num_heads, rows, keys) + mask).view(b * self.num_heads, rows, keys)
        out = torch.bmm(F.softmax(weights, dim=-1), v)
        return self.out_proj(out.view(b, self.num_heads, rows, self.head_dim).transpose(1, 2).reshape(b, rows, d))


class BartLayer(nn.Module):
    def __init__(self, c, side, i):
        super().__init__()
        d = c["d"]
        self.self_attn, self.self_attn_layer_norm = BartAttention(d, c["heads"][side], i), nn.LayerNorm(d)
        if side == 1:
            self.encoder_attn, self.encoder_attn_layer_norm = BartAttention(d, c["heads"][side], i), nn.LayerNorm(d)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(d, c["ff"][side]), nn.Linear(c["ff"][side], d), nn.LayerNorm(d)

    def forward(self, x, mask, memory, memory_mask, cache):
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask, None, cache))
        if memory is not None:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory_mask, memory, cache))
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x))))


class BartStack(nn.Module):
    def __init__(self, c, side):
        super().__init__()
        self.embed_positions = nn.Embedding(c["positions"] + 2, c["d"])
        self.layers = nn.ModuleList(BartLayer(c, side, i) for i in range(c["layers"][side]))
        self.layernorm_embedding = nn.LayerNorm(c["d"])

    def forward(self, x, mask, memory=None, memory_mask=None, cache=None, past=0):
        b, rows = x.shape[:2]
        x = self.layernorm_embedding(x + self.embed_positions(torch.arange(past, past + rows).expand(b, -1) + 2))
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask, cache)
        return x


class BartInside(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.shared = nn.Embedding(c["vocab"], c["d"], padding_idx=1)
        self.encoder, self.decoder = BartStack(c, 0), BartStack(c, 1)


class Bart(nn.Module):
    start, targets = 2, ("q_proj", "v_proj")

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.model = BartInside(c)
        self.register_buffer("final_logits_bias", torch.zeros(1, c["vocab"]))
        self.lm_head = nn.Linear(c["d"], c["vocab"], bias=False)
        self.lm_head.weight = self.model.shared.weight

    def encode(self, ids, mask):
        return self.model.encoder(self.model.shared(ids), masks(mask))

    def decode(self, ids, memory, memory_mask, cache=None):
        past = cache.length() if cache is not None else 0
        rows = ids.shape[1]
        mask = causal(rows, past, ids.shape[0]) if rows > 1 else None  # one row sees all
        return self.lm_head(self.model.decoder(self.model.shared(ids), mask, memory, masks(memory_mask), cache, past)) + self.final_logits_bias


# --- cases


def make(name, lora=False):
    torch.manual_seed(1)
    c = MODELS[name]
    model = T5(c) if c["kind"] == "t5" else Bart(c)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    if lora:
        model.requires_grad_(False)
        for module in list(model.modules()):
            for target in model.targets:
                if isinstance(module, (T5Attention, BartAttention)):
                    setattr(module, target, LoRA(getattr(module, target)))
    return model


def shift_right(labels, start):
    return torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)


def logits(model, ids, mask, labels):
    return model.decode(shift_right(labels, model.start), model.encode(ids, mask), mask)


@torch.no_grad()
def generate(model, ids, mask, tokens):
    """Greedy decoding, as generate() does it; no token ends a row, so that every run is as long."""
    memory, cache = model.encode(ids, mask), Cache()
    unfinished = torch.ones(ids.shape[0], dtype=torch.long)
    out = torch.full((ids.shape[0], 1), model.start)
    for _ in range(tokens):
        scores = model.decode(out[:, -1:], memory, mask, cache)[:, -1, :].clone().float()
        chosen = torch.argmax(scores, dim=-1) * unfinished
        out = torch.cat([out, chosen[:, None]], dim=-1)
        unfinished = unfinished & (chosen != -1).long()
        if unfinished.max() == 0:
            break
    return out


def grpo_loss(logps, old, ref, advantages, mask):
    ratio = torch.exp(logps - old)
    loss = -torch.min(ratio * advantages, torch.clamp(ratio, 0.9, 1.1) * advantages)
    delta = ref - logps
    loss = loss + 0.04 * (torch.exp(delta) - delta - 1)
    return (loss * mask).sum() / mask.sum()


def work(name, case):
    """One repetition of a case."""
    c = MODELS[name]
    model = make(name, lora=case == "lora")
    rows = {"greedy1": 1, "grpo": GROUP, "lora": GROUP}.get(case, BATCH)
    ids = torch.randint(3, c["vocab"], (rows, c["source"]))
    labels = torch.randint(3, c["vocab"], (rows, c["target"]))
    mask = torch.ones_like(ids)
    if case == "forward":
        return torch.no_grad()(lambda: logits(model, ids, mask, labels))
    if case.startswith("greedy"):
        return lambda: generate(model, ids, mask, c["generated"])

    def backward(loss):
        model.zero_grad(set_to_none=True)
        loss().backward()

    if case == "backward":
        return lambda: backward(lambda: F.cross_entropy(logits(model, ids, mask, labels).view(-1, c["vocab"]), labels.view(-1)))
    ids = ids[:1].repeat(GROUP, 1)
    completion_mask = torch.ones(rows, c["target"])
    advantages = torch.tensor([1.2, -1.2, 0.4, -0.4, 0.0])[:, None]
    logps = lambda: logits(model, ids, mask, labels).log_softmax(-1).gather(-1, labels[:, :, None]).squeeze(-1)
    with torch.no_grad():
        old = logps()
    return lambda: backward(lambda: grpo_loss(logps(), old, old, advantages, completion_mask))


def serve():
    ready = {}
    for line in sys.stdin:
        key = tuple(line.split())
        if key not in ready:
            ready = {key: work(*key)}  # one at a time
        w, c = time.perf_counter(), time.process_time()
        ready[key]()
        print(json.dumps({"wall": time.perf_counter() - w, "cpu": time.process_time() - c}), flush=True)


# --- check


def safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    end = 8 + int.from_bytes(data[:8], "little")
    kinds = {"F32": torch.float32, "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool}
    for name, t in json.loads(data[8:end]).items():
        if name != "__metadata__":
            begin, stop = t["data_offsets"]
            yield name, torch.frombuffer(bytearray(data[end + begin : end + stop]), dtype=kinds[t["dtype"]]).view(t["shape"])


@torch.no_grad()
def check(folder):
    for name in ("tiny_t5", "tiny_t5_v11", "tiny_bart"):
        weights = dict(safetensors(os.path.join(folder, name, "model.safetensors")))
        with open(os.path.join(folder, name, "config.json")) as f:
            config = json.load(f)
        c = MODELS[name]
        c["vocab"] = config["vocab_size"]
        ff = (config["d_ff"],) * 2 if c["kind"] == "t5" else (config["encoder_ffn_dim"], config["decoder_ffn_dim"])
        assert (c["d"], c["ff"]) == (config["d_model"], ff), config
        model = make(name)
        missing, _ = model.load_state_dict(weights, strict=False)
        assert all(m.startswith("lm_head") for m in missing), missing
        want = dict(safetensors(os.path.join(folder, "fixtures", name + ".forward.safetensors")))
        ids, mask = want["input_ids"].long(), want["attention_mask"]
        decoder_ids = want["decoder_input_ids"].long()
        memory, cache = model.encode(ids, mask), Cache()
        got = model.decode(decoder_ids, memory, mask)
        steps = torch.cat([model.decode(decoder_ids[:, i : i + 1], memory, mask, cache) for i in range(decoder_ids.shape[1])], 1)
        print(name, "largest difference of logits: %.1e, with the cache %.1e" % ((got - want["logits"]).abs().max(), (steps - want["logits"]).abs().max()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        check(sys.argv[2])
    elif len(sys.argv) == 1:
        serve()
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
