#!/usr/bin/env python3
"""Makes the seeds of every fuzz target: tests/fuzz_seeds.py OUT puts them into OUT/fuzz_NAME/.

Media are the golden files; shards, jobs, chats and addresses are written here. Needs Python alone, and gives the
same files every time.
"""

import io
import json
import pathlib
import struct
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "golden" / "data"
# In the order of the targets' own tables: the first byte of an input chooses.
AUDIO = ["wav", "flac", "mp3", "m4a", "aac", "ac3", "ogg", "mka"]
VIDEO = ["mp4", "avi", "webm"]
SAME_CONTAINER = {"opus": "ogg", "oga": "ogg", "mkv": "webm", "mov": "mp4"}
LARGEST = 100_000


def media(folder, suffixes):
    for path in sorted((DATA / folder).iterdir()):
        if path.suffix[1:] in suffixes and path.stat().st_size <= LARGEST:
            yield path.name, path.read_bytes()


def chosen_media(folder, table):
    for name, data in media(folder, set(table) | set(SAME_CONTAINER)):
        suffix = name.rsplit(".", 1)[1]
        suffix = SAME_CONTAINER.get(suffix, suffix)
        if suffix in table:
            yield name, bytes([table.index(suffix)]) + data


def shard(form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, body in [
            ("a.txt", b"words"),
            ("a.0.jpg", b"\xff\xd8\xff" + bytes(600)),
            ("b.json", b'{"messages":[{"role":"user","content":"?"},{"role":"assistant","content":"!"}]}'),
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


def addresses():
    # Magic, lengths, then what UCX gave; and message headers of 64 bytes of growing numbers.
    yield "numbers", bytes(range(64))
    yield "zeros", bytes(256)
    yield "header", struct.pack("<8Q", 1, 2, 3, 4, 5, 6, 7, 8)


def numbers():
    yield "zeros", bytes(400)
    yield "growing", bytes(range(256))
    yield "large", b"\xff" * 300


def words():
    yield "turns", b"\x00\x20system words\x01\x08\x30user words and more\x0a\x02\x28the answer"


def parts():
    # The header of a part: see docs/part-format.md. The target itself adds prefix and payload.
    yield "empty", b""
    yield "bytes", bytes(range(200))


SEEDS = {
    "fuzz_jpeg": lambda: media("images", {"jpg"}),
    "fuzz_png": lambda: media("images", {"png"}),
    "fuzz_webp": lambda: media("images", {"webp"}),
    "fuzz_audio": lambda: chosen_media("audio", AUDIO),
    "fuzz_video": lambda: chosen_media("video", VIDEO),
    "fuzz_tar": shards,
    "fuzz_job": jobs,
    "fuzz_sample_json": chats,
    "fuzz_part": parts,
    "fuzz_index": numbers,
    "fuzz_planner": numbers,
    "fuzz_sequence": words,
    "fuzz_transport_address": addresses,
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
