"""`evenkeel preprocess` against the installed `transformers`, release 4 or 5: every family of pictures, both resamplers,
bit for bit; the audio of the Omni models.

The pictures are the photos beside the tree (EVENKEEL_SHARED, or ../shared), else those of the goldens; every
EVENKEEL_PARITY_EVERY-th of them (19), 1 for all.
"""

import json
import os
import wave

import numpy as np
import pytest

from command import preprocess, refusal
from installed import PROCESSORS, RELEASE, Image, image_processor, media, needed, transformers

pytestmark = needed

# folder: (module of transformers, class without the words for its path)
FAMILIES = {
    "clip": ("clip", "CLIPImageProcessor"),
    "internvl": ("got_ocr2", "GotOcr2ImageProcessor"),
    "llava": ("clip", "CLIPImageProcessor"),
    "llava-pad": ("llava", "LlavaImageProcessor"),
    "qwen2-vl": ("qwen2_vl", "Qwen2VLImageProcessor"),
    "qwen3-vl": ("qwen2_vl", "Qwen2VLImageProcessor"),
    "siglip": ("siglip", "SiglipImageProcessor"),
}
MAX_PIXELS = 1003520  # keeps the largest photos of the Qwen families in memory


def reference(folder, resampler):
    config = json.loads((PROCESSORS / folder / "preprocessor_config.json").read_text())
    config = {key: value for key, value in config.items() if value is not None}
    if folder.startswith("qwen"):
        config["max_pixels"] = MAX_PIXELS
    return image_processor(*FAMILIES[folder], resampler)(**config)


def leaves_conversion(folder):
    """Whether the file leaves it to the caller to convert to RGB, which drops transparency."""
    config = json.loads((PROCESSORS / folder / "preprocessor_config.json").read_text())
    return "do_convert_rgb" in config and config["do_convert_rgb"] is None


def photos():
    every = int(os.environ.get("EVENKEEL_PARITY_EVERY", "19"))
    paths = media("photos", ["pictures/*.png", "pictures/smooth.jpg", "images/*.jpg", "images/rgb*.png", "images/l*.webp"])
    return [path for path in paths if path.suffix in (".jpg", ".jpeg", ".png", ".webp")][::every]


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("folder", FAMILIES)
def test_pixels_equal_transformers_bit_for_bit(tmp_path, folder, resampler):
    processor = reference(folder, resampler)
    wrong = []
    for photo in photos():
        extra = ["--max-pixels", MAX_PIXELS] if folder.startswith("qwen") else []
        image = Image.open(photo)
        if RELEASE == 4:  # drops alpha
            extra += ["--alpha", "drop"]
        if RELEASE == 4 or leaves_conversion(folder):
            image = image.convert("RGB")
        ours = preprocess(tmp_path, PROCESSORS / folder, photo, "--resampler", resampler, *extra)
        theirs = processor(image, return_tensors="pt")
        values = np.ascontiguousarray(theirs["pixel_values"].numpy(), np.float32)
        mine = ours["pixel_values"].reshape(values.shape)
        differ = np.count_nonzero(mine.view(np.uint32) != values.view(np.uint32))
        if differ:
            wrong.append((photo.name, differ, values.size))
        if "image_grid_thw" in theirs:
            assert np.array_equal(ours["image_grid_thw"], theirs["image_grid_thw"]), photo.name
    assert not wrong


def clips(tmp_path):
    rng = np.random.default_rng(7)
    for count in (209, 320, 321, 8000, 16000, 124321, 500800):
        samples = rng.integers(-9000, 9000, count).astype("<i2")
        path = tmp_path / f"{count}.wav"
        with wave.open(str(path), "wb") as out:
            out.setparams((1, 2, 16000, 0, "NONE", None))
            out.writeframes(samples.tobytes())
        yield path, samples.astype(np.float32) / 32768


@pytest.mark.parametrize("folder,padding", [("qwen2_5-omni", "max_length"), ("qwen3-omni", True)])
def test_omni_features_equal_the_extractors(tmp_path, folder, padding):
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(PROCESSORS / folder)
    for path, samples in clips(tmp_path):
        if len(samples) <= 320 and folder == "qwen2_5-omni":  # whose encoder pools two frames away
            assert f"clip of {len(samples)} samples at 16000 Hz is too short for a token" in refusal(
                tmp_path, PROCESSORS / folder, path)
            continue
        ours = preprocess(tmp_path, PROCESSORS / folder, path)
        theirs = extractor(samples, sampling_rate=16000, padding=padding, truncation=padding == "max_length",
                           return_attention_mask=True, return_tensors="np")
        features = theirs["input_features"]
        if folder == "qwen3-omni":
            features = features[0].T
            assert ours["audio_feature_lengths"] == theirs["attention_mask"].sum()
        else:
            assert np.array_equal(ours["feature_attention_mask"], theirs["attention_mask"])
        assert ours["input_features"].shape == features.shape
        assert np.abs(ours["input_features"] - features).max() <= 1e-4  # its path in single precision
