"""The speech of Gemma 3n and Gemma 4 against the processors of the installed `transformers`, release 4 or 5 (4.57 has Gemma 3n
alone): features, masks, and whole sequences of clips and pictures.

Gemma 3n's window is a cosine of f32, which NumPy computes otherwise on a CPU without fused multiply-adds; there its own
features are others in quiet bands.
"""

import json
import pathlib
import random
import subprocess
import sys
import wave

import numpy as np
import pytest

from command import BINARY, preprocess, refusal
from installed import GOLDEN, RELEASE, Image, needed
from test_parity_gemma4 import family as gemma4_family
from test_parity_recent import FAMILIES, PICTURE, PROGRAM, TOKENIZER, draw_text, made

GEMMA3N, GEMMA4 = "Gemma3nAudioFeatureExtractor", "Gemma4AudioFeatureExtractor"
# What `save_pretrained` writes is read again without the lengths in milliseconds, which it leaves out.
CASES = [(GEMMA3N, {}), (GEMMA3N, {"feature_size": 80, "fft_overdrive": False, "preemphasis_htk_flavor": False, "input_scale_factor": 0.3}),
         (GEMMA3N, {"frame_length_ms": 25.0, "hop_length_ms": 12.5, "preemphasis": 0.0, "min_frequency": 0.0, "mel_floor": 1e-3}),
         (GEMMA3N, {"per_bin_mean": list(np.linspace(-3, 1, 128)), "per_bin_stddev": list(np.linspace(2, 3, 128))}),
         (GEMMA4, {}), (GEMMA4, {"frame_length_ms": 31.0, "hop_length_ms": 7.0, "preemphasis": 0.9, "fft_overdrive": True})]
FUSED = np.cos(np.full(16, 0.45405832, np.float32))[0] == np.float32(0.8986744)
LENGTHS = [641, 800, 801, 16000, 16127, 40001, 124321]
sys.path.insert(0, str(pathlib.Path(BINARY).parents[1] / "python"))
inputs = pytest.importorskip("evenkeel.inputs")
torch = pytest.importorskip("torch")
pytestmark = needed


def extractor_of(kind):
    module = {GEMMA3N: "gemma3n", GEMMA4: "gemma4"}[kind]
    if module == "gemma4" and RELEASE == 4:
        pytest.skip("4.57 has no Gemma 4")
    return getattr(__import__(f"transformers.models.{module}.feature_extraction_{module}", fromlist=[kind]), kind)


def written(tmp_path, name, samples):
    path = tmp_path / f"{name}.wav"
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", None))
        out.writeframes(samples.astype("<i2").tobytes())
    return path, samples.astype(np.float32) / 32768


def clip(tmp_path, count):
    rng = np.random.default_rng(count)
    return written(tmp_path, count, (rng.integers(-9000, 9000, count) * np.sin(np.arange(count) / 9000)).astype("<i2"))


def most_apart(kind):
    return 1e-6 if kind == GEMMA4 or FUSED else 2e-3


def folder_of(tmp_path, kind, values):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_extractor_type": kind, **values}))
    return folder


def distance(tmp_path, folder, extractor, path, samples):
    """How far our features are from those that a call's mask keeps, which are its first."""
    theirs = extractor([samples], return_tensors="np")
    ours = preprocess(tmp_path, folder, path)
    assert sorted(ours) == ["audio_feature_lengths", "input_features"]
    mask = theirs["input_features_mask"][0]
    kept = int(mask.sum())
    assert mask[:kept].all() and ours["audio_feature_lengths"].tolist() == [kept], path
    assert not theirs["input_features"][0, kept:].any(), "padding"
    assert ours["input_features"].shape == (kept, theirs["input_features"].shape[-1]), path
    return float(np.abs(ours["input_features"] - theirs["input_features"][0, :kept]).max())


@pytest.mark.parametrize("kind,values", CASES, ids=range(len(CASES)))
def test_features_are_those_of_the_extractor(tmp_path, kind, values):
    extractor, folder = extractor_of(kind)(**values), folder_of(tmp_path, kind, values)
    worst = max(distance(tmp_path, folder, extractor, *clip(tmp_path, count)) for count in LENGTHS)
    print(f"{kind}: at most {worst:.1e} from the extractor over {len(LENGTHS)} clips")
    assert worst <= most_apart(kind)


@pytest.mark.parametrize("kind", [GEMMA3N, GEMMA4])
def test_quiet_bands_and_long_clips_are_its(tmp_path, kind):
    extractor, folder = extractor_of(kind)(), folder_of(tmp_path, kind, {})
    time = np.arange(30000) / 16000
    for name, samples in {"silence": np.zeros(30001), "hum": np.round(3 * np.sin(np.arange(30000) / 9)), "tone": 20000 * np.sin(2764 * time),
                          "end": np.concatenate([9000 * np.sin(999 * time), np.full(9000, 77)]), "long": 900 * np.sin(np.arange(480001) / 77)}.items():
        assert distance(tmp_path, folder, extractor, *written(tmp_path, name, samples.round().astype("<i2"))) <= most_apart(kind), name
    assert "too short for one frame" in refusal(tmp_path, folder, clip(tmp_path, {GEMMA3N: 512, GEMMA4: 160}[kind])[0])


def test_a_saved_extractor_is_read_as_transformers_reads_it(tmp_path):
    extractor_of(GEMMA3N)(frame_length_ms=20.0, per_bin_mean=list(range(128))).save_pretrained(tmp_path / "folder")
    extractor = extractor_of(GEMMA3N).from_pretrained(tmp_path / "folder")
    assert extractor.frame_length == 512
    assert distance(tmp_path, tmp_path / "folder", extractor, *clip(tmp_path, 9001)) <= 1e-5  # values of up to 140


def tower_of(kind):
    """An encoder with weights of random numbers: clips and their mask -> rows of each clip."""
    torch.manual_seed(0)
    if kind == GEMMA4:
        modeling, own = "gemma4", lambda module: (module.Gemma4AudioModel, module.Gemma4AudioConfig(
            hidden_size=32, num_attention_heads=4, num_hidden_layers=1))
    else:
        modeling, own = "gemma3n", lambda module: (module.Gemma3nAudioEncoder, module.Gemma3nAudioConfig(
            hidden_size=32, conf_num_attention_heads=4, conf_num_hidden_layers=1))
    model, config = own(__import__(f"transformers.models.{modeling}.modeling_{modeling}", fromlist=["Gemma"]))
    made = model(config).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)

    def rows(clips, mask):
        with torch.no_grad():
            out = made(clips, mask if kind == GEMMA4 else ~mask)
        if kind == GEMMA4:
            return [clip[kept] for clip, kept in zip(out.last_hidden_state, out.attention_mask)]
        values, left_out = (out.last_hidden_state, out.audio_mel_mask) if RELEASE == 5 else out
        return [clip[~left] for clip, left in zip(values, left_out)]
    return rows


class Forward(torch.nn.Module):
    def forward(self, input_features, input_features_mask):
        raise NotImplementedError


@pytest.mark.parametrize("kind", [GEMMA3N, GEMMA4])
def test_the_tower_makes_of_stacked_clips_what_it_makes_of_each(tmp_path, kind):
    extractor, folder, tower = extractor_of(kind)(), folder_of(tmp_path, kind, {}), tower_of(kind)
    clips = [clip(tmp_path, count) for count in (16000, 40320, 24000, 801)]
    fields = preprocess(tmp_path, folder, [path for path, _ in clips])
    out = {name: torch.from_numpy(value.copy()) for name, value in fields.items()}
    inputs._stack_clips(out, fields, Forward())
    ours = tower(out["input_features"], out["input_features_mask"])
    for (_, samples), rows, frames in zip(clips, ours, fields["audio_feature_lengths"]):
        alone = extractor([samples], return_tensors="pt")
        [theirs] = tower(alone["input_features"], torch.as_tensor(alone["input_features_mask"]).bool())
        assert len(rows) == len(theirs) == (-(-frames // 4) if kind == GEMMA4 else -(-frames // 16))
        same = len(rows) - (kind == GEMMA3N)  # the convolutions of its last row see what follows, which its mask does not hide
        assert torch.allclose(rows[:same], theirs[:same], rtol=0, atol=1e-4)


def processor_of(name, folder):
    """The processor, whose files lie in `folder`: of release 4 its parts in one, as published."""
    if name == "gemma4" and RELEASE == 4:
        pytest.skip("4.57 has no Gemma 4")
    made_by = FAMILIES["gemma3n"] if name == "gemma3n" else gemma4_family(video={"num_frames": 4})
    processor = made(made_by, "pil13" if RELEASE == 4 else "aten_u8", folder)
    if RELEASE == 4:
        parts = {**json.loads(processor.image_processor.to_json_string()), **json.loads(processor.feature_extractor.to_json_string())}
        (folder / "preprocessor_config.json").write_text(json.dumps(parts))
    return processor


@pytest.mark.parametrize("name", ["gemma3n", "gemma4"])
def test_files_of_the_processor_load_for_both_media(tmp_path, name):
    processor_of(name, tmp_path / "folder")
    assert "pixel_values" in preprocess(tmp_path, tmp_path / "folder", PICTURE)
    assert "input_features" in preprocess(tmp_path, tmp_path / "folder", GOLDEN / "audio/voice.wav")


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", ["gemma3n", "gemma4"])
def test_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = processor_of(name, folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "audio": str(folder), "chat": "plain", "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for turn in range(12):
        text, content, facts, pictures, clips = "", [], [], [], []
        media = [generator.choice(["image", "audio"]) for _ in range(generator.randrange(1, 4))] + (["image", "audio", "audio"] if turn % 2 else [])
        for medium in media:
            said = draw_text(generator)
            text += said + getattr(processor, f"{medium}_token")
            content += [{"type": "text", "text": said}, {"type": medium}]
            if medium == "image":
                facts.append({"width": generator.randrange(20, 900), "height": generator.randrange(20, 900)})
                pictures.append(Image.new("RGB", (facts[-1]["width"], facts[-1]["height"])))
            else:
                facts.append({"sample_rate": 16000, "samples": generator.choice([700, 5121, generator.randrange(700, 90000), 500000])})
                clips.append(np.zeros(facts[-1]["samples"], np.float32))
        said = draw_text(generator)
        content.append({"type": "text", "text": said})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text + said], images=[pictures] if pictures else None, audio=clips or None, text_kwargs={"padding": False})
        wanted.append([int(token) for token in np.asarray(out["input_ids"]).reshape(-1)] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True, text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
