#!/usr/bin/env python3
"""Bytes that workers fetch from an object store over the bytes that their samples have, for `shuffle: blocked`, by a simulation.

    python3 bench/read_amplification.py

One of many workers that share a job is simulated, by the rules of dataset/source/fetch_ahead.cc: every part of a step goes to
a random worker, is announced some steps ahead, and is read in order. Requests are answered at once. A worker's first bytes,
by which it learns what share of the pieces it reads, are counted apart.
"""

import argparse
import bisect
import collections
import dataclasses
import random

# As in dataset/source/fetch_ahead.{h,cc}; bytes.
MAX_GAP, MAX_REQUEST, MAX_PIECE = 64 << 10, 8 << 20, 16 << 20
MIN_SHARE, FORGET, PROBE_AFTER = 0.3, 0.1, 20

SAMPLES_A_PART, PARTS_A_STEP, STEPS_AHEAD = 8, 4, 4  # of this worker


@dataclasses.dataclass(eq=False)
class Request:
    begin: int
    end: int
    is_piece: bool = False
    is_idle: bool = False
    unread: int = 0
    read_bytes: int = 0


@dataclasses.dataclass(eq=False)
class Range:
    begin: int
    end: int
    run: tuple  # begin, end
    request: Request = None


class FetchAhead:
    """What dataset/source/fetch_ahead.cc does for one object, whose requests are answered at once."""

    def __init__(self, budget, window_blocks):
        self._budget, self._window_blocks = budget, window_blocks
        self._ranges = []  # that are announced and not read, by place
        self._waiting = collections.deque()  # of them, by turn
        self._pieces = {}  # begin: request
        self._begins = []  # of pieces, ascending
        self._idle = collections.OrderedDict()  # pieces that are kept, the oldest first
        self._used = self._idle_bytes = self._alone_bytes = 0
        self._share = 1.0
        self.fetched = self.requests = 0

    def expect(self, ranges):
        for one in ranges:
            bisect.insort(self._ranges, one, key=lambda known: known.begin)
            piece = self._piece_with(one)
            if piece is not None:
                self._attach(piece, one)
            else:
                self._waiting.append(one)
        self._fetch()

    def read(self, one):
        self._ranges.pop(bisect.bisect_left(self._ranges, one.begin, key=lambda known: known.begin))
        if one.request is None:
            self._waiting.remove(one)
            self.fetched += one.end - one.begin
            self.requests += 1
        else:
            one.request.unread -= 1
            self._settle(one.request)
        self._fetch()

    def _fetch(self):
        while self._waiting and self._busy() + self._waiting[0].end - self._waiting[0].begin <= self._budget:
            request = self._take_request()
            self.fetched += request.end - request.begin
            self.requests += 1

    def _busy(self):
        return self._used - self._idle_bytes

    def _take_request(self):
        first = self._waiting[0]
        request = Request(first.begin, first.end)
        request.is_piece = self._make_piece(request, first)
        self._add(request, first)
        self._add_neighbours(request, first)
        if not request.is_piece and self._share < MIN_SHARE:
            self._alone_bytes += request.read_bytes
        while self._idle and self._used + request.end - request.begin > self._budget:
            self._release(next(iter(self._idle)))
        self._used += request.end - request.begin
        if request.is_piece:
            self._pieces[request.begin] = request
            bisect.insort(self._begins, request.begin)
        return request

    def _make_piece(self, request, first):
        begin, end = first.run
        size = end - begin
        if size > self._budget // 2 // self._window_blocks:
            return False
        pieces = -(-size // MAX_PIECE)
        piece = -(-size // pieces)
        piece_begin = begin + (first.begin - begin) // piece * piece
        piece_end = max(min(piece_begin + piece, end), first.end)
        is_probe = self._share < MIN_SHARE
        if is_probe and self._alone_bytes < max(PROBE_AFTER * (piece_end - piece_begin), size * self._window_blocks):
            return False
        if piece_begin in self._pieces or self._busy() + piece_end - piece_begin > self._budget:
            return False
        if is_probe:
            while self._idle:
                self._release(next(iter(self._idle)))
            self._alone_bytes = 0
        request.begin, request.end = piece_begin, piece_end
        return True

    def _add_neighbours(self, request, first):
        at = bisect.bisect_left(self._ranges, first.begin, key=lambda known: known.begin)
        if request.is_piece:
            at = bisect.bisect_left(self._ranges, request.begin, key=lambda known: known.begin)
            for one in self._ranges[at:]:
                if one.begin >= request.end:
                    break
                if one.request is None and one.end <= request.end:
                    self._add(request, one)
            return
        for step in (1, -1):
            place = at + step
            while 0 <= place < len(self._ranges) and self._is_neighbour(request, self._ranges[place]):
                self._add(request, self._ranges[place])
                place += step

    def _is_neighbour(self, request, one):
        begin, end = min(request.begin, one.begin), max(request.end, one.end)
        is_close = one.begin <= request.end + MAX_GAP and one.end + MAX_GAP >= request.begin
        return one.request is None and is_close and end - begin <= MAX_REQUEST and self._busy() + end - begin <= self._budget

    def _add(self, request, one):
        request.begin, request.end = min(request.begin, one.begin), max(request.end, one.end)
        self._waiting.remove(one)
        self._attach(request, one)

    def _attach(self, request, one):
        if request.is_idle:
            del self._idle[request]
            self._idle_bytes -= request.end - request.begin
            request.is_idle = False
        request.unread += 1
        request.read_bytes += one.end - one.begin
        one.request = request

    def _piece_with(self, one):
        at = bisect.bisect_right(self._begins, one.begin)
        piece = self._pieces[self._begins[at - 1]] if at else None
        return piece if piece is not None and one.end <= piece.end else None

    def _settle(self, request):
        if request.unread:
            return
        if not request.is_piece:
            self._release(request)
            return
        request.is_idle = True
        self._idle[request] = None
        self._idle_bytes += request.end - request.begin

    def _release(self, request):
        size = request.end - request.begin
        self._used -= size
        if request.is_idle:
            del self._idle[request]
            self._idle_bytes -= size
        if request.is_piece:
            del self._pieces[request.begin]
            self._begins.remove(request.begin)
            self._share += FORGET * (min(request.read_bytes / size, 1.0) - self._share)


@dataclasses.dataclass
class Data:
    name: str
    mean: float  # of the logarithm of a sample's bytes
    deviation: float
    gap: int  # bytes between two samples
    block: int  # block_samples
    window_blocks: int
    budget: int  # --fetch-ahead
    first_bytes: int  # that a worker reads, and those afterwards
    later_bytes: int


DATA = [
    Data("photographs of 207 kB in tar shards", 12.06, 0.6, 1024, 32, 16, 256 << 20, 1 << 30, 4 << 30),
    Data("the same, --fetch-ahead 4GiB", 12.06, 0.6, 1024, 512, 16, 4 << 30, 8 << 30, 8 << 30),
    Data("texts of 4 kB in lines", 8.06, 0.7, 1, 1024, 16, 256 << 20, 128 << 20, 256 << 20),
]


def own_parts(rng, data, workers):
    """The parts of this worker, endlessly: lists of ranges. Blocks lie one after another, and every window has others."""
    begin = 0
    while True:
        samples = []
        for _ in range(data.window_blocks):
            run_begin, block_samples = begin, []
            for _ in range(data.block):
                end = begin + int(rng.lognormvariate(data.mean, data.deviation)) + 1
                block_samples.append((begin, end))
                begin = end + data.gap
            samples += [(one, (run_begin, block_samples[-1][1])) for one in block_samples]
        own = sum(rng.random() * workers < 1 for _ in range(len(samples) // SAMPLES_A_PART))
        chosen = rng.sample(samples, own * SAMPLES_A_PART)
        for i in range(0, len(chosen), SAMPLES_A_PART):
            yield [Range(*place, run) for place, run in chosen[i:i + SAMPLES_A_PART]]


def simulate(rng, data, workers):
    """[(bytes fetched over read, requests a sample)] of the worker's first bytes, and of those afterwards."""
    source = FetchAhead(data.budget, data.window_blocks)
    parts = own_parts(rng, data, workers)
    ahead, found = collections.deque(), []
    for limit in (data.first_bytes, data.later_bytes):
        fetched, requests, read, samples = source.fetched, source.requests, 0, 0
        while read < limit:
            while len(ahead) < PARTS_A_STEP * STEPS_AHEAD:
                ahead.append(next(parts))
                source.expect(ahead[-1])
            for one in ahead.popleft():
                source.read(one)
                read += one.end - one.begin
                samples += 1
        found.append(((source.fetched - fetched) / read, (source.requests - requests) / samples))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,3,4,10,100")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| data | workers | fetched / read, first bytes | afterwards | requests a sample |\n|---|---:|---:|---:|---:|")
    for data in DATA:
        for workers in map(int, options.workers.split(",")):
            (first, _), (later, requests) = simulate(random.Random(options.seed), data, workers)
            print(f"| {data.name} | {workers} | {first:.2f} | {later:.2f} | {requests:.3f} |", flush=True)


if __name__ == "__main__":
    main()
