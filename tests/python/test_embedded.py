"""A worker on this node that the loader starts: one for all ranks, gone with the last of them however it goes."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import evenkeel
import jobs
from evenkeel import embedded

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
DEADLINE_SECONDS = 60
# Prints the digest of a step, then holds the loader until its standard input ends.
RANK = """
import sys
import evenkeel
loader = evenkeel.Loader(sys.argv[1], rank=int(sys.argv[2]), worker_threads=1, worker_memory="512MiB", prefetch_bytes=64 << 20)
try:
    print(next(loader).digest(), flush=True)
except evenkeel.Error as error:
    print(type(error).__name__, " ".join(str(error).split()), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded")
    jobs.write_shard(folder / "mixed.tar")
    return folder


@pytest.fixture
def job(shard, tmp_path, monkeypatch):
    """Without an index."""
    monkeypatch.setenv("EVENKEEL_BIN", jobs.BINARY)
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "mixed.tar").symlink_to(shard / "mixed.tar")
    return jobs.write_job(tmp_path, "two", 2, "balance_without_moving", "once_per_step", f"{{capacity_tokens: {jobs.CAPACITY}}}")


def start(job, rank):
    path = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
    return subprocess.Popen([sys.executable, "-c", RANK, str(job), str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path, "WORLD_SIZE": "2"})


def end(*ranks):
    """All of them first: the worker lives, and has their standard error, until the last is gone."""
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.communicate()


def processes(job):
    """{pid: command line} of what runs for the job: workers, decoders and supervisors."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if str(job) in words and "serve" in words or str(job.parent / "runtime") in " ".join(words):
            found[int(path.name)] = " ".join(words)
    return found


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ranks_share_a_worker_that_ends_with_the_last(job):
    ranks = [start(job, rank) for rank in range(2)]
    try:
        digests = [rank.stdout.readline().strip() for rank in ranks]
        running = processes(job)
        assert sum("embedded.py" in one for one in running.values()) == 1, running
        assert len({words for words in running.values() if " serve " in words}) == 1, "and its decoders"
        with jobs.worker(job) as endpoint:  # "moves to a fleet with no other change"
            assert digests == [next(jobs.alone(str(job), rank=rank, endpoints=endpoint)).digest() for rank in range(2)]
        ranks[0].kill()
        ranks[0].wait()
        time.sleep(0.5)
        assert processes(job), "the other rank still has it"
        ranks[1].send_signal(signal.SIGKILL)
        wait_until(lambda: not processes(job))
        assert "no index for" in "".join(rank.stderr.read() for rank in ranks)
    finally:
        end(*ranks)


def unix_sockets():
    """{inode: name} of the abstract sockets of sealed memory in this network namespace, whoever made them."""
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if "@evenkeel-" in line]
    return {words[-2]: words[-1] for words in lines}


def held_by(pids):
    """(names of abstract sockets, files of /dev/shm) that the processes have open or map."""
    opened = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            opened |= {os.readlink(one) for one in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
            opened |= set(pathlib.Path(f"/proc/{pid}/maps").read_text().split())
    sockets = {name for inode, name in unix_sockets().items() if f"socket:[{inode}]" in opened}
    return sockets, {name for name in opened if name.startswith("/dev/shm/")}


def test_parts_are_handed_over_as_sealed_memory(job):
    jobs.make_index(job)
    digests = {}
    for transport in ("auto", "grpc"):
        with jobs.alone(job, rank=0, num_steps=3, transport=transport, prefetch_bytes=64 << 20) as loader:
            digests[transport] = [step.digest() for step in loader]
            assert loader.stats()["transport"] == {"auto": "memory sealed", "grpc": "grpc http2/tcp"}[transport]
    assert digests["auto"] == digests["grpc"]
    wait_until(lambda: not processes(job))


def test_a_killed_trainer_leaves_nothing(job):
    """No process, no socket, no shared memory, also where it had mapped a worker's pages."""
    jobs.make_index(job)
    trainer = start(job, 0)
    try:
        assert len(trainer.stdout.readline()) == 33
        # Those of the steps that are fetched ahead: the first one is forgotten.
        maps = pathlib.Path(f"/proc/{trainer.pid}/maps")
        wait_until(lambda: "memfd:evenkeel-part" in maps.read_text())
        sockets, files = held_by([trainer.pid, *processes(job)])
        assert len(sockets) == 1
    finally:
        end(trainer)
    wait_until(lambda: not processes(job))
    assert not sockets & set(unix_sockets().values())
    assert not [name for name in files if os.path.exists(name)]


def test_the_worker_ends_with_its_supervisor(job):
    loader = jobs.alone(job, rank=0, prefetch_bytes=64 << 20)
    first = next(loader).digest()
    [supervisor] = [pid for pid, words in processes(job).items() if "embedded.py" in words]
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not processes(job))
    loader.close()
    with jobs.alone(job, rank=0, prefetch_bytes=64 << 20) as again:
        assert next(again).digest() == first
    wait_until(lambda: not processes(job))


def test_the_workers_own_words_are_the_exception(job):
    job.write_text(job.read_text().replace("seed: 5", "seeed: 5"))
    with pytest.raises(evenkeel.Unavailable, match="unknown key 'seeed' in job; nearest is 'seed'"):
        next(evenkeel.Loader(job, rank=0))
    wait_until(lambda: not processes(job))
    with pytest.raises(evenkeel.InvalidArgument, match="No such file"):
        next(evenkeel.Loader(job.with_name("other.yaml"), rank=0))


def test_shards_that_are_missing_are_named_by_the_exception(job):
    (job.parent / "mixed.tar").unlink()
    with pytest.raises(evenkeel.Unavailable, match="mixed.tar: No such file"):
        next(evenkeel.Loader(job, rank=0))
    wait_until(lambda: not processes(job))


def test_two_processes_with_one_rank_are_refused(job):
    jobs.make_index(job)
    first = start(job, 1)
    second = None
    try:
        assert len(first.stdout.readline()) == 33
        second = start(job, 1)
        said = second.stdout.readline()
        assert said.startswith(f"InvalidArgument rank 1 of {job} is used by process {first.pid} already"), said
    finally:
        end(*filter(None, (first, second)))
    wait_until(lambda: not processes(job))


def test_a_folder_that_others_could_enter_is_refused(job, tmp_path):
    (tmp_path / "runtime").mkdir(mode=0o755)
    (tmp_path / "runtime").chmod(0o755)
    with pytest.raises(evenkeel.InvalidArgument, match="must be a folder of this user with mode 0700"):
        next(evenkeel.Loader(job, rank=0))


def test_the_program_is_the_named_one_or_that_of_the_build(monkeypatch, tmp_path):
    monkeypatch.setenv("EVENKEEL_BIN", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="EVENKEEL_BIN"):
        embedded.find_program()
    monkeypatch.delenv("EVENKEEL_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "evenkeel").write_text("#!/bin/sh\n")
    (tmp_path / "evenkeel").chmod(0o755)
    monkeypatch.setattr(embedded, "__file__", str(tmp_path / "package" / "evenkeel" / "embedded.py"))
    assert embedded.find_program() == str(tmp_path / "evenkeel")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="give endpoints= of workers"):
        embedded.find_program()


def workers(job):
    """Process ids of `evenkeel serve`, not of its decoders."""
    return [pid for pid in processes(job) if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "evenkeel"
            and " serve " in processes(job).get(pid, "") and parent_is_supervisor(pid)]


def parent_is_supervisor(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    parent = int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
    return "embedded.py" in pathlib.Path(f"/proc/{parent}/cmdline").read_text()


def test_a_worker_that_ends_is_started_again(job):
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        expected = [step.digest() for step in jobs.alone(endpoint, rank=0, num_steps=6)]
    with jobs.alone(job, rank=0, prefetch_bytes=64 << 20, prefetch_steps=1, num_steps=6) as loader:
        digests = [next(loader).digest()]
        [first] = workers(job)
        os.kill(first, signal.SIGKILL)
        digests += [step.digest() for step in loader]
        assert digests == expected
        [second] = workers(job)
        assert second != first
    wait_until(lambda: not processes(job))


def test_a_worker_that_ends_again_and_again_is_an_error(job):
    jobs.make_index(job)
    loader = jobs.alone(job, rank=0, prefetch_bytes=64 << 20, prefetch_steps=1, step_timeout=4)
    next(loader)
    failed = pathlib.Path(loader._worker._folder) / "failed"

    def kill():
        for pid in workers(job):
            os.kill(pid, signal.SIGKILL)
        return failed.exists()
    wait_until(kill)
    with pytest.raises(evenkeel.Unavailable, match="the worker ended with signal 9, after 3 restarts"):
        for _ in range(10):
            next(loader)
    with pytest.raises(evenkeel.Unavailable, match="the worker ended with signal 9, after 3 restarts"):
        jobs.alone(job, rank=1).connect()
    loader.close()
    wait_until(lambda: not processes(job))


def test_a_processor_without_lengths_is_indexed_too(job, capfd):
    jobs.make_index(job)
    job.write_text(job.read_text().replace("max_pixels: 12544", "max_pixels: 9000"))
    with jobs.alone(job, rank=0, prefetch_bytes=64 << 20) as loader:
        next(loader)
    assert "no index for" in capfd.readouterr().err
    wait_until(lambda: not processes(job))


def test_a_loader_of_another_split_has_other_samples(job):
    job.write_text(job.read_text() + "splits: [{name: train, share: 0.6}, {name: eval, share: 0.4}]\n")
    jobs.make_index(job)
    seen = {}
    with jobs.alone(job, rank=0, prefetch_bytes=64 << 20) as train, \
            jobs.alone(job, rank=0, split="eval", prefetch_bytes=64 << 20) as evaluation:
        for loader in (train, evaluation):
            seen[loader] = {tuple(one) for step, _ in zip(loader, range(3)) for microbatch in step.microbatches
                            for one in microbatch["sample_ids"].tolist()}
        assert train.state_dict() != evaluation.state_dict(), "a state of one is not taken by the other"
    assert all(seen.values())
    with pytest.raises(evenkeel.Unavailable, match="there is no split 'tset'; nearest is"):
        next(evenkeel.Loader(job, rank=0, split="tset"))
    wait_until(lambda: not processes(job))


def test_a_rank_that_the_job_does_not_have_is_named(job):
    jobs.make_index(job)
    with pytest.raises(evenkeel.InvalidArgument, match="rank 5 is not in the job: its phases run on ranks 0-1"):
        next(evenkeel.Loader(job, rank=5))
    wait_until(lambda: not processes(job))


@pytest.mark.parametrize("options, of_worker, of_index", [
    (["--threads", "2"], ["--python", sys.executable], ["--python", sys.executable]),
    (["--python", "/opt/python", "--threads", "2"], [], ["--python", "/opt/python"]),
    (["--python=/opt/python"], [], ["--python=/opt/python"])])
def test_processors_in_python_have_the_trainers_interpreter(options, of_worker, of_index):
    assert embedded._own_python(options) == of_worker
    assert embedded._own_python(options, with_given=True) == of_index
