"""The Python package installs with pip from the tree into an empty environment. Slow: it builds the extension."""

import os
import subprocess

import pytest

import harness


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("EVENKEEL_SLOW") != "1", reason="builds for minutes; set EVENKEEL_SLOW=1")
def test_pip_installs_the_package_from_the_tree(mixed, tmp_path):
    environment = tmp_path / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", str(environment)], check=True)
    python = environment / "bin" / "python"
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-q",
                    str(harness.ROOT / "client" / "python")], check=True, env=clean, timeout=3000)
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        program = ("import evenkeel, evenkeel.torch; "
                   f"step = next(evenkeel.Loader('{fleet.endpoints}', rank=0, some_ranks=True, num_steps=1)); "
                   "print(evenkeel.__file__, step.digest())")
        out = subprocess.run([python, "-c", program], check=True, env=clean, cwd=tmp_path, capture_output=True,
                             text=True).stdout.split()
        expected = harness.fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0", "--steps", 1)
    assert out[0].startswith(str(environment)) and expected.steps == [f"0 0 {out[1]}"]
