#!/usr/bin/env python3
"""Writes tests/golden/families.json: what the real processors make of pictures, clips and sizes.

    python3 -m venv VENV && VENV/bin/pip install transformers==5.23.0 torch torchvision pillow==13.0.0
    VENV/bin/python tests/golden/make_family_goldens.py

pixels   hashes of pixel_values of small pictures (data/pictures), by the torchvision and the PIL path
canvas   sizes and tile counts by the processors' own functions, for sizes of every kind
video    frame sizes and times of Qwen3-VL
frames   hashes of pixel_values_videos of small videos (data/video), by checkpoints with several video files
framed   the same of InternVL, whose frames are tiles
clips    the same of VideoMAE, by its image processor, which takes lists of frames, and by its video processor
audio    tokens of clips by Qwen2-Audio, Qwen2.5-Omni and Qwen3-Omni; features of an unpadded clip
"""
import json
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from transformers import WhisperFeatureExtractor
from transformers.image_utils import SizeDict
from transformers.image_transforms import get_resize_output_image_size
from transformers.models.blip.image_processing_blip import BlipImageProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.clip.image_processing_clip import CLIPImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.convnext.image_processing_convnext import ConvNextImageProcessor
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.deit.image_processing_deit import DeiTImageProcessor
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.deepseek_ocr2.image_processing_deepseek_ocr2 import DeepseekOcr2ImageProcessor
from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil
from transformers.models.deepseek_vl.image_processing_deepseek_vl import DeepseekVLImageProcessor
from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil
from transformers.models.deepseek_vl_hybrid.image_processing_deepseek_vl_hybrid import DeepseekVLHybridImageProcessor
from transformers.models.deepseek_vl_hybrid.image_processing_pil_deepseek_vl_hybrid import DeepseekVLHybridImageProcessorPil
from transformers.models.dinov3_vit.image_processing_dinov3_vit import DINOv3ViTImageProcessor
from transformers.models.ernie4_5_vl_moe.image_processing_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessor
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessorPil
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.idefics3.image_processing_idefics3 import Idefics3ImageProcessor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.llama4.image_processing_llama4 import (
    Llama4ImageProcessor, find_supported_resolutions, get_best_fit, get_max_res_without_distortion)
from transformers.models.llava_onevision.image_processing_llava_onevision import LlavaOnevisionImageProcessor
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.minicpmv4_6.image_processing_minicpmv4_6 import MiniCPMV4_6ImageProcessor
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor
from transformers.models.mllama.image_processing_mllama import (
    MllamaImageProcessor, get_image_size_fit_to_canvas, get_optimal_tiled_canvas)
from transformers.models.mllama.image_processing_pil_mllama import MllamaImageProcessorPil
from transformers.models.glm4v.image_processing_glm4v import Glm4vImageProcessor
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.llava.image_processing_llava import LlavaImageProcessor
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_llava_next import LlavaNextImageProcessor
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.phi4_multimodal.image_processing_phi4_multimodal import Phi4MultimodalImageProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.pixtral.image_processing_pixtral import PixtralImageProcessor
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size as pixtral_size
from transformers.models.janus.image_processing_janus import JanusImageProcessor
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import _get_feat_extract_output_lengths as qwen2_tokens
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import _get_feat_extract_output_lengths as qwen3_tokens
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor, smart_resize
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil
from transformers.models.videomae.image_processing_videomae import VideoMAEImageProcessor
from transformers.models.videomae.video_processing_videomae import VideoMAEVideoProcessor
from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import VideoLlama3ImageProcessorPil
from transformers.models.video_llama_3.image_processing_video_llama_3 import VideoLlama3ImageProcessor

GOLDEN = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN.parent / "preprocess"))
from frames import decoded, expected  # noqa: E402  pylint: disable=wrong-import-position

PROCESSORS = GOLDEN / "data/processors"
CLASSES = {
    "blip": (BlipImageProcessor, BlipImageProcessorPil),
    "clip": (CLIPImageProcessor, CLIPImageProcessorPil),
    "convnext": (ConvNextImageProcessor, ConvNextImageProcessorPil),
    "deepseek-ocr2": (DeepseekOcr2ImageProcessor, DeepseekOcr2ImageProcessorPil),
    "deepseek-vl": (DeepseekVLImageProcessor, DeepseekVLImageProcessorPil),
    "deit": (DeiTImageProcessor, DeiTImageProcessorPil),
    "deepseek-vl-hybrid": (DeepseekVLHybridImageProcessor, DeepseekVLHybridImageProcessorPil),
    "dinov3": (DINOv3ViTImageProcessor,),
    "ernie4_5-vl": (Ernie4_5_VLMoeImageProcessor, Ernie4_5_VLMoeImageProcessorPil),
    "gemma3": (Gemma3ImageProcessor, Gemma3ImageProcessorPil),
    "gemma3n": (SiglipImageProcessor, SiglipImageProcessorPil),
    "glm4v": (Glm4vImageProcessor, Glm4vImageProcessorPil),
    "idefics3": (Idefics3ImageProcessor, Idefics3ImageProcessorPil),
    "internvl": (GotOcr2ImageProcessor, GotOcr2ImageProcessorPil),
    "janus": (JanusImageProcessor, JanusImageProcessorPil),
    "lfm2-vl": (Lfm2VlImageProcessor,),
    "llama4": (Llama4ImageProcessor,),
    "llava": (CLIPImageProcessor, CLIPImageProcessorPil),
    "llava-next": (LlavaNextImageProcessor, LlavaNextImageProcessorPil),
    "llava-onevision": (LlavaOnevisionImageProcessor, LlavaOnevisionImageProcessorPil),
    "llava-pad": (LlavaImageProcessor, LlavaImageProcessorPil),
    "minicpm-v-4_6": (MiniCPMV4_6ImageProcessor, MiniCPMV4_6ImageProcessorPil),
    "mistral3": (PixtralImageProcessor, PixtralImageProcessorPil),
    "mllama": (MllamaImageProcessor, MllamaImageProcessorPil),
    "molmo2": (Molmo2ImageProcessor,),
    "paligemma": (SiglipImageProcessor, SiglipImageProcessorPil),
    "phi4-multimodal": (Phi4MultimodalImageProcessor,),
    "pixtral": (PixtralImageProcessor, PixtralImageProcessorPil),
    "qwen2-vl": (Qwen2VLImageProcessor, Qwen2VLImageProcessorPil),
    "qwen3-vl": (Qwen2VLImageProcessor, Qwen2VLImageProcessorPil),
    "siglip": (SiglipImageProcessor, SiglipImageProcessorPil),
    "videollama3": (VideoLlama3ImageProcessor, VideoLlama3ImageProcessorPil),
}
# Families whose pictures are given as patches: their side, and how many in a row are merged.
PATCHED = {"mistral3": (14, 2), "pixtral": (16, 1)}
# Bands and stripes of the scene, so that crops, paddings and every order of the resize's passes are met.
WINDOWS = {"scene": (0, 0, 41, 29), "wide": (0, 7, 41, 12), "high": (3, 2, 9, 29), "dot": (5, 5, 6, 6),
           "square": (5, 1, 33, 29)}


def config(name):
    values = json.loads((PROCESSORS / name / "preprocessor_config.json").read_text())
    if name in PATCHED:  # as the processor calls it
        values["patch_size"] = PATCHED[name][0] * PATCHED[name][1]
    return {key: value for key, value in values.items() if value is not None}


def in_patches(values, side):
    """[1, 3, height, width] as patches in rows from the left."""
    _, channels, height, width = values.shape
    cut = values.reshape(channels, height // side, side, width // side, side)
    return cut.transpose(1, 3, 0, 2, 4).reshape(-1, channels, side, side)


def mix(values):
    """A hash that depends on every bit and its place, modulo 2^64."""
    bits = np.ascontiguousarray(values, np.float32).ravel().view(np.uint32).astype(np.uint64)
    places = np.arange(1, bits.size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        return f"{int(((bits + places) * (places | np.uint64(1))).sum(dtype=np.uint64)):016x}"


def pixels():
    scene = Image.open(GOLDEN / "data/images/scene.png").convert("RGB")
    pictures = {name: scene.crop(box) for name, box in WINDOWS.items()}
    (GOLDEN / "data/pictures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        picture.save(GOLDEN / f"data/pictures/{name}.png")
    cases = []
    for name, classes in CLASSES.items():
        for resampler, make in zip(("aten_u8", "pil13"), classes):
            processor = make(**config(name))
            for picture, image in pictures.items():
                try:
                    theirs = processor(image, return_tensors="pt")
                except ValueError:  # Phi-4 refuses long ones
                    continue
                values = theirs["pixel_values" if "pixel_values" in theirs else "image_pixel_values"].float().numpy()
                values = values.reshape(-1, *values.shape[-3:]) if values.ndim > 4 else values  # by sample, picture, tile
                if "aspect_ratio_mask" in theirs:  # fills up to the most tiles
                    values = values[: int(theirs["aspect_ratio_mask"].sum())]
                if name in PATCHED:
                    values = in_patches(values, PATCHED[name][0])
                if "target_sizes" in theirs:  # patches next to each other
                    values = values[0].reshape(3, values.shape[-2], -1, values.shape[-2]).transpose(2, 0, 1, 3)
                cases.append({"processor": name, "resampler": resampler, "picture": picture,
                              "rows": values.shape[0], "values": values.size, "hash": mix(values)})
                if "high_res_pixel_values" in theirs:
                    cases[-1]["further"] = mix(theirs["high_res_pixel_values"].numpy())
                if "pixel_values_local" in theirs:
                    cases[-1].update(rows=int(theirs["num_local_patches"][0]), further=mix(theirs["pixel_values_local"].numpy()))
    return cases


def sizes(count, most):
    generator = random.Random(count)
    yield from [(448, 448), (896, 448), (448, 896), (1, 1), (1, 199), (4000, 21), (336, 337), (3000, 4000), (800, 1000)]
    for _ in range(count):
        yield generator.randrange(1, most), generator.randrange(1, most)


def canvas():
    tiles = GotOcr2ImageProcessor(**config("internvl"))
    internvl, shortest = [], []
    for width, height in list(sizes(600, 3000)) + list(sizes(601, 700)):
        internvl.append([width, height, tiles.get_number_of_image_patches(height, width)])
        empty = np.broadcast_to(np.zeros((1, 1, 1), np.uint8), (3, height, width))
        rows, columns = get_resize_output_image_size(empty, 336, default_to_square=False, input_data_format="channels_first")
        shortest.append([width, height, columns, rows])
    glm = Glm4vImageProcessor(**config("glm4v"))
    counted = LlavaNextProcessor.__new__(LlavaNextProcessor)
    counted.image_processor = LlavaNextImageProcessor(**config("llava-next"))
    counted.patch_size, counted.num_additional_image_tokens = 14, 1
    patches, tokens = [], []
    for width, height in sizes(300, 3000):
        try:
            patches.append([width, height, glm.get_number_of_image_patches(height, width)])
        except ValueError:  # too long
            patches.append([width, height, 0])
        tokens.append([width, height, counted._get_number_of_features(height, width, 336, 336) - 1])
    steps = []
    for width, height in sizes(300, 3000):
        for most, step in ((1024, 16), (1540, 28), (300, 28)):
            rows, columns = pixtral_size(np.broadcast_to(np.zeros((1, 1, 1), np.uint8), (3, height, width)), most, step,
                                         input_data_format="channels_first")
            steps.append([width, height, most, step, columns, rows])
    counted = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
    counted.image_processor = LlavaOnevisionImageProcessor(**config("llava-onevision"))
    counted.num_image_tokens, counted.vision_aspect_ratio = 16, "anyres_max_9"
    idefics = Idefics3ImageProcessor(**config("idefics3"))
    grids = torch.tensor(find_supported_resolutions(16, SizeDict(height=336, width=336)))
    onevision, splits, llama4, mllama = [], [], [], []
    for width, height in sizes(300, 3000):
        onevision.append([width, height, counted._get_number_of_features(height, width, 56, 56)])
        splits.append([width, height, max(idefics.get_number_of_image_patches(height, width)[0], 1)])
        for largest in (False, True):
            canvas = get_best_fit((height, width), grids, resize_to_max_canvas=largest)
            within = canvas if largest else [min(max(side, 336), most) for side, most in zip((height, width), canvas)]
            size = get_max_res_without_distortion((height, width), within)
            llama4.append([width, height, int(largest), int(canvas[1]), int(canvas[0]), max(int(size[1]), 1), max(int(size[0]), 1)])
        canvas = [int(side) for side in get_optimal_tiled_canvas(height, width, 4, 560)]
        size = get_image_size_fit_to_canvas(height, width, *canvas, 560)
        mllama.append([width, height, canvas[1], canvas[0], int(size[1]), int(size[0])])
    minicpm = []
    for values in ({}, {"scale_resolution": 200, "max_slice_nums": 25, "downsample_mode": "4x"}):
        slices = MiniCPMV4_6ImageProcessor(**values)
        told = {"scale_resolution": slices.scale_resolution, "patch_size": 14, "downsample_mode": slices.downsample_mode}
        for width, height in list(sizes(500, 3000)) + [(side * w, side * h) for side in (150, 448, 700) for w in range(1, 7) for h in range(1, 7)]:
            grid = slices.get_sliced_grid((height, width), slices.max_slice_nums, slices.scale_resolution)
            whole = slices.find_best_resize((height, width), allow_upscale=grid is None, **told)
            canvas = slices.get_refine_size((height, width), grid, allow_upscale=True, **told) if grid else (0, 0)
            minicpm.append([width, height, slices.max_slice_nums, *(grid or (1, 1))[::-1], *whole[::-1], *canvas[::-1]])
    return {"minicpm": minicpm, "llava_onevision": onevision, "idefics3": splits, "llama4": llama4, "mllama": mllama, "internvl": internvl, "shortest_edge_336": shortest, "glm4v": patches, "llava_next": tokens, "pixtral": steps}


def video():
    generator = random.Random(5)
    resized = []
    for _ in range(500):
        frames, width, height = generator.randrange(2, 769), generator.randrange(8, 2600), generator.randrange(8, 2600)
        least, most = generator.choice([(4096, 25165824), (131072, 786432), (4096, 2097152)])
        try:
            size = smart_resize(frames, height, width, 2, 32, least, most)
        except ValueError:
            size = (0, 0)
        resized.append([frames, width, height, least, most, size[1], size[0]])
    times = []
    for chosen, fps in (([0, 12, 24, 36], 24.0), ([0, 1, 2], 29.97), ([0, 15, 31, 46, 62], 30.0), ([0, 250], 1.0),
                        ([1, 4, 9, 16, 25], 60000 / 1001), ([0, 3, 6, 9], 4.0), ([5, 6], 0.37)):
        found = Qwen3VLProcessor._calculate_timestamps(None, list(chosen), fps, 2)
        times.append({"chosen": chosen, "fps": fps, "times": [f"<{time:.1f} seconds>" for time in found]})
    return {"smart_resize": resized, "times": times}


VIDEO_FILES = {
    "qwen2-vl": (Qwen2VLVideoProcessor, [
        {}, {"size": {"shortest_edge": 784, "longest_edge": 3136}, "fps": 4.0, "min_frames": 8, "max_frames": 10},
        {"min_pixels": 6272, "max_pixels": 12544},
        {"size": {"shortest_edge": 784, "longest_edge": 150528}, "cap_pixels_per_frame": True, "max_video_tokens": 20},
        {"min_pixels": 6272, "max_pixels": 12544, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.125],
         "resample": 2}]),
    "qwen3-vl": (Qwen3VLVideoProcessor, [
        {}, {"size": {"shortest_edge": 4096, "longest_edge": 40960}, "fps": 5, "min_frames": 6, "max_frames": 9},
        {"size": {"shortest_edge": 4096, "longest_edge": 1048576}, "cap_pixels_per_frame": True, "max_video_tokens": 3},
        {"size": {"shortest_edge": 4096, "longest_edge": 40960}, "image_mean": [0.485, 0.456, 0.406],
         "rescale_factor": 0.0078125}]),
}


def frames():
    cases = []
    for name, (processor, files) in VIDEO_FILES.items():
        for own in files:
            own = {"video_processor_type": processor.__name__, **{key: config(name)[key] for key in (
                "patch_size", "merge_size", "image_mean", "image_std", "processor_class")}, **own}
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / "video_preprocessor_config.json").write_text(json.dumps(own))
                made = processor.from_pretrained(folder)
                for video in ("h264.mp4", "vp9.webm", "h264-variable.mkv"):
                    options = {} if "fps" in own else {"fps": 2}
                    values, grid = expected(made, GOLDEN / "data/video" / video, folder, **options)
                    cases.append({"processor": name, "video": video, "file": own, "grid": grid[0].tolist(),
                                  "values": values.size, "hash": mix(values)})
    return cases


FRAMED_FILES = [
    {"size": {"height": 28, "width": 28}}, {"size": 42, "do_sample_frames": True, "fps": 3.5, "resample": 2},
    {"size": {"height": 84, "width": 84}, "do_sample_frames": True, "num_frames": 5, "image_mean": [0.485, 0.456, 0.406],
     "image_std": [0.229, 0.224, 0.225]},
    {"size": {"height": 28, "width": 28}, "do_sample_frames": True, "num_frames": 7, "fps": 1, "initial_shift": False,
     "do_normalize": False},
    {"do_sample_frames": True, "num_frames": 2, "initial_shift": 2.5}]


def framed():
    cases = []
    for own in FRAMED_FILES:
        own = {"video_processor_type": "InternVLVideoProcessor", "processor_class": "InternVLProcessor", **own}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "video_preprocessor_config.json").write_text(json.dumps(own))
            made = InternVLVideoProcessor.from_pretrained(folder)
            for video in ("h264.mp4", "vp9.webm", "h264-variable.mkv"):
                case = {"video": video, "file": own}
                try:
                    values, _ = expected(made, GOLDEN / "data/video" / video, folder,
                                         do_sample_frames=own.get("do_sample_frames", False))
                    case.update(shape=values.shape[1:], hash=mix(values))
                except ValueError:  # more frames than there are
                    case["refused"] = True
                cases.append(case)
    return cases


CLIP_FILES = [{"size": {"shortest_edge": 30}, "crop_size": {"height": 28, "width": 28}},
              {"size": {"height": 50, "width": 41}, "crop_size": {"height": 32, "width": 40}, "image_mean": [0.485, 0.456, 0.406],
               "image_std": [0.229, 0.224, 0.225]}]


def clips():
    cases = []
    for own in CLIP_FILES:
        for resampler, make in (("aten_u8", VideoMAEImageProcessor), ("pil13", VideoMAEImageProcessorPil), ("video", VideoMAEVideoProcessor)):
            for video in ("h264.mp4", "vp9.webm"):
                with tempfile.TemporaryDirectory() as folder:
                    frames, _, _ = decoded(GOLDEN / "data/video" / video, pathlib.Path(folder))
                    frames = list(np.array(frames))
                values = make(**own)([frames], return_tensors="pt")["pixel_values"][0].numpy()
                cases.append({"resampler": resampler, "video": video, "file": own, "shape": values.shape, "hash": mix(values)})
    return cases


def audio():
    lengths = list(range(1, 301)) + list(range(301, 3001, 37)) + [3000, 4999, 7500, 29999, 30000]
    extractor = WhisperFeatureExtractor(feature_size=128)
    samples = (np.sin(np.arange(5417) ** 2 * 1e-5) * 0.5).astype(np.float32)
    out = extractor(samples, sampling_rate=16000, padding=True, truncation=False, return_attention_mask=True,
                    return_tensors="np")
    features = out["input_features"][0]
    return {"lengths": lengths, "qwen2": [max(int(qwen2_tokens(n)), 0) for n in lengths],
            "qwen3": [int(qwen3_tokens(n)) for n in lengths], "unpadded_samples": len(samples),
            "unpadded_shape": list(features.shape), "unpadded_mask": int(out["attention_mask"].sum()),
            "unpadded_features": [round(float(value), 6) for value in features[::9, ::5].ravel()]}


def main():
    out = {"pixels": pixels(), "canvas": canvas(), "video": video(), "frames": frames(), "framed": framed(),
           "clips": clips(), "audio": audio()}
    text = json.dumps(out, separators=(",", ":")).replace("},{", "},\n{")
    (GOLDEN / "families.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
