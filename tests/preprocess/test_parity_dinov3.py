"""DINOv3 against the processor of the installed `transformers`, release 4 or 5: its pictures are resized as floats."""

import json

import numpy as np
import pytest

from command import SHARED, preprocess
from installed import GOLDEN, Image, needed, transformers

PICTURE = GOLDEN / "pictures/scene.png"
SIZES = [(41, 29), (2, 60), (60, 2), (3, 200), (300, 200), (200, 300), (224, 224), (600, 256), (1500, 400), (400, 1499), (2000, 31)]
PUBLISHED = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.485, 0.456, 0.406],
             "image_processor_type": "DINOv3ViTImageProcessorFast", "image_std": [0.229, 0.224, 0.225], "resample": 2,
             "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224}}

pytestmark = needed


def differing(tmp_path, folder, processor, path):
    theirs = processor(Image.open(path).convert("RGB"), return_tensors="pt")["pixel_values"].numpy()
    ours = preprocess(tmp_path, folder, path, "--resampler", "aten_u8", "--alpha", "drop")["pixel_values"]
    return np.count_nonzero(ours.reshape(theirs.shape).view(np.uint32) != theirs.view(np.uint32))


@pytest.mark.parametrize("size", [(224, 224), (48, 96), (512, 512)])
def test_pictures_are_those_of_the_processor(tmp_path, size):
    folder = tmp_path / "folder"
    folder.mkdir()
    values = {**PUBLISHED, "size": dict(zip(("height", "width"), size))}
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    for width, height in SIZES:
        path = tmp_path / f"{width}x{height}.png"
        Image.open(PICTURE).convert("RGB").resize((width, height)).save(path)
        assert differing(tmp_path, folder, processor, path) == 0, (width, height)
    photos = sorted((SHARED / "media/photos").glob("*.jpg"))[::40]
    assert [path for path in photos if differing(tmp_path, folder, processor, path)] == []
