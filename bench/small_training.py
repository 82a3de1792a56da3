"""What the benchmarks share that train a small model on gloo processes."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Layer(torch.nn.Module):
    """A transformer's layer, [units, length, width] -> the same."""

    def __init__(self, width, heads, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.after = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.project, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        units, length, width = x.shape
        heads = self.project(self.before(x)).view(units, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(units, length, width))
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


def sum_gradients(model):
    """One all-reduce over all processes; a parameter without a gradient counts as zeros. The sums are not kept."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    dist.all_reduce(torch.cat([gradient.flatten() for gradient in gradients]))


def cost_of(cost, lengths):
    """[lengths] of a cost of the job. lengths: a numpy array."""
    return sum(cost.get(term, 0) * lengths.astype(float) ** power for power, term in enumerate(("constant", "linear", "quadratic")))


class Paced:
    """A core for every process, of a machine that has fewer.

    Work that took c seconds of its thread's processor time is made to last `times` * c seconds of the wall clock, by
    sleeping after it. As long as the processes together need fewer cores than there are, they do not wait for each
    other's, so that the wall clock shows what a schedule costs.

    times   how many seconds of the wall clock a second of work takes; at least the processes over the cores
    """

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
