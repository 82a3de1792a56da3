"""What UCX does to the process that it is loaded into: nothing where it is not used, and no signal handler where it is."""

import json
import resource
import signal
import subprocess
import sys

import pytest

import harness

pytest.importorskip("evenkeel")

# Prints after each stage the addresses of all signal handlers, as sigaction knows them, and whether UCX is loaded.
WATCHED = """
import ctypes, faulthandler, json, signal, sys
faulthandler.enable()
signal.signal(signal.SIGHUP, lambda *_: None)
libc = ctypes.CDLL(None)
def handlers():
    found = []
    for number in range(1, signal.NSIG):
        action = ctypes.create_string_buffer(256)
        known = libc.sigaction(number, None, action) == 0
        found.append(int.from_bytes(action.raw[:8], "little") if known else None)
    return found
def stage(name):
    print(json.dumps([name, handlers(), "libucs" in open("/proc/self/maps").read()]), flush=True)
import numpy
stage("begin")
import evenkeel
stage("imported")
options = dict(transport="ucx", trusted_data_network=True) if sys.argv[2] == "ucx" else {}
loader = evenkeel.Loader(sys.argv[1], rank=0, some_ranks=True, **options)
next(loader)
stage("used")
loader.close()
stage("closed")
"""


@pytest.mark.parametrize("transport", ["ucx", "grpc"])
def test_a_trainer_keeps_its_signal_handlers(mixed, transport):
    with harness.Fleet(mixed / "job.yaml", 1, *harness.TRUSTED) as fleet:
        done = subprocess.run([sys.executable, "-c", WATCHED, fleet.endpoints, transport], text=True, capture_output=True,
                              timeout=harness.DEADLINE_SECONDS)
    stages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in stages] == ["begin", "imported", "used", "closed"], done.stderr
    for name, handlers, _ in stages:
        assert handlers == stages[0][1], name
    assert [loaded for _, _, loaded in stages] == [False, False, transport == "ucx", transport == "ucx"]


def caught(pid):
    """Signals for which a process has handlers."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("SigCgt:"):
            mask = int(line.split()[1], 16)
            return {number for number in range(1, 65) if mask >> (number - 1) & 1}
    raise AssertionError("no SigCgt")


@pytest.fixture
def hangup_ends():
    """Under nohup, whose children ignore SIGHUP, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("options", [(), harness.TRUSTED])
def test_a_worker_has_no_handlers_but_its_own(mixed, hangup_ends, options):
    """SIGHUP ends it, as it ends any program that has no use for it, and does not make UCX log."""
    with harness.Fleet(mixed / "job.yaml", 1, *options) as fleet:
        worker = fleet.workers[0]
        assert ("ucx" in worker.facts["transports"]) == bool(options)
        assert ("libucs" in open(f"/proc/{worker.process.pid}/maps").read()) == bool(options)
        handled = caught(worker.process.pid)
        faults = {signal.SIGHUP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
        assert not handled & faults, handled
        worker.signal(signal.SIGHUP)
        assert worker.process.wait(60) == -signal.SIGHUP
        assert all(line.startswith("{") for line in worker.log), worker.log


def with_handles(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_too_few_file_handles_are_an_error_and_no_abort(mixed):
    """Whatever the limit: it works, or it ends with a message."""
    refused = 0
    with harness.Fleet(mixed / "job.yaml", 1, *harness.TRUSTED) as fleet:
        for count in (96, 72, 64, 56, 48, 40):
            done = subprocess.run([harness.binary(), "fetch", "--endpoints", fleet.endpoints, "--steps", "1", "--ranks", "0-3",
                                   "--transport", "ucx", "--connect-timeout", "20", "--step-timeout", "20",
                                   *harness.TRUSTED], preexec_fn=with_handles(count), text=True, capture_output=True,
                                  timeout=harness.DEADLINE_SECONDS)
            assert done.returncode >= 0, (count, done.returncode, done.stderr)
            if done.returncode != 0:
                refused += 1
                assert "file handles" in done.stderr and "ulimit -n" in done.stderr, (count, done.stderr)
    assert refused >= 3, "the limits reach what is tested"


def test_a_trainer_without_enough_file_handles_gets_an_error(mixed):
    trainer = ("import evenkeel, sys\n"
               "try: next(evenkeel.Loader(sys.argv[1], rank=0, some_ranks=True, transport='ucx', trusted_data_network=True,\n"
               "                          step_timeout=20))\n"
               "except evenkeel.Error as error: print(error)\n")
    with harness.Fleet(mixed / "job.yaml", 1, *harness.TRUSTED) as fleet:
        done = subprocess.run([sys.executable, "-c", trainer, fleet.endpoints], preexec_fn=with_handles(48), text=True,
                              capture_output=True, timeout=harness.DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "file handles" in done.stdout and "ulimit -n" in done.stdout
