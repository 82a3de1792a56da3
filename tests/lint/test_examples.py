"""Every example in a header's comments is compiled: it has the form that tests/examples reads, and is listed there."""

import importlib.util
import os
import re

import pytest

from sources import ROOMS, ROOT, cpp_files, read

INCLUDED = re.compile(r'^#include "examples/(\S+)\.inc"$', re.MULTILINE)
# A line of an indented block that is C++ and no table, diagram or grammar.
CODE = re.compile(r"^\s*//\s{2,}(?:EVENKEEL_\w+\(.*|(?:if|for|while) \(.*|return \S+;|\S.*[)}];)\s*(?://.*)?$")


def extract():
    spec = importlib.util.spec_from_file_location("extract", os.path.join(ROOT, "tests/examples/extract.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headers():
    return [path for room in ROOMS for path in cpp_files(room) if path.endswith(".h")]


def test_every_example_is_compiled():
    compiled = [name for room in cpp_files("tests/examples") for name in INCLUDED.findall(read(room))]
    assert len(compiled) == len(set(compiled))
    assert sorted(compiled) == sorted(path for path in headers() if extract().examples(read(path)))


def test_every_room_with_examples_is_built():
    built = re.findall(r"^evenkeel_examples\((\w+)", read("tests/examples/CMakeLists.txt"), re.MULTILINE)
    assert sorted(built) == sorted(os.path.basename(path)[:-3] for path in cpp_files("tests/examples"))


def test_code_in_a_headers_comment_is_an_example():
    found = []
    for path in headers():
        text = read(path).splitlines()
        marked = {first + i for first, code in extract().examples("\n".join(text)) for i in range(len(code))}
        found += [f"{path}:{number}: {line.strip()}" for number, line in enumerate(text, 1)
                  if CODE.match(line) and number not in marked]
    assert not found, "write `// Example:` and indent by four spaces:\n" + "\n".join(found)


def test_an_example_ends_where_its_lines_are_not_indented():
    text = "// What.\n//\n// Example:\n//     A a;\n//     if (a)\n//       b();\n//\n//     no;\n  // Example:\n  //     c();\nint d;\n"
    assert extract().examples(text) == [(4, ["A a;", "if (a)", "  b();"]), (10, ["c();"])]
    assert extract().as_cpp("a.h", text).splitlines()[:3] == ["{", '#line 4 "a.h"', "A a;"]


def test_an_example_without_lines_is_refused():
    with pytest.raises(ValueError, match="line 1"):
        extract().examples("// Example:\n//   A a;\n")


def test_a_header_without_examples_has_none():
    assert extract().examples("// An example: none.\nint a;\n") == []
