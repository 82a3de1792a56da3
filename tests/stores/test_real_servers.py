"""Real servers of objects: the same index and stream from each as from files, clear errors, and the cache on a disk.

Not part of `scripts/test`, since the servers take minutes to build: `scripts/test --stores`. A server that is not
installed is skipped with the reason.
"""

import io
import json
import os
import subprocess
import tarfile
import time

import pytest

import harness
import media
import prometheus
import servers
import test_formats
from object_server import ACCESS_KEY, SECRET

SHARDS = 3
SAMPLES = 12
STEPS = 3
LINES = 400_000
RANGE, ALL = "train/data-{000..002}.tar", "train/data-*.tar"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of shards, and what a job over them delivers: digest of the index and steps."""
    folder = tmp_path_factory.mktemp("files")
    media.write_mixed_shards(folder, "data", SHARDS, SAMPLES, seed=5)
    job = job_of(tmp_path_factory.mktemp("local"), f"{folder}/data-{{000..002}}.tar")
    return folder, (digest_of(index_of(job, {})), steps_of(job, {}))


def started(make, folder):
    try:
        return make(folder)
    except servers.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=servers.SERVERS, ids=lambda server: server.name)
def server(request, files, tmp_path_factory):
    with started(request.param, tmp_path_factory.mktemp("server")) as made:
        made.put_folder(files[0], "train")
        yield made


@pytest.fixture(scope="module")
def minio(files, tmp_path_factory):
    with started(servers.MinIO, tmp_path_factory.mktemp("minio")) as made:
        made.put_folder(files[0], "train")
        made.allow_everyone()
        yield made


def job_of(folder, *shards):
    return test_formats.write_job(folder, f"shards: {json.dumps(shards)}")


def index_of(job, env, check=True):
    return harness.run("index", "--job", job, "--json", env=env, check=check)


def digest_of(done):
    return json.loads(done.stdout)["digest"]


def fetched(workers, job, env):
    endpoints = ",".join(worker.address for worker in workers)
    return harness.fetch(endpoints, job, "--ranks", "0-1", "--steps", STEPS, env=env).steps


def steps_of(job, env, *options):
    with harness.Fleet(job, 1, *options, env=env) as fleet:
        return fetched(fleet.workers, job, env)


@pytest.mark.parametrize("shards", [RANGE, ALL], ids=["range", "listing"])
def test_every_server_delivers_the_stream_of_the_files(tmp_path, files, server, shards):
    job = job_of(tmp_path, server.address(shards))
    assert digest_of(index_of(job, server.environment())) == files[1][0]
    assert steps_of(job, server.environment()) == files[1][1]
    assert steps_of(job, server.environment(), "--fetch-ahead", 0) == files[1][1]


def test_a_public_bucket_is_read_over_plain_http(tmp_path, files, minio):
    job = job_of(tmp_path, f"http://{minio.host}/{servers.BUCKET}/{RANGE}")
    assert (digest_of(index_of(job, {})), steps_of(job, {})) == files[1]


@pytest.mark.parametrize("shards", [RANGE, ALL], ids=["range", "listing"])
def test_wrong_credentials_are_a_clear_error(tmp_path, server, shards):
    if server.name == "fake-gcs-server":
        pytest.skip("this emulator checks no credentials")
    done = index_of(job_of(tmp_path, server.address(shards)), server.environment(secret="another-secret"), check=False)
    assert done.returncode != 0
    assert "403" in done.stderr and "credentials" in done.stderr, done.stderr
    assert f"{server.scheme}://photos" in done.stderr, done.stderr
    assert SECRET not in done.stderr and "another-secret" not in done.stderr


def test_what_is_not_there_is_named(tmp_path, server):
    def error(shards):
        done = index_of(job_of(tmp_path, shards), server.environment(), check=False)
        assert done.returncode != 0
        return done.stderr

    missing = error(server.address("train/data-{000..003}.tar"))
    assert "data-003.tar" in missing and "404" in missing, missing
    assert "stands for no object" in error(server.address("train/none-*.tar"))
    assert "404" in error(f"{server.scheme}://other-bucket/data-000.tar")


def rewritten(data):
    """The same samples, written at another time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, \
            tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as new:
        for member in old:
            member.mtime += 1
            new.addfile(member, old.extractfile(member))
    assert len(out.getvalue()) == len(data)
    return out.getvalue()


def test_an_object_that_was_replaced_names_both_etags(tmp_path, files, server):
    data = (files[0] / "data-000.tar").read_bytes()
    server.put("changing/data-000.tar", data)
    job, env = job_of(tmp_path, server.address("changing/data-*.tar")), server.environment()
    index_of(job, env)
    server.put("changing/data-000.tar", rewritten(data))
    done = harness.run("plan", "--job", job, "--step", 0, env=env, check=False)
    assert done.returncode != 0
    assert "has the ETag" in done.stderr and "it had" in done.stderr and "data-000.tar" in done.stderr, done.stderr
    assert json.loads(index_of(job, env).stdout)["shards"]["read"] == 1
    assert harness.run("plan", "--job", job, "--step", 0, env=env).returncode == 0


class Counted:
    """A worker with a cache whose metrics are read."""

    def __init__(self, job, env, folder):
        self.worker = harness.Worker(job, "--metrics", "127.0.0.1:0", "--cache-dir", folder, env=env)

    def __enter__(self):
        self.at_start = self.requests()
        return self

    def __exit__(self, *_):
        self.worker.kill()

    def metrics(self):
        time.sleep(1.5)  # what stores did is read every second
        return prometheus.scrape(self.worker.facts["metrics"])

    def requests(self):
        return sum(self.metrics()["evenkeel_store_requests_total"].by("outcome").values())

    def new_requests(self):
        """Requests of the steps alone, without those that look up the shards when the worker starts."""
        return self.requests() - self.at_start

    def reads(self):
        return self.metrics()["evenkeel_cache_reads_total"].by("outcome")


@pytest.fixture
def cached(tmp_path, minio):
    """A job over MinIO with its index, the environment, and an empty folder for a cache."""
    job = job_of(tmp_path, minio.address(RANGE))
    index_of(job, minio.environment())
    return job, minio.environment(), tmp_path / "cache"


def cache_files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 0]


def test_a_second_run_reads_the_cache_and_not_the_store(files, cached):
    job, env, folder = cached
    with Counted(job, env, folder) as first:
        assert fetched([first.worker], job, env) == files[1][1]
        requests = first.new_requests()
    with Counted(job, env, folder) as second:
        assert fetched([second.worker], job, env) == files[1][1]
        assert second.new_requests() <= requests / 20 and requests > 0
        assert second.reads()["hit"] > 0 and second.reads()["damaged"] == 0


def test_damage_in_the_cache_changes_no_byte(files, cached):
    job, env, folder = cached
    with Counted(job, env, folder) as first:
        fetched([first.worker], job, env)
    damaged = cache_files(folder)
    assert damaged
    for number, path in enumerate(damaged):
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            data[len(data) // 2] ^= 0x40
        elif number % 3 == 1:
            del data[len(data) // 2:]
        else:
            data[:] = damaged[number - 1].read_bytes()  # whole, but another range's
        path.write_bytes(data)
    with Counted(job, env, folder) as second:
        assert fetched([second.worker], job, env) == files[1][1]
        assert second.reads()["damaged"] > 0 and second.new_requests() > 0
    with Counted(job, env, folder) as third:
        assert fetched([third.worker], job, env) == files[1][1]
        assert third.reads()["damaged"] == 0


def test_two_workers_share_a_cache(files, cached):
    job, env, folder = cached
    with Counted(job, env, folder) as first, Counted(job, env, folder) as second:
        workers = [first.worker, second.worker]
        assert fetched(workers, job, env) == files[1][1]
        requests = first.new_requests() + second.new_requests()
        # Again, from one of them, so that it needs what the other has read.
        assert fetched([second.worker], job, env) == files[1][1]
        assert first.new_requests() + second.new_requests() - requests <= requests / 20


def test_a_cache_on_a_full_disk_changes_no_byte(files, cached):
    job, env, folder = cached
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
                           capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        with Counted(job, env, folder) as full:
            assert fetched([full.worker], job, env) == files[1][1]
            assert full.metrics()["evenkeel_cache_unwritten_total"].value() > 0
        # What is there is whole: a write that failed left nothing that counts.
        with Counted(job, env, folder) as second:
            assert fetched([second.worker], job, env) == files[1][1]
            assert second.reads()["damaged"] == 0
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_profile_reads_a_bucket(tmp_path, files, minio, monkeypatch):
    """Keys of a file for one profile, those of a program for the other."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    keys = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET, "Version": 1}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    place = f"endpoint_url = http://{minio.host}\nregion = us-east-1\n"
    (tmp_path / "config").write_text(f"[profile keys]\n{place}[profile program]\n{place}"
                                     f"credential_process = cat '{tmp_path}/keys.json'\n")
    (tmp_path / "credentials").write_text(f"[keys]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET}\n")
    for profile in ("keys", "program"):
        env = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": profile,
               "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
        (tmp_path / profile).mkdir()
        job = job_of(tmp_path / profile, minio.address(ALL))
        assert (digest_of(index_of(job, env)), steps_of(job, env)) == files[1]


def test_an_index_in_a_bucket_gives_the_stream_of_the_files(tmp_path, files, server):
    if server.name == "fake-gcs-server":
        pytest.skip("this emulator has no uploads of Google's XML interface")
    job = job_of(tmp_path, server.address(RANGE))
    job.write_text(job.read_text().replace("index: index", f"index: {server.address('index')}"))
    env = {**server.environment(), "XDG_CACHE_HOME": str(tmp_path / "maker")}
    assert digest_of(index_of(job, env)) == files[1][0]
    assert steps_of(job, {**env, "XDG_CACHE_HOME": str(tmp_path / "worker")}) == files[1][1]


def test_a_large_index_is_written_in_parts(tmp_path, server):
    if server.name == "fake-gcs-server":
        pytest.skip("this emulator has no uploads of Google's XML interface")
    (tmp_path / "lines.txt").write_text("".join(f"line {i}\n" for i in range(LINES)))
    job = job_of(tmp_path, f"{tmp_path}/lines.txt")
    job.write_text(job.read_text().replace("index: index", f"index: {server.address('large')}"))
    env = {**server.environment(), "XDG_CACHE_HOME": str(tmp_path / "maker")}
    digest = digest_of(index_of(job, env))
    sizes = [file.stat().st_size for file in (tmp_path / "maker").rglob("*") if file.is_file()]
    assert max(sizes) > 8 << 20, "more than one part"
    again = {**env, "XDG_CACHE_HOME": str(tmp_path / "other")}
    found = json.loads(index_of(job, again).stdout)
    assert (found["digest"], found["shards"]["unchanged"]) == (digest, 1)
