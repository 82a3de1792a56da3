"""`evenkeel size`: CPU time by medium and size on the job's own data, and the cores and workers that follow."""

import json
import math
import random
import re

import pytest

import harness
import media


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Half of the samples have small pictures, half large ones; every fourth also has a clip, one a video."""
    folder = tmp_path_factory.mktemp("size")
    rng = random.Random(9)
    shard = media.Shard(folder / "a.tar")
    for i in range(24):
        shard.add(f"{i:02d}.png", media.image_bytes(rng, "png", *((100, 80) if i % 2 else (1000, 900))))
        if i % 4 == 0:
            shard.add(f"{i:02d}.wav", media.wav_bytes(rng, 3))
        if i == 0:
            shard.add(f"{i:02d}.mp4", media.video_bytes(folder, 10, "320x240"))
        shard.add(f"{i:02d}.txt", b"a caption")
    shard.close()
    job = harness.write_job(folder / "job.yaml", [("a", "a.tar", 1)], ranks=4, batch="{samples: 8}", microbatch="{capacity_tokens: 8192}")
    job.write_text(job.read_text().replace("  max_pixels: 50176", "  max_pixels: 1003520\n  chat: chatml"))
    harness.run("index", "--job", job)
    return job


def size(job, *options, **how):
    return harness.run("size", "--job", job, *options, **how)


def test_cores_follow_from_the_measured_time(job):
    found = json.loads(size(job, "--step-seconds", 0.001, "--samples", 24, "--margin", 2, "--worker-cores", 4, "--json").stdout)
    assert (found["samples"], found["samples_a_step"], found["ranks"]) == (24, 8, 4)
    total = sum(group["cpu_seconds"] for group in found["groups"])
    assert found["cpu_seconds_a_sample"] == pytest.approx(total / 24, rel=1e-3)
    assert found["cpu_seconds_a_step"] == pytest.approx(total / 3, rel=1e-3)
    cores = found["cpu_seconds_a_step"] * 2 / 0.001
    assert abs(found["cores"] - math.ceil(cores)) <= 1 and found["cores_a_rank"] == pytest.approx(cores / 4, rel=1e-3)
    assert found["workers"] == math.ceil(found["cores"] / 4)


def test_media_are_grouped_by_size(job):
    found = json.loads(size(job, "--step-seconds", 2, "--samples", 24, "--json").stdout)
    counts = {(group["medium"], group["from"], group["to"]): group["items"] for group in found["groups"] if group["medium"] != "text"}
    assert counts == {("image", 0.5, 1): 12, ("image", 0.0078125, 0.015625): 12, ("audio", 2, 4): 6, ("video", 0.5, 1): 1}
    assert sum(group["items"] for group in found["groups"] if group["medium"] == "text") == 24
    large, small = (next(group["cpu_seconds"] for group in found["groups"] if (group["medium"], group["from"]) == ("image", at))
                    for at in (0.5, 0.0078125))
    assert large > 5 * small


def test_the_text_says_the_same(job):
    out = size(job, "--step-seconds", 2).stdout
    assert out.startswith("measured    200 samples on one thread, ")
    assert re.search(r"\nimage +0\.5 to 1 megapixels +\d+ ", out) and re.search(r"\naudio +2 to 4 seconds ", out)
    assert re.search(r"\ncores +\d+ for a step every 2 s, with a margin of 1\.5 \([\d.]+ cores a rank\)\n", out)
    assert re.search(r"\nworkers +1 of 16 cores each\n", out)


def test_wrong_requests_are_errors(job, tmp_path):
    assert size(job, check=False).returncode == 2
    assert size(job, "--step-seconds", 0, check=False).returncode == 2
    other = tmp_path / "job.yaml"
    other.write_text(job.read_text().replace("index: index", "index: none").replace('"a.tar"', f'"{job.parent}/a.tar"'))
    missing = size(other, "--step-seconds", 1, check=False)
    assert missing.returncode == 6 and "evenkeel index" in missing.stderr
