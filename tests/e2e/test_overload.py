"""Consumers that ask for far more than the workers can make: no time-out, little duplicate work, the same bytes."""

import json
import random
import signal
import subprocess
import time

import harness
import media
import prometheus
import pytest

STEPS = 24
GROUPS = 3


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    """Photographs only: work that is all decoding."""
    folder = tmp_path_factory.mktemp("heavy")
    rng = random.Random(9)
    shard = media.Shard(folder / "a.tar")
    for i in range(64):
        shard.add(f"{i:03d}.jpg", media.image_bytes(rng, "jpg", rng.randint(200, 400), rng.randint(200, 400)))
        shard.add(f"{i:03d}.txt", media.words(rng, 3, 30).encode())
    shard.close()
    job = harness.write_job(folder / "job.yaml", [("a", "a.tar", 1)])
    harness.run("index", "--job", job)
    return job


def start(endpoints, job, first, *options):
    return subprocess.Popen([harness.binary(), "fetch", "--endpoints", endpoints, "--job", str(job), "--ranks", "0-3",
                             "--steps", str(STEPS), "--from", str(first), "--digest", "--json", "--prefetch-steps", "16",
                             *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, errors = process.communicate(timeout=harness.DEADLINE_SECONDS)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(out)


@pytest.mark.parametrize("delay_ms", [4])
def test_three_times_the_consumers_change_no_byte(heavy, delay_ms, record_property):
    # Every unit takes as long as on a busy core, so that the capacity does not depend on the machine.
    options = ["--threads", 1, "--memory", "24MiB", "--fault-unit-delay-ms", delay_ms]
    with harness.Fleet(heavy, 2, *options) as fleet:
        alone = finish(start(fleet.endpoints, heavy, 1000))
    with harness.Fleet(heavy, 2, *options) as fleet:
        running = [start(fleet.endpoints, heavy, first) for first in (0, 1000, 2000)]
        together = [finish(process) for process in running]
    with harness.Fleet(heavy, 1) as fleet:
        calm = [finish(start(fleet.endpoints, heavy, first)) for first in (0, 1000, 2000)]
    assert [one["digests"] for one in together] == [one["digests"] for one in calm]
    assert alone["digests"] == calm[1]["digests"]
    requests = sum(one["requests"] - one["refused"] for one in together)
    duplicates = sum(one["duplicate_requests"] for one in together)
    assert duplicates < 0.05 * requests, [duplicates, requests]
    assert sum(one["hash_failures"] + one["replaced_workers"] for one in together) == 0
    throughput = GROUPS * STEPS / max(one["seconds"] for one in together)
    ratio = throughput / (STEPS / alone["seconds"])
    record_property("throughput_ratio", ratio)
    print(f"three groups reach {ratio:.2f} of one group's throughput; {duplicates} of {requests} requests are "
          f"duplicates, {sum(one['refused'] for one in together)} refusals")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Parts of 10 MB, most of which no socket takes."""
    folder = tmp_path_factory.mktemp("large")
    rng = random.Random(10)
    shard = media.Shard(folder / "a.tar")
    for i in range(8):
        shard.add(f"{i:03d}.jpg", media.image_bytes(rng, "jpg", 400, 400))
        shard.add(f"{i:03d}.txt", media.words(rng, 3, 30).encode())
    shard.close()
    job = harness.write_job(folder / "job.yaml", [("a", "a.tar", 1)], wire="f32")
    harness.run("index", "--job", job)
    return job


def test_a_consumer_that_does_not_read_frees_memory_in_time(large):
    options = ["--memory", "160MiB", "--transport", "grpc", "--send-timeout", 3, "--metrics", "127.0.0.1:0"]
    with harness.Fleet(large, 1, *options) as fleet:
        def scrape():
            return prometheus.scrape(fleet.workers[0].facts["metrics"])

        def in_flight():
            return scrape()["evenkeel_part_bytes"].by("state")["in_flight"]

        greedy = subprocess.Popen([harness.binary(), "fetch", "--endpoints", fleet.endpoints, "--ranks", "0-3", "--steps",
                                   "100000", "--prefetch-steps", "16"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: scrape()["evenkeel_sent_bytes_total"].value(transport="grpc"), lambda sent: sent > 0, seconds=60)
            greedy.send_signal(signal.SIGSTOP)  # what it has asked for is still made and sent, to where nobody reads
            held = wait_until(in_flight, lambda held: held > 30 << 20, seconds=60)
            begin = time.monotonic()
            wait_until(in_flight, lambda left: left < held / 4, seconds=60)
            assert time.monotonic() - begin < 20, "sooner than keepalive closes a silent connection"
            harness.run("fetch", "--endpoints", fleet.endpoints, "--ranks", "0-3", "--from", 5000, "--steps", 1)
        finally:
            greedy.kill()
            greedy.wait()


def wait_until(measure, is_reached, seconds):
    """The first value that is."""
    end = time.monotonic() + seconds
    while not is_reached(value := measure()):
        assert time.monotonic() < end, value
        time.sleep(0.1)
    return value
