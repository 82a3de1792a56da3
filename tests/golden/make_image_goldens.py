#!/usr/bin/env python3
"""Makes tests/golden/data/images: small synthetic stills and what Pillow makes of them.

    /usr/bin/python3 tests/golden/make_image_goldens.py      (Debian: python3-pil, python3-numpy)

For NAME.EXT: NAME.EXT.rgb is Image.open(...).convert("RGB") as raw bytes. `resize-*.rgb` are Pillow's resizes of
`scene.rgb`. `qwen2_vl.f32` is pixel_values of `scene.png` under Qwen2-VL's rules.
`index.txt` has a line for each: file, width, height.
"""

import io
import math
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tiff_files import BLACK_IS_ZERO, CMYK, DEFLATE, LZW, PACKBITS, PALETTE, WHITE_IS_ZERO, tiff  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "data" / "images"
WIDTH, HEIGHT = 41, 29
rng = np.random.default_rng(20)


def scene(width=WIDTH, height=HEIGHT):
    y, x = np.mgrid[0:height, 0:width]
    channels = [127 + 120 * np.sin(x / 5 + y / 9), 255 * (x / width), 127 + 100 * np.cos((x - y) / 4)]
    noise = rng.integers(-12, 12, (height, width, 3))
    return np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8)


INDEX = []


def add(name, data):
    (OUT / name).write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    rgb = image.convert("RGB")
    (OUT / f"{name}.rgb").write_bytes(rgb.tobytes())
    INDEX.append(f"{name} {rgb.width} {rgb.height}")


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(width, height, depth, color, rows, extra=b""):
    """A PNG of given rows of packed samples; `extra`: chunks before IDAT."""
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def add_jpegs(rgb):
    for subsampling, name in ((0, "444"), (1, "422"), (2, "420")):
        add(f"baseline-{name}.jpg", saved(rgb, format="JPEG", quality=90, subsampling=subsampling))
    add("progressive.jpg", saved(rgb, format="JPEG", quality=75, progressive=True))
    add("grey.jpg", saved(rgb.convert("L"), format="JPEG", quality=85))
    add("cmyk.jpg", saved(rgb.convert("CMYK"), format="JPEG", quality=92))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter; the processor does not turn it
    add("exif-turned.jpg", saved(rgb, format="JPEG", quality=90, exif=exif))
    add("restarts.jpeg", saved(rgb, format="JPEG", quality=60, optimize=True))


def add_pngs(rgb, pixels):
    add("rgb.png", saved(rgb, format="PNG"))
    alpha = Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH), np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    add("rgba.png", saved(rgba, format="PNG"))
    add("grey.png", saved(rgb.convert("L"), format="PNG"))
    add("grey-alpha.png", saved(rgba.convert("LA"), format="PNG"))
    palette = rgb.quantize(64)
    add("palette.png", saved(palette, format="PNG"))
    add("palette-transparent.png", saved(palette, format="PNG", transparency=bytes(range(64))))
    add("palette-16.png", saved(rgb.quantize(16), format="PNG", bits=4))
    add("palette-4.png", saved(rgb.quantize(4), format="PNG", bits=2))
    add("black-white.png", saved(rgb.convert("1"), format="PNG"))
    for depth in (2, 4):
        row = math.ceil(WIDTH * depth / 8)
        rows = [rng.integers(0, 256, row, np.uint8).tobytes() for _ in range(HEIGHT)]
        add(f"grey-{depth}-bits.png", raw_png(WIDTH, HEIGHT, depth, 0, rows))
    wide = rng.integers(0, 65536, (HEIGHT, WIDTH, 3), np.uint16).astype(">u2")
    add("rgb-16-bits.png", raw_png(WIDTH, HEIGHT, 16, 2, [row.tobytes() for row in wide]))
    wide = rng.integers(0, 65536, (HEIGHT, WIDTH, 2), np.uint16).astype(">u2")
    add("grey-alpha-16-bits.png", raw_png(WIDTH, HEIGHT, 16, 4, [row.tobytes() for row in wide]))
    gamma = chunk(b"gAMA", struct.pack(">I", 45455)) + chunk(b"tEXt", b"Comment\0nothing")
    add("gamma.png", raw_png(WIDTH, HEIGHT, 8, 2, [row.tobytes() for row in pixels], gamma))
    key = chunk(b"tRNS", struct.pack(">HHH", *pixels[0, 0].tolist()))
    add("rgb-transparent-colour.png", raw_png(WIDTH, HEIGHT, 8, 2, [row.tobytes() for row in pixels], key))
    add("interlaced.png", interlaced(pixels))
    wide = rng.integers(0, 65536, (HEIGHT, WIDTH), np.uint16).astype(">u2")
    (OUT / "refused-grey-16-bits.png").write_bytes(raw_png(WIDTH, HEIGHT, 16, 0, [row.tobytes() for row in wide]))


def interlaced(pixels):
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    rows = b""
    for y, x, dy, dx in passes:
        for row in pixels[y::dy, x::dx]:
            if row.size:
                rows += b"\0" + row.tobytes()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def add_webps(rgb):
    add("lossy.webp", saved(rgb, format="WEBP", quality=80))
    add("lossless.webp", saved(rgb, format="WEBP", lossless=True))
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH), np.uint8)))
    add("lossy-alpha.webp", saved(rgba, format="WEBP", quality=80))
    add("lossless-alpha.webp", saved(rgba, format="WEBP", lossless=True, exact=True))
    frames = [rgb, rgb.transpose(Image.FLIP_LEFT_RIGHT)]
    add("animated.webp", saved(frames[0], format="WEBP", save_all=True, append_images=frames[1:]))


def add_tiffs(rgb):
    """As Pillow writes them, and what it does not write: tiles, planes, big-endian and 64-bit files, few bits."""
    add("rgb.tif", saved(rgb, format="TIFF"))
    add("rgb-lzw.tif", saved(rgb, format="TIFF", compression="tiff_lzw", tiffinfo={317: 2}))
    add("two-colours.tif", saved(rgb.convert("1"), format="TIFF", compression="group4"))
    add("jpeg.tif", saved(rgb.convert("YCbCr"), format="TIFF", compression="jpeg", quality=85))
    add("pages.tiff", saved(rgb, format="TIFF", save_all=True, append_images=[rgb.convert("L").resize((9, 9))]))
    source = random.Random(20)

    def write(name, samples, bits=8, **options):
        values = [source.randrange(1 << bits) for _ in range(WIDTH * HEIGHT * samples)]
        add(name, tiff(WIDTH, HEIGHT, values, bits=bits, **options))

    write("rgba-tiles.tif", 4, extra=[2], tile=(16, 32), compression=DEFLATE)
    write("planes.tif", 3, separate=True, rows=7, compression=PACKBITS, order=">")
    write("cmyk.tif", 4, photometric=CMYK, compression=LZW, order=">")
    write("grey-4.tif", 1, 4, photometric=WHITE_IS_ZERO, tile=(16, 16))
    write("palette.tif", 1, photometric=PALETTE, palette=[source.randrange(1 << 16) for _ in range(3 << 8)])
    write("rgb-16.tif", 3, 16, rows=8, big=True)
    write("turned-6.tif", 3, rows=5, orientation=6)
    wide = [source.randrange(1 << 16) for _ in range(WIDTH * HEIGHT)]
    (OUT / "refused-grey-16-bits.tif").write_bytes(tiff(WIDTH, HEIGHT, wide, bits=16, photometric=BLACK_IS_ZERO))


def add_resizes(rgb):
    for name, kind in (("bicubic", Image.BICUBIC), ("bilinear", Image.BILINEAR), ("lanczos", Image.LANCZOS)):
        for width, height in ((28, 28), (84, 56), (41, 20), (19, 29), (1, 1), (211, 5), (41, 29)):
            resized = rgb.resize((width, height), kind)
            (OUT / f"resize-{name}-{width}x{height}.rgb").write_bytes(resized.tobytes())


def add_pixel_values(rgb):
    """Qwen2-VL: 41x29 becomes 84x56 (min_pixels 3136), patches of 14, merged by 2, two equal frames."""
    image = np.asarray(rgb.resize((84, 56), Image.BICUBIC)).astype(np.float64) * (1 / 255)
    mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
    std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
    image = ((image.astype(np.float32) - mean) / std).transpose(2, 0, 1)
    stack = np.broadcast_to(image, (2, 3, 56, 84)).reshape(1, 2, 3, 2, 2, 14, 3, 2, 14)
    rows = stack.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(24, 1176)
    (OUT / "qwen2_vl.f32").write_bytes(rows.astype("<f4").tobytes())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    pixels = scene()
    rgb = Image.fromarray(pixels)
    (OUT / "scene.rgb").write_bytes(rgb.tobytes())
    (OUT / "scene.png").write_bytes(saved(rgb, format="PNG"))
    add_jpegs(rgb)
    add_pngs(rgb, pixels)
    add_webps(rgb)
    add_tiffs(rgb)
    add_resizes(rgb)
    add_pixel_values(rgb)
    (OUT / "index.txt").write_text("\n".join(INDEX) + "\n")


if __name__ == "__main__":
    main()
