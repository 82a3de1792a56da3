"""Steps of a token budget that lie far ahead: refused or reached, while near ones are served."""

import os
import subprocess
import time

import pytest

import harness
import media

# Small samples and a small budget: many steps a second of work, so that a far step takes some.
BATCH = "{llm_tokens: 1000, window_samples: 64}"
FAR = 200_000


@pytest.fixture(scope="module")
def budget(tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    shard = media.Shard(folder / "a.tar")
    for i in range(200):
        shard.add(f"{i:03}.txt", b"word " * (1 + i * 7 % 90))
    shard.close()
    job = harness.write_job(folder / "job.yaml", [("a", "a.tar", 1)], ranks=1, batch=BATCH)
    harness.run("index", "--job", job)
    return job


def with_index(job, name):
    """The same job with a copy of its index, without tables."""
    source = job.parent / "index"
    target = job.parent / name
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["rm", "-rf", target / "steps"], check=True)
    path = job.parent / f"{name}.yaml"
    path.write_text(job.read_text().replace("index: index", f"index: {name}"))
    return path, target


def tables(index):
    return list((index / "steps").glob("*")) if (index / "steps").exists() else []


def test_steps_out_of_reach_are_refused_while_near_ones_go_on(budget):
    job, index = with_index(budget, "beyond")
    with harness.Fleet(job, 1) as fleet:
        near = harness.Fetch(fleet.endpoints, job, "--steps", 40)
        begin = time.monotonic()
        done = harness.run("fetch", "--endpoints", fleet.endpoints, "--from", 10**12, "--steps", 1, check=False)
        took = time.monotonic() - begin
        assert done.returncode == 1 and "the largest step that can be asked for now is about" in done.stderr
        assert len(near.finish().steps) == 40
        assert fleet.workers[0].terminate(60) == 0
    assert took < 60, "three refusals and no wait for a deadline"
    assert len(tables(index)) <= 1


def test_a_resume_some_epochs_ahead_equals_the_walk_there(budget):
    walked, walked_index = with_index(budget, "walked")
    # Compiled by a command, step by step of the table, and served from the file that it stored.
    harness.run("plan", "--job", walked, "--step", FAR)
    fetch = ["--from", FAR, "--steps", 5]
    with harness.Fleet(walked, 1) as fleet:
        expected = harness.fetch(fleet.endpoints, walked, *fetch)
    fresh, fresh_index = with_index(budget, "fresh")
    with harness.Fleet(fresh, 2) as fleet:
        digests = harness.fetch(fleet.endpoints, fresh, *fetch)
        assert harness.fetch(fleet.endpoints, fresh, "--steps", 3).steps
    assert (digests.steps, digests.chain) == (expected.steps, expected.chain)
    assert 1 <= len(tables(fresh_index)) <= 2
    # Where nothing can be stored the table is kept in memory.
    no_folder, no_index = with_index(budget, "readonly")
    (no_index / "steps").write_text("no folder")
    with harness.Fleet(no_folder, 1) as fleet:
        digests = harness.fetch(fleet.endpoints, no_folder, *fetch)
    assert (digests.steps, digests.chain) == (expected.steps, expected.chain)


def test_work_on_a_far_step_ends_with_caller_or_worker(budget):
    job, index = with_index(budget, "ends")
    far = 300_000_000  # hours of work
    with harness.Fleet(job, 1) as fleet:
        worker = fleet.workers[0]
        done = harness.run("fetch", "--endpoints", fleet.endpoints, "--from", far, "--steps", 1,
                           "--step-timeout", 5, check=False)
        assert done.returncode == 4 and "is being compiled" in done.stderr, done.stderr
        assert "the data is not at fault" not in done.stderr
        near = harness.fetch(fleet.endpoints, job, "--steps", 10)
        assert len(near.steps) == 10
        asking = harness.Fetch(fleet.endpoints, job, "--from", far, "--steps", 1)
        time.sleep(2)
        begin = time.monotonic()
        assert worker.terminate(60) == 0
        assert time.monotonic() - begin < 40, "not as long as the work"
        asking.process.kill()
        asking.process.wait(30)
    with harness.Fleet(job, 1) as fleet:
        worker = fleet.workers[0]
        harness.run("fetch", "--endpoints", fleet.endpoints, "--from", far, "--steps", 1, "--step-timeout", 3,
                    check=False)

        def cpu_seconds():
            fields = open(f"/proc/{worker.process.pid}/stat").read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        end = time.monotonic() + 60
        while True:  # until it is idle: what it was asked for is forgotten ten seconds later
            before = cpu_seconds()
            time.sleep(4)
            if cpu_seconds() - before < 0.5:
                break
            assert time.monotonic() < end, "it goes on without a caller"
    assert len(tables(index)) < 100
