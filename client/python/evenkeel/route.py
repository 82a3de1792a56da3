"""One rank's side of an exchange between two phases."""

import numpy as np


def _expand(segments):
    """Row numbers of segments [n, 3] (peer, row, rows), in order: int64 [sum of rows]."""
    rows = segments[:, 2]
    starts = np.repeat(segments[:, 1] - np.concatenate(([0], np.cumsum(rows)[:-1])), rows) if len(rows) else rows
    return starts + np.arange(rows.sum(), dtype=np.int64)


def _splits(segments, peers):
    """Rows to or from each peer: int64 [peers]."""
    out = np.zeros(peers, np.int64)
    np.add.at(out, segments[:, 0], segments[:, 2])
    return out


class Route:
    """Where the rows of this rank go and come from.

    `ranks`: global ranks of the group, ascending. The group given to `evenkeel.torch.exchange` must hold exactly them,
    in this order (or be a larger one in which a rank's number is its global rank).
    `send`, `receive`: int64 [n, 3], rows of (peer, first local row, rows); peers index `ranks`.
    `rows_in`: rows of the local input; `rows_out`: rows of the local output.
    `origin`: the loader's connection that it came from, or None; all ranks of an exchange must follow one stream.
    `microbatch_offsets`: of the rows on the llm's side, which are the output of an encoder's route, and the input of a
    generator's.
    `all_stay`: no row of any rank goes to another, so that the exchange is a copy on each rank and no collective.
    """

    def __init__(self, ranks, send, receive, rows_in, rows_out, microbatch_offsets=(), source="", destination="",
                 microbatch=0, origin=None, all_stay=False):
        self.ranks = list(ranks)
        self.send = np.asarray(send, np.int64).reshape(-1, 3)
        self.receive = np.asarray(receive, np.int64).reshape(-1, 3)
        self.rows_in = int(rows_in)
        self.rows_out = int(rows_out)
        self.microbatch_offsets = list(microbatch_offsets)
        self.source = source
        self.destination = destination
        self.microbatch = microbatch
        self.origin = origin
        self.all_stay = bool(all_stay)
        self._cache = {}

    def inverse(self):
        """The way back: gradients of the output's rows to where the rows came from."""
        if "inverse" not in self._cache:
            self._cache["inverse"] = Route(self.ranks, self.receive, self.send, self.rows_out, self.rows_in, (),
                                           self.destination, self.source, self.microbatch, self.origin, self.all_stay)
        return self._cache["inverse"]

    def microbatch_rows(self, index):
        """(begin, end) of the rows of microbatch `index` of the llm, of the output or, of a generator's route, of the input."""
        if not self.microbatch_offsets:
            return (0, self.rows_out)
        return (self.microbatch_offsets[index], self.microbatch_offsets[index + 1])

    @property
    def stays(self):
        """Whether every output row is one of this rank's own input rows. Input rows that go nowhere are those of dummies."""
        return self._cached("stays", self._stays)

    def _stays(self):
        own = None if self.origin is None else self.origin.rank
        peers = np.unique(np.concatenate([self.send[:, 0], self.receive[:, 0]])).tolist()
        return len(self.receive_index) == self.rows_out and \
            all(len(self.ranks) == 1 or self.ranks[peer] == own for peer in peers)

    def source_rows(self):
        """int64 [rows_out]: the input row of every output row, of a route that `stays`."""
        out = np.empty(self.rows_out, np.int64)
        out[self.receive_index] = self.send_index
        return out

    @property
    def send_index(self):
        """int64: input row of every row of the send buffer, by peer."""
        return self._cached("send_index", lambda: _expand(self.send))

    @property
    def receive_index(self):
        """int64: output row of every row of the receive buffer, by peer."""
        return self._cached("receive_index", lambda: _expand(self.receive))

    @property
    def send_splits(self):
        """Rows to each peer."""
        return self._cached("send_splits", lambda: _splits(self.send, len(self.ranks)))

    @property
    def receive_splits(self):
        """Rows from each peer."""
        return self._cached("receive_splits", lambda: _splits(self.receive, len(self.ranks)))

    def _cached(self, key, make):
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def __repr__(self):
        return (f"Route({self.source or '?'} -> {self.destination or '?'}, ranks={self.ranks}, "
                f"rows_in={self.rows_in}, rows_out={self.rows_out})")
