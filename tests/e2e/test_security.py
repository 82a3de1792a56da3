"""Who may connect: mutual TLS, loopback without certificates, and a data plane that is RDMA or nothing."""

import pathlib
import shutil
import time

import pytest

import harness
import prometheus
import sockets
from certificates import Party

evenkeel = pytest.importorskip("evenkeel")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return Party(folder, "ours"), Party(folder, "foreign")


@pytest.fixture(scope="module")
def secured(mixed, parties):
    """A worker with certificates; its facts."""
    ours, _ = parties
    worker = harness.Worker(mixed / "job.yaml", *ours.flags(), *harness.TRUSTED, listen="0.0.0.0:0")
    yield worker
    worker.kill()


def port(worker):
    return worker.address.rsplit(":", 1)[1]


def fetch(endpoints, *options, check=False):
    return harness.run("fetch", "--endpoints", endpoints, "--steps", 2, "--ranks", "0-1", "--digest",
                       "--connect-timeout", 2, "--step-timeout", 20, *options, check=check)


@pytest.fixture(scope="module")
def plain_digests(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        return fetch(fleet.endpoints, check=True).stdout.splitlines()[:5]


@pytest.mark.parametrize("transport", ["ucx", "grpc"])
@pytest.mark.parametrize("form", ["localhost:{}", "dns:///localhost:{}"])
def test_the_right_certificates_give_the_same_stream(secured, parties, plain_digests, transport, form):
    ours, _ = parties
    done = fetch(form.format(port(secured)), *ours.flags(), "--transport", transport, *harness.TRUSTED, check=True)
    assert done.stdout.splitlines()[:5] == plain_digests
    assert "INSECURE" not in done.stderr and f"over {transport} " in done.stdout


def test_python_takes_certificates_too(secured, parties):
    ours, _ = parties
    files = {"tls_certificate": str(ours.certificate), "tls_key": str(ours.key), "tls_ca": str(ours.ca)}
    with harness.alone(f"localhost:{port(secured)}", rank=0, num_steps=1, **files) as loader:
        assert next(loader).index == 0


def test_a_worker_with_certificates_says_nothing_of_insecure(secured):
    assert not any("INSECURE" in line for line in secured.log)


def test_a_consumer_without_certificates_is_refused(secured):
    done = fetch(f"localhost:{port(secured)}")
    assert done.returncode == 4 and done.stdout == ""
    assert "--tls-cert" in done.stderr, done.stderr


def test_a_worker_refuses_a_foreign_authority(secured, parties):
    ours, foreign = parties
    done = fetch(f"localhost:{port(secured)}", *foreign.flags(ca=ours.ca))
    assert done.returncode == 4 and done.stdout == ""
    assert "--tls-ca" in done.stderr, done.stderr


def test_a_consumer_refuses_a_foreign_authority(secured, parties):
    ours, foreign = parties
    done = fetch(f"localhost:{port(secured)}", *ours.flags(ca=foreign.ca))
    assert done.returncode == 4 and done.stdout == ""
    assert "--tls-ca" in done.stderr, done.stderr


def test_a_name_that_the_certificate_does_not_have_is_refused(secured, parties):
    ours, _ = parties
    done = fetch(f"127.0.0.1:{port(secured)}", *ours.flags())
    assert done.returncode == 4 and "for this name" in done.stderr


def test_one_file_of_three_is_a_usage_error(mixed, parties):
    ours, _ = parties
    for command in (["fetch", "--endpoints", "localhost:1", "--steps", 1], ["serve", "--job", mixed / "job.yaml"]):
        done = harness.run(*command, "--tls-ca", ours.ca, check=False)
        assert done.returncode == 2 and "certificate, a key and a CA" in done.stderr


def test_unusable_certificate_files_fail_at_start_and_are_named(mixed, parties):
    ours, foreign = parties
    files = ["--tls-cert", ours.certificate, "--tls-key", foreign.key, "--tls-ca", ours.ca]
    for command in (["fetch", "--endpoints", "localhost:1", "--steps", 1], ["serve", "--job", mixed / "job.yaml"]):
        done = harness.run(*command, *files, check=False)
        assert done.returncode == 2 and done.stdout == ""
        assert f"{foreign.key}: this private key does not belong to the certificate {ours.certificate}" in done.stderr
    with pytest.raises(evenkeel.InvalidArgument, match="does not belong to the certificate"):
        evenkeel.Loader("localhost:1", rank=0, tls_certificate=str(ours.certificate), tls_key=str(foreign.key),
                        tls_ca=str(ours.ca)).connect()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    assert condition()


def test_certificate_files_that_become_empty_harm_nobody(mixed, tmp_path):
    ours = Party(tmp_path, "ours")
    worker = harness.Worker(mixed / "job.yaml", *ours.flags(), "--metrics", "127.0.0.1:0", listen="0.0.0.0:0")
    endpoint = f"localhost:{port(worker)}"
    consumer = harness.Fetch(endpoint, mixed / "job.yaml", *ours.flags(), "--transport", "grpc", "--steps", 100000)
    try:
        def metric(name):
            return prometheus.scrape(worker.facts["metrics"])[name].value()
        assert consumer.wait_for_lines(2) >= 2
        wait_for(lambda: "evenkeel_certificate_expires_in_seconds" in prometheus.scrape(worker.facts["metrics"]))
        assert 86400 < metric("evenkeel_certificate_expires_in_seconds") <= 2 * 86400
        good = {path: path.read_bytes() for path in (ours.certificate, ours.key, ours.ca)}
        for path in good:
            path.write_bytes(b"")
        wait_for(lambda: metric("evenkeel_certificate_files_refused") == 1)
        time.sleep(3)
        assert worker.process.poll() is None and consumer.process.poll() is None
        seen = len(consumer.lines)
        assert consumer.wait_for_lines(seen + 1) > seen
        assert sum('"certificates_refused"' in line for line in worker.log) == 1
        # A consumer with good files of its own gets in: the worker serves on with what it read before.
        (tmp_path / "copy").mkdir()
        copies = [tmp_path / "copy" / path.name for path in good]
        for copy, text in zip(copies, good.values()):
            copy.write_bytes(text)
        flags = ["--tls-cert", copies[0], "--tls-key", copies[1], "--tls-ca", copies[2]]
        fetch(endpoint, *flags, "--transport", "grpc", check=True)
        Party(tmp_path, "ours")  # the same paths, replaced one after the other
        wait_for(lambda: metric("evenkeel_certificate_replacements_total") == 1)
        wait_for(lambda: metric("evenkeel_certificate_files_refused") == 0)
        wait_for(lambda: fetch(endpoint, *ours.flags(), "--transport", "grpc").returncode == 0)
        assert fetch(endpoint, *flags, "--transport", "grpc").returncode == 4
    finally:
        consumer.process.kill()
        worker.kill()


def test_a_refused_consumer_is_shown_its_certificates_dates(secured, parties):
    ours, foreign = parties
    done = fetch(f"localhost:{port(secured)}", *ours.flags(ca=foreign.ca))
    assert done.returncode == 4
    assert f"{ours.certificate} (CN = ours) from " in done.stderr and " until " in done.stderr, done.stderr
    assert "expired" in done.stderr


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "127.evil.example:0"])
def test_without_certificates_only_loopback_may_be_served(mixed, listen):
    done = harness.run("serve", "--job", mixed / "job.yaml", "--listen", listen, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert "loopback" in done.stderr and "certificate" in done.stderr


def test_without_certificates_only_loopback_may_be_dialled():
    done = harness.run("fetch", "--endpoints", "192.0.2.1:7000", "--steps", 1, check=False)
    assert done.returncode == 1 and "loopback" in done.stderr


def test_without_certificates_both_sides_print_insecure(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        done = fetch(fleet.endpoints, check=True)
        assert any("INSECURE" in line for line in fleet.workers[0].log)
        assert done.stderr.count("INSECURE") == 1


@pytest.mark.skipif(len(list(pathlib.Path("/sys/class/net").iterdir())) < 2, reason="this machine has loopback alone")
def test_over_ucx_a_consumer_listens_only_where_its_worker_is(mixed, secured, parties):
    """The worker is on this machine, so the consumer needs no other interface."""
    ours, _ = parties
    run = harness.Fetch(f"localhost:{port(secured)}", mixed / "job.yaml", "--ranks", "0", "--steps", 200, "--transport", "ucx",
                        *harness.TRUSTED, *ours.flags())
    assert run.wait_for_lines(5) >= 5
    found = {address for address, _ in sockets.listening(run.process.pid)}
    assert found == {"0100007F"}, found
    assert run.finish().steps


def has_rdma():
    return any(pathlib.Path("/sys/class/infiniband").glob("*"))


@pytest.mark.skipif(has_rdma(), reason="this machine has RDMA")
def test_require_rdma_fails_start_up_where_there_is_none(mixed):
    for command in (["serve", "--job", mixed / "job.yaml"], ["fetch", "--endpoints", "localhost:1", "--steps", 1],
                    ["fetch", "--endpoints", "localhost:1", "--steps", 1, "--transport", "grpc"]):
        done = harness.run(*command, "--require-rdma", check=False)
        assert done.returncode == 3 and done.stdout == "", done.stderr
        assert "require_rdma" in done.stderr
    grpc = harness.run("serve", "--job", mixed / "job.yaml", "--transport", "grpc", "--require-rdma", check=False)
    assert grpc.returncode == 2 and grpc.stdout == "", grpc.stderr
    assert "--transport grpc is TCP, which --require-rdma excludes" in grpc.stderr
    with pytest.raises(evenkeel.Mismatch, match="require_rdma"):
        evenkeel.Loader("localhost:1", rank=0, require_rdma=True).connect()
