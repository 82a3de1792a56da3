"""Videos by `evenkeel preprocess --frame-rule fetch_video` against fetch_video of the real qwen-vl-utils and, after it, the
video processors of transformers 5; bit for bit. Its frames are torchcodec's; its resize is torchvision's of floats.
"""

import json
import shutil
import sys
import types

import numpy as np
import pytest

from command import preprocess, refusal
from installed import PROCESSORS, RELEASE, needed, transformers

loader_videos = pytest.importorskip("loader_videos")
pytest.importorskip("torchcodec")
sys.modules.setdefault("requests", types.ModuleType("requests"))  # which it imports to fetch URLs
vision = pytest.importorskip("qwen_vl_utils.vision_process")
pytestmark = [*needed, pytest.mark.skipif(RELEASE == 4, reason="the loaders of release 5 are followed")]

FEW, MANY = {"min_pixels": 3136, "max_pixels": 18816}, {"min_pixels": 150000, "max_pixels": 200704}
# Bounds of their frames, which are reduced, kept or enlarged; without any, to at least 128 tokens.
VIDEOS = [("420-wide.mp4", FEW), ("420-wide.mp4", {}), ("vp9-odd-width.webm", FEW), ("444.mkv", MANY), ("full-vp9.webm", {}),
          ("mpeg4.mp4", FEW)]
WIDE_FILE = {"size": {"shortest_edge": 784, "longest_edge": 1 << 22}}  # so that the processor resizes nothing again


@pytest.fixture(scope="session")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fetched")
    return loader_videos.make(folder, sorted({name for name, _ in VIDEOS}))


def checkpoint(folder, name):
    """A folder of the goldens' image processor, and a video processor with wide bounds."""
    shutil.copytree(PROCESSORS / name, folder)
    file = json.loads((folder / "preprocessor_config.json").read_text())
    kept = {key: file[key] for key in ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std", "processor_class")}
    kind = "Qwen3VL" if name == "qwen3-vl" else "Qwen2VL"
    (folder / "video_preprocessor_config.json").write_text(json.dumps(kept | WIDE_FILE | {"video_processor_type": f"{kind}VideoProcessor"}))
    return folder, getattr(transformers, f"{kind}VideoProcessor").from_pretrained(folder)


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen3-vl"])
def test_videos_are_those_of_fetch_video(tmp_path, videos, name):
    folder, processor = checkpoint(tmp_path / "checkpoint", name)
    patch = processor.patch_size
    compared = 0
    for video, bounds in VIDEOS:
        path = videos[video]
        frames, metadata = vision.fetch_video({"video": str(path), **bounds}, image_patch_size=patch, return_video_metadata=True)
        out = processor(videos=[frames], video_metadata=[metadata], do_sample_frames=False, do_resize=False, return_tensors="pt")
        words = [word for key, value in bounds.items() for word in (f"--video-{key.replace('_', '-')}", value)]
        ours = preprocess(tmp_path, folder, path, "--frame-rule", "fetch_video", *words)
        assert np.array_equal(ours["video_grid_thw"], out["video_grid_thw"].numpy()), path
        wanted = out["pixel_values_videos"].numpy()
        assert np.count_nonzero(ours["pixel_values_videos"].view(np.uint32) != wanted.view(np.uint32)) == 0, path
        compared += wanted.size
    assert compared > 1 << 20


def test_numbers_of_frames_are_those_of_fetch_video():
    """torch.linspace is float32 there and depends on the CPU, so a neighbour is allowed; whole steps are exact."""
    generator = np.random.default_rng(1)
    for total in generator.integers(4, 20000, 500):
        chosen = vision.smart_nframes({}, total_frames=int(total), video_fps=25.0)
        here = np.round(np.linspace(0, total - 1, chosen)).astype(int)
        there = vision.torch.linspace(0, int(total) - 1, chosen).round().long().numpy()
        assert np.abs(here - there).max() <= 1


def test_a_second_resize_is_refused(tmp_path, videos):
    folder, _ = checkpoint(tmp_path / "checkpoint", "qwen2-vl")
    file = json.loads((folder / "video_preprocessor_config.json").read_text())
    (folder / "video_preprocessor_config.json").write_text(json.dumps(file | {"size": {"shortest_edge": 784, "longest_edge": 3136}}))
    assert "floats are resized once" in refusal(tmp_path, folder, videos["mpeg4.mp4"], "--frame-rule", "fetch_video")


def test_other_families_refuse_it(tmp_path, videos):
    assert "frame_rule: fetch_video" in refusal(tmp_path, PROCESSORS / "internvl", videos["mpeg4.mp4"], "--frame-rule", "fetch_video")
