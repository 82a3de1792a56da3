"""Indexing JSON lines whose media are objects of a store with 30 ms of latency.

    tests/stores/install build/stores
    PYTHONPATH=build/release/python python3 bench/store_index.py [--rows 100000]

Rows of JSON lines name one JPEG each, an object of its own in a MinIO behind tests/stores/slow_proxy.py. Three runs of
`evenkeel index`: the first, one in which nothing has changed, and one in which one object in a hundred has. Printed for each:
seconds, rows a second, and the seconds over the floor of the network, which is one latency for each of the requests that a row
needs, with as many in flight as the indexer has (32 for each of its threads, 64 at most): two for a new object (its bytes, and
that it did not change meanwhile), one for a known one.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "stores"), str(ROOT / "tests" / "e2e")]
import harness  # noqa: E402
import media  # noqa: E402
import servers  # noqa: E402
import slow_proxy  # noqa: E402

LINES = 10  # files of rows
IN_FLIGHT = min(64, 32 * len(os.sched_getaffinity(0)))  # of a thread 32, of a process 64
JOB = """\
name: rows
index: index
datasets: [{{name: rows, shards: ["{shards}"], media: "{media}"}}]
processor: {{vision: {golden}/processor/qwen2-vl, tokenizer: {golden}/tokenizer, max_pixels: 50176}}
batch: {{samples: 32}}
phases: [{{name: llm, ranks: "0"}}, {{name: vision, ranks: "0"}}]
"""


def put(server, pictures, numbers):
    def one(number):
        server.put(f"media/{number // 1000}/{number}.jpg", pictures[number % len(pictures)])

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for _ in threads.map(one, numbers):
            pass


def write_rows(folder, rows):
    of_file = (rows + LINES - 1) // LINES
    for file in range(LINES):
        with open(folder / f"rows-{file}.jsonl", "w") as out:
            for number in range(file * of_file, min((file + 1) * of_file, rows)):
                out.write(json.dumps({"image": f"{number // 1000}/{number}.jpg", "text": f"picture {number}"}) + "\n")


def index(job, env):
    begin = time.monotonic()
    done = harness.run("index", "--job", job, "--json", env=env, timeout=24 * 3600)
    return time.monotonic() - begin, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--megabytes-per-second", type=float, default=200)
    options = parser.parse_args()
    rng = random.Random(1)
    pictures = [media.image_bytes(rng, "jpg", 64 + 8 * i, 96) for i in range(16)]
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "server").mkdir()
        write_rows(folder, options.rows)
        job = folder / "job.yaml"
        job.write_text(JOB.format(shards=f"{folder}/rows-{{0..{LINES - 1}}}.jsonl", golden=harness.GOLDEN,
                                  media=f"s3://{servers.BUCKET}/media"))
        with servers.MinIO(folder / "server") as server:
            put(server, pictures, range(options.rows))
            with slow_proxy.SlowProxy(server.host, options.latency_ms, options.megabytes_per_second) as proxy:
                env = server.environment(host=proxy.address)
                print(f"{options.rows} rows, {options.latency_ms:.0f} ms, {IN_FLIGHT} requests in flight")
                print("| run | seconds | rows/s | over the floor | shards read |")
                print("|---|---:|---:|---:|---:|")
                run(job, env, "first", options, 2)
                run(job, env, "nothing changed", options, 1)
                # In one of the files of rows.
                changed = range(options.rows // LINES // 10)
                put(server, pictures[::-1], changed)
                run(job, env, f"{len(changed)} objects changed", options, 1)


def run(job, env, name, options, requests):
    seconds, done = index(job, env)
    assert done["samples"] == options.rows, done
    floor = options.rows * requests * options.latency_ms / 1000 / IN_FLIGHT
    print(f"| {name} | {seconds:.1f} | {options.rows / seconds:.0f} | {seconds / floor:.2f} | {done['shards']['read']} |",
          flush=True)


if __name__ == "__main__":
    main()
