"""Takes HEIF and AVIF files apart and puts them together in other ways: grids, turns, cuts, places, missing colours.

    item = primary(data)                                    # of a file that Pillow, pillow-heif or FFmpeg has written
    item.properties.append((box("irot", bytes([1])), True))
    data = heif([item], brand="avif")
    data = heif(grid([item] * 6, 3, 2, (400, 250)))         # the grid is the first item, and the primary one
"""
import dataclasses
import struct


def box(name, *parts):
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + name.encode("latin1") + body


def full_box(name, *parts, version=0, flags=0):
    return box(name, struct.pack(">I", version << 24 | flags), *parts)


def boxes(data):
    """(name, body) of every box."""
    at = 0
    while at + 8 <= len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        yield name.decode("latin1"), data[at + 8:at + size]
        at += size


@dataclasses.dataclass
class Item:
    kind: str
    data: bytes
    properties: list  # (box, essential)
    references: list = dataclasses.field(default_factory=list)  # (kind, [index of an item, from 0])
    stored: str = "mdat"  # or "idat"
    pieces: int = 1

    def without(self, *names):
        kept = [one for one in self.properties if one[0][4:8].decode("latin1") not in names]
        return dataclasses.replace(self, properties=kept, references=list(self.references))

    def having(self, *properties):
        more = self.properties + list(properties)
        return dataclasses.replace(self, properties=more, references=list(self.references))

    def refers(self, *references):
        more = self.references + list(references)
        return dataclasses.replace(self, properties=list(self.properties), references=more)

    def property(self, name):
        return next((one for one, _ in self.properties if one[4:8].decode("latin1") == name), None)


def items_of(data):
    """The items of a file by their ids, and the id of the primary one. References are by ids, as in the file."""
    meta = dict(boxes(dict(boxes(data))["meta"][4:]))
    kinds, out = {}, {}
    for name, body in boxes(meta["iinf"][6:]):
        kinds[struct.unpack(">H", body[4:6])[0]] = body[8:12].decode("latin1")
    iprp = list(boxes(meta["iprp"]))
    properties = [box(name, body) for name, body in boxes(dict(iprp)["ipco"])]
    associations, body, at = {}, dict(iprp)["ipma"], 8
    for _ in range(struct.unpack(">I", body[4:8])[0]):
        number, count = struct.unpack(">HB", body[at:at + 3])
        words = body[at + 3:at + 3 + count]
        associations[number] = [(properties[(word & 127) - 1], bool(word & 128)) for word in words]
        at += 3 + count
    body = meta["iloc"]
    version, sizes, more, count = body[0], body[4], body[5], struct.unpack(">H", body[6:8])[0]
    assert sizes == 0x44 and version < 2, "offsets and lengths of 4 bytes"
    at = 8
    for _ in range(count):
        number = struct.unpack(">H", body[at:at + 2])[0]
        at += 2
        method = struct.unpack(">H", body[at:at + 2])[0] & 15 if version else 0
        at += 4 if version else 2
        base, at = int.from_bytes(body[at:at + (more >> 4)], "big"), at + (more >> 4)
        extents, at = struct.unpack(">H", body[at:at + 2])[0], at + 2
        coded = b""
        for _ in range(extents):
            begin, length = struct.unpack(">II", body[at:at + 8])
            at += 8
            coded += (meta["idat"] if method else data)[base + begin:base + begin + length]
        out[number] = Item(kinds[number], coded, associations.get(number, []))
    for name, body in boxes(meta.get("iref", b"")[4:]):
        source, count = struct.unpack(">HH", body[:4])
        out[source].references.append((name, list(struct.unpack(f">{count}H", body[4:4 + 2 * count]))))
    return out, struct.unpack(">H", meta["pitm"][4:6])[0]


def primary(data):
    items, number = items_of(data)
    return dataclasses.replace(items[number], references=[])


def with_alpha(data):
    """The primary item and its alpha, for heif()."""
    items, number = items_of(data)
    alpha = next(item for item in items.values() if ("auxl", [number]) in item.references)
    return [dataclasses.replace(items[number], references=[]), dataclasses.replace(alpha, references=[("auxl", [0])])]


def size_property(width, height):
    return full_box("ispe", struct.pack(">II", width, height)), False


def grid(tiles, columns, rows, size, *properties, stored="idat"):
    """A grid, and its tiles after it."""
    head = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, *size)
    colours = [(one, False) for one in [tiles[0].property("colr")] if one]
    references = [("dimg", list(range(1, len(tiles) + 1)))]
    whole = Item("grid", head, [size_property(*size)] + colours + list(properties), references, stored)
    return [whole] + [dataclasses.replace(tile, references=[]) for tile in tiles]


def heif(items, brand="heic", primary=0):
    """A file of these items; their ids are their indices and one more."""
    kinds, properties, associations, references, places = b"", [], b"", b"", []
    for i, item in enumerate(items):
        kinds += full_box("infe", struct.pack(">HH", i + 1, 0), item.kind.encode("latin1"), b"\0", version=2)
        numbers = b""
        for one, essential in item.properties:
            if one not in properties:
                properties.append(one)
            numbers += bytes([properties.index(one) + 1 | essential << 7])
        associations += struct.pack(">HB", i + 1, len(numbers)) + numbers
        for kind, targets in item.references:
            words = [i + 1, len(targets), *(target + 1 for target in targets)]
            references += box(kind, struct.pack(f">{len(words)}H", *words))
    idat = b"".join(item.data for item in items if item.stored == "idat")

    def file(begin):
        table, at = b"", {"mdat": begin, "idat": 0}
        for i, item in enumerate(items):
            step = -(-len(item.data) // item.pieces)
            pieces = [item.data[k:k + step] for k in range(0, len(item.data), step)]
            table += struct.pack(">HHHH", i + 1, item.stored == "idat", 0, len(pieces))
            for piece in pieces:
                table += struct.pack(">II", at[item.stored], len(piece))
                at[item.stored] += len(piece)
        meta = full_box("meta", full_box("hdlr", struct.pack(">I4s12x", 0, b"pict"), b"\0"),
                        full_box("pitm", struct.pack(">H", primary + 1)),
                        full_box("iloc", struct.pack(">BBH", 0x44, 0, len(items)), table, version=1),
                        full_box("iinf", struct.pack(">H", len(items)), kinds),
                        box("iprp", box("ipco", *properties),
                            full_box("ipma", struct.pack(">I", len(items)), associations)),
                        full_box("iref", references) if references else b"", box("idat", idat) if idat else b"")
        head = box("ftyp", brand.encode("latin1"), bytes(4), brand.encode("latin1"), b"mif1miaf")
        return head + meta + box("mdat"), head + meta

    whole, _ = file(0)
    _, front = file(len(whole))
    return front + box("mdat", *(item.data for item in items if item.stored == "mdat"))


def cut(width, height, x=0, y=0):
    """A clean aperture, whose centre is moved by halves of pixels."""
    return box("clap", struct.pack(">IIIIiIiI", width, 1, height, 1, x, 2, y, 2)), True


def turn(quarters):
    """Against the clock."""
    return box("irot", bytes([quarters])), True


def mirror(axis):
    """0: top to bottom, 1: left to right."""
    return box("imir", bytes([axis])), True


def colours(primaries, matrix, full):
    return box("colr", b"nclx", struct.pack(">HHHB", primaries, 13, matrix, full << 7)), False


ALPHA = full_box("auxC", b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")


def joined(colour, alpha):
    """The primary item of one file with that of another one, of grey alone, as its alpha; for heif()."""
    return [primary(colour), primary(alpha).without("colr").having((ALPHA, False)).refers(("auxl", [0]))]
