"""Runs the demo's processes: packs, indexes, serves, trains, kills one worker, and reports."""

import argparse
import json
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


def sum_tokens(reports):
    """{phase: (tokens per rank before, after)} summed over the steps."""
    totals = {}
    for step in reports[0]["loads"]:
        for phase, loads in step.items():
            before, after = totals.setdefault(phase, ([0] * RANKS, [0] * RANKS))
            for rank in range(RANKS):
                before[rank] += loads["tokens_before"][rank]
                after[rank] += loads["tokens_after"][rank]
    return totals


def mean_imbalance(reports, phase, which):
    """Mean over steps of max/mean over ranks: a step waits for its slowest rank."""
    ratios = [max(step[phase][which]) / (sum(step[phase][which]) / RANKS) for step in reports[0]["loads"]
              if sum(step[phase][which]) > 0]
    return sum(ratios) / len(ratios) if ratios else 1.0


def print_report(reports, out):
    totals = sum_tokens(reports)
    print(f"\n{'phase':8} {'':8} " + " ".join(f"{'rank ' + str(r):>9}" for r in range(RANKS)) + "   max/mean of a step")
    for phase, (before, after) in totals.items():
        for name, tokens, which in (("before", before, "tokens_before"), ("after", after, "tokens_after")):
            print(f"{phase:8} {name:8} " + " ".join(f"{t:9d}" for t in tokens)
                  + f"   {mean_imbalance(reports, phase, which):.3f}")
    stats = [report["stats"] for report in reports]
    seconds = max(report["seconds"] for report in reports)
    received = sum(s["bytes"] for s in stats)
    print(f"\nreceived        {received / 1e6:.1f} MB over {stats[0]['transport']}")
    print(f"consumer wait   {sum(s['wait_seconds'] for s in stats) / RANKS:.2f} s a rank of {seconds:.1f} s")
    print(f"samples         {reports[0]['samples']}, {reports[0]['samples'] / seconds:.1f} a second")
    print(f"workers lost    {max(s['replaced_workers'] for s in stats)} (replaced; every payload's hash was checked)")
    print(f"loss            {reports[0]['losses'][0]:.4f} -> {reports[0]['losses'][-1]:.4f}")
    path = out / "loads.svg"
    path.write_text(picture.loads_svg(totals, RANKS))
    print(f"picture         {path}")


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


if __name__ == "__main__":
    main()
