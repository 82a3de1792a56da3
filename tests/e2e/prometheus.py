"""Reads the Prometheus text format strictly, as `promtool check metrics` would: for tests of /metrics."""

import re
import urllib.request

_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')

_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count"),
             "summary": ("", "_sum", "_count")}


class Family:
    def __init__(self, name, kind, help_text):
        self.name, self.kind, self.help = name, kind, help_text
        self.samples = {}  # (suffix, frozenset of (label, value)) -> number

    def value(self, suffix="", **labels):
        return self.samples[suffix, frozenset(labels.items())]

    def by(self, label, suffix=""):
        """{value of the label: number} over all samples with the suffix."""
        out = {}
        for (own, labels), number in self.samples.items():
            if own == suffix:
                out[dict(labels).get(label)] = out.get(dict(labels).get(label), 0) + number
        return out

    def label_names(self):
        return {name for _, labels in self.samples for name, _ in labels if name != "le"}


def parse(text):
    """{family: Family}; AssertionError where the text is not in order."""
    assert text.endswith("\n")
    families, helps, current = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            assert name not in helps, f"two helps: {line}"
            helps[name] = help_text
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in families and kind in _SUFFIXES, line
            current = families[name] = Family(name, kind, helps[name])
            assert name.endswith("_total") == (kind == "counter"), f"counters end in _total: {line}"
        elif line:
            _add(current, line)
    for family in families.values():
        if family.kind == "histogram":
            _check_histogram(family)
    return families


def _add(family, line):
    match = _SAMPLE.match(line)
    assert match and family is not None, f"not a sample: {line}"
    name, labels, value = match.groups()
    assert name.startswith(family.name), f"a sample outside of its family: {line}"
    suffix = name[len(family.name):]
    assert suffix in _SUFFIXES[family.kind], line
    pairs = _LABEL.findall(labels or "")
    assert ",".join(f'{key}="{text}"' for key, text in pairs) == (labels or ""), f"labels: {line}"
    key = suffix, frozenset(pairs)
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = float(value)
    assert family.kind in ("gauge", "summary") or family.samples[key] >= 0, line


def _check_histogram(family):
    series = {}
    for (suffix, labels), number in family.samples.items():
        rest = frozenset(pair for pair in labels if pair[0] != "le")
        series.setdefault(rest, {})[suffix, dict(labels).get("le")] = number
    for labels, values in series.items():
        buckets = sorted((float(le), number) for (suffix, le), number in values.items() if suffix == "_bucket")
        numbers = [number for _, number in buckets]
        assert numbers == sorted(numbers), f"{family.name}{set(labels)}: buckets are not cumulative"
        assert buckets[-1][0] == float("inf") and numbers[-1] == values["_count", None], f"{family.name}{set(labels)}"
        assert ("_sum", None) in values


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        return parse(reply.read().decode())
