"""Shards of small mixed media, jobs over them that differ in topology alone, and real workers."""

import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import wave

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import media  # noqa: E402

BINARY = os.environ.get("EVENKEEL_BIN", str(ROOT / "build" / "release" / "cli" / "evenkeel"))
STEPS = 3
SAMPLES_PER_STEP = 14
TOTAL = 48
CAPACITY = 700  # tokens a microbatch


def png(rng, damaged):
    width, height = rng.randint(40, 180), rng.randint(40, 180)
    pixels = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 256, (height, width, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    data = out.getvalue()
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2) if damaged else data


def wav(rng):
    samples = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 3000, rng.randint(4000, 40000)).astype(np.int16)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def text(rng):
    return " ".join(rng.choice(["keel", "even", "wave", "harbour", "lantern", "salt"]) for _ in range(rng.randint(3, 60)))


def write_shard(path):
    """Images, speech and text, alone and together; two images are damaged, which only their decoding tells."""
    rng = random.Random(11)
    with contextlib.closing(media.Shard(path)) as shard:
        for i in range(TOTAL):
            kind = i % 4
            if kind == 0:
                shard.add(f"{i:03d}.png", png(rng, damaged=i in (8, 20)))
                shard.add(f"{i:03d}.txt", text(rng).encode())
            elif kind == 1:
                shard.add(f"{i:03d}.wav", wav(rng))
                shard.add(f"{i:03d}.txt", text(rng).encode())
            elif kind == 2:
                shard.add(f"{i:03d}.txt", text(rng).encode())
            else:
                content = [{"type": "image", "image": "one.png"}, {"type": "text", "text": text(rng)},
                           {"type": "audio", "audio": "two.wav"}, {"type": "image", "image": "three.png"},
                           {"type": "text", "text": text(rng)}]
                messages = [{"role": "user", "content": content}, {"role": "assistant", "content": text(rng)}]
                shard.add(f"{i:03d}.one.png", png(rng, False))
                shard.add(f"{i:03d}.two.wav", wav(rng))
                shard.add(f"{i:03d}.three.png", png(rng, False))
                shard.add(f"{i:03d}.json", json.dumps({"messages": messages}).encode())


def write_job(folder, name, count, algorithm, runs, microbatch):
    """Jobs that differ in their topology and balancing alone: one index and one stream serves all."""
    names = f"0-{count - 1}" if count > 1 else "0"
    path = folder / f"{name}.yaml"
    path.write_text(f"""\
name: training
seed: 5
index: index
datasets: [{{name: mixed, shards: ["mixed.tar"]}}]
processor:
  vision: {GOLDEN}/processor/qwen2-vl
  audio: {GOLDEN}/processor/qwen2-audio
  tokenizer: {GOLDEN}/tokenizer
  max_pixels: 12544
batch: {{samples: {SAMPLES_PER_STEP}}}
limits: {{max_llm_length: {CAPACITY}}}
topology: {{ranks_per_node: 2}}
microbatch: {microbatch}
phases:
  - {{name: llm, ranks: "{names}", algorithm: {algorithm}, cost: {{linear: 1, quadratic: 0.002}}}}
  - {{name: vision, ranks: "{names}", algorithm: {algorithm}, runs: {runs}}}
  - {{name: audio, ranks: "{names}", algorithm: {algorithm}, runs: {runs}}}
""")
    return path


def make_index(job):
    done = subprocess.run([BINARY, "index", "--job", str(job)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def worker(job, *options):
    """A real worker process; yields its endpoint."""
    process = subprocess.Popen([BINARY, "serve", "--job", str(job), "--listen", "127.0.0.1:0", *options],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        assert line, "the worker did not start"
        yield json.loads(line)["address"]
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


def alone(source, **options):
    """A loader of one of several ranks, whose other ranks have no process."""
    import evenkeel
    return evenkeel.Loader(source, some_ranks=True, **options)


def vocabulary():
    tokenizer = json.loads((GOLDEN / "tokenizer" / "tokenizer.json").read_text())
    return max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])]) + 1
