"""Phi-4-multimodal against the processor of the installed `transformers`, release 4 or 5: pictures in tiles, alone and
several in a call, speech, and whole texts with both."""

import importlib
import json
import os
import pathlib
import random
import subprocess
import wave

import numpy as np
import pytest

from command import BINARY, SHARED, preprocess, refusal
from installed import GOLDEN, RELEASE, Image, needed, photos, threads, transformers  # threads: a fixture  # noqa: F401

TOKENIZER = GOLDEN.parent / "tokenizer"
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
PICTURE = GOLDEN / "pictures/scene.png"
# Of the last three, grids of more than 36 tiles are replaced.
SIZES = [(41, 29), (448, 448), (449, 448), (300, 200), (200, 300), (1500, 400), (400, 1499), (896, 897), (2000, 60), (60, 2000), (1121, 1120),
         (2700, 2689), (3600, 900), (500, 4100)]
SMALL = {"size": {"height": 84, "width": 84}, "dynamic_hd": 9, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
VALUES = {"published": {}, "small": SMALL, "odd": {"size": {"height": 70, "width": 70}, "dynamic_hd": 5, "resample": 2},
          "scaled": {"do_normalize": False, "dynamic_hd": 4}}
LENGTHS = [400, 401, 559, 560, 1679, 1680, 16000, 16001, 124321, 700123]

pytestmark = needed


def parts(values=None, speech=None):
    """The image processor and the extractor."""
    module, suffix = ("image_processing_phi4_multimodal", "") if RELEASE == 5 else ("image_processing_phi4_multimodal_fast", "Fast")
    module = importlib.import_module(f"transformers.models.phi4_multimodal.{module}")
    extractor = importlib.import_module("transformers.models.phi4_multimodal.feature_extraction_phi4_multimodal")
    return (getattr(module, f"Phi4MultimodalImageProcessor{suffix}")(**(values or {})),
            extractor.Phi4MultimodalFeatureExtractor(**(speech or {})))


def processor_in(folder, values=None):
    """A processor, which saves its files into `folder`; release 4 writes those of both parts to one place."""
    pictures, speech = parts(values)
    words = (transformers.GPT2TokenizerFast if RELEASE == 4 else transformers.PreTrainedTokenizerFast)(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    words.add_tokens([transformers.AddedToken(token, special=True) for token in ("<|image|>", "<|audio|>")], special_tokens=True)
    words.eos_token = words.pad_token = "<|endoftext|>"
    for name in ("image", "audio"):
        setattr(words, f"{name}_token", f"<|{name}|>")
        setattr(words, f"{name}_token_id", words.convert_tokens_to_ids(f"<|{name}|>"))
    processor = transformers.Phi4MultimodalProcessor(pictures, speech, words)
    folder.mkdir()
    if RELEASE == 5:
        processor.save_pretrained(folder)
    else:
        merged = {**json.loads(pictures.to_json_string()), **json.loads(speech.to_json_string())}
        merged.pop("mel_filters", None)
        (folder / "preprocessor_config.json").write_text(json.dumps(merged))
    return processor


def scene(tmp_path, width, height):
    path = tmp_path / f"{width}x{height}.png"
    Image.open(PICTURE).convert("RGB").resize((width, height)).save(path)
    return path


def opened(path):
    return Image.open(path).convert("RGB") if RELEASE == 4 else Image.open(path)


def differing(tmp_path, folder, processor, paths):
    """The values that differ from those of a call with all pictures; its padding is left out."""
    theirs = processor.image_processor([opened(path) for path in paths], return_tensors="pt")
    ours = preprocess(tmp_path, folder, paths, "--resampler", "aten_u8", *(["--alpha", "drop"] if RELEASE == 4 else []))
    assert np.array_equal(ours["image_sizes"].reshape(-1, 2), theirs["image_sizes"].numpy())
    first = wrong = 0
    for pixels, mask, (height, width) in zip(theirs["image_pixel_values"].numpy(), theirs["image_attention_mask"].numpy(),
                                             theirs["image_sizes"].tolist()):
        tiles = 1 + height * width // pixels.shape[-1] ** 2
        assert np.array_equal(ours["image_attention_mask"][first : first + tiles], mask[:tiles])
        mine = ours["image_pixel_values"][first : first + tiles]
        wrong += np.count_nonzero(mine.view(np.uint32) != np.ascontiguousarray(pixels[:tiles]).view(np.uint32))
        first += tiles
    assert first == len(ours["image_pixel_values"])
    return wrong


@pytest.mark.parametrize("name", VALUES)
def test_pictures_of_odd_sizes_are_those_of_the_processor(tmp_path, name):
    processor = processor_in(tmp_path / "folder", VALUES[name])
    for width, height in SIZES:
        assert differing(tmp_path, tmp_path / "folder", processor, [scene(tmp_path, width, height)]) == 0, (width, height)


def test_several_pictures_of_a_call_are_each_as_alone(tmp_path):
    processor = processor_in(tmp_path / "folder", SMALL)
    assert differing(tmp_path, tmp_path / "folder", processor, [scene(tmp_path, *size) for size in SIZES[:7]]) == 0


@pytest.mark.skipif(not (SHARED / "media/photos").exists(), reason="no photos next to the tree")
@pytest.mark.parametrize("name", ["published", "small"])
def test_photos_are_those_of_the_processor(tmp_path, name):
    processor = processor_in(tmp_path / "folder", VALUES[name])
    paths = photos()
    assert [path for path in paths if differing(tmp_path, tmp_path / "folder", processor, [path])] == []
    print(f"phi4 {name}: {len(paths)} photos are equal")


def test_pictures_that_the_processor_fails_on_are_refused(tmp_path):
    processor = processor_in(tmp_path / "folder")
    path = scene(tmp_path, 3000, 9)
    with pytest.raises(ValueError, match="very extreme"):
        processor.image_processor(opened(path), return_tensors="pt")
    assert "below 10 pixels" in refusal(tmp_path, tmp_path / "folder", path)
    assert "torchvision only" in refusal(tmp_path, tmp_path / "folder", path, "--resampler", "pil13")


def clip(tmp_path, count):
    rng = np.random.default_rng(count)
    samples = (rng.integers(-9000, 9000, count) * np.sin(np.arange(count) / 9000)).astype("<i2")
    path = tmp_path / f"{count}.wav"
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", None))
        out.writeframes(samples.tobytes())
    return path, samples.astype(np.float32) / 32768


@pytest.mark.parametrize("values", [{}, {"feature_size": 128, "audio_compression_rate": 4, "audio_downsample_rate": 3}])
def test_speech_is_that_of_the_extractor(tmp_path, values):
    _, extractor = parts(speech=values)
    extractor.save_pretrained(tmp_path / "folder")
    worst = 0.0
    for count in LENGTHS:
        path, samples = clip(tmp_path, count)
        theirs = extractor(samples, sampling_rate=16000, return_tensors="pt")
        ours = preprocess(tmp_path, tmp_path / "folder", path)
        features = theirs["audio_input_features"][0].numpy()
        assert ours["audio_embed_sizes"].item() == int(theirs["audio_embed_sizes"][0]), count
        assert ours["audio_input_features"].shape == features.shape, count
        # Logarithms of up to 31, whose unit in the last place is 2e-6.
        worst = max(worst, float((np.abs(ours["audio_input_features"] - features) / np.maximum(np.abs(features), 1)).max()))
    print(f"phi4 speech: at most {worst:.1e} of the value from the extractor over {len(LENGTHS)} clips")
    assert worst <= 1e-6
    assert "too short for one frame" in refusal(tmp_path, tmp_path / "folder", clip(tmp_path, 399)[0])


def test_files_of_the_processor_load_for_both_media(tmp_path):
    processor_in(tmp_path / "folder")
    assert sorted(preprocess(tmp_path, tmp_path / "folder", PICTURE)) == ["image_attention_mask", "image_pixel_values", "image_sizes"]
    assert sorted(preprocess(tmp_path, tmp_path / "folder", clip(tmp_path, 16000)[0])) == ["audio_embed_sizes", "audio_input_features"]


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", VALUES)
def test_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = processor_in(folder, VALUES[name])
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "audio": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for turn in range(12):
        text, content, facts, pictures, clips = "", [], [], [], []
        media = [generator.choice(["image", "audio"]) for _ in range(generator.randrange(1, 5))] + (["image", "audio"] if turn % 2 else [])
        for medium in media:
            said = generator.choice(["Hello", "What's it?\n", " ", "船が", ""])
            text += f"{said}<|{medium}|>"
            content += [{"type": "text", "text": said}, {"type": medium}]
            if medium == "image":
                sides = [generator.randrange(20, generator.choice([400, 1600])) for _ in "wh"]
                facts.append(dict(zip(("width", "height"), sides)))
                pictures.append(Image.new("RGB", sides))
            else:
                count = generator.randrange(400, 90000)
                facts.append({"sample_rate": 16000, "samples": count})
                clips.append(np.zeros(count, np.float32))
        content.append({"type": "text", "text": " end"})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text + " end"], images=pictures or None, audio=clips or None)
        ids = np.asarray(out["input_ids"]).reshape(-1)
        wanted.append([int(token) for token in ids] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
