"""How many sequences with demonstrations a second are scored here and by a plain program on transformers: the prompts of a beam
search for one query, demonstrations shared, float32 on a CPU, one thread each, taking turns. Theirs are batches of 16 of about one
length, padded on the left, logits of the answers only; pictures are resized and texts tokenised before the clock starts. Ours is
everything, with no picture remembered.

    make bench-peers-icl BENCH_ARGS="tiny mid"
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy
import torch
import transformers
from PIL import Image

import icl
import peers

SIZES = {
    "tiny": dict(text=dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2),
                 vision=dict(depth=4, hidden_size=64, intermediate_size=128, num_heads=4), sections=[2, 3, 3], side=112, pool=32),
    "mid": dict(text=dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2),
                vision=dict(depth=8, hidden_size=320, intermediate_size=856, num_heads=8), sections=[8, 12, 12], side=168, pool=12),
}
WIDTH, BATCH, TURNS = 5, 16, 3


def model_of(size):
    config = transformers.AutoConfig.from_pretrained(icl.FOLDER)
    for name, value in size["text"].items():
        setattr(config.text_config, name, value)
    config.text_config.rope_parameters = {**(config.text_config.rope_parameters or {}), "mrope_section": size["sections"]}
    config.text_config.layer_types = None
    for name, value in {**size["vision"], "out_hidden_size": size["text"]["hidden_size"], "fullatt_block_indexes": [size["vision"]["depth"] - 1]}.items():
        setattr(config.vision_config, name, value)
    config = type(config)(**config.to_dict())
    return peers.scatter(transformers.Qwen2_5_VLForConditionalGeneration(config))


def search(shots, pool, draw_seed, folder, side):
    """The prompts of the last step of a search: WIDTH sequences of shots-1 demonstrations with each other candidate."""
    draw, numbers = __import__("random").Random(draw_seed), numpy.random.default_rng(draw_seed)
    files = []
    for i in range(pool + 1):
        files.append(folder / f"{draw_seed}-{i}.png")
        Image.fromarray(numbers.integers(0, 256, (side, side, 3), dtype=numpy.uint8)).save(files[-1])
    examples = [icl.example(draw, [f]) for f in files]
    query, examples = examples[0], examples[1:]
    out = []
    for b in range(WIDTH if shots > 1 else 1):
        beam = [examples[(b + k) % pool] for k in range(shots - 1)]
        out += [{"Shots": beam + [e], "Query": query} for e in examples if e not in beam]
    return out


class Batched(icl.Plain):
    def __init__(self, folder):
        super().__init__(folder)
        self.model.set_attn_implementation("sdpa")

    def prepare(self, asked):
        batches = []
        tail = len(self.processor.tokenizer(asked[0]["Query"]["Answer"] + "<|im_end|>")["input_ids"])
        for i in range(0, len(asked), BATCH):
            given = self.inputs(asked[i : i + BATCH], side="left")
            batches.append((given, given["input_ids"][:, -tail:], tail))
        return batches

    @torch.no_grad()
    def run(self, batches):
        out = []
        for given, tail, n in batches:
            z = self.model(**given, logits_to_keep=n + 1).logits[:, :-1].log_softmax(-1)
            out += z.gather(2, tail[..., None])[..., 0].tolist()
        return out


def main():
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} thread each")
    print("| size | shots | sequences | tokens each | theirs, sequences/s | ours | ours / theirs |\n|---|---:|---:|---:|---:|---:|---:|")
    for name in sys.argv[1:] or list(SIZES):
        size = SIZES[name]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            icl.folder_of(model_of(size), folder)
            config = json.loads((folder / "preprocessor_config.json").read_text())
            config["min_pixels"] = config["max_pixels"] = size["side"] ** 2
            (folder / "preprocessor_config.json").write_text(json.dumps(config))
            probe, plain = peers.Probe(torch.get_num_threads()), Batched(folder)
            for shots in 1, 2, 4:
                seconds = []
                for turn in range(TURNS):
                    asked = search(shots, size["pool"], 10 * shots + turn, folder, size["side"])
                    batches = plain.prepare(asked)
                    if turn == 0:
                        plain.run(batches[:1])
                    start = time.perf_counter()
                    theirs = plain.run(batches)
                    took = time.perf_counter() - start
                    answer = probe("likelihood", Options={"Path": str(folder), "DType": "float32"}, Asked=asked, Repeats=1)
                    for t, o in zip(theirs, answer["logp"]):
                        peers.close("log-probabilities", o[0], t, 1e-4)
                    seconds.append((took, answer["seconds"][0]))
                tokens = statistics.mean(int(g["attention_mask"].sum(1).float().mean()) for g, _, _ in batches)
                t, o = (len(asked) / statistics.median(s[i] for s in seconds) for i in (0, 1))
                print(f"| {name} | {shots} | {len(asked)} | {tokens:.0f} | {t:.1f} | {o:.1f} | {o / t:.2f} |", flush=True)
            probe.close()


if __name__ == "__main__":
    main()
