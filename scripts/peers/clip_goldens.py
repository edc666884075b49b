"""Writes selector/clip/testdata: two small CLIP folders with random weights as transformers saves them, pictures, and what
transformers makes of both. Run it in the environment of make peers."""

import json
import pathlib
import shutil

import numpy as np
import PIL.Image
import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import peers

OUT = peers.ROOT / "selector" / "clip" / "testdata"
TEXTS = ["What is in the picture?", "what is in the picture", "", "  The\tQUICK\n brown   fox isn't 1234 the thing!!", "Ünïcödé İstanbul, naïve café — 日本語 🙂",
         "the " * 90, "a <|endoftext|> b", "they're the then thin: in the inn"]


def letters():
    """The printable letter of every byte, in the order of CLIP's vocabulary."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(rest))]


def vocabulary():
    merges = [("t", "h"), ("th", "e</w>"), ("i", "n"), ("i", "n</w>"), ("in", "g</w>"), ("th", "in"), ("w", "h"), ("i", "s</w>"), ("th", "e"),
              ("a", "t</w>"), ("wh", "at</w>"), ("p", "i"), ("c", "t"), ("pi", "ct"), ("1", "2</w>")]
    tokens = letters() + [c + "</w>" for c in letters()] + [a + b for a, b in merges] + ["<|startoftext|>", "<|endoftext|>"]
    return {token: i for i, token in enumerate(tokens)}, merges


def model(seed, act, image, patch, eos, width):
    torch.manual_seed(seed)
    vocab, _ = vocabulary()
    tower = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": act}
    end = len(vocab) - 1
    config = transformers.CLIPConfig(
        text_config=tower | {"vocab_size": len(vocab), "max_position_embeddings": 24, "bos_token_id": end - 1, "eos_token_id": eos or end},
        vision_config=tower | {"hidden_size": width + 8, "image_size": image, "patch_size": patch}, projection_dim=12)
    net = transformers.CLIPModel(config).eval()
    for p in net.parameters():
        p.data.normal_(0, 0.3)
    return net


def pictures():
    draw = np.random.default_rng(5)
    (OUT / "pictures").mkdir(parents=True, exist_ok=True)
    paths = []
    for name, h, w in [("tall.png", 71, 40), ("wide.png", 33, 90), ("small.png", 20, 25), ("exact.png", 48, 48)]:
        smooth = PIL.Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((w, h))
        noisy = np.clip(np.asarray(smooth).astype(int) + draw.integers(-20, 21, (h, w, 3)), 0, 255).astype(np.uint8)
        PIL.Image.fromarray(noisy).save(OUT / "pictures" / name)
        paths.append(name)
    return paths


def embeddings(net, tokenizer, processor, names):
    unit = lambda x: torch.nn.functional.normalize(x.float(), dim=-1).tolist()
    ids = [tokenizer(t, truncation=True, max_length=24)["input_ids"] for t in TEXTS]
    with torch.no_grad():
        text = [unit(net.get_text_features(torch.tensor([i])).pooler_output)[0] for i in ids]
        pixels = torch.from_numpy(np.stack([processor(PIL.Image.open(OUT / "pictures" / n))["pixel_values"][0] for n in names]))
        image = unit(net.get_image_features(pixels.to(net.dtype)).pooler_output)
    return {"ids": ids, "text": text, "image": image, "pixels_sum": pixels.double().sum((1, 2, 3)).tolist()}


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    names = pictures()
    vocab, merges = vocabulary()
    tokenizer = transformers.CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=24)
    for folder, act, image, patch, eos in [("quick", "quick_gelu", 32, 8, None), ("legacy", "gelu", 48, 16, 2)]:
        net = model(len(folder), act, image, patch, eos, 16)
        processor = CLIPImageProcessorPil(size={"shortest_edge": image}, crop_size={"height": image, "width": image})
        at = OUT / folder
        net.save_pretrained(at)
        processor.save_pretrained(at)
        want = {"texts": TEXTS, "pictures": names, **embeddings(net, tokenizer, processor, names)}
        want["bfloat16"] = {k: v for k, v in embeddings(net.to(torch.bfloat16), tokenizer, processor, names).items() if k in ("text", "image")}
        if folder == "legacy":  # as the first folders were: a pickle, and the parts of a tokenizer
            net = model(len(folder), act, image, patch, eos, 16)
            torch.save(net.state_dict() | {"text_model.embeddings.position_ids": torch.arange(24)[None]}, at / "pytorch_model.bin")
            (at / "model.safetensors").unlink()
            (at / "vocab.json").write_text(json.dumps(vocab))
            (at / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
            (at / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer", "model_max_length": 24}))
        else:
            tokenizer.save_pretrained(at)
        (OUT / f"{folder}.json").write_text(json.dumps(want))


if __name__ == "__main__":
    main()
