"""The documents say what the code does: every key of the job, and the vectors of the digests."""

import re

import pytest

from sources import read

MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\s*(?:repeated |optional )?\w+ (\w+) = \d+;", re.MULTILINE)


def fields():
    return [(message, name) for message, body in MESSAGE.findall(read("proto/job.proto"))
            for name in FIELD.findall(body)]


def test_the_schema_is_found():
    assert ("JobFile", "datasets") in fields() and ("Batch", "llm_tokens") in fields()
    assert ("Cost", "mask_factor") in fields() and len(fields()) > 60


@pytest.mark.parametrize("message,name", fields())
def test_every_key_of_the_job_is_documented(message, name):
    rows = [line for line in read("docs/job.md").splitlines() if line.startswith("|")]
    assert any(f"`{name}`" in row.split("|")[1] for row in rows), f"{message}.{name} has no row in docs/job.md"


def test_the_digests_vectors_are_the_tested_ones():
    document = read("docs/digests.md")
    tests = read("tests/core/job_digest_test.cc")
    texts = re.findall(r'R"\((evenkeel \w+\n.*?)\)"', tests, re.DOTALL)
    vectors = re.findall(r'\)\.Hex\(\), "([0-9a-f]{32})"', tests + read("tests/core/digest_test.cc"))
    assert len(texts) == 2 and len(vectors) >= 4
    for text in texts:
        assert f"```\n{text}```" in document
    for vector in vectors:
        assert vector in document


def test_the_parts_vector_is_the_tested_one():
    vectors = re.findall(r'"([0-9a-f]{32})"', read("tests/core/part_test.cc"))
    assert vectors and all(vector in read("docs/part-format.md") for vector in vectors)
