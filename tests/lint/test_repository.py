"""What must not be committed."""

import re

from sources import files, read

# In pieces, so that this file does not find itself.
MACHINE = re.compile("/" + r"(?:work|root)/")
GENERATED = re.compile(r"\.pb\.(?:cc|h)$|_pb2(?:_grpc)?\.pyi?$")
BINARY = (".tar", ".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif", ".wav", ".aiff", ".flac", ".mp3", ".ogg", ".opus", ".mp4", ".mkv",
          ".webm", ".npy", ".npz", ".safetensors", ".bin", ".gz", ".zst")


def test_no_path_of_a_developers_machine():
    found = []
    for path in files():
        if path.endswith(BINARY):
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            if MACHINE.search(line):
                found.append(f"{path}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_no_generated_code():
    assert not [path for path in files() if GENERATED.search(path)]


def test_the_searches_find_what_they_look_for():
    assert MACHINE.search("see /" + "work/main/x") and MACHINE.search("/" + "root/.cache")
    assert not MACHINE.search("the /network/ and /rootless/")
    assert GENERATED.search("proto/job.pb.cc") and GENERATED.search("a/service_pb2_grpc.py")
    assert not GENERATED.search("core/job.cc") and not GENERATED.search("proto/job.proto")
