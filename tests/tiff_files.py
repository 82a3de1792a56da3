"""Writes TIFF files of any layout, for tests and goldens: Pillow writes neither tiles nor planes nor big-endian ones.

    data = tiff(width, height, samples, bits=8, photometric=RGB, order=">", tile=(16, 32), compression=DEFLATE)

`samples` is a list of height * width * samples-of-a-pixel numbers. Needs Python alone.
"""

import struct
import zlib

NONE, LZW, JPEG, DEFLATE, PACKBITS = 1, 5, 7, 8, 32773
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 16: 8}
CODES = {1: "B", 2: "B", 3: "H", 4: "I", 16: "Q"}


def packed(values, bits, order):
    """Values of a row as bytes, from the high bit."""
    if bits == 8:
        return bytes(values)
    if bits in (16, 32):
        return struct.pack(f"{order}{len(values)}{'H' if bits == 16 else 'I'}", *values)
    number = 0
    for value in values:
        number = number << bits | value
    spare = -len(values) * bits % 8
    return (number << spare).to_bytes((len(values) * bits + 7) // 8, "big")


def lzw(data):
    """Codes of 9 bits: the table is cleared before it needs longer ones."""
    codes = []
    for i, byte in enumerate(data):
        if i % 250 == 0:
            codes.append(256)
        codes.append(byte)
    return packed(codes + [257], 9, ">")


def packbits(data):
    """Literal runs alone."""
    return b"".join(bytes([len(data[i : i + 128]) - 1]) + data[i : i + 128] for i in range(0, len(data), 128))


COMPRESS = {NONE: bytes, LZW: lzw, DEFLATE: zlib.compress, PACKBITS: packbits}


def chunks(width, height, samples, count, bits, order, tile, rows, separate):
    """The uncompressed bytes of every strip or tile; tiles are filled with zeroes."""
    step_x, step_y = tile or (width, rows or height)
    planes = [samples[i::count] for i in range(count)] if separate else [samples]
    each = 1 if separate else count
    for plane in planes:
        for top in range(0, height, step_y):
            for left in range(0, width, step_x):
                out = b""
                for y in range(top, top + step_y if tile else min(top + step_y, height)):
                    row = plane[(y * width + left) * each : (y * width + min(left + step_x, width)) * each] if y < height else []
                    out += packed(row + [0] * (step_x * each - len(row)), bits, order)
                yield out


def directory(entries, order, big, after):
    """The bytes of a directory that stands at the end of a file of `after` bytes, and of the values it points to."""
    word = "Q" if big else "I"
    head = 8 if big else 2
    room = 8 if big else 4
    size = head + len(entries) * (20 if big else 12) + room
    out, outside = struct.pack(order + ("Q" if big else "H"), len(entries)), b""
    for tag, (kind, values) in sorted(entries.items()):
        data = struct.pack(f"{order}{len(values)}{CODES[kind]}", *values)
        if len(data) > room:
            place = struct.pack(order + word, after + size + len(outside))
            outside += data + bytes(len(data) % 2)
        else:
            place = data.ljust(room, b"\0")
        out += struct.pack(order + "HH" + word, tag, kind, len(values)) + place
    return out + struct.pack(order + word, 0) + outside


def tiff(width, height, samples, *, bits=8, photometric=RGB, order="<", big=False, tile=None, rows=None, separate=False,
         compression=NONE, compress=None, extra=None, palette=None, orientation=None, tags=None):
    """`compress(bytes)` replaces the compression's own; `extra`: kinds of extra samples; `tags`: {tag: (type, values)}, where
    None leaves a tag out."""
    count = len(samples) // (width * height)
    word = "Q" if big else "I"
    start = struct.pack(order + ("HHHQ" if big else "HI"), *((43, 8, 0, 16) if big else (42, 8)))
    start = (b"II" if order == "<" else b"MM") + start
    body = [(compress or COMPRESS[compression])(data)
            for data in chunks(width, height, list(samples), count, bits, order, tile, rows, separate)]
    body = [data + bytes(len(data) % 2) for data in body]
    places, at = [], len(start)
    for data in body:
        places.append(at)
        at += len(data)
    lengths = [len(data) for data in body]
    entries = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * count), 259: (3, [compression]), 262: (3, [photometric]),
               277: (3, [count]), 284: (3, [2 if separate else 1])}
    if tile:
        entries.update({322: (4, [tile[0]]), 323: (4, [tile[1]]), 324: (4, places), 325: (4, lengths)})
    else:
        entries.update({278: (4, [rows or height]), 273: (4, places), 279: (4, lengths)})
    if extra is not None:
        entries[338] = (3, list(extra))
    if palette is not None:
        entries[320] = (3, list(palette))
    if orientation is not None:
        entries[274] = (3, [orientation])
    entries.update(tags or {})
    entries = {tag: entry for tag, entry in entries.items() if entry is not None}
    start = start[: -8 if big else -4] + struct.pack(order + word, at)
    return start + b"".join(body) + directory(entries, order, big, at)
