"""Pictures in formats other than JPEG, PNG and WebP against Pillow and the installed `transformers`, bit for bit: GIF. And the
filters that few checkpoints name."""

import io
import json

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, RELEASE, Image, image_processor, needed

pytestmark = needed
SCENE = GOLDEN / "images/scene.png"


def gif(picture, **options):
    out = io.BytesIO()
    picture.save(out, "GIF", **options)
    return bytearray(out.getvalue())


def pictures():
    """{name: bytes}"""
    scene = Image.open(SCENE).convert("RGB").resize((61, 47))
    palette = scene.quantize(200)
    few = scene.quantize(5)
    wide = Image.new("P", (90, 70), 3)
    wide.putpalette(few.getpalette())
    made = {
        "plain": gif(palette, interlace=0), "interlaced": gif(palette, interlace=1), "few": gif(few), "grey": gif(scene.convert("L")),
        "two": gif(scene.convert("1")), "transparent": gif(palette, transparency=palette.getpixel((5, 5))),
        "animated": gif(palette, save_all=True, append_images=[few, scene.quantize(9)], duration=40),
        "grey-transparent": gif(scene.convert("L"), transparency=100),
    }
    # A frame that does not fill the screen: with and without a transparent colour; and one that is larger than it.
    for name in ("few", "transparent"):
        data = bytearray(made[name])
        data[6:10] = (90).to_bytes(2, "little") + (70).to_bytes(2, "little")
        at = data.index(b",\0\0\0\0")
        data[at + 1 : at + 5] = (7).to_bytes(2, "little") + (11).to_bytes(2, "little")
        made[f"{name}-within"] = data
    data = bytearray(made["plain"])
    data[6:10] = (20).to_bytes(2, "little") * 2
    made["larger"] = data
    # Without a palette an index is a grey; a palette of fewer colours than are used.
    data = bytearray(made["plain"])
    table = 3 << ((data[10] & 7) + 1)
    made["no-palette"] = data[:10] + bytes([data[10] & 0x7F]) + data[11:13] + data[13 + table :]
    made["short-palette"] = data[:10] + bytes([data[10] & 0xF8 | 2]) + data[11 : 13 + 24] + data[13 + table :]
    return made


def both(tmp_path, data, resampler, *extra):
    path = tmp_path / "picture.gif"
    path.write_bytes(data)
    image = Image.open(path)
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    # Of the picture's own size, so that nothing is resized.
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "SiglipImageProcessor", "do_convert_rgb": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "size": {"height": image.size[1], "width": image.size[0]}}))
    (folder / "config.json").write_text(json.dumps({"vision_config": {"patch_size": 1}}))
    processor = image_processor("siglip", "SiglipImageProcessor", resampler).from_pretrained(folder)
    ours = preprocess(tmp_path, folder, path, "--resampler", resampler, *extra)["pixel_values"]
    if RELEASE == 4 or "drop" in extra:
        image = image.convert("RGB")
        image.info.pop("transparency", None)
    return ours, np.asarray(processor(image, return_tensors="pt")["pixel_values"], np.float32)


@pytest.mark.parametrize("name", sorted(pictures()))
def test_a_gif_is_its_first_frame_as_pillow_opens_it(tmp_path, name):
    for alpha in ("drop", "white") if RELEASE > 4 else ("drop",):
        ours, theirs = both(tmp_path, pictures()[name], "aten_u8", "--alpha", alpha)
        assert ours.shape == theirs.shape
        assert np.count_nonzero(ours.view(np.uint32) != theirs.view(np.uint32)) == 0, alpha


def test_a_gif_that_ends_early_is_refused_as_by_pillow(tmp_path):
    data = pictures()["plain"]
    for length in (12, 300, len(data) // 2, len(data) - 40):
        path = tmp_path / f"{length}.gif"
        path.write_bytes(data[:length])
        with pytest.raises((OSError, SyntaxError, EOFError, IndexError)):
            Image.open(path).load()
        assert "GIF" in refusal(tmp_path, GOLDEN / "processors/siglip", path)


@pytest.mark.parametrize("resampler,resample", [("aten_u8", 0), ("pil13", 0), ("pil13", 4), ("pil13", 5)])
def test_rare_filters_are_those_of_the_processor(tmp_path, resampler, resample):
    folder = tmp_path / "folder"
    folder.mkdir()
    for (width, height), (wide, high) in (((97, 61), (28, 42)), ((40, 33), (140, 98)), ((640, 480), (224, 224)), ((333, 70), (56, 70))):
        path = tmp_path / "picture.png"
        Image.open(SCENE).convert("RGB").resize((width, height)).save(path)
        (folder / "preprocessor_config.json").write_text(json.dumps({
            "image_processor_type": "SiglipImageProcessor", "resample": resample, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
            "size": {"height": high, "width": wide}}))
        (folder / "config.json").write_text(json.dumps({"vision_config": {"patch_size": 14}}))
        processor = image_processor("siglip", "SiglipImageProcessor", resampler).from_pretrained(folder)
        theirs = np.asarray(processor(Image.open(path), return_tensors="pt")["pixel_values"], np.float32)
        ours = preprocess(tmp_path, folder, path, "--resampler", resampler)["pixel_values"]
        assert ours.shape == theirs.shape
        assert np.count_nonzero(ours.view(np.uint32) != theirs.view(np.uint32)) == 0, (width, height, wide, high)


@pytest.mark.parametrize("resample", [4, 5])
def test_filters_that_torchvision_lacks_are_refused(tmp_path, resample):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "SiglipImageProcessor", "resample": resample}))
    assert "Pillow's filters" in refusal(tmp_path, tmp_path, SCENE, "--resampler", "aten_u8")
