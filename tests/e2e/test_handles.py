"""File handles and connections: a worker serves honest consumers while strangers take what they can, and after."""

import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import certificates
import harness
import health
import prometheus
import sockets

GRPC = ["--transport", "grpc"]


def limited(soft, hard=None):
    return ["prlimit", f"--nofile={soft}:{hard or soft}"]


def wait_until(what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
    return found


def dial(address, count):
    host, port = address.rsplit(":", 1)
    connections = []
    for _ in range(count):
        connections.append(socket.socket())
        connections[-1].settimeout(60)
        connections[-1].connect(("127.0.0.1" if host == "localhost" else host, int(port)))
    return connections


@pytest.fixture
def many_handles():
    """2,500 connections need as many handles in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 6000:
        pytest.skip("this machine's hard limit of file handles is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (6000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_flood_of_idle_connections_keeps_no_consumer_out(mixed, tmp_path, many_handles, tls):
    flags = certificates.Party(tmp_path, "both").flags() if tls else []
    worker = harness.Worker(mixed / "job.yaml", "--metrics", "127.0.0.1:0", "--probes", "127.0.0.1:0", *GRPC, *flags,
                            wrapper=limited(256))
    endpoint = f"localhost:{worker.address.rsplit(':', 1)[1]}"

    def fetch():
        return harness.fetch(endpoint, mixed / "job.yaml", "--ranks", "0-3", "--steps", 4, *GRPC, *flags).chain

    try:
        expected = fetch()
        flood = dial(worker.address, 2500)
        assert fetch() == expected, "during the flood"
        with urllib.request.urlopen(f"http://{worker.facts['probes']}/readyz", timeout=60) as answer:
            assert answer.status == 200
        refused = prometheus.scrape(worker.facts["metrics"])["evenkeel_connections_refused_total"].by("reason")
        assert refused["silent"] > 2000, refused
        for connection in flood:
            connection.close()
        assert fetch() == expected, "after the flood"
        assert any('"connections_refused"' in line for line in worker.log)
        assert len([line for line in worker.log if '"connections_refused"' in line]) < 100, "lines are few"
        wait_until(lambda: len(os.listdir(f"/proc/{worker.process.pid}/fd")) < 128)
        assert worker.process.poll() is None
    finally:
        worker.kill()


def test_connections_that_begin_and_stop_are_bounded_too(mixed, many_handles):
    """A connection that has sent HTTP/2's first bytes is gRPC's; their number is bounded."""
    worker = harness.Worker(mixed / "job.yaml", "--metrics", "127.0.0.1:0", *GRPC, wrapper=limited(256))
    try:
        flood = dial(worker.address, 600)
        for connection in flood:
            try:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            except OSError:
                pass  # it was closed
        wait_until(lambda: sum(prometheus.scrape(worker.facts["metrics"])["evenkeel_connections_refused_total"]
                               .by("reason").values()) > 400)
        # They never send their settings, so their places are free again after a while.
        run = harness.Fetch(worker.address, mixed / "job.yaml", "--ranks", "0-3", "--steps", 2, "--connect-timeout", 120,
                            *GRPC)
        assert len(run.finish().steps) == 8
    finally:
        worker.kill()


def test_the_soft_limit_of_file_handles_is_raised(mixed):
    worker = harness.Worker(mixed / "job.yaml", wrapper=limited(512, 3000))
    try:
        limits = pathlib.Path(f"/proc/{worker.process.pid}/limits").read_text()
        assert re.search(r"Max open files +3000 +3000", limits), limits
        listening = worker.logged('"listening"')
        assert listening["file_handles"] == 3000 and listening["max_sessions"] > 100
    finally:
        worker.kill()


def test_too_many_sessions_are_an_error_at_start(mixed):
    done = subprocess.run([*limited(1024), harness.binary(), "serve", "--job", str(mixed / "job.yaml"), "--max-sessions",
                           "4096"], capture_output=True, text=True, timeout=harness.DEADLINE_SECONDS)
    assert done.returncode == 2, done.stderr
    assert "may open 1024 file handles" in done.stderr and "4096 (--max-sessions)" in done.stderr


@pytest.mark.parametrize("option", ["--listen", "--metrics", "--probes"])
def test_a_port_that_is_taken_is_one_clear_error(mixed, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = harness.run("serve", "--job", mixed / "job.yaml", option, address, check=False)
    assert done.returncode == 1 and done.stdout == "", done.stderr
    assert f"cannot listen on {address}: address already in use" in done.stderr.splitlines()[-1]


def test_a_unix_socket_serves(mixed, tmp_path):
    path = tmp_path / "worker.socket"
    worker = harness.Worker(mixed / "job.yaml", *GRPC, listen=f"unix:{path}")
    try:
        assert worker.address == f"unix:{path}" and path.is_socket()
        time.sleep(1)
        assert worker.process.poll() is None
    finally:
        assert worker.terminate() == 0
    assert not path.exists()


def status_of(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_worker_whose_ucx_port_was_flooded_ends(mixed, many_handles):
    """UCX closes its listening socket for ever when a connection cannot be accepted. Its port is UCX's own: nothing
    of ours stands before it, which is why it is open on trusted networks alone."""
    worker = harness.Worker(mixed / "job.yaml", "--probes", "127.0.0.1:0", "--drain-timeout", 1, *harness.TRUSTED,
                            wrapper=limited(512))
    try:
        assert status_of(worker.facts["probes"], "/readyz") == 200
        ours = {int(address.rsplit(":", 1)[1]) for address in (worker.address, worker.facts["probes"])}
        port, = sockets.ports(worker.process.pid) - ours
        flood = dial(f"127.0.0.1:{port}", 450)
        time.sleep(2)
        assert worker.process.poll() is None, "what fits does no harm"
        for _ in range(200):
            try:
                flood += dial(f"127.0.0.1:{port}", 1)
            except OSError:
                break  # nobody listens there any more
        assert worker.process.wait(harness.DEADLINE_SECONDS) == 1
    finally:
        worker.kill()
    assert any('"unready"' in line for line in worker.log)
    assert any('"worker_failed"' in line and f"port {port} was closed" in line for line in worker.log), worker.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ucx_survives_a_lost_consumer_without_handles(mixed, number):
    """UCX asks the kernel about a network device, which takes a handle, when it begins and ends to use it; where there is
    no handle it ends the process. So it never ends to use one."""
    worker = harness.Worker(mixed / "job.yaml", *harness.TRUSTED)
    try:
        run = harness.Fetch(worker.address, mixed / "job.yaml", "--ranks", "0", "--steps", 400, "--transport", "ucx",
                            *harness.TRUSTED)
        run.wait_for_lines(3)
        pid = worker.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        run.process.send_signal(number)
        run.process.wait(harness.DEADLINE_SECONDS)
        time.sleep(5)  # sessions end a little later
        assert worker.process.poll() is None, "".join(worker.log[-20:])
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        harness.fetch(worker.address, mixed / "job.yaml", "--ranks", "0", "--steps", 3, "--transport", "ucx", *harness.TRUSTED)
    finally:
        worker.kill()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_worker_that_accepts_nothing_ends_with_an_error(mixed, tmp_path, tls):
    flags = certificates.Party(tmp_path, "both").flags() if tls else []
    worker = harness.Worker(mixed / "job.yaml", "--probes", "127.0.0.1:0", "--self-test", 1, "--drain-timeout", 1,
                            "--fault-deaf", *flags)
    try:
        assert status_of(worker.facts["probes"], "/readyz") == 200
        wait_until(lambda: any('"unready"' in line for line in worker.log))
        assert worker.process.wait(harness.DEADLINE_SECONDS) == 1
    finally:
        worker.kill()
    assert any('"worker_failed"' in line and "control plane" in line for line in worker.log)


@pytest.mark.parametrize("usage", ["", "serverAuth"])
def test_the_self_test_passes_with_every_valid_certificate(mixed, tmp_path, usage):
    party = certificates.Party(tmp_path, "worker", extended_usage=usage)
    worker = harness.Worker(mixed / "job.yaml", "--probes", "127.0.0.1:0", "--self-test", 0.1, *party.flags())
    try:
        time.sleep(3)
        assert status_of(worker.facts["probes"], "/readyz") == 200
        assert not any("self_test_failed" in line for line in worker.log), worker.log
    finally:
        worker.kill()


def test_idle_connections_silence_neither_probes_nor_metrics(mixed):
    worker = harness.Worker(mixed / "job.yaml", "--metrics", "127.0.0.1:0", "--probes", "127.0.0.1:0")
    try:
        held = [connection for name in ("metrics", "probes") for connection in dial(worker.facts[name], 200)]
        for connection in held:
            try:
                connection.sendall(b"GET /metr")
            except OSError:
                pass  # closed for a later one
        for _ in range(3):
            assert prometheus.scrape(worker.facts["metrics"])
            assert status_of(worker.facts["probes"], "/healthz") == 200
            assert status_of(worker.facts["probes"], "/readyz") == 200
        assert status_of(worker.facts["probes"], "/metrics") == 404
    finally:
        worker.kill()


def test_a_draining_worker_is_alive_and_not_ready(mixed):
    worker = harness.Worker(mixed / "job.yaml", "--probes", "127.0.0.1:0", "--fault-unit-delay-ms", 300, "--threads", 1)
    try:
        run = harness.Fetch(worker.address, mixed / "job.yaml", "--steps", 2)
        wait_until(lambda: any('"session_opened"' in line for line in worker.log))
        time.sleep(0.5)
        worker.signal(signal.SIGTERM)
        wait_until(lambda: any('"draining"' in line for line in worker.log))
        assert status_of(worker.facts["probes"], "/healthz") == 200
        assert status_of(worker.facts["probes"], "/readyz") == 503
        assert health.check(worker.address) == health.NOT_SERVING
        run.process.kill()
    finally:
        worker.kill()


def decoders_of(worker):
    """{name: [pid]} of the worker's descendants."""
    children, names = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, name, state, parent = re.match(r"(\d+) \((.*)\) (\S) (\d+)", path.read_text()).groups()
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(pid))
            names[int(pid)] = name
    found, left = {}, [worker.process.pid]
    while left:
        for pid in children.get(left.pop(), []):
            found.setdefault(names[pid], []).append(pid)
            left.append(pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_stopped_spawner_is_replaced(mixed, number):
    job = mixed / "job.yaml"
    with harness.Fleet(job, 1) as fleet:
        expected = harness.fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", 10)
    with harness.Fleet(job, 1, "--threads", 2) as fleet:
        worker = fleet.workers[0]
        harness.fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", 1)
        processes = decoders_of(worker)
        assert pathlib.Path(f"/proc/{worker.process.pid}/comm").read_text() == "evenkeel\n"
        for pid in processes["evenkeel-spawn"]:
            os.kill(pid, number)
        for pid in processes["evenkeel-decode"]:
            os.kill(pid, signal.SIGKILL)
        done = harness.fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", 10)
        assert (done.steps, done.chain) == (expected.steps, expected.chain)
        assert worker.process.poll() is None
        assert decoders_of(worker)["evenkeel-spawn"] != processes["evenkeel-spawn"]


def test_a_worker_without_decoders_ends_with_an_error(mixed):
    worker = harness.Worker(mixed / "job.yaml", "--probes", "127.0.0.1:0", "--drain-timeout", 1)
    try:
        for name in ("evenkeel-nurse", "evenkeel-spawn"):
            for pid in decoders_of(worker).get(name, []):
                os.kill(pid, signal.SIGKILL)
        assert worker.process.wait(harness.DEADLINE_SECONDS) == 1
    finally:
        worker.kill()
    assert "forks decoders" in str(worker.logged('"worker_failed"'))
