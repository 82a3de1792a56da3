"""`evenkeel preprocess` against Pillow and numpy, value by value.

Needs the binary (EVENKEEL_BIN, or build/release/cli/evenkeel) and the media next to the tree (EVENKEEL_SHARED, or
../shared); skips where either is missing. The references below are written from the published rules; where
`transformers` can be imported, its own extractor is compared too.
"""

import json
import math
import wave

import numpy as np
import pytest

import command
from command import BINARY, SHARED

PIL = pytest.importorskip("PIL")
Image = pytest.importorskip("PIL.Image")

Image.MAX_IMAGE_PIXELS = None

pytestmark = [
    pytest.mark.skipif(not BINARY.exists(), reason=f"no binary at {BINARY}"),
    pytest.mark.skipif(not (SHARED / "media").exists(), reason=f"no media at {SHARED}"),
]


def preprocess(tmp_path, processor, media, *arguments):
    if "--resampler" not in arguments:
        arguments += ("--resampler", "pil")
    return command.preprocess(tmp_path, SHARED / "processors" / processor, media, *arguments)


def smart_resize(height, width, factor, min_pixels, max_pixels):
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        h = max(factor, math.floor(height / beta / factor) * factor)
        w = max(factor, math.floor(width / beta / factor) * factor)
    elif h * w < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        h = math.ceil(height * beta / factor) * factor
        w = math.ceil(width * beta / factor) * factor
    return h, w


def flatten(pixels, patch, merge, frames):
    """[C, H, W] -> rows of patches."""
    c, height, width = pixels.shape
    gh, gw = height // patch, width // patch
    stack = np.broadcast_to(pixels, (frames, c, height, width))
    stack = stack.reshape(1, frames, c, gh // merge, merge, patch, gw // merge, merge, patch)
    return stack.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(gh * gw, c * frames * patch * patch), (1, gh, gw)


def resize(image, width, height):
    """Rows, then columns. Later releases than Debian's take the other order where it is less work."""
    return image.resize((width, image.height), Image.BICUBIC).resize((width, height), Image.BICUBIC)


def qwen2_vl(path, config, max_pixels=None):
    image = Image.open(path).convert("RGB")
    patch, merge, frames = config["patch_size"], config["merge_size"], config["temporal_patch_size"]
    least = config.get("min_pixels") or config["size"]["shortest_edge"]
    most = max_pixels or config.get("max_pixels") or config["size"]["longest_edge"]
    h, w = smart_resize(image.height, image.width, patch * merge, least, most)
    image = np.asarray(resize(image, w, h))
    scaled = (image.astype(np.float64) * (1 / 255)).astype(np.float32)
    scaled = (scaled - np.array(config["image_mean"], np.float32)) / np.array(config["image_std"], np.float32)
    return flatten(scaled.transpose(2, 0, 1), patch, merge, frames) + (image,)


def config_of(name):
    return json.loads((SHARED / "processors" / name / "preprocessor_config.json").read_text())


PHOTOS = sorted((SHARED / "media/photos").glob("*")) if SHARED.exists() else []


@pytest.mark.parametrize("photo", PHOTOS, ids=lambda path: path.name)
def test_photo_equals_pillow_bit_for_bit(tmp_path, photo):
    config = config_of("qwen2_5-vl")
    # The cap keeps the largest in memory; one photo below goes without.
    rows, grid, _ = qwen2_vl(photo, config, max_pixels=1003520)
    tensors = preprocess(tmp_path, "qwen2_5-vl", photo, "--max-pixels", 1003520)
    assert tuple(tensors["image_grid_thw"][0]) == grid
    assert tensors["pixel_values"].shape == rows.shape
    assert np.count_nonzero(tensors["pixel_values"].view(np.uint32) != rows.view(np.uint32)) == 0


def test_a_large_photo_equals_pillow_at_the_checkpoints_size(tmp_path):
    photo = next(path for path in PHOTOS if path.stem.endswith("1622x2880"))
    rows, grid, _ = qwen2_vl(photo, config_of("qwen2_5-vl"))
    tensors = preprocess(tmp_path, "qwen2_5-vl", photo)
    assert tuple(tensors["image_grid_thw"][0]) == grid
    assert np.array_equal(tensors["pixel_values"].view(np.uint32), rows.view(np.uint32))


def test_patches_of_sixteen_with_another_mean(tmp_path):
    photo = PHOTOS[0]
    rows, grid, _ = qwen2_vl(photo, config_of("qwen3-vl"))
    tensors = preprocess(tmp_path, "qwen3-vl", photo)
    assert tuple(tensors["image_grid_thw"][0]) == grid
    assert np.array_equal(tensors["pixel_values"].view(np.uint32), rows.view(np.uint32))


def planned_size(photo, config, most=1003520):
    image = Image.open(photo).convert("RGB")  # which drops transparency
    factor = config["patch_size"] * config["merge_size"]
    h, w = smart_resize(image.height, image.width, factor, config["min_pixels"], most)
    return image, h, w


@pytest.mark.parametrize("photo", PHOTOS[::4], ids=lambda path: path.name)
def test_the_installed_pillow_is_one_of_the_two(tmp_path, photo):
    """pil up to release 12, pil13 since: Image.resize itself, not the passes one by one."""
    config = config_of("qwen2_5-vl")
    image, h, w = planned_size(photo, config)
    name = "pil13" if int(PIL.__version__.split(".")[0]) >= 13 else "pil"
    expected, _ = flatten(np.asarray(image.resize((w, h), Image.BICUBIC)).transpose(2, 0, 1), 14, 2, 1)
    options = ("--max-pixels", 1003520, "--wire", "u8", "--resampler", name, "--alpha", "drop")
    assert np.array_equal(preprocess(tmp_path, "qwen2_5-vl", photo, *options)["pixel_values"], expected)


@pytest.mark.parametrize("photo", PHOTOS[::4], ids=lambda path: path.name)
def test_aten_u8_equals_the_installed_torchvision(tmp_path, photo):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchvision.transforms.v2.functional")  # with antialiased uint8
    if int(torch.__version__.split(".")[0]) < 2:
        pytest.skip("torch before 2.1 resizes bytes in floating point")
    config = config_of("qwen2_5-vl")
    image, h, w = planned_size(photo, config)
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    resized = functional.resize(tensor, [h, w], interpolation=functional.InterpolationMode.BICUBIC, antialias=True)
    expected, _ = flatten(resized.numpy(), 14, 2, 1)
    options = ("--max-pixels", 1003520, "--wire", "u8", "--resampler", "aten_u8", "--alpha", "drop")
    assert np.array_equal(preprocess(tmp_path, "qwen2_5-vl", photo, *options)["pixel_values"], expected)


def test_the_other_wire_forms_say_the_same(tmp_path):
    config = config_of("qwen2-vl")
    rows, _, image = qwen2_vl(PHOTOS[0], config)
    tensors = preprocess(tmp_path, "qwen2-vl", PHOTOS[0], "--wire", "u8")
    expected, _ = flatten(image.transpose(2, 0, 1), config["patch_size"], config["merge_size"], 1)
    assert np.array_equal(tensors["pixel_values"], expected)
    bits = rows.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    tensors = preprocess(tmp_path, "qwen2-vl", PHOTOS[0], "--wire", "bf16")
    assert np.array_equal(tensors["pixel_values"], rounded)


def mel_filters(num_mels):
    def to_mel(f):
        return 3 * f / 200 if f < 1000 else 15 + 27 * math.log(f / 1000) / math.log(6.4)

    def to_hertz(m):
        return 200 * m / 3 if m < 15 else 1000 * math.exp(math.log(6.4) / 27 * (m - 15))

    edges = np.array([to_hertz(m) for m in np.linspace(0, to_mel(8000), num_mels + 2)])
    bins = np.linspace(0, 8000, 201)
    slopes = edges[None, :] - bins[:, None]
    step = np.diff(edges)
    bank = np.maximum(0, np.minimum(-slopes[:, :-2] / step[:-1], slopes[:, 2:] / step[1:]))
    return bank * (2 / (edges[2:] - edges[:-2]))[None, :]


def log_mel(samples, num_mels):
    """The numpy path of WhisperFeatureExtractor for mono f32 at 16 kHz."""
    padded = np.zeros(480000, np.float32)
    padded[: min(len(samples), 480000)] = samples[:480000]
    wave64 = np.pad(padded.astype(np.float64), 200, mode="reflect")
    window = np.hanning(401)[:-1]
    frames = np.lib.stride_tricks.sliding_window_view(wave64, 400)[::160]
    spectrum = np.fft.rfft(frames * window).astype(np.complex64)
    power = np.abs(spectrum, dtype=np.float64).T ** 2
    mel = np.log10(np.maximum(1e-10, mel_filters(num_mels).T @ power)).astype(np.float32)[:, :-1]
    mel = np.maximum(mel, mel.max() - 8.0)
    return (mel + 4.0) / 4.0


def write_wav(path, samples):
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(samples.astype("<i2").tobytes())


def clips():
    """Recorded prompts of 8 kHz, taken as if they were of 16 kHz: no resampler is involved."""
    for path in sorted((SHARED / "media/speech").glob("*.wav"))[::10]:
        with wave.open(str(path), "rb") as clip:
            yield path.stem, np.frombuffer(clip.readframes(clip.getnframes()), "<i2")
    rng = np.random.default_rng(7)
    yield "noise-31s", rng.integers(-20000, 20000, 31 * 16000).astype(np.int16)
    yield "noise-30s", rng.integers(-20000, 20000, 30 * 16000).astype(np.int16)
    yield "chirp", (20000 * np.sin(np.arange(160000) ** 2 * 1e-5)).astype(np.int16)
    yield "silence", np.zeros(20001, np.int16)
    yield "short", rng.integers(-3, 3, 481).astype(np.int16)


@pytest.mark.parametrize("processor", ["whisper-large-v3", "qwen2-audio"])
def test_log_mel_is_within_a_millionth(tmp_path, processor):
    worst = 0.0
    for name, samples in clips():
        path = tmp_path / f"{name}.wav"
        write_wav(path, samples)
        tensors = preprocess(tmp_path, processor, path)
        expected = log_mel(samples.astype(np.float32) / 32768, config_of(processor)["feature_size"])
        worst = max(worst, np.abs(tensors["input_features"][0] - expected).max())
        mask = np.zeros(480000, np.int64)
        mask[: len(samples)] = 1
        assert np.array_equal(tensors["feature_attention_mask"][0], mask[::160]), name
    assert worst <= 1e-6


def test_log_mel_equals_the_installed_extractor(tmp_path):
    transformers = pytest.importorskip("transformers")
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    for name, samples in clips():
        path = tmp_path / f"{name}.wav"
        write_wav(path, samples)
        tensors = preprocess(tmp_path, "qwen2-audio", path)
        expected = extractor(
            samples.astype(np.float32) / 32768,
            sampling_rate=16000,
            return_attention_mask=True,
            padding="max_length",
            return_tensors="np",
        )
        assert np.abs(tensors["input_features"] - expected["input_features"]).max() <= 1e-4  # its torch path
        assert np.array_equal(tensors["feature_attention_mask"], expected["attention_mask"]), name


def test_recorded_speech_is_resampled_to_its_length(tmp_path):
    for path in sorted((SHARED / "media/speech").glob("*.wav"))[::20]:
        with wave.open(str(path), "rb") as clip:
            samples = 2 * clip.getnframes()
        tensors = preprocess(tmp_path, "qwen2-audio", path)
        assert tensors["feature_attention_mask"].sum() == min(3000, -(-samples // 160))
        assert np.isfinite(tensors["input_features"]).all()
