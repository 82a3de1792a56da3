#!/usr/bin/env python3
"""Faults against a fleet and its consumers, and every line of the stream compared with one made in peace.

    bench/chaos/run.py --seconds 120                   two minutes, seed 1
    bench/chaos/run.py --seconds 3600 --max-gap 15     an hour; fails on a longest gap above 15 s

Three workers with certificates and two consumers of four ranks (one over UCX, one over gRPC) on media made from the
seed. Faults of workers, decoders, their spawner, consumers, storage, disk, handles, certificates, clocks and the
network come at random times, up to three at once; faults.py has all of them. The seed decides which faults come in
which order; processes and clocks decide what they hit. As root, workers and consumers are in two network namespaces
with a good and a bad link between them; else on loopback, without network faults. EVENKEEL_BIN names the binary.

Prints the faults, the steps compared, mismatches, the longest gap between two lines (and the longest while at least
one worker was well), what leaked, and how memory developed. Exit 1 where anything of it is wrong.
"""

import argparse
import collections
import glob
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "e2e")]
import faults  # noqa: E402
import fleet  # noqa: E402
import harness  # noqa: E402
import media  # noqa: E402
import network  # noqa: E402
from stream import Stream  # noqa: E402

NUM_WORKERS, NUM_RANKS, NUM_STEPS = 3, 4, 120
MAX_FAULTS_AT_ONCE = 3
SAMPLE_SECONDS = 5
WARM_UP_SECONDS = 90
INDEX_DISK_BYTES = 64 << 20
FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)


class World:
    """All state that faults disturb."""

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed
        self.rng = random.Random(seed)
        self.failures = []
        self.notes = []
        self.num_steps, self.num_ranks = NUM_STEPS, NUM_RANKS
        self.storage_disturbed = self.links_disturbed = False
        self.certificates_disturbed, self.cut_links = set(), set()
        self.hindered_at = {"worker": -1e9, "trainer": -1e9}  # when a start of a role was last bound to fail
        self.history = collections.deque(maxlen=6)  # (time, name) of the latest faults
        self.slots, self.streams = [], []
        self.network, note = network.make(seed)
        self.notes += [note] if note else []
        self.certificates = folder / "tls"
        self.clock_file = folder / "clock"
        self.clock_file.write_text("+0")
        # UCX of fetch and serve uses this folder; other processes may leave segments in /dev/shm.
        self.shared_memory = folder / "shm"
        self.shared_memory.mkdir()
        os.environ["UCX_POSIX_DIR"] = str(self.shared_memory)
        self.has = {"isolation"} | ({"network"} if self.network.can_disturb else set())
        self._make_index_disk()
        self._make_stream()
        self.make_certificates()

    def _make_index_disk(self):
        self.index_disk = self.folder / "index-disk"
        self.index_disk.mkdir()
        if os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={INDEX_DISK_BYTES}", "tmpfs",
                                                 self.index_disk], capture_output=True).returncode == 0:
            self.has.add("small_disk")
        else:
            self.notes.append("no tmpfs of its own: no full disk")

    def _make_stream(self):
        media.write_mixed_shards(self.folder, "a", 3, 40, seed=self.seed)
        self.shards = sorted(self.folder.glob("a-*.tar"))
        self.job = harness.write_job(self.folder / "job.yaml", [("a", "a-{000..002}.tar", 1)], ranks=NUM_RANKS,
                                     batch="{llm_tokens: 8192, window_samples: 128}", index="index-disk/index")
        harness.run("index", "--job", self.job)
        with harness.Fleet(self.job, 1) as one:
            lines = harness.fetch(one.endpoints, self.job, "--ranks", f"0-{NUM_RANKS - 1}", "--steps", NUM_STEPS,
                                  "--transport", "grpc").steps
        self.reference = {(int(step), int(rank)): digest for step, rank, digest in map(str.split, lines)}

    def make_certificates(self, *arguments):
        script = HERE.parents[1] / "scripts" / "certificates"
        subprocess.run([script, *arguments, self.certificates, *self.network.links.values(), "127.0.0.1"], check=True,
                       capture_output=True)

    def tls(self, role):
        folder = self.certificates
        return ["--tls-cert", folder / f"{role}.pem", "--tls-key", folder / f"{role}.key", "--tls-ca", folder / "ca.pem"]

    def start(self, workers_options, transports):
        for number in range(NUM_WORKERS):
            isolation, env = "all", {}
            if number == NUM_WORKERS - 1 and FAKETIME:
                # The library's own system calls are not among those that confined decoders may make.
                isolation = "off"
                env = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
                       "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
                self.has.add("clock")
            options = [*workers_options, *self.tls("worker"), "--isolation", isolation]
            self.slots.append(fleet.Slot(number, self.job, self.network, options,
                                         lambda seconds: self.is_hindered("worker", seconds), env))
        for slot in self.slots:
            slot.start()
        for slot in self.slots:
            slot.wait()
        if "clock" not in self.has:
            self.notes.append("no libfaketime (Debian package faketime): no jumping clock")
        for transport in transports:
            options = ["--transport", transport, *self.tls("trainer")]
            options += ["--trusted-data-network"] if transport == "ucx" else []
            self.streams.append(Stream(transport, self, options, self.seed))

    def tick(self, now):
        for role in self.hindered_at:
            if self.storage_disturbed or role in self.certificates_disturbed:
                self.hindered_at[role] = now

    def is_hindered(self, role, seconds):
        """Whether files that a process of the role reads at its start are disturbed, or were up to `seconds` ago."""
        disturbed = self.storage_disturbed or role in self.certificates_disturbed
        return disturbed or time.monotonic() - self.hindered_at[role] < seconds

    def is_dark(self, link):
        """No software could serve a consumer over this link."""
        return link in self.cut_links or self.storage_disturbed or not any(slot.well for slot in self.slots)

    def recent(self):
        now = time.monotonic()
        return ", ".join(f"{name} {now - when:.0f} s ago" for when, name in self.history)

    def close(self):
        for stream in self.streams:
            stream.kill()
        for slot in self.slots:
            if slot.running:
                slot.kill()
        self.network.close()
        if "small_disk" in self.has:
            subprocess.run(["umount", "-l", self.index_disk], capture_output=True)


class Faults:
    """Begins faults at random times and moves those that wait."""

    def __init__(self, world, only):
        self.world = world
        self.choices = [(function, weight) for function, weight, needs in faults.FAULTS
                        if set(needs) <= world.has and (not only or function.__name__ in only)]
        if not self.choices:
            raise SystemExit("no such fault here: " + ", ".join(only))
        self.count = collections.Counter()
        self.waiting = []  # (due, generator)
        self.next_at = 0.0

    def tick(self, now, begin):
        for entry in [entry for entry in self.waiting if entry[0] <= now]:
            self.waiting.remove(entry)
            self._advance(entry[1], now)
        if begin and now >= self.next_at and len(self.waiting) < MAX_FAULTS_AT_ONCE:
            self.next_at = now + self.world.rng.uniform(0.3, 3)
            functions, weights = zip(*self.choices)
            function = self.world.rng.choices(functions, weights)[0]
            if self._advance(function(self.world), now):
                self.count[function.__name__] += 1
                self.world.history.append((now, function.__name__))

    def _advance(self, generator, now):
        try:
            self.waiting.append((now + next(generator), generator))
            return True
        except StopIteration:
            return False


class Memory:
    """Resident bytes and handles of the worker that is never ended, over time."""

    def __init__(self, slot):
        self.slot, self.pid = slot, slot.pid
        self.samples = []  # (seconds, bytes, handles)
        self.begin = time.monotonic()
        self.next_at = 0.0

    def tick(self, now):
        if now < self.next_at or not self.slot.running or self.slot.pid != self.pid:
            return
        self.next_at = now + SAMPLE_SECONDS
        self.samples.append((now - self.begin, fleet.memory(self.pid), fleet.handles(self.pid)))

    def summary(self):
        """(text, what is wrong): the median of the last quarter against that of the first after warming up."""
        warm = [sample for sample in self.samples if sample[0] >= WARM_UP_SECONDS]
        if len(warm) < 40:
            return (f"{self.samples[-1][1] >> 20} MiB and {self.samples[-1][2]} handles at the end; too short to judge"
                    if self.samples else "none"), []
        quarter = len(warm) // 4
        median = lambda samples, field: statistics.median(sample[field] for sample in samples)  # noqa: E731
        first, last = [median(part, 1) / 2**20 for part in (warm[:quarter], warm[-quarter:])]
        first_handles, last_handles = [median(part, 2) for part in (warm[:quarter], warm[-quarter:])]
        wrong = [f"memory grew from {first:.0f} to {last:.0f} MiB"] if last > 1.1 * first + 16 else []
        wrong += [f"handles grew from {first_handles} to {last_handles}"] if last_handles > first_handles + 32 else []
        return f"{first:.0f} MiB and {first_handles:.0f} handles after warming up, {last:.0f} and {last_handles:.0f} " \
               "at the end (medians of quarters)", wrong


def wait_through(generator):
    """What a generator of seconds to wait returns."""
    while True:
        try:
            time.sleep(next(generator))
        except StopIteration as end:
            return end.value


def leaks(world):
    """What is left after all workers were asked to end."""
    found = []
    for slot in world.slots:
        if slot.running and (code := wait_through(slot.terminate())) != 0:
            found.append(f"worker {slot.number}: exit {code} at the end")
    time.sleep(1)
    left = [pid for slot in world.slots for pid, start in slot.processes if start and fleet.started_at(pid) == start]
    found += [f"process {pid} is left" for pid in left]
    return found + [f"shared memory {path} is left" for path in world.shared_memory.iterdir()]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="how long faults go on (120)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", default="ucx,grpc", help="a consumer for each (ucx,grpc)")
    parser.add_argument("--max-gap", type=float, default=0, help="fail on a longer gap with a well worker, in seconds; 0: never")
    parser.add_argument("--only", default="", help="comma-separated names of faults")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    parser.add_argument("--json", action="store_true", help="also print the result as one JSON line")
    return parser.parse_args()


def run(world, arguments):
    world.start(["--transport", "auto", "--trusted-data-network", "--memory", "256MiB"],
                arguments.transports.split(","))
    chaos = Faults(world, [name for name in arguments.only.split(",") if name])
    memory = Memory(world.slots[0])
    begin = before = time.monotonic()
    while (now := time.monotonic()) - begin < arguments.seconds or chaos.waiting:
        chaos.tick(now, begin=now - begin < arguments.seconds)
        world.tick(now)
        for slot in world.slots:
            slot.watch()
        for stream in world.streams:
            stream.tick(now, now - before)
        memory.tick(now)
        before = now
        time.sleep(0.02)
    for stream in world.streams:
        stream.finish()
    return chaos, memory


def report(world, chaos, memory, left, arguments):
    text, growth = memory.summary()
    compared = sum(stream.compared for stream in world.streams)
    mismatches = [one for stream in world.streams for one in stream.mismatches]
    failures = world.failures + [one for part in world.slots + world.streams for one in part.failures]
    for name, count in sorted(chaos.count.items()):
        print(f"{count:5d}  {name}")
    print(f"{sum(chaos.count.values())} faults; {sum(s.rounds for s in world.streams)} windows, "
          f"{sum(s.resumed for s in world.streams)} resumed; workers that ended by themselves: "
          f"{sum(slot.ended_by_itself for slot in world.slots)}")
    worst = max(world.streams, key=lambda stream: stream.longest_well_gap)
    print(f"{compared} steps of ranks compared, {len(mismatches)} mismatches, {len(failures)} failures")
    print(f"longest gap {max(s.longest_gap for s in world.streams):.1f} s; while a worker was well "
          f"{worst.longest_well_gap:.1f} s ({worst.gap_note})")
    print(f"memory of a worker that was never ended: {text}")
    wrong = mismatches[:10] + failures + left + growth
    if arguments.max_gap and worst.longest_well_gap > arguments.max_gap:
        wrong.append(f"a gap of {worst.longest_well_gap:.1f} s with a well worker, at most {arguments.max_gap:g} allowed")
    if compared == 0:
        wrong.append("nothing was compared")
    print(f"leaked: {'; '.join(left + growth) or 'nothing'}")
    for note in world.notes:
        print("NOT DONE:", note)
    for one in wrong:
        print("WRONG:", one)
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "faults": dict(chaos.count), "compared": compared,
                          "mismatches": len(mismatches), "failures": len(failures), "leaks": left + growth,
                          "longest_gap": worst.longest_well_gap, "memory": memory.samples}))
    return 1 if wrong else 0


def main():
    arguments = parse()
    if arguments.list:
        for function, weight, needs in faults.FAULTS:
            print(f"{function.__name__:22} weight {weight}{', needs ' + ', '.join(needs) if needs else ''}")
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="evenkeel-chaos-"))
    world = None
    try:
        world = World(folder, arguments.seed)
        chaos, memory = run(world, arguments)
        left = leaks(world)
        return report(world, chaos, memory, left, arguments)
    finally:
        if world is not None:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
