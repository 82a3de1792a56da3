"""Bad input gives the documented error, an exclusion by the index or an invalid item; never a crash or another plan."""

import io
import json
import os
import random
import subprocess
import sys
import tarfile

import pytest

import harness
import media


def index(folder, shards, check=True, **options):
    job = harness.write_job(folder / "job.yaml", [("a", shards, 1)], ranks=2, batch="{samples: 4}", **options)
    return job, harness.run("index", "--job", job, "--json", "--max-excluded", "100%", check=check)


def good_shard(path, seed=3, samples=12):
    rng = random.Random(seed)
    shard = media.Shard(path)
    for i in range(samples):
        shard.add(f"{i:03d}.jpg", media.image_bytes(rng, "jpg", 60 + i, 80))
        shard.add(f"{i:03d}.txt", b"a caption")
    shard.close()


def excluded(done):
    return json.loads(done.stdout)["excluded"]


@pytest.mark.parametrize("content", [b"", bytes(10240)], ids=["no bytes", "no members"])
def test_an_empty_tar_is_named(tmp_path, content):
    (tmp_path / "a-000.tar").write_bytes(content)
    good_shard(tmp_path / "a-001.tar")
    job, done = index(tmp_path, "a-{000..001}.tar", check=False)
    assert done.returncode == 5, "the data is damaged, and the index has what is left"
    summary = json.loads(done.stdout)
    assert summary["samples"] == 12 and summary["shards"]["damaged"] == 1
    assert summary["exclusions"][0]["sample"] == "a/a-000.tar" and "empty" in summary["exclusions"][0]["detail"]


def test_a_truncated_tar_keeps_the_samples_before_the_damage(tmp_path):
    good_shard(tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(data[: len(data) * 2 // 3 // 512 * 512 + 100])
    _, done = index(tmp_path, "a.tar", check=False)
    summary = json.loads(done.stdout)
    assert done.returncode == 5 and 0 < summary["samples"] < 12
    damage = summary["exclusions"][0]
    assert damage["sample"].startswith("a/a.tar") and "at byte " in damage["detail"], "shard, sample and offset"


def test_a_member_with_a_false_size_is_no_read_past_the_end(tmp_path):
    good_shard(tmp_path / "a.tar")
    data = bytearray((tmp_path / "a.tar").read_bytes())
    header = tarfile.TarInfo.frombuf(bytes(data[:512]), "utf-8", "strict")
    header.size = 1 << 40
    data[:512] = header.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(bytes(data))
    _, done = index(tmp_path, "a.tar", check=False)
    assert done.returncode == 5 and "a.tar" in done.stdout


def test_path_traversal_in_names_touches_no_file(tmp_path):
    shard = media.Shard(tmp_path / "a.tar")
    shard.add("../../escape.txt", b"text")
    shard.add("/etc/escape.txt", b"text")
    shard.add("fine.txt", b"some text")
    shard.close()
    _, done = index(tmp_path, "a.tar")
    assert not (tmp_path.parent / "escape.txt").exists() and not (tmp_path.parent.parent / "escape.txt").exists()


@pytest.mark.parametrize("name,data,text", [
    ("x.jpg", b"\xff\xd8\xff\xe0 this is no photograph", b"caption"),
    ("x.wav", b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
              b"\x02\x00\x10\x00data\x00\x00\x00\x00", b"caption"),
    ("x.mp4", b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2", b"caption"),
    ("x.jpg", None, b"not utf-8: \xff\xfe\xc3"),
    ("x.jpg", None, b"word " * 60000),
], ids=["photograph", "audio without samples", "video without frames", "not utf-8", "too long"])
def test_what_cannot_be_a_sample_is_excluded_with_its_reason(tmp_path, name, data, text):
    rng = random.Random(5)
    shard = media.Shard(tmp_path / "a.tar")
    for i in range(8):
        shard.add(f"good{i}.jpg", media.image_bytes(rng, "jpg", 64, 64))
        shard.add(f"good{i}.txt", b"a caption")
    shard.add(name, media.image_bytes(rng, "jpg", 64, 64) if data is None else data)
    shard.add("x.txt", text)
    shard.close()
    job, done = index(tmp_path, "a.tar")
    summary = json.loads(done.stdout)
    assert summary["samples"] == 8
    assert sum(summary["excluded"].values()) == 1


def test_a_corrupt_photograph_is_invalid_and_changes_no_plan(tmp_path):
    evenkeel = pytest.importorskip("evenkeel")
    rng = random.Random(6)

    def write(path, damage):
        shard = media.Shard(path)
        for i in range(12):
            data = media.image_bytes(random.Random(i), "png", 60 + 3 * i, 90)
            if damage and i == 7:
                data = data[: len(data) // 2] + bytes(len(data) - len(data) // 2)
            shard.add(f"{i:03d}.png", data)
            shard.add(f"{i:03d}.txt", f"caption {i}".encode())
        shard.close()

    plans, invalid = [], []
    for name, damage in (("good", False), ("bad", True)):
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "a.tar", damage)
        job, done = index(folder, "a.tar", wire="f32")
        assert json.loads(done.stdout)["samples"] == 12, "a header in order is all that the index looks at"
        plans.append([harness.run("plan", "--job", job, "--step", step, "--json").stdout for step in range(3)])
        flags = []
        with harness.Fleet(job, 1) as fleet:
            for rank in range(2):
                for step in harness.alone(fleet.endpoints, rank=rank, num_steps=3):
                    fields = step.encoders.get("vision", {})
                    if "item_valid" in fields:
                        flags += list(fields["item_valid"].tolist())
        invalid.append(len(flags) - sum(flags))
    assert plans[0] == plans[1]
    assert invalid == [0, 1]


def test_an_unknown_job_key_names_line_and_nearest_key(tmp_path):
    good_shard(tmp_path / "a.tar")
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a.tar", 1)], extra="mircobatch: {align: 8}\n")
    done = harness.run("index", "--job", job, "--max-excluded", "100%", check=False)
    assert done.returncode == 2
    line = len(job.read_text().rstrip("\n").split("\n"))
    assert f"job.yaml:{line}" in done.stderr and "mircobatch" in done.stderr and "microbatch" in done.stderr


def test_an_index_that_does_not_match_its_shards_is_refused(tmp_path):
    good_shard(tmp_path / "a.tar")
    job, _ = index(tmp_path, "a.tar")
    good_shard(tmp_path / "a.tar", samples=13)
    done = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert done.returncode == 3 and "a.tar" in done.stderr


def test_a_job_without_its_index_says_how_to_make_it(tmp_path):
    good_shard(tmp_path / "a.tar")
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a.tar", 1)], ranks=2)
    done = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert done.returncode != 0 and "evenkeel index" in done.stderr


def test_a_worker_of_another_stream_is_refused_and_named(tmp_path):
    good_shard(tmp_path / "a.tar")
    job, _ = index(tmp_path, "a.tar")
    other = harness.write_job(tmp_path / "other.yaml", [("a", "a.tar", 1)], ranks=2, batch="{samples: 4}", seed=99)
    with harness.Fleet(other, 1) as wrong:
        done = harness.run("fetch", "--endpoints", wrong.endpoints, "--job", job, "--ranks", "0", "--steps", 1,
                           "--digest", check=False)
    assert done.returncode != 0 and "digest" in done.stderr


def test_unchanged_shards_and_new_processors_read_no_media(tmp_path):
    good_shard(tmp_path / "a.tar")
    job, first = index(tmp_path, "a.tar")
    job, second = index(tmp_path, "a.tar")
    assert json.loads(second.stdout)["shards"] == {"read": 0, "unchanged": 1, "remeasured": 0, "damaged": 0}
    assert json.loads(first.stdout)["digest"] == json.loads(second.stdout)["digest"]
    job.write_text(job.read_text().replace("max_pixels: 50176", "max_pixels: 3200"))
    third = json.loads(harness.run("index", "--job", job, "--json", "--max-excluded", "100%").stdout)
    assert third["shards"] == {"read": 0, "unchanged": 0, "remeasured": 1, "damaged": 0}
    assert third["digest"] != json.loads(first.stdout)["digest"]


def test_a_command_that_does_not_exist_is_named():
    done = harness.run("plam", "--job", "job.yaml", check=False)
    assert done.returncode == 2 and "unknown command 'plam'" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("command", ["serve", "index", "plan", "solve"])
def test_instructions_that_do_not_exist_are_an_error_at_start(command):
    done = harness.run(command, "--job", "job.yaml", check=False, env={"EVENKEEL_CPU": "basline"})
    assert done.returncode == 2 and done.stdout == ""
    assert "EVENKEEL_CPU" in done.stderr and "'basline'; nearest is 'baseline'" in done.stderr


def test_unknown_instruction_sets_are_an_error_in_python():
    done = subprocess.run([sys.executable, "-c", "import evenkeel"], env={**os.environ, "EVENKEEL_CPU": "avx1"},
                          capture_output=True, text=True)
    assert done.returncode == 1 and "ImportError: EVENKEEL_CPU: unknown instructions 'avx1'; nearest is 'avx2'" in done.stderr
