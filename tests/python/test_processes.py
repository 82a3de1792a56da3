"""A training with fewer processes than the job has ranks is an error, unless it is a trial."""

import os
import sys
import types

import pytest

import evenkeel
import jobs
import mesh_jobs
from evenkeel import processes

needs_binary = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")


@pytest.fixture(autouse=True)
def without_launcher(monkeypatch):
    for name in processes._VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def distributed(monkeypatch):
    """A torch.distributed in which a process group of `size` is initialized; 0: none."""
    module = types.SimpleNamespace(size=0, is_available=lambda: True)
    module.is_initialized = lambda: module.size > 0
    module.get_world_size = lambda: module.size
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    return module


@pytest.mark.parametrize("name", processes._VARIABLES)
def test_launchers_give_the_number(distributed, monkeypatch, name):
    assert processes.count()[0] == 1
    monkeypatch.setenv(name, "8")
    assert processes.count() == (8, f"{name} is set to that number")
    for value in ("", "0", "-2", "many"):
        monkeypatch.setenv(name, value)
        assert processes.count()[0] == 1


def test_an_initialized_process_group_gives_the_number(distributed, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    distributed.size = 2
    assert processes.count()[0] == 2
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert processes.count()[0] == 8


def test_fewer_processes_than_ranks_are_named(distributed):
    with pytest.raises(evenkeel.InvalidArgument) as error:
        processes.check([0, 1, 2, 5])
    for words in ("the training has 1 process (torch.distributed is not initialized", "the job has 4 ranks (ranks 0-2, 5)",
                  "--nproc_per_node 4", "some_ranks=True"):
        assert words in str(error.value)
    distributed.size = 3
    with pytest.raises(evenkeel.InvalidArgument, match="has 3 processes .torch.distributed is initialized with that number"):
        processes.check([0, 1, 2, 5])


def test_as_many_processes_as_ranks_or_more_are_allowed(distributed):
    processes.check([0])
    distributed.size = 4
    processes.check([0, 1, 2, 5])
    processes.check([0, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    jobs.write_shard(folder / "mixed.tar")
    jobs.make_index(two_ranks(folder))
    return folder


def two_ranks(folder):
    return jobs.write_job(folder, "two", 2, "balance_without_moving", "once_per_step", f"{{capacity_tokens: {jobs.CAPACITY}}}")


@needs_binary
def test_a_loader_counts_before_its_first_step(folder, distributed, monkeypatch):
    with jobs.worker(two_ranks(folder)) as endpoint:
        loader = evenkeel.Loader(endpoint, rank=0)
        with pytest.raises(evenkeel.InvalidArgument, match="has 1 process .* the job has 2 ranks .ranks 0-1."):
            next(loader)
        with evenkeel.Loader(endpoint, rank=0, some_ranks=True) as trial:
            digest = next(trial).digest()
        monkeypatch.setenv("WORLD_SIZE", "2")
        with loader:
            assert next(loader).digest() == digest


@needs_binary
def test_members_of_a_replica_count(folder, distributed, monkeypatch):
    path = mesh_jobs.write_job(folder, "mesh", {"tensor": 2, "context": 2, "data": 1}, align=4)
    with jobs.worker(path) as endpoint:
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(evenkeel.InvalidArgument, match="has 2 processes .* the job has 4 ranks .ranks 0-3."):
            evenkeel.Loader(endpoint, rank=0).connect()
        monkeypatch.setenv("WORLD_SIZE", "4")
        with evenkeel.Loader(endpoint, rank=0) as loader:
            loader.connect()


@needs_binary
def test_a_worker_of_this_node_ends_with_the_error(folder, distributed, monkeypatch, tmp_path):
    monkeypatch.setenv("EVENKEEL_BIN", jobs.BINARY)
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(tmp_path / "runtime"))
    with evenkeel.Loader(two_ranks(folder), rank=0, worker_threads=1, prefetch_bytes=64 << 20) as loader:
        with pytest.raises(evenkeel.InvalidArgument, match="the job has 2 ranks"):
            loader.connect()
        assert loader._worker is None
