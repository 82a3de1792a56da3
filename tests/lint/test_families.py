"""A family touches its own file and one list: no other source names its function, and no build file its file.

Its test is found by itself, too. With sanitizers several of these tests are one translation unit (evenkeel_bundle), so
what they define must have different names."""

import collections
import re

import pytest

from sources import code_only, cpp_files, files, read

REGISTRY = "preprocess/families/registry.inc"
LINE = re.compile(r'^EVENKEEL_FAMILY\((kVision|kAudio), "(\w+)", "(\w*)", (Make\w+), (kBoth|kTorchvision|kRepository)((?:, "[\w-]+")*)\)$',
                  re.MULTILINE)
# Reads the sizes of a model's towers, and nothing of its preprocessing.
SIZES = {"cli/model_config.cc"}
# siglip.cc makes PaliGemma of a file that names no processor's class.
MAKES_ANOTHER = {"MakePaliGemma": {"preprocess/families/siglip.cc"}}


def makers():
    return sorted({line[3] for line in LINE.findall(read(REGISTRY))})


def model_types():
    """(type of config.json, function) of the registry's lines."""
    return [(name, line[3]) for line in LINE.findall(read(REGISTRY)) for name in re.findall(r'"([\w-]+)"', line[5])]


def files_with(pattern):
    return {path for room in ("preprocess", "core", "dataset", "stream", "isolation", "server", "cli")
            for path in cpp_files(room) if re.search(pattern, read(path))}


def own_file(maker):
    own = {path for path in files_with(rf"\bMadeFamily {maker}\(")}
    assert len(own) == 1 and min(own).startswith("preprocess/families/")
    return own


def test_every_line_of_the_registry_is_a_family():
    lines = [line for line in read(REGISTRY).splitlines() if line and not line.startswith("//")]
    assert len(lines) == len(LINE.findall(read(REGISTRY))) >= 39
    assert len({line[1:3] for line in LINE.findall(read(REGISTRY))}) == len(lines), "a class twice"


@pytest.mark.parametrize("maker", makers())
def test_a_family_is_made_in_one_file_and_named_in_one_list(maker):
    assert files_with(rf"\b{maker}\b") - own_file(maker) == MAKES_ANOTHER.get(maker, set())


@pytest.mark.parametrize("name,maker", model_types())
def test_a_model_type_is_in_the_registry_and_its_own_file(name, maker):
    assert files_with(f'"{name}"') - SIZES <= own_file(maker)
    assert re.search(rf"`{name}`", read("docs/preprocess.md"))


def test_a_model_type_selects_one_family():
    names = [name for name, _ in model_types()]
    assert len(names) >= 19 and len(set(names)) == len(names)


@pytest.mark.parametrize("path", [path for path in files() if re.fullmatch(r"preprocess/families/\w+\.cc", path)])
def test_the_build_finds_a_family_by_itself(path):
    name = re.escape(path.rsplit("/", 1)[1])
    assert not re.search(rf"\b{name}", read("preprocess/CMakeLists.txt"))


@pytest.mark.parametrize("path", [path for path in cpp_files("tests/preprocess/families") if path.endswith("_test.cc")])
def test_the_build_finds_a_family_s_test_by_itself(path):
    assert path.rsplit("/", 1)[1] not in read("tests/preprocess/CMakeLists.txt")


DEFINITION = re.compile(
    r"^(?:(?:class|struct|enum class) (\w+)\b|using (\w+) =|(?!TEST|using|return|namespace|class|struct)[A-Za-z][\w:<>,*& ]*[*&> ](\w+)(?:\[\])?(?:\(| = |;))",
    re.MULTILINE)


def definitions(text):
    """What a test defines at namespace scope, whose contents are not indented."""
    return {"".join(names) for names in DEFINITION.findall(code_only(text))}


def test_names_of_family_tests_do_not_clash():
    where = collections.defaultdict(list)
    for path in cpp_files("tests/preprocess"):
        if re.fullmatch(r"tests/preprocess/(\w+\.h|families/(\w+\.h|\w+_test\.cc))", path):
            for name in definitions(read(path)):
                where[name].append(path)
    assert len(where) > 30
    twice = {name: paths for name, paths in where.items()
             if len(paths) > 1 and any(path.endswith("_test.cc") for path in paths)}
    assert not twice, "with sanitizers these are one translation unit: " + str(twice)


def test_what_a_definition_is():
    text = """struct A {
  int x = 1;
};
using B = int;
using testing::I;
const char* const kC[] = {"x"};
Bytes D(const std::string& name) { return E(name); }
int f = 2;
TEST(G, H) {
"""
    assert definitions(text) == {"A", "B", "kC", "D", "f"}
