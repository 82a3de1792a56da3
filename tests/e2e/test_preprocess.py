"""`evenkeel preprocess` against Pillow and numpy, on pictures made here: every form that photographs come in."""

import io
import json
import random
import struct

import numpy as np
import pytest
from PIL import Image

import harness
import media

VISION = harness.GOLDEN / "processor" / "qwen2-vl"
AUDIO = harness.GOLDEN / "processor" / "qwen2-audio"
PATCH, MERGE, FRAMES = 14, 2, 2
MIN_PIXELS, MAX_PIXELS = 3136, 50176


def read_safetensors(path):
    """The format by its definition: u64 length, JSON header, bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    types = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BF16": np.uint16}
    body, out, end = data[8 + length:], {}, 0
    for name, about in header.items():
        if name != "__metadata__":
            begin, stop = about["data_offsets"]
            assert begin == end, "tensors lie one after another"
            end = stop
            out[name] = np.frombuffer(body[begin:stop], types[about["dtype"]]).reshape(about["shape"])
    assert end == len(body)
    return out


def preprocess(tmp_path, *files, wire="f32", more=()):
    out = tmp_path / "out.safetensors"
    harness.run("preprocess", "--processor", VISION, "--audio-processor", AUDIO, "--max-pixels", MAX_PIXELS,
                "--wire", wire, "--resampler", "pil", "--out", out, *more, *files)
    return read_safetensors(out)


def fitting(height, width):
    """Sides that are multiples of a merged patch, with an area between the bounds."""
    factor = PATCH * MERGE
    h, w = (max(factor, round(side / factor) * factor) for side in (height, width))
    if h * w > MAX_PIXELS:
        beta = np.sqrt(height * width / MAX_PIXELS)
        h, w = (max(factor, int(np.floor(side / beta / factor)) * factor) for side in (height, width))
    elif h * w < MIN_PIXELS:
        beta = np.sqrt(MIN_PIXELS / (height * width))
        h, w = (int(np.ceil(side * beta / factor)) * factor for side in (height, width))
    return h, w


def reference(data):
    """Pillow's decoder and bicubic resize, then normalisation and patch order in numpy."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    h, w = fitting(picture.height, picture.width)
    pixels = np.asarray(picture.resize((w, h), Image.BICUBIC))
    config = json.loads((VISION / "preprocessor_config.json").read_text())
    # The table of a byte's values, as the image processor computes them: scaled in double, normalised in float.
    scaled = (np.arange(256) * (1 / 255)).astype(np.float32)
    mean, std = (np.array(config[key], np.float32) for key in ("image_mean", "image_std"))
    values = (scaled[pixels] - mean) / std
    rows, columns = h // PATCH, w // PATCH
    grid = values.transpose(2, 0, 1).reshape(3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    patches = grid.transpose(1, 4, 2, 5, 0, 3, 6).reshape(rows * columns, 3, 1, PATCH * PATCH)
    return np.repeat(patches, FRAMES, 2).reshape(rows * columns, -1), [1, rows, columns]


def encoded(picture, form, **options):
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def pictures():
    rng = random.Random(11)
    colour = Image.fromarray(media.photo(rng, 187, 131))
    grey = colour.convert("L")
    alpha = colour.convert("RGBA")
    alpha.putalpha(grey)
    sixteen = Image.fromarray((np.asarray(grey).astype(np.uint16) * 257))
    cmyk = colour.convert("CMYK")
    return {
        "baseline.jpg": encoded(colour, "JPEG", quality=90), "progressive.jpg": encoded(colour, "JPEG", progressive=True),
        "420.jpg": encoded(colour, "JPEG", subsampling=2), "444.jpg": encoded(colour, "JPEG", subsampling=0),
        "grey.jpg": encoded(grey, "JPEG"), "cmyk.jpg": encoded(cmyk, "JPEG"), "optimised.jpg":
        encoded(colour, "JPEG", optimize=True, quality=35), "exif.jpg": encoded(colour, "JPEG", exif=orientation(6)),
        "colour.png": encoded(colour, "PNG"), "grey.png": encoded(grey, "PNG"), "alpha.png": encoded(alpha, "PNG"),
        "grey-alpha.png": encoded(alpha.convert("LA"), "PNG"), "palette.png": encoded(colour.quantize(64), "PNG"),
        "palette-16.png": encoded(colour.quantize(16), "PNG", bits=4),
        "palette-transparent.png": encoded(colour.quantize(64), "PNG", transparency=3),
        "one-bit.png": encoded(grey.convert("1"), "PNG"),
        "lossy.webp": encoded(colour, "WEBP", quality=70), "lossless.webp": encoded(colour, "WEBP", lossless=True),
        "alpha.webp": encoded(alpha, "WEBP"), "tiny.png": encoded(colour.resize((29, 30)), "PNG"),
        "wide.jpg": encoded(colour.resize((900, 40)), "JPEG"), "large.jpg": encoded(colour.resize((1300, 700)), "JPEG"),
    }


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


PICTURES = pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_pillow_s_bit_for_bit(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PICTURES[name])
    made = preprocess(tmp_path, path)
    expected, grid = reference(PICTURES[name])
    assert made["image_grid_thw"].tolist() == [grid]
    assert made["pixel_values"].dtype == np.float32 and made["pixel_values"].shape == expected.shape
    different = made["pixel_values"].view(np.uint32) != expected.view(np.uint32)
    assert not different.any(), (f"{different.sum()} of {different.size} values, up to "
                                 f"{np.abs(made['pixel_values'] - expected).max()}")


def test_wire_forms_agree_and_several_media_follow_one_another(tmp_path):
    files = []
    for name in ("baseline.jpg", "alpha.png", "lossless.webp"):
        files.append(tmp_path / name)
        files[-1].write_bytes(PICTURES[name])
    files.append(tmp_path / "clip.wav")
    files[-1].write_bytes(media.wav_bytes(random.Random(1), 1.5, 22050, 2))
    f32, bf16, u8 = [preprocess(tmp_path, *files, wire=wire) for wire in ("f32", "bf16", "u8")]
    expected = np.concatenate([reference(PICTURES[path.name])[0] for path in files[:3]])
    assert (f32["pixel_values"] == expected).all() and len(f32["image_grid_thw"]) == 3
    bits = f32["pixel_values"].view(np.uint32).astype(np.uint64)
    assert (bf16["pixel_values"] == ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)).all()
    assert u8["pixel_values"].dtype == np.uint8 and u8["pixel_values"].size * FRAMES == f32["pixel_values"].size
    mel = f32["input_features"]
    assert mel.dtype == np.float32 and mel.shape[0] == 1 and mel.shape[1] in (80, 128) and np.isfinite(mel).all()
    assert (mel == u8["input_features"]).all()


def test_what_it_cannot_do_is_said(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"no picture")
    (tmp_path / "x.xyz").write_bytes(b"")
    (tmp_path / "folder.jpg").mkdir()
    for name, code, word in (("x.jpg", None, "x.jpg"), ("x.xyz", 2, "x.xyz"), ("folder.jpg", 2, "not a regular file"),
                             ("missing.jpg", 2, "missing.jpg: No such file")):
        done = harness.run("preprocess", "--processor", VISION, "--out", tmp_path / "o", tmp_path / name, check=False)
        assert done.returncode == code or code is None and done.returncode != 0
        assert word in done.stderr and not (tmp_path / "o").exists()
