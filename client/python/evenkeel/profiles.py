"""Profiles: what a module of a model costs at several lengths, as `evenkeel.profile` measures it and `evenkeel.fit` reads it.

A profile is a JSON document; docs/costs.md lists its keys. This file needs neither torch nor numpy.
"""

import dataclasses
import json
import math
import typing

from evenkeel.errors import InvalidArgument

__all__ = ["Point", "Profile", "Seconds"]

_FORMAT, _VERSION = "evenkeel profile", 1
_CLOCKS = ("wall", "processor")


@dataclasses.dataclass(frozen=True)
class Seconds:
    """Of one pass, over the repetitions. `spread` is the interquartile range."""

    median: float
    minimum: float
    spread: float


@dataclasses.dataclass(frozen=True)
class Point:
    """One call of the module with `units` units of `length` each. `backward` is None where no gradient is needed."""

    length: int
    units: int
    forward: Seconds
    backward: typing.Optional[Seconds]
    activation_bytes: int  # saved for the backward pass, parameters and buffers left out


@dataclasses.dataclass(frozen=True)
class Profile:
    """`clock`: "wall", or "processor": the processor time of all threads of the process. `window`: the length of which every
    unit is made, such as the patches of a frame or a tile; None if a unit is one piece. `tensor_parallel`: accelerators that
    share the module."""

    phase: str
    model: str
    module: str
    dtype: str
    device: str
    torch: str
    clock: str
    threads: int
    tensor_parallel: int
    frozen: bool
    input_gradients: bool
    window: typing.Optional[int]
    warm_up: int
    repetitions: int
    points: tuple

    def to_json(self):
        """Text of the document, ending with a newline."""
        document = {"format": _FORMAT, "version": _VERSION, "unit": "seconds", **dataclasses.asdict(self)}
        points = document.pop("points")
        lines = ",\n".join("    " + json.dumps(point) for point in points)
        return json.dumps(document, indent=2)[:-2] + f',\n  "points": [\n{lines}\n  ]\n}}\n'

    @staticmethod
    def from_json(text, where="profile"):
        """Raises `InvalidArgument` with the place in the document for what is not a profile."""
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"{where}: is not JSON: {error}", "INVALID_ARGUMENT") from None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise InvalidArgument(f'{where}: is not a profile: "format" must be "{_FORMAT}"; make one with python -m '
                                  "evenkeel.profile", "INVALID_ARGUMENT")
        for key, expected in (("version", _VERSION), ("unit", "seconds")):
            if document.get(key) != expected:
                raise InvalidArgument(f"{where}: {key}: expected {expected!r}, got {document.get(key)!r}; measure the profile "
                                      "again with this release", "INVALID_ARGUMENT")
        rest = {key: value for key, value in document.items() if key not in ("format", "version", "unit")}
        profile = _made(Profile, rest, where)
        points = tuple(_point(value, f"{where}: points[{i}]") for i, value in enumerate(profile.points))
        _check(profile, points, where)
        return dataclasses.replace(profile, points=points)

    @staticmethod
    def read(path):
        """`from_json` of a file; OSError if it cannot be read."""
        with open(path, encoding="utf-8") as file:
            return Profile.from_json(file.read(), str(path))


def _made(kind, values, where):
    """An instance of the dataclass from exactly its fields, each of the type that it is declared with."""
    if not isinstance(values, dict):
        raise InvalidArgument(f"{where}: expected an object, got {values!r}", "INVALID_ARGUMENT")
    types = typing.get_type_hints(kind)
    for problem, keys in (("is unknown", values.keys() - types.keys()), ("is missing", types.keys() - values.keys())):
        if keys:
            raise InvalidArgument(f"{where}: key '{min(keys)}' {problem}; it has {', '.join(types)}", "INVALID_ARGUMENT")
    return kind(**{name: _typed(values[name], types[name], f"{where}: {name}") for name in types})


_ACCEPTED = {str: (str,), bool: (bool,), int: (int,), float: (int, float), tuple: (list,), typing.Optional[int]: (int, type(None)),
             Seconds: (dict,), typing.Optional[Seconds]: (dict, type(None))}


def _typed(value, kind, where):
    accepted = _ACCEPTED[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        names = " or ".join("null" if one is type(None) else one.__name__ for one in accepted)
        raise InvalidArgument(f"{where}: expected {names}, got {value!r}", "INVALID_ARGUMENT")
    if isinstance(value, dict):
        return _made(Seconds, value, where)
    if isinstance(value, (int, float)) and (value < 0 or not math.isfinite(value)):
        raise InvalidArgument(f"{where}: must be a number of at least 0, got {value!r}", "INVALID_ARGUMENT")
    return value


def _point(value, where):
    point = _made(Point, value, where)
    if point.length < 1 or point.units < 1:
        raise InvalidArgument(f"{where}: length and units must be at least 1", "INVALID_ARGUMENT")
    for name, seconds in (("forward", point.forward), ("backward", point.backward)):
        if seconds is not None and min(seconds.median, seconds.minimum) <= 0:
            raise InvalidArgument(f"{where}: {name}: took no time; the clock is too coarse for this length", "INVALID_ARGUMENT")
    return point


def _check(profile, points, where):
    if profile.clock not in _CLOCKS:
        raise InvalidArgument(f"{where}: clock: expected one of {', '.join(_CLOCKS)}, got {profile.clock!r}", "INVALID_ARGUMENT")
    has_backward = not profile.frozen or profile.input_gradients
    for i, point in enumerate(points):
        if (point.backward is not None) != has_backward:
            raise InvalidArgument(f"{where}: points[{i}]: backward: " +
                                  ("is missing" if has_backward else "the module is frozen and passes no gradients on"),
                                  "INVALID_ARGUMENT")
