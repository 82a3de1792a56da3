"""The documents say what the code does: every key of the job, and the vectors of the digests."""

import re

import pytest

from sources import files, read

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


def test_every_documented_key_is_one_of_the_job():
    known = {name for _, name in fields()}
    tables = re.split(r"^#+ ", read("docs/job.md"), flags=re.MULTILINE)
    keys = [key for table in tables if re.search(r"^\| key ", table, re.MULTILINE)
            for row in re.findall(r"^\|([^|]*`[^|]*)\|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)]
    assert len(keys) > 60 and not set(keys) - known, set(keys) - known


def test_the_limits_of_the_documents_are_those_of_the_code():
    """`max_image_bytes` | 64 MiB | 1 TiB: the default in core/job.h, the highest in core/job_resolver.cc."""
    def value(text):
        text = text.replace(",", "").replace("ull", "").replace("'", "").strip()
        number, _, unit = text.partition(" ")
        if unit in ("KiB", "MiB", "GiB", "TiB"):
            return int(number) << 10 * (1 + ["KiB", "MiB", "GiB", "TiB"].index(unit))
        base, power = re.fullmatch(r"(\d+)(?:(?:\^| << )(\d+))?", text).groups()
        return int(base) ** int(power) if "^" in text else int(base) << int(power or 0)

    struct = re.search(r"struct Limits \{(.*?)\};", read("core/job.h"), re.DOTALL).group(1)
    defaults = dict(re.findall(r"(max_\w+) = ([^;]+);", struct))
    highest = dict(re.findall(r'Limit\("(max_\w+)", in\.\w+\(\), ([^,]+),', read("core/job_resolver.cc")))
    rows = re.findall(r"^\| `(max_\w+)` \| ([^|]+) \| ([^|]+) \|", read("docs/job.md").split("## `limits`")[1], re.MULTILINE)
    assert {name for name, _, _ in rows} == set(defaults) == set(highest)
    for name, default, most in rows:
        assert value(default) == value(defaults[name]), name
        assert value(most) == (1 << 40 if highest[name] == "kBytes" else value(highest[name])), name


def test_exactly_the_existing_metrics_are_documented():
    code = read("telemetry/metrics.cc")
    made = {name: kind.lower() for kind, name in re.findall(
        r'(Counter|Gauge)s\(\s*\*registry,\s*"(\w+)"', code)}
    made |= dict.fromkeys(re.findall(r'BuildHistogram\(\)\s*\.Name\("(\w+)"\)', code), "histogram")
    rows = dict(re.findall(r"^\| `(evenkeel_\w+)` \| (\w+) \|", read("docs/metrics.md"), re.MULTILINE))
    assert len(made) > 20 and rows == made
    used = {name for path in files() if path.startswith("docs/") and path.endswith(".md")
            for name in re.findall(r"\bevenkeel_[a-z_]+_(?:total|seconds|bytes|ratio|info)\b", read(path))}
    assert used <= set(made), used - set(made)


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


def test_the_first_page_shows_the_example_as_it_is():
    page = read("docs/getting-started.md")
    for name in ("pack.py", "job.yaml", "train.py"):
        assert f"# {name}\n{read(f'examples/qwen2_vl/{name}')}```" in page, name
