"""Videos by `evenkeel preprocess` against the video processors of transformers 5 with the frames of the real loaders:
torchcodec, which it takes by default, PyAV and decord; bit for bit. No command is given other flags: the loaders open
the files themselves.
"""

import json
import shutil

import numpy as np
import pytest

from command import preprocess
from installed import PROCESSORS, RELEASE, media, needed, transformers

loader_videos = pytest.importorskip("loader_videos")
BACKENDS = {"torchcodec": pytest.importorskip("torchcodec"), "pyav": pytest.importorskip("av"),
            "decord": pytest.importorskip("decord")}
pytestmark = [*needed, pytest.mark.skipif(RELEASE == 4, reason="the loaders of release 5 are followed")]
ATEN = ("--resampler", "aten_u8")


@pytest.fixture(scope="session")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaders")
    return {**loader_videos.make(folder, [*loader_videos.EIGHT_BITS, *loader_videos.FILTERED]),
            **loader_videos.make_timed(folder)}


def model(tmp_path, name):
    """(folder, the model's own video processor, options of a call, the words that mean the same)."""
    if name == "internvl":
        folder = tmp_path / "internvl"
        shutil.copytree(PROCESSORS / "internvl", folder, dirs_exist_ok=True)
        (folder / "video_preprocessor_config.json").write_text(json.dumps(
            {"video_processor_type": "InternVLVideoProcessor", "size": {"height": 56, "width": 56}, "num_frames": 6,
             "do_sample_frames": True, "processor_class": "InternVLProcessor"}))
        return folder, transformers.InternVLVideoProcessor.from_pretrained(folder), {"num_frames": 6}, ()
    if name in ("glm4v", "glm46v"):
        kind = {"glm4v": "Glm4v", "glm46v": "Glm46V"}[name]
        folder = tmp_path / name
        shutil.copytree(PROCESSORS / "glm4v", folder, dirs_exist_ok=True)
        values = json.loads((folder / "preprocessor_config.json").read_text()) | {
            "image_processor_type": f"{kind}ImageProcessor", "processor_class": f"{kind}Processor"}
        (folder / "preprocessor_config.json").write_text(json.dumps(values))
        return folder, getattr(transformers, f"{kind}VideoProcessor").from_pretrained(folder), {}, ()
    folder = PROCESSORS / name
    if name == "qwen3-vl":
        return folder, transformers.Qwen3VLVideoProcessor.from_pretrained(folder), {"fps": 2}, ()
    return folder, transformers.Qwen2VLVideoProcessor.from_pretrained(folder), {"fps": 2}, ("--frame-rule", "transformers")


def theirs(processor, path, backend, options):
    """(values, grid or None): frames by the loader, chosen and processed by the model's processor."""
    from transformers.video_utils import load_video

    if backend == "torchcodec":  # as a user calls it, with a path
        out = processor(videos=[str(path)], do_sample_frames=True, return_tensors="pt", **options)
    else:
        choose = lambda metadata, **_: processor.sample_frames(metadata=metadata, **options)
        frames, metadata = load_video(str(path), backend=backend, sample_indices_fn=choose)
        out = processor(videos=[frames], video_metadata=[metadata], do_sample_frames=False, return_tensors="pt")
    grid = out.get("video_grid_thw")
    values = out["pixel_values_videos"].numpy()
    return (values[0], None) if grid is None else (values, grid.numpy())


def differing(tmp_path, name, path, loader="torchcodec"):
    """How many values differ; shapes and grids must be equal."""
    folder, processor, options, words = model(tmp_path, name)
    values, grid = theirs(processor, path, loader, options)
    ours = preprocess(tmp_path, folder, path, *ATEN, *words, *(() if loader == "torchcodec" else ("--frames", loader)))
    if grid is not None:
        assert np.array_equal(ours["video_grid_thw"], grid)
    assert ours["pixel_values_videos"].shape == values.shape
    return np.count_nonzero(ours["pixel_values_videos"].view(np.uint32) != values.view(np.uint32))


MODELS = ["qwen2-vl", "qwen3-vl", "internvl", "glm4v", "glm46v"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("file", [*loader_videos.EIGHT_BITS, *loader_videos.FILTERED])
def test_frames_are_those_of_torchcodec(tmp_path, videos, name, file):
    assert differing(tmp_path, name, videos[file]) == 0


@pytest.mark.parametrize("file", ["variable.mkv", "variable.mp4", "two-best-second.mkv", "two.mp4", "hidden.webm", "turned.mp4",
                                  "cut.mp4", "fragments.mp4", "ntsc.webm", "open-cut.mkv"])
def test_streams_counts_and_rates_are_those_of_torchcodec(tmp_path, videos, file):
    for name in ("qwen3-vl", "internvl", "glm4v", "glm46v"):
        assert differing(tmp_path, name, videos[file]) == 0


@pytest.mark.parametrize("path", media("video", ["video/h264.mp4", "video/vp9.webm", "video/hevc-open.mp4"]),
                         ids=lambda path: path.name)
def test_files_of_others_are_those_of_torchcodec(tmp_path, path):
    if path.name == "Megamind.avi":
        pytest.skip("AVI with B-VOPs: torchcodec takes the times of decoding for those of frames")
    assert differing(tmp_path, "qwen3-vl", path) == 0


@pytest.mark.parametrize("loader", ["pyav", "decord"])
@pytest.mark.parametrize("file", loader_videos.EIGHT_BITS)
def test_frames_are_those_of_the_other_loaders(tmp_path, videos, loader, file):
    if loader == "decord" and file in ("av1.mp4", "grey.mkv", "cinepak.avi"):
        pytest.skip("decord 0.6.0 cannot read it")
    if loader == "decord" and file == "mpeg4.mp4":
        pytest.skip("decord's MPEG-4 decoder is FFmpeg 4's, which rounds B-VOPs otherwise")
    if loader == "pyav" and file.endswith((".mkv", ".webm")):
        pytest.skip("the header of Matroska has no number of frames, and transformers chooses none")
    assert differing(tmp_path, "qwen3-vl", videos[file], loader) == 0


@pytest.mark.parametrize("file", [name for name in loader_videos.FILTERED if name != "odd-sides.mp4"])
def test_frames_of_filtered_chroma_are_those_of_decord(tmp_path, videos, file):
    assert differing(tmp_path, "qwen3-vl", videos[file], "decord") == 0


@pytest.mark.parametrize("loader,file", [("pyav", "two.mp4"), ("pyav", "turned.mp4"), ("pyav", "variable.mp4"),
                                         ("decord", "two.mp4"), ("decord", "two-best-second.mkv"), ("decord", "turned.mp4"),
                                         ("decord", "variable.mp4")])
def test_streams_and_rates_are_those_of_other_loaders(tmp_path, videos, loader, file):
    assert differing(tmp_path, "qwen3-vl", videos[file], loader) == 0


def test_frames_of_filtered_chroma_by_pyav_differ_as_documented(tmp_path, videos):
    # docs/preprocess.md says so of FFmpeg 8's filters; a test that fails once they are implemented.
    assert differing(tmp_path, "qwen3-vl", videos["10-bit.mp4"], "pyav") > 0


def test_accurate_frames_are_other_ones(tmp_path, videos):
    path, folder = videos["420.mp4"], PROCESSORS / "qwen3-vl"
    ours = preprocess(tmp_path, folder, path, *ATEN)["pixel_values_videos"]
    accurate = preprocess(tmp_path, folder, path, *ATEN, "--frames", "accurate")["pixel_values_videos"]
    assert np.mean(ours != accurate) > 0.3
