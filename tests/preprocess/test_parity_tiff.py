"""TIFF pictures against Pillow, bit for bit: every layout of samples, in strips and tiles, of both byte orders."""

import io
import itertools
import json
import random
import sys

import numpy as np
import pytest

from command import ROOT, preprocess, refusal
from installed import GOLDEN, RELEASE, Image, image_processor, needed

sys.path.insert(0, str(ROOT / "tests"))
from tiff_files import (BLACK_IS_ZERO, CMYK, DEFLATE, JPEG, LZW, NONE, PACKBITS, PALETTE, RGB, WHITE_IS_ZERO,  # noqa: E402
                        YCBCR, tiff)

pytestmark = needed
SCENE = GOLDEN / "images/scene.png"
WIDTH, HEIGHT = 61, 47
PLACES = {"strip": {}, "strips": {"rows": 10}, "tiles": {"tile": (16, 32)}, "tile": {"tile": (64, 48)}}
# name: samples of a pixel, bits, and what the writer takes
LAYOUTS = {
    "two": (1, 1, {"photometric": BLACK_IS_ZERO}), "two-white": (1, 1, {"photometric": WHITE_IS_ZERO}),
    "grey-2": (1, 2, {"photometric": BLACK_IS_ZERO}), "grey-2-white": (1, 2, {"photometric": WHITE_IS_ZERO}),
    "grey-4": (1, 4, {"photometric": BLACK_IS_ZERO}), "grey-4-white": (1, 4, {"photometric": WHITE_IS_ZERO}),
    "grey": (1, 8, {"photometric": BLACK_IS_ZERO}), "grey-white": (1, 8, {"photometric": WHITE_IS_ZERO}),
    "grey-alpha": (2, 8, {"photometric": BLACK_IS_ZERO, "extra": [2]}), "grey-extra": (2, 8, {"photometric": BLACK_IS_ZERO, "extra": [0]}),
    "rgb": (3, 8, {}), "rgba": (4, 8, {"extra": [2]}), "rgba-untagged": (4, 8, {}), "rgb-extra": (4, 8, {"extra": [0]}),
    "premultiplied": (4, 8, {"extra": [1]}), "rgba-extra": (5, 8, {"extra": [2, 0]}), "rgb-three-extra": (6, 8, {"extra": [0, 0, 0]}),
    "premultiplied-extra": (5, 8, {"extra": [1, 0]}), "cmyk": (4, 8, {"photometric": CMYK}),
    "cmyk-extra": (5, 8, {"photometric": CMYK, "extra": [0]}),
    "palette-1": (1, 1, {"photometric": PALETTE}), "palette-2": (1, 2, {"photometric": PALETTE}),
    "palette-4": (1, 4, {"photometric": PALETTE}), "palette-8": (1, 8, {"photometric": PALETTE}),
    "palette-alpha": (2, 8, {"photometric": PALETTE, "extra": [2]}), "palette-extra": (2, 8, {"photometric": PALETTE, "extra": [0]}),
    "rgb-16": (3, 16, {}), "rgba-16": (4, 16, {"extra": [2]}), "rgba-16-untagged": (4, 16, {}), "rgb-16-extra": (4, 16, {"extra": [0]}),
    "premultiplied-16": (4, 16, {"extra": [1]}), "grey-16": (1, 16, {"photometric": BLACK_IS_ZERO}),
}


def made(name, **options):
    samples, bits, own = LAYOUTS[name]
    rng = random.Random(name)
    values = [rng.randrange(1 << bits) for _ in range(WIDTH * HEIGHT * samples)]
    if "palette" in name:
        own = {**own, "palette": [rng.randrange(1 << 16) for _ in range(3 << bits)]}
    return tiff(WIDTH, HEIGHT, values, bits=bits, **{**own, **options})


def grid(name):
    """{what: bytes} of a layout: places, byte orders, compressions, planes, orientations."""
    out = {}
    for (place, chunks), order, compression in itertools.product(PLACES.items(), "<>", (NONE, LZW, DEFLATE, PACKBITS)):
        out[f"{place} {order} {compression}"] = made(name, order=order, compression=compression, **chunks)
    if name in ("rgb", "rgba", "rgb-extra", "rgb-three-extra", "cmyk", "cmyk-extra"):
        for (place, chunks), compression in itertools.product(PLACES.items(), (NONE, DEFLATE)):
            if compression == NONE and "extra" in name:
                continue  # Pillow's own reader of planes fails on them
            out[f"planes {place} {compression}"] = made(name, separate=True, compression=compression, **chunks)
    for orientation in range(1, 9):
        out[f"orientation {orientation}"] = made(name, compression=LZW, orientation=orientation)
    out["big"] = made(name, big=True)
    return out


def saved(picture, **options):
    out = io.BytesIO()
    picture.save(out, "TIFF", **options)
    return out.getvalue()


def saved_by_pillow():
    scene = Image.open(SCENE).convert("RGB").resize((WIDTH, HEIGHT))
    out = {}
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        picture = scene.quantize(64) if mode == "P" else scene.convert(mode)
        for compression in (None, "packbits", "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate"):
            out[f"{mode} {compression}"] = saved(picture, compression=compression)
    for compression in ("tiff_ccitt", "group3", "group4"):
        out[compression] = saved(scene.convert("1"), compression=compression)
        out[f"{compression} inverted"] = saved(scene.convert("1"), compression=compression, tiffinfo={262: 0})
        # 1: two-dimensional codes, 4: filled to bytes
        out[f"{compression} filled"] = saved(scene.convert("1"), compression=compression, tiffinfo={266: 2})
    for mode, quality in itertools.product(("L", "RGB", "CMYK"), (30, 75, 95)):
        out[f"jpeg {mode} {quality}"] = saved(scene.convert(mode), compression="jpeg", quality=quality)
    for quality, rows in itertools.product((40, 90), (8, 16, 64)):
        out[f"jpeg YCbCr {quality} {rows}"] = saved(scene.convert("YCbCr"), compression="jpeg", quality=quality, tiffinfo={278: rows})
    out["predictor"] = saved(scene, compression="tiff_lzw", tiffinfo={317: 2})
    out["pages"] = saved(scene, save_all=True, append_images=[scene.convert("L").resize((9, 9))])
    return out


def jpeg_tiles():
    """Tiles that are whole JPEG files, of every subsampling; the library converts their colours."""
    scene = Image.open(SCENE).convert("RGB").resize((WIDTH, HEIGHT))
    out = {}
    for subsampling, (name, factors) in enumerate({"444": (1, 1), "422": (2, 1), "420": (2, 2)}.items()):
        for place, side in (("tiles", (32, 16)), ("tile", (64, 48))):
            def compress(data, side=side, subsampling=subsampling):
                encoded = io.BytesIO()
                Image.frombytes("RGB", side, data).save(encoded, "JPEG", quality=85, subsampling=subsampling)
                return encoded.getvalue()
            out[f"{name} {place}"] = tiff(WIDTH, HEIGHT, list(scene.tobytes()), photometric=YCBCR, compression=JPEG, tile=side,
                                          compress=compress, tags={530: (3, list(factors))})
    return out


def turned_by_xmp():
    packet = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    return {"xmp": made("rgb", tags={700: (1, list(packet))}), "both": made("rgb", orientation=3, tags={700: (1, list(packet))})}


def folder_of(tmp_path, size):
    """A processor that keeps pictures of this size as they are."""
    folder = tmp_path / f"{size[0]}x{size[1]}"
    folder.mkdir(exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "SiglipImageProcessor", "do_convert_rgb": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "size": {"height": size[1], "width": size[0]}}))
    (folder / "config.json").write_text(json.dumps({"vision_config": {"patch_size": 1}}))
    return folder


def check(tmp_path, files, *extra, alphas=("drop", "white") if RELEASE > 4 else ("drop",)):
    """Compares all files with the processor, in one call for each size of picture."""
    sizes = {}
    for i, (name, data) in enumerate(files.items()):
        path = tmp_path / f"{i}.tif{'f' * (i % 2)}"
        path.write_bytes(data)
        picture = Image.open(path)
        picture.load()
        sizes.setdefault(picture.size, []).append((name, path, picture))
    for alpha, (size, pictures) in itertools.product(alphas, sizes.items()):
        folder = folder_of(tmp_path, size)
        processor = image_processor("siglip", "SiglipImageProcessor", "aten_u8").from_pretrained(folder)
        ours = preprocess(tmp_path, folder, [path for _, path, _ in pictures], "--alpha", alpha, *extra)["pixel_values"]
        for (name, _, picture), values in zip(pictures, ours, strict=True):
            if RELEASE == 4 or alpha == "drop":
                picture = picture.convert("RGB")
            theirs = np.asarray(processor(picture, return_tensors="pt")["pixel_values"], np.float32)[0]
            assert values.shape == theirs.shape, name
            assert np.count_nonzero(values.view(np.uint32) != theirs.view(np.uint32)) == 0, (name, alpha)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_values_of_pillow(tmp_path, name):
    check(tmp_path, grid(name), *(("--sixteen-bit", "clip_grey") if name == "grey-16" else ()))


@pytest.mark.parametrize("files", [saved_by_pillow, jpeg_tiles, turned_by_xmp], ids=lambda files: files.__name__)
def test_files_of_other_writers_have_the_values_of_pillow(tmp_path, files):
    check(tmp_path, files())


REFUSED = {
    "float": ({"photometric": BLACK_IS_ZERO, "bits": 32, "tags": {339: (3, [3])}}, 1), "32 bits": ({"photometric": BLACK_IS_ZERO, "bits": 32}, 1),
    "signed": ({"photometric": BLACK_IS_ZERO, "bits": 16, "tags": {339: (3, [2])}}, 1), "lab": ({"photometric": 8}, 3),
    "ycbcr": ({"photometric": YCBCR}, 3), "zstd": ({"compression": 50000, "compress": bytes}, 3),
    "five samples": ({}, 5), "planes of alpha": ({"separate": True, "extra": [2, 0]}, 5), "white 16": ({"photometric": WHITE_IS_ZERO, "bits": 16}, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layouts_that_are_not_supported_are_named(tmp_path, name):
    options, samples = REFUSED[name]
    path = tmp_path / "picture.tif"
    path.write_bytes(tiff(5, 3, [1] * (15 * samples), **options))
    assert "TIFF: " in (text := refusal(tmp_path, GOLDEN / "processors/siglip", path)) and "supported are" in text


def test_a_file_that_ends_early_is_refused_as_by_pillow(tmp_path):
    for name, data in {"lzw": made("rgb", compression=LZW), "plain": made("rgb"), "jpeg": saved_by_pillow()["jpeg RGB 75"]}.items():
        path = tmp_path / f"{name}.tif"
        for length in (6, 30, len(data) // 2, len(data) - 40):
            path.write_bytes(data[:length])
            with pytest.raises((OSError, SyntaxError, TypeError, KeyError, ValueError)):
                Image.open(path).load()
            assert "TIFF" in refusal(tmp_path, GOLDEN / "processors/siglip", path)
