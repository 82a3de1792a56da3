#!/usr/bin/env python3
"""Makes tests/golden/data/pictures/key-*.png: PNGs in which a colour stands for transparency, and what they are on white.

Needs Pillow 13.0 (tests/preprocess/parity/install) and numpy. `keys.txt` has a line for each, as index.txt has: file, policy,
width, height; FILE.POLICY.rgb holds the pixels of Pillow's alpha_composite onto white. Pillow compares bytes: the low one of
16 bits, and grey of two or four bits as the number that is written.
"""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).resolve().parent / "data" / "pictures"
WIDTH, HEIGHT = 13, 9
GREY, RGB = 0, 2


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(row, depth):
    """A row of samples in their depth."""
    if depth == 16:
        return row.astype(">u2").tobytes()
    bits = "".join(format(sample, f"0{depth}b") for sample in row)
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def png(depth, colour, rows, key):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, 0))
    key = chunk(b"tRNS", struct.pack(f">{len(key)}H", *key))
    body = zlib.compress(b"".join(b"\0" + packed(row.reshape(-1), depth) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + head + key + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def main():
    rng = np.random.default_rng(9)
    some = {16: [0, 5, 0x105, 0x500, 0x512, 0x1205, 0xFFFF], 8: [0, 7, 5, 255]}
    lines = []
    for name, depth, colour, key in [
            ("1-0", 1, GREY, [0]), ("1-1", 1, GREY, [1]), ("2-0", 2, GREY, [0]), ("2-1", 2, GREY, [1]), ("2-3", 2, GREY, [3]),
            ("4-0", 4, GREY, [0]), ("4-5", 4, GREY, [5]), ("8-7", 8, GREY, [7]), ("8-high", 8, GREY, [0x105]),
            ("16-5", 16, GREY, [5]), ("16-wide", 16, GREY, [0x105]), ("rgb-8", 8, RGB, [7, 0, 7]),
            ("rgb-8-high", 8, RGB, [0x107, 0, 7]), ("rgb-16", 16, RGB, [0x1205, 0x1205, 0x1205]),
            ("rgb-16-white", 16, RGB, [0xFFFF, 0xFFFF, 0xFFFF])]:
        values = some.get(depth, range(1 << depth))
        channels = 3 if colour == RGB else 1
        rows = rng.choice(values, (HEIGHT, WIDTH, channels)).astype(np.uint16)
        rows[::3, ::2] = rows[::3, ::2, :1]  # all channels alike
        rows[1, 1:3] = np.array(key) & ((1 << depth) - 1)
        file = f"key-{name}.png"
        (OUT / file).write_bytes(png(depth, colour, rows, key))
        policy = "white_clip_grey" if (depth, colour) == (16, GREY) else "white"
        rgba = Image.open(OUT / file).convert("RGBA")
        white = Image.alpha_composite(Image.new("RGBA", rgba.size, (255, 255, 255, 255)), rgba).convert("RGB")
        (OUT / f"{file}.{policy}.rgb").write_bytes(white.tobytes())
        lines.append(f"{file} {policy} {WIDTH} {HEIGHT}\n")
    (OUT / "keys.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
