"""Who may connect: mutual TLS, loopback without certificates, and a data plane that is RDMA or nothing."""

import os
import pathlib
import shutil

import pytest

import harness
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
    worker = harness.Worker(mixed / "job.yaml", *ours.flags(), listen="0.0.0.0:0")
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
    done = fetch(form.format(port(secured)), *ours.flags(), "--transport", transport, check=True)
    assert done.stdout.splitlines()[:5] == plain_digests
    assert "INSECURE" not in done.stderr and f"over {transport} " in done.stdout


def test_python_takes_certificates_too(secured, parties):
    ours, _ = parties
    files = {"tls_certificate": str(ours.certificate), "tls_key": str(ours.key), "tls_ca": str(ours.ca)}
    with evenkeel.Loader(f"localhost:{port(secured)}", rank=0, num_steps=1, **files) as loader:
        assert next(loader).index == 0


def test_a_worker_with_certificates_says_nothing_of_insecure(secured):
    assert not any("INSECURE" in line for line in secured.log)


def test_a_consumer_without_certificates_is_refused(secured):
    done = fetch(f"localhost:{port(secured)}")
    assert done.returncode == 4 and done.stdout == ""
    assert "--tls-cert" in done.stderr, done.stderr


def test_a_certificate_of_a_foreign_authority_is_refused_by_the_worker(secured, parties):
    ours, foreign = parties
    done = fetch(f"localhost:{port(secured)}", *foreign.flags(ca=ours.ca))
    assert done.returncode == 4 and done.stdout == ""
    assert "--tls-ca" in done.stderr, done.stderr


def test_a_worker_of_a_foreign_authority_is_refused_by_the_consumer(secured, parties):
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


def test_files_that_no_connection_could_be_made_with_fail_start_up_and_are_named(mixed, parties):
    ours, foreign = parties
    files = ["--tls-cert", ours.certificate, "--tls-key", foreign.key, "--tls-ca", ours.ca]
    for command in (["fetch", "--endpoints", "localhost:1", "--steps", 1], ["serve", "--job", mixed / "job.yaml"]):
        done = harness.run(*command, *files, check=False)
        assert done.returncode == 2 and done.stdout == ""
        assert f"{foreign.key}: this private key does not belong to the certificate {ours.certificate}" in done.stderr
    with pytest.raises(evenkeel.InvalidArgument, match="does not belong to the certificate"):
        evenkeel.Loader("localhost:1", rank=0, tls_certificate=str(ours.certificate), tls_key=str(foreign.key),
                        tls_ca=str(ours.ca)).connect()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "127.evil.example:0"])
def test_without_certificates_only_loopback_may_be_served(mixed, listen):
    done = harness.run("serve", "--job", mixed / "job.yaml", "--listen", listen, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert "loopback" in done.stderr and "certificate" in done.stderr


def test_without_certificates_only_loopback_may_be_dialled():
    done = harness.run("fetch", "--endpoints", "192.0.2.1:7000", "--steps", 1, check=False)
    assert done.returncode == 1 and "loopback" in done.stderr


def test_without_certificates_both_sides_print_insecure(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        done = fetch(fleet.endpoints, check=True)
        assert any("INSECURE" in line for line in fleet.workers[0].log)
        assert done.stderr.count("INSECURE") == 1


def listening_addresses(process):
    """Hexadecimal addresses (/proc/net/tcp) at which a process listens, without ports."""
    folder = pathlib.Path(f"/proc/{process.pid}/fd")
    inodes = {os.readlink(entry).partition("socket:[")[2].rstrip("]") for entry in folder.iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found


def test_without_certificates_nothing_listens_beyond_loopback(mixed):
    with harness.Fleet(mixed / "job.yaml", 1, "--metrics", "127.0.0.1:0") as fleet:
        fetch(fleet.endpoints, "--transport", "ucx", check=True)
        found = listening_addresses(fleet.workers[0].process)
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert found and found <= loopback, found


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
