"""Two virtual machines with Soft-RoCE for the whole session. Without QEMU or Debian's packages everything is skipped;
scripts/test counts that as NOT RUN."""

import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402
import machine  # noqa: E402
import scene  # noqa: E402


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """The job's file on this machine; the machines have its folder as /job."""
    if not os.path.exists(scene.harness.binary()):
        pytest.skip(f"{scene.harness.binary()} is not built (set EVENKEEL_BIN)")
    if (missing := machine.missing()) is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("job")
    return scene.write(folder)


@pytest.fixture(scope="session")
def machines(job, tmp_path_factory):
    """Two machines on one cable: workers run in the first, the consumer in the second."""
    folder = tmp_path_factory.mktemp("vm")
    try:
        ramdisk, processor = machine.prepare(scene.harness.binary(), job.parent, folder / "ramdisk")
    except image.Unavailable as error:
        pytest.skip(str(error))
    # Only what is known to be absent is skipped: a machine that does not start is a failure.
    started = []
    try:
        for node in scene.NODES:
            started.append(machine.Machine(folder, node, ramdisk, processor))
        for one in started:
            one.wait()
        yield started
    finally:
        for one in started:
            one.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node1(machines):
    yield machines[0]
    _end_processes(machines[0])


@pytest.fixture
def node2(machines):
    yield machines[1]
    _end_processes(machines[1])


def _end_processes(one):
    """Of a test that failed half way."""
    one.run("killall -CONT evenkeel; killall -KILL evenkeel; while killall -0 evenkeel 2>/dev/null; do sleep 1; done",
            check=False)
