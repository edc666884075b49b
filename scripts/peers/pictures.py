"""Picture files of every kind that the program reads, drawn at random, and what today's Pillow and transformers make of them.
testdata/make.py of selector/vl/pixels writes its goldens with them, test_images.py draws hundreds."""

import hashlib
import io
import struct
import zlib

import numpy as np
from PIL import Image, TiffImagePlugin
from transformers.image_transforms import convert_to_rgb

# --- pictures


def draw(rng, w, h):
    """A smooth picture with edges and noise, mode RGB."""
    y, x = np.mgrid[0:h, 0:w]
    fx, fy, step = rng.uniform(3, 20, 2), rng.uniform(3, 20, 2), rng.integers(3, 12)
    planes = [127 + 120 * np.sin(x / fx[0]) * np.cos(y / fy[0]), 127 + 120 * np.sin(x / fx[1] + y / fy[1]), 153 * ((x // step + y // step) % 2) + 60]
    return Image.fromarray(np.clip(np.stack(planes, -1) + rng.normal(0, 6, (h, w, 3)), 0, 255).astype(np.uint8))


def alpha(rng, w, h):
    """Every degree of transparency, with whole stretches of none and of all."""
    ramp = np.linspace(-60, 320, w)[None].repeat(h, 0) + rng.normal(0, 9, (h, w))
    return Image.fromarray(np.clip(ramp, 0, 255).astype(np.uint8))


def rgba(rng, w, h):
    picture = draw(rng, w, h)
    picture.putalpha(alpha(rng, w, h))
    return picture


def la(rng, w, h):
    picture = draw(rng, w, h).convert("L")
    picture.putalpha(alpha(rng, w, h))
    return picture


def grey16(rng, w, h):
    return Image.fromarray(rng.integers(0, 400, (h, w)).astype(np.uint16))


# --- writers


def saved(form, how=None, **options):
    """Pillow's writer over a drawn picture, changed by how."""
    def write(rng, w, h):
        out = io.BytesIO()
        picture = draw(rng, w, h)
        (how(rng, w, h) if how in (rgba, la, grey16) else how(picture) if how else picture).save(out, form, **options)
        return out.getvalue()
    return write


def quantized(colours):
    return lambda picture: picture.quantize(colours)


def png(depth, kind, samples, interlaced=False, trns=None):
    """A PNG file of its own making: depths and transparent colours that Pillow does not write."""
    def write(rng, w, h):
        most = 2 ** depth - 1
        values = rng.integers(0, min(most, 600) + 1, (h, w, samples)) if rng.random() < .5 else rng.integers(0, most + 1, (h, w, samples))
        def lines(part):
            out = b""
            for line in part:
                bits = line.reshape(-1)
                if depth == 16:
                    out += b"\0" + bits.astype(">u2").tobytes()
                else:
                    packed = np.unpackbits(bits.astype(np.uint8)[:, None], axis=1)[:, 8 - depth:]
                    out += b"\0" + np.packbits(packed.reshape(-1)).tobytes()
            return out
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
        raw = b"".join(lines(part) for part in (values[y::dy, x::dx] for x, y, dx, dy in passes) if part.size)
        chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        head = struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, int(interlaced))
        clear = chunk(b"tRNS", b"".join(struct.pack(">H", int(v)) for v in values[h // 2, w // 2])) if trns else b""
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + clear + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return write


ZIGZAG = sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8 if (i // 8 + i % 8) % 2 else i % 8)))
COSINE = np.array([[np.cos((2 * x + 1) * u * np.pi / 16) * (np.sqrt(.125) if u == 0 else .5) for x in range(8)] for u in range(8)])
RUNS = [0x00, 0xF0] + [r << 4 | s for r in range(16) for s in range(1, 11)]  # the symbols of AC coefficients, each with a code of 8 bits


def jpeg(sampling, ids=None, adobe=None, jfif=False, quant=6):
    """A baseline JPEG file of its own making: sampling factors, names and markers that Pillow does not write."""
    def write(rng, w, h):
        planes = [*np.moveaxis(np.asarray(draw(rng, w, h)), -1, 0), np.asarray(draw(rng, w, h))[..., 0]][:len(sampling)]
        hmax, vmax = (max(s[i] for s in sampling) for i in (0, 1))
        across, down = -(-w // (8 * hmax)), -(-h // (8 * vmax))
        blocks = []
        for (sh, sv), plane in zip(sampling, planes):
            rows, columns = np.arange(down * sv * 8) * vmax // sv, np.arange(across * sh * 8) * hmax // sh
            part = plane[np.minimum(rows, h - 1)][:, np.minimum(columns, w - 1)].astype(float) - 128
            part = part.reshape(down * sv, 8, across * sh, 8).swapaxes(1, 2)
            blocks.append(np.rint(COSINE @ part @ COSINE.T / quant).astype(int))
        bits, last = [], [0] * len(sampling)
        def put(value, n):
            bits.append(format(value & (1 << n) - 1, f"0{n}b") if n else "")
        def number(v):
            n = int(abs(v)).bit_length()
            return n, v if v >= 0 else v + (1 << n) - 1
        for my in range(down):
            for mx in range(across):
                for c, (sh, sv) in enumerate(sampling):
                    for k in range(sh * sv):
                        zigzag = [int(blocks[c][my * sv + k // sh, mx * sh + k % sh].flat[i]) for i in ZIGZAG]
                        n, v = number(zigzag[0] - last[c])
                        last[c] = zigzag[0]
                        put(n, 4), put(v, n)
                        run = 0
                        for v in zigzag[1:]:
                            if v == 0:
                                run += 1
                                continue
                            while run > 15:
                                put(RUNS.index(0xF0), 8)
                                run -= 16
                            n, v = number(v)
                            put(RUNS.index(run << 4 | n), 8), put(v, n)
                            run = 0
                        if run:
                            put(RUNS.index(0), 8)
        stream = "".join(bits)
        stream += "1" * (-len(stream) % 8)
        body = int(stream, 2).to_bytes(len(stream) // 8, "big").replace(b"\xff", b"\xff\0")
        seg = lambda marker, data: bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data
        names = ids or range(1, len(sampling) + 1)
        return (b"\xff\xd8" + (seg(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") if jfif else b"") + (seg(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe])) if adobe is not None else b"")
                + seg(0xDB, b"\0" + bytes([quant]) * 64)
                + seg(0xC0, struct.pack(">BHHB", 8, h, w, len(sampling)) + b"".join(bytes([n, s[0] << 4 | s[1], 0]) for n, s in zip(names, sampling)))
                + seg(0xC4, b"\0" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12)))
                + seg(0xC4, b"\x10" + bytes([0] * 7 + [len(RUNS)] + [0] * 8) + bytes(RUNS))
                + seg(0xDA, bytes([len(sampling)]) + b"".join(bytes([n, 0]) for n in names) + b"\0\x3f\0") + body + b"\xff\xd9")
    return write


def tiff(mode, tags=None, how=None, **options):
    """Pillow's TIFF writer with tags of our choice."""
    def write(rng, w, h):
        info = TiffImagePlugin.ImageFileDirectory_v2()
        for tag, value in (tags(rng) if callable(tags) else tags or {}).items():
            info[tag] = value
        out = io.BytesIO()
        picture = how(rng, w, h) if how else draw(rng, w, h).convert(mode)
        picture.save(out, "TIFF", tiffinfo=info, **options)
        return out.getvalue()
    return write


def tiff16(photometric, samples, extra=None):
    """A TIFF file of 16 bits a sample, which Pillow does not write, of either byte order."""
    def write(rng, w, h):
        order = "<>"[int(rng.integers(2))]
        data = rng.integers(0, 65536, (h, w, samples)).astype(order + "u2").tobytes()
        tags = [(256, 4, [w]), (257, 4, [h]), (258, 3, [16] * samples), (259, 3, [1]), (262, 3, [photometric]), (273, 4, [8]), (277, 3, [samples]),
                (278, 4, [h]), (279, 4, [len(data)])] + ([(338, 3, [extra])] if extra is not None else [])
        entries, later = b"", b""
        start = 8 + len(data) + 2 + 12 * len(tags) + 4
        for tag, kind, values in tags:
            packed = struct.pack(order + ("H" if kind == 3 else "I") * len(values), *values)
            if len(packed) > 4:
                packed, later = struct.pack(order + "I", start + len(later)), later + packed
            entries += struct.pack(order + "HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
        return ((b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8 + len(data)) + data + struct.pack(order + "H", len(tags)) + entries
                + b"\0\0\0\0" + later)
    return write


def animated(form, kind, **options):
    def write(rng, w, h):
        out = io.BytesIO()
        kind(rng, w, h).save(out, form, save_all=True, append_images=[kind(rng, w, h) for _ in range(2)], duration=40, **options)
        return out.getvalue()
    return write


def exif(rng):
    tags = Image.Exif()
    tags[0x0112] = int(rng.integers(2, 9))
    return tags


def turned(rng, w, h):
    """A JPEG file whose EXIF data would turn it."""
    out = io.BytesIO()
    draw(rng, w, h).save(out, "JPEG", quality=88, exif=exif(rng))
    return out.getvalue()


def clear(kind):
    """A GIF file of a palette with a transparent colour."""
    return saved("GIF", quantized(32), transparency=5) if kind == "p" else saved("GIF", lambda p: p.convert("L"), transparency=100)


KINDS = {
    "rgb.png": saved("PNG"), "rgba.png": saved("PNG", rgba), "la.png": saved("PNG", la), "l.png": saved("PNG", lambda p: p.convert("L")),
    "one.png": saved("PNG", lambda p: p.convert("1")), "p8.png": saved("PNG", quantized(200)), "p4.png": saved("PNG", quantized(16)),
    "p2.png": saved("PNG", quantized(4)), "p1.png": saved("PNG", quantized(2)),
    "p_index.png": saved("PNG", quantized(16), transparency=3),
    "p_bytes.png": saved("PNG", quantized(16), transparency=bytes(range(0, 256, 17))),
    "rgb_trns.png": png(8, 2, 3, trns=True), "l_trns.png": png(8, 0, 1, trns=True), "one_trns.png": png(1, 0, 1, trns=True),
    "grey2.png": png(2, 0, 1), "grey4.png": png(4, 0, 1), "grey2_trns.png": png(2, 0, 1, trns=True), "grey4_trns.png": png(4, 0, 1, trns=True),
    "grey16.png": saved("PNG", grey16), "grey16_trns.png": png(16, 0, 1, trns=True), "rgb16.png": png(16, 2, 3),
    "rgb16_trns.png": png(16, 2, 3, trns=True), "la16.png": png(16, 4, 2), "rgba16.png": png(16, 6, 4),
    "interlaced.png": png(8, 2, 3, interlaced=True), "interlaced_la.png": png(8, 4, 2, interlaced=True), "animated.png": animated("PNG", rgba),
    "444.jpg": saved("JPEG", quality=88, subsampling=0), "422.jpg": saved("JPEG", quality=88, subsampling=1), "420.jpg": saved("JPEG", quality=88, subsampling=2),
    "progressive.jpg": saved("JPEG", quality=80, progressive=True), "restart.jpg": saved("JPEG", quality=60, subsampling=1, progressive=True, restart_marker_blocks=3),
    "optimized.jpg": saved("JPEG", quality=30, optimize=True), "grey.jpg": saved("JPEG", lambda p: p.convert("L"), quality=85), "exif.jpg": turned,
    "440.jpg": jpeg([(1, 2), (1, 1), (1, 1)], jfif=True), "411.jpg": jpeg([(4, 1), (1, 1), (1, 1)]), "410.jpg": jpeg([(4, 2), (1, 1), (1, 1)]),
    "uneven.jpg": jpeg([(2, 2), (2, 1), (1, 2)]), "fine_chroma.jpg": jpeg([(1, 1), (2, 2), (2, 1)]), "half.jpg": jpeg([(4, 1), (2, 1), (2, 1)]),
    "rgb_adobe.jpg": jpeg([(1, 1)] * 3, adobe=0), "rgb_names.jpg": jpeg([(1, 1)] * 3, ids=b"RGB"), "rgb_420.jpg": jpeg([(2, 2), (1, 1), (1, 1)], adobe=0),
    "ycc_adobe.jpg": jpeg([(2, 1), (1, 1), (1, 1)], adobe=1), "jfif_adobe.jpg": jpeg([(1, 1)] * 3, adobe=0, jfif=True),
    "cmyk.jpg": saved("JPEG", lambda p: p.convert("CMYK"), quality=90), "cmyk_420.jpg": saved("JPEG", lambda p: p.convert("CMYK"), quality=80, subsampling=2),
    "cmyk_progressive.jpg": saved("JPEG", lambda p: p.convert("CMYK"), quality=80, progressive=True),
    "cmyk_bare.jpg": jpeg([(1, 1)] * 4), "ycck.jpg": jpeg([(1, 1)] * 4, adobe=2), "ycck_420.jpg": jpeg([(2, 2), (1, 1), (1, 1), (2, 2)], adobe=2),
    "p.gif": saved("GIF", quantized(32)), "grey.gif": saved("GIF", lambda p: p.convert("L")), "clear.gif": clear("p"), "clear_grey.gif": clear("l"),
    "animated.gif": animated("GIF", draw), "animated_clear.gif": animated("GIF", rgba, disposal=2),
    "lossy.webp": saved("WEBP", quality=80), "lossless.webp": saved("WEBP", lossless=True), "alpha.webp": saved("WEBP", rgba, quality=80),
    "alpha_lossless.webp": saved("WEBP", rgba, lossless=True), "exact.webp": saved("WEBP", rgba, lossless=True, exact=True),
    "animated.webp": animated("WEBP", draw), "animated_alpha.webp": animated("WEBP", rgba), "animated_lossless.webp": animated("WEBP", rgba, lossless=True),
    "rgb.bmp": saved("BMP"), "grey.bmp": saved("BMP", lambda p: p.convert("L")), "p.bmp": saved("BMP", quantized(20)), "one.bmp": saved("BMP", lambda p: p.convert("1")),
    "rgba.bmp": saved("BMP", rgba),
    "rgb.tiff": tiff("RGB"), "lzw.tiff": tiff("RGB", compression="tiff_lzw"), "deflate.tiff": tiff("RGB", compression="tiff_adobe_deflate"),
    "packbits.tiff": tiff("RGB", compression="packbits"), "grey.tiff": tiff("L"), "one.tiff": tiff("1"), "p.tiff": tiff("P"),
    "grey16.tiff": tiff("I;16", how=grey16, compression="tiff_lzw"), "rgba.tiff": tiff("RGBA", how=rgba, compression="tiff_lzw"),
    "rgb16.tiff": tiff16(2, 3), "rgba16.tiff": tiff16(2, 4, 2), "turned.tiff": tiff("RGB", lambda rng: {274: int(rng.integers(1, 9))}),
}


# --- what they are


def rgb(path):
    """What transformers makes of an opened picture before it is resized, [H, W, 3]."""
    with Image.open(path) as opened:
        return convert_to_rgb(opened, return_numpy=True)


def digest(values):
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
