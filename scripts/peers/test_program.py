"""What the program itself writes of a folder that transformers wrote (bfloat16, shards, added tokens, a resized vocabulary): a run trains
adapters, `checkpoint export` writes the model and the adapters, transformers and peft read both, tokenizer and generation included."""

import json
import shutil

import peft
import pytest
import torch
import transformers

import peers

EXAMPLES = peers.ROOT / "docs" / "examples"
ADDED = ["quake", "<extra>"]
FOLDERS = {"t5": "seq2seq/tiny_t5", "bart": "seq2seq/tiny_bart", "qwen2_5_vl": "qwen2_5_vl/tiny_tied"}
TEXTS = ["summarize: a quake in salem", "<extra> which colour is it? quake", "no added one"]


def base_of(kind, to):
    theirs = peers.DATA / FOLDERS[kind]
    if kind == "qwen2_5_vl":
        shutil.copytree(theirs, to, ignore=shutil.ignore_patterns("*.safetensors"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    tokenizer.add_tokens(ADDED)
    model = peers.AUTO[kind].from_pretrained(theirs, dtype=torch.bfloat16)
    model.resize_token_embeddings(max(len(tokenizer), model.get_input_embeddings().weight.shape[0]) + 24, mean_resizing=False)
    model.save_pretrained(to, max_shard_size="40KB")
    tokenizer.save_pretrained(to)
    assert (to / "model.safetensors.index.json").exists() and len(tokenizer.encode(ADDED[0], add_special_tokens=False)) == 1


def train(kind, base, run):
    if kind == "qwen2_5_vl":
        data = EXAMPLES / "vl" / "conversations.json"
        peers.run("exp=qwen2_5_vl_sft", f"vl.path={base}", f"data.conversations.train={data}", f"data.conversations.val={data}", "sft.lr=1e-2",
                  "vl.generation.max_new_tokens=8", f"hydra.run.dir={run}")
    else:
        data = EXAMPLES / "seq2seq" / "reports.jsonl"
        peers.run(f"exp={kind}_summarize", "schedule=[sft]", f"seq2seq.path={base}", f"data.texts.train={data}", f"data.texts.val={data}", "sft.lr=1e-2",
                  "seq2seq.generation.max_new_tokens=8", f"hydra.run.dir={run}")


def generated(kind, folder, scratch):
    """Greedy completions by the program, as text."""
    asked = scratch / "asked.jsonl"
    key = "vl" if kind == "qwen2_5_vl" else "seq2seq"
    rows = [{"id": i, **({"messages": [{"role": "user", "content": t}]} if key == "vl" else {"source": t})} for i, t in enumerate(TEXTS)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    peers.run("task=generate", f"policy={kind if key == 'vl' else key}", f"{key}.path={folder}", f"{key}.dtype=float32", f"generate.in={asked}",
              "generate.max_new_tokens=8", "generate.do_sample=false", "generate.repetition_penalty=1", f"hydra.run.dir={scratch}/generate")
    return [json.loads(line)["completion_ids"] for line in (scratch / "generate" / "generations.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", FOLDERS)
def test_run_and_export(tmp_path, kind):
    base, run, whole, adapter = (tmp_path / name for name in ("base", "run", "whole", "adapter"))
    base_of(kind, base)
    train(kind, base, run)
    last = run / "checkpoints" / "last.safetensors"  # the best may be the initial policy
    peers.run("checkpoint", "export", last, "--format", "hf", "--dtype", "float32", "--out", whole)
    peers.run("checkpoint", "export", last, "--format", "peft", "--out", adapter)
    model, info = peers.AUTO[kind].from_pretrained(whole, dtype=torch.float32, output_loading_info=True)
    assert not any(info.values()), info
    plain = peers.AUTO[kind].from_pretrained(base, dtype=torch.float32)
    start = {k: v.clone() for k, v in plain.state_dict().items()}
    want = peft.PeftModel.from_pretrained(plain, adapter).merge_and_unload().state_dict()
    got = model.state_dict()
    assert sorted(got) == sorted(want)
    for key in want:
        peers.close(key, got[key], want[key], 1e-6)
    moved = [k for k in want if not torch.equal(start[k], got[k])]
    assert moved, "nothing was trained"
    tokenizer, before = (transformers.AutoTokenizer.from_pretrained(f) for f in (whole, base))
    ids = generated(kind, whole, tmp_path)
    for text, ours in zip(TEXTS, ids):
        assert tokenizer(text)["input_ids"] == before(text)["input_ids"]
        if kind == "qwen2_5_vl":
            text = transformers.AutoProcessor.from_pretrained(whole, use_fast=False).apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        asked = tokenizer(text, return_tensors="pt")["input_ids"]
        made = model.eval().generate(asked, max_new_tokens=8, do_sample=False, num_beams=1, repetition_penalty=1.0)[0].tolist()
        made = made[1:] if model.config.is_encoder_decoder else made[asked.shape[1] :]
        assert ours == made, (text, ours, made)
