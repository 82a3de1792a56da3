"""Families of sound with another processor than Whisper's (Voxtral, Audio Flamingo 3, GLM-ASR, Qwen3-ASR) against the
processors of the installed `transformers`: features, masks, tokens of clips of many lengths, and what stands in the text."""

import json
import os
import pathlib
import subprocess
import sys
import wave

import numpy as np
import pytest

from command import BINARY, preprocess, refusal
from installed import GOLDEN, RELEASE, needed, transformers

torch = pytest.importorskip("torch")

pytestmark = [*needed, pytest.mark.skipif(RELEASE == 4, reason="has not all of them")]

TOKENIZER = GOLDEN.parent / "tokenizer"
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
# name: (processor, its values, extractor's class and values, special tokens, what a template writes for a clip)
FAMILIES = {
    "audioflamingo3": ("AudioFlamingo3Processor", {}, ("WhisperFeatureExtractor", {"feature_size": 128}), {"audio": "<sound>"}, "<sound>"),
    "audioflamingo3-short": ("AudioFlamingo3Processor", {"max_audio_len": 50}, ("WhisperFeatureExtractor", {"feature_size": 80, "chunk_length": 20}),
                             {"audio": "<sound>"}, "<sound>"),
    "glmasr": ("GlmAsrProcessor", {}, ("WhisperFeatureExtractor", {"feature_size": 128}),
               {"audio": "<|pad|>", "begin": "<|begin_of_audio|>", "end": "<|end_of_audio|>"}, "<|begin_of_audio|><|pad|><|end_of_audio|>"),
    "qwen3-asr": ("Qwen3ASRProcessor", {}, ("Qwen3ASRFeatureExtractor", {}),
                  {"audio": "<|audio_pad|>", "audio_bos": "<|audio_start|>", "audio_eos": "<|audio_end|>"},
                  "<|audio_start|><|audio_pad|><|audio_end|>"),
}
LENGTHS = [480, 1120, 1121, 7999, 8001, 16000, 124321, 480000, 480001, 700123, 1000160]


def written(tmp_path, samples, rate=16000):
    path = tmp_path / f"{len(samples)}.wav"
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", None))
        out.writeframes(samples.tobytes())
    return path


def clip(tmp_path, count, rate=16000):
    rng = np.random.default_rng(count)
    samples = (rng.integers(-9000, 9000, count) * np.sin(np.arange(count) / 9000)).astype("<i2")
    return written(tmp_path, samples, rate), samples.astype(np.float32) / 32768


def processor_of(name, folder):
    kind, told, (extractor, values), tokens, _ = FAMILIES[name]
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    words.add_tokens([transformers.AddedToken(token, special=True) for token in tokens.values()], special_tokens=True)
    words.eos_token = words.pad_token = "<|endoftext|>"
    for attribute, token in tokens.items():
        setattr(words, f"{attribute}_token", token)
    processor = getattr(transformers, kind)(feature_extractor=getattr(transformers, extractor)(**values), tokenizer=words, **told)
    folder.mkdir()
    processor.save_pretrained(folder)
    return processor


def by_numpy(monkeypatch):
    """The extractor's own path in NumPy, whose values are exact to 1e-7; torch's, in single precision, to 1e-4."""
    module = __import__("transformers.models.whisper.feature_extraction_whisper", fromlist=["is_torch_available"])
    monkeypatch.setattr(module, "is_torch_available", lambda: False)


@pytest.mark.parametrize("name", FAMILIES)
def test_features_are_the_processors(tmp_path, name, monkeypatch):
    processor = processor_of(name, tmp_path / "folder")
    if FAMILIES[name][2][0] == "WhisperFeatureExtractor":
        by_numpy(monkeypatch)
    most = 0.0
    for count in LENGTHS:
        path, samples = clip(tmp_path, count)
        asked = {"padding": True} if name == "qwen3-asr" else {}  # as its calls do
        theirs, _ = processor._process_audio([samples], sampling_rate=16000, return_attention_mask=True, return_tensors="pt", **asked)
        features, mask = np.asarray(theirs["input_features"]), np.asarray(theirs["input_features_mask"])
        if int(np.asarray(theirs["num_audio_tokens"])[0]) <= 0:
            assert "is too short for one token" in refusal(tmp_path, tmp_path / "folder", path)
            continue
        ours = preprocess(tmp_path, tmp_path / "folder", path)
        if name == "qwen3-asr":
            assert ours["audio_feature_lengths"] == mask.sum()
            features = features[0][:, : mask.sum()].T
        else:
            assert np.array_equal(ours["input_features_mask"], mask), count
        assert ours["input_features"].shape == features.shape, count
        most = max(most, float(np.abs(ours["input_features"] - features).max()))
    print(f"{name}: at most {most:.1e} from the extractor over {len(LENGTHS)} clips")
    assert most <= (1e-4 if name == "qwen3-asr" else 1e-6)


@pytest.mark.parametrize("normalized", [True, False])
def test_wav2vec2_takes_the_samples_of_its_extractor(tmp_path, normalized):
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalized)
    extractor.save_pretrained(tmp_path)
    model = transformers.Wav2Vec2Config()
    (tmp_path / "config.json").write_text(json.dumps({"conv_kernel": model.conv_kernel, "conv_stride": model.conv_stride, "add_adapter": False}))
    for count in (400, 401, 16000, 124321, 700123):
        path, samples = clip(tmp_path, count)
        theirs = extractor(samples, sampling_rate=16000, return_tensors="np")["input_values"][0]
        ours = preprocess(tmp_path, tmp_path, path)["input_values"]
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-6) if normalized else np.array_equal(ours, theirs)
    assert "too short for one frame" in refusal(tmp_path, tmp_path, clip(tmp_path, 399)[0])


def encoder_folder(tmp_path, extractor, model):
    extractor.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(model.to_json_string())


@pytest.mark.parametrize("padding", [0.0, 1])
def test_seamless_m4t_takes_the_features_of_its_extractor(tmp_path, padding):
    extractor = transformers.SeamlessM4TFeatureExtractor(padding_value=padding)  # 1 in w2v-BERT 2.0
    encoder_folder(tmp_path, extractor, transformers.Wav2Vec2BertConfig() if padding == 1 else transformers.SeamlessM4Tv2Config())
    for count in (560, 719, 720, 16000, 124321, 700123):
        path, samples = clip(tmp_path, count)
        theirs = extractor(samples, sampling_rate=16000, return_tensors="np")
        ours = preprocess(tmp_path, tmp_path, path)
        assert np.array_equal(ours["attention_mask"], theirs["attention_mask"][0]), count
        assert ours["input_features"].shape == theirs["input_features"][0].shape, count
        assert np.abs(ours["input_features"] - theirs["input_features"][0]).max() <= 1e-6, count
    assert "too short for one frame" in refusal(tmp_path, tmp_path, clip(tmp_path, 559)[0])  # of one frame, NaN there


def test_seamless_m4t_takes_silence_and_hum(tmp_path):
    extractor = transformers.SeamlessM4TFeatureExtractor()
    extractor.save_pretrained(tmp_path)
    hum = np.round(3 * np.sin(np.arange(30000) / 9)).astype("<i2")
    for samples in (np.zeros(30001, "<i2"), hum, np.concatenate([hum, np.full(9000, 77, "<i2")])):
        path = written(tmp_path, samples)
        theirs = extractor(samples.astype(np.float32) / 32768, sampling_rate=16000, return_tensors="np")["input_features"][0]
        assert np.abs(preprocess(tmp_path, tmp_path, path)["input_features"] - theirs).max() <= 1e-6


@pytest.mark.parametrize("values", [{}, {"num_mel_bins": 64, "max_length": 300}, {"do_normalize": False}])
def test_ast_takes_the_features_of_its_extractor(tmp_path, values, monkeypatch):
    module = __import__("transformers.models.audio_spectrogram_transformer.feature_extraction_audio_spectrogram_transformer",
                        fromlist=["is_speech_available"])
    monkeypatch.setattr(module, "is_speech_available", lambda: False)  # the path without torchaudio
    extractor = transformers.ASTFeatureExtractor(**values)
    encoder_folder(tmp_path, extractor, transformers.ASTConfig())
    for count in (400, 559, 16000, 48000, 124321, 700123):
        path, samples = clip(tmp_path, count)
        theirs = extractor(samples, sampling_rate=16000, return_tensors="np")["input_values"]
        ours = preprocess(tmp_path, tmp_path, path)["input_values"]
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1e-6, count
    assert "too short for one frame" in refusal(tmp_path, tmp_path, clip(tmp_path, 399)[0])


@pytest.mark.parametrize("padding", ["repeatpad", "repeat", "pad"])
def test_clap_takes_the_features_of_its_extractor(tmp_path, padding):
    extractor = transformers.ClapFeatureExtractor(truncation="rand_trunc", padding=padding)
    encoder_folder(tmp_path, extractor, transformers.ClapConfig())
    for count in (1, 999, 48000, 160001, 240000, 240001, 480000):
        path, samples = clip(tmp_path, count, rate=48000)
        theirs = extractor(samples, sampling_rate=48000, return_tensors="np")
        assert not np.any(theirs["is_longer"])
        ours = preprocess(tmp_path, tmp_path, path)
        assert list(ours) == ["input_features"]
        assert ours["input_features"].shape == theirs["input_features"].shape
        # Decibels of up to 100: the difference is a unit in the last place of f32 at most.
        assert np.abs(ours["input_features"] - theirs["input_features"]).max() <= 1e-5, count
    assert "takes a part at random" in refusal(tmp_path, tmp_path, clip(tmp_path, 480001, rate=48000)[0])


def test_clap_with_fusion_is_refused(tmp_path):
    transformers.ClapFeatureExtractor().save_pretrained(tmp_path)
    assert "rand_trunc" in refusal(tmp_path, tmp_path, clip(tmp_path, 48000, rate=48000)[0])


class InDoubles:
    """torch, whose single precision is double."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.mark.parametrize("mels", [80, 128])
def test_parakeet_takes_the_features_of_its_extractor(tmp_path, mels, monkeypatch):
    extractor = transformers.ParakeetFeatureExtractor(feature_size=mels)
    encoder_folder(tmp_path, extractor, transformers.ParakeetCTCConfig())
    most = {"f32": 0.0, "f64": 0.0}
    for precision in most:
        if precision == "f64":  # the same steps after the pre-emphasis: f32 loses digits in quiet frames
            monkeypatch.setattr(sys.modules[extractor.__module__], "torch", InDoubles())
            extractor.mel_filters = extractor.mel_filters.double()
            torch.set_default_dtype(torch.float64)
        try:
            for count in (320, 1000, 16000, 16001, 124321, 700123):
                path, samples = clip(tmp_path, count)
                theirs = extractor(samples, sampling_rate=16000, return_tensors="np")
                kept = np.asarray(theirs["attention_mask"])[0].astype(bool)
                features = np.asarray(theirs["input_features"])[0]
                assert not features[~kept].any()
                ours = preprocess(tmp_path, tmp_path, path)["input_features"]
                assert ours.shape == features[kept].shape
                most[precision] = max(most[precision], float(np.abs(ours - features[kept]).max()))
        finally:
            torch.set_default_dtype(torch.float32)
    print(f"parakeet of {mels} mels: at most {most['f32']:.1e} from the extractor, {most['f64']:.1e} from its steps in f64")
    assert most["f32"] <= 1e-3 and most["f64"] <= 1e-6
    assert "too short for one frame" in refusal(tmp_path, tmp_path, clip(tmp_path, 319)[0])


@pytest.mark.parametrize("kind, extractor, fields", [
    ("Wav2Vec2BertProcessor", "SeamlessM4TFeatureExtractor", ["attention_mask", "input_features"]),
    ("SeamlessM4TProcessor", "SeamlessM4TFeatureExtractor", ["attention_mask", "input_features"]),
    ("ClapProcessor", "ClapFeatureExtractor", ["input_features"]),
    ("ParakeetProcessor", "ParakeetFeatureExtractor", ["input_features"]),
])
def test_files_that_processors_of_encoders_save_load(tmp_path, kind, extractor, fields):
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    values = {"truncation": "rand_trunc"} if kind == "ClapProcessor" else {}
    processor = getattr(transformers, kind)(feature_extractor=getattr(transformers, extractor)(**values), tokenizer=words)
    processor.save_pretrained(tmp_path / "folder")
    assert sorted(preprocess(tmp_path, tmp_path / "folder", clip(tmp_path, 16000)[0])) == fields


def test_voxtral_cuts_the_features_of_the_whole_clip(tmp_path, monkeypatch):
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    extractor.save_pretrained(tmp_path)
    path = tmp_path / "preprocessor_config.json"  # without its processor, whose tokenizer is mistral-common's
    path.write_text(json.dumps({**json.loads(path.read_text()), "processor_class": "VoxtralProcessor"}))
    by_numpy(monkeypatch)
    processor = transformers.VoxtralProcessor.__new__(transformers.VoxtralProcessor)
    processor.feature_extractor = extractor
    kwargs = {key: value for key, value in transformers.VoxtralProcessor.audio_kwargs.items() if key != "max_source_positions"}
    for count in LENGTHS:
        path, samples = clip(tmp_path, count)
        theirs = processor._retrieve_input_features([samples], 3000, **kwargs).numpy()
        ours = preprocess(tmp_path, tmp_path, path)
        assert list(ours) == ["input_features"]
        assert ours["input_features"].shape == theirs.shape
        assert np.abs(ours["input_features"] - theirs).max() <= 1e-6, count


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", FAMILIES)
def test_sequences_are_those_of_the_processor(tmp_path, name):
    processor, written = processor_of(name, tmp_path / "folder"), FAMILIES[name][4]
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "audio": str(tmp_path / "folder"), "chat": "plain", "added_tokens": sorted(added, key=added.get)}
    requests, wanted = [], []
    for count in LENGTHS[2:]:
        content = [{"type": "text", "text": "Listen: "}, {"type": "audio"}, {"type": "text", "text": "\nWhat's it?"}]
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": [{"sample_rate": 16000, "samples": count}]})
        out = processor(text=[f"Listen: {written}\nWhat's it?"], audio=[np.zeros(count, np.float32)])
        wanted.append([int(token) for token in out["input_ids"][0]] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
