"""Writes what today's Pillow and transformers make of pictures, in the environment of `make peers`: python make.py in this folder.

decode/ has a small file of every kind (scripts/peers/pictures.py draws them), decode.json the digests of their pixels in RGB;
resize.json digests of Pillow's bicubic resize; reference.json sizes and digests of the arrays of Qwen2VLImageProcessorPil.
Made with Pillow 13.0.0 and transformers 5.23.0."""

import json
import pathlib
import re
import struct
import sys

import numpy as np
import transformers
from PIL import Image
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "scripts" / "peers"))
import pictures

rng = np.random.default_rng(3)
decode = pathlib.Path("decode")


def write(name, rows):
    pathlib.Path(name).write_text("{\n" + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in rows.items()) + "\n}\n")


def lzw(data):  # 3-bit codes, the table cleared before it grows
    out, acc, n = bytearray(), 0, 0
    codes = [4] + [c for i, d in enumerate(data) for c in ([d, 4] if i % 2 else [d])] + [5]
    for c in codes:
        acc |= c << n
        n += 3
        while n >= 8:
            out.append(acc & 255)
            acc >>= 8
            n -= 8
    return bytes(out) + (bytes([acc & 255]) if n else b"")


def part(transparent):
    """A GIF file whose first frame, 8×6, stands at (5, 4) of a screen of 20×16."""
    palette = bytes([10, 20, 30, 200, 100, 50, 0, 255, 128, 90, 90, 250])
    data = lzw([(x + y) % 4 for y in range(6) for x in range(8)])
    control = b"\x21\xf9\x04" + bytes([transparent, 0, 0, 2 * transparent, 0])
    frame = b"\x2c" + struct.pack("<HHHHB", 5, 4, 8, 6, 0) + bytes([2, len(data)]) + data
    return b"GIF89a" + struct.pack("<HHBBB", 20, 16, 0x91, 1, 0) + palette + control + frame + b"\0;"


def kinds():
    decode.mkdir(exist_ok=True)
    made = {}
    for name, draw in pictures.KINDS.items():
        made[name] = draw(rng, 37, 29)
    for name, size in {"420.jpg": (2, 3), "422.jpg": (5, 8), "ycck_420.jpg": (3, 2), "lossy.webp": (36, 30), "alpha.webp": (1, 1)}.items():
        made[f"{size[0]}x{size[1]}_{name}"] = pictures.KINDS[name](rng, *size)
    for orientation in range(1, 9):
        made[f"turned_{orientation}.tiff"] = pictures.tiff("RGB", {274: orientation})(rng, 7, 5)
    made["part.gif"], made["part_clear.gif"] = part(0), part(1)
    digests = {}
    for name, data in made.items():
        (decode / name).write_bytes(data)
        values = pictures.rgb(decode / name)
        digests[name] = [*values.shape[1::-1], pictures.digest(values)]
    write("decode.json", digests)


def formula(w, h):
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return Image.fromarray(((x * x * 7 + y * 13 + x * y * 5 + c * 101) % 256).astype(np.uint8))


def resizes():
    sizes = [(640, 480, 308, 224), (640, 427, 308, 140), (500, 375, 252, 168), (480, 640, 168, 252), (91, 37, 112, 28), (61, 47, 61, 20), (61, 47, 17, 47),
             (61, 47, 7, 5), (61, 47, 1, 1), (61, 47, 122, 94), (61, 47, 62, 46), (61, 47, 200, 11), (61, 47, 3, 150), (61, 47, 51, 27), (61, 47, 51, 26)]
    sizes += [tuple(int(v) for v in rng.integers(1, 120, 4)) for _ in range(60)]
    write("resize.json", {" ".join(map(str, s)): pictures.digest(np.asarray(formula(*s[:2]).resize(s[2:], Image.BICUBIC))) for s in sizes})


def reference():
    r = json.loads(pathlib.Path("reference.json").read_text())
    config = {k: v for k, v in json.loads(pathlib.Path("preprocessor_config.json").read_text()).items() if not k.endswith(("_type", "_class"))}
    processor = qwen.Qwen2VLImageProcessorPil(**config)
    limits = dict(factor=28, min_pixels=config["min_pixels"], max_pixels=config["max_pixels"])

    def resized(file, rows_first=False):
        image = Image.fromarray(pictures.rgb(file))
        h, w = qwen.smart_resize(image.height, image.width, **limits)
        if rows_first:
            image = image.resize((w, image.height), Image.BICUBIC)
        return np.asarray(image.resize((w, h), Image.BICUBIC))

    for image in r["images"].values():
        asked = processor(images=[Image.open(image["file"])], return_tensors="np")
        image["grid"], image["sha256"] = asked["image_grid_thw"][0].tolist(), pictures.digest(asked["pixel_values"])
        image["resized_sha256"] = pictures.digest(resized(image["file"]))
    for video in r["videos"].values():  # transformers resizes videos with torchvision alone, rows first; here in Pillow's roundings
        frames = [np.moveaxis(resized(f, rows_first=True), -1, 0) for f in video["frames"]]
        frames = [processor.normalize(processor.rescale(f, 1 / 255), processor.image_mean, processor.image_std) for f in frames]
        frames += frames[-1:] * (len(frames) % 2)
        t, (c, h, w) = len(frames) // 2, frames[0].shape
        cut = np.stack(frames).reshape(t, 2, c, h // 28, 2, 14, w // 28, 2, 14).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        video["grid"], video["sha256"] = [t, h // 14, w // 14], pictures.digest(cut.astype(np.float32))
    rows = []
    for h, w in dict.fromkeys([(row[0], row[1]) for row in r["smart_resize"]] + [(1, 1), (1, 200), (1, 201), (20, 20), (27, 1), (13, 2600), (5601, 29)]):
        for most in 12845056, 50176, 1003520:
            try:
                rows.append([h, w, 3136, most, *qwen.smart_resize(h, w, 28, 3136, most)])
            except ValueError:
                rows.append([h, w, 3136, most])
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", json.dumps({**r, "smart_resize": []}, indent=1))
    text = text.replace('"smart_resize": []', '"smart_resize": [\n' + ",\n".join(f"  {row}" for row in rows) + "\n ]")
    pathlib.Path("reference.json").write_text(text + "\n")


assert transformers.__version__.startswith("5."), transformers.__version__
kinds()
resizes()
reference()
