"""Writes decode/: small images in every format and mode, and beside each what Pillow's convert("RGB") makes of
it (NAME.png); resize/: Pillow's bicubic resize to sizes that shrink, grow and stretch. Made with Pillow 9.4,
libjpeg-turbo 2.1.5, libwebp 1.2.4. Run in this folder: python3 make.py"""
import os, struct, subprocess, zlib
import numpy as np
from PIL import Image

os.makedirs("decode", exist_ok=True)
os.makedirs("resize", exist_ok=True)
W, H = 61, 47
rng = np.random.default_rng(3)
y, x = np.mgrid[0:H, 0:W]
base = np.stack([127 + 120 * np.sin(x / 7) * np.cos(y / 9), 127 + 120 * np.sin(x / 5 + y / 11), 153 * ((x // 8 + y // 6) % 2) + 60], -1)
im = Image.fromarray(np.clip(base + rng.normal(0, 6, base.shape), 0, 255).astype(np.uint8), "RGB")
grey, alpha = im.convert("L"), Image.fromarray(np.clip(x * 4, 0, 255).astype(np.uint8), "L")
rgba, la = im.copy(), grey.copy()
rgba.putalpha(alpha)
la.putalpha(alpha)
deep = Image.fromarray(np.clip(x * 40 + y * 9, 0, 65535).astype(np.uint16))
exif = Image.Exif()
exif[0x0112] = 6

def save(image, name, **how):
    image.save("decode/" + name, **how)

for subsampling, name in ((0, "444"), (1, "422"), (2, "420")):
    save(im, f"rgb{name}.jpg", quality=88, subsampling=subsampling)
save(im.crop((0, 0, 2, 3)), "tiny420.jpg", quality=95, subsampling=2)
save(im.crop((0, 0, 60, 46)), "even420.jpg", quality=88, subsampling=2)
save(im, "progressive.jpg", quality=80, subsampling=2, progressive=True)
save(im, "restart.jpg", quality=60, subsampling=1, progressive=True, restart_marker_blocks=3)
save(im, "exif.jpg", quality=88, exif=exif)
save(grey, "grey.jpg", quality=85)
save(im.convert("CMYK"), "cmyk.jpg", quality=90)
save(im, "lossy.webp", quality=80)
save(im.crop((0, 0, 60, 46)), "even.webp", quality=80)
save(im, "lossless.webp", lossless=True)
save(rgba, "alpha.webp", quality=80, exact=True)
save(rgba, "alpha_lossless.webp", lossless=True, exact=True)
save(rgba, "rgba.png")
save(la, "la.png")
save(im.convert("1"), "one.png")
save(im.quantize(16), "palette4.png", transparency=3)
save(im.quantize(200), "palette8.png")
save(deep, "grey16.png")
save(im.quantize(32), "p.gif", transparency=5)
save(im, "rgb.bmp")
save(grey, "grey.bmp")
save(im.quantize(20), "p.bmp")
save(rgba, "rgba.bmp")
save(im, "lzw.tiff", compression="tiff_lzw")
save(grey, "grey.tiff")
save(rgba, "rgba.tiff", compression="tiff_lzw")
save(im.quantize(30), "p.tiff")
save(deep, "grey16.tiff", compression="tiff_lzw")

# Pillow writes neither 4:4:0 nor 4:1:1: libjpeg-turbo's cjpeg does
for sample, name in (("1x2", "440"), ("4x1", "411")):
    ppm = b"P6\n%d %d\n255\n" % im.size + im.tobytes()
    jpeg = subprocess.run(["cjpeg", "-quality", "88", "-sample", sample + ",1x1,1x1"], input=ppm, capture_output=True, check=True).stdout
    open(f"decode/rgb{name}.jpg", "wb").write(jpeg)

def png16(name, w, h, color, pixel):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    raw = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(w)) for y in range(h))
    head = struct.pack(">IIBBBBB", w, h, 16, color, 0, 0, 0)
    open("decode/" + name, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))

png16("rgb16.png", 13, 11, 2, lambda x, y: struct.pack(">HHH", x * 5000, y * 5900, x * y * 540))
png16("rgba16.png", 13, 11, 6, lambda x, y: struct.pack(">HHHH", x * 5000, y * 5900, x * y * 540, x * 5000))
png16("la16.png", 13, 11, 4, lambda x, y: struct.pack(">HH", x * y * 540, x * 5000))

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

# a first frame of 8x6 at (5, 4) of a screen of 20x16, without and with a transparent colour
palette = bytes([10, 20, 30, 200, 100, 50, 0, 255, 128, 90, 90, 250])
for name, transparent in (("part.gif", 0), ("part_transparent.gif", 1)):
    data = lzw([(x + y) % 4 for y in range(6) for x in range(8)])
    control = b"\x21\xf9\x04" + bytes([transparent, 0, 0, 2 * transparent, 0])
    frame = b"\x2c" + struct.pack("<HHHHB", 5, 4, 8, 6, 0) + bytes([2, len(data)]) + data
    open("decode/" + name, "wb").write(b"GIF89a" + struct.pack("<HHBBB", 20, 16, 0x91, 1, 0) + palette + control + frame + b"\0;")

for name in sorted(os.listdir("decode")):
    if not name.endswith((".ref.png")):
        Image.open("decode/" + name).convert("RGB").save(f"decode/{name}.ref.png", optimize=True)

for w, h in ((61, 20), (17, 47), (7, 5), (1, 1), (122, 94), (60, 48), (62, 46), (200, 11), (3, 150)):
    im.resize((w, h), Image.BICUBIC).save(f"resize/{w}x{h}.png", optimize=True)
noise = Image.fromarray((rng.integers(0, 2, (40, 53, 3)) * 255).astype(np.uint8), "RGB")  # overshoots both ends
noise.save("resize/noise.png", optimize=True)
noise.resize((71, 23), Image.BICUBIC).save("resize/noise_71x23.png", optimize=True)
im.save("resize/source.png", optimize=True)
