"""How even steps are where encoders run inside the model's forward (`balance: drop_in`): 128 ranks, 60 samples each.

    PYTHONPATH=build/release/python python3 bench/drop_in.py [SEEDS]

Prints max/mean of every phase over the ranks of a step, and, with about eight microbatches, the sum over their indices of
the heaviest rank's cost, phases added, over the mean cost of a rank: 1 if no rank ever waited. Lengths are drawn here:
captions, documents of many pictures, speech, spoken questions, video with sound, text.
"""
import sys

import numpy as np

from evenkeel import plan

RANKS, PER_RANK = 128, 60
# Per token, patch and frame; the shares are those of a 7B llm with a vision tower of 0.7B and a small audio tower.
COST = {"llm": {"linear": 1, "quadratic": 2e-5}, "vision": {"linear": 0.12, "quadratic": 4e-6}, "audio": {"linear": 0.1}}


def draw(rng, samples):
    """(llm lengths, {phase: Items})."""
    llm, items = [], {"vision": [], "audio": []}

    def length(mean, deviation, low, high):
        return int(min(high, max(low, rng.lognormal(mean, deviation))))
    for sample in range(samples):
        kind, text, patches, frames = rng.random(), length(5, 1, 8, 4096), [], []
        if kind < 0.3:
            text, patches = length(4, 0.8, 8, 512), [length(7.2, 0.7, 64, 16384)]
        elif kind < 0.4:
            text, patches = length(6.5, 0.7, 64, 4096), [length(7, 0.6, 64, 8192) for _ in range(rng.integers(2, 12))]
        elif kind < 0.55:
            frames = [length(6.5, 0.7, 50, 1500)]
        elif kind < 0.65:
            patches, frames = [length(7.2, 0.7, 64, 16384)], [length(5.5, 0.6, 50, 1500)]
        elif kind < 0.75:
            patches, frames = [length(8.5, 0.5, 512, 32768) // 4 * 4], [length(6.8, 0.4, 50, 1500)]
        items["vision"] += [(sample, n, (n + 3) // 4) for n in patches]
        items["audio"] += [(sample, n, (n + 1) // 2) for n in frames]
        llm.append(text + sum((n + 3) // 4 for n in patches) + sum((n + 1) // 2 for n in frames))
    return np.array(llm), {name: plan.Items(*np.array(rows).T) for name, rows in items.items()}


def cost_of(name, lengths):
    lengths = np.asarray(lengths, float)
    return COST[name].get("linear", 0) * lengths + COST[name].get("quadratic", 0) * lengths ** 2


def main(seeds=5):
    drop_in = {"algorithm": "none", "runs": "once_per_microbatch"}
    phases = [{"name": name, "num_ranks": RANKS, "cost": cost, **({} if name == "llm" else drop_in)}
              for name, cost in COST.items()]
    for seed in range(int(seeds)):
        llm, items = draw(np.random.default_rng(seed), RANKS * PER_RANK)
        capacity = max(int(llm.max()), int(llm.sum() / RANKS / 8 * 1.08))
        step = plan.balance(llm, phases, **items, ranks_per_node=8, microbatch={"capacity_tokens": capacity})
        total = cost_of("llm", llm)
        for name, one in items.items():
            np.add.at(total, one.sample, cost_of(name, one.cost_length))
        met = np.zeros((RANKS, step.num_microbatches))
        np.add.at(met, (step.rank, step.microbatch), total)
        even = " ".join(f"{name} {phase.max_over_mean:.4f}" for name, phase in step.phases.items())
        print(f"seed {seed}: max/mean {even}; rows moved {sum(p.rows_to_other_rank for p in step.phases.values())}; "
              f"{step.num_microbatches} microbatches, heaviest of every index {met.max(0).sum() / (total.sum() / RANKS):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
