"""Meshes in Python: coordinates, what they are derived from, and the block of the job."""

import itertools
import subprocess
import sys

import pytest
import torch

import ranks
from evenkeel import topology


def test_coordinates_are_megatrons():
    for rank in range(256):
        one = topology.from_grid(rank, tensor=4, context=2, data=16, pipeline=2)
        assert rank == one.tensor_index + 4 * (one.context_index + 2 * (one.replica + 16 * one.stage))
        assert one.leader == 8 * one.replica and rank in one.members() and len(one.members()) == 16
        assert one.role == ("first" if rank < 128 else "last")
    assert one.leaders == list(range(0, 128, 8))
    assert topology.from_grid(9, tensor=4, context=2, world=256, pipeline=2, ranks_per_node=8).node_members() == list(range(8, 16))


def test_rank_at_inverts_coordinates_for_every_order():
    for names in itertools.permutations(("tp", "cp", "dp", "pp")):
        one = topology.from_grid(5, tensor=2, context=3, data=4, pipeline=5, order="-".join(names))
        for rank in one.ranks:
            assert one.rank_at(**one.coordinates(rank)) == rank
        assert one.peer(one.leader) == one.rank
        assert one.context_ranks[one.context_index] == one.rank


def test_sizes_and_ranks_that_make_no_mesh_are_refused():
    for given, words in (({"tensor": 3, "world": 8}, "not a multiple"), ({"tensor": 0, "data": 1}, "not a whole number from 1"),
                         ({"order": "tp-dp", "data": 2}, "name each of tp, cp, dp and pp once"),
                         ({"data": 2, "ranks": [0, 0]}, "listed twice"), ({"data": 2, "ranks": [0, 1, 2]}, "3 ranks, but"),
                         ({}, "give data, world or ranks")):
        with pytest.raises(ValueError, match=words):
            topology.from_grid(0, **given)
    with pytest.raises(ValueError, match="rank 9 is not in the mesh"):
        topology.from_grid(9, data=4)


def test_ranks_per_node_is_that_of_the_launcher(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="LOCAL_WORLD_SIZE"):
        topology.from_grid(0, tensor=2, data=2).node_members()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert topology.from_grid(3, tensor=4, data=1).node_members() == [2, 3]


def test_the_block_is_printed_for_a_job():
    done = subprocess.run([sys.executable, "-m", "evenkeel.topology", "--tp", "4", "--cp", "2", "--pp", "2", "--world", "256",
                           "--ranks-per-node", "8"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:3] == ["topology:", "  ranks_per_node: 8",
                                            "  mesh: {order: tp-cp-dp-pp, tensor: 4, context: 2, data: 16, pipeline: 2}"]
    wrong = subprocess.run([sys.executable, "-m", "evenkeel.topology", "--tp", "3", "--world", "8"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "not a multiple" in wrong.stderr


class Mesh:
    """As much of a DeviceMesh as is read."""

    def __init__(self, layout, names):
        self.mesh, self.mesh_dim_names = layout, names


def test_a_device_mesh_is_read_by_its_names():
    layout = torch.arange(32).reshape(2, 2, 2, 4)  # of torchtitan: the last dimension is the fastest
    one = topology.from_device_mesh(Mesh(layout, ("pp", "dp_replicate", "dp_shard", "tp")), rank=21)
    assert one.sizes == {"tensor": 4, "context": 1, "data": 4, "pipeline": 2} and one.order == "tp-cp-dp-pp"
    assert (one.stage, one.replica, one.tensor_index) == (1, 1, 1)
    other = topology.from_device_mesh(Mesh(torch.arange(8).reshape(2, 4), ("dp", "ulysses")), rank=6)
    assert (other.replica, other.context_index, other.context) == (1, 2, 4)
    apart = topology.from_device_mesh(Mesh(torch.arange(8).reshape(2, 2, 2), ("cp", "dp", "ulysses")), rank=5)
    assert apart.context == 4 and apart.data == 2 and apart.members() == [0, 1, 4, 5]
    assert "every phase on this mesh" in apart.describe()
    with pytest.raises(ValueError, match="say which axis"):
        topology.from_device_mesh(Mesh(layout, ("pp", "x", "y", "tp")), rank=0)
    assert topology.from_device_mesh(Mesh(layout, ("pp", "x", "y", "tp")), {"x": "data", "y": "context"}, rank=0).context == 2


def real_mesh(rank):
    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    one = topology.from_device_mesh(mesh, ranks_per_node=4)
    topology.check(one)
    return one.stage, one.tensor_index, one.describe()


@pytest.mark.skipif(not hasattr(torch.distributed, "init_device_mesh"), reason="torch before 2.2")
def test_a_real_device_mesh_passes_the_check():
    answers = ranks.run(4, real_mesh)
    assert [answer[:2] for answer in answers] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "pipeline: 2" in answers[0][2]


class ParallelState:
    """Megatron-Core's functions, by its own formula for the order."""

    def __init__(self, rank, sizes, order):
        self._sizes, self._at = sizes, {}
        self._one = topology.Topology(rank, **sizes, order=order)
        self._at = self._one.coordinates(rank)

    def __getattr__(self, name):
        axis = {"tensor_model_parallel": "tensor", "context_parallel": "context", "data_parallel": "data",
                "pipeline_model_parallel": "pipeline"}
        for word, which in axis.items():
            if name == f"get_{word}_world_size":
                return lambda: self._sizes[which]
            if name == f"get_{word}_rank":
                return lambda: self._at[which]
        if name == "get_data_parallel_group":
            return lambda: [self._one.rank_at(**{**self._at, "data": i}) for i in range(self._sizes["data"])]
        raise AttributeError(name)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp"])
def test_megatrons_parallel_state_gives_sizes_and_order(monkeypatch, order):
    sizes = {"tensor": 2, "context": 2, "data": 3, "pipeline": 2}
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", list, raising=False)
    for rank in range(24):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        one = topology.from_megatron(ParallelState(rank, sizes, order))
        assert one.order == order and one.sizes == sizes and one.rank == rank
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with pytest.raises(ValueError, match="neither"):
        topology.from_megatron(ParallelState(1, sizes, "pp-tp-cp-dp"))


def real_megatron(rank, order):
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=2, order=order)
    try:
        one = topology.from_megatron(ranks_per_node=8)
        topology.check(one)
        return one.order, one.tensor_index, one.replica, one.stage
    finally:
        parallel_state.destroy_model_parallel()


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
def test_megatrons_own_parallel_state_passes_the_check(order):
    pytest.importorskip("megatron.core")
    answers = ranks.run(8, real_megatron, order)
    slow, fast = ("stage", "replica") if order.endswith("pp") else ("replica", "stage")
    for rank, (mesh, tensor, replica, stage) in enumerate(answers):
        at = {"replica": replica, "stage": stage}
        assert mesh == order.replace("-ep", "") and rank == tensor + 2 * at[fast] + 4 * at[slow]
