"""Gemma 4 by `evenkeel preprocess` against the processor of the installed `transformers`, release 5: patches of pictures by
both classes, of frames of videos, their places, and whole sequences; bit for bit.

The pictures and videos are of odd sizes, and those next to the tree (EVENKEEL_SHARED, or ../shared) where these are; every
EVENKEEL_PARITY_EVERY-th picture (29), 1 for all.
"""

import json
import random
import subprocess

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, RELEASE, Image, needed, photos
from frames import decoded, rate
from test_parity_recent import PICTURE, PROGRAM, SIZES, TOKENIZER, Family, draw_text, made
from test_parity_video import ATEN, drawn
from transformers.video_utils import VideoMetadata  # after `installed`

pytestmark = [*needed, pytest.mark.skipif(RELEASE == 4, reason="4.57 has no Gemma 4")]
TOKENS = {"boi_token": "<|image>", "image_token": "<|image|>", "eoi_token": "<image|>", "boa_token": "<|audio>",
          "audio_token": "<|audio|>", "eoa_token": "<audio|>", "video": "<|video|>"}
PARTS = (("feature_extractor", "feature_extraction_gemma4", "Gemma4AudioFeatureExtractor"),)


def family(values=None, video=None):
    return Family("Gemma4Processor", ("gemma4", "Gemma4ImageProcessor"), values or {}, TOKENS,
                  parts=(*PARTS, ("video_processor", "video_processing_gemma4", "Gemma4VideoProcessor", video or {})))


def differing(ours, theirs, pixels, places):
    """How many values differ from theirs without the padding, which has positions of -1."""
    wanted = np.asarray(theirs[places]).reshape(-1, 2)
    kept = wanted[:, 0] >= 0
    values = np.ascontiguousarray(np.asarray(theirs[pixels], np.float32).reshape(len(wanted), -1)[kept])
    assert np.array_equal(ours[places], wanted[kept])
    assert ours[pixels].shape == values.shape
    return np.count_nonzero(ours[pixels].view(np.uint32) != values.view(np.uint32))


CASES = [("aten_u8", {}), ("pil13", {}), ("aten_u8", {"max_soft_tokens": 70, "do_normalize": True}),
         ("pil13", {"max_soft_tokens": 1120, "patch_size": 14, "pooling_kernel_size": 2, "resample": 2})]


def compare(tmp_path, processor, resampler, path):
    options = ("--resampler", resampler)
    try:
        theirs = processor.image_processor(Image.open(path), return_tensors="pt")
    except ValueError:
        assert "has no size of at most" in refusal(tmp_path, tmp_path / "folder", path, *options)
        return
    ours = preprocess(tmp_path, tmp_path / "folder", path, *options)
    assert differing(ours, theirs, "pixel_values", "image_position_ids") == 0, path.name


@pytest.mark.parametrize("resampler,values", CASES, ids=str)
def test_pictures_of_odd_sizes_are_those_of_the_processor(tmp_path, resampler, values):
    processor = made(family(values), resampler, tmp_path / "folder")
    for width, height in [*SIZES, (4000, 1), (1, 5000), (768, 768)]:
        path = tmp_path / f"{width}x{height}.png"
        Image.open(PICTURE).convert("RGB").resize((width, height)).save(path)
        compare(tmp_path, processor, resampler, path)


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
def test_photos_are_those_of_the_processor(tmp_path, resampler):
    processor = made(family(), resampler, tmp_path / "folder")
    for path in photos("pictures/*.png", "images/*.jpg"):
        compare(tmp_path, processor, resampler, path)


@pytest.mark.parametrize("values", [{"num_frames": 5}, {"do_sample_frames": False, "max_soft_tokens": 140}], ids=str)
def test_frames_are_those_of_the_processor(tmp_path, values):
    processor = made(family(video=values), "aten_u8", tmp_path / "folder")
    drawings = [drawn(tmp_path / "odd.mkv", "75x41", 31, "-pix_fmt", "yuv444p"), drawn(tmp_path / "wide.mkv", "640x36", 24, "-pix_fmt", "yuv420p")]
    for path in (GOLDEN / "video/h264.mp4", GOLDEN / "video/vp9.webm", *drawings):
        frames, average, shown = decoded(path, tmp_path)
        fps = rate(path, average, shown)
        metadata = VideoMetadata(total_num_frames=len(frames), fps=fps, duration=len(frames) / fps)
        theirs = processor.video_processor(videos=[np.asarray(frames)], video_metadata=[metadata], return_tensors="pt")
        ours = preprocess(tmp_path, tmp_path / "folder", path, *ATEN)
        assert differing(ours, theirs, "pixel_values_videos", "video_position_ids") == 0, path.name
        assert ours["num_frames_per_video"].tolist() == list(theirs["num_frames_per_video"])


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
def test_sequences_are_those_of_the_processor(tmp_path):
    folder = tmp_path / "folder"
    processor = made(family(video={"num_frames": 6}), "aten_u8", folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(4)
    requests, wanted = [], []
    for _ in range(16):
        text, content, facts, given = "", [], [], {"images": [], "videos": [], "video_metadata": []}
        for _ in range(generator.randrange(1, 4)):
            kind, said = generator.choice(["image", "video"]), draw_text(generator)
            sides = [generator.randrange(20, generator.choice([120, 900])) for _ in "wh"]
            text += said + f"<|{kind}|>"
            content += [{"type": "text", "text": said}, {"type": kind}]
            facts.append(dict(zip(("width", "height"), sides)))
            if kind == "image":
                given["images"].append(Image.new("RGB", sides))
                continue
            frames, fps = generator.choice([6, 9, 500]), generator.choice([2, 7, 25])
            facts[-1] |= {"frames": frames, "fps": fps}
            given["videos"].append(np.zeros((frames, 8, 8 * sides[0] // sides[1] or 1, 3), np.uint8))
            facts[-1] |= {"width": given["videos"][-1].shape[2], "height": 8}
            given["video_metadata"].append(VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps))
        said = draw_text(generator)
        content.append({"type": "text", "text": said})
        chat = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(chat), "facts": facts})
        given = {name: [values] if name == "images" else values for name, values in given.items() if values}
        out = processor(text=[text + said], padding=False, **given)
        wanted.append([int(token) for token in np.asarray(out["input_ids"][0])] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
