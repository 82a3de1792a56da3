#!/usr/bin/env python3
"""Makes the seeds of every fuzz target: tests/fuzz_seeds.py OUT puts them into OUT/fuzz_NAME/.

Media are the golden files; shards, jobs, chats and addresses are written here. Needs Python alone, and gives the
same files every time.
"""

import gzip
import io
import json
import pathlib
import struct
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "golden" / "data"
# In the order of the targets' own tables: the first byte of an input chooses.
AUDIO = ["wav", "flac", "mp3", "m4a", "aac", "ac3", "ogg", "mka", "avi", "aiff"]
VIDEO = ["mp4", "avi", "webm"]
PICTURES = ["jpg", "png", "webp", "jpeg"]
TIFFS = ["tif", "tiff"]
HEIFS = ["avif", "heic", "heif"]
SAME_CONTAINER = {"mkv": "webm", "mov": "mp4"}
SOUND_CONTAINER = {"opus": "ogg", "oga": "ogg", "webm": "mka", "mkv": "mka", "mp4": "m4a", "mov": "m4a"}
LARGEST = 100_000


def media(folder, suffixes):
    for path in sorted((DATA / folder).iterdir()):
        if path.suffix[1:] in suffixes and path.stat().st_size <= LARGEST:
            yield path.name, path.read_bytes()


def chosen_media(folder, table, same_container):
    for name, data in media(folder, set(table) | set(same_container)):
        suffix = name.rsplit(".", 1)[1]
        suffix = same_container.get(suffix, suffix)
        if suffix in table:
            yield name, bytes([table.index(suffix)]) + data


def pictures():
    """Every picture twice: as it would be by default, and with EXIF applied, blended and cropped."""
    for folder in ("images", "pictures"):
        for name, data in media(folder, set(PICTURES)):
            suffix = PICTURES.index(name.rsplit(".", 1)[1])
            yield f"plain-{folder}-{name}", bytes([suffix, 0b00100, 27, 27]) + data
            yield f"other-{folder}-{name}", bytes([suffix | 0b11101000, 0b00011, 40, 19]) + data
        for name, data in media(folder, set(TIFFS)):  # a bit of the second byte chooses them
            yield f"plain-{folder}-{name}", bytes([0, 0b100100, 27, 27]) + data
            yield f"other-{folder}-{name}", bytes([0b11101000, 0b100011, 40, 19]) + data
    for name, data in media("heif", set(HEIFS)):  # as a bit of the second byte does them
        yield f"plain-heif-{name}", bytes([0, 0b1000100, 27, 27]) + data
        yield f"other-heif-{name}", bytes([0b11101000, 0b1000011, 40, 19]) + data


def shard(form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, body in [
            ("a.txt", b"words"),
            ("a.0.jpg", b"\xff\xd8\xff" + bytes(600)),
            ("b.json", b'{"messages":[{"role":"user","content":"?"},{"role":"assistant","content":"!"}]}'),
            ("b.0.png.gz", gzip.compress(b"\x89PNG" + bytes(300), mtime=0)),
            ("long/" + "n" * 150 + ".wav", bytes(1000)),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(body)
            if form == tarfile.PAX_FORMAT:
                member.pax_headers = {"comment": "x" * 300}
            tar.addfile(member, io.BytesIO(body))
        link = tarfile.TarInfo("c.txt")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
    return out.getvalue()


def shards():
    for name, form in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        try:
            yield name, shard(form)
        except ValueError:  # a name that this format cannot hold
            pass
    yield "cut", shard(tarfile.GNU_FORMAT)[:1300]


JOB = """name: captions
seed: 7
index: ./index
datasets: [{name: photos, shards: ["shards/photos-{000..003}.tar"], weight: 1}]
processor: {folder: ./qwen2-vl, max_pixels: 1m, added_tokens: ["<x>"]}
batch: {samples: 64}
order: {shuffle: blocked, block_samples: 8, window_blocks: 2}
topology: {ranks_per_node: 8}
phases:
  - {name: llm, ranks: 0-7, cost: {linear: 1, quadratic: 1e-4}}
  - {name: vision, ranks: "0-3,8", runs: once_per_microbatch, min_items: 1}
microbatch: {capacity_tokens: 4096, align: 8, pad_to: 0}
wire: bf16
limits: {max_image_pixels: 1m, max_jpeg_scans: 10}
exclude: [photos/photos-000.tar/17]
"""


def jobs():
    yield "full", JOB.encode()
    yield "anchors", b"seed: &a 1\nindex: *a\ndatasets:\n- name: 'x'\n  shards:\n  - \"y.tar\"\n"
    yield "odd", b"%YAML 1.2\n---\n{seed: 1, seed: 2, ? [a] : b}\n...\n"


def rows():
    """The first byte: lines, a list, texts, a table, an MDS shard, token files of Megatron-LM."""
    turns = [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "!"}]
    made = [{"image": "a/../b.jpg", "conversations": turns}, {"text": "t", "images": ["./1.jpg", {"path": "/folder/2.jpg"}]},
            {"prompt": "<image>?", "answer": "!", "image": "file:///folder/a.jpg"}]
    lines = "\n".join(map(json.dumps, made))
    yield "lines", b"\0\xef\xbb\xbf" + lines.encode() + b"\r\n\n{"
    yield "list", b"\1" + json.dumps(made, indent=1).encode()
    yield "texts", b"\2one\r\n\ntwo"
    for path in sorted((DATA / "tables").glob("*.parquet")):
        yield path.stem, b"\3" + path.read_bytes()
    yield "mds", b"\4" + mds_shard([[b"picture", b"null", b"one"], [b"", b'[{"role": "user", "content": "?"}]', b""]])
    # The second byte: the size of the .bin. Documents of two sequences and of one, of each type.
    for code, size in ((1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (7, 4), (8, 2)):
        lists = struct.pack("<3i", 2, 1, 3) + struct.pack("<3q", 0, 2 * size, 3 * size) + struct.pack("<3q", 0, 2, 3)
        yield f"megatron-{code}", bytes([5, 6 * size]) + b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 3, 3) + lists


def mds_shard(rows):
    config = json.dumps({"version": 2, "format": "mds", "column_names": ["image", "messages", "text"],
                         "column_encodings": ["jpeg", "json", "str"], "column_sizes": [None] * 3}).encode()
    samples = [struct.pack("<3I", *map(len, row)) + b"".join(row) for row in rows]
    offsets = [8 + 4 * len(rows) + len(config)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(offsets) + 1}I", len(rows), *offsets) + config + b"".join(samples)


def chats():
    turns = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}, {"type": "video"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a \u00e9\U0001f600"}]},
    ]
    yield "messages", json.dumps({"messages": turns}).encode()
    yield "list", json.dumps(turns, ensure_ascii=False).encode()
    yield "urls", json.dumps(
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "1.jpg"}}]}]}
    ).encode()
    yield "deep", b"[" * 70 + b"]" * 70
    yield "escapes", rb'{"messages":[{"role":"user","content":"\ud83d\ude00\u0000\\\/\b"}]}'


def chunks():
    """Messages of DataPlane.Deliver, after a byte that says where they are cut: fields in order, `data` last."""
    head = b"\x08\x11\x10\x00\x18\xe8\x07"  # request_id 17, offset 0, length 1000
    data = b"\x2a\x05hello"
    yield "first", b"\x09" + head + b"\x22\x10" + bytes(range(16)) + b"\x32\x10" + bytes(16) + data
    yield "further", b"\x03" + head + data
    yield "empty", b"\x00" + head
    yield "data_not_last", b"\x05" + head + data + b"\x32\x10" + bytes(16)


def addresses():
    # What a source and a sink over TCP gave: their digests are right. Behind a byte that says what to repair, the same
    # envelope with other roles and flags; the target makes their digests.
    source = bytes.fromhex(
        "45564b41020001003200000087337a6308f922d819275b130e5eb682bd67bfea77ae4761204bfb24ebb7f6921c209201026bc0bb794a48d9"
        "88f9ffffef00000000cf1917b75138539e3e4bd7e037370103230082e749")
    sink = bytes.fromhex("45564b41020002000000000087337a6308f922d87411663614da81e89267101c7bca9771")
    yield "source", source
    yield "sink", sink
    for role in range(5):
        for flags in range(5):
            yield f"sealed-{role}-{flags}", b"\x03" + source[:6] + bytes([role, flags]) + source[8:]
    yield "sealed-version", b"\x02" + source[:4] + b"\x03" + source[5:]
    yield "sealed-length", b"\x01" + source[:8] + b"\xff" + source[9:]
    # Message headers: with their magic, and of growing numbers.
    yield "greeting", b"EVKS" + struct.pack("<IQ16s", 1, 7, bytes(range(16)))
    yield "part", b"EVKD" + struct.pack("<IQQQQ16s16s", 1, 7, 8, 4096, 512, bytes(range(16)), bytes(range(16)))
    yield "numbers", bytes(range(64))
    yield "zeros", bytes(256)
    yield "header", struct.pack("<8Q", 1, 2, 3, 4, 5, 6, 7, 8)


def numbers():
    yield "zeros", bytes(400)
    yield "growing", bytes(range(256))
    yield "large", b"\xff" * 300


def words():
    yield "turns", b"\x00\x20system words\x01\x08\x30user words and more\x0a\x02\x28the answer"


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(*fields):
    """A protobuf message of (number, value): whole numbers, texts, bytes, lists of whole numbers (packed)."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
            continue
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, list):
            value = b"".join(map(varint, value))
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def parts():
    # The header of a part: see docs/part-format.md. The target itself adds prefix and payload.
    yield "empty", b""
    yield "bytes", bytes(range(200))
    expansion = message((1, 3), (2, 2), (3, 1), (4, 2), (5, struct.pack("<768f", *range(768))))
    ids = message((1, "input_ids"), (2, 3), (3, [1, 4]), (4, 0))
    pixels = message((1, "pixel_values"), (2, 1), (3, [2, 12]), (4, 64), (5, expansion))
    yield "llm", message((1, "llm"), (2, 7), (3, 1), (6, 1), (7, ids), (8, 64), (9, "d/s.tar/a"))
    words = message((1, "tokens"), (2, 2), (3, [1, 16]), (4, 0), (6, message((1, 1))))
    spans = message((1, "token_position_spans"), (2, 2), (3, [0, 2]), (4, 64))
    positions = message((1, "token_positions"), (2, 2), (3, [3, 0]), (4, 64))
    yield "tokens", message((1, "llm"), (6, 1), (7, words), (7, spans), (7, positions), (8, 64), (9, "d/s.tar/a"))
    yield "vision", message((1, "vision"), (2, 7), (6, 1), (7, ids), (7, pixels), (8, 128), (9, "d/s.tar/b"))


def steps():
    """DescribeStepReply of proto/service.proto."""
    segment = message((1, 1), (2, 3), (3, 2))
    route = message((1, "vision"), (2, "llm"), (5, segment), (6, message((3, 3))), (7, 5), (8, 3), (9, [0, 1, 3]),
                    (10, 2))
    loads = message((1, "llm"), (2, struct.pack("<2d", 1.5, 2.5)), (4, [7, 9]), (6, 2), (7, b"\x09" + bytes(8)))
    llm, vision = message((1, "llm"), (5, 128)), message((1, "vision"), (4, 1), (5, 256))
    yield "whole", message((1, 4), (2, 2), (3, 90), (4, 8), (5, llm), (5, vision), (6, route), (7, loads))
    yield "empty", message((1, 4))


def problems():
    items = [{"cost_length": 40, "output_rows": 10}]
    samples = [{"llm": 50 + i, "vision": items, "audio": items[: i % 2]} for i in range(5)]
    phases = [{"name": name, "num_ranks": 2, "cost": {"linear": 1, "quadratic": 0.5}} for name in ("llm", "vision", "audio")]
    route = {"num_ranks": 2, "from": [0, 1], "from_row": [0, 0], "to": [1, 0], "to_row": [0, 0], "rows": [4, 4]}
    made = {
        "balance": {"ranks_per_node": 1, "phases": phases, "samples": samples, "microbatch": {"capacity_tokens": 200}},
        "compose": {"first": route, "second": route, "invert_first": True},
        "order": {"stages": 2, "microbatches": [{"forward": [1, 2], "backward": [2, 3]}] * 4, "iterations": 9},
    }
    for kind, problem in made.items():
        yield kind, json.dumps({kind: problem}).encode()
    for name, text in [
        ("pack", '{"pack":{"phases":[{"name":"llm","capacity":9,"length":[5,3,8]},{"name":"vision","length":[2,0,4]}],"devices":2}}'),
        ("context_parallel", '{"context_parallel":{"ranks":4,"memory_per_rank":20,"memory_per_token":1,'
         '"cost":{"attention":1,"linear":2},"tokens":[9,30,5],"mask_factor":[0,1,0.5]}}'),
    ]:
        yield name, text.encode()


def traces():
    yield "all", b"llm,vision,audio\n700,256 64,\n90,,100\n 5 ,1,2 3 4\n"
    yield "one", b"llm\n1\n\n2\n"
    yield "wrong", b"llm,smell\n1,2\n"


def processors():
    """A byte for the file, then its text."""
    for path in sorted((HERE / "golden" / "processor").glob("*/*.json")):
        yield path.parent.name, b"\0" + path.read_bytes()
    for path in sorted((DATA / "processors").glob("*/*.json")):
        which = {"processor_config.json": 1, "config.json": 2, "video_preprocessor_config.json": 3}.get(path.name, 0)
        text = path.read_bytes()
        if len(text) <= LARGEST:
            yield f"{path.parent.name}-{path.name}", bytes([which]) + text
    padded = json.loads((DATA / "processors" / "llava-pad" / "preprocessor_config.json").read_text())
    yield "pad-beyond-a-byte", b"\0" + json.dumps({**padded, "image_mean": [5.5, -1, 0.5]}).encode()
    speech = {"frame_length_ms": 20.5, "hop_length_ms": 10, "fft_overdrive": True, "mel_floor": 0.001, "preemphasis": 0.97,
              "feature_size": 2, "per_bin_mean": [[[0.5, 1]]], "per_bin_stddev": [2, 3]}
    for name in ("Gemma3n", "Gemma4"):
        yield f"speech-{name}", b"\0" + json.dumps({"feature_extractor_type": f"{name}AudioFeatureExtractor", **speech}).encode()


def templates():
    """Those of the goldens, each with one of their conversations."""
    golden = json.loads((HERE / "golden" / "text" / "templates.json").read_text())
    for i, case in enumerate(golden["cases"]):
        chat = golden["chats"][i % len(golden["chats"])]
        yield f"{i:02}", case["template"].encode() + b"\0" + json.dumps(chat).encode()


def tokenizers():
    vocabulary = {c: i for i, c in enumerate("abcdeilnoprsw")} | {"in": 13, "<|im_end|>": 14}
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 14, "content": "<|im_end|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{N}|[^\\s]+|\\s+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": ["i n"]},
    }
    yield "bpe", json.dumps(made).encode()
    made["model"] = {"type": "WordLevel", "vocab": {"plain": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    made["pre_tokenizer"] = {"type": "Whitespace"}
    made["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[UNK]", "type_id": 0}},
                              {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens":
                              {"[UNK]": {"id": "[UNK]", "ids": [1], "tokens": ["[UNK]"]}}}
    yield "words", json.dumps(made).encode()


def indices():
    yield from numbers()
    digest = "0123456789abcdef" * 2
    lengths = f"lengths {digest} {digest} {digest} 5 7 900 80"
    shard_line = f"shard photos-000.tar 10240 {digest} %22a%22 0 {digest} {digest} {digest}"
    yield "catalogue", "\n".join(["evenkeel index 1", "dataset photos", shard_line, lengths, ""]).encode()


def replies():
    """DecoderReply of isolation/decoder_message.h, as it lies in memory."""
    def facts(medium, width=0, height=0, rotation=0, frames=0, rate=0, channels=0, samples=0, fps=(0, 0)):
        return struct.pack("<B3x6I4x2Q2I", medium, width, height, rotation, frames, rate, channels, samples, 10**6, *fps)

    notes = struct.pack("<3Q", 1, 2, 3)
    text = b"a message".ljust(1024, b"\0")
    yield "image", struct.pack("<i4x", 0) + facts(1, 640, 480, 90) + notes + text
    yield "video", struct.pack("<i4x", 0) + facts(2, 320, 240, 0, frames=90, fps=(30000, 1001)) + notes + text
    yield "audio", struct.pack("<i4x", 0) + facts(3, rate=44100, channels=2, samples=441000) + notes + text
    yield "refused", struct.pack("<i4x", 15) + facts(1) + notes + text
    yield "no-status", struct.pack("<i4x", -7) + facts(9) + notes + b"!" * 1024


def python_replies():
    """JSON of isolation/python_message.h."""
    field = {"name": "pixel_values", "dtype": "float32", "per_row": True, "trailing": [3, 14, 14]}
    medium = {"medium": "image", "placeholder": "<image>", "in_template": "", "begin": "", "end": "", "stored": False,
              "fields": [field, {**field, "name": "grid", "dtype": "int64", "per_row": False, "trailing": []}]}
    texts = {
        "made": {"number": 7, "code": 0},
        "measured": {"number": 8, "code": 0, "lengths": [256, 256, 64], "runs": [[[151652], 0], [[], 64], [[151653, 13], 0]]},
        "refused": {"number": 9, "code": 3, "message": "KeyError: 'size'"},
        "no-code": {"number": 9},
        "numbers": {"number": -1, "code": 2**64, "lengths": [1.5, True, "1"], "runs": {}},
        "too-many-rows": {"number": 1, "code": 0, "lengths": [2**31, 0, 0], "runs": []},
        "description": {"name": "package.module:Class", "versions": [["torch", "2.15"]], "media": [medium]},
        "no-fields": {"name": "x", "versions": [], "media": [{**medium, "fields": []}]},
        "extent-of-0": {"name": "x", "versions": [], "media": [{**medium, "fields": [{**field, "trailing": [0]}]}]},
        "forked": {"pid": 4711},
        "ended": {"status": 9},
    }
    for name, text in texts.items():
        yield name, json.dumps(text).encode()
    yield "deep", b"[" * 50_000


def calls():
    """A byte for the call, one for the session, then the request (proto/service.proto), field by field."""
    def varint(value):
        out = b""
        while value >= 128:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def field(number, value):
        if isinstance(value, float):
            return bytes([number << 3 | 1]) + struct.pack("<d", value)
        if isinstance(value, bytes):
            return bytes([number << 3 | 2]) + varint(len(value)) + value
        return bytes([number << 3]) + varint(value)

    def message(*fields):
        return b"".join(field(number, value) for number, value in fields)

    # The second byte: 1 the session of a worker of samples, 5 that of a worker of token budgets.
    yield "describe", bytes([0, 0])
    for step in (0, 40, 5000, 10**12, 2**64 - 1):
        yield f"step-of-tokens-{step}", bytes([3, 5]) + message((2, step), (3, 1))
    yield "part-of-tokens", bytes([4, 5]) + message((2, 9), (3, 1), (4, b"llm"), (5, 1), (6, 0), (7, 0), (8, 1), (9, 0.5))
    yield "open", bytes([1, 0]) + message((3, 1), (4, 1), (5, b"fake"), (7, b"s" * 16), (8, 2))
    yield "open-other", bytes([1, 0]) + message((1, b"a" * 32), (3, 1), (5, b"ucx"), (6, b"?"), (7, b"short"))
    yield "close", bytes([2, 1])
    yield "close-none", bytes([2, 0]) + message((1, 77))
    yield "step", bytes([3, 1]) + message((2, 3), (3, 1))
    yield "last-step", bytes([3, 1]) + message((2, 2**64 - 1), (3, 2**32 - 1))
    for phase in (b"llm", b"vision", b"audio", b"smell"):
        yield f"part-{phase.decode()}", bytes([4, 1]) + message((2, 9), (3, 1), (4, phase), (5, 1), (6, 0), (7, 0),
                                                                (8, 1), (9, 0.5))
    yield "wait", bytes([5, 1]) + message((2, 1.5))
    yield "wait-never", bytes([5, 1]) + message((2, float("nan")))


def gifs():
    """Pictures of 3x4 pixels and four colours: whole, interlaced, with extensions, at a place within a larger screen."""
    screen, palette = struct.pack("<HHBBB", 9, 9, 0x81, 0, 0), bytes([0, 0, 0, 255, 80, 9, 7, 7, 7, 1, 2, 3])
    # Codes of 3 bits; 4 clears the table, so that they stay so short, and 5 is the end.
    codes = [code for i in range(0, 12, 2) for code in (4, i % 4, (i + 1) % 4)] + [5]
    packed = sum(code << 3 * i for i, code in enumerate(codes)).to_bytes(8, "little")
    pixels = bytes([2, len(packed)]) + packed + b"\0;"
    control, comment = bytes([0x21, 0xF9, 4, 1, 10, 0, 1, 0]), b"\x21\xfe\x03abc\0"
    for name, place, flags, before in (("whole", (0, 0), 0, b""), ("interlaced", (0, 0), 0x40, b""), ("placed", (4, 5), 0, control),
                                       ("comment", (0, 0), 0, comment), ("larger", (8, 8), 0, b"")):
        yield name, b"GIF89a" + screen + palette + before + b"," + struct.pack("<HHHHB", *place, 3, 4, flags) + pixels


SEEDS = {
    "fuzz_jpeg": lambda: media("images", {"jpg", "jpeg"}),
    "fuzz_png": lambda: media("images", {"png"}),
    "fuzz_webp": lambda: media("images", {"webp"}),
    "fuzz_gif": gifs,
    "fuzz_heif": lambda: media("heif", set(HEIFS)),
    "fuzz_tiff": lambda: media("images", set(TIFFS)),
    "fuzz_picture": pictures,
    "fuzz_processor_config": processors,
    "fuzz_template": templates,
    "fuzz_tokenizer": tokenizers,
    "fuzz_audio": lambda: chosen_media("audio", AUDIO, SOUND_CONTAINER),
    "fuzz_video": lambda: chosen_media("video", VIDEO, SAME_CONTAINER),
    "fuzz_tar": shards,
    "fuzz_rows": rows,
    "fuzz_job": jobs,
    "fuzz_sample_json": chats,
    "fuzz_part": parts,
    "fuzz_index": indices,
    "fuzz_planner": numbers,
    "fuzz_pack": numbers,
    "fuzz_problem_json": problems,
    "fuzz_length_trace": traces,
    "fuzz_step_description": steps,
    "fuzz_decoder_reply": replies,
    "fuzz_python_reply": python_replies,
    "fuzz_worker_service": calls,
    "fuzz_sequence": words,
    "fuzz_transport_address": addresses,
    "fuzz_transport_chunk": chunks,
}


def main():
    out = pathlib.Path(sys.argv[1])
    for target, seeds in SEEDS.items():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
