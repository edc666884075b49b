"""Writes selector/clip/testdata/lora.json: unit embeddings of CLIP under PEFT's adapters, and the gradients of a weighted sum of them,
in float64, on the folder that clip_goldens.py made. Run it in the environment of make peers."""

import json
import math

import numpy as np
import peft
import PIL.Image
import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import peers

AT = peers.ROOT / "selector" / "clip" / "testdata"
TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj"]


def main():
    given = json.loads((AT / "quick.json").read_text())
    pixels = CLIPImageProcessorPil.from_pretrained(AT / "quick")([PIL.Image.open(AT / "pictures" / n) for n in given["pictures"]])["pixel_values"]
    pixels = torch.from_numpy(np.stack(pixels)).double()
    out = {"rank": 2, "alpha": 3}
    for side, tower in [("image", "vision_model"), ("text", "text_model")]:
        net = transformers.CLIPModel.from_pretrained(AT / "quick").double()
        config = peft.LoraConfig(r=2, lora_alpha=3, target_modules=rf"{tower}\..*\.({'|'.join(TARGETS)})", task_type="FEATURE_EXTRACTION")
        net = peft.get_peft_model(net, config)
        factors = {n.replace(".default", ""): p for n, p in net.named_parameters() if "lora_" in n}
        for i, (name, p) in enumerate(sorted(factors.items())):  # numbers that another program can make too
            p.data = torch.tensor([0.3 * math.sin(7 * i + k) for k in range(p.numel())]).reshape(p.shape).double()
        if side == "image":
            rows = net.get_image_features(pixels).pooler_output
        else:
            rows = torch.cat([net.get_text_features(torch.tensor([i])).pooler_output for i in given["ids"]])
        rows = torch.nn.functional.normalize(rows, dim=-1)
        weights = torch.tensor([math.cos(k) for k in range(rows.numel())]).reshape(rows.shape)
        (rows * weights).sum().backward()
        short = lambda x: [float(f"{v:.10g}") for v in x.flatten().tolist()]
        out[side] = {"rows": short(rows.detach()), "grad": {n: short(p.grad) for n, p in sorted(factors.items())}}
    (AT / "lora.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
