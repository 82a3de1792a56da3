"""The wheels of `scripts/wheel` install and run in bare Debian systems that have nothing but Python.

Slow, and needs root and the package archive: runs with EVENKEEL_SLOW=1 on the wheels that lie in build/wheels.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import harness

WHEELS = harness.ROOT / "build" / "wheels"
SYSTEMS = {"bookworm": "cp311", "trixie": "cp313"}  # the Python of each
READS_ONE_STEP = """
import evenkeel
step = next(evenkeel.Loader({source!r}, rank=0, some_ranks=True, num_steps=1))
print(step.digest())
"""  # source: endpoints, or a job, for which the wheel's own program is started

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    os.environ.get("EVENKEEL_SLOW") != "1" or os.geteuid() != 0 or not shutil.which("debootstrap"),
    reason="installs Debian systems for minutes; set EVENKEEL_SLOW=1 as root with debootstrap")]


def wheel(name, tag):
    found = sorted(WHEELS.glob(f"{name}-*-{tag}-*.whl"))
    if not found:
        pytest.skip(f"no wheel {name} of {tag} in build/wheels; make it with scripts/wheel --python PYTHON")
    return found[-1]


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request, tmp_path_factory):
    """(root, tag): a minimal Debian with Python; EVENKEEL_SYSTEMS names a folder to keep it in."""
    kept = os.environ.get("EVENKEEL_SYSTEMS")
    root = pathlib.Path(kept) / request.param if kept else tmp_path_factory.mktemp(request.param)
    if not (root / "usr" / "bin" / "python3").exists():
        subprocess.run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv", request.param,
                        str(root), "http://deb.debian.org/debian"], check=True, stdout=subprocess.DEVNULL)
    yield root, SYSTEMS[request.param]
    if not kept:
        shutil.rmtree(root, ignore_errors=True)


def inside(root, *command):
    """The arguments that run `command` in `root`, with a /proc and an environment of its own."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc", "chroot", str(root),
            "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *map(str, command)]


def install(root, tag, *wheels):
    """Installs the wheels and NumPy, without an index; returns the environment's path in `root`."""
    shared = root / "wheels"
    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir()
    for path in wheels:
        shutil.copy(path, shared)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
                    "--python-version", tag.removeprefix("cp"), "--implementation", "cp", "-d", str(shared), "numpy"],
                   check=True)
    subprocess.run(inside(root, "rm", "-rf", "/venv"), check=True)
    subprocess.run(inside(root, "python3", "-m", "venv", "/venv"), check=True)
    names = [path.name.split("-")[0] for path in wheels]
    subprocess.run(inside(root, "/venv/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links",
                          "/wheels", *names), check=True)
    return "/venv"


def put(root, folder):
    """Copies a job's folder and the goldens that it names to the same paths in `root`."""
    for path in (folder, harness.GOLDEN):
        target = root / str(path).lstrip("/")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(path, target)


def test_the_whole_wheel_makes_the_same_stream(system, mixed):
    root, tag = system
    environment = install(root, tag, wheel("evenkeel", tag))
    put(root, mixed)
    program = f"{environment}/bin/evenkeel"
    version = subprocess.run(inside(root, program, "--version"), check=True, capture_output=True, text=True).stdout
    assert version == harness.run("--version").stdout
    # The index of the host is put aside, so that the wheel's own decoders measure everything again.
    shutil.rmtree(root / str(mixed).lstrip("/") / "index")
    subprocess.run(inside(root, program, "index", "--job", mixed / "job.yaml"), check=True)
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        expected = harness.fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0-3", "--steps", 6)
    serve = subprocess.Popen(inside(root, program, "serve", "--job", mixed / "job.yaml", "--listen", "127.0.0.1:0"),
                             stdout=subprocess.PIPE, text=True)
    try:
        endpoint = json.loads(serve.stdout.readline())["address"]
        served = harness.fetch(endpoint, mixed / "job.yaml", "--ranks", "0-3", "--steps", 6)
        assert served.steps == expected.steps
        for source in (endpoint, str(mixed / "job.yaml")):
            program = READS_ONE_STEP.format(source=source)
            out = subprocess.run(inside(root, f"{environment}/bin/python", "-c", program), check=True,
                                 capture_output=True, text=True).stdout.split()
            assert f"0 0 {out[-1]}" in expected.steps, source
    finally:
        serve.kill()
        serve.wait(30)


def test_the_client_wheel_reads_from_a_worker_elsewhere(system, mixed):
    root, tag = system
    environment = install(root, tag, wheel("evenkeel_client", tag))
    assert not (root / environment.lstrip("/") / "bin" / "evenkeel").exists()
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        program = READS_ONE_STEP.format(source=fleet.endpoints)
        out = subprocess.run(inside(root, f"{environment}/bin/python", "-c", program), check=True,
                             capture_output=True, text=True).stdout.split()
        expected = harness.fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0", "--steps", 1)
    assert expected.steps == [f"0 0 {out[0]}"]
