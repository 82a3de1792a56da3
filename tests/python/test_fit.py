"""Costs from profiles: what a fit recovers, what it reports, what it refuses, and what it writes into a job."""

import dataclasses
import json
import subprocess

import numpy as np
import pytest

import jobs
from evenkeel import fit as fits
from evenkeel import plan, profiles
from evenkeel.errors import InvalidArgument

LENGTHS = tuple(round(128 * 2 ** (i / 2)) for i in range(12))
TRUE = {"call": 2e-4, "constant": 0.0, "linear": 3e-6, "quadratic": 1.5e-9}


def seconds(value):
    return profiles.Seconds(value, value * 0.99, value * 0.02)


def profile(forward=TRUE, backward=2.0, noise=0.0, seed=0, units=(1,), lengths=LENGTHS, **changes):
    """Of a made-up module: `backward` times the forward pass, with noise of that relative deviation."""
    rng = np.random.default_rng(seed)

    def time(n, u):
        exact = forward["call"] + u * (forward["constant"] + forward["linear"] * n + forward["quadratic"] * n * n)
        return exact * float(np.exp(noise * rng.standard_normal()))
    points = tuple(profiles.Point(n, u, seconds(time(n, u)), seconds(backward * time(n, u)) if backward else None, 100 * n * u)
                   for n in lengths for u in units)
    made = profiles.Profile(phase="llm", model="toy", module="Toy", dtype="float32", device="cpu", torch="2.1", clock="wall",
                            threads=1, tensor_parallel=1, frozen=not backward, input_gradients=False, window=None, warm_up=2,
                            repetitions=7, points=points)
    return dataclasses.replace(made, **changes)


def fit_one(made, **options):
    return fits.fit([("a.json", made)], **options)[0]


def test_exact_times_give_exact_coefficients():
    one = fit_one(profile())
    assert one.cost == pytest.approx({"linear": 9e-6, "quadratic": 4.5e-9}, rel=1e-6)
    assert one.call_seconds == pytest.approx(6e-4, rel=1e-6)
    assert one.passes["both"].held_out_max < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_noisy_times_give_coefficients_near_the_true_ones(seed):
    rng = np.random.default_rng(1000 + seed)
    true = {"call": 0.0, "constant": 0.0, "linear": 10 ** rng.uniform(-7, -5), "quadratic": 0.0}
    true["quadratic"] = true["linear"] / LENGTHS[-1] * rng.uniform(0.5, 5)  # attention is a third to five sixths at the end
    true["call"] = true["linear"] * rng.uniform(0, 200)
    forward = fit_one(profile(true, noise=0.02, seed=seed)).passes["forward"]
    for term in ("linear", "quadratic"):
        assert forward.coefficients[term] == pytest.approx(true[term], abs=6 * forward.errors[term])
        assert forward.errors[term] < 0.2 * true[term]
    assert forward.held_out_max < 0.1 and forward.held_out_mean <= forward.held_out_max


def test_standard_errors_are_those_of_repeated_experiments():
    found = [fit_one(profile(noise=0.02, seed=seed)).passes["forward"] for seed in range(200)]
    for term in ("linear", "quadratic"):
        deviation = np.std([one.coefficients[term] for one in found])
        assert np.mean([one.errors[term] for one in found]) == pytest.approx(deviation, rel=0.25)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_near_the_solution_is_better(seed):
    rng = np.random.default_rng(seed)
    columns = rng.uniform(0.1, 1, (12, 4)) * [1, 1e3, 1e6, 1e9]
    values = rng.uniform(0.5, 2, 12)
    solved, _ = fits.least_squares(columns, values)

    def error(c):
        return np.sum(((columns @ c - values) / values) ** 2)
    assert (solved >= 0).all()
    for _ in range(500):
        other = np.maximum(0, solved + rng.standard_normal(4) * [1e-2, 1e-5, 1e-8, 1e-11] * rng.choice([0.01, 1, 30]))
        assert error(other) >= error(solved) - 1e-10


def test_a_term_that_would_be_negative_is_zero():
    falling = dict(TRUE, quadratic=-1e-10)
    one = fit_one(profile(falling))
    assert "quadratic" not in one.cost and one.passes["forward"].errors["quadratic"] is None


def test_several_units_tell_units_from_calls():
    true = {"call": 4e-4, "constant": 5e-5, "linear": 2e-6, "quadratic": 1e-9}
    one = fit_one(profile(true, units=(1, 4)))
    assert one.cost == pytest.approx({"constant": 1.5e-4, "linear": 6e-6, "quadratic": 3e-9}, rel=1e-5)
    assert one.call_seconds == pytest.approx(1.2e-3, rel=1e-5)


def test_a_call_counts_as_a_unit_only_on_request():
    assert "constant" not in fit_one(profile()).cost
    one = fit_one(profile(), one_unit_per_call=True)
    assert one.cost["constant"] == pytest.approx(6e-4, rel=1e-6) and one.call_seconds == 0


def test_a_frozen_module_costs_its_forward_pass():
    one = fit_one(profile(backward=0))
    assert set(one.passes) == {"forward", "both"} and one.cost["linear"] == pytest.approx(3e-6, rel=1e-6)


def test_attention_within_windows_is_a_larger_slope():
    window, linear, quadratic = 256, 1e-6, 4e-9
    lengths = [window * k for k in (1, 2, 3, 4, 6, 8, 12, 16)]
    made = profile(lengths=lengths, window=window)
    points = [dataclasses.replace(point, forward=seconds(linear * point.length + quadratic * window * point.length))
              for point in made.points]
    coefficients = fit_one(dataclasses.replace(made, points=tuple(points))).passes["forward"].coefficients
    assert coefficients["linear"] == pytest.approx(linear + quadratic * window, rel=1e-6)
    assert coefficients["quadratic"] == pytest.approx(0, abs=1e-15)


def test_held_out_lengths_lie_within_the_range():
    one = fit_one(profile())
    assert one.held_out_lengths == tuple(LENGTHS[i] for i in (1, 4, 7, 10))


def test_a_shape_that_costs_cannot_have_shows_in_the_error():
    made = profile()
    step = [dataclasses.replace(point, forward=seconds(1e-3 if point.length < 1000 else 1e-2)) for point in made.points]
    one = fit_one(dataclasses.replace(made, points=tuple(step)))
    assert one.passes["forward"].held_out_max > 0.2 and one.passes["backward"].held_out_max < 1e-6


def test_the_minimum_is_fitted_on_request():
    assert fit_one(profile(), statistic="minimum").cost["linear"] == pytest.approx(0.99 * 9e-6, rel=1e-6)


def test_profiles_of_a_phase_are_put_together():
    halves = [profile(lengths=LENGTHS[:6]), profile(lengths=LENGTHS[6:])]
    both = fits.fit([("a.json", halves[0]), ("b.json", halves[1])])
    assert len(both) == 1 and both[0].cost == fit_one(profile()).cost


def test_the_same_profiles_give_the_same_fit():
    made = profile(noise=0.05, seed=3, units=(1, 2))
    assert fit_one(made) == fit_one(profiles.Profile.from_json(made.to_json()))


@pytest.mark.parametrize("key,value", [("model", "other"), ("dtype", "bfloat16"), ("device", "NVIDIA H100"),
                                       ("clock", "processor"), ("torch", "2.9")])
@pytest.mark.parametrize("phase", ["llm", "vision"])
def test_profiles_that_differ_are_not_combined(phase, key, value):
    other = profile(**{"phase": phase, key: value})
    with pytest.raises(InvalidArgument, match=f"b.json: {key}: expected .* as in a.json, got '{value}'"):
        fits.fit([("a.json", profile()), ("b.json", other)])


def test_an_encoder_may_be_frozen_and_share_fewer_accelerators():
    llm, vision = profile(tensor_parallel=8), profile(phase="vision", backward=0, module="Tower")
    assert [one.phase for one in fits.fit([("a", llm), ("b", vision)])] == ["llm", "vision"]
    with pytest.raises(InvalidArgument, match="tensor_parallel"):
        fits.fit([("a", llm), ("b", profile())])


def test_too_few_lengths_are_refused():
    with pytest.raises(InvalidArgument, match="4 different lengths"):
        fit_one(profile(lengths=LENGTHS[:4]))


def test_times_that_do_not_rise_are_refused():
    with pytest.raises(InvalidArgument, match="do not rise"):
        fit_one(profile(dict(TRUE, linear=0.0, quadratic=0.0)))


# The document.

@pytest.mark.parametrize("made", [profile(), profile(backward=0, window=256, units=(1, 3))])
def test_a_profile_is_read_as_it_was_written(made):
    assert profiles.Profile.from_json(made.to_json()) == made


def changed(path, value):
    document = json.loads(profile().to_json())
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize("path,value,message", [
    (["format"], "other", "is not a profile"),
    (["version"], 2, "version: expected 1, got 2"),
    (["unit"], "milliseconds", "unit: expected 'seconds', got 'milliseconds'"),
    (["colour"], "red", "key 'colour' is unknown"),
    (["dtype"], None, "key 'dtype' is missing"),
    (["threads"], "1", "threads: expected int, got '1'"),
    (["threads"], True, "threads: expected int, got True"),
    (["clock"], "sun", "clock: expected one of wall, processor, got 'sun'"),
    (["points", 1, "length"], 0, r"points\[1\]: length and units must be at least 1"),
    (["points", 1, "forward", "median"], -1, r"points\[1\]: forward: median: must be a number of at least 0"),
    (["points", 1, "forward", "minimum"], 0, r"points\[1\]: forward: took no time"),
    (["points", 1, "forward", "mean"], 1, "key 'mean' is unknown"),
    (["frozen"], True, r"points\[0\]: backward: the module is frozen"),
])
def test_a_wrong_profile_is_refused_with_the_place(path, value, message):
    with pytest.raises(InvalidArgument, match="a.json: .*" + message):
        profiles.Profile.from_json(changed(path, value), "a.json")


def test_text_that_is_not_json_is_refused():
    with pytest.raises(InvalidArgument, match="a.json: is not JSON"):
        profiles.Profile.from_json("{", "a.json")


# Into a job, and to the planner.

FLOW = """\
# The model's phases.
dataset: ./index   # made by hand
phases:
  - {name: llm, ranks: 0-3, cost: {linear: 1, quadratic: 2.0e-5}}  # the llm
  - {name: "vision", ranks: "0-3"}
seed: 7
"""
BLOCK = """\
phases:
- name: llm   # the llm
  cost:
    linear: 1
    quadratic: 2.0e-5

  # Balanced by itself.
  ranks: 0-3
- ranks: 0-3
  name: vision  # the tower
"""
COSTS = {"llm": "{linear: 9.0000e-06}", "vision": "{linear: 1.0000e-06, quadratic: 2.0000e-10}"}


@pytest.fixture
def job_costs():
    pytest.importorskip("yaml")
    from evenkeel import job_costs
    return job_costs


def test_costs_of_a_job_in_flow_style_are_replaced(job_costs):
    assert job_costs.replaced(FLOW, COSTS) == FLOW.replace(
        "cost: {linear: 1, quadratic: 2.0e-5}", "cost: {linear: 9.0000e-06}").replace(
        '{name: "vision"', '{name: "vision", cost: {linear: 1.0000e-06, quadratic: 2.0000e-10}')


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_costs_of_a_job_in_block_style_are_replaced(job_costs, newline):
    text = BLOCK.replace("\n", newline)
    expected = BLOCK.replace("    linear: 1\n    quadratic: 2.0e-5\n", "    {linear: 9.0000e-06}\n").replace(
        "# the tower\n", "# the tower\n  cost: {linear: 1.0000e-06, quadratic: 2.0000e-10}\n").replace("\n", newline)
    assert job_costs.replaced(text, COSTS) == expected
    assert job_costs.replaced(expected, COSTS) == expected


@pytest.mark.parametrize("text,costs,message", [
    (FLOW, {**COSTS, "audio": "{linear: 1}"}, "has no phase 'audio', which a profile is of; its phases: llm, vision"),
    (FLOW, {"llm": COSTS["llm"]}, "phase 'vision' has no profile, and its cost would stay in another unit"),
    (BLOCK.replace("linear: 1\n", "linear: 1  # a token\n"), COSTS, "phase 'llm': its cost contains a comment"),
    ("phases: 3", COSTS, "phases: expected a list"),
    ("phases: [{ranks: 0}]", COSTS, r"phases\[0\].name: is missing"),
    ("phases: [{name: llm, cost: &c {linear: 1}}, {name: vision, cost: *c}]", COSTS, "its style is not understood"),
    ("phases: [{name: llm, x: !y 1}, {name: vision}]", COSTS, "its style is not understood"),
    ("phases: [{name: &a llm}, {name: vision}]\nother: [*b]", COSTS, "undefined alias"),
])
def test_a_job_that_does_not_fit_is_refused(job_costs, text, costs, message):
    with pytest.raises(InvalidArgument, match="job.yaml: .*" + message):
        job_costs.replaced(text, costs, "job.yaml")


def test_the_command_fits_and_writes_the_job(job_costs, tmp_path, capsys):
    for name, made in (("llm", profile()), ("vision", profile(phase="vision", backward=0, module="Tower"))):
        (tmp_path / name).write_text(made.to_json())
    (tmp_path / "job.yaml").write_text(FLOW)
    assert fits.main([str(tmp_path / "llm"), str(tmp_path / "vision"), "--write", str(tmp_path / "job.yaml")]) == 0
    printed = capsys.readouterr().out
    assert "held-out error: max 0.0%" in printed and "    cost: {linear: 9.0000e-06, quadratic: 4.5000e-09}" in printed
    assert "ranks: 0-3, cost: {linear: 9.0000e-06, quadratic: 4.5000e-09}}  # the llm" in (tmp_path / "job.yaml").read_text()


def test_a_refused_job_stays_as_it_is(job_costs, tmp_path, capsys):
    (tmp_path / "llm").write_text(profile().to_json())
    (tmp_path / "job.yaml").write_text(FLOW)
    assert fits.main([str(tmp_path / "llm"), "--write", str(tmp_path / "job.yaml")]) == 2
    assert "phase 'vision' has no profile" in capsys.readouterr().err
    assert (tmp_path / "job.yaml").read_text() == FLOW and len(list(tmp_path.iterdir())) == 2


def test_a_job_with_fitted_costs_is_planned(job_costs, tmp_path):
    jobs.write_shard(tmp_path / "mixed.tar")
    job = jobs.write_job(tmp_path, "job", 4, "balance_without_moving", "once_per_step", "{capacity_tokens: 700}")
    jobs.make_index(job)
    made = [fit_one(profile(phase=name, backward=backward)) for name, backward in (("llm", 2), ("vision", 0), ("audio", 2))]
    job_costs.write(str(job), {one.phase: fits.cost_yaml(one.cost) for one in made})

    def planned():
        done = subprocess.run([jobs.BINARY, "plan", "--job", str(job), "--step", "1", "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        plan_of = json.loads(done.stdout)
        return plan_of, [phase.pop("load_after") for phase in plan_of.pop("phases")]
    seconds_plan, seconds_loads = planned()
    job.write_text(job.read_text().replace("e-06", "e-03").replace("e-09", "e-06"))
    milliseconds_plan, milliseconds_loads = planned()
    assert milliseconds_plan == seconds_plan and len(seconds_loads) == 3
    for seconds_load, milliseconds_load in zip(seconds_loads, milliseconds_loads):
        assert milliseconds_load == pytest.approx([1000 * load for load in seconds_load])


def test_the_planner_takes_seconds_as_it_takes_operations():
    lengths = np.random.default_rng(5).integers(16, 8192, 400)
    cost = fit_one(profile(noise=0.02)).cost
    scaled = {term: value * 2.0 ** 40 for term, value in cost.items()}
    ranks = [plan.balance(lengths, [{"name": "llm", "num_ranks": 8, "cost": each}]).rank for each in (cost, scaled)]
    assert (ranks[0] == ranks[1]).all()
