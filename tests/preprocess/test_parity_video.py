"""Videos by `evenkeel preprocess` against the video processors of the installed `transformers`: the frames that they
choose, among those that FFmpeg's own command decodes, resized and normalised by them; bit for bit.

The videos are those next to the tree (EVENKEEL_SHARED, or ../shared), else those of the goldens; and odd ones made here.
"""

import json
import shutil

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, PROCESSORS, RELEASE, media, needed, transformers
from frames import expected, ffmpeg  # after it, for it needs transformers

pytestmark = needed
Qwen2VLVideoProcessor, Qwen3VLVideoProcessor = transformers.Qwen2VLVideoProcessor, transformers.Qwen3VLVideoProcessor
InternVLVideoProcessor = transformers.InternVLVideoProcessor

X264 = ["-c:v", "libx264", "-bf", "2", "-g", "10", "-threads", "1"]


def drawn(path, size, frames, *options):
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=12:duration={frames / 12}", *options, *X264, path)
    return path


@pytest.fixture(scope="session")
def odd_videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    videos = {f"of-{n}": drawn(folder / f"of-{n}.mp4", "64x48", n, "-pix_fmt", "yuv420p") for n in (1, 2, 3, 5)}
    videos["odd-sides"] = drawn(folder / "odd-sides.mkv", "75x41", 30, "-pix_fmt", "yuv444p")
    videos["wide"] = drawn(folder / "wide.mkv", "640x36", 24, "-pix_fmt", "yuv422p10le")
    videos["variable"] = drawn(folder / "variable.mkv", "96x64", 40, "-vf", "setpts=N*N/12/TB", "-vsync", "passthrough",
                               "-pix_fmt", "yuv420p")
    flat = drawn(folder / "flat.mp4", "100x60", 30, "-pix_fmt", "yuv420p")
    videos["turned"] = folder / "turned.mp4"
    ffmpeg("-i", flat, "-c", "copy", "-metadata:s:v", "rotate=90", videos["turned"])
    return videos


def same(ours, theirs):
    values, grid = theirs
    assert np.array_equal(ours["video_grid_thw"], grid)
    assert np.count_nonzero(ours["pixel_values_videos"].view(np.uint32) != values.view(np.uint32)) == 0


def videos():
    return media("video", ["video/h264.mp4", "video/vp9.webm", "video/mpeg4-b.mp4", "video/hevc-open.mp4"])


ODD = ["of-2", "of-3", "of-5", "odd-sides", "wide", "variable", "turned"]
ATEN = ("--resampler", "aten_u8", "--frames", "accurate")  # frames.py has the accurate conversion
BOUNDED = {"shortest_edge": 4096, "longest_edge": 4 * 200704}  # so that all frames of the longest fit in memory


@pytest.fixture(autouse=True)
def untouched_class(monkeypatch):
    """Release 4 writes a checkpoint's min_pixels and max_pixels into the class, where the next one finds them."""
    monkeypatch.setattr(Qwen2VLVideoProcessor, "size", dict(Qwen2VLVideoProcessor.size))


def checkpoint(tmp_path, name, **video):
    """A folder of the goldens' image processor, and a video processor with these values."""
    folder = tmp_path / "checkpoint"
    folder.mkdir(exist_ok=True)
    kind = "Qwen3VL" if name == "qwen3-vl" else "Qwen2VL"
    base = json.loads((PROCESSORS / name / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(base))
    own = {key: base[key] for key in ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std",
                                      "processor_class")}
    own["video_processor_type"] = f"{kind}VideoProcessor"
    (folder / "video_preprocessor_config.json").write_text(json.dumps({**own, **video}))
    return folder


@pytest.mark.parametrize("path", videos(), ids=lambda path: path.name)
def test_qwen3_vl_equals_its_video_processor(tmp_path, path):
    folder = checkpoint(tmp_path, "qwen3-vl", size=BOUNDED)
    processor = Qwen3VLVideoProcessor.from_pretrained(folder)
    same(preprocess(tmp_path, folder, path, *ATEN), expected(processor, path, tmp_path, fps=2))


@pytest.mark.parametrize("path", videos(), ids=lambda path: path.name)
def test_qwen2_vl_equals_its_video_processor(tmp_path, path):
    folder = checkpoint(tmp_path, "qwen2-vl", size={"shortest_edge": 3136, "longest_edge": 28 * 28 * 48})
    processor = Qwen2VLVideoProcessor.from_pretrained(folder)
    for fps in (2, 1.5, 1):
        try:
            theirs = expected(processor, path, tmp_path, fps=fps)
            break
        except IndexError:  # torch.arange has one element more, beyond the last frame
            continue
    same(preprocess(tmp_path, folder, path, *ATEN, "--frame-rule", "transformers", "--fps", fps), theirs)


@pytest.mark.parametrize("name", ODD)
def test_odd_videos_equal_the_video_processors(tmp_path, odd_videos, name):
    path = odd_videos[name]
    for model, own, words in (("qwen2-vl", Qwen2VLVideoProcessor, ("--frame-rule", "transformers")),
                              ("qwen3-vl", Qwen3VLVideoProcessor, ())):
        processor = own.from_pretrained(PROCESSORS / model)
        same(preprocess(tmp_path, PROCESSORS / model, path, *ATEN, *words),
             expected(processor, path, tmp_path, turned=name == "turned", fps=2))


def frame_bounds(model):
    """What the processors of the Omni models tell their video processor, whatever its file says."""
    kind = {"qwen2_5-omni": "Qwen2_5OmniProcessor", "qwen3-omni": "Qwen3OmniMoeProcessor"}[model]
    return {"size": getattr(transformers, kind).videos_kwargs["size"]}


@pytest.mark.skipif(RELEASE == 4, reason="bounds frames by the file; release 5 is followed")
@pytest.mark.parametrize("name", ["of-5", "odd-sides", "variable"])
@pytest.mark.parametrize("model", ["qwen2_5-omni", "qwen3-omni"])
def test_videos_of_the_omni_models_equal_their_processors(tmp_path, odd_videos, model, name):
    processor = Qwen2VLVideoProcessor.from_pretrained(PROCESSORS / model)
    ours = preprocess(tmp_path, PROCESSORS / model, odd_videos[name], *ATEN, "--frame-rule", "transformers")
    same(ours, expected(processor, odd_videos[name], tmp_path, fps=2, **frame_bounds(model)))
    assert ours["video_second_per_grid"].tolist() == [1.0]


@pytest.mark.parametrize("words,turned", [((), True), (("--video-rotation", "ignore"), False)])
def test_videos_are_turned_as_by_ffmpeg_unless_ignored(tmp_path, odd_videos, words, turned):
    processor = Qwen3VLVideoProcessor.from_pretrained(PROCESSORS / "qwen3-vl")
    ours = preprocess(tmp_path, PROCESSORS / "qwen3-vl", odd_videos["turned"], *ATEN, *words)
    same(ours, expected(processor, odd_videos["turned"], tmp_path, turned=turned, fps=2))


def test_one_frame_is_refused_as_the_processors_refuse_it(tmp_path, odd_videos):
    for model, own, words in (("qwen2-vl", Qwen2VLVideoProcessor, ("--frame-rule", "transformers")),
                              ("qwen3-vl", Qwen3VLVideoProcessor, ())):
        with pytest.raises((ValueError, ZeroDivisionError)):
            expected(own.from_pretrained(PROCESSORS / model), odd_videos["of-1"], tmp_path, fps=2)
        assert "frame" in refusal(tmp_path, PROCESSORS / model, odd_videos["of-1"], *words)


@pytest.mark.parametrize("bounds", [
    {"size": {"shortest_edge": 100352, "longest_edge": 150528}},
    {"size": {"shortest_edge": 784, "longest_edge": 3136}, "fps": 4.0, "min_frames": 8, "max_frames": 10},
    {"min_pixels": 6272, "max_pixels": 12544},
    {},
    {"size": {"shortest_edge": 784, "longest_edge": 150528}, "cap_pixels_per_frame": True, "max_video_tokens": 100},
    {"min_pixels": 6272, "max_pixels": 12544, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.125], "resample": 2},
])
def test_qwen2_vl_reads_its_video_file(tmp_path, bounds):
    if RELEASE == 4 and "cap_pixels_per_frame" in bounds:
        pytest.skip("came with release 5")
    folder = checkpoint(tmp_path, "qwen2-vl", **bounds)
    path = GOLDEN / "video/h264.mp4"
    processor = Qwen2VLVideoProcessor.from_pretrained(folder)
    options = {} if "fps" in bounds else {"fps": 2}
    same(preprocess(tmp_path, folder, path, *ATEN, "--frame-rule", "transformers"),
         expected(processor, path, tmp_path, **options))


@pytest.mark.parametrize("values", [
    {"size": {"shortest_edge": 4096, "longest_edge": 40960}, "fps": 5, "min_frames": 6, "max_frames": 9},
    {},
    {"size": {"shortest_edge": 4096, "longest_edge": 1 << 20}, "cap_pixels_per_frame": True, "max_video_tokens": 3},
    {"size": {"shortest_edge": 4096, "longest_edge": 40960}, "image_mean": [0.485, 0.456, 0.406], "rescale_factor": 1 / 128},
])
def test_qwen3_vl_reads_its_video_file(tmp_path, values):
    if RELEASE == 4 and "cap_pixels_per_frame" in values:
        pytest.skip("came with release 5")
    folder = checkpoint(tmp_path, "qwen3-vl", **values)
    path = GOLDEN / "video/hevc.mp4"
    same(preprocess(tmp_path, folder, path, *ATEN), expected(Qwen3VLVideoProcessor.from_pretrained(folder), path, tmp_path))


def internvl(tmp_path, **video):
    """A folder of the goldens' InternVL, with a video processor's file of its own where there are values for it."""
    folder = tmp_path / "internvl"
    shutil.copytree(PROCESSORS / "internvl", folder, dirs_exist_ok=True)
    if video:
        own = {"video_processor_type": "InternVLVideoProcessor", "processor_class": "InternVLProcessor", **video}
        (folder / "video_preprocessor_config.json").write_text(json.dumps(own))
    return folder


def same_frames(ours, theirs):
    assert ours["pixel_values_videos"].shape == theirs[0][0].shape
    assert np.array_equal(ours["pixel_values_videos"].view(np.uint32), theirs[0][0].view(np.uint32))


@pytest.mark.parametrize("values", [
    {},
    {"size": {"height": 56, "width": 56}, "do_sample_frames": True, "num_frames": 7},
    {"size": 42, "do_sample_frames": True, "fps": 1.5, "initial_shift": False, "resample": 2},
    {"do_sample_frames": True, "num_frames": 3, "initial_shift": 1.25, "image_mean": [0.5, 0.4, 0.3],
     "image_std": [0.5, 0.25, 0.125]},
    {"do_sample_frames": False, "do_normalize": False},
])
def test_internvl_reads_its_video_file(tmp_path, odd_videos, values):
    folder = internvl(tmp_path, **values)
    processor = InternVLVideoProcessor.from_pretrained(folder)
    for path in (GOLDEN / "video/h264.mp4", odd_videos["odd-sides"], odd_videos["wide"]):
        same_frames(preprocess(tmp_path, folder, path, *ATEN),
                    expected(processor, path, tmp_path, do_sample_frames=values.get("do_sample_frames", False)))


@pytest.mark.parametrize("name", ["of-1", *ODD])
def test_internvl_takes_every_frame_of_odd_videos(tmp_path, odd_videos, name):
    folder = internvl(tmp_path, size={"height": 84, "width": 84})
    processor = InternVLVideoProcessor.from_pretrained(folder)
    same_frames(preprocess(tmp_path, folder, odd_videos[name], *ATEN),
                expected(processor, odd_videos[name], tmp_path, turned=name == "turned", do_sample_frames=False))


@pytest.mark.parametrize("path", videos(), ids=lambda path: path.name)
def test_internvl_samples_as_a_caller_asks(tmp_path, path):
    folder = internvl(tmp_path)
    processor = InternVLVideoProcessor.from_pretrained(folder)
    for words, options in ((("--frame-rule", "transformers"), {"fps": 2}),
                           (("--min-frames", "8", "--max-frames", "8"), {"num_frames": 8})):
        same_frames(preprocess(tmp_path, folder, path, *ATEN, *words), expected(processor, path, tmp_path, **options))


def test_internvl_refuses_more_frames_than_there_are(tmp_path, odd_videos):
    folder = internvl(tmp_path, do_sample_frames=True, num_frames=6)
    with pytest.raises(ValueError):
        expected(InternVLVideoProcessor.from_pretrained(folder), odd_videos["of-5"], tmp_path)
    assert "a video of 5 frames has fewer than the 6" in refusal(tmp_path, folder, odd_videos["of-5"])


@pytest.mark.parametrize("values", [{"num_frames": 5}, {"num_frames": 7},
                                    {"num_frames": 12, "size": {"shortest_edge": 12544, "longest_edge": 3136}}], ids=str)
def test_a_fixed_number_of_frames_is_read_as_in_transformers(tmp_path, values):
    folder = tmp_path / "folder"
    shutil.copytree(PROCESSORS / "qwen2-vl", folder)
    path = folder / "video_preprocessor_config.json"
    path.write_text(json.dumps({"video_processor_type": "Qwen2VLVideoProcessor", **values}))
    theirs = expected(Qwen2VLVideoProcessor.from_pretrained(folder), GOLDEN / "video/h264.mp4", tmp_path)
    same(preprocess(tmp_path, folder, GOLDEN / "video/h264.mp4", "--frame-rule", "transformers", *ATEN), theirs)
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_frames": 100}))
    assert "a video of 24 frames has fewer than the 100" in refusal(tmp_path, folder, GOLDEN / "video/h264.mp4", "--frame-rule", "transformers")
