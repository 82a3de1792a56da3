"""The largest differencing method as training frameworks have it in Python: a heap of partial partitions, each with a
set of items for every rank. bench_planner compares with it.

    karmarkar_karp.py RANKS < LENGTHS      prints the largest load and the milliseconds of processor time it took
"""

import heapq
import sys
import time


class Partition:
    """Some items over all ranks, fullest first."""

    def __init__(self, bins):
        self.bins = sorted(bins, key=lambda bin: bin[0], reverse=True)

    @property
    def spread(self):
        return self.bins[0][0] - self.bins[-1][0]

    def __lt__(self, other):
        return self.spread > other.spread

    def merged(self, other):
        return Partition([(mine[0] + theirs[0], mine[1] + theirs[1])
                          for mine, theirs in zip(self.bins, reversed(other.bins))])


def karmarkar_karp(lengths, ranks):
    heap = [Partition([(length, [index])] + [(0, [])] * (ranks - 1)) for index, length in enumerate(lengths)]
    heapq.heapify(heap)
    while len(heap) > 1:
        heapq.heappush(heap, heapq.heappop(heap).merged(heapq.heappop(heap)))
    return [items for _, items in heap[0].bins]


if __name__ == "__main__":
    given = [int(word) for word in sys.stdin.read().split()]
    start = time.process_time()
    partition = karmarkar_karp(given, int(sys.argv[1]))
    took = time.process_time() - start
    assert sorted(index for items in partition for index in items) == list(range(len(given)))
    print(max(sum(given[index] for index in items) for items in partition), 1e3 * took)
