"""Families that are not native, through Python processes of a worker (processor.python: transformers), against their
processors called directly: pixels and other fields, placeholders, whole sequences.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("python", "e2e")]
import jobs  # noqa: E402
from media import Shard  # noqa: E402
from command import BINARY, SHARED
from installed import GOLDEN, RELEASE, Image, needed, transformers

sys.path.insert(0, str(pathlib.Path(BINARY).parents[1] / "python"))
evenkeel = pytest.importorskip("evenkeel")

pytestmark = [*needed, pytest.mark.skipif(RELEASE < 5, reason="transformers 4 has other classes")]
TOKENIZER = GOLDEN.parent / "tokenizer"
SIZES = [(300, 200), (97, 211), (640, 480), (1200, 500), (40, 900), (56, 56), (801, 803), (31, 33)]
# Processor, image processor with its values, special tokens, further arguments of the processor.
FAMILIES = {
    "janus": ("JanusProcessor", "janus.image_processing_janus", "JanusImageProcessor", {},
              {"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>", "eoi_token": "<end_of_image>"},
              {"num_image_tokens": 576}),
    "idefics2": ("Idefics2Processor", "idefics2.image_processing_idefics2", "Idefics2ImageProcessor", {"do_image_splitting": False},
                 {"image_token": "<image>", "image_boundary_token": "<fake_token_around_image>"}, {"image_seq_len": 64}),
    "lfm2-vl": ("Lfm2VlProcessor", "lfm2_vl.image_processing_lfm2_vl", "Lfm2VlImageProcessor", {},
                {"image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>",
                 "image_thumbnail_token": "<|img_thumbnail|>",
                 **{f"tile_{row}_{column}_token": f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11)}}, {}),
}


def processor_of(name, folder):
    """The family's processor, which writes its files into `folder`."""
    kind, module, image, values, tokens, told = FAMILIES[name]
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token="<|endoftext|>",
                                                 pad_token="<|endoftext|>", extra_special_tokens=tokens)
    for attribute, token in tokens.items():
        setattr(words, f"{attribute}_id", words.convert_tokens_to_ids(token))
    pictures = getattr(__import__(f"transformers.models.{module}", fromlist=[image]), image)(**values)
    processor = getattr(transformers, kind)(pictures, words, **told)
    processor.save_pretrained(folder)
    return transformers.AutoProcessor.from_pretrained(folder)


def pictures(folder):
    """[(path, caption)]: of odd sizes, one turned by EXIF, one with transparency."""
    out, rng = [], np.random.default_rng(3)
    for i, (width, height) in enumerate(SIZES):
        path = folder / f"{i:03d}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(path)
        out.append((path, f" picture {i} of a boat"))
    photos = sorted((SHARED / "media" / "photos").glob("*.jpg"))[:3] if SHARED.exists() else []
    for i, photo in enumerate(photos):
        path = folder / f"1{i:02d}.jpg"
        shutil.copy(photo, path)
        out.append((path, " a photograph"))
    turned = Image.fromarray(rng.integers(0, 256, (60, 110, 3), np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(folder / "200.jpg", exif=exif)
    Image.fromarray(rng.integers(0, 256, (70, 90, 4), np.uint8)).save(folder / "201.png")
    return out + [(folder / "200.jpg", " turned"), (folder / "201.png", " seen through")]


def write_job(folder, checkpoint, media, phase="vision", python="transformers"):
    shard = Shard(folder / "all.tar")
    for path, caption in media:
        shard.add(path.name, path.read_bytes())
        shard.add(f"{path.stem}.txt", caption.encode())
    shard.close()
    job = folder / "job.yaml"
    job.write_text(f"""\
seed: 5
index: index
datasets: [{{name: all, shards: ["all.tar"]}}]
processor: {{folder: "{checkpoint}", python: "{python}", chat: plain}}
batch: {{samples: 1}}
order: {{shuffle: none}}
phases:
  - {{name: llm, ranks: "0", algorithm: none}}
  - {{name: {phase}, ranks: "0", algorithm: none}}
""")
    done = indexed(job)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == len(media), done.stdout
    return job


def indexed(job):
    return subprocess.run([BINARY, "index", "--job", job, "--json", "--python", sys.executable], capture_output=True, text=True)


def load_image(path):
    return transformers.image_utils.load_image(str(path))


def array(value):
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return np.asarray(value)


@pytest.mark.parametrize("name", FAMILIES)
def test_items_and_sequences_are_those_of_the_processor(tmp_path, name):
    processor = processor_of(name, tmp_path / "checkpoint")
    media = pictures(tmp_path)
    job = write_job(tmp_path, tmp_path / "checkpoint", media)
    end = processor.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    token = processor.image_token
    with jobs.worker(job, "--python", sys.executable, "--threads", "1") as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=len(media)) as loader:
            for (path, caption), step in zip(media, loader):
                theirs = processor(text=[token + caption], images=[load_image(path)], return_tensors="pt", add_special_tokens=False)
                fields = step.encoders["vision"]
                assert list(fields["item_valid"]) == [1], path
                ids = np.asarray(theirs["input_ids"][0])
                [microbatch] = step.microbatches
                assert np.array_equal(np.asarray(microbatch["input_ids"]).reshape(-1)[: len(ids) + 1], [*ids, end]), path
                compared = 0
                for field in theirs.keys():
                    if field in ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"):
                        continue
                    wanted, ours = array(theirs[field]), np.asarray(fields[field])
                    if f"{field}_shape" in fields:
                        assert tuple(fields[f"{field}_shape"][0]) == wanted.shape, (path, field)
                    assert ours.size == wanted.size and np.array_equal(ours.reshape(-1), wanted.astype(ours.dtype).reshape(-1)), (path, field)
                    compared += 1
                assert compared >= 1


# As the repositories of Kimi-VL, DeepSeek-VL2, Ovis2 and Molmo have it: code of their own, which their files name.
CODE = """
from transformers import AutoImageProcessor, CLIPImageProcessor, ProcessorMixin

class OwnImageProcessor(CLIPImageProcessor):
    pass

class OwnProcessor(ProcessorMixin):
    def __init__(self, image_processor, tokenizer, **kwargs):
        self.image_token = "<|own|>"
        super().__init__(image_processor, tokenizer, **kwargs)

    def __call__(self, images=None, text=None, **kwargs):
        kwargs.pop("add_special_tokens", None)
        pixels = self.image_processor(images, return_tensors="pt")
        text = [one.replace(self.image_token, self.image_token * 4) for one in text]
        return {**self.tokenizer(text, add_special_tokens=False, return_tensors="pt"), **pixels}
"""


def own_checkpoint(folder):
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token="<|endoftext|>",
                                                 pad_token="<|endoftext|>", extra_special_tokens={"own_token": "<|own|>"})
    words.save_pretrained(folder)
    (folder / "processing_own.py").write_text(CODE)
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"image_processor_type": "OwnImageProcessor", "processor_class": "OwnProcessor", "size": {"shortest_edge": 28}, "crop_size": 28,
         "auto_map": {"AutoProcessor": "processing_own.OwnProcessor", "AutoImageProcessor": "processing_own.OwnImageProcessor"}}))
    (folder / "config.json").write_text("{}")


def test_code_of_a_repository_runs_only_where_the_job_trusts_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))  # where transformers copies the code to
    own_checkpoint(tmp_path / "checkpoint")
    media = pictures(tmp_path)[:3]
    trusting = write_job(tmp_path, tmp_path / "checkpoint", media, python="transformers:trust_remote_code")
    trusted = trusting.read_text()
    job = tmp_path / "plain.yaml"
    job.write_text(trusted.replace(":trust_remote_code", ""))
    done = indexed(job)
    assert done.returncode != 0
    assert "is code of the checkpoint's repository (AutoProcessor in preprocessor_config.json: processing_own.OwnProcessor" in done.stderr
    assert "set processor.python to transformers:trust_remote_code" in done.stderr
    with jobs.worker(trusting, "--python", sys.executable, "--threads", "1") as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=len(media)) as loader:
            for (path, _), step in zip(media, loader):
                theirs = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size=28)(load_image(path), return_tensors="pt")
                assert np.array_equal(np.asarray(step.encoders["vision"]["pixel_values"]), np.asarray(theirs["pixel_values"])), path


def test_sound_is_that_of_the_processor(tmp_path):
    pytest.importorskip("torchcodec")
    from torchcodec.decoders import AudioDecoder
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token="<|endoftext|>", pad_token="<|endoftext|>",
        extra_special_tokens={"audio_token": "<|AUDIO|>", "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>"})
    extractor = transformers.WhisperFeatureExtractor(feature_size=128)
    transformers.Qwen2AudioProcessor(extractor, words).save_pretrained(tmp_path / "checkpoint")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path / "checkpoint")
    import random
    media = []
    for i in range(4):
        path = tmp_path / f"{i:03d}.wav"
        path.write_bytes(jobs.wav(random.Random(i)))
        media.append((path, " some words"))
    job = write_job(tmp_path, tmp_path / "checkpoint", media, phase="audio")
    with jobs.worker(job, "--python", sys.executable, "--threads", "1") as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=len(media)) as loader:
            for (path, caption), step in zip(media, loader):
                samples = AudioDecoder(path.read_bytes(), sample_rate=16000, num_channels=1).get_all_samples().data[0].numpy()
                theirs = processor(text=["<|AUDIO|>" + caption], audio=[samples], sampling_rate=16000, return_tensors="pt",
                                   add_special_tokens=False)
                fields, ids = step.encoders["audio"], np.asarray(theirs["input_ids"][0])
                assert np.array_equal(np.asarray(step.microbatches[0]["input_ids"]).reshape(-1)[: len(ids)], ids)
                for field in ("input_features", "feature_attention_mask"):
                    wanted = np.asarray(theirs[field])
                    assert np.array_equal(np.asarray(fields[field]).reshape(-1), wanted.reshape(-1)), (path, field)


def video_processor(name, folder):
    """A processor with videos: whose rows, or whose numbers of frames, vary."""
    words = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"} if name == "qwen2-vl" else {"image_token": "<image>", "video_token": "<video>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token="<|endoftext|>",
                                                     pad_token="<|endoftext|>", extra_special_tokens=words)
    if name == "qwen2-vl":
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
        made = transformers.Qwen2VLProcessor(Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor(fps=3.0))
    else:
        from transformers.models.video_llava.image_processing_video_llava import VideoLlavaImageProcessor
        from transformers.models.video_llava.video_processing_video_llava import VideoLlavaVideoProcessor
        frames = VideoLlavaVideoProcessor(do_sample_frames=True, num_frames=8)
        made = transformers.VideoLlavaProcessor(VideoLlavaImageProcessor(), frames, tokenizer, patch_size=14,
                                                vision_feature_select_strategy="default", num_additional_image_tokens=1)
    made.save_pretrained(folder)
    return transformers.AutoProcessor.from_pretrained(folder)


@pytest.mark.parametrize("name", ["qwen2-vl", "video-llava"])
def test_videos_are_those_of_the_processor_and_its_loader(tmp_path, name):
    pytest.importorskip("torchcodec")
    processor = video_processor(name, tmp_path / "checkpoint")
    media = []
    for i, source in enumerate(["h264.mp4", "vp9.webm", "mpeg4-b.mp4"]):
        path = tmp_path / f"{i:03d}{pathlib.Path(source).suffix}"
        shutil.copy(GOLDEN / "video" / source, path)
        media.append((path, f" film {i} of a boat"))
    job = write_job(tmp_path, tmp_path / "checkpoint", media)
    with jobs.worker(job, "--python", sys.executable, "--threads", "1") as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=len(media)) as loader:
            for (path, caption), step in zip(media, loader):
                theirs = processor(text=[processor.video_token + caption], videos=[str(path)], return_tensors="pt", add_special_tokens=False)
                fields, ids = step.encoders["vision"], np.asarray(theirs["input_ids"][0])
                assert list(fields["item_valid"]) == [1], path
                assert np.array_equal(np.asarray(step.microbatches[0]["input_ids"]).reshape(-1)[: len(ids)], ids), path
                wanted = np.asarray(theirs["pixel_values_videos"])
                ours = np.asarray(fields["pixel_values_videos"])
                assert ours.size == wanted.size and np.array_equal(ours.reshape(-1).view(np.uint32), wanted.reshape(-1).view(np.uint32)), path


def test_native_is_compared_with_the_folders_own_processor(tmp_path):
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token="<|endoftext|>", pad_token="<|endoftext|>",
        extra_special_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"})
    transformers.Qwen2VLProcessor(Qwen2VLImageProcessor(), words, Qwen2VLVideoProcessor()).save_pretrained(tmp_path / "checkpoint")
    picture = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (120, 200, 3), np.uint8)).save(picture)

    def compare(resampler):
        return subprocess.run([BINARY, "preprocess", "--processor", tmp_path / "checkpoint", "--compare", "--python", sys.executable,
                               "--resampler", resampler, picture], capture_output=True, text=True)

    same, other = compare("aten_u8"), compare("pil")
    assert same.returncode == 0, same.stdout + same.stderr
    assert f"{picture}: image_grid_thw: 0 of 3 values differ" in same.stdout and "pixel_values: 0 of" in same.stdout
    assert other.returncode == 5 and "values differ, by at most" in other.stdout
