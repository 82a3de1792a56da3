"""Videos whose frames become tiles (LLaVA-NeXT-Video, LLaVA-OneVision, SmolVLM, VideoMAE) or patches (VideoLLaMA3, Ernie 4.5-VL) by `evenkeel preprocess` against the video processors and the
processors of the installed `transformers`, release 4 or 5: frames, their choice, and whole sequences with pictures and
videos; bit for bit.
"""

import dataclasses
import json
import random
import shutil
import subprocess

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, PROCESSORS, RELEASE, Image, image_processor, media, needed, photos, transformers
from frames import decoded, expected, ffmpeg
from test_parity_recent import FAMILIES, PROGRAM, TOKENIZER, draw_text, made, processor_of
from test_parity_video import ATEN, drawn
from transformers.video_utils import VideoMetadata  # after `installed`

pytestmark = needed
KINDS = {"llava-next-video": "LlavaNextVideoVideoProcessor", "llava-onevision": "LlavaOnevisionVideoProcessor"}


@pytest.fixture(scope="module")
def odd_videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    return {"one": drawn(folder / "one.mp4", "64x48", 1, "-pix_fmt", "yuv420p"),
            "odd": drawn(folder / "odd.mkv", "75x41", 31, "-pix_fmt", "yuv444p"),
            "wide": drawn(folder / "wide.mkv", "640x36", 24, "-pix_fmt", "yuv420p")}


def checkpoint(tmp_path, name, values):
    """(a folder of the goldens with these values in its video processor's file, or without the file; its processor)."""
    folder = tmp_path / name
    shutil.copytree(PROCESSORS / name, folder, dirs_exist_ok=True)
    if values is not None:
        (folder / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": KINDS[name], **values}))
    return folder, getattr(transformers, KINDS[name]).from_pretrained(folder)


def same(ours, theirs):
    values = np.asarray(theirs[0][0])
    assert ours["pixel_values_videos"].shape == values.shape
    assert np.array_equal(ours["pixel_values_videos"].view(np.uint32), values.view(np.uint32))


def reads_its_video_file(tmp_path, odd_videos, name, values):
    folder, processor = checkpoint(tmp_path, name, values)
    options = {"do_sample_frames": (values or {}).get("do_sample_frames", False)}
    for path in (GOLDEN / "video/h264.mp4", odd_videos["odd"], odd_videos["wide"]):
        if RELEASE == 4 and options["do_sample_frames"] and path != GOLDEN / "video/h264.mp4":
            continue  # chooses by torch.arange, which is the same where the number divides that of the frames
        same(preprocess(tmp_path, folder, path, *ATEN), expected(processor, path, tmp_path, **options))


@pytest.mark.parametrize("values", [
    None,
    {"size": {"height": 56, "width": 56}},
    {"size": {"height": 30, "width": 84}, "do_sample_frames": True, "num_frames": 8},
    {"size": {"height": 56, "width": 56}, "do_sample_frames": True, "fps": 3, "resample": 2, "image_mean": [0.5, 0.4, 0.3],
     "image_std": [0.5, 0.25, 0.125]},
    {"size": {"height": 56, "width": 56}, "do_sample_frames": True, "num_frames": 12, "do_normalize": False},
], ids=str)
def test_llava_onevision_reads_its_video_file(tmp_path, odd_videos, values):
    reads_its_video_file(tmp_path, odd_videos, "llava-onevision", values)


@pytest.mark.parametrize("values", [
    None,
    {"size": {"shortest_edge": 60}, "crop_size": {"height": 56, "width": 56}},
    {"size": {"height": 61, "width": 85}, "crop_size": {"height": 56, "width": 84}, "do_sample_frames": True, "num_frames": 8},
    {"size": {"height": 56, "width": 84}, "do_center_crop": False, "do_sample_frames": True, "fps": 3, "resample": 2,
     "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.125]},
], ids=str)
def test_llava_next_video_reads_its_video_file(tmp_path, odd_videos, values):
    reads_its_video_file(tmp_path, odd_videos, "llava-next-video", values)


# Release 4 resizes them by another filter, since its torchvision has no Lanczos for tensors.
SMOLVLM = [
    ({"size": {"longest_edge": 84}, "max_image_size": {"longest_edge": 56}, "fps": 2, "num_frames": 5}, {}),
    ({"size": {"longest_edge": 300}, "max_image_size": {"longest_edge": 98}, "video_sampling": {"fps": 3, "max_frames": 9}}, {}),
    ({"video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 512}}, "image_mean": [0.5, 0.4, 0.3]}, {}),
    ({"size": {"height": 50, "width": 30}, "max_image_size": {"longest_edge": 28}, "resample": 3}, {"do_sample_frames": False}),
]


@pytest.mark.skipif(RELEASE == 4, reason="resizes by another filter")
@pytest.mark.parametrize("values,options", SMOLVLM, ids=str)
def test_smolvlm_reads_its_video_file(tmp_path, odd_videos, values, options):
    folder = tmp_path / "smolvlm"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"image_processor_type": "SmolVLMImageProcessor", "processor_class": "SmolVLMProcessor"}))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": "SmolVLMVideoProcessor", **values}))
    processor = transformers.SmolVLMVideoProcessor.from_pretrained(folder)
    for path in [*media("video", ["video/h264.mp4", "video/vp9.webm"])[::3], GOLDEN / "video/h264.mp4", *odd_videos.values()]:
        if options and path.stat().st_size > 1 << 20:
            continue  # all frames of a long one
        same(preprocess(tmp_path, folder, path, *ATEN), expected(processor, path, tmp_path, **options))


@pytest.mark.skipif(RELEASE == 4, reason="5.23 is followed")
@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
def test_a_smolvlm_chat_with_a_video_is_that_of_the_processor(tmp_path):
    folder = tmp_path / "folder"
    processor = processor_of("smolvlm2", "aten_u8", folder)
    # Like the published template, it writes no videos; the processor then writes by one of its own.
    (folder / "chat_template.jinja").write_text("{% for turn in messages %}{{ turn.role }}: {% for part in turn.content %}"
                                                "{{ part.text if part.type == 'text' else '<image>' if part.type == 'image' else '' }}"
                                                "{% endfor %}\n{% endfor %}")
    file = json.loads((folder / "processor_config.json").read_text())
    file["video_processor"] |= {"fps": 1.5, "num_frames": 7}
    (folder / "processor_config.json").write_text(json.dumps(file))
    told = {"tokenizer": str(folder), "vision": str(folder), "chat": "template", "resampler": "aten_u8"}
    generator = random.Random(5)
    requests, wanted = [], []
    for _ in range(16):
        frames, fps = generator.choice([1, 5, 30, 400, 2000]), generator.choice([1, 8, 25])
        said = [draw_text(generator) for _ in "abc"]
        turns = [("user", [{"type": "text", "text": said[0]}, {"type": "video"}, {"type": "text", "text": said[1]}]),
                 ("assistant", [{"type": "text", "text": said[2] + "!"}])]
        generator.shuffle(turns[0][1])
        chat = {"messages": [{"role": role, "content": content} for role, content in turns]}
        requests.append({"processor": told, "sample": json.dumps(chat), "facts": [{"width": 30, "height": 20, "frames": frames, "fps": fps}]})
        text = processor.apply_chat_template(chat["messages"], tokenize=False)
        out = processor(text=[text], videos=[np.zeros((frames, 20, 30, 3), np.uint8)], do_sample_frames=True, fps=1.5, num_frames=7,
                        return_tensors="pt",
                        video_metadata=[VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps)])
        wanted.append([int(token) for token in np.asarray(out["input_ids"][0])])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])


@pytest.fixture(scope="module")
def clips_of_photos(tmp_path_factory):
    """Clips of two frames: photos of odd sizes, the second frame turned over; every EVENKEEL_PARITY_EVERY-th (29), 1 for all."""
    folder = tmp_path_factory.mktemp("clips")
    out = []
    for path in photos("pictures/*.png", "images/*.jpg"):
        picture = Image.open(path).convert("RGB")
        picture.save(folder / "0.png")
        picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(folder / "1.png")
        out.append(folder / f"{path.stem}.mkv")
        ffmpeg("-framerate", 2, "-i", folder / "%d.png", "-c:v", "libx264", "-crf", 12, "-pix_fmt", "yuv444p", out[-1])
    return out


VIDEOMAE = [{}, {"size": {"shortest_edge": 60}, "crop_size": {"height": 56, "width": 56}, "resample": 3},
            {"size": {"height": 61, "width": 85}, "crop_size": {"height": 56, "width": 84}, "image_mean": [0.485, 0.456, 0.406],
             "image_std": [0.229, 0.224, 0.225]}]


# The image processor of release 4 is Pillow's alone, and it has no video processor.
@pytest.mark.parametrize("values", VIDEOMAE, ids=str)
@pytest.mark.parametrize("kind", ["aten_u8", "pil13", "video"][1 if RELEASE == 4 else 0 : 2 if RELEASE == 4 else 3])
def test_clips_of_videomae_are_those_of_its_processors(tmp_path, odd_videos, clips_of_photos, kind, values):
    folder = tmp_path / "videomae"
    if kind == "video":
        processor = transformers.VideoMAEVideoProcessor(**values)
    else:
        processor = image_processor("videomae", "VideoMAEImageProcessor", kind)(**values)
    processor.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "videomae", "patch_size": 8, "tubelet_size": 1}))
    options = ["--frames", "accurate", *([] if kind == "video" else ["--resampler", kind])]
    compared = wrong = 0
    for path in [GOLDEN / "video/h264.mp4", GOLDEN / "video/vp9.webm", *odd_videos.values(), *clips_of_photos]:
        theirs = processor([list(np.array(decoded(path, tmp_path)[0]))], return_tensors="pt")["pixel_values"][0].numpy()
        ours = preprocess(tmp_path, folder, path, *options)["pixel_values"]
        assert ours.shape == theirs.shape, path.name
        compared += theirs.size
        wrong += np.count_nonzero(ours.view(np.uint32) != theirs.view(np.uint32))
    print(f"videomae {kind}: {wrong} of {compared} values differ, {len(clips_of_photos)} clips of photos")
    assert not wrong


@pytest.mark.skipif(RELEASE == 4, reason="has no video processor")
def test_a_videomae_folder_is_read_as_auto_processor_reads_it(tmp_path):
    folder = tmp_path / "videomae"
    transformers.VideoMAEVideoProcessor(size={"shortest_edge": 60}, crop_size=56).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "videomae", "patch_size": 8}))
    for kind in ("VideoMAEVideoProcessor", "VideoMAEImageProcessor"):
        processor = transformers.AutoProcessor.from_pretrained(folder)
        assert type(processor).__name__ == kind
        frames = list(np.array(decoded(GOLDEN / "video/h264.mp4", tmp_path)[0]))
        theirs = processor([frames], return_tensors="pt")["pixel_values"][0].numpy()
        assert np.array_equal(preprocess(tmp_path, folder, GOLDEN / "video/h264.mp4", "--frames", "accurate")["pixel_values"], theirs)
        transformers.VideoMAEImageProcessor(size={"shortest_edge": 40}, crop_size=32).save_pretrained(folder)


# (golden checkpoint, class, what its file has, options of our command)
SINGLE_FRAMES = [
    ("videollama3", "VideoLlama3VideoProcessor", {}, ()),
    ("videollama3", "VideoLlama3VideoProcessor", {"size": {"shortest_edge": 784, "longest_edge": 150528}, "resample": 2}, ()),
    ("videollama3", "VideoLlama3VideoProcessor", {"min_pixels": 3136, "max_pixels": 90000, "do_sample_frames": True, "fps": 3,
                                                  "max_frames": 9, "image_mean": [0.5, 0.4, 0.3]}, ()),
    ("videollama3", "VideoLlama3VideoProcessor", {"do_sample_frames": True, "num_frames": 3}, ()),
    ("videollama3", "VideoLlama3VideoProcessor", {}, ("--fps", 2.5)),
    ("ernie4_5-vl", "Ernie4_5_VLMoeVideoProcessor", {}, ()),
    ("ernie4_5-vl", "Ernie4_5_VLMoeVideoProcessor", {"size": {"shortest_edge": 784, "longest_edge": 20000}, "fps": 3.3, "min_frames": 2,
                                                     "max_frames": 11, "resample": 2}, ()),
    ("ernie4_5-vl", "Ernie4_5_VLMoeVideoProcessor", {"size": {"shortest_edge": 784, "longest_edge": 20000}, "num_frames": 3,
                                                     "min_frames": 2}, ()),
    ("ernie4_5-vl", "Ernie4_5_VLMoeVideoProcessor", {"size": {"shortest_edge": 784, "longest_edge": 20000}, "do_sample_frames": False}, ()),
    ("ernie4_5-vl", "Ernie4_5_VLMoeVideoProcessor", {"size": {"shortest_edge": 784, "longest_edge": 20000}},
     ("--fps", 2.5, "--min-frames", 3, "--max-frames", 7)),
]
REFUSED = {"videollama3": "use_token_compression", "ernie4_5-vl": "draw_on_frames"}


def of_single_frames(folder, name, kind, values):
    shutil.copytree(PROCESSORS / name, folder)
    processor = getattr(transformers, kind)(**{REFUSED[name]: False}, **values)
    processor.save_pretrained(folder)
    return processor


@pytest.mark.skipif(RELEASE == 4, reason="has no such class")
@pytest.mark.parametrize("name,kind,values,words", SINGLE_FRAMES, ids=str)
def test_videos_of_single_frames_are_those_of_the_processor(tmp_path, odd_videos, clips_of_photos, name, kind, values, words):
    folder = tmp_path / "folder"
    processor = of_single_frames(folder, name, kind, values)
    options = {"do_sample_frames": values.get("do_sample_frames", kind.startswith("Ernie"))}
    if words:
        options = dict(zip((word[2:].replace("-", "_") for word in words[::2]), words[1::2]))
    compared = 0
    clips = [] if "num_frames" in values or "max_frames" in values else clips_of_photos  # which have two frames
    for path in (*media("video", ["video/h264.mp4", "video/vp9.webm"])[::3], GOLDEN / "video/h264.mp4", *odd_videos.values(), *clips):
        if path.stat().st_size > 1 << 20 and path not in clips and not options.get("do_sample_frames", True):
            continue  # all frames of a long one
        try:
            values_there, grid = expected(processor, path, tmp_path, **options)
        except (ValueError, RuntimeError, IndexError) as error:
            # One frame of an array that is sampled loses its axis there, and a rounded quotient can ask for one frame
            # beyond the end.
            if "permute" in str(error) or isinstance(error, IndexError):
                continue
            assert "exceeds `total_num_frames" in str(error), path.name
            assert "fewer than the" in refusal(tmp_path, folder, path, *ATEN, *words), path.name
            continue
        ours = preprocess(tmp_path, folder, path, *ATEN, *words)
        assert np.array_equal(ours["video_grid_thw"], grid), path.name
        if name == "videollama3":
            assert ours["video_merge_sizes"].tolist() == [2]
        mine = ours["pixel_values_videos"].reshape(values_there.shape)
        assert not np.count_nonzero(mine.view(np.uint32) != np.ascontiguousarray(values_there).view(np.uint32)), path.name
        compared += values_there.size
    print(f"{name}: 0 of {compared} values differ, {len(clips)} clips of photos")
    assert compared


@pytest.mark.skipif(RELEASE == 4, reason="has no such class")
@pytest.mark.parametrize("name,kind", [case[:2] for case in SINGLE_FRAMES[::5]])
def test_what_depends_on_pixels_is_refused_and_python_named(tmp_path, name, kind):
    shutil.copytree(PROCESSORS / name, tmp_path / "folder")
    (tmp_path / "folder/video_preprocessor_config.json").write_text(json.dumps({"video_processor_type": kind}))
    said = refusal(tmp_path, tmp_path / "folder", GOLDEN / "video/h264.mp4")
    assert REFUSED[name] in said and "processor.python: transformers" in said


def test_a_number_and_a_rate_are_refused_as_there(tmp_path):
    folder, processor = checkpoint(tmp_path, "llava-onevision", {"do_sample_frames": True, "num_frames": 2, "fps": 1})
    with pytest.raises(ValueError):
        expected(processor, GOLDEN / "video/h264.mp4", tmp_path, num_frames=2, fps=1)
    assert "num_frames: is given together with fps" in refusal(tmp_path, folder, GOLDEN / "video/h264.mp4")


def test_one_frame_is_a_video(tmp_path, odd_videos):
    folder, processor = checkpoint(tmp_path, "llava-onevision", {"size": {"height": 56, "width": 56}})
    same(preprocess(tmp_path, folder, odd_videos["one"], *ATEN),
         expected(processor, odd_videos["one"], tmp_path, do_sample_frames=False))


@pytest.mark.skipif(RELEASE == 4, reason="chooses by torch.arange; release 5 is followed")
@pytest.mark.parametrize("path", media("video", ["video/h264.mp4", "video/vp9.webm", "video/mpeg4-b.mp4"]), ids=lambda path: path.name)
def test_frames_are_chosen_as_a_caller_asks(tmp_path, path):
    folder, processor = checkpoint(tmp_path, "llava-onevision", {"size": {"height": 56, "width": 56}})
    for words, options in ((("--fps", "1.3"), {"fps": 1.3}), (("--frame-rule", "transformers"), {"fps": 2}),
                           (("--min-frames", "7", "--max-frames", "7"), {"num_frames": 7})):
        same(preprocess(tmp_path, folder, path, *ATEN, *words), expected(processor, path, tmp_path, **options))


def test_more_frames_than_there_are_are_refused(tmp_path, odd_videos):
    folder, processor = checkpoint(tmp_path, "llava-onevision", {"do_sample_frames": True, "num_frames": 2})
    with pytest.raises(ValueError):
        expected(processor, odd_videos["one"], tmp_path)
    assert "a video of 1 frames has fewer than the 2" in refusal(tmp_path, folder, odd_videos["one"])


SEQUENCES = {"videollama3": ("<|image_pad|>", "<|video_pad|>"),
             "ernie4_5-vl": ("<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", "<|VIDEO_START|><|VIDEO_PLACEHOLDER|><|VIDEO_END|>")}


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", [name for name in SEQUENCES if name in FAMILIES])
def test_sequences_with_single_frames_are_the_processor_s(tmp_path, name):
    folder = tmp_path / "folder"
    video = {"size": {"shortest_edge": 784, "longest_edge": 60000}, REFUSED[name]: False}
    family = FAMILIES[name]
    processor = made(dataclasses.replace(family, parts=((*family.parts[0][:3], video),)), "aten_u8", folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for _ in range(16):
        text, content, facts, given, metadata = "", [], [], {"images": [], "videos": []}, []
        kinds = ["video", *generator.choices(["image", "video"], k=generator.randrange(4))]
        generator.shuffle(kinds)
        for kind in kinds:
            sides = [generator.randrange(20, generator.choice([120, 500])) for _ in "wh"]
            frames, fps = generator.randrange(2, 24), generator.choice([3, 8, 25])
            said = draw_text(generator)
            text += said + SEQUENCES[name][kind == "video"]
            content += [{"type": "text", "text": said}, {"type": kind}]
            facts.append(dict(zip(("width", "height"), sides)) | ({"frames": frames, "fps": fps} if kind == "video" else {}))
            given[kind + "s"].append(Image.new("RGB", sides) if kind == "image" else np.zeros((frames, sides[1], sides[0], 3), np.uint8))
            if kind == "video":
                metadata.append(VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps, frames_indices=list(range(frames))))
        said = draw_text(generator)
        content.append({"type": "text", "text": said})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        pictures = {"images": [given["images"]]} if given["images"] else {}
        out = processor(text=[text + said], videos=given["videos"], video_metadata=metadata, padding=False, **pictures)
        wanted.append([int(token) for token in np.asarray(out["input_ids"][0])] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", [name for name in KINDS if name in FAMILIES])
def test_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = processor_of(name, "pil13" if RELEASE == 4 else "aten_u8", folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for _ in range(12):
        text, content, facts, given = "", [], [], {"images": [], "videos": []}
        # A call of release 4 counts all videos as its first.
        kinds = ["video", *generator.choices(["image", *(["video"] if RELEASE > 4 else [])], k=generator.randrange(4))]
        generator.shuffle(kinds)
        frames = generator.randrange(1, 9)
        for kind in kinds:
            sides = [generator.randrange(20, generator.choice([120, 900])) for _ in "wh"]
            said = draw_text(generator)
            text += said + f"<{kind}>"
            content += [{"type": "text", "text": said}, {"type": kind}]
            facts.append(dict(zip(("width", "height"), sides)) | ({"frames": frames, "fps": 8} if kind == "video" else {}))
            given[kind + "s"].append(Image.new("RGB", sides) if kind == "image" else np.zeros((frames, sides[1], sides[0], 3), np.uint8))
        said = draw_text(generator)
        content.append({"type": "text", "text": said})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        pictures = {"images": [given["images"]]} if given["images"] else {}
        out = processor(text=[text + said], videos=given["videos"], padding=False, **pictures)
        wanted.append([int(token) for token in np.asarray(out["input_ids"][0])] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
