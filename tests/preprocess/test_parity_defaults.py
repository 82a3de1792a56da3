"""What `evenkeel preprocess` makes of a folder without an option of pixels, or with --like, against what AutoProcessor
and AutoImageProcessor of the installed `transformers`, release 4 or 5, take for the folder. Bit for bit.
"""

import json
import shutil

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, PROCESSORS, RELEASE, Image, in_patches, needed, photos, transformers
from test_parity_families import MAX_PIXELS, PATCHES, leaves_conversion

pytestmark = needed

FOLDERS = ["blip", "clip", "convnext", "deit", "gemma3", "glm4v", "internvl", "llava", "llava-next", "llava-pad", "mistral3",
           "paligemma", "pixtral", "qwen2-vl", "qwen3-vl", "siglip"]
# The name that a file gives its class, and what it becomes there: the choice depends on it.
NAMES = {"as it is": lambda name: name, "plain": lambda name: name.removesuffix("Fast"),
         "Fast": lambda name: name.removesuffix("Fast") + "Fast"}


def pictures():
    """Photographs, and pictures with each kind of transparency."""
    return photos("images/*.jpg") + [GOLDEN / "images" / name for name in ("lossless-alpha.webp", "palette-transparent.png")]


def folder_with(tmp_path, name, spelling):
    """A copy of the image processor's file in which its class has another spelling."""
    folder = tmp_path / "folder"
    folder.mkdir()
    config = json.loads((PROCESSORS / name / "preprocessor_config.json").read_text())
    config["image_processor_type"] = NAMES[spelling](config["image_processor_type"])
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    for other in ("config.json", "processor_config.json"):
        if (PROCESSORS / name / other).exists():
            shutil.copy(PROCESSORS / name / other, folder)
    return folder


def differing(tmp_path, folder, name, processor, *options):
    """The pictures of which a value differs."""
    wrong = []
    given = {"patch_size": dict.fromkeys(("height", "width"), PATCHES[name][0] * PATCHES[name][1])} if name in PATCHES else {}
    bound = ["--max-pixels", MAX_PIXELS] if name.startswith("qwen") else []
    for path in pictures():
        image = Image.open(path)
        if not getattr(processor, "do_convert_rgb", None):  # these fail on what is not RGB, so the caller converts
            if not leaves_conversion(name) and image.mode not in ("RGB", "L"):
                continue  # and chooses what becomes of transparency
            image = image.convert("RGB")
        elif RELEASE == 4:
            image = image.convert("RGB")
        theirs = processor(image, return_tensors="pt", **given)["pixel_values"]
        theirs = theirs.numpy() if name not in PATCHES else in_patches(theirs.numpy(), PATCHES[name][0])
        theirs = np.ascontiguousarray(theirs, np.float32)
        ours = preprocess(tmp_path, folder, path, *bound, *options)["pixel_values"].reshape(theirs.shape)
        if not np.array_equal(ours.view(np.uint32), theirs.view(np.uint32)):
            wrong.append(path.name)
    return wrong


def auto(folder, name, **options):
    if name.startswith("qwen"):
        options["max_pixels"] = MAX_PIXELS
    return transformers.AutoImageProcessor.from_pretrained(folder, **options)


@pytest.mark.parametrize("spelling", NAMES)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_choice_is_that_of_the_installed_release(tmp_path, name, spelling):
    folder = folder_with(tmp_path, name, spelling)
    if RELEASE == 5:
        assert not differing(tmp_path, folder, name, auto(folder, name))
        return
    of_processor = json.loads((folder / "preprocessor_config.json").read_text()).get("processor_class")
    if spelling == "Fast" and of_processor in ("BlipProcessor", "PaliGemmaProcessor", "SiglipProcessor"):
        # Their AutoProcessor has its own choice, which AutoImageProcessor does not know.
        processor = auto(folder, name, use_fast=False)
    else:
        processor = auto(folder, name)
    assert not differing(tmp_path, folder, name, processor, "--like", "transformers-4.57")


@pytest.mark.skipif(RELEASE != 5, reason="slow is the followed release's class of Pillow")
@pytest.mark.parametrize("name", FOLDERS)
def test_slow_is_the_class_of_pillow(tmp_path, name):
    folder = folder_with(tmp_path, name, "as it is")
    assert not differing(tmp_path, folder, name, auto(folder, name, backend="pil"), "--like", "slow")


@pytest.mark.skipif(RELEASE != 5, reason="4.57 cannot make tensors of these")
@pytest.mark.parametrize("like", ["slow", "transformers-4.57"])
def test_where_there_is_one_class_it_is_taken(tmp_path, like):
    picture = pictures()[0]
    usual = preprocess(tmp_path, PROCESSORS / "llama4", picture)
    asked = preprocess(tmp_path, PROCESSORS / "llama4", picture, "--like", like)
    assert np.array_equal(usual["pixel_values"], asked["pixel_values"])


@pytest.mark.skipif(RELEASE != 4, reason="the processors of release 5 have no choice of their own")
def test_four_57_ignores_fast_where_its_processor_names_a_class(tmp_path):
    """AutoProcessor of a SigLIP folder takes the class of Pillow although its file says Fast."""
    kept = transformers.models.siglip.processing_siglip.SiglipProcessor.image_processor_class
    assert kept == ("SiglipImageProcessor", "SiglipImageProcessorFast")


def test_two_choices_are_one_too_many(tmp_path):
    said = refusal(tmp_path, PROCESSORS / "clip", pictures()[0], "--like", "slow", "--resampler", "pil")
    assert "--like" in said and "--resampler" in said
