"""Granite Speech against the processor of the installed `transformers`, release 4 or 5: features, and what stands in a text.

Its extractor needs torchaudio, with which other extractors take other paths; so it runs in a process of its own, and
torchaudio lies outside the environment's packages (parity/install)."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import wave

import numpy as np
import pytest

from command import BINARY, preprocess, refusal
from installed import GOLDEN, needed

TORCHAUDIO = pathlib.Path(sys.prefix) / "torchaudio"
TOKENIZER = GOLDEN.parent / "tokenizer"
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
LENGTHS = [257, 319, 320, 479, 480, 4799, 4800, 16000, 16001, 124321, 700123]

pytestmark = [*needed, pytest.mark.skipif(not TORCHAUDIO.exists() and importlib.util.find_spec("torchaudio") is None,
                                          reason="no torchaudio")]

# Reads {"folder", "tokenizer", "values", "clips": [files of f32], "texts": [[text, clips...]]}; writes the checkpoint's files,
# NAME.f32 and NAME.f64 (the same steps in f64, with the extractor's own tables) after each clip, and prints sizes and ids.
EXTRACT = """
import json, pathlib, sys
import numpy as np, torch, transformers
from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor
told = json.loads(sys.stdin.read())
extractor = GraniteSpeechFeatureExtractor(**told["values"])
words = transformers.PreTrainedTokenizerFast(tokenizer_file=told["tokenizer"])
words.add_tokens([transformers.AddedToken("<|audio|>", special=True)], special_tokens=True)
words.eos_token = words.pad_token = "<|endoftext|>"
processor = transformers.GraniteSpeechProcessor(extractor, words)
processor.save_pretrained(told["folder"])
path = pathlib.Path(told["folder"]) / "processor_config.json"
if told["values"] and path.exists():  # what it does not save
    written = json.loads(path.read_text())
    written.get("audio_processor", {}).update(told["values"])
    path.write_text(json.dumps(written))
ids = [[int(i) for i in np.asarray(processor(text=[text], audio=[np.zeros(n, np.float32) for n in clips])["input_ids"]).reshape(-1)]
       for text, *clips in told["texts"]]
sizes = []
clips = [(name, np.fromfile(name, np.float32)) for name in told["clips"]]
for name, samples in clips:
    out = extractor([samples])
    sizes.append([list(out["input_features"].shape[1:]), int(out["audio_embed_sizes"][0]), int(out["input_features_mask"].sum())])
    np.asarray(out["input_features"][0]).tofile(name + ".f32")
extractor.mel_filters.double()
torch.Tensor.float = torch.Tensor.double
for name, samples in clips:
    np.asarray(extractor([samples])["input_features"][0]).astype(np.float64).tofile(name + ".f64")
print(json.dumps({"sizes": sizes, "ids": ids, "eos": words.eos_token_id, "added": sorted(words.get_added_vocab(), key=words.get_added_vocab().get)}))
"""


def extracted(tmp_path, values, clips=(), texts=()):
    told = {"folder": str(tmp_path / "folder"), "tokenizer": str(TOKENIZER / "tokenizer.json"), "values": values, "clips": [str(clip) for clip in clips],
            "texts": texts}
    paths = [str(TORCHAUDIO)] if TORCHAUDIO.exists() else []
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", EXTRACT], input=json.dumps(told), capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": ":".join([*filter(None, [os.environ.get("PYTHONPATH")]), *paths])})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def clip(tmp_path, count):
    rng = np.random.default_rng(count)
    samples = (rng.integers(-9000, 9000, count) * np.sin(np.arange(count) / 9000)).astype("<i2")
    path = tmp_path / f"{count}.wav"
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", None))
        out.writeframes(samples.tobytes())
    (samples.astype(np.float32) / 32768).tofile(path.with_suffix(".samples"))
    return path


@pytest.mark.parametrize("values", [{}, {"n_mels": 40, "projector_window_size": 12, "projector_downsample_rate": 4}])
def test_features_are_those_of_the_extractor(tmp_path, values):
    clips = [clip(tmp_path, count) for count in LENGTHS]
    told = extracted(tmp_path, values, [path.with_suffix(".samples") for path in clips])
    if values:  # of which release 4 saves a part alone
        (tmp_path / "folder/processor_config.json").unlink()
        (tmp_path / "folder/preprocessor_config.json").write_text(json.dumps({"feature_extractor_type": "GraniteSpeechFeatureExtractor", **values}))
    most = {"f32": 0.0, "f64": 0.0}
    for path, (shape, size, marked) in zip(clips, told["sizes"]):
        ours = preprocess(tmp_path, tmp_path / "folder", path)
        assert sorted(ours) == ["audio_embed_sizes", "input_features"]
        assert list(ours["input_features"].shape) == shape and ours["audio_embed_sizes"].item() == size == marked, path
        for precision in most:
            theirs = np.fromfile(path.with_suffix(f".samples.{precision}"), np.dtype(f"{precision[0]}{int(precision[1:]) // 8}")).reshape(shape)
            most[precision] = max(most[precision], float(np.abs(ours["input_features"] - theirs).max()))
    print(f"granite speech: at most {most['f32']:.1e} from the extractor, {most['f64']:.1e} from its steps in f64")
    # With 80 mels torch's power of one edge of a filter is a unit in the last place of f32 off.
    assert most["f32"] <= 1e-3 and most["f64"] <= 2e-6
    assert "too short for one frame" in refusal(tmp_path, tmp_path / "folder", clip(tmp_path, 256))


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
def test_sequences_are_those_of_the_processor(tmp_path):
    texts = [[f"Listen: <|audio|>\nWhat's it{'<|audio|>' * more}?", *[count + 1000 * i for i in range(1 + more)]]
             for count in LENGTHS for more in (0, 1, 2)]
    told = extracted(tmp_path, {}, texts=texts)
    processor = {"tokenizer": str(TOKENIZER), "audio": str(tmp_path / "folder"), "chat": "plain", "added_tokens": told["added"]}
    requests = []
    for text, *counts in texts:
        content = []
        for said in text.split("<|audio|>"):
            content += [{"type": "text", "text": said}, {"type": "audio"}]
        sample = {"messages": [{"role": "user", "content": content[:-1]}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": processor, "sample": json.dumps(sample), "facts": [{"sample_rate": 16000, "samples": count} for count in counts]})
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True, text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), told["ids"]):
        assert json.loads(line).get("ids") == [*ids, told["eos"]], (request, line[:300])
