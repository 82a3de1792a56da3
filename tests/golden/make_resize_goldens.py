#!/usr/bin/env python3
"""Adds resizes of tests/golden/data/images/scene.rgb by releases that Debian 12 does not have.

    VENV/bin/python tests/golden/make_resize_goldens.py    (PyPI: torch==2.15.0 torchvision==0.29.2 pillow==13.0.0)

`aten-*.rgb`: torchvision's antialiased resize of uint8 tensors. `pil13-*.rgb`: Pillow 13 where it filters columns
before rows. make_image_goldens.py writes scene.rgb and Pillow 9.4's resizes.
"""

import pathlib

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

IMAGES = pathlib.Path(__file__).resolve().parent / "data" / "images"
SIZES = ((28, 28), (84, 56), (41, 20), (19, 29), (1, 1), (211, 5), (41, 29))


def main():
    scene = np.fromfile(IMAGES / "scene.rgb", np.uint8).reshape(29, 41, 3)
    tensor = torch.from_numpy(scene.copy()).permute(2, 0, 1)
    for name, mode in (("bicubic", InterpolationMode.BICUBIC), ("bilinear", InterpolationMode.BILINEAR),
                       ("lanczos", InterpolationMode.LANCZOS)):
        for width, height in SIZES:
            resized = functional.resize(tensor, [height, width], interpolation=mode, antialias=True)
            resized.permute(1, 2, 0).contiguous().numpy().tofile(IMAGES / f"aten-{name}-{width}x{height}.rgb")
    wide = Image.fromarray(scene).resize((211, 5), Image.BICUBIC)
    (IMAGES / "pil13-bicubic-211x5.rgb").write_bytes(wide.tobytes())


if __name__ == "__main__":
    main()
