"""`evenkeel preprocess` against the installed `transformers`: every family of pictures, both resamplers, bit for bit; the
audio of the Omni models.

Needs the binary (EVENKEEL_BIN, or build/release/cli/evenkeel), the media beside the tree (EVENKEEL_SHARED, or ../shared),
and a Python with transformers 5, torch, torchvision and Pillow 13; skips where any is missing.
"""

import json
import os
import wave

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
PIL = pytest.importorskip("PIL")
transformers = pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("torchvision")

from command import BINARY, ROOT, SHARED, preprocess, refusal  # noqa: E402

GOLDEN = ROOT / "tests/golden/data/processors"
Image.MAX_IMAGE_PIXELS = None

pytestmark = [
    pytest.mark.skipif(not BINARY.exists(), reason=f"no binary at {BINARY}"),
    pytest.mark.skipif(not (SHARED / "media").exists(), reason=f"no media at {SHARED}"),
    pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="Pillow orders its passes otherwise before 13"),
]

# folder: (module of transformers, class of its torchvision path)
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
    model, name = FAMILIES[folder]
    module = f"image_processing_{model}" if resampler == "aten_u8" else f"image_processing_pil_{model}"
    space = __import__(f"transformers.models.{model}.{module}", fromlist=["*"])
    config = json.loads((GOLDEN / folder / "preprocessor_config.json").read_text())
    config = {key: value for key, value in config.items() if value is not None}
    if folder.startswith("qwen"):
        config["max_pixels"] = MAX_PIXELS
    return getattr(space, name if resampler == "aten_u8" else name + "Pil")(**config)


def photos():
    every = int(os.environ.get("EVENKEEL_PARITY_EVERY", "9"))  # 1: all of them
    paths = sorted((SHARED / "media/photos").glob("*")) if SHARED.exists() else []
    return [path for path in paths if path.suffix != ".gif"][::every]


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("folder", FAMILIES)
def test_pixels_equal_transformers_bit_for_bit(tmp_path, folder, resampler):
    processor = reference(folder, resampler)
    wrong = []
    for photo in photos():
        extra = ["--max-pixels", MAX_PIXELS] if folder.startswith("qwen") else []
        ours = preprocess(tmp_path, GOLDEN / folder, photo, "--resampler", resampler, *extra)
        theirs = processor(Image.open(photo), return_tensors="np")
        values = np.ascontiguousarray(theirs["pixel_values"], np.float32)
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
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(GOLDEN / folder)
    for path, samples in clips(tmp_path):
        if len(samples) <= 320 and folder == "qwen2_5-omni":  # whose encoder pools two frames away
            assert f"clip of {len(samples)} samples at 16000 Hz is too short for a token" in refusal(
                tmp_path, GOLDEN / folder, path)
            continue
        ours = preprocess(tmp_path, GOLDEN / folder, path)
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
