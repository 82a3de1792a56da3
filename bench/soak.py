"""Does a worker's memory stay flat? Many short consumers of one worker, and its resident memory over time.

    python3 bench/soak.py build/release/cli/evenkeel --rounds 60 --consumers 10 --steps 12 --memory 256MiB

Prints one line every few rounds: consumers served, resident MiB, anonymous MiB, open files, threads, CPU seconds. The
samples are short texts with a small picture in every fourth, so that parts are small and of many sizes. Every third
consumer is killed half-way.
"""

import argparse
import io
import json
import pathlib
import random
import signal
import subprocess
import tarfile
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden"
JOB = """\
name: soak
seed: 3
index: index
datasets: [{{name: texts, shards: ["texts.tar"]}}]
processor: {{vision: {golden}/processor/qwen2-vl, tokenizer: {golden}/tokenizer, max_pixels: 50176}}
batch: {{samples: 32}}
topology: {{ranks_per_node: 4}}
microbatch: {{capacity_tokens: 4096}}
phases: [{{name: llm, ranks: "0-3"}}, {{name: vision, ranks: "0-3"}}]
"""


def picture(rng):
    """A PPM turned into a PNG without any library: grey noise, 8 bits."""
    import struct
    import zlib
    width, height = rng.randint(60, 300), rng.randint(60, 300)
    rows = b"".join(b"\0" + rng.randbytes(width) for _ in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def make_data(folder, binary, pictures):
    rng = random.Random(7)
    with tarfile.open(folder / "texts.tar", "w") as tar:
        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for i in range(4000):
            if pictures and i % 4 == 0 and i < 400:
                add(f"{i:05d}.png", picture(rng))
            words = " ".join(rng.choice(["keel", "even", "wave", "harbour", "lantern"]) for _ in range(rng.randint(5, 40)))
            add(f"{i:05d}.txt", words.encode())
    job = folder / "job.yaml"
    job.write_text(JOB.format(golden=GOLDEN))
    subprocess.run([binary, "index", "--job", str(job)], check=True, capture_output=True)
    return job


def status(pid):
    words = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {"rss_mib": int(words["VmRSS"].split()[0]) / 1024, "anon_mib": int(words["RssAnon"].split()[0]) / 1024,
            "files": len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())), "threads": int(words["Threads"]),
            "cpu_s": (int(ticks[11]) + int(ticks[12])) / 100}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--consumers", type=int, default=10, help="of a round")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--transport", default="grpc")
    parser.add_argument("--plan-memory", default="256MiB")
    parser.add_argument("--no-pictures", action="store_true")
    parser.add_argument("--every", type=int, default=5, help="rounds between two lines")
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        job = make_data(pathlib.Path(name), options.binary, not options.no_pictures)
        worker = subprocess.Popen([options.binary, "serve", "--job", str(job), "--listen", "127.0.0.1:0", "--memory",
                                   options.memory, "--plan-memory", options.plan_memory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = json.loads(worker.stdout.readline())["address"]
            served = 0
            for number in range(1, options.rounds + 1):
                running = []
                for _ in range(options.consumers):
                    first = rng.randrange(0, 100000)
                    running.append(subprocess.Popen(
                        [options.binary, "fetch", "--endpoints", address, "--ranks", f"{rng.randrange(4)}", "--from", str(first),
                         "--steps", str(options.steps), "--transport", options.transport],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                    if len(running) % 4 == 0 or len(running) == options.consumers:
                        for i, process in enumerate(running[-4:]):
                            if i == 2:
                                try:
                                    process.wait(0.15)
                                except subprocess.TimeoutExpired:
                                    process.send_signal(signal.SIGKILL)
                            process.wait(120)
                served += options.consumers
                if number % options.every == 0 or number == 1:
                    figures = status(worker.pid)
                    print(f"{served:6d} consumers", "  ".join(f"{key} {value:7.1f}" for key, value in figures.items()),
                          flush=True)
        finally:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    main()
