"""The loader: iterate over it and get steps."""

import logging
import numbers
import os
from collections.abc import Mapping

from evenkeel import _evenkeel, embedded
from evenkeel.errors import Error, InvalidArgument, Mismatch, Unavailable, name_ranks
from evenkeel.origin import Origin
from evenkeel.step import from_native

_log = logging.getLogger("evenkeel")

_OPTIONS = {"transport", "require_rdma", "trusted_data_network", "devices", "prefetch_bytes", "prefetch_steps",
            "connect_timeout", "step_timeout", "progress_timeout", "expect_stream_digest", "expect_layout_digest",
            "all_loads", "tls_certificate", "tls_key", "tls_ca"}
_OWN_OPTIONS = {"endpoints", "wait_for_done", "worker_threads", "worker_memory"}
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
    rank                    global rank, one of the job's
    endpoints               of workers; the job file is not read then
    first_step, num_steps   which steps; without num_steps there is no end, and len(loader) is a TypeError
    wait_for_done           a step counts as consumed when step.done() is called, not when it is handed out: for whatever
                            fetches ahead of the training. The first call of step.done() has the same effect
    worker_threads, worker_memory   of the worker of this node: as --threads and --memory ("4GiB") of `evenkeel serve`
    transport               "auto", "memory" (workers of this machine and user), "ucx" or "grpc"; require_rdma, devices:
                            see docs/transport.md
    trusted_data_network    allows UCX over TCP, where everybody who reaches its ports can write this process's memory
    prefetch_bytes          receive memory (1 GiB); prefetch_steps: steps in flight at most (4)
    connect_timeout, step_timeout, progress_timeout   seconds (30, 300, 10)
    expect_stream_digest, expect_layout_digest        refuse workers of anything else
    all_loads               loads of every rank in `step.loads`, whose size then grows with the number of ranks
    tls_certificate, tls_key, tls_ca                  PEM files; all or none (then loopback only)
    """

    def __init__(self, source=None, rank=None, first_step=0, num_steps=None, *, endpoints=None, wait_for_done=False,
                 worker_threads=None, worker_memory=None, **options):
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise TypeError(f"Loader: unknown option {unknown[0]!r}; known are {', '.join(sorted(_OPTIONS | _OWN_OPTIONS))}")
        if rank is None or (source is None and endpoints is None):
            raise TypeError("Loader: give a job file or endpoints, and the rank")
        if rank < 0 or first_step < 0 or (num_steps is not None and num_steps < 0):
            raise ValueError("Loader: rank, first_step and num_steps must not be negative")
        self._job = None
        if endpoints is None:
            if _is_job(source):
                self._job = os.path.abspath(source)
            else:
                endpoints = source
        if self._job is None and (worker_threads is not None or worker_memory is not None):
            raise TypeError("Loader: worker_threads and worker_memory are of a worker on this node; these run elsewhere")
        self._worker_options = {"threads": worker_threads, "memory": worker_memory}
        self._options = {"endpoints": endpoints, "rank": rank,
                         **{key: value for key, value in options.items() if value is not None}}
        self._begin = self._next = first_step
        self._end = None if num_steps is None else first_step + num_steps
        self._resumed = None  # the state that was loaded, until it was compared with what the workers serve
        self._worker = None  # of this node
        self._consumer = None
        self._phases = None
        self._groups = {}  # (source, destination): global ranks
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
        if self._job is not None:
            options["endpoints"] = self._start_worker()
        self._consumer = self._said_by_worker(lambda: _evenkeel.Consumer(options))
        self._phases = self._consumer.phases()
        self._check_rank()
        serves = self._consumer.state()
        self._origin = Origin(self.rank, serves["stream_digest"], serves["layout_digest"])
        self._compare_layout()

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._next >= self._end:
            raise StopIteration
        self.connect()
        native = self._said_by_worker(self._consumer.next)
        if native is None:
            raise StopIteration
        self._next = native.index + 1
        step = from_native(native, self._phases, self._group, self._origin)
        step._when_done = self._when_done
        return step

    def __len__(self):
        """Steps of the iteration: num_steps, or after a state was loaded those that it left. TypeError without an end."""
        if self._end is None:
            raise TypeError("the loader has no end: num_steps was not given")
        return max(0, self._end - self._begin)

    def __bool__(self):
        return True

    @property
    def rank(self):
        """The global rank whose steps it receives."""
        return self._options["rank"]

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
        self._consumer.seek(state["step"])
        self._next, self._resumed = int(state["step"]), dict(state)
        self._compare_layout()

    def wait_for_done(self):
        """From here on steps count as consumed when step.done() is called, as with the option of this name."""
        if not self._waits_for_done:
            self._waits_for_done, self._not_done = True, self._next

    def stats(self):
        """Counters since the connection: steps, parts, bytes, requests, wait_seconds, transport and others; and
        grey_workers, how many workers stood still lately and are asked last now."""
        self.connect()
        return self._consumer.stats()

    def close(self):
        """Ends the connection. Arrays of received steps stay valid."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = self._origin = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __del__(self):
        if getattr(self, "_worker", None) is not None:
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
        ranks = sorted({rank for members, _ in self._phases.values() for rank in members})
        if self.rank in ranks:
            return
        self.close()
        raise InvalidArgument(f"rank {self.rank} is not in the job: its phases run on "
                              f"{name_ranks(ranks)}", "INVALID_ARGUMENT")

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
            self._groups[key] = self._consumer.group(source, destination)
        return self._groups[key]

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
        state = dict(self.__dict__, _consumer=None, _worker=None, _phases=None, _groups={}, _origin=None)
        for name in ("_when_done", "_started"):
            state.pop(name)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._forget_done()


def _is_job(source):
    return isinstance(source, os.PathLike) or str(source).endswith((".yaml", ".yml"))
