"""`evenkeel.plan`: the planner as a library, with dictionaries and with arrays."""

import json
import random
import sys
import threading

import numpy as np
import pytest

from evenkeel import errors, plan


def draw(samples=300, seed=7):
    """Lengths of the llm, and items of two encoders as (sample, cost_length, output_rows)."""
    rng = random.Random(seed)
    llm, vision, audio = [], [], []
    for sample in range(samples):
        length = rng.randint(10, 300)
        for items, most, per_row in ((vision, 3, 4), (audio, 1, 2)):
            for _ in range(rng.randint(0, most)):
                rows = rng.randint(50, 900)
                items.append((sample, per_row * rows, rows))
                length += rows
        llm.append(length)
    return np.array(llm), np.array(vision), np.array(audio)


def as_problem(llm, vision, audio, ranks, ranks_per_node):
    samples = [{"llm": int(length), "vision": [], "audio": []} for length in llm]
    for name, items in (("vision", vision), ("audio", audio)):
        for sample, cost_length, rows in items.tolist():
            samples[sample][name].append({"cost_length": cost_length, "output_rows": rows})
    return {"balance": {"ranks_per_node": ranks_per_node, "samples": samples,
                        "phases": [{"name": name, "num_ranks": ranks} for name in ("llm", "vision", "audio")]}}


def items(array):
    return plan.Items(*array.T)


def test_arrays_and_json_give_the_same_plan():
    llm, vision, audio = draw()
    solved = plan.solve(as_problem(llm, vision, audio, ranks=8, ranks_per_node=4))["balance"]
    balanced = plan.balance(llm, 8, vision=items(vision), audio=items(audio), ranks_per_node=4)
    assert balanced.rank.tolist() == solved["llm_rank"]
    for phase in solved["phases"]:
        ours = balanced.phases[phase["name"]]
        assert ours.load.tolist() == phase["load"]
        assert ours.inter_node_rows == phase["inter_node_rows"]
        if phase["name"] != "llm":
            assert ours.rank.tolist() == phase["rank"]
    runs, = balanced.phases["vision"].routes
    route, = (route for route in solved["routes"] if route["phase"] == "vision")
    for ours, theirs in zip((runs.source, runs.target, runs.from_row, runs.to_row, runs.rows),
                            (route[name] for name in ("from", "to", "from_row", "to_row", "rows")), strict=True):
        assert ours.tolist() == theirs


def test_any_encoder_phases_have_items():
    llm, vision, audio = draw()
    encoders = {"tower": vision, "audio": audio, "depth": vision[::2], "vision": vision[1::2], "points": audio[::3]}
    balanced = plan.balance(llm, 8, items={name: items(array) for name, array in encoders.items()}, ranks_per_node=4)
    assert list(balanced.phases) == ["llm", *encoders]
    samples = [{"llm": int(length), "items": []} for length in llm]
    for name, array in encoders.items():
        for sample, cost_length, rows in array.tolist():
            samples[sample]["items"].append({"phase": name, "cost_length": cost_length, "output_rows": rows})
    phases = [{"name": name, "num_ranks": 8} for name in ("llm", *encoders)]
    solved = plan.solve({"balance": {"ranks_per_node": 4, "samples": samples, "phases": phases}})["balance"]
    assert balanced.rank.tolist() == solved["llm_rank"]
    for phase in solved["phases"][1:]:
        ours, array = balanced.phases[phase["name"]], encoders[phase["name"]]
        assert ours.rank.tolist() == phase["rank"] and len(ours.rank) == len(array)
        assert np.array_equal(np.bincount(ours.rank, array[:, 1], minlength=8), ours.load)


def test_items_of_vision_are_short_for_items_by_name():
    llm, vision, audio = draw()
    short = plan.balance(llm, 8, vision=items(vision), audio=items(audio))
    named = plan.balance(llm, 8, items={"vision": items(vision), "audio": items(audio)})
    assert short.rank.tolist() == named.rank.tolist()
    assert short.phases["vision"].rank.tolist() == named.phases["vision"].rank.tolist()
    with pytest.raises(errors.InvalidArgument, match="vision are given twice"):
        plan.balance(llm, 8, vision=items(vision), items={"vision": items(vision)})
    with pytest.raises(errors.InvalidArgument, match="'tower': ranks has no encoder phase of that name"):
        plan.balance(llm, [{"name": "llm", "num_ranks": 8}], items={"tower": items(vision)})


def test_loads_are_the_sums_of_what_the_ranks_got():
    llm, vision, _ = draw()
    balanced = plan.balance(llm, 8, vision=items(vision))
    assert np.array_equal(np.bincount(balanced.rank, llm, minlength=8), balanced.phases["llm"].load)
    of_vision = balanced.phases["vision"]
    assert np.array_equal(np.bincount(of_vision.rank, vision[:, 1], minlength=8), of_vision.load)
    assert sum(runs.rows.sum() for runs in of_vision.routes) == of_vision.rows == vision[:, 2].sum()


def test_sequences_alone_need_nothing_but_lengths():
    lengths = np.random.default_rng(3).integers(1, 8192, 96)
    ranks = plan.balance(lengths, 8, algorithm="karmarkar_karp", equal_counts=True).rank
    assert np.bincount(ranks).tolist() == [12] * 8
    assert len(plan.balance([], 4).rank) == 0


def test_phases_may_differ():
    llm, vision, _ = draw()
    phases = [{"name": "llm", "num_ranks": 8}, {"name": "vision", "ranks": [8, 9], "algorithm": "greedy_packed"}]
    balanced = plan.balance(llm, phases, vision=items(vision), ranks_per_node=4)
    assert set(balanced.phases["vision"].rank) == {0, 1}
    assert balanced.phases["vision"].inter_node_rows == vision[:, 2].sum()


def test_microbatches_keep_their_capacity():
    llm, _, _ = draw()
    balanced = plan.balance(llm, 4, microbatch={"capacity_tokens": 8192})
    tokens = np.bincount(balanced.rank * balanced.num_microbatches + balanced.microbatch, llm)
    assert balanced.num_microbatches > 1 and tokens.max() <= 8192


def test_a_given_placement_is_kept():
    llm, vision, _ = draw()
    given = np.arange(len(llm)) % 8
    assert np.array_equal(plan.balance(llm, 8, vision=items(vision), llm_rank=given).rank, given)


def test_compose_undoes_itself():
    first = {"num_ranks": 2, "from": [0, 1], "from_row": [0, 0], "to": [1, 0], "to_row": [0, 0], "rows": [4, 4]}
    solved = plan.solve({"compose": {"first": first, "second": first}})["compose"]
    assert solved["rows"] == 8 and solved["rows_between_ranks"] == 0


def test_numbers_of_a_problem_may_be_arrays():
    lengths = np.array([5, 9, 3, 7], np.int64)
    problem = {"pack": {"devices": np.uint32(1), "phases": [{"name": "llm", "capacity": 12, "length": lengths}]}}
    plain = {"pack": {"devices": 1, "phases": [{"name": "llm", "capacity": 12, "length": lengths.tolist()}]}}
    assert plan.solve(problem)["pack"] == plan.solve(plain)["pack"]


@pytest.mark.parametrize("problem, named", [
    ({"pack": {"phases": [{"name": "llm", "length": {1, 2}}]}}, "type set"),
    ({"pack": {"phases": [{"name": "llm", "lengths": [1]}]}},
     "pack.phases[0]: unknown field 'lengths'; nearest is 'length'"),
    ({}, "no kind"),
    ({"balance": {"phases": [{"name": "lm", "num_ranks": 1}]}}, "balance.phases: none is named llm"),
    ({"balance": {"phases": [{"name": "llm", "num_ranks": 1, "algorithm": "best"}]}}, "unknown algorithm 'best'"),
    ({"balance": {"phases": [], "sample": []}}, "sample"),
])
def test_what_is_no_problem_is_named(problem, named):
    with pytest.raises(errors.InvalidArgument, match=named.replace("[", r"\[")):
        plan.solve(problem)


@pytest.mark.parametrize("arguments", [
    {"llm": [1, -2]}, {"llm": [1.5]}, {"llm": [2**32]}, {"llm": [[1]]},
    {"llm": [1, 1], "vision": plan.Items([1, 0], [1, 1], [1, 1])},
    {"llm": [1], "vision": plan.Items([1], [1], [1])},
    {"llm": [1], "vision": plan.Items([0], [1, 1], [1])},
    {"llm": [1], "colour": "red"},
])
def test_arrays_that_make_no_sense_are_refused(arguments):
    with pytest.raises(errors.InvalidArgument):
        plan.balance(**{"ranks": 2, **arguments})


def test_other_threads_run_meanwhile():
    llm, _, _ = draw(60000)
    turns, done = [], threading.Event()

    def turn():
        while not done.wait(1e-4):
            turns.append(None)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # from here on a thread yields only when it releases the lock itself
    other = threading.Thread(target=turn)
    other.start()
    try:
        for _ in range(100):  # the other thread may be slow to wake
            before = len(turns)
            plan.balance(llm, 1000)
            if len(turns) > before:
                break
        else:
            pytest.fail("the interpreter's lock was held")
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(interval)


def test_a_solution_is_json_again():
    llm, vision, audio = draw(20)
    solution = plan.solve(as_problem(llm, vision, audio, 2, 1))
    assert json.loads(json.dumps(solution)) == solution
