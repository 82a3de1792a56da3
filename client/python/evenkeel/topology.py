"""Where this process stands in a mesh of tensor, context, data and pipeline parallelism.

    topology = evenkeel.topology.from_megatron()             # or from_device_mesh(mesh), from_grid(rank, tensor=4, ...)
    print(topology.describe())                               # the job's `topology` block
    loader = evenkeel.Loader("job.yaml", topology=topology, fetch="node")
    evenkeel.topology.check(topology, loader)                # one small gather, before the first step

    python3 -m evenkeel.topology --tensor 4 --context 2 --pipeline 2 --world 256 --ranks-per-node 8    # the block alone

A replica is what is planned for as one: all ranks with the same data coordinate. docs/parallelism.md has the table of
what each of its members receives. torch is imported by the functions that need it alone.
"""

import argparse
import itertools
import os
import sys
import zlib

AXES = ("tensor", "context", "data", "pipeline")
_SHORT = dict(zip(AXES, ("tp", "cp", "dp", "pp")))
_NOT_CONNECTED = 2
ROLES = ("whole", "first", "middle", "last")  # the numbers are those of the control plane
# Names that trainers give to the dimensions of a DeviceMesh.
_DIMENSIONS = {"tp": "tensor", "tensor": "tensor", "cp": "context", "context": "context", "ulysses": "context",
               "sp": "context", "dp": "data", "data": "data", "batch": "data", "fsdp": "data", "dp_replicate": "data",
               "dp_shard": "data", "pp": "pipeline", "pipeline": "pipeline"}


class Topology:
    """The mesh of a phase, and the place of one global rank in it. Immutable.

    tensor, context, data, pipeline   sizes
    order            "tp-cp-dp-pp": the fastest axis first
    ranks            global ranks in the order of the mesh; by default from 0 on
    rank             this process's
    ranks_per_node   None: not known
    replica, stage, context_index, tensor_index   coordinates of `rank`
    role             what it receives: "whole" without pipeline stages, else "first", "middle" or "last"
    """

    def __init__(self, rank, tensor=1, context=1, data=1, pipeline=1, order="tp-cp-dp-pp", ranks=None, ranks_per_node=None):
        self.tensor, self.context, self.data, self.pipeline = tensor, context, data, pipeline
        self.order = order
        names = order.split("-")
        if sorted(names) != sorted(_SHORT.values()):
            raise ValueError(f"order {order!r} does not name each of tp, cp, dp and pp once, the fastest first: tp-cp-dp-pp")
        for axis, size in self.sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{axis} is {size!r}, not a whole number from 1")
        count = tensor * context * data * pipeline
        self.ranks = tuple(range(count)) if ranks is None else tuple(int(one) for one in ranks)
        if len(self.ranks) != count:
            raise ValueError(f"{len(self.ranks)} ranks, but tensor {tensor} x context {context} x data {data} x pipeline "
                             f"{pipeline} = {count}")
        if len(set(self.ranks)) != count:
            raise ValueError("a rank is listed twice")
        long = {short: axis for axis, short in _SHORT.items()}
        self._axes = tuple(long[name] for name in names)
        self._place = {one: place for place, one in enumerate(self.ranks)}
        self.rank = int(rank)
        if self.rank not in self._place:
            raise ValueError(f"rank {rank} is not in the mesh, which has {count} ranks")
        self.ranks_per_node = ranks_per_node
        at = self.coordinates(self.rank)
        self.replica, self.stage = at["data"], at["pipeline"]
        self.context_index, self.tensor_index = at["context"], at["tensor"]
        self.role = self.role_of(self.rank)

    @property
    def sizes(self):
        return {axis: getattr(self, axis) for axis in AXES}

    def coordinates(self, rank):
        """{axis: coordinate} of a global rank."""
        place, at = self._place[rank], {}
        for axis in self._axes:
            size = getattr(self, axis)
            place, at[axis] = divmod(place, size)
        return at

    def rank_at(self, **at):
        """The global rank at coordinates by axis; an axis that is not given is at 0."""
        place, stride = 0, 1
        for axis in self._axes:
            place += stride * at.get(axis, 0)
            stride *= getattr(self, axis)
        return self.ranks[place]

    def role_of(self, rank):
        stage = self.coordinates(rank)["pipeline"]
        if self.pipeline == 1:
            return "whole"
        return "first" if stage == 0 else "last" if stage == self.pipeline - 1 else "middle"

    def members(self, replica=None, stage=None):
        """Global ranks of a replica (None: this one), ascending; of one of its stages where that is given."""
        replica = self.replica if replica is None else replica
        stages = range(self.pipeline) if stage is None else [stage]
        return sorted(self.rank_at(data=replica, pipeline=one, context=c, tensor=t)
                      for one in stages for c in range(self.context) for t in range(self.tensor))

    @property
    def leaders(self):
        """The member of each replica at tensor 0, context 0, stage 0: what the job's plan calls its rank."""
        return [self.rank_at(data=replica) for replica in range(self.data)]

    @property
    def leader(self):
        return self.rank_at(data=self.replica)

    @property
    def context_ranks(self):
        """Global ranks of this rank's context group, in its order."""
        return [self.rank_at(data=self.replica, pipeline=self.stage, context=c, tensor=self.tensor_index)
                for c in range(self.context)]

    def context_groups(self):
        """Global ranks of every context group of the mesh, the same list on every rank."""
        return [[self.rank_at(data=d, pipeline=p, context=c, tensor=t) for c in range(self.context)]
                for p in range(self.pipeline) for d in range(self.data) for t in range(self.tensor)]

    def ranks_of_replicas(self, first, count):
        """Global ranks at this rank's coordinates in the replicas from `first` on: a dynamic context group."""
        return [self.rank_at(data=replica, pipeline=self.stage, context=self.context_index, tensor=self.tensor_index)
                for replica in range(first, first + count)]

    def pool_groups(self, sizes):
        """Global ranks of every dynamic context group of these sizes, the same list on every rank. A group of n replicas begins
        at a multiple of n."""
        return [[self.rank_at(data=replica, pipeline=p, tensor=t) for replica in range(first, first + size)]
                for size in sizes if size > 1 for first in range(0, self.data - size + 1, size)
                for p in range(self.pipeline) for t in range(self.tensor)]

    def peer(self, leader):
        """The rank at this rank's coordinates in the replica that `leader` leads."""
        return self.rank_at(data=self.coordinates(leader)["data"], pipeline=self.stage, context=self.context_index,
                            tensor=self.tensor_index)

    def node_members(self):
        """Members of this replica on this rank's node, ascending. ValueError where ranks_per_node is not known."""
        if not self.ranks_per_node:
            raise ValueError("ranks_per_node is not known: give it to the topology, or set LOCAL_WORLD_SIZE as torchrun does")
        node = self.rank // self.ranks_per_node
        return [one for one in self.members() if one // self.ranks_per_node == node]

    def describe(self):
        """The job's `topology` block, as text. Ranks that do not count from 0 are a comment: they belong into the phases."""
        sizes = ", ".join(f"{axis}: {size}" for axis, size in self.sizes.items() if size > 1 or axis == "data")
        lines = ["topology:"]
        if self.ranks_per_node:
            lines.append(f"  ranks_per_node: {self.ranks_per_node}")
        lines.append(f"  mesh: {{order: {self.order}, {sizes}}}")
        if self.ranks != tuple(range(len(self.ranks))):
            lines.append(f"# every phase on this mesh: ranks: \"{','.join(map(str, self.ranks))}\"")
        return "\n".join(lines) + "\n"

    def same_mesh(self, other):
        return (self.sizes, self.ranks) == (other.sizes, other.ranks) and \
            all(self.coordinates(one) == other.coordinates(one) for one in self.ranks)

    def __repr__(self):
        return f"Topology(rank={self.rank}, {', '.join(f'{a}={n}' for a, n in self.sizes.items())}, order={self.order!r})"


def _local_world():
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(size) if size.isdigit() and int(size) > 0 else None


def from_grid(rank, tensor=1, context=1, data=None, pipeline=1, order="tp-cp-dp-pp", world=None, ranks=None,
              ranks_per_node=None):
    """A mesh of the given sizes. data: what the world, or the ranks, leave; ranks_per_node: LOCAL_WORLD_SIZE if set."""
    if data is None:
        count = len(ranks) if ranks is not None else world
        if count is None:
            raise ValueError("give data, world or ranks")
        data, left = divmod(count, tensor * context * pipeline)
        if left or data == 0:
            raise ValueError(f"{count} ranks are not a multiple of tensor {tensor} x context {context} x pipeline {pipeline}")
    return Topology(rank, tensor, context, data, pipeline, order, ranks, ranks_per_node or _local_world())


def from_megatron(parallel_state=None, ranks_per_node=None):
    """The mesh of Megatron-Core, whose parallel state is initialized. `parallel_state`: megatron.core.parallel_state.

    Reads sizes and this rank's data-parallel group; its stride shows whether pipeline stages are the slowest axis
    (tp-cp-dp-pp) or replicas are (tp-cp-pp-dp). ValueError where the group is that of neither.
    """
    import torch.distributed as dist
    if parallel_state is None:
        from megatron.core import parallel_state
    sizes = {"tensor": parallel_state.get_tensor_model_parallel_world_size(),
             "context": parallel_state.get_context_parallel_world_size(),
             "data": parallel_state.get_data_parallel_world_size(),
             "pipeline": parallel_state.get_pipeline_model_parallel_world_size()}
    group = dist.get_process_group_ranks(parallel_state.get_data_parallel_group())
    at = {"tensor": parallel_state.get_tensor_model_parallel_rank(), "context": parallel_state.get_context_parallel_rank(),
          "data": parallel_state.get_data_parallel_rank(), "pipeline": parallel_state.get_pipeline_model_parallel_rank()}
    for order in ("tp-cp-dp-pp", "tp-cp-pp-dp"):
        topology = from_grid(dist.get_rank(), **sizes, order=order, ranks_per_node=ranks_per_node)
        own = [topology.rank_at(**{**at, "data": replica}) for replica in range(sizes["data"])]
        if topology.coordinates(topology.rank) == at and own == list(group):
            return topology
    raise ValueError(f"rank {dist.get_rank()} is at {at} of {sizes} with the data-parallel group {list(group)}: neither "
                     "tp-cp-dp-pp nor tp-cp-pp-dp; describe the mesh by from_grid(ranks=...)")


def from_device_mesh(mesh, axes=None, rank=None, ranks_per_node=None):
    """The mesh of a torch DeviceMesh.

    axes   {name of a dimension: "tensor", "context", "data" or "pipeline"}; names that trainers use are known (tp, cp,
           ulysses, dp, dp_replicate, dp_shard, fsdp, pp). Several dimensions may be one axis.
    """
    import torch.distributed as dist
    names = mesh.mesh_dim_names or ()
    axes = {**_DIMENSIONS, **(axes or {})}
    unknown = [name for name in names if axes.get(name) not in AXES]
    if unknown or not names:
        raise ValueError(f"dimensions {unknown or 'without names'}: say which axis each is, as in axes={{'dp': 'data'}}")
    layout = mesh.mesh
    # Row-major with the slowest axis first, so that the flat list is in the order tp-cp-dp-pp.
    wanted = [i for axis in reversed(AXES) for i, name in enumerate(names) if axes[name] == axis]
    ranks = layout.permute(wanted).reshape(-1).tolist()
    sizes = dict.fromkeys(AXES, 1)
    for name, size in zip(names, layout.shape):
        sizes[axes[name]] *= int(size)
    return _in_short(dist.get_rank() if rank is None else rank, sizes, ranks, ranks_per_node or _local_world())


def _in_short(rank, sizes, ranks, ranks_per_node):
    """By an order over ranks from 0 on where there is one, else with the list of ranks."""
    explicit = Topology(rank, **sizes, ranks=ranks, ranks_per_node=ranks_per_node)
    if sorted(ranks) == list(range(len(ranks))):
        orders = ["tp-cp-dp-pp", "tp-cp-pp-dp", *("-".join(one) for one in itertools.permutations(_SHORT.values()))]
        for order in orders:
            short = Topology(rank, **sizes, order=order, ranks_per_node=ranks_per_node)
            if short.same_mesh(explicit):
                return short
    return explicit


def of_phase(rank, ranks, mesh, ranks_per_node=None):
    """The topology of a phase as a loader's connection describes it; None where the rank is not in the phase."""
    if mesh is None:
        return Topology(rank, data=len(ranks), ranks=ranks, ranks_per_node=ranks_per_node) if rank in ranks else None
    order, tensor, context, data, pipeline, members = mesh
    if rank not in members:
        return None
    return Topology(rank, tensor, context, data, pipeline, order, members, ranks_per_node)


def check(topology, loader=None, group=None):
    """Compares what all ranks of `group` (None: the world) take the mesh for, with the job and with the hosts.

    A collective: every rank of the mesh calls it, once, before training. Mismatch on every rank, which names the ranks:
    two processes with one rank; another mesh; ranks that are missing; nodes of another size than ranks_per_node; a job
    whose llm has another mesh (with `loader`, which is connected then).
    """
    import socket

    import torch.distributed as dist

    from evenkeel import agreement
    from evenkeel.errors import Error, Mismatch, name_ranks
    error = None
    code = [topology.rank, zlib.crc32(repr((topology.sizes, topology.ranks, topology.order)).encode()),
            topology.ranks_per_node or 0, zlib.crc32(socket.gethostname().encode()), 0]
    try:
        code[4] = _compare_job(topology, loader)
    except Error as raised:  # the other ranks wait for this one's word
        code[4], error = _NOT_CONNECTED, raised
    if dist.is_available() and dist.is_initialized():
        said = agreement.gather_numbers(code, group)
    else:
        said = [code]

    def refuse(text):
        raise Mismatch(text, "FAILED_PRECONDITION")

    ranks = sorted(one[0] for one in said)
    twice = sorted({one for one in ranks if ranks.count(one) > 1})
    if twice:
        refuse(f"{name_ranks(twice)} used by more than one process: give each process its own global rank")
    if len(said) > 1 and ranks != sorted(topology.ranks):
        missing = sorted(set(topology.ranks) - set(ranks))
        other = sorted(set(ranks) - set(topology.ranks))
        refuse("the mesh and the processes differ: " + "; ".join(
            text for text, some in ((f"{name_ranks(missing) if missing else ''} of the mesh have no process", missing),
                                    (f"{name_ranks(other) if other else ''} are not in the mesh", other)) if some))
    for number, what in ((1, "mesh"), (2, "ranks_per_node")):
        differ = sorted(one[0] for one in said if one[number] != said[0][number])
        if differ:
            refuse(f"{name_ranks(differ)} have another {what} than rank {said[0][0]}; here it is {topology!r} with "
                   f"ranks_per_node {topology.ranks_per_node}")
    _check_hosts(topology.ranks_per_node, said, refuse)
    if error is not None:
        raise error
    absent = sorted(one[0] for one in said if one[4] == _NOT_CONNECTED)
    if absent:
        raise Error(f"{name_ranks(absent)} could not connect to the workers; the error there says why", "UNAVAILABLE")
    other = sorted(one[0] for one in said if one[4])
    if other:
        refuse(f"the job's llm has another mesh than {name_ranks(other)}: the training has\n{topology.describe()}"
               + ("" if loader is None else f"the job\n{loader.topology.describe() if loader.topology else 'no such rank'}"))


def _check_hosts(ranks_per_node, said, refuse):
    if not ranks_per_node:
        return
    hosts = {}
    for rank, _, _, host, _ in said:
        hosts.setdefault(rank // ranks_per_node, {}).setdefault(host, []).append(rank)
    for node, by_host in sorted(hosts.items()):
        if len(by_host) > 1:
            refuse(f"ranks_per_node is {ranks_per_node}, but the ranks of node {node} run on {len(by_host)} hosts: "
                   + "; ".join(str(sorted(ranks)) for ranks in by_host.values()))


def _compare_job(topology, loader):
    """1 where the job's llm has another mesh."""
    if loader is None:
        return 0
    of_job = loader.topology
    return int(of_job is None or not of_job.same_mesh(topology))


def wire_bytes(loader, topology, group=None):
    """{replica: bytes that its members received from workers since they connected}. A collective."""
    from evenkeel import agreement
    out = {}
    for replica, count in agreement.gather_numbers([topology.replica, loader.stats()["bytes"]], group):
        out[replica] = out.get(replica, 0) + count
    return dict(sorted(out.items()))


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python3 -m evenkeel.topology", description="prints the `topology` block of a job")
    for axis in AXES:
        parser.add_argument(f"--{axis}", f"--{_SHORT[axis]}", type=int, default=None if axis == "data" else 1)
    parser.add_argument("--world", type=int, help="number of global ranks, in place of --data")
    parser.add_argument("--order", default="tp-cp-dp-pp", help="the fastest axis first")
    parser.add_argument("--ranks-per-node", type=int)
    given = vars(parser.parse_args(argv))
    try:
        topology = from_grid(0, **given)
    except ValueError as error:
        parser.error(str(error))
    print(topology.describe(), end="")
    print(f"# {topology.data} replicas; their leaders are the ranks {topology.leaders[:8]}"
          f"{' ...' if topology.data > 8 else ''}")


if __name__ == "__main__":
    sys.exit(main())
