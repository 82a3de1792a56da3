"""The promise: the same bytes with any number of workers, over any transport, after any crash."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import TRUSTED, Fetch, Fleet, Worker, fetch

STEPS = 40
RANKS = "0-3"
# Faster instruction sets off, in the libraries, too: what a worker on an older machine would compute.
MASKED = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-AVX512F,-AVX512VL,-ERMS",
          "JSIMD_FORCESSE2": "1", "EVENKEEL_CPU": "baseline"}


@pytest.fixture(scope="module")
def expected(mixed):
    """What one worker delivers over gRPC: the stream that all others are compared with."""
    with Fleet(mixed / "job.yaml", 1) as fleet:
        digests = fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--transport", "grpc")
    assert len(digests.steps) == STEPS * 4
    assert len(set(digests.steps)) == STEPS * 4, "every rank of every step receives something of its own"
    return digests


def assert_same(digests, expected):
    different = [pair for pair in zip(digests.steps, expected.steps) if pair[0] != pair[1]]
    assert not different, different[:3]
    assert len(digests.steps) == len(expected.steps)
    assert digests.chain == expected.chain


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("transport", ["ucx", "grpc"])
def test_the_stream_is_the_same_for_all_workers_and_transports(mixed, expected, workers, transport):
    with Fleet(mixed / "job.yaml", workers, *TRUSTED) as fleet:
        assert_same(fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS,
                          "--transport", transport, *TRUSTED), expected)


def test_the_stream_is_the_same_in_sealed_memory(mixed, expected):
    with Fleet(mixed / "job.yaml", 2, "--transport", "memory") as fleet:
        assert_same(fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS,
                          "--transport", "memory"), expected)


def test_the_stream_is_the_same_in_two_parts(mixed, expected):
    with Fleet(mixed / "job.yaml", 1) as fleet:
        first = fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", 17)
        second = fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS - 17, "--from", 17,
                       "--chain", first.chain)
    assert first.steps + second.steps == expected.steps
    assert second.chain == expected.chain


def test_the_stream_is_the_same_with_cpu_features_masked(mixed, expected):
    with Fleet(mixed / "job.yaml", 1, env=MASKED) as fleet:
        assert_same(fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS), expected)
        # Read by a thread of its own, and certainly there after a whole stream.
        assert any('"instructions":"baseline"' in line for line in fleet.workers[0].log)


def test_the_stream_is_the_same_with_another_number_of_threads(mixed, expected):
    with Fleet(mixed / "job.yaml", 1, "--threads", 5) as fleet:
        assert_same(fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS), expected)


@pytest.mark.parametrize("isolation", ["off", "all"])
def test_the_stream_is_the_same_whichever_process_decodes(mixed, expected, isolation):
    with Fleet(mixed / "job.yaml", 1, "--isolation", isolation) as fleet:
        assert_same(fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS), expected)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_decoders_change_no_byte_and_no_worker_is_lost(mixed, expected):
    rng = random.Random(5)
    with Fleet(mixed / "job.yaml", 3, "--isolation", "all") as fleet:
        run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--prefetch-steps", 1)
        for _ in range(6):
            run.wait_for_lines(len(run.lines) + rng.randint(1, 20))
            (spawner,) = children(rng.choice(fleet.workers).process.pid)
            for decoder in children(spawner)[:1]:
                os.kill(decoder, signal.SIGKILL)
        assert_same(run.finish(), expected)
        assert all(worker.process.poll() is None for worker in fleet.workers)


class StoppedDecoders:
    """Keeps every decoder process of some workers stopped, also those that are started meanwhile."""

    def __init__(self, workers):
        self._workers = workers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stop)
        self.stopped = set()

    def _stop(self):
        while not self._over.wait(0.02):
            for worker in self._workers:
                for spawner in children(worker.process.pid):
                    for decoder in children(spawner):
                        os.kill(decoder, signal.SIGSTOP)
                        self.stopped.add(decoder)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def test_stopped_decoders_change_no_byte_and_are_asked_last(mixed, expected):
    """Two of three workers answer and send texts, but decode nothing. Without memory of that every step waits for them."""
    with Fleet(mixed / "job.yaml", 3, "--isolation", "all") as fleet:
        run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--prefetch-steps", 2,
                    "--progress-timeout", 3)
        run.wait_for_lines(8)
        with StoppedDecoders(fleet.workers[:2]) as stopped:
            begin = time.monotonic()
            assert_same(run.finish(), expected)
            seconds = time.monotonic() - begin
        assert stopped.stopped
    # The workers themselves take a decoder for hung after a minute. One stall is enough for each consumer.
    assert seconds < 50, "the steps waited for the decoders"


@pytest.mark.parametrize("transport", ["ucx", "grpc"])
def test_the_only_worker_may_restart(mixed, expected, transport):
    with Fleet(mixed / "job.yaml", 1, *TRUSTED) as fleet:
        run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--transport", transport,
                    "--prefetch-steps", 1, *TRUSTED)
        for lines in (20, 60, 100):
            run.wait_for_lines(lines)
            address = fleet.workers[0].address
            fleet.workers[0].kill()
            fleet.workers[0] = Worker(mixed / "job.yaml", *TRUSTED, listen=address)
        assert_same(run.finish(), expected)


def leaves(pid):
    """The processes below `pid` that have no children: its decoders."""
    below = children(pid)
    return [leaf for child in below for leaf in leaves(child) or [child]]


def test_a_worker_ends_while_a_decoder_stands_still(mixed):
    """A decoder counts as hung after a minute only; a worker that has drained does not wait for it."""
    with Fleet(mixed / "job.yaml", 1, "--threads", 1) as fleet:
        worker = fleet.workers[0]
        for decoder in leaves(worker.process.pid):
            os.kill(decoder, signal.SIGSTOP)
        run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS)
        worker.logged("session_opened")
        time.sleep(2)
        run.process.kill()
        assert worker.terminate(timeout=45) == 0


JOIN_FOR_EVER = r"""
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
int pthread_join(pthread_t thread, void** result) {
  while (access(getenv("JOIN_FOR_EVER"), F_OK) == 0) usleep(10000);
  return pthread_clockjoin_np(thread, result, 0, NULL);
}
"""


def test_a_worker_ends_though_a_thread_does_not(mixed, tmp_path):
    """What it waits for while it stops may have no deadline, in a library for example; the process has one."""
    source, library, switch = tmp_path / "join.c", tmp_path / "join.so", tmp_path / "switch"
    source.write_text("#define _GNU_SOURCE\n" + JOIN_FOR_EVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with Fleet(mixed / "job.yaml", 1, "--drain-timeout", 1,
               env={"LD_PRELOAD": str(library), "JOIN_FOR_EVER": str(switch)}) as fleet:
        worker = fleet.workers[0]
        fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0", "--steps", 1)
        switch.touch()
        assert worker.terminate(timeout=45) == 1
        worker.logged("stop_timeout")


@pytest.mark.parametrize("transport", ["ucx", "grpc"])
def test_a_killed_and_a_stopped_worker_change_no_byte(mixed, expected, transport):
    with Fleet(mixed / "job.yaml", 3, *TRUSTED) as fleet:
        run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--transport", transport,
                    *TRUSTED, "--prefetch-steps", 2, "--progress-timeout", 3)
        run.wait_for_lines(20)
        fleet.workers[0].signal(signal.SIGKILL)
        run.wait_for_lines(40)
        fleet.workers[1].signal(signal.SIGSTOP)
        run.wait_for_lines(100)
        fleet.workers[1].signal(signal.SIGCONT)
        assert_same(run.finish(), expected)


@pytest.mark.parametrize("transport,options", [("ucx", TRUSTED), ("grpc", ())])
def test_twenty_kills_change_no_byte(mixed, expected, transport, options):
    """Workers die at random moments and others take their place at the same address list."""
    rng = random.Random(f"{transport}{options}")
    kills = 0
    with Fleet(mixed / "job.yaml", 3, *options) as fleet:
        while kills < 7:
            run = Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", RANKS, "--steps", STEPS, "--transport",
                        transport, "--prefetch-steps", 1, "--progress-timeout", 3, *options)
            for victim in rng.sample(range(3), 2):
                run.wait_for_lines(len(run.lines) + rng.randint(1, 60))
                time.sleep(rng.uniform(0, 0.03))
                fleet.workers[victim].kill()
                kills += 1
            assert_same(run.finish(), expected)
            for number, worker in enumerate(fleet.workers):
                if worker.process.poll() is not None:
                    fleet.workers[number] = Worker(mixed / "job.yaml", *options)
