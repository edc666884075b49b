"""Text models of all families, drawn at random: what we answer is what transformers answers, all else is refused by the name of its key,
and nothing is refused that is said to be read (docs/model_folders.md)."""

import json
import shutil

import pytest
import torch
import transformers

import families
import peers
import test_images


def reread(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize("seed", range(300))
def test_drawn(probe, tmp_path, seed):
    kind, values, how, refused = families.draw(seed)
    try:
        families.save(families.make(kind, values, seed), tmp_path / "theirs", **how)
        theirs = reread(tmp_path / "theirs")
    except (ValueError, KeyError, RuntimeError) as e:
        pytest.fail(f"transformers refuses {kind} {values}: {e}")
    tolerance = 1e-4 if how["dtype"] == "float32" else 2e-4  # rounded weights are further apart: larger sums
    if refused:
        with pytest.raises(peers.Refused, match=refused):
            peers.same_model(probe, theirs, tmp_path / "theirs", tmp_path, tolerance)
        return
    peers.same_model(probe, theirs, tmp_path / "theirs", tmp_path, tolerance)


@pytest.mark.parametrize("name", families.FIXED)
def test_they_read_ours(probe, tmp_path, name):
    """What we write after reading theirs has the same weights, and adapters go through PEFT (test_adapters.py) as those of Qwen2."""
    kind, values = families.FIXED[name]
    model = families.make(kind, values)
    families.save(model, tmp_path / "theirs")
    probe("merge", Policy="vl", Options={"Path": str(tmp_path / "theirs")}, Out=str(tmp_path / "ours"))
    again, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    want = dict(model.state_dict())
    for key, value in again.state_dict().items():
        assert torch.equal(value, want[key]), f"{key} has changed"
    peers.same_model(probe, again.eval(), tmp_path / "ours", tmp_path, 1e-4)


def test_unknown(probe, tmp_path):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1, n_positions=16))
    model.save_pretrained(tmp_path)
    with pytest.raises(peers.Refused, match="GPT2LMHeadModel.*LlamaForCausalLM"):
        probe("logits", Policy="vl", Options={"Path": str(tmp_path)}, Prompts=[[1]], Completions=[[[2]]], Out=str(tmp_path / "x"))


def processor_of(patch, folder):
    """The fixtures' tokenizer and template, and pictures in patches of another size; a video's frames are not sampled."""
    shutil.copytree(test_images.FOLDER, folder)
    (folder / "model.safetensors").unlink()
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"patch_size": patch, "image_mean": [0.5] * 3, "min_pixels": 4 * patch * patch}))
    return transformers.AutoProcessor.from_pretrained(folder, use_fast=False)


@torch.no_grad()
def same_sight(probe, model, patch, folder, scratch, asks=("one", "two", "last", "large"), **options):
    processor = processor_of(patch, scratch / f"processor{patch}")
    for name in asks:
        asked = test_images.inputs(processor, name)
        if model.config.model_type != "qwen2_5_vl":
            asked.pop("second_per_grid_ts", None)
        n = asked["input_ids"].shape[1]
        made = model.generate(**asked, max_new_tokens=6, do_sample=False, repetition_penalty=1.0, suppress_tokens=[612, 613])[0, n:]
        whole = {**asked, "input_ids": torch.cat([asked["input_ids"], made[None]], 1), "attention_mask": torch.ones(1, n + len(made), dtype=torch.long),
                 "mm_token_type_ids": torch.cat([asked["mm_token_type_ids"], torch.zeros(1, len(made), dtype=asked["mm_token_type_ids"].dtype)], 1)}
        want = model(**whole).logits[0, n - 1 : -1].float()
        job = dict(Policy="vl", Options={"Path": str(folder), **options}, Messages=[test_images.message(name, True)], Folder=str(scratch / f"processor{patch}"))
        out = str(scratch / "logits.safetensors")
        probe("logits", Completions=[[made.tolist()]], Out=out, **job)
        peers.close(name, peers.load_file(out)["logits"], want, 1e-4 if name != "video" else 2e-2)
        if name == "video":  # torchvision's rounding decides ties of tokens
            continue
        assert probe("generate", Tokens=6, Constraints={"suppress_tokens": [612, 613]}, **job)["completions"][0][0] == made.tolist(), name


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", families.SEEING)
def test_seeing(probe, tmp_path, kind, seed):
    model, patch = families.seeing(kind, seed)
    model.save_pretrained(tmp_path / "theirs", max_shard_size="5GB" if seed % 2 else "60KB")
    same_sight(probe, model, patch, tmp_path / "theirs", tmp_path, ["one", "two", "last", "large", *["video"] * (kind != "qwen3_vl")])
    if kind == "qwen3_vl":
        with pytest.raises(peers.Refused, match="videos of Qwen3-VL are not supported"):
            probe("generate", Tokens=6, Policy="vl", Options={"Path": str(tmp_path / "theirs")}, Messages=[test_images.message("video", True)],
                  Folder=str(tmp_path / f"processor{patch}"))


@pytest.mark.parametrize("kind", families.SEEING)
def test_they_read_our_sight(probe, tmp_path, kind):
    model, _ = families.seeing(kind, 1)
    model.save_pretrained(tmp_path / "theirs")
    probe("merge", Policy="vl", Options={"Path": str(tmp_path / "theirs")}, Out=str(tmp_path / "ours"))
    again, info = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    want = dict(model.state_dict())
    for key, value in again.state_dict().items():
        assert torch.equal(value, want[key]), f"{key} has changed"
