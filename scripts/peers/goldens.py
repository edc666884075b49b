"""Writes the config.json that today's transformers makes of the fixtures' models, for tests that run without Python:
selector/seq2seq/testdata/transformers5 and selector/vl/testdata/transformers5. Run it in the environment of make peers."""

import pathlib
import shutil
import tempfile

import torch

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
