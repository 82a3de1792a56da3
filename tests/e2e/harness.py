"""Starts real processes of the `evenkeel` binary and watches them: what the end-to-end tests are made of."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
# On both sides: what UCX needs without RDMA. Nothing in these tests reaches beyond loopback.
TRUSTED = ("--trusted-data-network",)
DEADLINE_SECONDS = 240  # of any one command; generous, since sanitized and shared machines are slow


def binary():
    return os.environ.get("EVENKEEL_BIN", str(ROOT / "build" / "release" / "cli" / "evenkeel"))


def write_job(path, datasets, ranks=4, batch="{samples: 16}", seed=7, extra="", runs="once_per_step",
              wire="u8", index="index", microbatch="{capacity_tokens: 4096}"):
    """A job over `datasets` [(name, shard pattern, weight)] with vision, audio and llm on the same ranks."""
    rank_list = f"0-{ranks - 1}" if ranks > 1 else "0"
    lines = [
        "name: e2e", f"seed: {seed}", f"index: {index}", "datasets:",
        *[f"  - {{name: {name}, shards: [\"{shards}\"], weight: {weight}}}" for name, shards, weight in datasets],
        "processor:", f"  vision: {GOLDEN}/processor/qwen2-vl", f"  audio: {GOLDEN}/processor/qwen2-audio",
        f"  tokenizer: {GOLDEN}/tokenizer", "  max_pixels: 50176",
        f"batch: {batch}", "topology: {ranks_per_node: 2}", f"wire: {wire}", f"microbatch: {microbatch}", "phases:",
        f"  - {{name: llm, ranks: \"{rank_list}\"}}",
        f"  - {{name: vision, ranks: \"{rank_list}\", runs: {runs}}}",
        f"  - {{name: audio, ranks: \"{rank_list}\", runs: {runs}}}",
    ]
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def run(*arguments, env=None, check=True, timeout=DEADLINE_SECONDS):
    """Runs the binary to its end; returns the finished process with text output."""
    done = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})})
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def alone(source, **options):
    """A loader of one of several ranks, whose other ranks have no process."""
    import evenkeel
    return evenkeel.Loader(source, some_ranks=True, **options)


class Worker:
    """One `evenkeel serve` process; `wrapper`: a command that starts it."""

    def __init__(self, job, *options, env=None, listen="127.0.0.1:0", wrapper=()):
        command = [*wrapper, binary(), "serve", "--job", str(job), "--listen", listen, *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        self.log = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.facts = self._wait_for_address()
        self.address = self.facts["address"]

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def _wait_for_address(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(10)
            raise AssertionError("the worker did not start:\n" + "".join(self.log))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return json.loads(line)

    def logged(self, text, timeout=DEADLINE_SECONDS):
        """The first line of the log with `text`, as JSON; waits for it."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for line in list(self.log):
                if text in line:
                    return json.loads(line)
            time.sleep(0.01)
        raise AssertionError(f"the worker did not log {text}:\n" + "".join(self.log))

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(30)

    def terminate(self, timeout=60):
        self.process.terminate()
        return self.process.wait(timeout)


class Fleet:
    """Several workers of one job, ended together."""

    def __init__(self, job, count, *options, env=None):
        self.workers = [Worker(job, *options, env=env) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.kill()

    @property
    def endpoints(self):
        return ",".join(worker.address for worker in self.workers)


class Fetch:
    """One `evenkeel fetch --digest` process; step lines can be followed while it runs. `job` may be None."""

    def __init__(self, endpoints, job, *options, env=None):
        expected = [] if job is None else ["--job", str(job)]
        command = [binary(), "fetch", "--endpoints", endpoints, *expected, "--digest", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
                                        env={**os.environ, **(env or {})})
        self.lines = []
        self.errors = []
        self._threads = [threading.Thread(target=self._read, args=(self.process.stdout, self.lines), daemon=True),
                         threading.Thread(target=self._read, args=(self.process.stderr, self.errors), daemon=True)]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def wait_for_lines(self, count, timeout=DEADLINE_SECONDS):
        end = time.monotonic() + timeout
        while len(self.lines) < count and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        return len(self.lines)

    def finish(self, timeout=DEADLINE_SECONDS):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("fetch hangs; last lines:\n" + "\n".join(self.lines[-5:] + self.errors[-20:]))
        for thread in self._threads:
            thread.join(10)
        if code != 0:
            raise AssertionError(f"fetch: exit {code}\n" + "\n".join(self.lines[-5:] + self.errors[-20:]))
        return Digests(self.lines)


class Digests:
    """The output of `fetch --digest`: step lines, chained digest, summary."""

    def __init__(self, lines):
        self.steps = [line for line in lines if len(line.split()) == 3 and len(line.split()[2]) == 32
                      and line.split()[0].isdigit()]
        rest = lines[len(self.steps):]
        self.chain = rest[0].split()[-1] if rest else ""
        self.summary = " ".join(rest[1:])


def fetch_with_kills(job, *options):
    """What `fetch` gets from three workers of which two are killed meanwhile."""
    with Fleet(job, 3) as fleet:
        run = Fetch(fleet.endpoints, job, *options)
        for worker in fleet.workers[:2]:
            run.wait_for_lines(1)
            worker.kill()
            time.sleep(0.2)
        return run.finish()


def fetch(endpoints, job, *options, env=None):
    return Fetch(endpoints, job, *options, env=env).finish()
