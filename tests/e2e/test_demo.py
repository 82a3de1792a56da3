"""What the demo makes of somebody's own folder; the demo itself is what README shows."""

import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

import harness

PACK = harness.ROOT / "scripts" / "demo_parts" / "pack.py"
DATA = harness.GOLDEN / "data"
# Golden files that a processor refuses by default, unchanged; "refused..." are next to them.
REFUSED = {"no-video.mp4", "24-khz.mp3", "grey-alpha-16-bits.png"}
OF_VIDEO = {"mp4", "avi", "mkv", "webm"}  # suffixes that promise pictures
DECODED = {"jpg", "png", "webp", "wav", "flac", "mp3", "m4a", "ac3", "ogg", "opus", "mka", "mp4", "avi", "mkv", "webm"}


def pack(out, *folder, check=True):
    done = subprocess.run([sys.executable, PACK, out, *folder], capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stderr
    return done


def suffixes(folder):
    """How many members of each last suffix the shards have."""
    counts = collections.Counter()
    for shard in sorted((folder / "shards").glob("*.tar")):
        with tarfile.open(shard) as tar:
            counts.update(name.rsplit(".", 1)[1] for name in tar.getnames())
    return counts


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    """Every medium that the project has an example of, two kinds that it has none of, a text, a large file."""
    folder = tmp_path_factory.mktemp("own")
    for kind in ("images", "audio", "video"):
        for path in sorted((DATA / kind).iterdir()):
            sound_alone = kind == "audio" and path.suffix[1:] in OF_VIDEO
            refused = path.name in REFUSED or "refused" in path.name or sound_alone
            if path.suffix[1:] in DECODED and not refused:
                (folder / kind).mkdir(exist_ok=True)
                shutil.copy(path, folder / kind / path.name)
    wav = folder / "audio" / "voice.wav"
    shutil.copy(folder / "audio" / "stereo.ogg", folder / "audio" / "UPPER.OGA")
    (folder / "anim.gif").write_bytes(b"GIF89a" + bytes(20))
    (folder / "noise").write_bytes(wav.read_bytes())
    (folder / "words.txt").write_text("A paragraph of more than eighty characters, so that it is long enough to be taken. " * 3)
    with open(folder / "long.mp4", "wb") as file:
        file.truncate((32 << 20) + 1)
    return folder


def test_every_kind_of_medium_is_packed_and_decoded(own_folder, tmp_path):
    done = pack(tmp_path, own_folder)
    found = suffixes(tmp_path)
    assert set(found) - {"txt", "json"} == DECODED | {"oga"}, done.stdout
    index = harness.run("index", "--job", tmp_path / "job.yaml", "--json", check=False)
    summary = json.loads(index.stdout)
    assert summary["samples"] == 480 and summary["exclusions"] == [], summary


def test_files_that_are_not_used_are_counted_and_named(own_folder, tmp_path):
    lines = pack(tmp_path, own_folder).stdout.splitlines()
    assert "ignored 1 files of a kind that is not decoded (.gif): anim.gif" in lines
    assert "ignored 1 files of a kind that is not decoded (no suffix): noise" in lines
    assert "ignored 1 files larger than 32 MiB: long.mp4" in lines


def test_a_folder_without_media_is_an_error_with_a_hint(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.gif").write_bytes(b"GIF89a")
    done = pack(tmp_path / "out", tmp_path / "own", check=False)
    assert done.returncode == 1 and "no file of it can be used" in done.stderr and ".opus" in done.stderr
    assert "a.gif" in done.stdout


def test_every_file_of_a_small_folder_is_in_a_sample(own_folder, tmp_path):
    pack(tmp_path, own_folder)
    names = collections.Counter()
    for shard in sorted((tmp_path / "shards").glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar.getmembers():
                names[tar.extractfile(member).read()] += 1
    used = [path for path in pathlib.Path(own_folder).rglob("*") if path.is_file() and path.suffix[1:] in DECODED]
    missing = [path.name for path in used if path.name != "long.mp4" and path.read_bytes() not in names]
    assert not missing
