"""CLIP in the shapes that are published (two layers, random weights) through task=embed, beside transformers with its processor over
Pillow."""

import json

import numpy as np
import PIL.Image
import pytest
import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import clip_goldens
import peers
import test_tokenizers

# name: patch, width of the vision tower, of the text tower, projection
SHAPES = {"vit-b/32": (32, 768, 512, 512), "vit-b/16": (16, 768, 512, 512), "vit-l/14": (14, 1024, 768, 768)}


def folder(path, patch, vision, text, projection, dtype):
    vocab, merges = clip_goldens.vocabulary()
    end = len(vocab) - 1
    torch.manual_seed(patch)
    two = {"num_hidden_layers": 2, "hidden_act": "quick_gelu"}
    net = transformers.CLIPModel(transformers.CLIPConfig(
        text_config=two | {"vocab_size": len(vocab), "hidden_size": text, "intermediate_size": 4 * text, "num_attention_heads": text // 64,
                           "bos_token_id": end - 1, "eos_token_id": end},
        vision_config=two | {"patch_size": patch, "hidden_size": vision, "intermediate_size": 4 * vision, "num_attention_heads": vision // 64},
        projection_dim=projection)).eval()
    net.to(dtype).save_pretrained(path, max_shard_size="20MB")
    CLIPImageProcessorPil().save_pretrained(path)
    transformers.CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77).save_pretrained(path)
    return net


def pictures(path):
    draw = np.random.default_rng(7)
    made = []
    for i, (h, w) in enumerate([(240, 320), (320, 213), (224, 224), (100, 500), (501, 97), (30, 40)]):
        smooth = PIL.Image.fromarray(draw.integers(0, 256, (9, 9, 3), dtype=np.uint8)).resize((w, h))
        image = PIL.Image.fromarray(np.clip(np.asarray(smooth).astype(int) + draw.integers(-15, 16, (h, w, 3)), 0, 255).astype(np.uint8))
        if i == 2:
            image = image.convert("L")
        image.save(path / f"{i}.png")
        made.append(path / f"{i}.png")
    return made


@pytest.mark.parametrize("name", ["quick", "legacy"])
def test_tokens(probe, name):
    folder = peers.ROOT / "selector" / "clip" / "testdata" / name
    theirs = transformers.CLIPTokenizer.from_pretrained(peers.ROOT / "selector" / "clip" / "testdata" / "quick", truncation=False)
    ids = probe("tokenize", Folder=str(folder), Texts=test_tokenizers.texts())["ids"]
    for i, text in enumerate(test_tokenizers.texts()):
        assert ids[2 * i + 1] == theirs(text, truncation=False)["input_ids"], repr(text)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_embeddings(tmp_path, shape, dtype):
    """Weights in bfloat16 are computed with in float32 on both sides."""
    net = folder(tmp_path / "clip", *SHAPES[shape], getattr(torch, dtype)).float()
    files = pictures(tmp_path)
    questions = (clip_goldens.TEXTS + ["what is the colour of this?"])[:len(files)]
    questions[2] = "why?"  # a question may not be empty
    records = tmp_path / "records.jsonl"
    records.write_text("".join(json.dumps({"id": i, "image": str(f), "question": q}) + "\n" for i, (f, q) in enumerate(zip(files, questions))))
    processor, tokenizer = CLIPImageProcessorPil.from_pretrained(tmp_path / "clip"), transformers.AutoTokenizer.from_pretrained(tmp_path / "clip")
    with torch.inference_mode():
        pixels = processor([PIL.Image.open(f) for f in files], return_tensors="pt")["pixel_values"]
        tokens = tokenizer([q.strip() for q in questions], padding=True, truncation=True, max_length=77, return_tensors="pt")
        theirs = {"image": net.get_image_features(pixels).pooler_output, "text": net.get_text_features(**tokens).pooler_output}
    for modality, want in theirs.items():
        out = tmp_path / f"{modality}.npy"
        peers.run("task=embed", f"embed.in={records}", f"embed.out={out}", f"encoder.path={tmp_path / 'clip'}", f"embed.modality={modality}",
                  "encoder.batch=4", f"hydra.run.dir={tmp_path / modality}")
        far = np.abs(np.load(out) - torch.nn.functional.normalize(want, dim=-1).numpy()).max()
        print(shape, dtype, modality, far)
        assert far < 1e-5
