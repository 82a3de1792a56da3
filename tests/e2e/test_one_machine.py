"""Consumers on the worker's machine: sealed memory for those that it can be handed to, another transport for the rest."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import harness

RANKS = ("--ranks", "0-3")
STEPS = 20
STRANGER = 65534


# Runs in a network namespace of its own: passes connections to its loopback on to the worker's socket at a path, and runs
# `command ENDPOINT rest...` there.
RELAY = """
import fcntl, socket, struct, subprocess, sys, threading
path, program, command, *rest = sys.argv[1:]
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS: up
listening = socket.create_server(("127.0.0.1", 0))
def copy(source, sink):
    while data := source.recv(1 << 16):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
def accept():
    while True:
        near, far = listening.accept()[0], socket.socket(socket.AF_UNIX)
        far.connect(path)
        threading.Thread(target=copy, args=(near, far), daemon=True).start()
        threading.Thread(target=copy, args=(far, near), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
endpoint = "127.0.0.1:%d" % listening.getsockname()[1]
sys.exit(subprocess.run([program, command, "--endpoints", endpoint, *rest]).returncode)
"""


def fetched(command, *options, user=None):
    """The digests of `evenkeel fetch --digest` and the transport that its summary names."""
    done = subprocess.run([*map(str, command), *map(str, options), *RANKS, "--steps", str(STEPS), "--digest"],
                          capture_output=True, text=True, timeout=harness.DEADLINE_SECONDS, user=user,
                          group=user, cwd="/")
    assert done.returncode == 0, done.stderr
    digests = harness.Digests(done.stdout.splitlines())
    assert len(digests.steps) == 4 * STEPS and " 0 damaged" in digests.summary, digests.summary
    return digests, digests.summary.partition(" over ")[2].split()[0], done.stderr


@pytest.fixture(scope="module")
def expected(mixed):
    """The chained digest over gRPC."""
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        digests, used, _ = fetched([harness.binary(), "fetch", "--endpoints", fleet.endpoints, "--transport", "grpc"])
    assert used == "grpc"
    return digests.chain


def test_by_default_parts_are_handed_over_in_memory(mixed, expected):
    with harness.Fleet(mixed / "job.yaml", 2) as fleet:
        digests, used, _ = fetched([harness.binary(), "fetch", "--endpoints", fleet.endpoints])
    assert used == "memory" and digests.chain == expected


def test_a_consumer_in_another_network_namespace_falls_back(mixed, tmp_path, expected):
    """As in a container of its own: it reaches the worker, and cannot see its abstract sockets."""
    namespace = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces here")
    worker = harness.Worker(mixed / "job.yaml", listen=f"unix:{tmp_path}/worker")
    try:
        begin = time.monotonic()
        digests, used, errors = fetched([*namespace, sys.executable, "-c", RELAY, tmp_path / "worker", harness.binary(), "fetch"])
        took = time.monotonic() - begin
    finally:
        worker.kill()
    assert used == "grpc" and "is on this machine, but its parts travel over grpc" in errors, errors
    assert digests.chain == expected
    assert took < 60, "it waits for nothing"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_falls_back(mixed, expected):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        programs = pathlib.Path(tempfile.gettempdir()) / f"evenkeel-stranger-{os.getpid()}"  # where others may enter
        programs.mkdir(mode=0o755)
        try:
            for name in ("evenkeel", "evenkeel-network"):
                shutil.copy(pathlib.Path(harness.binary()).with_name(name), programs / name)
            digests, used, errors = fetched([programs / "evenkeel", "fetch", "--endpoints", fleet.endpoints], user=STRANGER)
        finally:
            shutil.rmtree(programs)
    assert used == "grpc" and "the peer runs as user" in errors, errors
    assert digests.chain == expected


def test_a_worker_that_comes_again_is_used_in_memory(mixed):
    first = harness.Worker(mixed / "job.yaml")
    again = None
    try:
        expected = harness.fetch(first.address, mixed / "job.yaml", *RANKS, "--steps", 60, "--transport", "grpc")
        run = harness.Fetch(first.address, mixed / "job.yaml", *RANKS, "--steps", 60)
        run.wait_for_lines(20)
        first.signal(signal.SIGKILL)
        first.process.wait(30)
        again = harness.Worker(mixed / "job.yaml", listen=first.address)
        digests = run.finish()
        opened = [json.loads(line) for line in again.log if "session_opened" in line]
    finally:
        for worker in filter(None, (first, again)):
            worker.kill()
    assert digests.chain == expected.chain and digests.steps == expected.steps
    assert opened and opened[-1]["transport"] == "memory", opened
