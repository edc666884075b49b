"""Prompts with pictures and videos: text, ids, pixels, log-probabilities and greedy completions of Qwen2.5-VL as transformers' processor and
model have them. Our side is the program itself: task=score and task=generate."""

import json

import numpy
import pytest
import torch
import transformers
from PIL import Image

import peers

FOLDER = peers.DATA / "qwen2_5_vl" / "tiny_tied"
PICTURES = peers.DATA / "qwen2_5_vl" / "images"
ASKED = {
    "one": (["img0.png"], ["Which colour?"]),
    "two": (["img1.png", "img2.png"], ["First ", ", then ", ". Which?"]),
    "last": (["img3.png"], ["Look: ", ""]),
    "large": (["img4.png"], ["", "and answer."]),
    "video": (["vid0_0.png", "vid0_1.png", "vid0_2.png", "vid0_3.png"], ["", "What moves?"]),
}


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
    opened = [Image.open(PICTURES / f).convert("RGB") for f in ASKED[name][0]]
    if name == "video":
        frames = torch.stack([torch.from_numpy(numpy.array(i)) for i in opened]).permute(0, 3, 1, 2)
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
