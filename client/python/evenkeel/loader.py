"""The loader: iterate over it and get steps."""

import logging
import numbers
import os
from collections.abc import Mapping

from evenkeel import _evenkeel, embedded, fetching, processes
from evenkeel.errors import Error, InvalidArgument, Mismatch, Unavailable, name_ranks
from evenkeel.origin import Origin
from evenkeel.step import from_native
from evenkeel.topology import of_phase

_log = logging.getLogger("evenkeel")

_OPTIONS = {"transport", "require_rdma", "trusted_data_network", "devices", "prefetch_bytes", "prefetch_steps",
            "connect_timeout", "step_timeout", "progress_timeout", "expect_stream_digest", "expect_layout_digest",
            "all_loads", "whole", "tls_certificate", "tls_key", "tls_ca"}
_OWN_OPTIONS = {"endpoints", "topology", "fetch", "wait_for_done", "split", "some_ranks", "worker_threads", "worker_memory"}
_FETCH = ("each", "node", "leader")
_STEP_SECONDS, _CONNECT_SECONDS = 300, 30  # the defaults of the timeouts
_STATE_VERSION = 1


class Loader:
    """Receives the steps of one global rank, in order.

        loader = evenkeel.Loader("job.yaml", rank=rank)                # workers: one on this node, started and ended here
        loader = evenkeel.Loader("job.yaml", rank=rank, endpoints="a:7000,b:7000")        # or "dns:///name:port"
        loader.load_state_dict(checkpoint["data"])                     # optional, before or between steps
        for step in loader:
            train(step)
            checkpoint = {"data": loader.state_dict()}

    It connects when it is first used, so that it may be made before processes are forked and sent to spawned ones; a
    connected loader works in its own process only. Iterating again goes on where the last iteration stopped.

    source                  a job file (.yaml), or endpoints of workers
    rank                    global rank, one of the job's; by default that of `topology`
    endpoints               of workers; the job file is not read then
    topology                where the rank stands in the mesh (evenkeel.topology); compared with the job's
    fetch                   who of a replica's members receives from the workers: "each" of them; one per "node", whose memory
                            the others of the node read; or the "leader" alone, which broadcasts by torch.distributed.
                            The last two need `topology`, and every member makes the same loader
    whole                   everything of the replica, whatever the member's role in the mesh
    first_step, num_steps   which steps; without num_steps up to the end of the stream, which it has where every dataset of
                            the job has max_epochs
    wait_for_done           a step counts as consumed when step.done() is called, not when it is handed out: for whatever
                            fetches ahead of the training. The first call of step.done() has the same effect
    split                   of the job's `splits`, for a worker of this node; workers elsewhere serve the one that they were
                            started with (`evenkeel serve --split`)
    some_ranks              allows fewer processes than the job has ranks, whose shares are then not trained: for trials, as
                            one rank in a notebook. By default that is an InvalidArgument (evenkeel.processes)
    worker_threads, worker_memory   of the worker of this node: as --threads and --memory ("4GiB") of `evenkeel serve`
    transport               "auto", "memory" (workers of this machine and user), "ucx" or "grpc"; require_rdma, devices:
                            see docs/transport.md
    trusted_data_network    allows UCX over TCP, where anyone who reaches its ports can write this process's memory
    prefetch_bytes          receive memory (1 GiB); prefetch_steps: steps in flight at most (4)
    connect_timeout, step_timeout, progress_timeout   seconds (30, 300, 10)
    expect_stream_digest, expect_layout_digest        refuse workers of anything else
    all_loads               loads of every rank in `step.loads`, whose size then grows with the number of ranks
    tls_certificate, tls_key, tls_ca                  PEM files; all or none (then loopback only)
    """

    def __init__(self, source=None, rank=None, first_step=0, num_steps=None, *, endpoints=None, topology=None, fetch="each",
                 wait_for_done=False, split=None, some_ranks=False, worker_threads=None, worker_memory=None, **options):
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise TypeError(f"Loader: unknown option {unknown[0]!r}; known are {', '.join(sorted(_OPTIONS | _OWN_OPTIONS))}")
        if rank is None and topology is not None:
            rank = topology.rank
        if rank is None or (source is None and endpoints is None):
            raise TypeError("Loader: give a job file or endpoints, and the rank or the topology")
        if topology is not None and topology.rank != rank:
            raise ValueError(f"Loader: rank {rank} with the topology of rank {topology.rank}")
        if fetch not in _FETCH:
            raise ValueError(f"Loader: fetch is {fetch!r}, not one of {', '.join(_FETCH)}")
        if fetch != "each" and topology is None:
            raise TypeError(f"Loader: fetch={fetch!r} needs the topology, which has the members of the replica")
        if rank < 0 or first_step < 0 or (num_steps is not None and num_steps < 0):
            raise ValueError("Loader: rank, first_step and num_steps must not be negative")
        self._job = None
        if endpoints is None:
            if _is_job(source):
                self._job = os.path.abspath(source)
            else:
                endpoints = source
        self._worker_options = {"threads": worker_threads, "memory": worker_memory, "split": split}
        if self._job is None and any(option is not None for option in self._worker_options.values()):
            raise TypeError("Loader: split, worker_threads and worker_memory are of a worker on this node; these run elsewhere")
        self._options = {"endpoints": endpoints, "rank": rank,
                         **{key: value for key, value in options.items() if value is not None}}
        self._begin = self._next = first_step
        self._end = None if num_steps is None else first_step + num_steps
        self._resumed = None  # the state that was loaded, until it was compared with what the workers serve
        self._worker = None  # of this node
        self._consumer = None
        self._phases = None
        self._generators = {}
        self._groups = {}  # (source, destination): global ranks
        self._given_topology, self._fetch, self._some_ranks = topology, fetch, some_ranks
        self._topology = None  # of the llm, as the workers describe it
        self._sequences = "whole"
        self._peeked = None  # the next step, where it was received before it was asked for
        self._origin = None
        self._waits_for_done = wait_for_done
        self._forget_done()

    def connect(self):
        """Connects now instead of at the first step; prefetch begins. Does nothing where it is connected."""
        if self._consumer is not None:
            return
        options = dict(self._options, first_step=self._next)
        if self._end is not None:
            options["num_steps"] = max(0, self._end - self._next)
        if self._resumed is not None:
            options.setdefault("expect_stream_digest", self._resumed["stream_digest"])
        self._consumer = self._make_consumer(options)
        self._phases, self._sequences = self._consumer.phases(), self._consumer.sequences()
        self._generators = self._consumer.generators()
        ends = [end for end in (self._end, self._consumer.num_steps()) if end is not None]
        self._end = min(ends, default=None)
        self._check_rank()
        serves = self._consumer.state()
        self._origin = Origin(self.rank, serves["stream_digest"], serves["layout_digest"])
        self._compare_layout()

    def _make_consumer(self, options):
        """The extension's consumer, or what stands for it where another member receives."""
        topology = self._given_topology
        if self._fetch == "each":
            return self._connect_to_workers(options)
        members = topology.node_members() if self._fetch == "node" else topology.members()
        giver = members[0] if self._fetch == "node" else topology.leader
        takers = [one for one in members if one != giver]
        if not takers:
            return self._connect_to_workers(options)
        timeouts = options.get("connect_timeout", _CONNECT_SECONDS), options.get("step_timeout", _STEP_SECONDS)
        source = self._job or options["endpoints"]
        if self.rank != giver:
            return fetching.Taker(self._make_taker(source, giver, *timeouts), self._next, f"from rank {giver}")
        mixed, roles = fetching.roles_between(topology, takers)
        if options.get("whole"):
            mixed, roles = False, dict.fromkeys(roles, 0)
        channel = self._make_giver(source, takers, roles, *timeouts)
        try:
            consumer = self._connect_to_workers(dict(options, whole=True) if mixed else options)
        except Error as error:
            channel.refuse(error)
            raise
        return fetching.Giver(consumer, channel, topology.role if mixed else None)

    def _make_giver(self, source, takers, roles, connect_timeout, step_timeout):
        if self._fetch == "node":
            return fetching.NodeGiver(source, self._given_topology, takers, roles, connect_timeout, step_timeout)
        from evenkeel import broadcasting
        return broadcasting.LeaderGiver(self._given_topology, roles)

    def _make_taker(self, source, giver, connect_timeout, step_timeout):
        if self._fetch == "node":
            return fetching.NodeTaker(source, self._given_topology, giver, connect_timeout, step_timeout)
        from evenkeel import broadcasting
        return broadcasting.LeaderTaker(self._given_topology)

    def _connect_to_workers(self, options):
        if self._job is not None:
            options = dict(options, endpoints=self._start_worker())
        return self._said_by_worker(lambda: _evenkeel.Consumer(options))

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._next >= self._end:
            raise StopIteration
        self.connect()
        native, self._peeked = self._peek(), None
        if native is None:
            raise StopIteration
        self._next = native.index + 1
        step = from_native(native, self._phases, self._group, self._origin, self._topology, self._sequences,
                           self._generators)
        step._when_done = self._when_done
        return step

    def _peek(self):
        """The extension's next step; None at the end."""
        if self._peeked is None:
            self._peeked = self._said_by_worker(self._consumer.next)
        return self._peeked

    def __len__(self):
        """Steps of the iteration: num_steps or those of the stream; after a state was loaded those that it left. Connects where
        num_steps was not given. TypeError: there is no end."""
        if self._end is None:
            self.connect()
        if self._end is None:
            raise TypeError("the loader has no end: num_steps was not given, and a dataset of the job has no max_epochs")
        return max(0, self._end - self._begin)

    def __bool__(self):
        return True

    @property
    def rank(self):
        """The global rank whose steps it receives."""
        return self._options["rank"]

    @property
    def topology(self):
        """Where the rank stands in the mesh of the job's llm (evenkeel.topology.Topology); None where the llm does not run on
        it. Connects."""
        self.connect()
        return self._topology

    def groups(self, steps=None):
        """The context groups of several ranks, as lists of global ranks: what `evenkeel.torch.GroupPool` makes. Connects.

        steps   None: every group that the plan may choose, or those of the mesh: the same list on every rank. A number: the
                groups that this rank is in during the next steps, the first of which is the one that the iteration returns
                next; it is received for that. At most 9, fewer where the stream ends. With dynamic groups alone
        """
        self.connect()
        sizes = self._consumer.group_sizes()
        if steps is None:
            if self._topology is None:
                return self._topology_of_llm().pool_groups(sizes)
            return self._topology.pool_groups(sizes) if sizes else \
                [one for one in self._topology.context_groups() if len(one) > 1]
        if not sizes:
            raise ValueError("groups(steps=...) needs a job with context_parallel: dynamic; groups() has those of the mesh")
        if not 1 <= steps <= 1 + _evenkeel.GROUPS_AHEAD:
            raise ValueError(f"groups: steps is {steps}; a step comes with the groups of itself and of the next "
                             f"{_evenkeel.GROUPS_AHEAD}")
        if self._topology is None or (self._end is not None and self._next >= self._end):
            return []
        native = self._peek()
        if native is None:
            return []
        now, ahead = native.groups()
        found = {tuple(group) for groups in [now, *ahead[:steps - 1]] for group in groups if group[1] > 1}
        return [self._topology.ranks_of_replicas(first, size) for first, size in sorted(found)]

    def _topology_of_llm(self):
        leaders, _, mesh = self._phases["llm"]
        return of_phase(leaders[0], leaders, mesh)

    def mesh_of(self, phase):
        """The mesh of a phase of the job, also of one that this rank is not in: the Topology of the phase's first rank.
        ValueError: the job has no such phase. Connects."""
        leaders, _, mesh = self._phase(phase)
        return of_phase(leaders[0], leaders, mesh)

    def once_per_microbatch(self, phase):
        """Whether a phase runs once per microbatch; False: once per step. ValueError: the job has no such phase. Connects."""
        return self._phase(phase)[1]

    @property
    def generators(self):
        """{phase: media}: of each generator of the job, the media of its targets, as in ("image",). Connects."""
        self.connect()
        return dict(self._generators)

    def _phase(self, name):
        self.connect()
        if name not in self._phases:
            raise ValueError(f"the job has no phase {name!r}; its phases are {', '.join(self._phases)}")
        return self._phases[name]

    @property
    def origin(self):
        """Rank, stream digest and layout digest of the connection (evenkeel.origin.Origin). Connects."""
        self.connect()
        return self._origin

    def state_dict(self):
        """Small, JSON-able, the same on every rank: the first step that is not consumed, and what the workers serve.

        A step is consumed when the iteration returned it; or, with `wait_for_done` or once step.done() was called, when
        it is done, whatever was fetched ahead.
        """
        self.connect()
        state = self._consumer.state()
        return {"version": _STATE_VERSION, "step": self._not_done if self._waits_for_done else self._next,
                "stream_digest": state["stream_digest"], "layout_digest": state["layout_digest"]}

    def load_state_dict(self, state, trainer_step=None):
        """Goes on at the state's step, with any number of ranks. Mismatch where the workers serve another stream.

        trainer_step   the number of the step that the trainer takes next, if a step of the trainer is one of the loader:
                       Mismatch where the state is at another
        """
        if not isinstance(state, Mapping):
            raise ValueError(f"not a loader's state: a {type(state).__name__}, where state_dict() gives a dictionary")
        missing = {"version", "step", "stream_digest", "layout_digest"} - set(state)
        if missing:
            raise ValueError(f"not a loader's state: {sorted(missing)} missing")
        if not isinstance(state["step"], numbers.Integral) or state["step"] < 0:
            raise ValueError(f"not a loader's state: its step is {state['step']!r}, not a whole number from 0")
        if state["version"] != _STATE_VERSION:
            raise Mismatch(f"the loader's state has version {state['version']}, this release reads {_STATE_VERSION}",
                           "FAILED_PRECONDITION")
        if trainer_step is not None and state["step"] != trainer_step:
            raise Mismatch(f"the trainer goes on at step {trainer_step}, its data at step {state['step']}: the checkpoint's parts "
                           "are not of one step", "FAILED_PRECONDITION")
        if self._consumer is None:
            self._resume_by_connecting(state)
        else:
            self._resume_connected(state)
        self._begin = self._next
        self._forget_done()

    def _resume_by_connecting(self, state):
        # Where several releases serve side by side, workers of the checkpoint's stream are looked for among them.
        before = self._next
        self._next, self._resumed = int(state["step"]), dict(state)
        try:
            self.connect()
        except BaseException:
            self._next, self._resumed = before, None  # a refused state leaves the loader as it was
            raise

    def _resume_connected(self, state):
        serves = self._consumer.state()["stream_digest"]
        if serves != state["stream_digest"]:
            raise Mismatch(
                f"cannot resume at step {state['step']}: the checkpoint's stream digest is {state['stream_digest']}, "
                f"the workers serve stream digest {serves} (other data, another seed, batch size, processor or "
                "release)", "FAILED_PRECONDITION")
        self._peeked = None
        self._consumer.seek(state["step"])
        self._next, self._resumed = int(state["step"]), dict(state)
        self._compare_layout()

    def wait_for_done(self):
        """From here on steps count as consumed when step.done() is called, as with the option of this name."""
        if not self._waits_for_done:
            self._waits_for_done, self._not_done = True, self._next

    def stats(self):
        """Counters since the connection: steps, parts, bytes, requests, wait_seconds, transport and others; and
        grey_workers, how many workers stood still lately and are asked last now. `bytes` came from workers; with
        fetch="node" or "leader" `shared_bytes` were passed on to other members, or taken from the one that receives."""
        self.connect()
        return {"shared_bytes": 0, **self._consumer.stats()}

    def close(self):
        """Ends the connection. Arrays of received steps stay valid."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = self._origin = self._peeked = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __del__(self):
        if getattr(self, "_worker", None) is not None or getattr(self, "_fetch", "each") != "each":
            self.close()

    def _start_worker(self):
        try:
            self._worker = embedded.Embedded(self._job, self.rank, **self._worker_options)
        except (embedded.RankInUse, OSError) as error:
            raise InvalidArgument(str(error), "INVALID_ARGUMENT") from error
        except embedded.StartFailed as error:
            raise Unavailable(f"the worker of this node did not start: {error}", "UNAVAILABLE") from error
        return self._worker.endpoint

    def _said_by_worker(self, call):
        """An error gets the last words of this node's worker, which has no other reader."""
        try:
            return call()
        except Error as error:
            words = self._worker.last_words() if self._worker is not None else ""
            if words:
                error.args = (f"{error.args[0]}\nThe worker's log ends with:\n{words}", *error.args[1:])
            raise

    def _check_rank(self):
        ranks = sorted({rank for leaders, _, mesh in self._phases.values() for rank in (leaders if mesh is None else mesh[-1])})
        if self.rank not in ranks:
            self.close()
            raise InvalidArgument(f"rank {self.rank} is not in the job: its phases run on "
                                  f"{name_ranks(ranks)}", "INVALID_ARGUMENT")
        given = self._given_topology
        leaders, _, mesh = self._phases["llm"]
        self._topology = of_phase(self.rank, leaders, mesh, None if given is None else given.ranks_per_node)
        if given is not None and self._topology is not None and not given.same_mesh(self._topology):
            of_job = self._topology.describe()
            self.close()
            raise InvalidArgument(f"rank {self.rank}: the mesh of the training is not that of the job's llm. The job has\n{of_job}"
                                  f"the training\n{given.describe()}", "INVALID_ARGUMENT")
        if not self._some_ranks:
            try:
                processes.check(ranks)
            except InvalidArgument:
                self.close()
                raise

    def _forget_done(self):
        self._not_done, self._done_ahead = self._next, set()
        started = self._started = object()  # steps of before have nothing to say any more

        def when_done(index):
            if self._started is started:
                self._take_done(index)
        self._when_done = when_done

    def _take_done(self, index):
        if not self._waits_for_done:
            # Until now what was handed out counted; the steps before this one are done.
            self._waits_for_done, self._not_done = True, index
        if index >= self._not_done:
            self._done_ahead.add(index)
        while self._not_done in self._done_ahead:
            self._done_ahead.remove(self._not_done)
            self._not_done += 1

    def _group(self, source, destination):
        key = (source, destination)
        if key not in self._groups:
            self._groups[key] = self._make_group(self._phases[source], self._phases[destination])
        return self._groups[key]

    def _make_group(self, source, destination):
        """Global ranks of the exchange between two phases: of both phases' leaders, or where both have one mesh, of the members
        at this rank's coordinates."""
        leaders = sorted({*source[0], *destination[0]})
        if source[2] is None or (source[0], source[2]) != (destination[0], destination[2]):
            return leaders
        topology = of_phase(self.rank, source[0], source[2])
        peers = [topology.peer(leader) for leader in leaders]
        if peers != sorted(peers):
            raise InvalidArgument(f"ranks {peers}, at one place of each replica, do not ascend with the ranks {leaders} that lead "
                                  "the replicas: list the ranks of the mesh so that they do", "INVALID_ARGUMENT")
        return peers

    def _compare_layout(self):
        if self._resumed is None:
            return
        serves = self._consumer.state()["layout_digest"]
        if serves != self._resumed["layout_digest"]:
            _log.warning("step %d: the layout changed since the checkpoint (%s -> %s): same global batches, assigned "
                         "to ranks in another way", self._next, self._resumed["layout_digest"], serves)
        self._resumed = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getstate__(self):
        state = dict(self.__dict__, _consumer=None, _peeked=None, _worker=None, _phases=None, _groups={}, _origin=None, _topology=None)
        for name in ("_when_done", "_started"):
            state.pop(name)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._forget_done()


def _is_job(source):
    return isinstance(source, os.PathLike) or str(source).endswith((".yaml", ".yml"))
