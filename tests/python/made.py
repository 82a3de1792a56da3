"""Makes routes and steps by hand, for tests without workers."""

import numpy as np

from evenkeel import Fields, Microbatch, Route, Step


def global_route(rng, ranks, rows_in, receivers, ranks_global=None, twice=0.0):
    """A random route: `rows_in[r]` rows on rank r, each sent to one rank (or to two, with probability `twice`), in
    runs. `receivers` are the ranks that may receive. Returns a Route per rank and {(receiver, row): (sender, row)}.
    """
    arrivals = [[] for _ in range(ranks)]  # per receiver: (sender, first row, rows)
    for sender in range(ranks):
        row = 0
        while row < rows_in[sender]:
            rows = min(int(rng.integers(1, 4)), rows_in[sender] - row)
            targets = [int(rng.choice(receivers))]
            if rng.random() < twice:
                targets.append(int(rng.choice(receivers)))
            for target in set(targets):
                arrivals[target].append((sender, row, rows))
            row += rows
    send = [[] for _ in range(ranks)]
    receive = [[] for _ in range(ranks)]
    source, rows_out = {}, []
    for receiver in range(ranks):
        order = rng.permutation(len(arrivals[receiver]))
        at, placed = 0, []
        for i in order:
            sender, row, rows = arrivals[receiver][i]
            placed.append((sender, row, rows, at))
            for k in range(rows):
                source[receiver, at + k] = (sender, row + k)
            at += rows
        rows_out.append(at)
        # By peer, then by the receiver's order; the same for the sender's side of the pair.
        for sender, row, rows, at in sorted(placed, key=lambda one: (one[0], one[3])):
            receive[receiver].append((sender, at, rows))
            send[sender].append((receiver, row, rows))
    names = ranks_global or list(range(ranks))
    routes = [Route(names, np.array(send[r], np.int64).reshape(-1, 3), np.array(receive[r], np.int64).reshape(-1, 3),
                    rows_in[r], rows_out[r]) for r in range(ranks)]
    return routes, source


def packed_microbatch(lengths, types, labels=None, sample_valid=None):
    """A packed microbatch of documents of `lengths` tokens with the given token types."""
    tokens = sum(lengths)
    microbatch = Microbatch.of(
        input_ids=np.arange(tokens, dtype=np.int64)[None],
        labels=np.asarray(labels if labels is not None else np.arange(tokens), np.int64).reshape(1, -1),
        mm_token_type_ids=np.asarray(types, np.int64).reshape(1, -1),
        cu_seqlens=np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        sample_valid=np.asarray(sample_valid if sample_valid is not None else np.ones(len(lengths)), np.uint8))
    microbatch.encoders = {}
    return microbatch


def encoder_fields(rows, valid):
    return Fields.of(item_rows=np.asarray(rows, np.int64), item_valid=np.asarray(valid, np.uint8))


def step(microbatches, encoders, routes, index=0):
    return Step(index, 0, 1, microbatches, encoders, routes)
