"""Molmo 2, DeepSeek-OCR 2 and the videos of MiniCPM-V 4.6 against the processors of the installed `transformers`: pictures,
frames, numbers and whole texts. Release 4 has none of them.

The pictures are of odd sizes, and the photos next to the tree; every EVENKEEL_PARITY_EVERY-th of them (29), 1 for all."""

import dataclasses
import json
import random
import subprocess

import numpy as np
import pytest

from command import SHARED, preprocess, refusal
from installed import GOLDEN, RELEASE, Image, image_processor, media, needed, photos, threads, transformers  # threads: a fixture  # noqa: F401
from frames import decoded, expected  # after `installed`, which skips where there is no transformers
from test_parity_recent import FAMILIES, PICTURE, PROGRAM, SIZES, TOKENIZER, draw_text, made
from test_parity_video import ATEN, drawn
from transformers.video_utils import VideoMetadata  # after `installed`

pytestmark = [*needed, pytest.mark.skipif(RELEASE == 4, reason="has no such class")]
MOLMO_TOKENS = ["<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<frame_start>", "<im_end>", "<frame_end>", "<im_low>",
                "<|image|>", "<|video|>"]
SMALL = {"size": {"height": 98, "width": 98}, "patch_size": 7, "max_crops": 5, "overlap_margins": [1, 2], "pooling_size": [2, 3]}
SCALED = {"do_rescale": True, "do_normalize": True}  # which the class of videos does not do by itself
# name: (values of the image processor, of the video processor, of the processor)
MOLMO = {
    "published": ({}, {}, {}),
    "small": (SMALL, {**SCALED, "size": {"height": 84, "width": 84}, "num_frames": 5, "max_fps": 3, "resample": 3},
              {"image_use_col_tokens": False, "use_frame_special_tokens": False}),
    "cubic": ({"resample": 3, "max_crops": 12, "overlap_margins": [0, 4], "image_mean": [0.4] * 3}, {**SCALED, "pooling_size": [2, 2]},
              {"use_single_crop_col_tokens": False, "use_single_crop_start_token": False, "video_use_col_tokens": True}),
}


def words_with(tokens, **named):
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    words.add_tokens([transformers.AddedToken(token, special=True) for token in tokens], special_tokens=True)
    words.eos_token = words.pad_token = "<|endoftext|>"
    for name, token in named.items():
        setattr(words, name, token)
        setattr(words, f"{name}_id", words.convert_tokens_to_ids(token))
    return words


def molmo(name, folder):
    pictures, videos, told = MOLMO[name]
    processor = transformers.Molmo2Processor(
        image_processor=image_processor("molmo2", "Molmo2ImageProcessor", "aten_u8")(**pictures),
        video_processor=transformers.Molmo2VideoProcessor(**videos),
        tokenizer=words_with(MOLMO_TOKENS, image_token="<|image|>", video_token="<|video|>"), **told)
    processor.save_pretrained(folder)
    return processor


def scene(tmp_path, width, height):
    path = tmp_path / f"{width}x{height}.png"
    Image.open(PICTURE).convert("RGB").resize((width, height)).save(path)
    return path


def bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def molmo_differs(tmp_path, folder, processor, paths):
    theirs = processor.image_processor([Image.open(path) for path in paths], return_tensors="pt")
    ours = preprocess(tmp_path, folder, paths, "--resampler", "aten_u8")
    grids, crops = theirs["image_grids"].numpy(), theirs["image_num_crops"].numpy()
    assert np.array_equal(ours["image_grids"].reshape(-1, 4), grids)
    assert np.array_equal(ours["image_num_crops"].ravel(), crops)
    pooling, first, begin = theirs["image_token_pooling"].numpy(), 0, 0
    patches = theirs["pixel_values"].shape[1]
    for mine, grid, count in zip(ours["image_token_pooling"].reshape(len(grids), -1, pooling.shape[1]), grids, crops):
        tokens = grid[0] * grid[1] + grid[2] * grid[3]
        wanted = pooling[begin : begin + tokens]
        assert np.array_equal(np.where(mine[:tokens] < 0, -1, mine[:tokens] + first), wanted) and (mine[tokens:] == -1).all()
        begin, first = begin + tokens, first + count * patches
    assert begin == len(pooling)
    mine = bits(ours["pixel_values"])
    return np.count_nonzero(mine.ravel() != bits(theirs["pixel_values"].numpy()).ravel())


@pytest.mark.parametrize("name", MOLMO)
def test_molmo_pictures_of_odd_sizes_are_those_of_the_processor(tmp_path, name):
    processor = molmo(name, tmp_path / "folder")
    for width, height in [*SIZES, (112, 300), (112, 112), (378, 378), (226, 378), (3000, 2999)]:
        assert molmo_differs(tmp_path, tmp_path / "folder", processor, [scene(tmp_path, width, height)]) == 0, (width, height)


def test_several_molmo_pictures_are_each_as_alone(tmp_path):
    processor = molmo("small", tmp_path / "folder")
    assert molmo_differs(tmp_path, tmp_path / "folder", processor, [scene(tmp_path, *size) for size in SIZES[4:10]]) == 0


@pytest.mark.skipif(not (SHARED / "media/photos").exists(), reason="no photos next to the tree")
@pytest.mark.parametrize("name", ["published", "small"])
def test_molmo_photos_are_those_of_the_processor(tmp_path, name):
    processor = molmo(name, tmp_path / "folder")
    assert [path for path in photos() if molmo_differs(tmp_path, tmp_path / "folder", processor, [path])] == []
    print(f"molmo2 {name}: {len(photos())} photos are equal")


@pytest.fixture(scope="module")
def odd_videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    return [drawn(folder / "two.mp4", "64x48", 13, "-pix_fmt", "yuv420p"), drawn(folder / "odd.mkv", "75x41", 31, "-pix_fmt", "yuv444p"),
            drawn(folder / "wide.mkv", "640x36", 24, "-pix_fmt", "yuv420p"), drawn(folder / "large.mkv", "930x520", 15, "-pix_fmt", "yuv420p")]


def their_video(processor, path, tmp_path, **options):
    """As frames.expected, but everything that the class gives."""
    seen = {}
    class Kept:
        def __call__(self, **given):
            seen.update(processor(**given))
            return seen
    expected(Kept(), path, tmp_path, **options)
    return seen


@pytest.mark.parametrize("name", MOLMO)
def test_molmo_videos_are_those_of_the_processor(tmp_path, odd_videos, name):
    processor = molmo(name, tmp_path / "folder")
    for path in (*media("video", ["video/h264.mp4", "video/vp9.webm"])[::3], GOLDEN / "video/h264.mp4", *odd_videos):
        theirs = their_video(processor.video_processor, path, tmp_path)
        ours = preprocess(tmp_path, tmp_path / "folder", path, *ATEN)
        assert np.array_equal(ours["video_grids"].reshape(-1, 3), theirs["video_grids"]), path.name
        pooling = theirs["video_token_pooling"].numpy()
        assert np.array_equal(ours["video_token_pooling"].reshape(pooling.shape), pooling), path.name
        assert not np.count_nonzero(bits(ours["pixel_values_videos"]).ravel() != bits(theirs["pixel_values_videos"].numpy()).ravel()), path.name


def asked(requests):
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def drawn_sample(generator, kinds, marks):
    """A text with media, its parts, their facts and what a call gets."""
    text, content, facts, given, metadata = "", [], [], {"images": [], "videos": []}, []
    for kind in kinds:
        sides = [generator.randrange(20, generator.choice([120, 900])) for _ in "wh"]
        fps = generator.choice([1, 3, 8, 25])
        frames = fps + generator.randrange(2, 40)  # an array of which one frame is chosen loses its axis there
        said = draw_text(generator)
        text += said + marks[kind]
        content += [{"type": "text", "text": said}, {"type": kind}]
        facts.append(dict(zip(("width", "height"), sides)) | ({"frames": frames, "fps": fps} if kind == "video" else {}))
        given[kind + "s"].append(Image.new("RGB", sides) if kind == "image" else np.zeros((frames, sides[1], sides[0], 3), np.uint8))
        if kind == "video":
            metadata.append(VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps))
    said = draw_text(generator)
    content.append({"type": "text", "text": said})
    call = {}
    if given["images"]:
        call["images"] = [given["images"]]
    if given["videos"]:
        call |= {"videos": [given["videos"]], "video_metadata": [metadata]}
    return text + said, content, facts, call


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", MOLMO)
def test_molmo_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = molmo(name, folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for turn in range(14):
        kinds = generator.choices(["image"], k=generator.randrange(1, 4)) + (["video"] if turn % 2 else [])
        generator.shuffle(kinds)
        text, content, facts, call = drawn_sample(generator, kinds, {"image": "<|image|>", "video": "<|video|>"})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        ids = [int(token) for token in np.asarray(processor(text=[text], padding=False, **call)["input_ids"][0])]
        assert ids[0] == processor.tokenizer.eos_token_id, "it puts one where there is no bos_token"
        wanted.append([*ids[1:], processor.tokenizer.eos_token_id])
    for request, answer, ids in zip(requests, asked(requests), wanted):
        assert answer.get("ids") == ids, (request, str(answer)[:300])


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("bos", [None, "<|im_low|>"])
def test_a_molmo_chat_begins_as_the_processor_begins_it(tmp_path, bos):
    folder = tmp_path / "folder"
    processor = molmo("small", folder)
    if bos:
        processor.tokenizer.add_special_tokens({"bos_token": bos})
    for begin in ("", bos or "<|endoftext|>"):
        processor.chat_template = begin + ("{% for turn in messages %}{{ turn.role }}: {% for part in turn.content %}"
                                           "{{ part.text if part.type == 'text' else '<|image|>' }}{% endfor %}\n{% endfor %}")
        processor.save_pretrained(folder)
        told = {"tokenizer": str(folder), "vision": str(folder), "chat": "template", "resampler": "aten_u8", "labels": "all"}
        chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What's it?"}]}]
        request = {"processor": told, "sample": json.dumps({"messages": chat}), "facts": [{"width": 30, "height": 20}]}
        text = processor.apply_chat_template(chat, tokenize=False)
        ids = processor(text=[text], images=[[Image.new("RGB", (30, 20))]], padding=False)["input_ids"][0]
        assert asked([request])[0].get("ids") == [int(token) for token in ids]


OCR2 = {"published": {}, "small": {"size": {"height": 256, "width": 256}, "tile_size": 96, "background_color": [3, 200, 90], "resample": 2}}


def ocr2(name, resampler, folder):
    processor = transformers.DeepseekOcr2Processor(
        image_processor=image_processor("deepseek_ocr2", "DeepseekOcr2ImageProcessor", resampler)(**OCR2[name]),
        tokenizer=words_with(["<image>"], image_token="<image>"))
    processor.save_pretrained(folder)
    return processor


def ocr2_differs(tmp_path, folder, processor, paths, resampler):
    theirs = processor.image_processor([Image.open(path) for path in paths], return_tensors="pt", **processor.images_kwargs)
    ours = preprocess(tmp_path, folder, paths, "--resampler", resampler)
    tiles = np.asarray(theirs["num_local_patches"]).ravel()
    assert np.array_equal(ours["num_local_patches"].ravel(), tiles)
    whole = np.asarray(theirs["pixel_values"], np.float32)
    wrong = np.count_nonzero(bits(ours["pixel_values"]).ravel() != bits(whole).ravel())
    local = np.asarray(theirs["pixel_values_local"], np.float32) if tiles.any() else []
    mine, first, begin = ours["pixel_values_local"], 0, 0
    for count in tiles:
        if count:
            wrong += np.count_nonzero(bits(mine[first : first + count]) != bits(local[begin : begin + count]))
        else:
            assert not mine[first].any(), "a row that is to be left out"
        first, begin = first + max(count, 1), begin + count
    assert first == len(mine) and begin == len(local)
    return wrong


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("name", OCR2)
def test_ocr2_pictures_are_those_of_the_processor(tmp_path, name, resampler):
    processor = ocr2(name, resampler, tmp_path / "folder")
    for width, height in [*SIZES, (768, 700), (769, 10)]:
        if max(width, height) >= 2 * 1024 * min(width, height):
            continue
        path = scene(tmp_path, width, height)
        assert ocr2_differs(tmp_path, tmp_path / "folder", processor, [path], resampler) == 0, (width, height)
    assert ocr2_differs(tmp_path, tmp_path / "folder", processor, [scene(tmp_path, *size) for size in SIZES[4:10]], resampler) == 0


@pytest.mark.skipif(not (SHARED / "media/photos").exists(), reason="no photos next to the tree")
@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("name", OCR2)
def test_ocr2_photos_are_those_of_the_processor(tmp_path, name, resampler):
    processor = ocr2(name, resampler, tmp_path / "folder")
    assert [path for path in photos() if ocr2_differs(tmp_path, tmp_path / "folder", processor, [path], resampler)] == []
    print(f"deepseek-ocr2 {name} {resampler}: {len(photos())} photos are equal")


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", OCR2)
def test_ocr2_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = ocr2(name, "aten_u8", folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for _ in range(10):
        text, content, facts, call = drawn_sample(generator, ["image"] * generator.randrange(1, 4), {"image": "<image>"})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text], images=call["images"][0], padding=False)
        wanted.append([*(int(token) for token in np.asarray(out["input_ids"][0])), processor.tokenizer.eos_token_id])
    for request, answer, ids in zip(requests, asked(requests), wanted):
        assert answer.get("ids") == ids, (request, str(answer)[:300])


MINICPM = [{}, {"scale_resolution": 112, "max_slice_nums": 6, "downsample_mode": "4x", "resample": 2, "max_num_frames": 2},
           {"slice_mode": False, "image_mean": [0.5, 0.4, 0.3]}]


def minicpm(tmp_path, values):
    family = FAMILIES["minicpm-v-4_6"]
    return made(dataclasses.replace(family, parts=((*family.parts[0][:3], values),)), "aten_u8", tmp_path / "folder")


@pytest.mark.parametrize("values", MINICPM, ids=str)
def test_minicpm_videos_are_those_of_the_processor(tmp_path, odd_videos, values):
    processor = minicpm(tmp_path, values).video_processor
    for path in (*media("video", ["video/h264.mp4", "video/vp9.webm"])[::3], GOLDEN / "video/h264.mp4", *odd_videos):
        theirs = their_video(processor, path, tmp_path)
        ours = preprocess(tmp_path, tmp_path / "folder", path, *ATEN)
        sizes = ours["target_sizes_videos"].reshape(-1, 2)
        sizes, frames = sizes[sizes.any(axis=1)], ours["num_frames_per_video"].item()
        assert [frames] == list(theirs["num_frames_per_video"]), path.name
        assert np.array_equal(np.tile(sizes, (frames, 1)), theirs["target_sizes_videos"]), path.name
        patches = theirs["pixel_values_videos"].numpy()
        patches = patches[0].reshape(3, patches.shape[-2], -1, patches.shape[-2]).transpose(2, 0, 1, 3)
        assert not np.count_nonzero(bits(ours["pixel_values_videos"]).ravel() != bits(patches).ravel()), path.name


def test_a_longer_minicpm_video_is_sampled_as_there(tmp_path):
    processor = minicpm(tmp_path, {"max_num_frames": 7, "scale_resolution": 56}).video_processor
    for count, size in ((85, "64x48"), (200, "48x64")):
        path = drawn(tmp_path / f"{count}.mkv", size, count, "-pix_fmt", "yuv420p")
        theirs = their_video(processor, path, tmp_path)
        ours = preprocess(tmp_path, tmp_path / "folder", path, *ATEN)
        assert ours["num_frames_per_video"].item() == 7 == theirs["num_frames_per_video"][0]
        patches = theirs["pixel_values_videos"].numpy()
        patches = patches[0].reshape(3, patches.shape[-2], -1, patches.shape[-2]).transpose(2, 0, 1, 3)
        assert np.array_equal(bits(ours["pixel_values_videos"]).ravel(), bits(patches).ravel())
    frames, _, _ = decoded(path, tmp_path)
    assert len(frames) == 200


def test_stacked_minicpm_frames_are_refused(tmp_path):
    minicpm(tmp_path, {"stack_frames": 3})
    said = refusal(tmp_path, tmp_path / "folder", GOLDEN / "video/h264.mp4")
    assert "stack_frames: is above 1" in said and "processor.python: transformers" in said


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("values", MINICPM, ids=str)
def test_minicpm_sequences_with_videos_are_the_processors(tmp_path, values):
    processor = minicpm(tmp_path, values)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(tmp_path / "folder"), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    assert FAMILIES["minicpm-v-4_6"].mark == "<|image_pad|>"
    generator = random.Random(str(values))
    requests, wanted = [], []
    for _ in range(12):
        kinds = ["video", *generator.choices(["image", "video"], k=generator.randrange(3))]
        generator.shuffle(kinds)
        text, content, facts, call = drawn_sample(generator, kinds, {"image": "<|image_pad|>", "video": "<|video_pad|>"})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text], padding=False, **call)
        wanted.append([*(int(token) for token in np.asarray(out["input_ids"][0])), processor.tokenizer.eos_token_id])
    for request, answer, ids in zip(requests, asked(requests), wanted):
        assert answer.get("ids") == ids, (request, str(answer)[:300])
