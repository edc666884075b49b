"""Pictures: files of every kind and size, bit for bit what today's Pillow and transformers make of them; prompts with pictures and
videos: text, ids, log-probabilities and greedy completions of Qwen2.5-VL as transformers' processor and model have them. Our side is
scripts/peers/probe, and the program itself: task=score and task=generate."""

import json

import numpy
import pytest
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import peers
import pictures

FOLDER = peers.DATA / "qwen2_5_vl" / "tiny_tied"
PICTURES = peers.DATA / "qwen2_5_vl" / "images"
ASKED = {
    "one": (["img0.png"], ["Which colour?"]),
    "two": (["img1.png", "img2.png"], ["First ", ", then ", ". Which?"]),
    "last": (["img3.png"], ["Look: ", ""]),
    "large": (["img4.png"], ["", "and answer."]),
    "video": (["vid0_0.png", "vid0_1.png", "vid0_2.png", "vid0_3.png"], ["", "What moves?"]),
}


def sizes(rng, n):
    """Widths and heights: those of photographs, sides below a cell of 28, long thin ones, any."""
    photographs = [(640, 480), (640, 427), (500, 375), (480, 640), (427, 640), (333, 500)]
    for i in range(n):
        kind = rng.random()
        if i < len(photographs):
            yield photographs[i]
        elif kind < .25:
            yield tuple(rng.integers(1, 28, 2))
        elif kind < .4:
            short = int(rng.integers(1, 12))
            yield tuple(rng.permutation([short, int(short * rng.integers(20, 200))]))
        else:
            yield tuple(rng.integers(1, 400, 2))


DRAWS = 500


def test_kinds_and_sizes(probe, tmp_path):
    rng = numpy.random.default_rng(20261123)
    files = []
    for i, (w, h) in enumerate(sizes(rng, DRAWS)):
        name = list(pictures.KINDS)[i % len(pictures.KINDS)]
        files.append(tmp_path / f"{i}_{w}x{h}_{name}")
        files[-1].write_bytes(pictures.KINDS[name](rng, int(w), int(h)))
    ours = probe("pictures", Folder=str(FOLDER), Texts=[str(f) for f in files])["pictures"]
    clip = peers.ROOT / "selector" / "clip" / "testdata" / "quick"
    cut = probe("pictures", Folder=str(clip), Policy="clip", Texts=[str(f) for f in files])["pictures"]
    qwen = transformers.AutoProcessor.from_pretrained(FOLDER, use_fast=False).image_processor
    square = CLIPImageProcessorPil.from_pretrained(clip)
    patch = json.loads((clip / "config.json").read_text())["vision_config"]["patch_size"]
    wrong = []
    for file, us, us_clip in zip(files, ours, cut):
        with Image.open(file) as opened:
            opened.load()
            want = {"rgb": pictures.digest(pictures.rgb(file))}
            try:
                asked = qwen(images=[opened], return_tensors="np")
                want |= {"values": pictures.digest(asked["pixel_values"].astype(numpy.float32)), "grid": asked["image_grid_thw"][0].tolist()}
            except ValueError as refused:  # sides in a ratio above 200
                assert "ratio" in str(refused)
                assert "ratio" in us.get("error", ""), f"{file.name}: {refused}"
            pixels = square(images=[opened], return_tensors="np")["pixel_values"][0].astype(numpy.float32)
        c, side, _ = pixels.shape
        rows = pixels.reshape(c, side // patch, patch, side // patch, patch).transpose(1, 3, 0, 2, 4)
        if unequal := [k for k in want if us.get(k) != want[k]]:
            wrong.append(f"{file.name}: {unequal} {us.get('error', '')}")
        if us_clip.get("values") != pictures.digest(rows):
            wrong.append(f"{file.name}: CLIP {us_clip.get('error', '')}")
    assert not wrong, f"{len(wrong)} of {DRAWS} draws differ:\n" + "\n".join(wrong)


# Resized as Pillow does it, pictures are equal to ours. torchvision, which transformers prefers where it is installed and has no
# alternative to for videos, rounds pixels otherwise: 1 of 256 here and there.
ROUNDING = {"pillow": 1e-4, "torchvision": 1e-2}


@pytest.fixture(scope="module")
def theirs():
    return ({"pillow": transformers.AutoProcessor.from_pretrained(FOLDER, use_fast=False),
             "torchvision": transformers.AutoProcessor.from_pretrained(FOLDER)},
            transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32).eval())


def message(name, ours):
    files, texts = ASKED[name]
    paths = [str(PICTURES / f) for f in files]
    if name == "video":
        video = {"type": "video", "video": paths, "fps": 2} if ours else {"type": "video"}
        return [{"role": "user", "content": [{"type": "text", "text": texts[0]}, video, {"type": "text", "text": texts[1]}]}]
    content = []
    for i, text in enumerate(texts):
        content.append({"type": "text", "text": text})
        if i < len(paths):
            content.append({"type": "image", "image": paths[i]} if ours else {"type": "image"})
    return [{"role": "user", "content": [c for c in content if c.get("text") != ""]}]


def inputs(processor, name):
    text = processor.apply_chat_template(message(name, False), tokenize=False, add_generation_prompt=True)
    opened = [Image.open(PICTURES / f) for f in ASKED[name][0]]
    if name == "video":
        frames = torch.stack([torch.from_numpy(pictures.rgb(PICTURES / f)) for f in ASKED[name][0]]).permute(0, 3, 1, 2)
        return processor(text=[text], videos=[frames], do_sample_frames=False, return_tensors="pt",
                         video_metadata=[dict(fps=2, total_num_frames=len(opened), frames_indices=list(range(len(opened))))])
    return processor(text=[text], images=opened, return_tensors="pt")


@pytest.mark.parametrize("name,resize", [(n, r) for n in ASKED for r in ROUNDING if n != "video" or r == "torchvision"])
def test_pictures(theirs, tmp_path, name, resize):
    processors, model = theirs
    processor = processors[resize]
    asked = inputs(processor, name)
    line = {"id": name, "messages": message(name, True)}
    n = asked["input_ids"].shape[1]
    with torch.no_grad():
        made = model.generate(**asked, max_new_tokens=6, do_sample=False, repetition_penalty=1.0)[0, n:]
        whole = {**asked, "input_ids": torch.cat([asked["input_ids"], made[None]], 1), "attention_mask": torch.ones(1, n + len(made), dtype=torch.long)}
        if "mm_token_type_ids" in whole:
            whole["mm_token_type_ids"] = torch.cat([whole["mm_token_type_ids"], torch.zeros(1, len(made), dtype=whole["mm_token_type_ids"].dtype)], 1)
        logits = model(**whole).logits[0, n - 1 : -1].double()
    want = logits.log_softmax(-1).gather(1, made[:, None])[:, 0]
    (tmp_path / "in.jsonl").write_text(json.dumps({**line, "completion_ids": made.tolist()}) + "\n")
    peers.run("task=score", "policy=qwen2_5_vl", f"vl.path={FOLDER}", f"score.in={tmp_path}/in.jsonl", f"hydra.run.dir={tmp_path}/score")
    scored = json.loads((tmp_path / "score" / "scores.jsonl").read_text())
    peers.close("log-probabilities", scored["logprobs"], want, ROUNDING[resize])
    peers.run("task=generate", "policy=qwen2_5_vl", f"vl.path={FOLDER}", f"generate.in={tmp_path}/in.jsonl", "generate.max_new_tokens=6",
              "generate.do_sample=false", "generate.repetition_penalty=1", f"hydra.run.dir={tmp_path}/generate")
    wrote = json.loads((tmp_path / "generate" / "generations.jsonl").read_text())
    assert wrote["prompt_tokens"] == n and wrote["completion_ids"] == made.tolist()
