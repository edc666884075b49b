"""Small text models of the families that are read, drawn at random or fixed: what test_families.py compares and goldens.py writes."""

import json
import random

import torch
import transformers

import peers

SMALL = dict(vocab_size=96, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
# The fixed ones, of which selector/vl has goldens: each has what its family has of its own.
FIXED = {
    "llama": ("llama", dict(rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=1e5), tie_word_embeddings=True)),
    "llama 3": ("llama", dict(rope_parameters=LLAMA3, head_dim=16, attention_bias=True, mlp_bias=True)),
    "llama linear": ("llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen3": ("qwen3", dict(head_dim=16, tie_word_embeddings=True)),
    "qwen3 biased": ("qwen3", dict(head_dim=12, attention_bias=True)),
    "mistral": ("mistral", dict(sliding_window=None, head_dim=16)),
    "smollm3": ("smollm3", dict(num_hidden_layers=5, no_rope_layers=None, no_rope_layer_interval=2)),
    "smollm3 listed": ("smollm3", dict(no_rope_layers=[0, 1], attention_bias=True)),
}


def make(kind, values=(), seed=0):
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **dict(values)})
    return peers.scatter(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), seed)


def large(name, **values):
    """A fixed one with the vocabulary and the places that the other tests' prompts want."""
    kind, own = FIXED[name]
    return make(kind, {**own, "vocab_size": 320, "max_position_embeddings": 512, **values})


def draw(seed):
    """A family, its configuration, how its folder is written, and what of it we refuse, by the key that our error names ("": nothing)."""
    at = random.Random(seed)
    kind = at.choice(["llama", "qwen2", "qwen3", "mistral", "smollm3"])
    heads = at.choice([1, 2, 3, 4, 6])
    size = at.choice([2, 4, 8, 10, 16])
    c = dict(SMALL, vocab_size=at.randint(70, 130), num_attention_heads=heads, hidden_size=heads * size,
             num_key_value_heads=at.choice([h for h in range(1, heads + 1) if heads % h == 0]),
             intermediate_size=at.randint(3, 70), num_hidden_layers=at.randint(1, 4), rms_norm_eps=at.choice([1e-6, 1e-5, 1e-2]),
             tie_word_embeddings=at.random() < 0.5, hidden_act=at.choice(["silu", "silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"]),
             max_position_embeddings=at.choice([64, 2048]))
    refused = ""
    if kind != "qwen2" and kind != "smollm3" and at.random() < 0.5 or kind == "qwen3":
        c["head_dim"] = at.choice([2, 6, 8, 16])
    if "head_dim" in c and kind != "llama" and at.random() < 0.4:
        c["hidden_size"] += at.randint(1, 5)
    rope = dict(rope_type="default", rope_theta=at.choice([1e3, 1e4, 5e5]))
    pick = at.random()
    if pick < 0.25:
        rope = dict(LLAMA3, rope_theta=rope["rope_theta"], factor=at.choice([2.0, 8.0, 32.0]), low_freq_factor=at.choice([1.0, 0.5]),
                    high_freq_factor=at.choice([4.0, 2.0]), original_max_position_embeddings=at.choice([8, 16, 64]))
        if at.random() < 0.3:
            del rope["original_max_position_embeddings"]
    elif pick < 0.4:
        rope = dict(rope, rope_type="linear", factor=at.choice([2.0, 4.0]))
    elif pick < 0.5:
        rope = dict(rope, rope_type="yarn", factor=2.0, original_max_position_embeddings=32)
        refused = "rope_scaling"
    if at.random() < 0.9:
        c["rope_parameters"] = rope
    else:
        refused = ""
    if kind in ("llama", "qwen3", "smollm3"):
        c["attention_bias"] = at.random() < 0.4
    if kind in ("llama", "smollm3"):
        c["mlp_bias"] = at.random() < 0.4
    if kind == "mistral":
        c["sliding_window"] = at.choice([None, 4096, 40, 6])
        if c["sliding_window"] == 6:
            refused = refused or "sliding_window"  # our prompts are longer
    if kind in ("qwen2", "qwen3", "smollm3") and at.random() < 0.15:
        c.update(use_sliding_window=True, sliding_window=8, max_window_layers=1)
        refused = "use_sliding_window"
    if kind == "smollm3" and at.random() < 0.5:
        c["no_rope_layers"] = [at.randint(0, 1) for _ in range(c["num_hidden_layers"])]
    elif kind == "smollm3":
        c["no_rope_layer_interval"] = at.choice([1, 2, 3, 4])
    how = dict(dtype=at.choice(["float32", "float32", "bfloat16", "float16"]), shard=at.choice(["5GB", "20KB"]), old=at.random() < 0.5,
               forget=at.random() < 0.2)
    return kind, c, how, refused


def save(model, folder, dtype="float32", shard="5GB", old=False, forget=False):
    """Writes the folder; old: as transformers 4 wrote its config.json; forget: without the keys that have a class's default."""
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if old:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        if rope.get("rope_type", "default") != "default":
            config["rope_scaling"] = rope
        config["torch_dtype"] = config.pop("dtype")
    if forget:
        plain = type(model.config)().to_dict()
        config = {k: v for k, v in config.items() if k in ("architectures", "model_type", "dtype", "torch_dtype") or plain.get(k, "") != v}
        # these have other defaults here, or decide shapes: every published folder has them
        config.update({k: getattr(model.config, k) for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                                             "num_attention_heads")})
    path.write_text(json.dumps(config))


def fixed_seeing(kind):
    """One of each kind of tower, for goldens."""
    text = dict(SMALL, num_hidden_layers=3, max_position_embeddings=512, rms_norm_eps=1e-5,
                rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 2, 2]))
    vision = dict(depth=3, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2, hidden_act="quick_gelu")
    if kind == "qwen2_vl":
        vision |= dict(embed_dim=24, hidden_size=48, mlp_ratio=2)
    else:
        vision |= dict(hidden_size=24, intermediate_size=20, out_hidden_size=48)
    if kind == "qwen2_5_vl":
        vision |= dict(window_size=16, fullatt_block_indexes=[1], tokens_per_second=1)
    if kind == "qwen3_vl":
        vision |= dict(num_position_embeddings=9, deepstack_visual_indexes=[0, 2])
        text |= dict(head_dim=12)
    config = transformers.AutoConfig.for_model(kind, text_config=text, vision_config=vision, tie_word_embeddings=True, image_token_id=90, video_token_id=91,
                                               vision_start_token_id=92, vision_end_token_id=93)
    return transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")


SEEING = ["qwen2_5_vl", "qwen2_vl", "qwen3_vl"]


def seeing(kind, seed):
    """A small model that sees, and the sizes of its patches: the tokenizer is that of the fixtures."""
    at = random.Random(seed)
    heads, size = at.choice([2, 4]), at.choice([8, 12, 16])
    half = size // 2
    first = at.randint(1, half - 2)
    second = at.randint(1, half - first - 1)
    depth, width = at.randint(1, 4), at.choice([1, 2, 3]) * at.choice([8, 12])
    patch = at.choice([14, 16])
    text = dict(vocab_size=640, hidden_size=heads * size, intermediate_size=at.randint(8, 60), num_hidden_layers=at.randint(3, 4),
                num_attention_heads=heads, num_key_value_heads=at.choice([1, heads]), max_position_embeddings=4096, rms_norm_eps=at.choice([1e-6, 1e-3]),
                rope_parameters=dict(rope_type="default", rope_theta=at.choice([1e4, 1e6]), mrope_section=[first, second, half - first - second]),
                bos_token_id=600, eos_token_id=602, pad_token_id=600)
    vision = dict(depth=depth, num_heads=at.choice([1, 2]) if width % 8 == 0 else 1, patch_size=patch, spatial_merge_size=2, temporal_patch_size=2,
                  hidden_act=at.choice(["gelu", "quick_gelu", "gelu_pytorch_tanh", "silu"]))
    wide = width // vision["num_heads"] // 4 * 4 * vision["num_heads"]
    if kind == "qwen2_vl":
        vision |= dict(embed_dim=wide, hidden_size=heads * size, mlp_ratio=at.choice([2, 3]))
    else:
        vision |= dict(hidden_size=wide, intermediate_size=at.randint(8, 40), out_hidden_size=heads * size)
    if kind == "qwen2_5_vl":
        vision |= dict(window_size=at.choice([2, 4]) * patch * 2, fullatt_block_indexes=at.sample(range(depth), at.randint(1, depth)), tokens_per_second=1)  # see docs: longer times differ
    if kind == "qwen3_vl":
        vision |= dict(num_position_embeddings=at.choice([4, 9, 49]), deepstack_visual_indexes=sorted(at.sample(range(depth), min(depth, at.randint(0, 2)))))
        text |= dict(head_dim=size, attention_bias=at.random() < 0.5)
        if at.random() < 0.5:
            text["hidden_size"] = vision["out_hidden_size"] = 40
    config = transformers.AutoConfig.for_model(kind, text_config=text, vision_config=vision, tie_word_embeddings=at.random() < 0.5, image_token_id=612,
                                               video_token_id=613, vision_start_token_id=609, vision_end_token_id=610)
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    return peers.scatter(model, seed), patch
