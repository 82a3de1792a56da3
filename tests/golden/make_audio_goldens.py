#!/usr/bin/env python3
"""Makes tests/golden/data/audio: small clips, and the log-mel features that WhisperFeatureExtractor makes of them.

    python3 -m venv venv && venv/bin/pip install numpy soundfile soxr torch transformers
    venv/bin/python tests/golden/make_audio_goldens.py      (and ffmpeg on PATH)

The numpy path of `transformers` is the reference. NAME-MELS.f32 holds frames 0..63 of every mel, then the last frame:
[MELS, 65]. voice-ENCODER.f32 holds what the extractors of other encoders make of the voice (ENCODERS below); torchaudio
must not be installed, with which ASTFeatureExtractor takes another path. voice-granite.f32, whose extractor needs it, is
written alone: PYTHONPATH=FOLDER-OF-TORCHAUDIO venv/bin/python tests/golden/make_audio_goldens.py granite. The clips in codecs other than PCM are for
decoding only; of MP3 of 24 kHz NAME.f32 holds what librosa.load makes of it at 16 kHz, by libsndfile, numpy's mean and
soxr.
"""

import pathlib
import subprocess
import sys
import wave

import numpy as np
import soundfile
import soxr
import transformers
from transformers import WhisperFeatureExtractor
from transformers.models.phi4_multimodal.feature_extraction_phi4_multimodal import Phi4MultimodalFeatureExtractor

OUT = pathlib.Path(__file__).resolve().parent / "data" / "audio"
RATE = 16000
rng = np.random.default_rng(5)
# name: (extractor, rate, rows that are written)
ENCODERS = {
    "seamless-m4t": (transformers.SeamlessM4TFeatureExtractor(), 16000, slice(None)),
    "ast": (transformers.ASTFeatureExtractor(), 16000, slice(56)),
    "clap": (transformers.ClapFeatureExtractor(truncation="rand_trunc"), 48000, slice(32)),
    "phi4": (Phi4MultimodalFeatureExtractor(), 16000, slice(None)),
    "parakeet": (transformers.ParakeetFeatureExtractor(), 16000, slice(-1)),  # without the row that its mask leaves out
    # Their values are those of a CPU with fused multiply-adds: NumPy computes windows otherwise where there are none.
    "gemma3n": (transformers.Gemma3nAudioFeatureExtractor(), 16000, slice(None)),
    "gemma4": (transformers.Gemma4AudioFeatureExtractor(), 16000, slice(None)),
}


def write_wav(name, samples, rate=RATE):
    samples = np.atleast_2d(samples)
    with wave.open(str(OUT / name), "wb") as out:
        out.setnchannels(len(samples))
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.T.astype("<i2").tobytes())


def features(samples, mels):
    extractor = WhisperFeatureExtractor(feature_size=mels)
    padded = np.zeros(480000, np.float32)
    padded[: len(samples)] = samples.astype(np.float32) / 32768
    out = extractor._np_extract_fbank_features(padded[None], "cpu")[0]
    return np.concatenate([out[:, :64], out[:, -1:]], 1).astype("<f4")


def write_encoders(samples):
    for name, (extractor, rate, rows) in ENCODERS.items():
        out = extractor([samples.astype(np.float32) / 32768], sampling_rate=rate, return_tensors="np")
        features = out[extractor.model_input_names[0]]
        features = features.reshape(features.shape[-2:])[rows]
        (OUT / f"voice-{name}.f32").write_bytes(features.astype("<f4").tobytes())


def write_granite():
    from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor
    with wave.open(str(OUT / "voice.wav")) as voice:
        samples = np.frombuffer(voice.readframes(voice.getnframes()), "<i2").astype(np.float32) / 32768
    features = GraniteSpeechFeatureExtractor()([samples])["input_features"][0]
    (OUT / "voice-granite.f32").write_bytes(features.numpy().astype("<f4").tobytes())


def write_heard(name):
    samples, rate = soundfile.read(OUT / name, dtype="float32", always_2d=True)
    heard = soxr.resample(samples.mean(axis=1), rate, RATE, quality="HQ")
    heard = np.pad(heard, (0, -(-len(samples) * RATE // rate) - len(heard)))
    (OUT / name).with_suffix(".f32").write_bytes(heard.astype("<f4").tobytes())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    time = np.arange(9000) / RATE
    clips = {
        "voice": 9000 * np.sin(2 * np.pi * 220 * time) + 4000 * np.sin(2 * np.pi * 1760 * time) * np.sin(9 * time),
        "noise": rng.integers(-15000, 15000, 9001),
        "silence": np.zeros(2000),
    }
    for name, samples in clips.items():
        samples = np.round(samples).astype(np.int16)
        write_wav(f"{name}.wav", samples)
        for mels in (80, 128):
            (OUT / f"{name}-{mels}.f32").write_bytes(features(samples, mels).tobytes())
        if name == "voice":
            write_encoders(samples)
    time = np.arange(6000) / 22050
    left = 8000 * np.sin(2 * np.pi * 440 * time)
    right = 6000 * np.sin(2 * np.pi * 660 * time) + rng.integers(-500, 500, 6000)
    write_wav("stereo.wav", np.stack([left, right]).round(), rate=22050)
    for codec, name in (
        ("flac", "stereo.flac"),
        ("alac", "stereo-alac.m4a"),
        ("libmp3lame", "stereo.mp3"),
        ("aac", "stereo.m4a"),
        ("ac3 -ar 32000", "stereo.ac3"),
        ("libopus -ar 48000", "stereo.opus"),
        ("pcm_mulaw -ar 8000 -ac 1", "mulaw.wav"),
        ("pcm_f32le", "float.wav"),
        ("libvorbis", "stereo.ogg"),
        ("libvorbis -page_duration 40000", "pages.ogg"),
        ("libvorbis", "vorbis.mka"),
        ("libopus -ar 48000", "opus.webm"),
        ("flac", "flac.mka"),
        ("aac", "aac.mka"),
        ("aac", "aac.avi"),
        ("aac -ar 48000", "aac-48-khz.mka"),
        ("aac -ar 48000", "aac-48-khz.avi"),
        ("libvorbis -ar 48000", "vorbis-48-khz.mka"),
        ("aac -movflags frag_keyframe+empty_moov", "fragments.mp4"),
        ("aac", "stereo.aac"),
        ("pcm_u8 -ar 8000 -ac 1", "bytes.wav"),
        ("pcm_s24le -ar 8000 -ac 1", "24-bits.wav"),
        ("pcm_f64le -ar 8000 -ac 1", "doubles.wav"),
        ("pcm_s16be", "stereo.aiff"),
        ("pcm_s16le", "backwards.aiff"),
        ("pcm_f64be -ar 8000 -ac 1", "doubles.aiff"),
        ("alac", "alac.mka"),
        ("libmp3lame -q:a 6 -write_xing 0 -id3v2_version 0", "variable.mp3"),
        ("libmp3lame -ar 24000", "24-khz.mp3"),
        ("libmp3lame -ar 24000 -q:a 2", "24-khz-variable.mp3"),
        ("libmp3lame -ar 24000 -write_xing 0 -id3v2_version 0", "24-khz-plain.mp3"),
        ("adpcm_ima_wav", "refused.wav"),
    ):
        command = ["ffmpeg", "-v", "error", "-y", "-i", OUT / "stereo.wav", "-bitexact", "-b:a", "48k", "-c:a"]
        subprocess.run([*map(str, command), *codec.split(), str(OUT / name)], check=True)
    noise = ["ffmpeg", "-v", "error", "-y", "-i", OUT / "noise.wav", "-bitexact", "-c:a", "libmp3lame", "-ar", "24000"]
    subprocess.run([*map(str, noise), "-b:a", "64k", str(OUT / "24-khz-noise.mp3")], check=True)
    for name in ("24-khz-noise.mp3", "24-khz-variable.mp3", "24-khz-plain.mp3"):
        write_heard(name)
    # Begins within a packet: an edit list tells how much to drop.
    cut = ["ffmpeg", "-v", "error", "-y", "-ss", "0.1", "-i", OUT / "stereo.m4a", "-c", "copy", "-bitexact"]
    subprocess.run([*map(str, cut), str(OUT / "aac-cut.m4a")], check=True)


if __name__ == "__main__":
    write_granite() if sys.argv[1:] == ["granite"] else main()
