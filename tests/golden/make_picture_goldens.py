#!/usr/bin/env python3
"""Makes tests/golden/data/pictures: stills whose meaning depends on a policy, and what Pillow makes of them.

    /usr/bin/python3 tests/golden/make_picture_goldens.py      (Debian: python3-pil, python3-numpy)

`index.txt` has a line for each result: file, policy, width, height; FILE.POLICY.rgb holds its pixels.
white, colour: pasted onto that colour by its alpha; upright: ImageOps.exif_transpose; clip_grey, high_byte: of 16
bits. `smooth.jpg` is a larger still for the approximate mode.
"""

import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

OUT = pathlib.Path(__file__).resolve().parent / "data" / "pictures"
WIDTH, HEIGHT = 21, 13
COLOURS = {"white": (255, 255, 255), "colour": (122, 116, 104)}
rng = np.random.default_rng(7)
INDEX = []


def result(name, policy, image):
    (OUT / f"{name}.{policy}.rgb").write_bytes(image.tobytes())
    INDEX.append(f"{name} {policy} {image.width} {image.height}\n")


def save(name, image, **options):
    image.save(OUT / name, **options)
    return Image.open(io.BytesIO((OUT / name).read_bytes()))


def add_transparent(name, image, **options):
    for policy, colour in COLOURS.items():
        rgba = save(name, image, **options).convert("RGBA")
        canvas = Image.new("RGB", rgba.size, colour)
        canvas.paste(rgba, mask=rgba.getchannel("A"))
        result(name, policy, canvas)


def add_turned(rgb):
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for suffix, options in (("jpg", {"quality": 90}), ("png", {}), ("webp", {"lossless": True})):
            if suffix != "jpg" and orientation != 6:
                continue
            name = f"turned-{orientation}.{suffix}"
            upright = ImageOps.exif_transpose(save(name, rgb, exif=exif.tobytes(), **options))
            result(name, "upright", upright.convert("RGB"))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def add_wide_grey():
    wide = rng.integers(0, 65536, (HEIGHT, WIDTH), np.uint16)
    wide[:, ::2] //= 200
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, 0, 0, 0, 0))
    body = zlib.compress(b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide))
    (OUT / "grey-16.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    result("grey-16.png", "clip_grey", Image.open(OUT / "grey-16.png").convert("RGB"))
    high = Image.fromarray((wide >> 8).astype(np.uint8))
    result("grey-16.png", "high_byte", high.convert("RGB"))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rgb = Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH), np.uint8)))
    add_transparent("rgba.png", rgba)
    add_transparent("grey-alpha.png", rgba.convert("LA"))
    add_transparent("palette.png", rgb.quantize(32), transparency=bytes(range(0, 256, 8)))
    add_transparent("rgba.webp", rgba, lossless=True, exact=True)
    add_turned(rgb)
    add_wide_grey()
    y, x = np.mgrid[0:240, 0:320]
    waves = [127 + 100 * np.sin(x / 25 + y / 40), 255 * (x / 320), 127 + 90 * np.cos((x - y) / 30)]
    Image.fromarray(np.stack(waves, -1).astype(np.uint8)).save(OUT / "smooth.jpg", quality=85)
    (OUT / "index.txt").write_text("".join(INDEX))


if __name__ == "__main__":
    main()
