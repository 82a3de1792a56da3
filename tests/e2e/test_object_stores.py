"""Data in object stores and behind HTTP: the same stream from every source, through faults, and clear ends."""

import json
import random
import shutil
import time

import pytest

import certificates
import harness
import media
import prometheus
import test_formats
from hub_server import TOKEN, HubServer
from object_server import SECRET, ObjectServer, environment

SHARDS = 3
SAMPLES = 12


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """A folder of objects, and what a job over the same files delivers: digest of the index and steps."""
    folder = tmp_path_factory.mktemp("objects")
    bucket = folder / "photos"
    (bucket / "train").mkdir(parents=True)
    media.write_mixed_shards(bucket / "train", "data", SHARDS, SAMPLES, seed=5)
    local = tmp_path_factory.mktemp("local")
    expected = delivered(local, f'shards: ["{bucket}/train/data-{{000..002}}.tar"]')
    return folder, expected


def environment_of(server, **more):
    """Of a client of `server`, or, without one, of local files."""
    return environment(**({"AWS_ENDPOINT_URL": server.url} if server else {}), **more)


def index_of(job, server=None, check=True, **env):
    return harness.run("index", "--job", job, "--json", env=environment_of(server, **env), check=check)


def steps_of(job, env, while_it_serves=lambda: None, options=()):
    with harness.Fleet(job, 1, *options, env=env) as fleet:
        while_it_serves()
        return harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", 3, env=env).steps


def settled(worker):
    """The metrics of a worker that has nothing to do any more: its counts of reads are taken from time to time."""
    end, before, since = time.monotonic() + 30, None, time.monotonic()
    while time.monotonic() - since < 2.5 and time.monotonic() < end:
        families = prometheus.scrape(worker.facts["metrics"])
        now = [families[f"evenkeel_{name}_total"].samples for name in ("store_reads", "store_requests", "cache_reads")]
        before, since = now, since if now == before else time.monotonic()
        time.sleep(0.1)
    return families


def read_by(job, server, *options):
    """The steps, the worker's metrics after them by name and outcome, and the ranges that it requested."""
    env = environment_of(server)
    with harness.Fleet(job, 1, "--metrics", "127.0.0.1:0", *options, env=env) as fleet:
        server.requests.clear()
        steps = harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", 3, env=env).steps
        families = settled(fleet.workers[0])
    ranges = sum(request.range is not None for request in server.requests)
    return steps, families, ranges


def delivered(folder, dataset, server=None):
    job = test_formats.write_job(folder, dataset)
    digest = json.loads(index_of(job, server).stdout)["digest"]
    return digest, steps_of(job, environment_of(server))


RANGE, ALL = "photos/train/data-{000..002}.tar", "photos/train/data-*.tar"


@pytest.mark.parametrize("source", ["s3 range", "s3 list", "http"])
def test_every_source_delivers_the_same_stream(tmp_path, objects, source):
    folder, expected = objects
    with ObjectServer(folder, secret=None if source == "http" else SECRET) as server:
        address = {"s3 range": f"s3://{RANGE}", "s3 list": f"s3://{ALL}", "http": f"{server.url}/{RANGE}"}[source]
        assert delivered(tmp_path, f'shards: ["{address}"]', server) == expected
        assert all(request.status in (200, 206) for request in server.requests)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, objects):
    """The shards as the files of a dataset's repository."""
    folder = tmp_path_factory.mktemp("hub")
    shutil.copytree(objects[0] / "photos" / "train", folder / "owner" / "photos" / "main" / "train")
    return folder


def hub_environment(server, tmp_path, **more):
    """Without the token of whoever runs the tests."""
    return {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "", **more}


@pytest.mark.parametrize("shards", ["data-{000..002}.tar", "data-*.tar"])
def test_a_repository_of_the_hub_is_read_in_place(tmp_path, objects, hub, shards):
    job = test_formats.write_job(tmp_path, f'shards: ["hf://datasets/owner/photos@main/train/{shards}"]')
    with HubServer(hub) as server:
        env = hub_environment(server, tmp_path)
        digest = json.loads(harness.run("index", "--job", job, "--json", env=env).stdout)["digest"]
        assert (digest, steps_of(job, env)) == objects[1]
        assert not [request for request in server.requests if request.method == "HEAD"]


def test_a_private_repository_needs_a_token(tmp_path, objects, hub):
    job = test_formats.write_job(tmp_path, 'shards: ["hf://datasets/owner/photos@main/train/data-*.tar"]')
    (tmp_path / "token").write_text(TOKEN + "\n")
    with HubServer(hub, token=TOKEN) as server:
        for wrong in ("", "hf_wrong"):
            result = harness.run("index", "--job", job, check=False,
                                 env=hub_environment(server, tmp_path / "nowhere", HF_TOKEN=wrong))
            assert result.returncode == 1 and "HF_TOKEN" in result.stderr and "hf_wrong" not in result.stderr
        for env in (hub_environment(server, tmp_path), hub_environment(server, tmp_path / "nowhere", HF_TOKEN=TOKEN)):
            assert json.loads(harness.run("index", "--job", job, "--json", env=env).stdout)["digest"] == objects[1][0]


def test_a_token_does_not_travel_without_tls(tmp_path):
    job = test_formats.write_job(tmp_path, 'shards: ["hf://datasets/owner/photos@main/data.tar"]')
    env = {"HF_ENDPOINT": "http://hub.example", "HF_TOKEN": TOKEN}
    result = harness.run("index", "--job", job, env=env, check=False)
    assert result.returncode != 0 and "has no TLS" in result.stderr and TOKEN not in result.stderr


@pytest.mark.parametrize("write", [test_formats.as_parquet, test_formats.as_json_lines])
def test_every_format_is_read_from_a_store(tmp_path, objects, write):
    """Also media that rows name: objects below the folder of media."""
    tar = objects[0] / "photos" / "train" / "data-000.tar"
    samples = test_formats.samples_of(tar)
    (tmp_path / "bucket").mkdir()
    dataset = write(tmp_path / "bucket", samples, tar)
    (tmp_path / "local").mkdir()
    local = dataset.replace('["', f'["{tmp_path}/bucket/').replace("media: media", f"media: {tmp_path}/bucket/media")
    remote = dataset.replace('["', '["s3://bucket/').replace("media: media", "media: s3://bucket/media")
    expected = delivered(tmp_path / "local", local)
    with ObjectServer(tmp_path) as server:
        assert delivered(tmp_path, remote, server) == expected


def test_token_files_are_read_from_a_store(tmp_path):
    documents = [[[1 + i, 2, 3] * (1 + i % 5)] for i in range(24)]
    test_formats.write_megatron(tmp_path / "a", documents[:12])
    test_formats.write_megatron(tmp_path / "b", documents[12:])
    expected = delivered(tmp_path, 'shards: ["a.bin", "b.bin"]')
    (tmp_path / "tokens").mkdir()
    for name in ("a.bin", "a.idx", "b.bin", "b.idx"):
        shutil.copy(tmp_path / name, tmp_path / "tokens")
    with ObjectServer(tmp_path, secret=SECRET) as server:
        (tmp_path / "far").mkdir()
        assert delivered(tmp_path / "far", 'shards: ["s3://tokens/*.bin"]', server) == expected
        job = tmp_path / "far" / "job.yaml"
        unchanged = {"read": 0, "unchanged": 2, "remeasured": 0, "damaged": 0}
        assert json.loads(index_of(job, server).stdout)["shards"] == unchanged
        # The .idx alone changes: two documents become one.
        test_formats.write_megatron(tmp_path / "tokens" / "a", [documents[0] + documents[1], *documents[2:12]])
        again = json.loads(index_of(job, server).stdout)
        assert again["shards"] == {**unchanged, "read": 1, "unchanged": 1} and again["samples"] == 23


def test_media_of_rows_are_indexed_many_at_a_time(tmp_path, objects):
    """Each by one request for its bytes, and one that sees that it did not change meanwhile."""
    tar = objects[0] / "photos" / "train" / "data-000.tar"
    samples = test_formats.samples_of(tar)
    (tmp_path / "bucket").mkdir()
    dataset = test_formats.as_json_lines(tmp_path / "bucket", samples, tar)
    shard = next(file for file in (tmp_path / "bucket").iterdir() if file.is_file())
    remote = dataset.replace('["', '["s3://bucket/').replace("media: media", "media: s3://bucket/media")
    local = dataset.replace('["', f'["{tmp_path}/bucket/').replace("media: media", f"media: {tmp_path}/bucket/media")
    (tmp_path / "local").mkdir()
    expected = json.loads(index_of(test_formats.write_job(tmp_path / "local", local)).stdout)
    with ObjectServer(tmp_path) as server:
        server.latency = 0.05
        job = test_formats.write_job(tmp_path, remote)
        found = json.loads(index_of(job, server).stdout)
        assert found["digest"] == expected["digest"]
        media = [request for request in server.requests if shard.name not in request.path]
        names = {request.path for request in media}
        assert len(names) >= 8 and len(media) == 2 * len(names)
        assert {request.method for request in media} == {"GET", "HEAD"}
        assert server.most_at_once >= 8

        server.requests.clear()
        assert json.loads(index_of(job, server).stdout)["digest"] == expected["digest"]
        again = [request for request in server.requests if shard.name not in request.path]
        assert len(again) == len(names) and {request.method for request in again} == {"HEAD"}


FAULTS = [("slow down", "reset in body", None), ("reset", "internal error", "short body"),
          ("wrong range", None, "slow down")]


def test_faults_of_a_store_change_no_byte(tmp_path, objects):
    """A fault, then a good answer: repeated ones are for the deadline, which is not tested here."""
    folder, expected = objects
    with ObjectServer(folder) as server:
        job = test_formats.write_job(tmp_path, f'shards: ["s3://{RANGE}"]')
        for faults in FAULTS:
            server.faults = [answer for fault in faults for answer in (fault, None)][:-1]
            assert json.loads(index_of(job, server).stdout)["digest"] == expected[0]
            shutil.rmtree(tmp_path / "index")
        index_of(job, server)
        faults = [answer for faults in FAULTS for fault in faults for answer in (fault, None)]
        steps = steps_of(job, environment_of(server), lambda: server.faults.extend(faults))
        assert steps == expected[1] and not server.faults


def value(families, name, **labels):
    return sum(number for (_, own), number in families[name].samples.items() if set(labels.items()) <= own)


def test_reading_ahead_delivers_the_same_in_fewer_requests(tmp_path, objects):
    """A sample's text and media lie next to each other, and are read for parts of one step."""
    folder, expected = objects
    with ObjectServer(folder) as server:
        job = test_formats.write_job(tmp_path, f'shards: ["s3://{RANGE}"]')
        index_of(job, server)
        server.latency = 0.03
        steps, families, ahead = read_by(job, server)
        assert steps == expected[1]
        reads = value(families, "evenkeel_store_reads_total")
        assert value(families, "evenkeel_store_reads_total", outcome="direct") < reads / 2
        assert value(families, "evenkeel_store_ahead_bytes") == 0
        steps, families, alone = read_by(job, server, "--fetch-ahead", 0)
        assert steps == expected[1] and alone == reads
        assert ahead < alone


def test_a_slow_request_is_made_a_second_time(tmp_path, objects):
    folder, expected = objects
    with ObjectServer(folder) as server:
        job = test_formats.write_job(tmp_path, f'shards: ["s3://{RANGE}"]')
        index_of(job, server)
        env = environment_of(server)
        with harness.Fleet(job, 1, "--metrics", "127.0.0.1:0", env=env) as fleet:
            server.faults.append("slow")
            begin = time.monotonic()
            steps = harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", 3, env=env).steps
            assert time.monotonic() - begin < 5, "it waited for the slow answer"
            families = settled(fleet.workers[0])
        assert steps == expected[1] and not server.faults
        assert value(families, "evenkeel_store_repeated_requests_total") >= 1


def test_a_cache_on_a_disk_saves_every_request(tmp_path, objects):
    folder, expected = objects
    cache = tmp_path / "cache"
    with ObjectServer(folder) as server:
        job = test_formats.write_job(tmp_path, f'shards: ["s3://{RANGE}"]')
        index_of(job, server)
        steps, families, requests = read_by(job, server, "--cache-dir", cache)
        assert steps == expected[1] and requests > 0
        assert value(families, "evenkeel_cache_reads_total", outcome="hit") == 0
        kept = [file for file in cache.rglob("*") if file.is_file()]
        assert kept

        steps, families, requests = read_by(job, server, "--cache-dir", cache)
        assert steps == expected[1] and requests == 0
        assert value(families, "evenkeel_cache_reads_total", outcome="hit") >= len(kept)
        assert value(families, "evenkeel_cache_reads_total", outcome="miss") == 0

        for file in kept[::2]:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        steps, families, requests = read_by(job, server, "--cache-dir", cache)
        assert steps == expected[1] and requests > 0
        # Of ranges that one request brings again, the first damaged one is enough to know.
        assert 0 < value(families, "evenkeel_cache_reads_total", outcome="damaged") <= len(kept[::2])


def test_a_cache_has_nothing_of_an_object_that_changed(tmp_path, objects):
    """The index is made again, and the cache still has the old bytes under the same address."""
    shutil.copytree(objects[0] / "photos" / "train", tmp_path / "b")
    job = test_formats.write_job(tmp_path, 'shards: ["s3://b/data-000.tar"]')
    with ObjectServer(tmp_path) as server:
        index_of(job, server)
        before, *_ = read_by(job, server, "--cache-dir", tmp_path / "cache")
        shutil.copy(tmp_path / "b" / "data-001.tar", tmp_path / "b" / "data-000.tar")
        index_of(job, server)
        after, *_ = read_by(job, server, "--cache-dir", tmp_path / "cache")
        alone, *_ = read_by(job, server)
    assert after == alone and after != before


def test_an_object_that_changed_names_both_etags(tmp_path, objects):
    shutil.copytree(objects[0] / "photos" / "train", tmp_path / "b")
    with ObjectServer(tmp_path) as server:
        job = test_formats.write_job(tmp_path, 'shards: ["s3://b/data-{000..002}.tar"]')
        first = json.loads(index_of(job, server).stdout)["digest"]
        server.salt = b"rewritten"  # the same bytes, another object
        plan = ("plan", "--job", job, "--step", 0)
        done = harness.run(*plan, env=environment_of(server), check=False)
        assert done.returncode != 0
        assert "has the ETag" in done.stderr and "it had" in done.stderr and "data-000.tar" in done.stderr
        assert json.loads(index_of(job, server).stdout)["digest"] == first
        assert harness.run(*plan, env=environment_of(server)).returncode == 0
        shutil.rmtree(tmp_path / "index")
        # While it is read, from a server that compares ETags and from one that does not. Larger than a piece.
        (tmp_path / "b" / "data-000.tar").write_bytes((tmp_path / "b" / "data-001.tar").read_bytes() + bytes(9 << 20))
        for has_conditions in (True, False):
            server.salt, server.change_after, server.has_conditions = b"", 1, has_conditions
            done = index_of(job, server, check=False)
            assert done.returncode != 0 and "the object changed: its ETag was" in done.stderr, done.stderr


def test_a_worker_starts_without_asking_for_every_object(tmp_path, objects):
    shutil.copytree(objects[0] / "photos" / "train", tmp_path / "b")
    for number in range(3, 12):
        shutil.copy(tmp_path / "b" / f"data-{number % 3:03d}.tar", tmp_path / "b" / f"data-{number:03d}.tar")
    with ObjectServer(tmp_path) as server:
        job = test_formats.write_job(tmp_path, 'shards: ["s3://b/data-{000..011}.tar"]')
        index_of(job, server)
        env = environment_of(server)
        server.requests.clear()
        with harness.Fleet(job, 1, env=env) as fleet:
            assert [request.method for request in server.requests] == ["HEAD"]
            before = harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", 3, env=env).steps
            heads = [request.path for request in server.requests if request.method == "HEAD"]
            assert len(set(heads)) == 1, "of the first object, by the worker and by the consumer, which compares digests"
        assert before == steps_of(job, env)
        for number in range(1, 12):  # all except the one that is asked for
            (tmp_path / "b" / f"data-{number:03d}.tar").write_bytes(b"\0" * 4096)
        with harness.Fleet(job, 1, env=env) as fleet:
            done = harness.run("fetch", "--endpoints", fleet.endpoints, "--ranks", "0-1", "--steps", 3, env=env, check=False)
        assert done.returncode != 0 and "the object changed: its ETag was" in done.stderr, done.stderr


def test_a_refusal_says_what_to_do_and_no_secret(tmp_path, objects):
    folder, _ = objects
    shards = f'shards: ["s3://{RANGE}"]'
    with ObjectServer(folder) as server:
        def error(dataset=shards, server=server, **env):
            done = index_of(test_formats.write_job(tmp_path, dataset), server, check=False, **env)
            assert done.returncode != 0
            assert SECRET not in done.stderr + done.stdout and "wrong-secret" not in done.stderr + done.stdout
            return done.stderr

        wrong = error(AWS_SECRET_ACCESS_KEY="wrong-secret")
        assert "s3://photos/train/data-000.tar" in wrong and "403" in wrong and "credentials" in wrong
        unlisted = error(f'shards: ["s3://{ALL}"]', AWS_SECRET_ACCESS_KEY="wrong-secret")
        assert "403 SignatureDoesNotMatch" in unlisted and "credentials" in unlisted
        server.faults = ["expired"]
        assert "ExpiredToken" in error()
        missing = error(shards.replace("002", "003"))
        assert "data-003.tar" in missing and "404" in missing
        assert "stands for no object" in error('shards: ["s3://photos/train/none-*.tar"]')
        assert "last component" in error('shards: ["s3://photos/*/data.tar"]')
        server.faults = ["wrong range"] * 30
        assert "Requested" in error()
        server.faults = []
        far = {"server": None, "AWS_ENDPOINT_URL": "http://store.invalid:9000"}
        assert "AWS_ALLOW_HTTP=true" in error(**far)
        assert "certificate" in error(AWS_CA_BUNDLE=str(tmp_path / "job.yaml"))


def test_a_page_instead_of_data_is_no_data(tmp_path, objects):
    folder, _ = objects
    with ObjectServer(folder, secret=None) as server, ObjectServer(folder, secret=None) as other:
        job = test_formats.write_job(tmp_path, f'shards: ["{server.url}/{RANGE}"]')
        server.redirect = "/login"
        assert "a page for logging in?" in index_of(job, check=False).stderr
        server.redirect = f"http://127.0.0.1:{other.server_port}/{RANGE}"
        assert "a redirect into the own network" in index_of(job, check=False).stderr and not other.requests
        server.redirect, server.has_ranges = None, False
        assert "does not serve ranges" in index_of(job, check=False).stderr
        job = test_formats.write_job(tmp_path, f'shards: ["{server.url}/{ALL}"]')
        assert "cannot be listed" in index_of(job, check=False).stderr


@pytest.mark.parametrize("dataset, message", [
    ('shards: ["ftp://host/a.tar"]', "not one of s3://"),
    ('shards: ["https://user:word@host/a.tar"]', "user name"),
    ('shards: ["s3:///a.tar"]', "no bucket"),
    ('shards: ["https://host/a.tar?X-Amz-Signature=1"]', "a query"),
    ('shards: ["a.json"], media: "ftp://b"', "not one of s3://"),
    ('shards: ["hf://datasets/owner/name/a.tar"]', "has no revision; write name@"),
    ('shards: ["hf://owner/name/a.tar"]', "is not hf://datasets/OWNER/NAME@REVISION/FILE"),
])
def test_addresses_that_cannot_work_are_refused(tmp_path, dataset, message):
    done = index_of(test_formats.write_job(tmp_path, dataset), check=False)
    assert done.returncode != 0 and message in done.stderr and "job.yaml:" in done.stderr


def test_certificates_of_a_file_are_trusted(tmp_path, objects):
    folder, expected = objects
    party = certificates.Party(tmp_path, "store")
    with ObjectServer(folder, certificate=party) as server:
        job = test_formats.write_job(tmp_path, f'shards: ["s3://{ALL}"]')
        server.quotes_etags = False  # of a listing
        done = index_of(job, server, AWS_CA_BUNDLE=str(party.ca))
        assert json.loads(done.stdout)["digest"] == expected[0]


def test_the_example_reads_a_bucket_of_the_environment(tmp_path):
    rng = random.Random(4)
    shutil.copytree(harness.GOLDEN / "processor" / "qwen2-vl", tmp_path / "qwen2-vl")
    shutil.copy(harness.GOLDEN / "tokenizer" / "tokenizer.json", tmp_path / "qwen2-vl")
    (tmp_path / "qwen2-vl" / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    (tmp_path / "photos").mkdir()
    for number in range(2):
        shard = media.Shard(tmp_path / "photos" / f"train-0000{number}.tar")
        for i in range(4):
            shard.add(f"{i}.jpg", media.image_bytes(rng, "jpg", 60, 80))
            shard.add(f"{i}.txt", b"a caption")
        shard.close()
    job = tmp_path / "job.yaml"
    text = (harness.ROOT / "examples" / "formats" / "object-store.yaml").read_text()
    job.write_text(text.replace("max_pixels", "chat: chatml, max_pixels"))
    with ObjectServer(tmp_path) as server:
        done = harness.run("index", "--job", job, "--verify", "--json", env=environment_of(server))
        index = json.loads(done.stdout)
    assert (index["samples"], index["excluded"]) == (8, {})
