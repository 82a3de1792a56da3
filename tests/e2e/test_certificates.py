"""scripts/certificates makes what mutual TLS needs: a worker and a consumer work with its files and no others."""

import shutil
import subprocess

import pytest

import harness

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
SCRIPT = harness.ROOT / "scripts" / "certificates"


def certificates(*arguments):
    return subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def flags(folder, role):
    return ["--tls-cert", folder / f"{role}.pem", "--tls-key", folder / f"{role}.key", "--tls-ca", folder / "ca.pem"]


def fetch(worker, folder, role="trainer", check=True):
    return harness.run("fetch", "--endpoints", worker.address, "--steps", 1, "--connect-timeout", 5,
                       *flags(folder, role), check=check)


def test_worker_and_consumer_work_before_and_after_a_renewal(mixed, tmp_path):
    made = certificates(tmp_path / "tls", "127.0.0.1", "workers.training")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "tls"
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir()), "keys are private"
    worker = harness.Worker(mixed / "job.yaml", *flags(folder, "worker"))
    try:
        fetch(worker, folder)
        before = (folder / "worker.pem").read_bytes(), (folder / "ca.pem").read_bytes()
        assert certificates("--renew", folder, "127.0.0.1").returncode == 0
        assert (folder / "worker.pem").read_bytes() != before[0] and (folder / "ca.pem").read_bytes() == before[1]
        fetch(worker, folder)
        other = certificates(tmp_path / "other", "127.0.0.1")
        assert other.returncode == 0, other.stderr
        refused = fetch(worker, tmp_path / "other", check=False)
        assert refused.returncode == 4, refused.stderr
    finally:
        worker.kill()


@pytest.mark.parametrize("arguments,reason", [
    ([], "a folder and at least one name"), (["{folder}"], "a folder and at least one name"),
    (["{folder}", "10.0.0.1:7000"], "without its port"), (["{folder}", "host:7000"], "without its port"),
    (["{folder}", "a,DNS:b"], "neither a host name nor an IP address"), (["--new", "x", "y"], "unknown option --new"),
    (["--renew", "{folder}", "a"], "no ca.pem and ca.key")])
def test_wrong_arguments_are_named_and_write_nothing(tmp_path, arguments, reason):
    folder = tmp_path / "tls"
    done = certificates(*[one.format(folder=folder) for one in arguments])
    assert done.returncode == 2 and reason in done.stderr, done.stderr
    assert not folder.exists() or not any(folder.iterdir())


def test_an_authority_is_never_replaced_by_accident(tmp_path):
    assert certificates(tmp_path / "tls", "a").returncode == 0
    before = (tmp_path / "tls" / "ca.pem").read_bytes()
    again = certificates(tmp_path / "tls", "a")
    assert again.returncode == 2 and "--renew" in again.stderr
    assert (tmp_path / "tls" / "ca.pem").read_bytes() == before
