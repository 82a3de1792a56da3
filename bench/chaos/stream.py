"""Consumers that fetch windows of the stream again and again, and compare every line with the reference."""

import random
import re
import signal
import subprocess
import threading
import time

import harness

LINE = re.compile(r"(\d+) (\d+) ([0-9a-f]{32})$")
HANG_SECONDS = 150


class Stream:
    """One consumer after another over one transport. `tick` does what is due; all state belongs to its caller."""

    def __init__(self, name, world, options, seed):
        self.name, self.world, self.options = name, world, options
        self.rng = random.Random(f"{seed}/{name}")
        self.process = None
        self.arrived = []  # (time, line), filled by the reader's thread
        self.errors = []
        self.paused = False
        self.killed = False
        self.compared = self.rounds = self.resumed = 0
        self.mismatches, self.failures = [], []
        self.longest_gap = self.longest_well_gap = 0.0
        self.gap_note = ""
        self._window = None

    def begin(self):
        """The next window, or the rest of one whose consumer was killed."""
        if self._window is None:
            steps = self.rng.randint(10, 40)
            first = self.rng.randrange(self.world.num_steps - steps)
            self._window = (first, first + steps)
            self.link = self.rng.choice(list(self.world.network.links))
            self.rounds += 1
        first, end = self._window
        host = self.world.network.links[self.link]
        endpoints = ",".join(f"{host}:{slot.port}" for slot in self.world.slots)
        command = [*self.world.network.consumer_wrapper, harness.binary(), "fetch", "--endpoints", endpoints, "--job",
                   self.world.job, "--digest", "--ranks", f"0-{self.world.num_ranks - 1}", "--from", first, "--steps",
                   end - first, "--prefetch-steps", self.rng.choice([1, 2, 4]), "--progress-timeout", 4,
                   "--step-timeout", 140, "--connect-timeout", 60, *self.options]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.arrived, self.errors, self.taken = [], [], 0
        self.expected = [(step, rank) for step in range(first, end) for rank in range(self.world.num_ranks)]
        self.killed = False
        self.last = time.monotonic()
        self.dark = 0.0
        process, arrived, errors = self.process, self.arrived, self.errors
        threading.Thread(target=lambda: [arrived.append((time.monotonic(), line)) for line in process.stdout],
                         daemon=True).start()
        threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()

    def tick(self, now, passed):
        """`passed`: seconds since the last call."""
        if self.process is None:
            return None if self.world.is_hindered("trainer", 0) else self.begin()
        if self.paused or self.world.is_dark(self.link):
            self.dark += passed
        code = self.process.poll()
        while self.taken < len(self.arrived):
            self._take(*self.arrived[self.taken])
            self.taken += 1
        if code is None:
            if now - self.last - self.dark > HANG_SECONDS:
                self._fail(f"no line for {now - self.last:.0f} s")
                self.process.kill()
            return
        if self.taken < len(self.arrived) or now - self.last < 0.1:
            return  # the readers may not have seen all of it yet
        self._end(code)

    def _measure_gap(self, when):
        gap = when - self.last
        self.longest_gap = max(self.longest_gap, gap)
        if gap - self.dark > self.longest_well_gap:
            self.longest_well_gap = gap - self.dark
            self.gap_note = f"{self.name} over {self.link}, before {self.expected[:1]}, during: {self.world.recent()}"
        self.last, self.dark = when, 0.0

    def _take(self, when, line):
        found = LINE.match(line)
        if not found:
            return
        self._measure_gap(when)
        step, rank = int(found[1]), int(found[2])
        if not self.expected or self.expected[0] != (step, rank):
            return self._fail(f"line out of order: {line.strip()}")
        self.expected.pop(0)
        self.compared += 1
        if self.world.reference[step, rank] != found[3]:
            self.mismatches.append(f"step {step} rank {rank}: {found[3]}, reference {self.world.reference[step, rank]}")

    def _end(self, code):
        # A start that finds files gone (2) or of another size than the index has (3) is refused, as it should be, and so is
        # one over UCX whose only device is down (4).
        refused = code in (2, 3) and self.world.is_hindered("trainer", 10) or code == 4 and self.dark > 0
        if self.killed or refused and not self.arrived:
            self.resumed += 1
            step = self.expected[0][0] if self.expected else None
            self._window = None if step is None else (step, self._window[1])
        else:
            if code != 0 or self.expected:
                self._measure_gap(time.monotonic())
                self._fail(f"exit {code}, {len(self.expected)} lines missing")
            self._window = None
        self.process = None

    def _fail(self, what):
        tail = "".join(self.errors[-6:])[-1500:]
        note = f"{self.name} over {self.link}: {what}; faults: {self.world.recent()}\n{tail}"
        self.failures.append(note)
        print(note, flush=True)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.killed = True
            self.paused = False
            self.process.kill()

    def pause(self, paused):
        if self.process is not None and self.process.poll() is None:
            self.paused = paused
            self.process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def finish(self, seconds=180):
        """Lets the window end; nothing new begins."""
        end = time.monotonic() + seconds
        before = time.monotonic()
        while self.process is not None and time.monotonic() < end:
            now = time.monotonic()
            self.tick(now, now - before)
            before = now
            time.sleep(0.02)
        if self.process is not None:
            self._fail("does not end after the last fault")
            self.process.kill()
