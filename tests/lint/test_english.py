"""Our English: every source file opens with a sentence, test names are short, and words of our old dialect stay out."""

import re

import pytest

from sources import ROOMS, cpp_files, files, read

# Never right in our prose, and what to write instead.
WORDS = {
    "beside": "next to, with, in addition to",
    "dearest": "heaviest",
    "homeless": "without a home rank",
    "how-manieth": "the number of",
    "anew": "again",
    "at last": "finally",
    "all the same": "equally, nevertheless",
    "but for": "except",
    "of no account": "ignored",
    "is no number": "is not a number",
    "is none of": "is unknown; expected one of",
    "who gets none": "returns nullopt",
    "dealt out": "assigned",
}
WORD = re.compile(r"\b(?:" + "|".join(re.escape(word) for word in WORDS) + r")\b", re.IGNORECASE)
MAX_NAME = 59
COMMENT = re.compile(r"//[^\n]*")
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def prose_files():
    return [path for path in files() if path.endswith((".md", ".cc", ".h", ".inc", ".py"))
            and not path.startswith("tests/") and path != "CHANGELOG.md"]


def prose(path):
    """(line number, text) of what people read: all of a document, the comments and strings of code."""
    for number, line in enumerate(read(path).splitlines(), 1):
        if path.endswith((".md", ".py")):
            yield number, line
        else:
            yield from ((number, text) for text in COMMENT.findall(line) + STRING.findall(line))


@pytest.mark.parametrize("path", prose_files())
def test_words_of_the_old_dialect_do_not_occur(path):
    found = [f"{path}:{number}: '{word}': write {WORDS[word.lower()]}"
             for number, text in prose(path) for word in WORD.findall(text)]
    assert not found, "\n".join(found)


def test_every_source_file_opens_with_a_sentence():
    sources = [path for room in ROOMS + ["bench", "client/python"] for path in cpp_files(room) if path.endswith(".cc")]
    missing = [path for path in sources if not re.match(r"// (?:\S+ ){2,}", read(path))]
    assert len(sources) > 250 and not missing, "say in the first line what it is:\n" + "\n".join(missing)


def test_names_of_tests_are_short():
    names = [(path, name) for path in files() if path.startswith("tests/") for name in re.findall(
        r"^TEST(?:_F|_P)?\(\w+,\s*(\w+)\)|^def (test_\w+)\(", read(path), re.MULTILINE)]
    assert len(names) > 1000
    assert not [(path, max(name)) for path, name in names if len(max(name)) > MAX_NAME], f"at most {MAX_NAME} characters"


def test_what_the_words_match():
    assert WORD.search("a tag that is no number") and WORD.search("At last: nothing")
    assert not WORD.search("besides, the last number is not a number; but forget it")
