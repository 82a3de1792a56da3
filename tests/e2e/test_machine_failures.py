"""Storage and open files that fail and come back: streams wait for them, and no data is blamed."""

import os
import re
import resource
import time

import pytest

import harness
import media

STEPS = 6
FETCH = ["--ranks", "0-1", "--steps", STEPS]


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A job over two shards, and what its stream is."""
    folder = tmp_path_factory.mktemp("failures")
    media.write_mixed_shards(folder, "a", 2, 24, seed=9)
    job = harness.write_job(folder / "job.yaml", [("a", "a-{000..001}.tar", 1)], ranks=2, batch="{samples: 8}")
    harness.run("index", "--job", job)
    with harness.Fleet(job, 1) as fleet:
        return job, harness.fetch(fleet.endpoints, job, *FETCH)


class RenamedAway:
    def __init__(self, shards):
        self.shards = shards
        for shard in shards:
            shard.rename(shard.with_suffix(".away"))

    def end(self):
        for shard in self.shards:
            shard.with_suffix(".away").rename(shard)


class Truncated:
    """In place, as a copy that is under way."""

    def __init__(self, shards):
        self.contents = {shard: shard.read_bytes() for shard in shards}
        for shard in shards:
            os.truncate(shard, 700)

    def end(self):
        for shard, content in self.contents.items():
            shard.write_bytes(content)


def failures(fleet):
    return sum(line.count("attempt_failed") for worker in fleet.workers for line in worker.log)


def wait_for_failures(fleet, fetch, count):
    end = time.monotonic() + 60
    while failures(fleet) < count and time.monotonic() < end:
        assert fetch.process.poll() is None, fetch.errors
        time.sleep(0.05)
    assert failures(fleet) >= count


@pytest.mark.parametrize("outage", [RenamedAway, Truncated])
def test_an_outage_of_storage_is_waited_for_and_changes_no_byte(stream, outage):
    job, expected = stream
    with harness.Fleet(job, 3) as fleet:
        broken = outage(sorted(job.parent.glob("a-*.tar")))
        try:
            fetch = harness.Fetch(fleet.endpoints, None, *FETCH)  # with the job it would open the shards itself
            wait_for_failures(fleet, fetch, 12)
            time.sleep(2)
            assert fetch.process.poll() is None, fetch.errors
        finally:
            broken.end()
        digests = fetch.finish()
    assert (digests.steps, digests.chain) == (expected.steps, expected.chain)
    assert " 0 workers replaced" in digests.summary, "they were well all the time"


@pytest.mark.parametrize("outage, cause", [(RenamedAway, "No such file or directory"), (Truncated, "ends at byte")])
def test_broken_storage_ends_the_stream_at_its_deadline(stream, outage, cause):
    job, _ = stream
    with harness.Fleet(job, 3) as fleet:
        broken = outage(sorted(job.parent.glob("a-*.tar")))
        try:
            done = harness.run("fetch", "--endpoints", fleet.endpoints, *FETCH, "--step-timeout", 8, check=False)
        finally:
            broken.end()
    assert done.returncode == 4, done.stderr
    last = done.stderr.splitlines()[-1]
    assert cause in last and re.search(r"a-00[01]\.tar", last), last
    assert any(worker.address + ": " in last for worker in fleet.workers), "which machine"
    assert re.search(r"\(\d+ times in [\d.]+m?s\)", last) and "did not arrive within 8s" in last, last
    assert "the data is not at fault" in last and "exclude" not in done.stderr, last


def limit_files(worker, soft):
    pid = worker.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))[0]


@pytest.mark.parametrize("healthy", [0, 1])
def test_a_worker_without_file_handles_is_replaced_or_awaited(stream, healthy):
    job, expected = stream
    with harness.Fleet(job, 1 + healthy) as fleet:
        short = fleet.workers[0]
        # The shards are away until the limit has fallen, so that the worker has none of them open.
        broken = RenamedAway(sorted(job.parent.glob("a-*.tar")))
        try:
            fetch = harness.Fetch(fleet.endpoints, None, *FETCH)
            wait_for_failures(fleet, fetch, 4)
            before = limit_files(short, 3)
        finally:
            broken.end()
        if healthy:
            digests = fetch.finish()
        else:
            end = time.monotonic() + 60
            while not any("Too many open files" in line for line in short.log) and time.monotonic() < end:
                assert fetch.process.poll() is None, fetch.errors
                time.sleep(0.05)
            assert any("Too many open files" in line for line in short.log)
            time.sleep(2)
            assert fetch.process.poll() is None, fetch.errors
        limit_files(short, before)
        digests = digests if healthy else fetch.finish()
    assert (digests.steps, digests.chain) == (expected.steps, expected.chain)
    assert not any("exclude list" in line for line in fetch.errors), fetch.errors


def test_an_index_is_not_made_of_what_cannot_be_read(tmp_path):
    media.write_mixed_shards(tmp_path, "a", 2, 6, seed=3)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1, batch="{samples: 4}")
    second = tmp_path / "a-001.tar"
    content = second.read_bytes()
    harness.run("index", "--job", job)
    second.unlink()
    second.mkdir()
    done = harness.run("index", "--job", job, "--verify-content", check=False)
    assert done.returncode != 0 and str(second) in done.stderr, done.stderr
    second.rmdir()
    second.write_bytes(content)
    assert "excluded" not in harness.run("index", "--job", job).stdout
