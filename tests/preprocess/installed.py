"""The installed `transformers`, release 4 or 5, behind one set of names. Importing it skips where a part is missing."""

import importlib
import os

import pytest

from command import BINARY, ROOT, SHARED

PIL = pytest.importorskip("PIL")
Image = pytest.importorskip("PIL.Image")
transformers = pytest.importorskip("transformers", minversion="4.57")
torch = pytest.importorskip("torch", minversion="2.0")
pytest.importorskip("torchvision")

RELEASE = int(transformers.__version__.split(".")[0])
GOLDEN = ROOT / "tests/golden/data"
PROCESSORS = GOLDEN / "processors"
Image.MAX_IMAGE_PIXELS = None
# Of many alike cases a run takes every one of this number; 1: all.
EVERY = int(os.environ.get("EVENKEEL_PARITY_EVERY", "29"))

needed = [
    pytest.mark.skipif(not BINARY.exists(), reason=f"no binary at {BINARY}"),
    pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="Pillow orders its passes otherwise before 13"),
]


def image_processor(model, name, resampler):
    """The class of a family by the path that `resampler` stands for: torchvision's or Pillow's."""
    if RELEASE == 4:
        module, suffix = (f"{model}_fast", "Fast") if resampler == "aten_u8" else (model, "")
    else:
        module, suffix = (model, "") if resampler == "aten_u8" else (f"pil_{model}", "Pil")
    return getattr(importlib.import_module(f"transformers.models.{model}.image_processing_{module}"), name + suffix)


@pytest.fixture(scope="module", autouse=True)
def threads():
    """A torch of one thread interpolates by other instructions, which round otherwise than those of two and more."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_patches(values, side):
    """[1, 3, height, width] as patches in rows from the left."""
    _, channels, height, width = values.shape
    return values.reshape(channels, height // side, side, width // side, side).transpose(1, 3, 0, 2, 4)


def media(folder, instead):
    """Files of a folder of the media next to the tree; without it, the goldens that `instead` names."""
    found = sorted((SHARED / "media" / folder).glob("*")) if SHARED.exists() else []
    return found or sorted(path for pattern in instead for path in GOLDEN.glob(pattern))


def photos(*instead):
    """Every EVERY-th photo next to the tree; without these, of the goldens that `instead` names."""
    return [path for path in media("photos", instead) if path.suffix in (".jpg", ".jpeg", ".png", ".webp")][::EVERY]
