"""AVIF and HEIF in a stream: FFmpeg decodes them, so confined processes do, also where other pictures are not confined."""

import pytest

import harness
import media
from harness import Fleet, fetch

GOLDEN = harness.ROOT / "tests/golden/data/heif"
FILES = sorted(path for path in GOLDEN.iterdir() if path.suffix in (".avif", ".heic", ".heif"))
STEPS = 6


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heif")
    shard = media.Shard(folder / "shard-0.tar")
    for i, path in enumerate(FILES):
        shard.add(f"{i:03}.txt", path.name.encode())
        shard.add(f"{i:03}.0{path.suffix}", path.read_bytes())
    shard.close()
    path = harness.write_job(folder / "job.yaml", [("pictures", "shard-0.tar", 1)], batch="{samples: 16}")
    harness.run("index", "--job", path, "--max-excluded", "0%")
    return path


def test_the_stream_is_the_same_whichever_process_decodes(job):
    digests = {}
    for isolation in ("off", "ffmpeg", "all"):
        with Fleet(job, 1, "--isolation", isolation) as fleet:
            digests[isolation] = fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", STEPS)
    assert len(digests["off"].steps) == 4 * STEPS
    assert digests["off"].steps == digests["ffmpeg"].steps == digests["all"].steps
