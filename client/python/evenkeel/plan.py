"""The planner as a library: no workers, no service, no job file.

    from evenkeel import plan

    ranks = plan.balance(lengths, 8).rank                       # rank of every sequence, cost = length

    step = plan.balance(llm_lengths, 64, ranks_per_node=8,      # three phases, every item known by its sample
                        vision=plan.Items(sample, patches, rows), audio=plan.Items(...))
    step.phases["vision"].rank                                  # rank of every image
    step.phases["vision"].routes[0].rows                        # the all-to-all of its outputs, as sparse runs

    plan.balance(llm_lengths, 64, items={"tower": plan.Items(...), "depth": plan.Items(...)})   # any encoder phases

    solution = plan.solve({"compose": {...}})                   # any kind of problem, as `evenkeel solve` takes it

Everything is a pure function: the same input gives the same answer on every machine. The interpreter's lock is
released while it works. docs/planner.md explains the problems, the algorithms and every figure.
"""

import dataclasses
import json

import numpy as np

from evenkeel import _evenkeel
from evenkeel.errors import InvalidArgument

__all__ = ["Balanced", "BalancedPhase", "Items", "Runs", "balance", "solve"]


def solve(problem):
    """Solves a `Problem` of proto/problem.proto, given and answered as dictionaries in its JSON form.

    Lists of numbers may be numpy arrays. 64-bit numbers, which that form writes as strings, come as ints. Raises
    `InvalidArgument` with the field's name, and for an unknown one the nearest known, for what is no problem, and
    `Error` where a capacity cannot be kept.
    """
    return _with_ints(json.loads(_evenkeel.solve_json(json.dumps(problem, default=_plain))))


def _plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise InvalidArgument(f"problem: a value of type {type(value).__name__} has no JSON form; give numbers, texts, "
                          "lists, dictionaries or numpy arrays", "INVALID_ARGUMENT")


def _with_ints(value):
    if isinstance(value, dict):
        return {key: _with_ints(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_ints(member) for member in value]
    return int(value) if isinstance(value, str) and value.isdecimal() else value  # other strings are words


@dataclasses.dataclass(frozen=True)
class Items:
    """The items of one encoder phase, in parallel arrays in the order of their samples."""

    sample: np.ndarray       # [items] which sample each belongs to, ascending
    cost_length: np.ndarray  # [items] what the encoder computes
    output_rows: np.ndarray  # [items] rows it leaves in the sample's sequence


@dataclasses.dataclass(frozen=True)
class Runs:
    """One exchange, in parallel arrays.

    Rows [from_row, from_row + rows) of encoder rank `source` become rows [to_row, to_row + rows) of llm rank `target`.
    """

    source: np.ndarray
    target: np.ndarray
    from_row: np.ndarray
    to_row: np.ndarray
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class BalancedPhase:
    """What became of a phase. The llm has no rows and no routes."""

    rank: np.ndarray         # [samples] or [items] uint32, rank of the phase
    load: np.ndarray         # [ranks] float64, cost
    max_over_mean: float
    reachable: float         # no solution's max_over_mean is below: the heaviest unit alone
    rows: int
    rows_to_other_rank: int
    inter_node_rows: int
    routes: tuple            # of Runs, one per exchange


@dataclasses.dataclass(frozen=True)
class Balanced:
    """What `balance` gives. `rank` is short for `phases["llm"].rank`."""

    num_microbatches: int
    microbatch: np.ndarray   # [samples] uint32
    phases: dict             # name -> BalancedPhase

    @property
    def rank(self):
        return self.phases["llm"].rank


def balance(llm, ranks, *, vision=None, audio=None, items=None, ranks_per_node=0, microbatch=None, llm_rank=None,
            **options):
    """Places samples and items on ranks. Arrays in, arrays out; no sample becomes a Python object.

    `llm`: lengths of the sequences. `items`: the `Items` of every encoder phase by its name; `vision` and `audio` are
    short for those two. `ranks`: how many ranks every phase has, or the phases as a list of dictionaries
    with the fields of `BalancePhase` in proto/problem.proto (`name`, `num_ranks` or `ranks`, `nodes`, `cost`,
    `algorithm`, ...). `options` are such fields for all phases: algorithm="karmarkar_karp", equal_counts=True.
    `llm_rank`: a placement of the samples that is given; without it they are placed too.
    """
    encoders = {name: given for name, given in (("vision", vision), ("audio", audio)) if given is not None}
    twice = encoders.keys() & (items or {}).keys()
    if twice:
        raise InvalidArgument(f"items of {', '.join(sorted(twice))} are given twice", "INVALID_ARGUMENT")
    encoders.update(items or {})
    if isinstance(ranks, (int, np.integer)):
        ranks = [{"name": name, "num_ranks": int(ranks)} for name in ("llm", *encoders)]
    problem = {"phases": [{**options, **phase} for phase in ranks], "ranks_per_node": ranks_per_node}
    if microbatch is not None:
        problem["microbatch"] = microbatch
    llm = _numbers(llm, "llm")
    if llm_rank is not None:
        problem["llm_rank"] = _numbers(llm_rank, "llm_rank").tolist()
    arrays = [(name, *_item_arrays(name, given, len(llm))) for name, given in encoders.items()]
    num_microbatches, microbatches, phases = _evenkeel.balance_arrays(json.dumps(problem), llm, arrays)
    return Balanced(num_microbatches, microbatches, {name: _phase(figures) for name, figures in phases.items()})


def _phase(figures):
    return BalancedPhase(**{**figures, "routes": tuple(Runs(*runs) for runs in figures["routes"])})


def _item_arrays(name, items, samples):
    arrays = [_numbers(getattr(items, field.name), f"{name}.{field.name}") for field in dataclasses.fields(Items)]
    if len({len(array) for array in arrays}) != 1:
        raise InvalidArgument(f"{name}: sample, cost_length and output_rows differ in length", "INVALID_ARGUMENT")
    sample = arrays[0]
    if len(sample) and (sample[-1] >= samples or np.any(sample[1:] < sample[:-1])):
        raise InvalidArgument(f"{name}.sample must ascend and stay below {samples}, the number of samples",
                              "INVALID_ARGUMENT")
    return arrays


def _numbers(values, name):
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 0xFFFFFFFF:
        raise InvalidArgument(f"{name} must be one-dimensional, of integers in [0, 2^32)", "INVALID_ARGUMENT")
    return np.ascontiguousarray(array, np.uint32)
