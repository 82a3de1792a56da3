"""Runs functions on several gloo ranks, each in a process of its own, and returns what they return.

The processes are started once and serve all tests: importing torch takes longer than any test.
"""

import atexit
import os
import pickle
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DEADLINE_SECONDS = 300
_processes = []  # (process, connection)


def _serve(rank, connection):
    torch.set_num_threads(1)
    while True:
        task = connection.recv()
        if task is None:
            return
        size, rendezvous, call = task
        try:
            # Not at a task's end: another rank might still be in its last collective.
            if dist.is_initialized():
                dist.destroy_process_group()
            function, arguments = pickle.loads(call)
            dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
            answer = (True, function(rank, *arguments))
        except BaseException:  # noqa: B902 - the parent must hear of it whatever it is
            answer = (False, traceback.format_exc())
        connection.send(answer)


def _start(count):
    context = mp.get_context("spawn")
    for rank in range(len(_processes), count):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(rank, theirs), daemon=True)
        process.start()
        _processes.append((process, ours))


def stop():
    for process, _ in _processes:
        process.kill()
        process.join(10)
    _processes.clear()


atexit.register(stop)


def run(size, function, *arguments):
    """[function(rank, *arguments) for rank], each in its own process with a gloo world of `size`."""
    _start(size)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        task = (size, os.path.join(folder, "rendezvous"), pickle.dumps((function, arguments)))
        for _, connection in _processes[:size]:
            connection.send(task)
        for rank, (_, connection) in enumerate(_processes[:size]):
            if not connection.poll(DEADLINE_SECONDS):
                stop()
                raise AssertionError(f"rank {rank} does not answer")
            fine, value = connection.recv()
            if not fine:
                stop()  # the others may wait for this one in a collective
                raise AssertionError(f"rank {rank}:\n{value}")
            answers.append(value)
    return answers


class AllGather(torch.autograd.Function):
    """The values of all members of a group, [tokens of a shard, ...] each, one after the other."""

    @staticmethod
    def forward(ctx, value, group, index):
        ctx.group, ctx.index = group, index
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, value.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        count = dist.get_world_size(ctx.group)
        return gradient.chunk(count)[ctx.index], None, None
