"""Every fuzz target has seeds, and every folder of seeds a target: libFuzzer ends where its seeds are missing."""

import pathlib
import re
import subprocess
import sys

import sources

ROOT = pathlib.Path(sources.ROOT)


def targets():
    names = set()
    for path in ROOT.glob("tests/**/CMakeLists.txt"):
        text = path.read_text()
        for variable, items in re.findall(r"foreach\((\w+) IN ITEMS ([^)]*)\)", text):
            for name in re.findall(rf"evenkeel_fuzz\((\w*)\$\{{{variable}\}}", text):
                names |= {name + item for item in items.split()}
        names |= set(re.findall(r"evenkeel_fuzz\((\w+)\s", text))
    return names


def test_every_fuzz_target_has_reproducible_seeds(tmp_path):
    made = []
    for run in ("first", "second"):
        subprocess.run([sys.executable, ROOT / "tests" / "fuzz_seeds.py", tmp_path / run], check=True)
        files = {path.relative_to(tmp_path / run): path.read_bytes() for path in (tmp_path / run).rglob("*") if path.is_file()}
        made.append(files)
    assert made[0] == made[1]
    assert {str(path.parent) for path in made[0]} == targets()
