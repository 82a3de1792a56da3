"""Cost coefficients of a job's phases, in seconds, from profiles of `evenkeel.profile`.

    python -m evenkeel.fit llm.json vision.json                    # prints costs to paste into the job, and their errors
    python -m evenkeel.fit llm.json vision.json --write job.yaml   # replaces the costs of the job, and nothing else of it

A call with `units` units of length n takes call + units * (constant + linear * n + quadratic * n^2) seconds, forward and
backward each. Coefficients are not negative and make the sum of squared relative errors least. All figures follow from
the profiles alone. docs/costs.md explains them.
"""

import argparse
import dataclasses
import itertools
import json
import sys

import numpy as np

from evenkeel.errors import InvalidArgument
from evenkeel.profiles import Profile

__all__ = ["Fit", "Pass", "cost_yaml", "fit", "fit_passes", "least_squares", "show"]

TERMS = ("call", "constant", "linear", "quadratic")
_HELD_OUT = 3  # every third length, without the shortest and the longest
_MIN_LENGTHS = 5
_NOTHING = 1e-12  # squared relative error of a point below which a further term is rounding
# What profiles of one phase, and what those of all phases must have in common.
_SAME_PHASE = ("model", "module", "dtype", "device", "torch", "clock", "threads", "tensor_parallel", "frozen", "input_gradients",
               "window")
_SAME_JOB = ("model", "dtype", "device", "torch", "clock", "threads")


@dataclasses.dataclass(frozen=True)
class Pass:
    """Coefficients of one pass by name, their standard errors (None: the coefficient is 0), and relative errors at the
    lengths that a second fit did not see."""

    coefficients: dict
    errors: dict
    held_out_max: float
    held_out_mean: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """A phase: `passes` has "forward", "backward" if it has one, and "both", which are their sums. `cost` is what the job
    takes: constant, linear and quadratic of both. `call_seconds` are of every call, however many units it has."""

    phase: str
    profile: Profile
    passes: dict
    cost: dict
    call_seconds: float
    held_out_lengths: tuple


def least_squares(columns, values):
    """(coefficients, standard errors) that minimise sum(((columns @ c - values) / values)^2) with c >= 0.

    columns [points, terms], values [points] > 0. With at most four terms all sets of terms are tried, so the minimum is
    exact and the same in every run; of sets that do not differ by more than rounding the smallest is taken. Standard
    errors are those of the terms above 0, else NaN.
    """
    rows = np.asarray(columns, float) / np.asarray(values, float)[:, None]
    scale = np.linalg.norm(rows, axis=0)
    points, terms = rows.shape
    best = None
    for count in range(1, terms + 1):
        for chosen in itertools.combinations(range(terms), count):
            part = rows[:, chosen] / scale[list(chosen)]
            solved, _, rank, _ = np.linalg.lstsq(part, np.ones(points), rcond=None)
            if rank < count or (solved < 0).any():
                continue
            error = float(np.sum((part @ solved - 1) ** 2))
            if best is None or error < best[0] - _NOTHING * points:
                best = error, chosen, part, solved
    error, chosen, part, solved = best
    coefficients, errors = np.zeros(terms), np.full(terms, np.nan)
    places = list(chosen)
    coefficients[places] = solved / scale[places]
    variance = error / max(1, points - len(places)) * np.diag(np.linalg.inv(part.T @ part))
    errors[places] = np.sqrt(variance) / scale[places]
    return coefficients, errors


def fit_passes(lengths, units, passes, one_unit_per_call=False):
    """({name: Pass}, held-out lengths) for {name: seconds of every point}; "both" is added.

    lengths, units, seconds   [points]
    """
    lengths, units = np.asarray(lengths, float), np.asarray(units, float)
    several = len(set(units)) > 1
    table = {"call": np.ones_like(lengths), "constant": units, "linear": units * lengths, "quadratic": units * lengths ** 2}
    # With one number of units the cost of a call and that of a unit are the same column.
    names = [name for name in TERMS if several or name != ("call" if one_unit_per_call else "constant")]
    columns = np.stack([table[name] for name in names], axis=1)
    distinct = sorted(set(lengths))
    held = [n for i, n in enumerate(distinct) if i % _HELD_OUT == 1 and i + 1 < len(distinct)]
    test = np.isin(lengths, held)
    out, predicted, total = {}, np.zeros(int(test.sum())), np.zeros_like(lengths)
    for name, seconds in passes.items():
        seconds = np.asarray(seconds, float)
        solved, errors = least_squares(columns, seconds)
        unseen = columns[test] @ least_squares(columns[~test], seconds[~test])[0]
        out[name] = _pass(names, solved, errors, unseen, seconds[test])
        predicted, total = predicted + unseen, total + seconds
    sums = {term: sum(one.coefficients[term] for one in out.values()) for term in TERMS}
    spread = {term: _root_of_squares([one.errors[term] for one in out.values()]) for term in TERMS}
    off = np.abs(predicted / total[test] - 1)
    out["both"] = Pass(sums, spread, float(off.max()), float(off.mean()))
    return out, tuple(int(n) for n in held)


def _pass(names, solved, errors, predicted, measured):
    off = np.abs(predicted / measured - 1)
    values = dict.fromkeys(TERMS, 0.0) | {name: float(value) for name, value in zip(names, solved)}
    known = dict.fromkeys(TERMS) | {name: float(value) for name, value in zip(names, errors) if not np.isnan(value)}
    return Pass(values, known, float(off.max()), float(off.mean()))


def _root_of_squares(errors):
    known = [error for error in errors if error is not None]
    return float(np.sqrt(np.sum(np.square(known)))) if known else None


def fit(profiles, statistic="median", one_unit_per_call=False):
    """[Fit] of the phases of `profiles`, [(name for errors, Profile)], in the order of their first.

    statistic           "median" or "minimum" of the repetitions
    one_unit_per_call   the model runs every unit in a call of its own, so what a call costs is every unit's

    Raises InvalidArgument for profiles that do not go together, with the key in which they differ, and for too few lengths.
    """
    phases = {}
    for where, profile in profiles:
        phases.setdefault(profile.phase, []).append((where, profile))
    for same in phases.values():
        _compare(same, _SAME_PHASE)
    _compare([same[0] for same in phases.values()], _SAME_JOB)
    return [_fit_phase(phase, same, statistic, one_unit_per_call) for phase, same in phases.items()]


def _compare(profiles, keys):
    (first, one), *others = profiles
    for where, other in others:
        for key in keys:
            if getattr(one, key) != getattr(other, key):
                raise InvalidArgument(f"{where}: {key}: expected {getattr(one, key)!r} as in {first}, got "
                                      f"{getattr(other, key)!r}; measure both alike", "INVALID_ARGUMENT")


def _fit_phase(phase, profiles, statistic, one_unit_per_call):
    where, profile = profiles[0]
    points = [point for _, one in profiles for point in one.points]
    if len({point.length for point in points}) < _MIN_LENGTHS:
        raise InvalidArgument(f"{where}: {len({point.length for point in points})} different lengths; a fit of three "
                              f"coefficients with lengths to test it needs at least {_MIN_LENGTHS}", "INVALID_ARGUMENT")
    passes = {"forward": [getattr(point.forward, statistic) for point in points]}
    if points[0].backward is not None:
        passes["backward"] = [getattr(point.backward, statistic) for point in points]
    fitted, held = fit_passes([point.length for point in points], [point.units for point in points], passes, one_unit_per_call)
    both = fitted["both"].coefficients
    cost = {term: both[term] for term in ("constant", "linear", "quadratic") if both[term] > 0}
    if not cost:
        raise InvalidArgument(f"{where}: seconds do not rise with the length, so units cost nothing; give longer lengths",
                              "INVALID_ARGUMENT")
    merged = dataclasses.replace(profile, points=tuple(points))
    return Fit(phase, merged, fitted, cost, both["call"], held)


def cost_yaml(cost):
    """`{linear: 2.1e-06, quadratic: 4.0e-10}`; a number that both YAML 1.1 and 1.2 read as one."""
    return "{" + ", ".join(f"{term}: {value:.4e}" for term, value in cost.items()) + "}"


def _report(one):
    profile = one.profile
    gradients = "frozen" if profile.frozen else "trained"
    lines = [f"# {one.phase}: {profile.model} ({profile.module}), {gradients}, {profile.dtype} on {profile.device}, "
             f"seconds of {profile.clock} time"]
    for name, each in one.passes.items():
        terms = [f"{term} {each.coefficients[term]:.3g} +- {each.errors[term]:.1g}" for term in TERMS
                 if each.errors[term] is not None]
        lines.append(f"#   {name}: {', '.join(terms)}; held-out error: max {each.held_out_max:.1%}, mean {each.held_out_mean:.1%}")
    longest = max(profile.points, key=lambda point: point.length)
    lines.append(f"#   held out: lengths {', '.join(map(str, one.held_out_lengths))}; activations at {longest.length}: "
                 f"{longest.activation_bytes / longest.length / longest.units:,.0f} bytes a token")
    return lines


def show(fits):
    """Prints the report of every phase, as comments, and the block for the job."""
    for one in fits:
        print("\n".join(_report(one)))
    print("phases:")
    for one in fits:
        print(f"  - name: {one.phase}\n    cost: {cost_yaml(one.cost)}")


def _document(one):
    document = {key: value for key, value in dataclasses.asdict(one).items() if key != "profile"}
    return {**document, "model": one.profile.model, "device": one.profile.device, "dtype": one.profile.dtype}


def main(argv=None):
    parser = argparse.ArgumentParser("python -m evenkeel.fit", description="Cost coefficients of a job's phases from profiles")
    parser.add_argument("profiles", nargs="+", help="files of python -m evenkeel.profile")
    parser.add_argument("--statistic", choices=("median", "minimum"), default="median", help="of the repetitions")
    parser.add_argument("--one-unit-per-call", action="store_true",
                        help="the model runs every unit in a call of its own: what a call costs is every unit's")
    parser.add_argument("--json", action="store_true", help="print a JSON document instead")
    parser.add_argument("--write", metavar="JOB", help="replace the costs of this job file; needs PyYAML")
    options = parser.parse_args(argv)
    try:
        fits = fit([(path, Profile.read(path)) for path in options.profiles], options.statistic, options.one_unit_per_call)
        if options.write:
            from evenkeel import job_costs
            job_costs.write(options.write, {one.phase: cost_yaml(one.cost) for one in fits})
    except (InvalidArgument, OSError) as error:
        print(f"evenkeel.fit: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([_document(one) for one in fits], indent=2))
    else:
        show(fits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
