"""Throughput of a worker's Python processes against the same processor called in one process without Evenkeel.

    OMP_NUM_THREADS=1 PYTHONPATH=build/release/python PYTHON bench/python_processor.py [--pictures N] [--size WxH] [--rounds N]

PYTHON has transformers, torch and torchvision. The processor is Janus' (bicubic to 384x384) with random special tokens, or
that of --checkpoint. Both sides open the same JPEG files; the worker has one thread, and so one Python process. Rounds
alternate between both. Prints items a second of wall time, and items a second of CPU time, which other work on the machine
disturbs less: the worker's counts the worker and all of its processes. The last line is the ratio of the medians.
"""

import argparse
import io
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("EVENKEEL_BIN", str(ROOT / "build" / "release" / "cli" / "evenkeel"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import evenkeel  # noqa: E402
import media  # noqa: E402


def write_checkpoint(folder):
    import transformers
    from transformers.models.janus.image_processing_janus import JanusImageProcessor
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(ROOT / "tests/golden/tokenizer/tokenizer.json"), eos_token="<|endoftext|>", pad_token="<|endoftext|>",
        extra_special_tokens={"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>", "eoi_token": "<end_of_image>"})
    transformers.JanusProcessor(JanusImageProcessor(), words, num_image_tokens=576).save_pretrained(folder)
    return folder


def write_job(folder, checkpoint, pictures, batch):
    shard = media.Shard(folder / "all.tar")
    for i, data in enumerate(pictures):
        shard.add(f"{i:05d}.jpg", data)
        shard.add(f"{i:05d}.txt", b"a boat")
    shard.close()
    job = folder / "job.yaml"
    job.write_text(f"""\
seed: 1
index: index
datasets: [{{name: all, shards: ["all.tar"]}}]
processor: {{folder: "{checkpoint}", python: transformers, chat: plain}}
batch: {{samples: {batch}}}
order: {{shuffle: none}}
phases:
  - {{name: llm, ranks: "0", algorithm: none}}
  - {{name: vision, ranks: "0", algorithm: none}}
""")
    subprocess.run([BINARY, "index", "--job", job, "--threads", "1", "--python", sys.executable], check=True, stdout=subprocess.DEVNULL)
    return job


def descendants(pid):
    """The process and all below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    out, left = [], [pid]
    while left:
        out.append(left.pop())
        left += parents.get(out[-1], [])
    return out


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def bare(processor, pictures):
    """(wall, CPU) seconds: opened, processed, made to NumPy."""
    from PIL import Image, ImageOps
    token = processor.image_token
    wall, cpu = time.monotonic(), time.process_time()
    for data in pictures:
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        out = processor(text=[token], images=[picture], return_tensors="pt", add_special_tokens=False)
        out["pixel_values"].numpy()
    return time.monotonic() - wall, time.process_time() - cpu


def served(process, address, first, steps):
    """The same of a worker, which keeps parts: no step is asked for twice. Steps are prefetched as in training."""
    seconds, own = cpu_seconds(descendants(process.pid)), cpu_seconds([process.pid])
    wall = time.monotonic()
    with evenkeel.Loader(address, rank=0, first_step=first, num_steps=steps) as loader:
        for step in loader:
            assert step.encoders["vision"]["item_valid"].all()
    wall = time.monotonic() - wall
    seconds = cpu_seconds(descendants(process.pid)) - seconds
    print(f"        the worker itself: {(cpu_seconds([process.pid]) - own) / seconds:.2f} of the CPU time")
    return wall, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--pictures", type=int, default=96)
    parser.add_argument("--size", default="1024x768")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    import torch
    import transformers
    torch.set_num_threads(1)
    width, height = map(int, arguments.size.split("x"))
    rng = random.Random(1)
    some = [media.image_bytes(rng, "jpg", width, height) for _ in range(8)]
    pictures = [some[i % len(some)] for i in range(arguments.pictures)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        checkpoint = arguments.checkpoint or write_checkpoint(folder / "checkpoint")
        processor = transformers.AutoProcessor.from_pretrained(checkpoint)
        job = write_job(folder, checkpoint.absolute(), pictures, arguments.batch)
        process = subprocess.Popen([BINARY, "serve", "--job", job, "--listen", "127.0.0.1:0", "--threads", "1", "--python", sys.executable],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = json.loads(process.stdout.readline())["address"]
            steps = len(pictures) // arguments.batch
            rounds = {"bare": [], "served": []}
            bare(processor, pictures[:8])
            served(process, address, 0, 1)
            for number in range(arguments.rounds):
                for kind, seconds in (("bare", bare(processor, pictures)), ("served", served(process, address, 1 + number * steps, steps))):
                    rounds[kind].append([len(pictures) / max(second, 1e-3) for second in seconds])
                    print(f"{kind:7} {rounds[kind][-1][0]:7.1f} items/s   {rounds[kind][-1][1]:7.1f} items a CPU second", flush=True)
        finally:
            process.kill()
            process.wait()
    medians = {kind: [statistics.median(column) for column in zip(*values)] for kind, values in rounds.items()}
    print(f"ratio   {medians['served'][0] / medians['bare'][0]:.3f} of items/s   {medians['served'][1] / medians['bare'][1]:.3f} of items a CPU second")


if __name__ == "__main__":
    main()
