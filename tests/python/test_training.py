"""Rearranging changes nothing: the same loss and gradients on 2 and 4 balanced ranks as on one without balancing."""

import io
import json
import os
import pathlib
import random
import subprocess
import tarfile
import wave

import numpy as np
import pytest
from PIL import Image

import ranks
import toy

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
BINARY = os.environ.get("EVENKEEL_BIN", str(ROOT / "build" / "release" / "cli" / "evenkeel"))
STEPS = 3
SAMPLES_PER_STEP = 14
TOTAL = 48
CAPACITY = 700  # tokens a microbatch

pytestmark = pytest.mark.skipif(not os.path.exists(BINARY), reason=f"{BINARY} is not built (set EVENKEEL_BIN)")


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
    with tarfile.open(path, "w") as tar:
        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for i in range(TOTAL):
            kind = i % 4
            if kind == 0:
                add(f"{i:03d}.png", png(rng, damaged=i in (8, 20)))
                add(f"{i:03d}.txt", text(rng).encode())
            elif kind == 1:
                add(f"{i:03d}.wav", wav(rng))
                add(f"{i:03d}.txt", text(rng).encode())
            elif kind == 2:
                add(f"{i:03d}.txt", text(rng).encode())
            else:
                content = [{"type": "image", "image": "one.png"}, {"type": "text", "text": text(rng)},
                           {"type": "audio", "audio": "two.wav"}, {"type": "image", "image": "three.png"},
                           {"type": "text", "text": text(rng)}]
                messages = [{"role": "user", "content": content}, {"role": "assistant", "content": text(rng)}]
                add(f"{i:03d}.one.png", png(rng, False))
                add(f"{i:03d}.two.wav", wav(rng))
                add(f"{i:03d}.three.png", png(rng, False))
                add(f"{i:03d}.json", json.dumps({"messages": messages}).encode())


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


def train(job, count):
    worker = subprocess.Popen([BINARY, "serve", "--job", str(job), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        line = worker.stdout.readline()
        assert line, "the worker did not start"
        tokenizer = json.loads((GOLDEN / "tokenizer" / "tokenizer.json").read_text())
        vocabulary = max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])]) + 1
        return ranks.run(count, toy.train, json.loads(line)["address"], STEPS, vocabulary)
    finally:
        worker.kill()
        worker.wait(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    write_shard(folder / "mixed.tar")
    job = write_job(folder, "one", 1, "none", "once_per_step", "{capacity_tokens: 0}")
    subprocess.run([BINARY, "index", "--job", str(job)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """One rank, everything in one microbatch, nothing balanced and nothing moved."""
    [steps] = train(folder / "one.yaml", 1)
    assert all(microbatches == 1 and moved == 0 for _, _, microbatches, moved, _ in steps)
    assert sum(masked for *_, masked in steps) > 0, "a damaged image is among them"
    for phase in ("vision", "audio", "llm"):
        assert any(np.abs(g).max() > 0 for _, gradients, *_ in steps
                   for name, g in gradients.items() if name.startswith(phase)), f"{phase} is trained"
    return steps


@pytest.mark.parametrize("runs", ["once_per_step", "once_per_microbatch"])
@pytest.mark.parametrize("count,algorithm", [(2, "balance_without_moving"), (4, "balance_without_moving"),
                                             (2, "greedy_packed"), (4, "greedy_packed")])
def test_balanced_ranks_train_as_one_rank_does(folder, expected, count, algorithm, runs):
    job = write_job(folder, f"{count}-{algorithm}-{runs}", count, algorithm, runs, f"{{capacity_tokens: {CAPACITY}}}")
    per_rank = train(job, count)
    assert max(microbatches for _, _, microbatches, _, _ in per_rank[0]) > 1
    if algorithm == "greedy_packed":
        assert sum(moved for rank in per_rank for _, _, _, moved, _ in rank) > 0, "rows travel between ranks"
    for number, (loss, gradients, _, _, masked) in enumerate(expected):
        assert sum(rank[number][-1] for rank in per_rank) == masked
        for rank in per_rank:
            assert abs(rank[number][0] - loss) <= 1e-10 * abs(loss)
            for name, gradient in gradients.items():
                scale = np.abs(gradient).max()
                assert np.abs(rank[number][1][name] - gradient).max() <= 1e-10 * scale, (number, name)
