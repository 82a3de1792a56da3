"""Nothing that reaches a batch may call a transcendental function of the C library.

glibc's differ in the last bit with and without FMA, so that two CPU models would make two streams. sqrt, floor and
nearbyint are exact by IEEE 754 and are fine; preprocess/audio/exact_math has sin, cos, exp and log of our own.
"""

import re

import pytest

from sources import code_only, cpp_files, read

NAMES = ["sin", "cos", "tan", "sincos", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh",
         "atanh", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "hypot", "erf",
         "erfc", "tgamma", "lgamma", "polar"]
# Not after a letter, a member access or another namespace than std.
CALL = re.compile(
    r"(?<![\w.>:])(?:::)?(?:std::|__builtin_)?(" + "|".join(NAMES) + r")[fl]?\s*\(")

# (file, function) -> why it cannot reach a batch.
ALLOWED = {}


def calls(text):
    return [(match.group(1), text.count("\n", 0, match.start()) + 1) for match in CALL.finditer(code_only(text))]


@pytest.mark.parametrize("room", ["core", "dataset", "preprocess", "reorder", "stream"])
def test_no_transcendental_functions_of_the_c_library(room):
    found = [f"{path}:{line}: {name}" for path in cpp_files(room) for name, line in calls(read(path))
             if (path, name) not in ALLOWED]
    assert not found, "\n".join(found)


def test_every_exception_is_still_needed():
    for path, name in ALLOWED:
        assert name in [called for called, _ in calls(read(path))], f"{path} no longer calls {name}"


def test_the_search_finds_calls_and_nothing_else():
    assert calls("double y = std::exp(x);") == [("exp", 1)]
    assert calls("a\n = 2*log10f (x)") == [("log10", 2)]
    assert calls("::pow(a, b) + __builtin_cos(c)") == [("pow", 1), ("cos", 1)]
    assert calls("x = (sin(a))") == [("sin", 1)]
    assert calls("// exp(x)\nconst char* s = \"log(x)\"; /* cos(\n1) */ char c = 'x';") == []
    assert calls("r.cos(1); p->sin(2); metrics::log(3); ExactLog(x); catalog(x); logger(x); std::sqrt(2)") == []
    assert calls("int n = 1'000; y = exp(n); char q = '\\''; z = log(n);") == [("exp", 1), ("log", 1)]
    assert calls('R"(exp(1))" + tan(2)') == [("tan", 1)]
