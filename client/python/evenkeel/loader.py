"""The loader: iterate over it and get steps."""

import logging
import numbers
from collections.abc import Mapping

from evenkeel import _evenkeel
from evenkeel.errors import Mismatch
from evenkeel.origin import Origin
from evenkeel.step import from_native

_log = logging.getLogger("evenkeel")

_OPTIONS = {"transport", "require_rdma", "trusted_data_network", "shared_memory", "devices", "prefetch_bytes", "prefetch_steps",
            "connect_timeout", "step_timeout", "progress_timeout", "expect_stream_digest", "expect_layout_digest",
            "all_loads", "tls_certificate", "tls_key", "tls_ca"}
_STATE_VERSION = 1


class Loader:
    """Receives the steps of one global rank, in order, from many workers.

        loader = evenkeel.Loader("a:7000,b:7000", rank=3)     # or "dns:///name:port"
        loader.load_state_dict(checkpoint["data"])            # optional, before or between steps
        for step in loader: ...

    It connects when it is first used, so that it may be made before processes are forked and sent to spawned ones; a
    connected loader works in its own process only. Iterating again goes on where the last iteration stopped.

    first_step, num_steps   which steps; without num_steps there is no end
    transport               "auto", "ucx" or "grpc"; require_rdma, shared_memory, devices: see docs/transport.md
    trusted_data_network    allows UCX over TCP, where everybody who reaches its ports can write this process's memory
    prefetch_bytes          receive memory (1 GiB); prefetch_steps: steps in flight at most (4)
    connect_timeout, step_timeout, progress_timeout   seconds (30, 300, 10)
    expect_stream_digest, expect_layout_digest        refuse workers of anything else
    all_loads               loads of every rank in `step.loads`, whose size then grows with the number of ranks
    tls_certificate, tls_key, tls_ca                  PEM files; all or none (then loopback only)
    """

    def __init__(self, endpoints, rank, first_step=0, num_steps=None, **options):
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise TypeError(f"Loader: unknown option {unknown[0]!r}; known are {', '.join(sorted(_OPTIONS))}")
        if rank < 0 or first_step < 0 or (num_steps is not None and num_steps < 0):
            raise ValueError("Loader: rank, first_step and num_steps must not be negative")
        self._options = {"endpoints": endpoints, "rank": rank,
                         **{key: value for key, value in options.items() if value is not None}}
        self._next = first_step
        self._end = None if num_steps is None else first_step + num_steps
        self._resumed = None  # the state that was loaded, until it was compared with what the workers serve
        self._consumer = None
        self._phases = None
        self._groups = {}  # (source, destination): global ranks
        self._origin = None

    def connect(self):
        """Connects now instead of at the first step; prefetch begins. Does nothing where it is connected."""
        if self._consumer is not None:
            return
        options = dict(self._options, first_step=self._next)
        if self._end is not None:
            options["num_steps"] = max(0, self._end - self._next)
        if self._resumed is not None:
            options.setdefault("expect_stream_digest", self._resumed["stream_digest"])
        self._consumer = _evenkeel.Consumer(options)
        self._phases = self._consumer.phases()
        serves = self._consumer.state()
        self._origin = Origin(self.rank, serves["stream_digest"], serves["layout_digest"])
        self._compare_layout()

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._next >= self._end:
            raise StopIteration
        self.connect()
        native = self._consumer.next()
        if native is None:
            raise StopIteration
        self._next = native.index + 1
        return from_native(native, self._phases, self._group, self._origin)

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
        """Small, JSON-able, the same on every rank: the next step and what the workers serve.

        The next step is the one after the last that the iteration returned. What takes steps ahead of the training
        loop (a prefetching wrapper, a prepared loader that looks one batch ahead) must therefore save the state that
        belongs to the step it trained, or the resumed run misses the steps in between.
        """
        self.connect()
        state = self._consumer.state()
        return {"version": _STATE_VERSION, "step": self._next, "stream_digest": state["stream_digest"],
                "layout_digest": state["layout_digest"]}

    def load_state_dict(self, state):
        """Goes on at the state's step, with any number of ranks. Mismatch where the workers serve another stream."""
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
        if self._consumer is None:
            self._resume_by_connecting(state)
        else:
            self._resume_connected(state)

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
        return dict(self.__dict__, _consumer=None, _phases=None, _groups={}, _origin=None)
