"""The files that the installed `transformers` itself writes by save_pretrained: each loads, and says the same as the one
it was read from."""

import json
import shutil

import numpy as np
import pytest

from command import SHARED, preprocess, read_safetensors, refusal, run
from installed import GOLDEN, PROCESSORS, RELEASE, Image, image_processor, needed, transformers

pytestmark = needed

WHISPER = transformers.WhisperFeatureExtractor
PATHS = ["aten_u8", "pil13"]
PICTURE, CLIP, VIDEO = GOLDEN / "pictures/scene.png", GOLDEN / "audio/voice.wav", GOLDEN / "video/h264.mp4"
KEYED = GOLDEN / "pictures/key-rgb-8.png"  # RGB with a transparent colour
LLAVA = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
         "image_token": "<image>"}
# processor: (folder of the goldens, its image processor, its video processor, media, what else its processor is told)
PICTURES = {
    "CLIPProcessor": ("clip", ("clip", "CLIPImageProcessor"), None, {}),
    "Gemma3Processor": ("gemma3", ("gemma3", "Gemma3ImageProcessor"), None, {}),
    "InternVLProcessor": ("internvl", ("got_ocr2", "GotOcr2ImageProcessor"), "InternVLVideoProcessor", {}),
    "LlavaProcessor": ("llava", ("clip", "CLIPImageProcessor"), None, LLAVA),
    "LlavaProcessor-pad": ("llava-pad", ("llava", "LlavaImageProcessor"), None, LLAVA),
    "PaliGemmaProcessor": ("paligemma", ("siglip", "SiglipImageProcessor"), None, {}),
    "PixtralProcessor": ("pixtral", ("pixtral", "PixtralImageProcessor"), None, {}),
    "Qwen2VLProcessor": ("qwen2-vl", ("qwen2_vl", "Qwen2VLImageProcessor"), "Qwen2VLVideoProcessor", {}),
    "Qwen2_5_VLProcessor": ("qwen2-vl", ("qwen2_vl", "Qwen2VLImageProcessor"), "Qwen2VLVideoProcessor", {}),
    "Qwen3VLProcessor": ("qwen3-vl", ("qwen2_vl", "Qwen2VLImageProcessor"), "Qwen3VLVideoProcessor", {}),
    "SiglipProcessor": ("siglip", ("siglip", "SiglipImageProcessor"), None, {}),
    "Qwen2_5OmniProcessor": ("qwen2_5-omni", ("qwen2_vl", "Qwen2VLImageProcessor"), "Qwen2VLVideoProcessor", {}),
    "Qwen3OmniMoeProcessor": ("qwen3-omni", ("qwen2_vl", "Qwen2VLImageProcessor"), "Qwen2VLVideoProcessor", {}),
}

FOLDERS = {"clip": "CLIPProcessor", "internvl": "InternVLProcessor", "qwen2-vl": "Qwen2VLProcessor",
           "qwen3-vl": "Qwen3VLProcessor", "siglip": "SiglipProcessor"}


def tokenizer(kind="Qwen2TokenizerFast"):
    made = getattr(transformers, kind if RELEASE == 4 else "PreTrainedTokenizerFast")(
        tokenizer_file=str(GOLDEN.parent / "tokenizer/tokenizer.json"))
    for name, text in {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "audio_token": "<|AUDIO|>",
                       "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>",
                       "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
                       "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
                       "start_image_token": "<img>", "end_image_token": "</img>",
                       "context_image_token": "<IMG_CONTEXT>"}.items():
        setattr(made, name, text)
        setattr(made, f"{name}_id", 1)
    if RELEASE == 4:
        made.video_token, made.video_token_id = "<|video_pad|>", 1
    return made


def whole(kind, resampler):
    """A processor with all its parts, and the folder of the goldens that they were read from."""
    folder, image, video, told = PICTURES[kind]
    parts = {"image_processor": image_processor(*image, resampler).from_pretrained(PROCESSORS / folder),
             "tokenizer": tokenizer("GemmaTokenizerFast" if kind.startswith("PaliGemma") else "Qwen2TokenizerFast")}
    if LLAVA is told:
        parts["tokenizer"].image_token = "<image>"
    if video:
        own = getattr(transformers, video)
        parts["video_processor"] = own.from_pretrained(PROCESSORS / folder) if folder.startswith("qwen3") else own()
    if "Omni" in kind:
        parts["feature_extractor"] = WHISPER.from_pretrained(PROCESSORS / folder)
    return getattr(transformers, kind.split("-")[0])(**parts, **told), PROCESSORS / folder


def equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert np.array_equal(values.view(np.uint8), theirs[name].view(np.uint8)), name


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("kind", PICTURES)
def test_a_processor_that_was_saved_loads_and_says_the_same(tmp_path, kind, resampler):
    if RELEASE == 4 and (kind, resampler) == ("Qwen3VLProcessor", "pil13"):
        pytest.skip("its processor for Pillow puts its own sizes in place of the checkpoint's, and saves those")
    processor, folder = whole(kind, resampler)
    saved = tmp_path / "saved"
    processor.save_pretrained(saved)
    media = [PICTURE, CLIP] if "Omni" in kind else PICTURE
    equal(preprocess(tmp_path, saved, media, "--resampler", resampler),
          preprocess(tmp_path, folder, media, "--resampler", resampler))
    if kind.startswith("Qwen"):
        ours = preprocess(tmp_path, saved, VIDEO, "--frame-rule", "transformers")
        assert len(ours["pixel_values_videos"]) == ours["video_grid_thw"].prod()
    elif "InternVL" in kind:
        assert preprocess(tmp_path, saved, VIDEO)["pixel_values_videos"].shape[1:] == (3, 384, 384)


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("kind", PICTURES)
def test_an_image_processor_that_was_saved_alone_loads(tmp_path, kind, resampler):
    folder, image, _, _ = PICTURES[kind]
    saved = tmp_path / "saved"
    image_processor(*image, resampler).from_pretrained(PROCESSORS / folder).save_pretrained(saved)
    if (PROCESSORS / folder / "config.json").exists():  # patches
        (saved / "config.json").write_text((PROCESSORS / folder / "config.json").read_text())
    ours = preprocess(tmp_path, saved, PICTURE, "--resampler", resampler)
    if RELEASE == 4 and (kind, resampler) == ("Qwen3VLProcessor", "pil13"):
        return  # as above
    assert np.array_equal(ours["pixel_values"],
                          preprocess(tmp_path, PROCESSORS / folder, PICTURE, "--resampler", resampler)["pixel_values"])


@pytest.mark.parametrize("kind", ["Qwen2AudioProcessor", "WhisperProcessor"])
def test_a_saved_audio_processor_loads_the_same(tmp_path, kind):
    folder = PROCESSORS / {"Qwen2AudioProcessor": "qwen2-audio", "WhisperProcessor": "whisper"}[kind]
    saved = tmp_path / "saved"
    words = tokenizer("WhisperTokenizerFast" if kind == "WhisperProcessor" else "Qwen2TokenizerFast")
    getattr(transformers, kind)(feature_extractor=WHISPER.from_pretrained(folder), tokenizer=words).save_pretrained(saved)
    equal(preprocess(tmp_path, saved, CLIP), preprocess(tmp_path, folder, CLIP))


@pytest.mark.parametrize("kind", ["Qwen2VLProcessor", "Qwen3VLProcessor", "Qwen2_5OmniProcessor", "InternVLProcessor"])
def test_a_key_that_nobody_knows_is_an_error_in_every_file(tmp_path, kind):
    processor, _ = whole(kind, "aten_u8")
    saved = tmp_path / "saved"
    processor.save_pretrained(saved)
    names = [name for name in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
             if (saved / name).exists()]
    assert names
    for name in names:
        text = (saved / name).read_text()
        values = json.loads(text)
        for part in [values] + [values[key] for key in ("image_processor", "video_processor") if key in values]:
            part["do_sharpen"] = True
            (saved / name).write_text(json.dumps(values))
            assert "do_sharpen: unknown key" in refusal(tmp_path, saved, PICTURE), name
            del part["do_sharpen"]
        (saved / name).write_text(text)


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("side", [224, 336])
def test_clips_first_checkpoints_are_read_as_in_transformers(tmp_path, side, resampler):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"crop_size": side, "do_center_crop": True, "do_normalize": True, "do_resize": True,
         "feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": side,
         "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}))
    (folder / "config.json").write_text(json.dumps({"model_type": "clip", "vision_config": {"patch_size": 14}}))
    assert type(transformers.AutoImageProcessor.from_pretrained(folder)).__name__.startswith("CLIPImageProcessor")
    processor = image_processor("clip", "CLIPImageProcessor", resampler).from_pretrained(folder)
    theirs = processor(Image.open(PICTURE).convert("RGB"), return_tensors="pt")["pixel_values"].numpy()
    ours = preprocess(tmp_path, folder, PICTURE, "--resampler", resampler)["pixel_values"]
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["qwen2-vl", "qwen3-vl"])
def test_video_files_of_releases_before_4_56_load(tmp_path, kind):
    folder = tmp_path / "folder"
    shutil.copytree(PROCESSORS / kind, folder)
    path = folder / "video_preprocessor_config.json"
    values = json.loads((path if path.exists() else folder / "preprocessor_config.json").read_text())
    values.pop("image_processor_type", None)
    path.write_text(json.dumps({**values, "crop_size": None, "data_format": "channels_first", "default_to_square": True,
                                "device": None, "do_center_crop": None, "do_pad": None, "fps": None,
                                "input_data_format": None, "num_frames": None, "return_tensors": None,
                                "size_divisor": None, "video_metadata": None,
                                "_valid_kwargs_names": ["do_convert_rgb", "size"],
                                "model_valid_processing_keys": ["do_convert_rgb", "size"]}))
    equal(preprocess(tmp_path, folder, VIDEO), preprocess(tmp_path, PROCESSORS / kind, VIDEO))


@pytest.mark.skipif(not (SHARED / "processors").exists(), reason="no processors next to the tree")
def test_every_published_configuration_loads(tmp_path):
    folders = [folder for folder in sorted((SHARED / "processors").iterdir()) if folder.is_dir()]
    assert folders
    for folder in folders:
        config = json.loads((folder / "preprocessor_config.json").read_text())
        preprocess(tmp_path, folder, CLIP if "feature_extractor_type" in config else PICTURE)


@pytest.mark.parametrize("resampler", PATHS)
def test_internvls_processor_always_cuts_tiles(tmp_path, resampler):
    processor, _ = whole("InternVLProcessor", resampler)
    processor.image_processor.crop_to_patches = False
    mark = "<IMG_CONTEXT>"
    processor.tokenizer.add_tokens([mark], special_tokens=True)
    processor.image_token_id = processor.tokenizer.convert_tokens_to_ids(mark)
    saved = tmp_path / "saved"
    processor.save_pretrained(saved)
    theirs = processor(images=Image.open(PICTURE), text=mark, return_tensors="pt")["pixel_values"].numpy()
    ours = preprocess(tmp_path, saved, PICTURE, "--resampler", resampler)["pixel_values"]
    assert len(theirs) > 1
    assert np.array_equal(ours, theirs)


OLD_VIT = {"do_normalize": True, "do_resize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": 56}
NULLS = {"crop_size": None, "device": None, "disable_grouping": None, "do_center_crop": None, "do_convert_rgb": None,
         "input_data_format": None, "return_tensors": None}
CLIP_KEYS = {"crop_size": 56, "do_center_crop": True, "do_normalize": True, "do_resize": True, "resample": 3, "size": 64}
BIT = {"image_processor_type": "BitImageProcessor", "do_convert_rgb": True, "image_mean": [0.485, 0.456, 0.406],
       "image_std": [0.229, 0.224, 0.225], "rescale_factor": 0.00392156862745098}
RESNET = {"crop_pct": 0.875, "do_normalize": True, "do_resize": True, "image_mean": [0.485, 0.456, 0.406],
          "image_std": [0.229, 0.224, 0.225], "resample": 3, "size": 64}
GLM = {"do_rescale": True, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
       "merge_size": 2, "patch_size": 14, "temporal_patch_size": 2, "size": {"shortest_edge": 12544, "longest_edge": 9633792}}
NEXT = {"image_processor_type": "LlavaNextImageProcessor", "processor_class": "LlavaNextProcessor", "aspect_ratio_setting": "anyres",
        "crop_size": {"height": 28, "width": 28}, "do_center_crop": True, "do_convert_rgb": True, "do_pad": True,
        "size": {"shortest_edge": 28}}
# preprocessor_config.json and config.json as checkpoints have them: those of DINOv2, ViT and DINO in all their shapes, some that
# name no processor, some whose bounds are floats
AS_PUBLISHED = {
    "dinov2": ({**CLIP_KEYS, **BIT, "size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}},
               {"model_type": "dinov2", "patch_size": 14}),
    "dinov2-unnamed": (CLIP_KEYS, {"model_type": "dinov2"}),
    "bit": ({"image_processor_type": "BitImageProcessor"}, {"model_type": "bit"}),
    "clip-unnamed": (CLIP_KEYS, {"model_type": "clip"}),
    "siglip-unnamed": ({"size": {"height": 64, "width": 64}}, {"model_type": "siglip"}),
    "vit": ({"image_processor_type": "ViTImageProcessor"}, {"model_type": "vit"}),
    "vit-unnamed": (OLD_VIT, {"model_type": "vit"}),
    "vit-feature-extractor": ({**OLD_VIT, "feature_extractor_type": "ViTFeatureExtractor", "resample": 3}, {"model_type": "swin"}),
    "vit-fast": ({**OLD_VIT, **NULLS, "image_processor_type": "ViTImageProcessorFast", "data_format": "channels_first",
                  "default_to_square": True, "resample": 2, "size": {"height": 56, "width": 84}}, {"model_type": "ijepa"}),
    "blip": ({"image_processor_type": "BlipImageProcessor", "size": {"height": 56, "width": 56}}, {"model_type": "blip"}),
    "blip-unnamed": ({"size": 56}, {"model_type": "blip-2"}),
    "convnext": ({**RESNET, "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 49}, "crop_pct": 0.9},
                 {"model_type": "convnextv2"}),
    "convnext-whole": ({"image_processor_type": "ConvNextImageProcessor", "crop_pct": None}, {"model_type": "convnext"}),
    "resnet": ({**RESNET, "feature_extractor_type": "ConvNextFeatureExtractor"}, {"model_type": "resnet"}),
    "deit": ({"image_processor_type": "DeiTImageProcessor"}, {"model_type": "deit"}),
    "deit-feature-extractor": ({**CLIP_KEYS, "feature_extractor_type": "DeiTFeatureExtractor"}, {"model_type": "deit"}),
    "glm4v": ({**GLM, "image_processor_type": "Glm4vImageProcessor", "processor_class": "Glm4vProcessor"}, {"model_type": "glm4v"}),
    "glm4v-sizes": ({**GLM, "image_processor_type": "Glm4vImageProcessorFast", "size": {"shortest_edge": 784, "longest_edge": 50176},
                     "min_pixels": 1, "max_pixels": 2}, {"model_type": "glm4v"}),
    "llava-next": ({**NEXT, "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]}, {}),
    "llava-next-siglip": ({**NEXT, "size": {"height": 28, "width": 28}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
                           "image_grid_pinpoints": [[28 * height, 28 * width] for height in range(1, 5) for width in range(1, 5)]},
                          {"model_type": "llava_next"}),
    "llava-next-usual": ({"image_processor_type": "LlavaNextImageProcessor", "crop_size": 336, "size": {"shortest_edge": 336}}, {}),
    "least-above-most": ({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 50176, "max_pixels": 3136}, {}),
    "keys-of-videos": ({"image_processor_type": "Qwen2VLImageProcessor", "fps": 2, "num_frames": 8, "do_sample_frames": True,
                        "min_frames": 4, "max_frames": 768}, {}),
    "keys-of-videos-elsewhere": ({"image_processor_type": "SiglipImageProcessor", "fps": 2, "num_frames": 8}, {}),
    "qwen2-vl-floats": ({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 784.0, "max_pixels": 50176.0},
                        {"model_type": "qwen2_vl"}),
    "qwen3-vl-floats": ({"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor",
                         "patch_size": 16, "min_pixels": 1024.0, "max_pixels": 65536.0,
                         "size": {"shortest_edge": 1024.0, "longest_edge": 65536.0}}, {"model_type": "qwen3_vl"}),
}
# Release 4 begins odd crops elsewhere and resizes ConvNeXT's pictures bilinearly where the file says nothing, refuses GLM's small
# pictures, and keeps what the file before this one said of Qwen2-VL's sizes.
ONLY_OF_5 = {"convnext", "convnext-whole", "resnet", "glm4v", "glm4v-sizes", "keys-of-videos"}


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_encoder_folders_are_read_as_by_transformers(tmp_path, name, resampler):
    if RELEASE == 4 and name in ONLY_OF_5:
        pytest.skip("reads these otherwise; release 5 is followed")
    folder = tmp_path / "folder"
    folder.mkdir()
    for file, values in zip(("preprocessor_config.json", "config.json"), AS_PUBLISHED[name]):
        (folder / file).write_text(json.dumps(values))
    torch = resampler == "aten_u8"
    how = {"use_fast": torch} if RELEASE == 4 else {"backend": "torchvision" if torch else "pil"}
    processor = transformers.AutoImageProcessor.from_pretrained(folder, **how)
    for size in [(41, 29), (300, 200), (200, 300), (64, 64), (500, 20), (56, 84)]:
        path = tmp_path / "picture.png"
        Image.open(PICTURE).convert("RGB").resize(size).save(path)
        whole = processor(Image.open(path), return_tensors="pt")
        theirs = whole["pixel_values"].numpy()
        tensors = preprocess(tmp_path, folder, path, "--resampler", resampler)
        ours = tensors["pixel_values"]
        assert ours.size == theirs.size, size
        assert np.array_equal(ours.reshape(theirs.shape).view(np.uint32), theirs.view(np.uint32)), size
        for field in {"image_grid_thw", "image_sizes"} & whole.keys():
            assert np.array_equal(tensors[field], whole[field]), size


# a processor, its image processor, its video processor, and what else it is told
COUNTED = {
    "LlavaNextProcessor": (("llava_next", "LlavaNextImageProcessor"), None, LLAVA,
                           {"crop_size": 56, "size": {"shortest_edge": 56},
                            "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168], [112, 168]]}),
    "Glm4vProcessor": (("glm4v", "Glm4vImageProcessor"), "Glm4vVideoProcessor", {}, {}),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_placeholders_are_as_many_as_the_processor_writes(tmp_path, kind):
    if RELEASE == 4 and kind == "Glm4vProcessor":
        pytest.skip("its image processor for torchvision cannot count")
    image, video, told, values = COUNTED[kind]
    parts = {"image_processor": image_processor(*image, "aten_u8")(**values), "tokenizer": tokenizer()}
    if video:
        parts["video_processor"] = getattr(transformers, video)()
    processor = getattr(transformers, kind)(**parts, **told)
    saved = tmp_path / "saved"
    processor.save_pretrained(saved)
    rng = np.random.default_rng(11)
    sizes = [(1, 1), (1, 150), (150, 1), (336, 336), (337, 336), (672, 1009), *rng.integers(1, 1100, (60, 2)).tolist()]
    sizes = [(height, width) for height, width in sizes if max(height, width) <= 150 * min(height, width)]
    paths = [tmp_path / f"{height}x{width}.png" for height, width in sizes]
    for path, (height, width) in zip(paths, sizes):
        Image.new("RGB", (width, height)).save(path)
    theirs = processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"]
    done = run(saved, paths, tmp_path / "out.safetensors", "--json")
    assert done.returncode == 0, done.stderr
    assert [item["output_rows"] for item in json.loads(done.stdout)["items"]] == [int(count) for count in theirs]
    assert len(set(theirs)) > 5


@pytest.mark.parametrize("kind", ["bicubic", "bilinear", "lanczos"])
def test_names_of_filters_are_those_of_torchvision(tmp_path, kind):
    folder = edited_folder(tmp_path, "siglip", {"resample": kind})
    processor = image_processor("siglip", "SiglipImageProcessor", "aten_u8").from_pretrained(folder)
    theirs = processor(Image.open(PICTURE).convert("RGB"), return_tensors="pt")["pixel_values"].numpy()
    ours = preprocess(tmp_path, folder, PICTURE, "--resampler", "aten_u8")["pixel_values"]
    assert np.array_equal(ours, theirs)
    if kind != "bilinear":  # which both releases take for another filter, or fail
        assert "resample: " in refusal(tmp_path, folder, PICTURE, "--resampler", "pil13")


# keys of a file: what the image processor of this folder does with a null or another spelling of a size
SPELLINGS = [
    ("clip", {"size": 224, "default_to_square": True}),
    ("clip", {"size": 200, "crop_size": 180}),
    ("clip", {"size": {"height": 150, "width": 150}, "do_center_crop": None}),
    ("clip", {"do_convert_rgb": False}),
    ("siglip", {"size": 96, "default_to_square": True}),
    ("siglip", {"do_convert_rgb": None}),
    ("internvl", {"size": 112}),
    ("qwen2-vl", {"size": {"min_pixels": 784, "max_pixels": 50176}}),
    ("qwen2-vl", {"size": {"shortest_edge": 784}, "min_pixels": None}),
    ("qwen3-vl", {"min_pixels": 784, "max_pixels": 50176}),
    *((name, {key: False}) for name in ("clip", "internvl", "qwen2-vl") for key in ("do_rescale", "do_normalize")),
    *((name, {"do_rescale": False, "do_normalize": False}) for name in ("clip", "internvl", "qwen2-vl", "siglip")),
    *(("clip", {key: None}) for key in ("do_resize", "do_rescale", "do_normalize", "resample", "image_mean", "image_std",
                                        "rescale_factor", "size", "crop_size", "do_convert_rgb")),
    *(("qwen3-vl", {key: None}) for key in ("size", "patch_size", "merge_size", "temporal_patch_size", "do_resize")),
]


# What a file says of sizes, and pictures of (width, height) to try it with.
EDGES = [(41, 29), (300, 200), (200, 300), (64, 64), (500, 20), (3, 200), (96, 64)]
SIZES = [
    *((name, {"size": size, "crop_size": crop}, EDGES) for name in ("clip", "llava-pad") for size, crop in [
        ({"shortest_edge": 64, "longest_edge": 96}, 70), ({"shortest_edge": 64, "longest_edge": 65}, 64),
        ({"max_height": 80, "max_width": 60}, 64), ({"shortest_edge": 64}, {"height": 50, "width": 90}),
        ({"height": 70, "width": 51}, {"height": 71, "width": 33}), ({"height": 32, "width": 256}, {"height": 33, "width": 256})]),
    ("clip", {"size": {"height": 61, "width": 97}, "do_center_crop": False}, EDGES),
    ("clip", {"size": [61, 97], "crop_size": [60, 90]}, EDGES),
    ("internvl", {"size": [56, 84]}, EDGES),
    *((name, {"image_mean": 0.4, "image_std": 0.3}, [(41, 29)]) for name in ("clip", "internvl", "qwen3-vl", "siglip")),
    ("clip", {"do_resize": False, "crop_size": 64}, EDGES),
    ("clip", {"do_resize": False, "crop_size": {"height": 40, "width": 77}}, EDGES),
    ("clip", {"do_resize": False, "size": {"height": 64, "width": 96}, "do_center_crop": False}, [(96, 64)]),
    ("llava-pad", {"do_resize": False, "crop_size": {"height": 199, "width": 300}}, EDGES),
    ("llava-pad", {"size": {"shortest_edge": 70}, "do_center_crop": False}, EDGES),
    ("llava-pad", {"size": {"shortest_edge": 70, "longest_edge": 41}, "do_center_crop": False}, EDGES),
    *((name, {"resample": 1}, EDGES) for name in ("clip", "internvl", "siglip")),
    ("siglip", {"size": {"height": 80, "width": 112}}, EDGES),
    ("siglip", {"do_resize": False, "size": {"height": 64, "width": 96}}, [(96, 64)]),
    ("siglip", {"size": {"shortest_edge": 50}, "do_center_crop": True, "crop_size": {"height": 50, "width": 44}}, EDGES),
    ("internvl", {"size": {"height": 56, "width": 84}}, EDGES),
    ("internvl", {"size": {"height": 56, "width": 84}, "do_resize": False}, EDGES),
    ("internvl", {"size": {"height": 56, "width": 84}, "do_resize": False, "max_patches": 1}, [(84, 56)]),
    ("internvl", {"size": {"height": 64, "width": 96}, "crop_to_patches": False, "do_resize": False,
                  "processor_class": None}, [(96, 64)]),
    ("qwen2-vl", {"do_resize": False}, [(28, 56), (84, 280), (5628, 28)]),
    ("qwen3-vl", {"do_resize": False, "do_rescale": False, "do_normalize": False}, [(32, 64), (96, 320)]),
    ("qwen2-vl", {"min_pixels": None, "max_pixels": None}, [(100, 76)]),
    ("qwen2-vl", {"min_pixels": 50176, "max_pixels": None}, [(100, 76)]),
    ("qwen2-vl", {"min_pixels": None, "max_pixels": 6272}, [(100, 76), (500, 20)]),
    ("qwen2-vl", {"min_pixels": 6272, "max_pixels": 12544, "size": {"shortest_edge": 3136, "longest_edge": 1003520}},
     [(100, 76), (300, 200)]),
    ("qwen3-vl", {"size": {"longest_edge": 65536}, "min_pixels": 4096}, [(41, 29), (700, 300)]),
]


def edited_folder(tmp_path, name, values):
    """A copy of a processor's folder whose preprocessor_config.json has these values, too."""
    folder = tmp_path / "folder"
    shutil.copytree(PROCESSORS / name, folder)
    base = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**base, **values}))
    return folder


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("name,values,pictures", SIZES, ids=lambda value: str(value)[:90])
def test_sizes_of_files_are_those_of_transformers(tmp_path, name, values, pictures, resampler):
    if RELEASE == 4:
        pytest.skip("reads some of these otherwise; release 5 is followed")
    folder = edited_folder(tmp_path, name, values)
    processor = image_processor(*PICTURES[{"llava-pad": "LlavaProcessor-pad"}.get(name) or FOLDERS[name]][1],
                                resampler).from_pretrained(folder)
    if name == "internvl" and values.get("processor_class", "") is not None:
        processor.crop_to_patches = True  # as InternVLProcessor asks of it
    for size in pictures:
        path = tmp_path / "picture.png"
        Image.open(PICTURE).convert("RGB").resize(size).save(path)
        ours = preprocess(tmp_path, folder, path, "--resampler", resampler)
        theirs = processor(Image.open(path), return_tensors="pt")
        values = np.ascontiguousarray(theirs["pixel_values"].numpy(), np.float32)
        assert ours["pixel_values"].shape == values.shape, size
        assert np.array_equal(ours["pixel_values"].view(np.uint32), values.view(np.uint32)), size
        if "image_grid_thw" in theirs:
            assert np.array_equal(ours["image_grid_thw"], theirs["image_grid_thw"]), size


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("name,values,size", [
    ("qwen2-vl", {"do_resize": False}, (100, 76)), ("qwen2-vl", {"do_resize": False}, (28, 27)),
    ("clip", {"size": {"longest_edge": 64}}, (64, 64)), ("clip", {"size": {"height": 64}}, (64, 64)),
    ("clip", {"crop_size": {"shortest_edge": 64}}, (64, 64)), ("siglip", {"do_center_crop": True}, (64, 64)),
    ("qwen2-vl", {"size": {"height": 56, "width": 56}, "min_pixels": None, "max_pixels": None}, (56, 56)),
    ("qwen2-vl", {"size": 56, "min_pixels": None, "max_pixels": None}, (56, 56)),
], ids=str)
def test_what_fails_in_transformers_is_refused(tmp_path, name, values, size, resampler):
    folder = edited_folder(tmp_path, name, values)
    path = tmp_path / "picture.png"
    Image.open(PICTURE).convert("RGB").resize(size).save(path)
    refused = refusal(tmp_path, folder, path, "--resampler", resampler)
    assert any(key in refused for key in values), refused
    if RELEASE == 4:
        return  # its path for Pillow puts its own sizes in place of some of these
    with pytest.raises((AttributeError, RuntimeError, TypeError, ValueError)):
        processor = image_processor(*PICTURES[FOLDERS[name]][1], resampler).from_pretrained(folder)
        processor(Image.open(path), return_tensors="pt")


# What a picture becomes before its crop; the scene is 41x29.
@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("values", [
    {"size": {"height": 250, "width": 300}}, {"size": {"height": 250, "width": 200}},
    {"size": {"height": 99, "width": 100}, "crop_size": {"height": 100, "width": 100}, "rescale_factor": 1 / 127.5},
    {"size": {"height": 80, "width": 80}, "crop_size": 40, "resample": 2},
], ids=str)
@pytest.mark.parametrize("name", ["clip", "llava-pad"])
def test_pictures_are_cropped_as_by_transformers(tmp_path, name, values, resampler):
    folder = edited_folder(tmp_path, name, values)
    kind = {"clip": "CLIPProcessor", "llava-pad": "LlavaProcessor-pad"}[name]
    processor = image_processor(*PICTURES[kind][1], resampler).from_pretrained(folder)
    theirs = processor(Image.open(PICTURE).convert("RGB"), return_tensors="pt")["pixel_values"].numpy()
    assert np.array_equal(preprocess(tmp_path, folder, PICTURE, "--resampler", resampler)["pixel_values"], theirs)


@pytest.mark.parametrize("resampler", PATHS)
def test_llava_with_siglip_has_its_processors_placeholders(tmp_path, resampler):
    pictures = image_processor("siglip", "SiglipImageProcessor", resampler).from_pretrained(PROCESSORS / "siglip")
    words = tokenizer()
    words.add_tokens(["<image>"], special_tokens=True)
    words.image_token, words.image_token_id = "<image>", words.convert_tokens_to_ids("<image>")
    told = {**LLAVA, "vision_feature_select_strategy": "full", "num_additional_image_tokens": 0}
    processor = transformers.LlavaProcessor(image_processor=pictures, tokenizer=words, **told)
    saved = tmp_path / "saved"
    processor.save_pretrained(saved)
    theirs = processor(images=Image.open(PICTURE).convert("RGB"), text="<image>", return_tensors="pt")
    out = tmp_path / "out.safetensors"
    done = run(saved, PICTURE, out, "--resampler", resampler, "--json")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(read_safetensors(out)["pixel_values"], theirs["pixel_values"].numpy())
    assert json.loads(done.stdout)["items"][0]["output_rows"] == (theirs["input_ids"] == words.image_token_id).sum() == 27 * 27


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("kind", ["Qwen2VLProcessor", "Qwen3VLProcessor"])
def test_pictures_load_if_transformers_cannot_load_the_videos(tmp_path, kind, resampler):
    processor, folder = whole(kind, resampler)
    saved = tmp_path / "saved"
    saved.mkdir()
    values = {"image_processor": json.loads(processor.image_processor.to_json_string()), "processor_class": kind}
    (saved / "processor_config.json").write_text(json.dumps(values))
    if RELEASE == 5:  # 4 asks config.json before it looks
        with pytest.raises(OSError, match="video processor"):
            transformers.AutoVideoProcessor.from_pretrained(saved)
    assert "has no video_preprocessor_config.json" in refusal(tmp_path, saved, VIDEO)
    if RELEASE == 4 and (kind, resampler) == ("Qwen3VLProcessor", "pil13"):
        return  # as above
    equal(preprocess(tmp_path, saved, PICTURE, "--resampler", resampler),
          preprocess(tmp_path, folder, PICTURE, "--resampler", resampler))


@pytest.mark.parametrize("resampler", PATHS)
@pytest.mark.parametrize("name,values", SPELLINGS, ids=lambda value: str(value))
def test_spellings_and_nulls_mean_the_same_as_in_transformers(tmp_path, name, values, resampler):
    if RELEASE == 4:
        pytest.skip("reads some of these otherwise; release 5 is followed")
    folder = edited_folder(tmp_path, name, values)
    done = run(folder, KEYED, tmp_path / "out.safetensors", "--resampler", resampler)
    if done.returncode != 0:
        assert any(key in done.stderr for key in values), done.stderr
        return
    ours = read_safetensors(tmp_path / "out.safetensors")["pixel_values"]
    processor = image_processor(*PICTURES[FOLDERS[name]][1], resampler).from_pretrained(folder)
    theirs = processor(Image.open(KEYED), return_tensors="pt")["pixel_values"].numpy()
    assert np.array_equal(ours.reshape(theirs.shape), theirs)
