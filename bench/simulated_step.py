"""The simulated step against the wall clock of the same training, on 4 and 8 gloo processes, with and without a pipeline.

    OMP_NUM_THREADS=1 PYTHONPATH=build/release/python python3 bench/simulated_step.py [--steps 3] [--slower 12]

A small model (a vision tower, a decoder of 8 layers, a head) is profiled in as many processes as train, costs are fitted to
the profiles, and samples with pictures are planned by these costs. Then the processes train for some steps: all ranks alike,
and as pipelines of four stages (1F1B). Every pass lasts `--slower` times its processor time, as if each process had a core of
its own (small_training.py). Prints the measured step, and what the planner's simulation of the same microbatches says: by the fitted
costs, and by the time that each pass took, which leaves the schedule alone to be compared. Exit code 1 if a median ratio is off
by more than a tenth. Needs torch 2.
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
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "python"))
import pipelines  # noqa: E402
from small_training import Layer, Paced, cost_of, sum_gradients  # noqa: E402

from evenkeel import fit as fits  # noqa: E402
from evenkeel import plan  # noqa: E402

WIDTH, HEADS, VOCABULARY, PATCH = 64, 4, 256, 48
STAGES, LAYERS_PER_STAGE, CAPACITY = 4, 2, 1536
LENGTHS = (64, 112, 192, 320, 560, 960, 1536)
MODULES, PASSES = ("vision", "layers", "head"), ("forward", "backward")
MAX_ERROR = 0.1


def layers(causal):
    return torch.nn.Sequential(*(Layer(WIDTH, HEADS, causal) for _ in range(LAYERS_PER_STAGE)))


class Model(torch.nn.Module):
    """All modules of all stages; a process runs those of its own."""

    def __init__(self):
        super().__init__()
        self.tower = torch.nn.Sequential(torch.nn.Linear(PATCH, WIDTH), layers(causal=False))
        self.stages = torch.nn.ModuleList(layers(causal=True) for _ in range(STAGES))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def vision(self, length):
        return self.tower(torch.ones(1, length, PATCH))[0]

    def stage(self, number, hidden):
        return self.stages[number](hidden[None])[0]

    def loss(self, hidden):
        logits = self.head(hidden)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))


def draw(step, count):
    """(tokens of each sample, patches of its picture or 0): the tokens include one for every four patches."""
    rng = np.random.default_rng(step)
    patches = np.where(rng.random(count) < 0.6, np.clip(rng.lognormal(5.6, 0.6, count), 64, 1536), 0).astype(int) // 4 * 4
    text = np.clip(rng.lognormal(5.3, 0.9, count), 64, 1080).astype(int)
    return np.minimum(text + patches // 4, CAPACITY), patches


def planned(step, count, ranks, costs):
    """[ranks][microbatches] of sample numbers, and the samples."""
    tokens, patches = draw(step, count)
    with_picture = np.flatnonzero(patches)
    phases = [{"name": "llm", "num_ranks": ranks, "cost": costs["llm"]},
              {"name": "vision", "num_ranks": ranks, "cost": costs["vision"], "algorithm": "none", "runs": "once_per_microbatch"}]
    items = plan.Items(with_picture, patches[with_picture], patches[with_picture] // 4)
    answer = plan.balance(tokens, phases, vision=items, microbatch={"capacity_tokens": CAPACITY})
    batches = [[np.flatnonzero((answer.rank == r) & (answer.microbatch == m)) for m in range(answer.num_microbatches)]
               for r in range(ranks)]
    return batches, tokens, patches


class Times:
    """Fitted seconds. passes: {(module, pass): cost}."""

    def __init__(self, passes):
        self._passes = passes

    def of(self, module, a_pass, lengths):
        return float(np.sum(cost_of(self._passes[module, a_pass], lengths)))

    def of_stages(self, a_pass, tokens, patches):
        """[STAGES] of a microbatch."""
        seconds = np.full(STAGES, self.of("layers", a_pass, tokens))
        seconds[0] += self.of("vision", a_pass, patches[patches > 0])
        seconds[-1] += self.of("head", a_pass, tokens)
        return seconds

    def passes(self, batches, tokens, patches):
        """{pass: [microbatches, STAGES]} of a rank's microbatches."""
        return {a_pass: np.array([self.of_stages(a_pass, tokens[one], patches[one]) for one in batches]) for a_pass in PASSES}

    def costs(self):
        """As the planner takes them: forward and backward of a unit."""
        def both(modules):
            return {term: sum(count * self._passes[module, a_pass][term] for module, count in modules for a_pass in PASSES)
                    for term in ("constant", "linear", "quadratic")}
        return {"llm": both([("layers", STAGES), ("head", 1)]), "vision": both([("vision", 1)])}


def simulated(passes, pipelined):
    """Seconds of the step of one rank. passes: {pass: [microbatches, stages]}."""
    if not pipelined:
        return float(sum(np.sum(seconds) for seconds in passes.values()))
    answer = plan.solve({"order": {"schedule": "1f1b", "stages": STAGES, "algorithm": "given", "microbatches": [
        {"forward": forward, "backward": backward} for forward, backward in zip(*passes.values())]}})
    return answer["order"]["given_time"]


def profile(model, paced, repetitions=3):
    """{(module, pass): [lengths] median seconds}, in this process."""
    runs = {"vision": lambda n, x: model.vision(n), "layers": lambda n, x: model.stage(0, x), "head": lambda n, x: model.loss(x)}
    seconds = {(module, a_pass): [[] for _ in LENGTHS] for module in MODULES for a_pass in PASSES}
    for repetition in range(repetitions + 1):  # the first warms up
        for i in np.random.default_rng(repetition).permutation(len(LENGTHS)):
            for module in MODULES:
                x = torch.ones(LENGTHS[i], WIDTH, requires_grad=True)
                out, forward = paced(lambda: runs[module](LENGTHS[i], x))
                _, backward = paced(lambda: out.sum().backward())
                if repetition > 0:
                    seconds[module, "forward"][i].append(forward)
                    seconds[module, "backward"][i].append(backward)
    return {key: [float(np.median(each)) for each in of_lengths] for key, of_lengths in seconds.items()}


def fitted(profiles):
    """`Times` of the profiles of all processes."""
    passes = {}
    for module in MODULES:
        seconds = {a_pass: np.concatenate([one[module, a_pass] for one in profiles]) for a_pass in PASSES}
        lengths = np.tile(LENGTHS, len(profiles))
        found, _ = fits.fit_passes(lengths, np.ones_like(lengths), seconds, one_unit_per_call=True)
        for a_pass in PASSES:
            cost = dict(found[a_pass].coefficients)
            cost["constant"] += cost.pop("call")
            passes[module, a_pass] = cost
            print(f"  {module:6} {a_pass:8} held-out error: max {found[a_pass].held_out_max:.1%}, "
                  f"mean {found[a_pass].held_out_mean:.1%}", flush=True)
    return Times(passes)


class Trainer:
    """One process of a data-parallel or pipelined training."""

    def __init__(self, rank, world, pipelined, paced):
        self.stages = STAGES if pipelined else 1
        self.replica, self.stage = divmod(rank, self.stages)
        self.replicas, self.paced = world // self.stages, paced
        self.ranks = list(range(self.replica * self.stages, (self.replica + 1) * self.stages))
        self.rank, self.pipelined, self.model = rank, pipelined, Model()

    def step(self, batches, tokens, patches):
        """Seconds until all processes are done. `worked` has the processor time of every pass of this process, in order."""
        mine, self.worked = batches[self.replica], []
        self.model.zero_grad(set_to_none=True)
        dist.barrier()
        begin = time.perf_counter()
        if self.stages == 1:
            for batch in mine:
                self._whole(batch, tokens, patches)
        else:
            stage = pipelines.Stage(self.ranks, self.rank, 1, lambda m: None,
                                    lambda chunk, hidden, m: self._chunk(chunk, hidden, tokens[mine[m]], patches[mine[m]]),
                                    lambda m: (int(tokens[mine[m]].sum()), WIDTH), paced=self._pass)
            stage.train(pipelines.one_f_one_b(self.stage, STAGES, len(mine)))
        sum_gradients(self.model)
        dist.barrier()
        return time.perf_counter() - begin

    def _whole(self, batch, tokens, patches):
        def forward():
            hidden = None
            for chunk in range(STAGES):
                hidden = self._chunk(chunk, hidden, tokens[batch], patches[batch])
            return hidden
        self._pass(self._pass(forward).backward)

    def _pass(self, work):
        result, seconds = self.paced(work)
        self.worked.append(seconds)
        return result

    def worked_passes(self, count):
        """{pass: [replicas, microbatches, stages]} of all processes in the last step."""
        operations = pipelines.one_f_one_b(self.stage, STAGES, count) if self.pipelined else [
            (kind, 0, m) for m in range(count) for kind in "FB"]
        mine = torch.zeros(2, self.replicas, count, self.stages, dtype=torch.float64)
        for (kind, _, m), seconds in zip(operations, self.worked, strict=True):
            mine["FB".index(kind), self.replica, m, self.stage] = seconds
        dist.all_reduce(mine)
        return dict(zip(PASSES, mine.numpy()))

    def _chunk(self, chunk, hidden, tokens, patches):
        """float64 of all samples in a row, or the loss."""
        if chunk == 0:
            hidden = torch.zeros(int(tokens.sum()), WIDTH).double().requires_grad_()
        parts = list(hidden.float().split(tokens.tolist()))
        for i, length in enumerate(patches if chunk == 0 else []):
            if length > 0:
                rows = self.model.vision(int(length)).view(int(length) // 4, 4, WIDTH).mean(1)
                parts[i] = torch.cat([rows, parts[i][len(rows):]])
        parts = [self.model.stage(chunk, part) for part in parts]
        if chunk == STAGES - 1:
            return sum(self.model.loss(part) for part in parts)
        return torch.cat(parts).double()


def run_rank(rank, world, rendezvous, options, answers):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    paced = Paced(options.slower)
    profiles = [None] * world
    dist.all_gather_object(profiles, profile(Model(), paced))
    given = [fitted(profiles) if rank == 0 else None]
    dist.broadcast_object_list(given)
    times = given[0]
    for pipelined in (False, True):
        trainer = Trainer(rank, world, pipelined, paced)
        for step in range(options.steps + 1):  # the first warms up
            batches, tokens, patches = planned(step, options.samples * trainer.replicas, trainer.replicas, times.costs())
            seconds = trainer.step(batches, tokens, patches)
            worked = trainer.worked_passes(len(batches[0]))
            if rank == 0 and step > 0:
                by_costs = max(simulated(times.passes(one, tokens, patches), pipelined) for one in batches)
                by_passes = max(simulated({a_pass: worked[a_pass][r] for a_pass in PASSES}, pipelined) for r in range(trainer.replicas))
                answers.put((pipelined, step, len(batches[0]), seconds, options.slower * by_costs, options.slower * by_passes))
    dist.barrier()
    dist.destroy_process_group()


def run(world, options):
    """Prints a line a step. Median ratios (by costs, by passes), without and with pipelines."""
    with tempfile.TemporaryDirectory() as folder:
        answers = mp.get_context("spawn").SimpleQueue()
        started = mp.spawn(run_rank, (world, os.path.join(folder, "rendezvous"), options, answers), world, join=False)
        ratios = {False: [], True: []}
        for _ in range(2 * options.steps):
            while answers.empty():
                started.join(timeout=1)  # raises what a process raised
            pipelined, step, count, seconds, by_costs, by_passes = answers.get()
            ratios[pipelined].append((seconds / by_costs, seconds / by_passes))
            shape = f"{world // STAGES} x {STAGES} stages" if pipelined else f"{world} ranks"
            print(f"| {shape} | {step} | {count} | {seconds:.2f} | {by_costs:.2f} | {seconds / by_costs:.3f} | {by_passes:.2f} | "
                  f"{seconds / by_passes:.3f} |", flush=True)
        while not started.join():
            pass
    return [np.median(each, 0) for each in ratios.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--samples", type=int, default=32, help="of a replica and step (32)")
    parser.add_argument("--slower", type=float, default=12, help="wall-clock seconds of a second of work (12)")
    options = parser.parse_args()
    print("| processes | step | microbatches | measured, s | by costs, s | ratio | by passes, s | ratio |\n|---|---|---|---|---|---|---|---|")
    medians = np.array([ratio for world in (4, 8) for ratio in run(world, options)])
    for name, ratios in zip(("costs", "passes"), medians.T):
        print(f"by {name}: medians {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    worst = np.abs(medians - 1).max()
    print(f"at most {MAX_ERROR:.0%} off: {'met' if worst <= MAX_ERROR else 'missed'}")
    return int(worst > MAX_ERROR)


if __name__ == "__main__":
    sys.exit(main())
