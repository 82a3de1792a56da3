"""SigLIP 2 of any size (NaFlex) against the processors of the installed `transformers`, release 4 or 5, by torchvision and by
Pillow, bit for bit: pictures of odd sizes, and every EVENKEEL_PARITY_EVERY-th photo next to the tree (29), 1 for all.
"""

import json

import numpy as np
import pytest

from command import preprocess
from installed import GOLDEN, RELEASE, Image, image_processor, needed, photos

pytestmark = needed
PICTURE = GOLDEN / "pictures/scene.png"
SIZES = [(41, 29), (1, 60), (97, 211), (640, 480), (1200, 31), (255, 257)]
OTHER = {"patch_size": 14, "max_num_patches": 1024, "image_mean": [0.1, 0.2, 0.3], "resample": 3}
CASES = [("aten_u8", {}), ("pil13", {}), ("aten_u8", OTHER), ("pil13", {"max_num_patches": 49})]


@pytest.mark.parametrize("resampler,values", CASES, ids=str)
def test_patches_are_those_of_the_processor(tmp_path, resampler, values):
    processor = image_processor("siglip2", "Siglip2ImageProcessor", resampler)(**values)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "Siglip2ImageProcessor", **values}))
    paths = photos("images/*.jpg")
    for width, height in SIZES:
        if RELEASE == 4 and 1 in (width, height):
            continue  # takes them for channels
        paths.append(tmp_path / f"{width}x{height}.png")
        Image.open(PICTURE).convert("RGB").resize((width, height)).save(paths[-1])
    for path in paths:
        theirs = processor(Image.open(path).convert("RGB"), return_tensors="pt")  # which leaves that to its caller
        ours = preprocess(tmp_path, tmp_path, path, "--resampler", resampler)
        shape = np.asarray(theirs["spatial_shapes"])[0]
        assert np.array_equal(ours["spatial_shapes"][0], shape), path
        patches = int(shape.prod())
        assert np.asarray(theirs["pixel_attention_mask"])[0].sum() == patches
        wanted = np.ascontiguousarray(np.asarray(theirs["pixel_values"])[0, :patches], np.float32)
        assert ours["pixel_values"].shape == wanted.shape
        assert np.count_nonzero(ours["pixel_values"].view(np.uint32) != wanted.view(np.uint32)) == 0, path
