"""Runs the demo's processes: packs, indexes, serves, trains, kills one worker, and reports."""

import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import picture  # noqa: E402

RANKS = 4
WORKERS = 3
STEPS = 10
DEADLINE_SECONDS = 600


def start_worker(binary, job, log):
    process = subprocess.Popen([binary, "serve", "--job", str(job), "--listen", "127.0.0.1:0", "--threads", "1"],
                               stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a worker did not start; see {log}:\n{pathlib.Path(log).read_text()[-2000:]}")
    return process, json.loads(line)["address"]


def start_rank(rank, endpoints, out, rendezvous):
    command = [sys.executable, str(HERE / "train.py"), "--rank", str(rank), "--ranks", str(RANKS), "--endpoints",
               endpoints, "--steps", str(STEPS), "--rendezvous", rendezvous, "--report",
               str(out / f"rank-{rank}.json")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(out / f"rank-{rank}.log", "w"), text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def follow(process, victim):
    """Prints the first rank's lines; kills `victim` half-way."""
    for line in process.stdout:
        print("  " + line.rstrip(), flush=True)
        if line.startswith(f"step {STEPS // 2 - 1}:"):
            victim.send_signal(signal.SIGKILL)
            print("  -- one of the three workers was killed (SIGKILL)", flush=True)


def train(binary, out):
    workers = [start_worker(binary, out / "job.yaml", out / f"worker-{i}.log") for i in range(WORKERS)]
    endpoints = ",".join(address for _, address in workers)
    print(f"{WORKERS} workers serve at {endpoints}")
    rendezvous = tempfile.mktemp(dir=out)
    ranks = [start_rank(rank, endpoints, out, rendezvous) for rank in range(RANKS)]
    follower = threading.Thread(target=follow, args=(ranks[0], workers[1][0]))
    follower.start()
    try:
        end = time.monotonic() + DEADLINE_SECONDS
        for rank, process in enumerate(ranks):
            if process.wait(max(1, end - time.monotonic())) != 0:
                sys.exit(f"rank {rank} failed:\n{(out / f'rank-{rank}.log').read_text()[-3000:]}")
    finally:
        for process in ranks + [worker for worker, _ in workers]:
            if process.poll() is None:
                process.terminate()
        follower.join(10)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


def loads_by_phase(reports):
    """{phase: ([tokens per rank of every step] before, after)}; steps without a token of the phase are left out."""
    out = {}
    for step in reports[0]["loads"]:
        for phase, loads in step.items():
            if sum(loads["tokens_after"]) > 0:
                before, after = out.setdefault(phase, ([], []))
                before.append(loads["tokens_before"])
                after.append(loads["tokens_after"])
    return out


def imbalance(steps):
    """max/mean over the ranks of every step: a step waits for its slowest rank."""
    return [max(loads) * len(loads) / sum(loads) for loads in steps]


def mean(values):
    return sum(values) / len(values)


def equal_items(steps):
    """(tokens of an item, the least possible mean of max/mean) where all items of a phase have the same size."""
    size = math.gcd(*(load for loads in steps for load in loads))
    counts = [sum(loads) // size for loads in steps]
    if size < 2 or max(counts) > 64 * RANKS:
        return None
    return size, mean([-(-count // RANKS) * RANKS / count for count in counts])


def print_loads(phases):
    print(f"\nTokens per rank, summed over {STEPS} steps; max/mean: the slowest rank of a step over the mean, on average")
    print(f"{'phase':8} {'':8} " + " ".join(f"{'rank ' + str(r):>9}" for r in range(RANKS)) + "  max/mean")
    for phase, (before, after) in phases.items():
        for name, steps in (("before", before), ("after", after)):
            print(f"{phase:8} {name:8} " + " ".join(f"{sum(column):9d}" for column in zip(*steps))
                  + f"  {mean(imbalance(steps)):8.3f}")
    print("\nmax/mean of every step in turn (1.00: all ranks are equal)")
    for phase, (before, after) in phases.items():
        for name, steps in (("before", before), ("after", after)):
            print(f"{phase:8} {name:8} " + " ".join(f"{ratio:5.2f}" for ratio in imbalance(steps)))
    print("\nWhat balancing gains: a phase takes as long as its slowest rank")
    for phase, (before, after) in phases.items():
        waited, waits = sum(map(max, before)), sum(map(max, after))
        print(f"{phase:8} {100 * (1 - waits / waited):5.1f} % less time, if every token takes the same "
              f"({waited} tokens of the slowest ranks before, {waits} after)")
    for phase, (_, after) in phases.items():
        equal = equal_items(after)
        if equal is not None and mean(imbalance(after)) > 1.02:
            print(f"{phase:8} stays uneven because all its items have the same {equal[0]} tokens: a rank has a whole "
                  f"number of them, and no assignment is below {equal[1]:.3f}")


def print_report(reports, out):
    phases = loads_by_phase(reports)
    print_loads(phases)
    stats = [report["stats"] for report in reports]
    seconds = max(report["seconds"] for report in reports)
    received = sum(s["bytes"] for s in stats)
    print(f"\nreceived        {received / 1e6:.1f} MB over {stats[0]['transport']}")
    print(f"consumer wait   {sum(s['wait_seconds'] for s in stats) / RANKS:.2f} s a rank of {seconds:.1f} s")
    print(f"samples         {reports[0]['samples']}, {reports[0]['samples'] / seconds:.1f} a second")
    print(f"workers lost    {max(s['replaced_workers'] for s in stats)} (replaced; every payload's hash was checked)")
    path = out / "imbalance.svg"
    path.write_text(picture.imbalance_svg({phase: (imbalance(before), imbalance(after))
                                           for phase, (before, after) in phases.items()}))
    print(f"picture         {path}")


def short(path):
    """Relative to the folder that the demo runs in, where it lies in it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def print_next(binary, out):
    print(f"""
What to do next
  the same for one step, without decoding anything:         {binary} plan --job {out}/job.yaml --step 0
  your own images, audio, video and text:                   scripts/demo FOLDER
  from a Hugging Face dataset and checkpoint to a training: docs/getting-started.md""")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--folder")
    options = parser.parse_args()
    shutil.rmtree(options.out / "shards", ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    pack = [sys.executable, str(HERE / "pack.py"), str(options.out)] + ([options.folder] if options.folder else [])
    subprocess.run(pack, check=True)
    subprocess.run([options.binary, "index", "--job", str(options.out / "job.yaml")], check=True)
    print_report(train(options.binary, options.out), options.out)
    print_next(short(options.binary), short(options.out))


if __name__ == "__main__":
    main()
