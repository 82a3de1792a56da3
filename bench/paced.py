"""A core for every process, of a machine that has fewer.

Work that took c seconds of its thread's processor time is made to last `times` * c seconds of the wall clock, by sleeping
after it. Processes then do not wait for each other's cores as long as together they need fewer than there are, so that the
wall clock shows what a schedule costs.
"""
import time


class Paced:
    """times: how many seconds of the wall clock a second of work takes; at least the processes over the cores."""

    def __init__(self, times):
        self.times = times

    def __call__(self, work):
        """(what `work()` returns, seconds of processor time). Only this thread's time counts."""
        begin, wall = time.thread_time(), time.perf_counter()
        result = work()
        worked = time.thread_time() - begin
        rest = self.times * worked - (time.perf_counter() - wall)
        if rest > 0:
            time.sleep(rest)
        return result, worked
