"""Families whose tiles, fields or tokens depend on more than one picture's size (Idefics3, SmolVLM, Llama 4, Llama 3.2 Vision,
LLaVA-OneVision, Gemma 3n, Ovis2, PaddleOCR-VL), and recent ones (Janus, DeepSeek-VL, Ernie 4.5-VL, VideoLLaMA3, MiniCPM-V), against the
processors of the installed `transformers`, release 4 or 5: folders that they write themselves, pixels by every backend that
they have, numbers, and whole sequences.

The pictures are of odd sizes, and the photos beside the tree (EVENKEEL_SHARED, or ../shared) where these are; every
EVENKEEL_PARITY_EVERY-th of them (29), 1 for all, also for all sizes with each backend of a family.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess

import numpy as np
import pytest

from command import BINARY, SHARED, preprocess, refusal
from installed import EVERY, GOLDEN, RELEASE, Image, image_processor, needed, photos, transformers

TOKENIZER = GOLDEN.parent / "tokenizer"
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
PICTURE = GOLDEN / "pictures/scene.png"
SIZES = [(41, 29), (1, 1), (1, 60), (60, 1), (3, 200), (300, 200), (200, 300), (600, 256), (56, 84), (57, 83), (336, 336), (337, 672),
         (1500, 400), (400, 1499), (2000, 31), (31, 2000), (1121, 1120)]

pytestmark = needed


@dataclasses.dataclass(frozen=True)
class Family:
    """A checkpoint's processor as its published files have it."""
    processor: str
    image: tuple  # module, class of the image processor
    values: dict  # of the image processor
    tokens: dict  # attribute of the tokenizer: special token
    mark: str = "<image>"  # of a picture in a text
    told: dict = dataclasses.field(default_factory=dict)  # the processor's own values
    model: dict = dataclasses.field(default_factory=dict)  # config.json
    parts: tuple = ()  # further parts of the processor: (argument, module, class), and values where it has other ones
    pillow: bool = True  # has a class for it
    # Releases since which its classes can be compared, Pillow's and torchvision's. 4.57 has no such class, does not put it
    # into the processor, fails in it (cohere2-vision: cuts some sizes otherwise), or takes only Llama's tokenizer
    # (llava-next-video, janus, deepseek-vl).
    release: int = 4
    tensors_since: int = 4


MARKS = {"around": "<fake_token_around_image>", "whole": "<global-img>", "image_token": "<image>", "turn": "<end_of_utterance>",
         **{f"tile_{row}_{column}": f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)}}
LLAMA4 = {name: f"<|{name}|>" for name in ("image", "image_start", "image_end", "patch", "tile_x_separator", "tile_y_separator")}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
CROPPED = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
GEMMA3N = {"boi_token": "<start_of_image>", "image_token": "<image_soft_token>", "eoi_token": "<end_of_image>",
           "boa_token": "<start_of_audio>", "audio_token": "<audio_soft_token>", "eoa_token": "<end_of_audio>"}
OVIS2 = {name: f"<{name}>" for name in ("IMG_START", "IMG_ATOM", "IMG_GRID", "IMG_COL", "IMG_ROW", "IMG_END", "image")}
LFM2 = {"image_token": "<image>", "begin": "<|image_start|>", "end": "<|image_end|>", "thumbnail": "<|img_thumbnail|>",
        **{f"tile_{row}_{column}": f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11 // row + 1)}}
MINICPM = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "image_start_token": "<image>", "image_end_token": "</image>",
           "slice_start_token": "<slice>", "slice_end_token": "</slice>", "image_id_start_token": "<image_id>",
           "image_id_end_token": "</image_id>"}
MINICPM_VIDEO = (("video_processor", "video_processing_minicpmv4_6", "MiniCPMV4_6VideoProcessor"),)
COHERE = {"boi_token": "<|START_OF_IMG|>", "eoi_token": "<|END_OF_IMG|>", "image_token": "<|IMG_PATCH|>",
          "img_line_break_token": "<|IMG_LINE_BREAK|>"}
FAMILIES = {
    "idefics3": Family("Idefics3Processor", ("idefics3", "Idefics3ImageProcessor"), {}, MARKS, told={"image_seq_len": 169},
                       tensors_since=5),
    "smolvlm2": Family("SmolVLMProcessor", ("smolvlm", "SmolVLMImageProcessor"),
                       {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}, MARKS, told={"image_seq_len": 64},
                       tensors_since=5,
                       model={"vision_config": {"patch_size": 16}},
                       parts=(("video_processor", "video_processing_smolvlm", "SmolVLMVideoProcessor"),)),
    "smolvlm-whole": Family("SmolVLMProcessor", ("smolvlm", "SmolVLMImageProcessor"),
                            {"size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 384}, "do_image_splitting": False},
                            MARKS, told={"image_seq_len": 81}, tensors_since=5,
                            parts=(("video_processor", "video_processing_smolvlm", "SmolVLMVideoProcessor"),)),
    "llama4": Family("Llama4Processor", ("llama4", "Llama4ImageProcessor"), {}, LLAMA4, mark="<|image|>", pillow=False),
    "llama4-max": Family("Llama4Processor", ("llama4", "Llama4ImageProcessor"), {"resize_to_max_canvas": True, "max_patches": 6}, LLAMA4,
                         mark="<|image|>", pillow=False, release=5),
    "mllama": Family("MllamaProcessor", ("mllama", "MllamaImageProcessor"), {"size": {"height": 560, "width": 560}, **CLIP},
                     {"image_token": "<|image|>", "bos_token": "<|begin_of_text|>"}, mark="<|image|>", tensors_since=5),
    "llava-onevision": Family("LlavaOnevisionProcessor", ("llava_onevision", "LlavaOnevisionImageProcessor"), {},
                              {"image_token": "<image>", "video_token": "<video>"},
                              told={"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
                              parts=(("video_processor", "video_processing_llava_onevision", "LlavaOnevisionVideoProcessor"),)),
    "llava-next-video": Family("LlavaNextVideoProcessor", ("llava_next", "LlavaNextImageProcessor"), {**CROPPED, **CLIP},
                               {"image_token": "<image>", "video_token": "<video>"},
                               told={"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"},
                               release=5,
                               parts=(("video_processor", "video_processing_llava_next_video", "LlavaNextVideoVideoProcessor", CROPPED),)),
    "aya-vision": Family("AyaVisionProcessor", ("got_ocr2", "GotOcr2ImageProcessor"),
                         {"size": {"height": 364, "width": 364}, "crop_to_patches": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
                         {**COHERE, "whole_token": "TILE_GLOBAL", **{f"tile_{i}": f"TILE_{i}" for i in range(1, 13)}},
                         told={"patch_size": 14, "downsample_factor": 2, "img_size": 364}),
    "cohere2-vision": Family("Cohere2VisionProcessor", ("cohere2_vision", "Cohere2VisionImageProcessor"), {}, COHERE,
                             mark="<|IMG_PATCH|>", pillow=False, release=5),
    "perception-lm": Family("PerceptionLMProcessor", ("perception_lm", "PerceptionLMImageProcessor"), {},
                            {"image_token": "<|image|>", "video_token": "<|video|>"}, mark="<|image|>",
                            told={"patch_size": 14, "pooling_ratio": 2}, pillow=False, release=5,
                            parts=(("video_processor", "video_processing_perception_lm", "PerceptionLMVideoProcessor"),)),
    "ovis2": Family("Ovis2Processor", ("ovis2", "Ovis2ImageProcessor"), {"crop_to_patches": True, "size": {"height": 112, "width": 112}}, OVIS2,
                    told={"image_seq_length": 16}),
    "ovis2-nearest": Family("Ovis2Processor", ("ovis2", "Ovis2ImageProcessor"),
                            {"crop_to_patches": True, "use_covering_area_grid": False, "max_patches": 6, "size": {"height": 112, "width": 112}},
                            OVIS2, told={"image_seq_length": 16}),
    "paddleocr-vl": Family("PaddleOCRVLProcessor", ("paddleocr_vl", "PaddleOCRVLImageProcessor"), {"max_pixels": 401408},
                           {"image_token": "<|IMAGE_PLACEHOLDER|>", "begin": "<|IMAGE_START|>", "end": "<|IMAGE_END|>"},
                           mark="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", release=5),
    "janus": Family("JanusProcessor", ("janus", "JanusImageProcessor"), {"min_size": 20, "do_convert_rgb": True},
                    {"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>", "eoi_token": "<end_of_image>"},
                    mark="<image_placeholder>", told={"num_image_tokens": 9}, release=5),
    "deepseek-vl": Family("DeepseekVLProcessor", ("deepseek_vl", "DeepseekVLImageProcessor"),
                          {"size": {"height": 320, "width": 320}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_convert_rgb": True},
                          {"image_token": "<image_placeholder>"}, mark="<image_placeholder>", told={"num_image_tokens": 7}, release=5),
    "deepseek-vl-hybrid": Family("DeepseekVLHybridProcessor", ("deepseek_vl_hybrid", "DeepseekVLHybridImageProcessor"),
                                 {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_convert_rgb": True},
                                 {"image_token": "<image_placeholder>"}, mark="<image_placeholder>", told={"num_image_tokens": 7}, release=5),
    "deepseek-vl-hybrid-small": Family(
        "DeepseekVLHybridProcessor", ("deepseek_vl_hybrid", "DeepseekVLHybridImageProcessor"),
        {"size": {"height": 96, "width": 96}, "high_res_size": {"height": 250, "width": 250}, "high_res_image_mean": [0.4, 0.5, 0.6],
         "high_res_image_std": [0.2, 0.3, 0.4], "high_res_resample": 2, "min_size": 20, "do_convert_rgb": True},
        {"image_token": "<image_placeholder>"}, mark="<image_placeholder>", release=5),
    "ernie4_5-vl": Family("Ernie4_5_VLMoeProcessor", ("ernie4_5_vl_moe", "Ernie4_5_VLMoeImageProcessor"),
                          {"size": {"shortest_edge": 3136, "longest_edge": 602112}},
                          {"image_token": "<|IMAGE_PLACEHOLDER|>", "image_start_token": "<|IMAGE_START|>", "image_end_token": "<|IMAGE_END|>",
                           "video_token": "<|VIDEO_PLACEHOLDER|>", "video_start_token": "<|VIDEO_START|>", "video_end_token": "<|VIDEO_END|>"},
                          mark="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", release=5,
                          parts=(("video_processor", "video_processing_ernie4_5_vl_moe", "Ernie4_5_VLMoeVideoProcessor",
                                  {"draw_on_frames": False}),)),
    "videollama3": Family("VideoLlama3Processor", ("video_llama_3", "VideoLlama3ImageProcessor"), {"max_pixels": 602112},
                          {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}, mark="<|image_pad|>", release=5,
                          parts=(("video_processor", "video_processing_video_llama_3", "VideoLlama3VideoProcessor"),)),
    "minicpm-v-4_6": Family("MiniCPMV4_6Processor", ("minicpmv4_6", "MiniCPMV4_6ImageProcessor"), {}, MINICPM, mark="<|image_pad|>",
                            release=5, parts=MINICPM_VIDEO),
    "minicpm-v-4_6-small": Family("MiniCPMV4_6Processor", ("minicpmv4_6", "MiniCPMV4_6ImageProcessor"),
                                  {"scale_resolution": 112, "max_slice_nums": 20, "downsample_mode": "4x", "resample": 2}, MINICPM,
                                  mark="<|image_pad|>", release=5, parts=MINICPM_VIDEO),
    "minicpm-v-4_6-whole": Family("MiniCPMV4_6Processor", ("minicpmv4_6", "MiniCPMV4_6ImageProcessor"),
                                  {"slice_mode": False, "use_image_id": False}, MINICPM, mark="<|image_pad|>", release=5,
                                  parts=MINICPM_VIDEO),
    "lfm2-vl": Family("Lfm2VlProcessor", ("lfm2_vl", "Lfm2VlImageProcessor"), {"do_convert_rgb": True}, LFM2, pillow=False, release=5),
    "lfm2-vl-small": Family("Lfm2VlProcessor", ("lfm2_vl", "Lfm2VlImageProcessor"),
                            {"tile_size": 128, "max_image_tokens": 100, "min_image_tokens": 9, "max_tiles": 6, "max_pixels_tolerance": 1.5,
                             "do_convert_rgb": True}, LFM2, pillow=False, release=5),
    "lfm2-vl-whole": Family("Lfm2VlProcessor", ("lfm2_vl", "Lfm2VlImageProcessor"),
                            {"do_image_splitting": False, "do_convert_rgb": True}, LFM2, pillow=False,
                            release=5),
    "gemma3n": Family("Gemma3nProcessor", ("siglip", "SiglipImageProcessor"),
                      {"size": {"height": 768, "width": 768}, "resample": 2, "do_normalize": False}, GEMMA3N, mark="<image_soft_token>",
                      told={"image_seq_length": 256}, parts=(("feature_extractor", "feature_extraction_gemma3n", "Gemma3nAudioFeatureExtractor"),)),
}
FAMILIES = {name: family for name, family in FAMILIES.items() if RELEASE >= family.release}
CASES = [(name, resampler) for name, family in FAMILIES.items() for resampler in ("aten_u8", "pil13")[: 1 + family.pillow]
         if resampler == "pil13" or RELEASE >= family.tensors_since]


def processor_of(name, resampler, folder):
    return made(FAMILIES[name], resampler, folder)


def made(family, resampler, folder):
    """The processor of a family, which writes its files into `folder`."""
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    words.add_tokens([transformers.AddedToken(token, special=True) for token in family.tokens.values()], special_tokens=True)
    words.eos_token = "<|endoftext|>"
    for attribute, token in family.tokens.items():
        if attribute.endswith("_token"):
            setattr(words, attribute, token)
            setattr(words, f"{attribute}_id", words.convert_tokens_to_ids(token))
    parts = {argument: getattr(__import__(f"transformers.models.{module.split('_', 2)[2]}.{module}", fromlist=[kind]), kind)(**values)
             for argument, module, kind, *values in family.parts for values in [values[0] if values else {}]}
    pictures = image_processor(*family.image, resampler)(**family.values)
    processor = getattr(transformers, family.processor)(image_processor=pictures, tokenizer=words, **parts, **family.told)
    folder.mkdir()
    processor.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(family.model))
    return processor


def tiles_of(theirs, field):
    """Their pixel values as [tiles, 3, height, width]."""
    values = theirs[field]
    values = values[0] if isinstance(values, list) else values
    values = values.float().numpy() if hasattr(values, "numpy") else np.asarray(values, np.float32)
    if "target_sizes" in theirs:  # patches next to each other
        values = values[0].reshape(3, values.shape[-2], -1, values.shape[-2]).transpose(2, 0, 1, 3)
    values = values.reshape(-1, *values.shape[-3:])
    if "aspect_ratio_mask" in theirs:
        values = values[: int(np.asarray(theirs["aspect_ratio_mask"]).sum())]
    return np.ascontiguousarray(values, np.float32)


def differing(tmp_path, folder, processor, paths, resampler, *extra):
    """How many values differ from theirs, and how many there are; the pictures are one call's."""
    options = ["--resampler", resampler, *(["--alpha", "drop"] if RELEASE == 4 else []), *extra]
    images = [Image.open(path).convert("RGB") if RELEASE == 4 else Image.open(path) for path in paths]
    theirs = processor.image_processor([images] if len(images) > 1 else images[0], return_tensors="pt")
    ours = preprocess(tmp_path, folder, paths, *options)
    if "target_sizes" in ours:  # filled up with zeros
        sizes = ours["target_sizes"].reshape(-1, 2)
        assert np.array_equal(sizes[sizes.any(axis=1)], np.asarray(theirs["target_sizes"])), paths
    for field in ("image_sizes", "image_grid_thw", "image_merge_sizes", "pixel_attention_mask", "spatial_shapes", "aspect_ratio_ids", "aspect_ratio_mask"):
        if field in ours:
            assert np.array_equal(ours[field].ravel(), np.asarray(theirs[field]).ravel()), (field, paths)
    wrong = compared = 0
    for field in ("pixel_values", *(["high_res_pixel_values"] if "high_res_pixel_values" in theirs else [])):
        values = tiles_of(theirs, field)
        mine = ours[field].reshape(values.shape)
        wrong += np.count_nonzero(mine.view(np.uint32) != values.view(np.uint32))
        compared += values.size
    return wrong, compared


@pytest.mark.parametrize("name,resampler", CASES)
def test_pictures_of_odd_sizes_are_those_of_the_processor(tmp_path, name, resampler):
    folder = tmp_path / "folder"
    processor = processor_of(name, resampler, folder)
    sizes = SIZES if RELEASE > 4 else [size for size in SIZES if 1 not in size]  # 4 takes a side of 1 for channels
    # Half of them, the other half with the next case.
    for width, height in sizes if EVERY == 1 else sizes[CASES.index((name, resampler)) % 2::2]:
        path = tmp_path / f"{width}x{height}.png"
        Image.open(PICTURE).convert("RGB").resize((width, height)).save(path)
        assert differing(tmp_path, folder, processor, [path], resampler)[0] == 0, (width, height)


@pytest.mark.skipif(not (SHARED / "media/photos").exists(), reason="no photos beside the tree")
@pytest.mark.parametrize("name,resampler", CASES)
def test_photos_are_those_of_the_processor(tmp_path, name, resampler):
    folder = tmp_path / "folder"
    processor = processor_of(name, resampler, folder)
    compared = [differing(tmp_path, folder, processor, [path], resampler) for path in photos()]
    print(f"{name} {resampler}: {sum(wrong for wrong, _ in compared)} of {sum(size for _, size in compared)} values differ, "
          f"{len(compared)} photos")
    assert not sum(wrong for wrong, _ in compared)


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
def test_several_pictures_of_a_sample_are_cut_as_one_tile_each(tmp_path, resampler):
    folder = tmp_path / "folder"
    processor = processor_of("llava-onevision", resampler, folder)
    paths = []
    for width, height in [(300, 200), (41, 77), (800, 799)]:
        paths.append(tmp_path / f"{width}.png")
        Image.open(PICTURE).convert("RGB").resize((width, height)).save(paths[-1])
    assert differing(tmp_path, folder, processor, paths, resampler, "--one-sample")[0] == 0
    assert len(preprocess(tmp_path, folder, paths, "--resampler", resampler, "--one-sample")["pixel_values"]) == 3


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if not family.pillow])
def test_a_class_that_transformers_does_not_have_is_refused(tmp_path, name):
    processor_of(name, "aten_u8", tmp_path / "folder")
    assert "processor.resampler: transformers has this image processor for torchvision only" in refusal(
        tmp_path, tmp_path / "folder", PICTURE, "--resampler", "pil13")


def draw_text(generator):
    words = ["Hello", " world", "What's", " it", "?", "\n", "\n\n", " ", "   ", "ship", " 船が", "Größe", "12345", "a b"]
    return "".join(generator.choice(words) for _ in range(generator.randrange(6)))


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", FAMILIES)
def test_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    # Sequences are the same with both classes, and 4.57 cannot make them with torchvision's of several families.
    resampler = "pil13" if RELEASE == 4 and FAMILIES[name].pillow else "aten_u8"
    processor, mark = processor_of(name, resampler, folder), FAMILIES[name].mark
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": resampler,
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for _ in range(12):
        text, content, facts, pictures = "", [], [], []
        for _ in range(generator.randrange(1, 4)):  # a text without pictures is no call of these processors
            sides = [generator.randrange(20, generator.choice([400, 1600])) for _ in "wh"]
            said = draw_text(generator)
            text += said + mark
            content += [{"type": "text", "text": said}, {"type": "image"}]
            facts.append(dict(zip(("width", "height"), sides)))
            pictures.append(Image.new("RGB", sides))
        said = draw_text(generator)
        content.append({"type": "text", "text": said})
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        begin = "<|begin_of_text|>" if name == "mllama" else ""  # else it puts one where its rule is
        more = {"return_tensors": "pt"} if name.startswith("ovis2") else {}  # which takes its grids for tensors
        out = processor(text=[begin + text + said], images=[pictures], padding=False, **more)
        ids = [int(token) for token in np.asarray(out["input_ids"][0])]
        wanted.append(ids[len(begin) > 0 :] + [processor.tokenizer.eos_token_id])
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, ids in zip(requests, done.stdout.splitlines(), wanted):
        assert json.loads(line).get("ids") == ids, (request, line[:300])
