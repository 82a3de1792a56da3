"""`evenkeel preprocess`, run for the tests in this folder.

The binary is EVENKEEL_BIN, or build/release/cli/evenkeel; the media next to the tree are in EVENKEEL_SHARED, or ../shared.
"""

import json
import os
import pathlib
import struct
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("EVENKEEL_BIN", ROOT / "build/release/cli/evenkeel"))
SHARED = pathlib.Path(os.environ.get("EVENKEEL_SHARED", ROOT.parent / "shared"))
DTYPES = {"F32": np.float32, "I64": np.int64, "U8": np.uint8, "BF16": np.uint16}


def read_safetensors(path):
    """{name: array}; bf16 as its bits."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {name: np.frombuffer(body[slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


def run(processor, media, out, *arguments):
    """The finished process, whatever its end; `media` is a path or a list of them."""
    media = media if isinstance(media, (list, tuple)) else [media]
    words = [BINARY, "preprocess", "--processor", processor, "--out", out, *arguments, *media]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def preprocess(tmp_path, processor, media, *arguments):
    """The tensors of `media`; fails where the command does."""
    out = tmp_path / "out.safetensors"
    done = run(processor, media, out, *arguments)
    assert done.returncode == 0, done.stderr
    tensors = read_safetensors(out)
    out.unlink()
    return tensors


def refusal(tmp_path, processor, media, *arguments):
    """What the command says of media that it refuses."""
    done = run(processor, media, tmp_path / "refused.safetensors", *arguments)
    assert done.returncode != 0, "was not refused"
    return done.stderr
