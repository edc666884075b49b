"""Writes the config.json that today's transformers makes of the fixtures' models, for tests that run without Python:
selector/seq2seq/testdata/transformers5 and selector/vl/testdata/transformers5; and logits of one small model of each family,
selector/vl/testdata/families.json. Run it in the environment of make peers."""

import json
import pathlib
import shutil
import tempfile

import torch

import families
import peers

SELECTOR = peers.ROOT / "selector"

for policy, data, names in [("seq2seq", "seq2seq", {"tiny_t5": "t5", "tiny_t5_v11": "t5", "tiny_bart": "bart"}),
                            ("vl", "qwen2_5_vl", {"tiny_tied": "qwen2_5_vl"})]:
    for name, kind in names.items():
        with tempfile.TemporaryDirectory() as folder:
            model = peers.AUTO[kind].from_pretrained(peers.DATA / data / name)
            if policy == "vl":
                model = model.to(torch.bfloat16)  # which leaves text_config.dtype at float32
            model.save_pretrained(folder)
            shutil.copy(pathlib.Path(folder) / "config.json", SELECTOR / policy / "testdata" / "transformers5" / f"{name}.json")


def number(model):
    """Weights by a formula that Go knows too: sines of a tensor's place among the names and an entry's place in it."""
    plain = lambda name: name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    names = sorted(plain(n) for n, _ in model.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            wave = torch.sin(0.37 * torch.arange(p.numel(), dtype=torch.float64) + names.index(plain(name))).reshape(p.shape)
            p.copy_(wave * 0.35 if p.dim() > 1 else 1 + 0.1 * wave if "norm" in name and name.endswith("weight") or name.endswith("ln_q.weight") else 0.1 * wave)
    return model.eval()


IDS = [5, 17, 3, 90, 41, 41, 8, 60, 11, 2, 77, 30, 29, 28, 9, 64]
rows = []
for name, (kind, values) in families.FIXED.items():
    model = number(families.make(kind, values))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        logits = model(input_ids=torch.tensor([IDS])).logits[0, -1].tolist()
    rows.append(json.dumps({"name": name, "config": config, "ids": IDS, "logits": [float(f"{x:.6g}") for x in logits]}))
SEEN = [5, 17, 92, *[90] * 6, 93, 8, 60, 92, *[90] * 2, 93, 11, 2]
GRIDS = [[1, 4, 6], [1, 2, 4]]
for kind in families.SEEING:
    model = number(families.fixed_seeing(kind))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        pixels = torch.sin(0.11 * torch.arange(32 * 96, dtype=torch.float64)).reshape(32, 96).float()
        ids = torch.tensor([SEEN])
        logits = model(input_ids=ids, pixel_values=pixels, image_grid_thw=torch.tensor(GRIDS), mm_token_type_ids=(ids == 90).int(),
                       attention_mask=torch.ones_like(ids)).logits[0, -1].tolist()
    rows.append(json.dumps({"name": kind, "config": config, "ids": SEEN, "grids": GRIDS, "logits": [float(f"{x:.6g}") for x in logits]}))
(SELECTOR / "vl" / "testdata" / "families.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
