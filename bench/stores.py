"""Reading photographs over a slow network: a worker with its data in an object store behind 30 ms of latency.

    tests/stores/install build/stores
    PYTHONPATH=build/release/python python3 bench/stores.py PHOTOS [--rounds 3] [--rivals PYTHON]

PHOTOS is a folder of JPEGs, which are packed with captions into tar shards, as files and on a MinIO behind
tests/stores/slow_proxy.py (all in TMPDIR: best in memory). Each round measures one worker and one Python Loader over
the files and over s3://, with both shuffles, and with --fetch-ahead 0. The worker's process has the first half of the
processors, everything else (consumer, server, proxy) the other half, so that the server takes nothing from decoding.

Printed for each: samples a second, the median over the rounds of its ratio to the files of the same round, requests a
sample, the share of the decoder threads' time that they wait for bytes, and CPU seconds a sample. Waiting is the time
of the stages `read` and `text` (docs/metrics.md) less that of the files' round, over threads and time.

--rivals: in each round also webdataset, datasets, MosaicML Streaming and Energon, as bench/store_rivals.py runs them, on the
worker's processors.
"""

import argparse
import collections
import functools
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
sys.path[:0] = [str(ROOT / "tests" / "stores"), str(ROOT / "tests" / "e2e")]
import harness  # noqa: E402
import media  # noqa: E402
import prometheus  # noqa: E402
import servers  # noqa: E402
import slow_proxy  # noqa: E402
from process_times import cpu_seconds  # noqa: E402

PER_SHARD = 100
RIVALS = ("webdataset", "datasets", "streaming", "energon")
ORDERS = {"full": "{shuffle: full}", "blocked": "{shuffle: blocked, block_samples: 64, window_blocks: 4}"}
JOB = """\
name: stores
seed: 5
index: index
datasets: [{{name: photos, shards: ["{shards}"]}}]
processor: {{vision: {golden}/processor/qwen2-vl, tokenizer: {golden}/tokenizer, max_pixels: 1003520}}
order: {order}
batch: {{samples: {batch}}}
topology: {{ranks_per_node: 1}}
wire: u8
microbatch: {{capacity_tokens: 16384}}
phases: [{{name: llm, ranks: "0"}}, {{name: vision, ranks: "0"}}]
"""

Result = collections.namedtuple("Result", "rate cpu requests reading reads")


def pack(photos, folder, samples, max_bytes):
    files = [file for file in sorted(photos.iterdir())
             if file.suffix.lower() in (".jpg", ".jpeg") and file.stat().st_size <= max_bytes]
    if not files:
        raise SystemExit(f"{photos}: no JPEG of at most {max_bytes} bytes")
    rng = random.Random(1)
    total = 0
    for first in range(0, samples, PER_SHARD):
        shard = media.Shard(folder / f"photos-{first // PER_SHARD:03d}.tar")
        for i in range(first, min(first + PER_SHARD, samples)):
            data = rng.choice(files).read_bytes()
            total += len(data)
            shard.add(f"{i:06d}.jpg", data)
            shard.add(f"{i:06d}.txt", media.words(rng, 5, 30).encode())
        shard.close()
    return total


def counted(families):
    def total(name, label):
        return dict(families[name].by(label)) if name in families else {}

    stages = families["evenkeel_stage_duration_seconds"].by("stage", "_sum")
    return {"requests": sum(total("evenkeel_store_requests_total", "outcome").values()),
            "repeated": sum(total("evenkeel_store_repeated_requests_total", "").values()),
            "reading": stages.get("read", 0) + stages.get("text", 0), **total("evenkeel_store_reads_total", "outcome")}


def measure(job, options, env, processors):
    """A run of one worker and one Loader; what happens before the warm-up's end does not count."""
    import evenkeel
    worker = harness.Worker(job, "--metrics", "127.0.0.1:0", "--threads", options.threads, *options.serve, env=env,
                            wrapper=("taskset", "-c", ",".join(map(str, processors))))
    try:
        at_start = counted(prometheus.scrape(worker.facts["metrics"]))
        loader = evenkeel.Loader(worker.address, rank=0, num_steps=options.warmup + options.steps,
                                 prefetch_steps=options.prefetch_steps, prefetch_bytes=4 << 30)
        for number, _ in enumerate(loader):
            if number + 1 == options.warmup:
                begin = time.monotonic()
                cpu = cpu_seconds(worker.process.pid) + time.process_time()
        seconds = time.monotonic() - begin
        cpu = cpu_seconds(worker.process.pid) + time.process_time() - cpu
        time.sleep(1.5)  # what stores did is read every second
        after = counted(prometheus.scrape(worker.facts["metrics"]))
    finally:
        worker.kill()
    samples = options.steps * options.batch
    # What is requested and read runs ahead of the consumer, so these are of all of the run's steps.
    made = (options.warmup + options.steps) * options.batch
    change = {name: value - at_start.get(name, 0) for name, value in after.items()}
    return Result(samples / seconds, cpu / samples, change["requests"] / made, change["reading"] / made, change)


def measure_rival(name, options, env, processors, shards):
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, processors)), options.rivals, ROOT / "bench" / "store_rivals.py", name,
         "--endpoint", env["AWS_ENDPOINT_URL"], "--bucket", servers.BUCKET, "--prefix", "train", "--shards", str(shards)],
        env={**os.environ, **env, "S3_ENDPOINT_URL": env["AWS_ENDPOINT_URL"], "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    said = json.loads(done.stdout.strip().splitlines()[-1])
    return Result(said["rate"], said["cpu"], 0, 0, {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2000, help="packed, which is an epoch")
    parser.add_argument("--max-bytes", type=int, default=1 << 20, help="of a photograph")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--warmup", type=int, default=8, help="steps")
    parser.add_argument("--threads", type=int, default=0, help="decoders; 0: as many as processors of the worker")
    parser.add_argument("--prefetch-steps", type=int, default=16)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--megabytes-per-second", type=float, default=200)
    parser.add_argument("--rivals", metavar="PYTHON", help="an interpreter with the libraries to compare with")
    parser.add_argument("--serve", nargs="*", default=[], help="more options of `evenkeel serve`")
    options = parser.parse_args()
    everything = sorted(os.sched_getaffinity(0))
    processors, others = everything[:len(everything) // 2 or 1], everything[len(everything) // 2:]
    options.threads = options.threads or len(processors)
    os.sched_setaffinity(0, others)
    with tempfile.TemporaryDirectory() as made:
        run(options, pathlib.Path(made), processors)


def run(options, folder, processors):
    for name in ("files", "server"):
        (folder / name).mkdir()
    total = pack(options.photos, folder / "files", options.samples, options.max_bytes)
    last = (options.samples - 1) // PER_SHARD
    if options.rivals:
        subprocess.run([options.rivals, ROOT / "bench" / "store_rivals.py", "prepare", "--folder", folder / "files"], check=True)
    pattern = f"photos-{{000..{last:03d}}}.tar"
    print(f"{options.samples} photographs of {total / options.samples / 1000:.0f} kB on average; {len(processors)} "
          f"processors and {options.threads} threads of the worker; {options.latency_ms:.0f} ms, "
          f"{options.megabytes_per_second:.0f} MB/s a connection", flush=True)
    with servers.MinIO(folder / "server") as server:
        server.allow_everyone()
        server.put_folder(folder / "files", "train", "**/*")
        with slow_proxy.SlowProxy(server.host, options.latency_ms, options.megabytes_per_second) as proxy:
            env = server.environment(host=proxy.address)
            rivals = [functools.partial(measure_rival, name, options, env, processors, last + 1) for name in RIVALS] \
                if options.rivals else []
            compare(options, folder, processors, env, pattern, rivals)


def compare(options, folder, processors, env, pattern, rivals):
    jobs = {}
    for order, text in ORDERS.items():
        for place, prefix in (("files", folder / "files"), ("store", f"s3://{servers.BUCKET}/train")):
            (folder / order / place).mkdir(parents=True)
            job = folder / order / place / "job.yaml"
            job.write_text(JOB.format(shards=f"{prefix}/{pattern}", golden=harness.GOLDEN, order=text,
                                      batch=options.batch))
            harness.run("index", "--job", job, env=env)
            jobs[order, place] = job
    rows = [("full", "files", []), ("full", "store", []), ("full", "store", ["--fetch-ahead", "0"]),
            ("blocked", "files", []), ("blocked", "store", [])]
    results = collections.defaultdict(list)
    own = list(options.serve)
    for number in range(options.rounds):
        for order, place, more in rows[::-1] if number % 2 else rows:
            options.serve = own + more
            key = f"{order}, {place}{' '.join(['', *more])}"
            results[key].append(measure(jobs[order, place], options, env, processors))
            print(f"round {number + 1}: {key}: {results[key][-1].rate:.1f} samples/s", flush=True)
        for rival in rivals:
            result = rival()
            if result is not None:
                results[rival.args[0]].append(result)
                print(f"round {number + 1}: {rival.args[0]}: {result.rate:.1f} samples/s", flush=True)
    print_table(rows, results, options)
    if any(rival.args[0] in results for rival in rivals):
        print_rivals(rivals, results)


def print_rivals(rivals, results):
    own = results["full, store"]
    print("\n| from the store | samples/s | ours over it | CPU ms a sample | over ours |\n|---|---:|---:|---:|---:|")
    for key in ("full, store", *(rival.args[0] for rival in rivals)):
        runs = results[key]
        if runs:
            print(f"| {key} | {statistics.median(run.rate for run in runs):.1f} | "
                  f"{statistics.median(one.rate / run.rate for one, run in zip(own, runs)):.2f} | "
                  f"{statistics.median(run.cpu for run in runs) * 1000:.1f} | "
                  f"{statistics.median(run.cpu / one.cpu for one, run in zip(own, runs)):.2f} |", flush=True)


def print_table(rows, results, options):
    print("| order, place | samples/s | of files | requests a sample | waiting for bytes | CPU ms a sample | reads |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for order, place, more in rows:
        key = f"{order}, {place}{' '.join(['', *more])}"
        runs, files = results[key], results[f"{order}, files"]
        ratio = statistics.median(run.rate / file.rate for run, file in zip(runs, files))
        waiting = statistics.median((run.reading - file.reading) * run.rate / options.threads
                                    for run, file in zip(runs, files))
        rate, requests, cpu = (statistics.median(getattr(run, name) for run in runs)
                               for name in ("rate", "requests", "cpu"))
        reads = ", ".join(f"{name} {sum(run.reads.get(name, 0) for run in runs):.0f}"
                          for name in ("ready", "late", "direct", "repeated")) if place == "store" else ""
        print(f"| {key} | {rate:.1f} | {ratio:.3f} | {requests:.3f} | {waiting:.1%} | {cpu * 1000:.1f} | {reads} |",
              flush=True)


if __name__ == "__main__":
    main()
