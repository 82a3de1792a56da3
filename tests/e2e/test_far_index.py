"""An index in a bucket: the same stream as from a folder, copies of it on the machines that use it, and clear errors."""

import concurrent.futures
import json
import shutil

import pytest

import harness
import media
import test_formats
from object_server import ObjectServer, environment

ADDRESS = "s3://indices/photos"
STEPS = 3


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Shards, and what a job over them delivers with an index in a folder."""
    folder = tmp_path_factory.mktemp("local")
    media.write_mixed_shards(folder, "data", 2, 12, seed=5)
    job = test_formats.write_job(folder, f'shards: ["{folder}/data-{{000..001}}.tar"]')
    digest = json.loads(harness.run("index", "--job", job, "--json").stdout)["digest"]
    with harness.Fleet(job, 1) as fleet:
        return folder, digest, harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", STEPS).steps


class Site:
    """A bucket for indices, and the machines of a user, each with a home folder of its own."""

    def __init__(self, folder, server, data):
        self.folder, self.server, self.data = folder, server, data
        self.bucket = folder / "objects" / "indices"
        self.job = self.job_of("job", "data-{000..001}.tar")

    def job_of(self, name, shards, dataset="data", index=ADDRESS):
        (self.folder / name).mkdir()
        job = test_formats.write_job(self.folder / name, f'shards: ["{self.data}/{shards}"]')
        job.write_text(job.read_text().replace("index: index", f"index: {index}").replace("name: data", f"name: {dataset}"))
        return job

    def env(self, machine):
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        return environment(AWS_ENDPOINT_URL=self.server.url, HOME=str(home), XDG_CACHE_HOME="")

    def index(self, machine, *options, job=None, check=True):
        return harness.run("index", "--job", job or self.job, "--json", *options, env=self.env(machine), check=check)

    def copy(self, machine):
        return next((self.folder / machine / ".cache" / "evenkeel" / "index").iterdir())

    def puts(self):
        return [request.path for request in self.server.requests if request.method == "PUT"]


@pytest.fixture
def site(tmp_path, local):
    (tmp_path / "objects" / "indices").mkdir(parents=True)
    with ObjectServer(tmp_path / "objects") as server:
        yield Site(tmp_path, server, local[0])


def test_workers_read_an_index_in_a_bucket(site, local):
    made = json.loads(site.index("maker", "--verify").stdout)
    assert (made["digest"], made["undeliverable"]) == (local[1], [])
    assert site.puts()[-1] == "/indices/photos/current" and len(set(site.puts())) == len(site.puts())
    env, cache = site.env("node"), site.folder / "cache"
    with harness.Fleet(site.job, 2, "--cache-dir", cache, env=env) as fleet:
        assert harness.fetch(fleet.endpoints, site.job, "--ranks", "0-1", "--steps", STEPS, env=env).steps == local[2]
    assert (next((cache / "index").iterdir()) / "current").read_bytes() == (site.bucket / "photos" / "current").read_bytes()
    for command in (["plan", "--step", 1], ["show", "--step", 1], ["size", "--step-seconds", 1]):
        harness.run(command[0], "--job", site.job, *command[1:], env=env)


def test_an_embedded_worker_makes_the_index(site, monkeypatch):
    for name, value in site.env("node").items():
        monkeypatch.setenv(name, value)
    with harness.alone(str(site.job), rank=0) as loader:
        assert next(iter(loader)).num_samples == 6
    assert site.puts()[-1] == "/indices/photos/current"


def test_an_unchanged_index_is_neither_made_nor_written_again(site):
    site.index("maker")
    site.server.requests.clear()
    site.server.read_only = True
    for machine in ("maker", "another"):
        assert json.loads(site.index(machine).stdout)["shards"]["unchanged"] == 2
    assert not site.puts()


def test_a_second_reader_copies_the_catalogue_alone(site):
    site.index("maker")
    site.server.requests.clear()
    harness.run("plan", "--job", site.job, "--step", 0, env=site.env("maker"))
    assert {request.path for request in site.server.requests} == {"/indices/photos/current"}


def test_a_copy_that_was_interrupted_is_completed(site, local):
    site.index("maker")
    env = site.env("node")
    harness.run("plan", "--job", site.job, "--step", 0, env=env)
    copy = site.copy("node")
    (copy / "current").unlink()
    shutil.rmtree(copy / "facts")
    (copy / "facts").mkdir()
    (copy / "facts" / "half.tmp-abcdef").write_bytes(b"half")
    with harness.Fleet(site.job, 1, env=env) as fleet:
        assert harness.fetch(fleet.endpoints, site.job, "--ranks", "0-1", "--steps", STEPS, env=env).steps == local[2]


def test_processes_of_a_machine_copy_at_once(site):
    site.index("maker")
    env = site.env("node")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda step: harness.run("plan", "--job", site.job, "--step", step, env=env), range(4)))
    copied = sorted(path.relative_to(site.copy("node")) for path in site.copy("node").rglob("*") if path.is_file())
    there = sorted(path.relative_to(site.bucket / "photos") for path in (site.bucket / "photos").rglob("*") if path.is_file())
    assert copied == there


def test_jobs_share_a_folder_of_a_bucket(site):
    site.index("maker")
    other = site.job_of("other", "data-000.tar", dataset="other")
    site.index("another", job=other)
    for job in (site.job, other):
        harness.run("plan", "--job", job, "--step", 0, env=site.env("node"))


def error_of(site, job=None, machine="node"):
    done = harness.run("plan", "--job", job or site.job, "--step", 0, env=site.env(machine), check=False)
    assert done.returncode != 0
    return done


def test_a_bucket_without_an_index_says_so(site):
    done = error_of(site)
    assert done.returncode == 6 and "s3://indices/photos/current" in done.stderr and "run 'evenkeel index'" in done.stderr
    away = site.job_of("away", "data-000.tar", index="s3://away/photos")
    done = error_of(site, away)
    assert done.returncode != 6 and "NoSuchBucket" in done.stderr
    assert "NoSuchBucket" in site.index("maker", job=away, check=False).stderr


def test_a_consumer_without_the_index_compares_the_layout_alone(site, local):
    site.index("maker")
    env = site.env("node")
    with harness.Fleet(site.job, 1, env=env) as fleet:
        (site.bucket / "photos" / "current").unlink()
        done = harness.run("fetch", "--endpoints", fleet.endpoints, "--job", site.job, "--ranks", "0-1", "--steps", STEPS, env=env)
    assert f"no index at {ADDRESS}" in done.stderr


def test_an_old_copy_does_not_outlive_its_index(site):
    site.index("maker")
    shutil.rmtree(site.bucket / "photos")
    assert error_of(site, machine="maker").returncode == 6


def test_a_bucket_that_may_not_be_written_keeps_the_work(site, local):
    site.server.read_only = True
    done = site.index("maker", check=False)
    assert done.returncode == 1 and "AccessDenied" in done.stderr and "to write" in done.stderr
    site.server.read_only = False
    again = json.loads(site.index("maker").stdout)
    assert (again["shards"]["read"], again["digest"]) == (0, local[1])
    assert error_free(site)


def error_free(site):
    return harness.run("plan", "--job", site.job, "--step", 0, env=site.env("node")).returncode == 0


def test_damage_in_the_bucket_is_named(site):
    site.index("maker")
    repair = "remove s3://indices/photos/current and run 'evenkeel index' again"
    column, current = next((site.bucket / "photos" / "lengths").iterdir()), site.bucket / "photos" / "current"
    good = column.read_bytes()
    column.write_bytes(good[:-1] + b"?")
    error = error_of(site).stderr
    assert f"s3://indices/photos/lengths/{column.name}: damaged" in error and repair in error
    column.unlink()
    error = error_of(site).stderr
    assert "a file of the index is missing" in error and column.name in error and repair in error
    whole = current.read_bytes()
    current.unlink()
    site.index("maker")
    assert (current.read_bytes(), column.read_bytes()) == (whole, good)
    current.write_bytes(whole[:-20])
    assert "s3://indices/photos/current: damaged index catalogue" in error_of(site).stderr


def test_faults_of_the_store_are_overcome(site):
    site.index("maker")
    site.server.faults = ["slow down", "short body", None, "reset in body", "internal error"]
    assert error_free(site) and not site.server.faults


def test_a_machine_without_a_folder_for_a_copy(site):
    site.index("maker")
    (site.folder / "file").write_text("")
    for env, message in (({"XDG_CACHE_HOME": str(site.folder / "file")}, "--cache-dir"),
                         ({"HOME": "", "XDG_CACHE_HOME": ""}, "set HOME or XDG_CACHE_HOME")):
        done = harness.run("plan", "--job", site.job, "--step", 0, env={**site.env("node"), **env}, check=False)
        assert done.returncode != 0 and message in done.stderr and ADDRESS in done.stderr


@pytest.mark.parametrize("options", [["--part", "0/2"], ["--prune"]])
def test_what_needs_a_folder_is_refused(site, options):
    error = site.index("maker", *options, check=False).stderr
    assert f"{options[0]} works on a folder" in error and ADDRESS in error


@pytest.mark.parametrize("index, message", [
    ("hf://datasets/a/b@main/index", "cannot be written"), ("https://host/index", "cannot be written"),
    ("s3://bucket", "is not s3://BUCKET/FOLDER"), ("s3://bucket/", "is not s3://BUCKET/FOLDER"),
    ("s3:///index", "no bucket"), ("ftp://host/index", "is not one of"), ("gs://bucket/a//b", "is not gs://BUCKET/FOLDER"),
    ('"s3://bucket/*"', "is not s3://BUCKET/FOLDER"),
])
def test_addresses_that_are_no_place_for_an_index(site, index, message):
    job = site.job_of("wrong", "data-000.tar", index=index)
    error = site.index("maker", job=job, check=False).stderr
    assert message in error and "index" in error and "job.yaml:" in error
