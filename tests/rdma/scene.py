"""The job that the machines stream, and the commands for it: everything is made here, the machines only run it."""

import json
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import certificates  # noqa: E402
import harness  # noqa: E402
import media  # noqa: E402

SAMPLES = 24
RANKS = 2
NODES = (1, 2)


def write(folder):
    """Writes folder/job.yaml with its shard, its processors and index, and a certificate for both machines."""
    media.write_mixed_shards(folder, "a", 1, SAMPLES, seed=11)
    for video in folder.glob("video-*"):
        video.unlink()
    for name in ("processor/qwen2-vl", "processor/qwen2-audio", "tokenizer"):
        shutil.copytree(harness.GOLDEN / name, folder / name)
    job = harness.write_job(folder / "job.yaml", [("a", "a-000.tar", 1)], ranks=RANKS, batch="{samples: 8}",
                            wire="u8")
    # The machines find everything next to the job.
    job.write_text(job.read_text().replace(f"{harness.GOLDEN}/", ""))
    harness.run("index", "--job", job)
    certificates.Party(folder, "node", "DNS:localhost", *(f"IP:10.9.0.{node}" for node in NODES))
    return job


TLS = "--tls-cert /job/node.pem --tls-key /job/node.key --tls-ca /job/node-ca.pem"


# UCX's receive queues pin 40 MB for every session, which takes an emulated processor seconds.
SMALL = "UCX_IB_RX_QUEUE_LEN=512"


def _poll(machine, command, enough, seconds):
    """Runs `command` every second, until `enough` of the words that it prints; returns them.

    From here, not by a loop in the machine, whose one processor has other things to do.
    """
    end = time.monotonic() + seconds
    while not enough(words := machine.run(command).output.split()):
        assert time.monotonic() < end, f"`{command}`: {words} after {seconds} seconds"
        time.sleep(1)
    return words


class Worker:
    """`evenkeel serve` in a machine, over RDMA unless `options` say otherwise."""

    def __init__(self, machine, port=7000, options="--require-rdma", environment="", tls=TLS):
        self.machine = machine
        self.endpoint = f"{machine.address}:{port}"
        self.metrics = f"{machine.address}:{port + 1000}"
        self._log = f"/run/worker-{port}"
        machine.run(
            f"rm -f {self._log}.*; {SMALL} {environment} evenkeel serve --job /job/job.yaml --listen {self.endpoint} "
            f"--metrics {self.metrics} {tls} {options} --memory 256MiB --threads 1 >{self._log}.out 2>{self._log}.err "
            f"</dev/null & echo $! >{self._log}.pid")
        _poll(machine, f"cat {self._log}.out; kill -0 $(cat {self._log}.pid) 2>/dev/null || echo ended", bool, 300)
        line = machine.run(f"cat {self._log}.out").output
        if not line.strip():
            raise AssertionError(f"the worker does not start:\n{self.log()}")
        self.facts = json.loads(line)
        self.pid = int(machine.run(f"cat {self._log}.pid").output)

    def log(self):
        return self.machine.run(f"cat {self._log}.err").output

    def signal(self, name):
        self.machine.run(f"kill -{name} {self.pid}")

    def metric(self, name):
        """The sum of a metric's samples, over all labels."""
        text = self.machine.run(f"wget -q -O - http://{self.metrics}/metrics").output
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        assert values, f"{name} is not a metric of the worker"
        return sum(float(value) for value in values)

    def stop(self):
        self.machine.run(f"kill -CONT {self.pid}; kill -KILL {self.pid}; "
                         f"while kill -0 {self.pid} 2>/dev/null; do sleep 1; done", check=False)


class Fetch:
    """`evenkeel fetch --digest` in a machine, of all ranks, in the background."""

    def __init__(self, machine, workers, steps, options="--require-rdma --transport ucx", environment="", tls=TLS):
        self.machine = machine
        self._log = "/run/fetch"
        endpoints = ",".join(worker.endpoint for worker in workers)
        machine.run(f"rm -f {self._log}.*")
        machine.run(f"({SMALL} {environment} evenkeel fetch --job /job/job.yaml --endpoints {endpoints} --ranks 0-{RANKS - 1} "
                    f"--steps {steps} --digest --prefetch 64MiB {tls} {options} >{self._log}.out 2>{self._log}.err "
                    f"</dev/null; echo $? >{self._log}.status) &")

    def wait_for_lines(self, count, seconds=300):
        """Waits until that number of lines of digests has arrived."""
        lines = _poll(self.machine, f"wc -l <{self._log}.out; cat {self._log}.status 2>/dev/null || true",
                      lambda words: int(words[0]) >= count or len(words) > 1, seconds)
        assert int(lines[0]) >= count, f"fetch ended after {lines[0]} lines:\n{self.errors()}"

    def status(self, seconds=300):
        """The exit status, after the end."""
        return int(_poll(self.machine, f"cat {self._log}.status 2>/dev/null || true", bool, seconds)[0])

    def errors(self):
        return self.machine.run(f"cat {self._log}.err").output

    def finish(self, seconds=240):
        """The digests, once the fetch has ended well."""
        status = self.status(seconds)
        assert status == 0, f"fetch: exit {status}\n{self.errors()}"
        return harness.Digests(self.machine.run(f"cat {self._log}.out").output.splitlines())


def expected(job, steps):
    """The digests that a worker and a consumer of this machine make over gRPC on loopback."""
    worker = harness.Worker(job, "--transport", "grpc", "--threads", "1")
    try:
        return harness.fetch(worker.address, job, "--ranks", f"0-{RANKS - 1}", "--steps", str(steps), "--transport",
                             "grpc")
    finally:
        worker.kill()
