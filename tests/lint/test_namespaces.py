"""One namespace per room: two rooms may use one word, and no qualified name is defined twice."""

import collections
import re

import pytest

from sources import ROOMS, code_only, cpp_files, files, read

OPENED = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
TYPE = re.compile(r"^(?:class|struct|union|enum|enum class)\s+(?:\w+\([^)]*\)\s+)?(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{", re.MULTILINE)
# Of other projects, declared here; and the messages.
FOREIGN = re.compile(r"grpc\b|evenkeel::pb$")


def namespace_of(path):
    if path.startswith("client/python/"):
        return "evenkeel::python"
    room = path.split("/")[0]
    return "evenkeel" if room == "core" else f"evenkeel::{room}"


def opened(text):
    """The namespaces that a file opens, except nested ones."""
    depth, found = 0, []
    for line in code_only(text).split("\n"):
        match = re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{(.*)", line)
        if match:
            if depth == 0:
                found.append(match.group(1) or "")
            depth += not match.group(2).rstrip().endswith("}")
        elif re.match(r'\}\s*""', line):  # the comment that clang-format demands after a namespace
            depth -= 1
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_the_namespace_of_its_name(room):
    wrong = [f"{path}: namespace {name}" for path in cpp_files(room) for name in opened(read(path))
             if name and name != namespace_of(path) and not FOREIGN.match(name)]
    assert not wrong, "\n".join(wrong)


def types(path):
    """namespace::Type of what a header defines at namespace scope."""
    text, spaces = code_only(read(path)), []
    for part in re.split(r"(?m)^(?=namespace )", text):
        match = OPENED.match(part)
        spaces.append(match.group(1) if match else "")
        for name in TYPE.findall(part):
            yield f"{spaces[-1]}::{name}"


def test_no_type_is_defined_in_two_headers():
    where = collections.defaultdict(set)
    for path in files():
        if path.endswith(".h"):
            for name in types(path):
                where[name].add(path)
    assert len(where) > 300
    twice = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(where.items()) if len(paths) > 1]
    assert not twice, "\n".join(twice)


def test_the_searches_find_what_they_look_for():
    text = "namespace evenkeel {\n\nstruct A {\n};\nnamespace {\nint x;\n}  // namespace\n}  // namespace evenkeel\n"
    assert opened(text + "namespace evenkeel::pb {\nclass B;\n}  // namespace evenkeel::pb\n") == ["evenkeel", "evenkeel::pb"]
    assert opened("namespace a {\nnamespace portable {\n}  // namespace portable\n}  // namespace a\n") == ["a"]
    assert TYPE.findall("struct A {\nenum class B : uint8_t { kX };\nclass C;\nclass D final : public E {\n") == ["A", "B", "D"]
