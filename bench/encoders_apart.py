"""How long a step takes with encoders on ranks of their own: 2 ranks encode for 4 stages of an llm, in 6 processes.

    PYTHONPATH=build/release/python python3 bench/encoders_apart.py [--microbatches 16] [--rounds 5]

Every pass takes a drawn time, in which its process sleeps; rows and gradients travel by gloo through evenkeel.apart, and
activations between stages by plain messages. Prints the measured step and the ideal one: the same times as a pipeline of
five stages, of which the encoders are the first, by the simulator, without transfers.
"""
import argparse
import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "python"))
import pipelines  # noqa: E402

from evenkeel import apart, plan  # noqa: E402
from evenkeel.origin import Origin  # noqa: E402
from evenkeel.route import Route  # noqa: E402
from evenkeel.step import Fields  # noqa: E402
from evenkeel.topology import Topology  # noqa: E402

STAGES, ENCODERS, ROWS, WIDTH = 4, 2, 256, 256


class Ranks:
    """What a link asks of a loader: the llm's stages on ranks 0 to 3, the encoders on 4 and 5."""

    def __init__(self, rank):
        self.rank, self.origin = rank, Origin(rank, "made up", "made up")
        self.generators = {}

    def mesh_of(self, phase):
        return Topology(0, pipeline=STAGES) if phase == "llm" else Topology(4, data=ENCODERS, ranks=(4, 5))

    def once_per_microbatch(self, _):
        return True


class Step:
    """ROWS rows of every encoder for each microbatch."""

    def __init__(self, rank, count):
        self.microbatches, self.routes = [], {"vision": []}
        for _ in range(count):
            microbatch = Fields.of(sample_valid=np.ones(1, np.uint8), cu_seqlens=np.array([0, ENCODERS * ROWS], np.int32),
                                   mm_token_type_ids=np.ones((1, ENCODERS * ROWS), np.int64))
            microbatch.encoders, microbatch.context = {"vision": Fields.of(item_valid=np.ones(1, np.uint8), item_rows=np.array([ROWS]))}, None
            self.microbatches.append(microbatch)
            send = [[0, 0, ROWS]] if rank >= STAGES else []
            receive = [[1 + i, i * ROWS, ROWS] for i in range(ENCODERS)] if rank == 0 else []
            self.routes["vision"].append(Route([0, 4, 5], send, receive, len(send) * ROWS, len(receive) * ROWS))


class Slow(torch.autograd.Function):
    """A pass forward and back that takes the given seconds."""

    @staticmethod
    def forward(ctx, rows, forward, backward):
        ctx.backward_seconds = backward
        time.sleep(forward)
        return rows.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_seconds)
        return gradient, None, None


def draw(seed, count):
    """Seconds of the forward passes: [microbatches, encoders] and [microbatches, stages]; a backward takes twice as long."""
    rng = np.random.default_rng(seed)
    encoders = 0.02 * rng.lognormal(0, 0.5, (count, ENCODERS))
    llm = 0.02 * rng.lognormal(0, 0.2, (count, 1)) * np.ones((1, STAGES))
    return encoders, llm


def ideal(encoders, llm):
    forward = np.concatenate([encoders.max(1, keepdims=True), llm], 1)
    return plan.solve({"order": {"schedule": "1f1b", "stages": STAGES + 1, "algorithm": "given", "microbatches": [
        {"forward": one, "backward": 2 * one} for one in forward]}})["order"]["given_time"]


def run_llm(rank, rows, llm):
    def enter(number):
        return rows.receive(number).double()

    def run(chunk, hidden, number):
        out = Slow.apply(hidden, llm[number, rank], 2 * llm[number, rank])
        return out.sum() if chunk == STAGES - 1 else out
    stage = pipelines.Stage(list(range(STAGES)), rank, 1, enter, run, lambda _: (ENCODERS * ROWS, WIDTH))
    stage.train(pipelines.one_f_one_b(rank, STAGES, len(llm)))


def run_encoder(rank, rows, encoders):
    def run(number):
        seconds = encoders[number, rank - STAGES]
        return Slow.apply(torch.ones(ROWS, WIDTH, requires_grad=True), seconds, 2 * seconds)
    rows.encode(run, in_flight=STAGES + 1)


def run_rank(rank, rendezvous, count, rounds, answers):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=STAGES + ENCODERS)
    link = apart.Link(Ranks(rank), "vision", WIDTH)
    for seed in range(rounds + 1):
        encoders, llm = draw(seed, count)
        dist.barrier()
        begin = time.monotonic()
        with link.step(Step(rank, count)) as rows:
            if rank < STAGES:
                run_llm(rank, rows, llm)
            else:
                run_encoder(rank, rows, encoders)
        dist.barrier()
        if rank == 0 and seed > 0:  # the first one makes the connections
            answers.put((time.monotonic() - begin, ideal(encoders, llm)))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = mp.get_context("spawn").SimpleQueue()
        mp.spawn(run_rank, (os.path.join(folder, "rendezvous"), given.microbatches, given.rounds, answers), STAGES + ENCODERS)
        print("round  measured_s  ideal_s  ratio")
        ratios = []
        for number in range(given.rounds):
            measured, best = answers.get()
            ratios.append(measured / best)
            print(f"{number:5}  {measured:10.3f}  {best:7.3f}  {ratios[-1]:.3f}")
    print(f"median ratio {np.median(ratios):.3f}, largest {max(ratios):.3f}")


if __name__ == "__main__":
    main()
