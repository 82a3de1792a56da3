"""Pictures that code in the repositories of models cuts, not a class of `transformers` (InternVL's own): by
`evenkeel preprocess` against Pillow and torchvision, called as that code calls them; bit for bit.
"""

import json

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, Image, needed, photos

transforms = pytest.importorskip("torchvision.transforms")

pytestmark = needed
SIZES = [(1, 1), (1, 60), (60, 1), (448, 448), (449, 447), (560, 448), (1121, 1120), (31, 2000), (2000, 31), (700, 700), (900, 300)]
FINISH = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
MODEL = {"model_type": "internvl_chat", "force_image_size": 448, "downsample_ratio": 0.5, "dynamic_image_size": True,
         "use_thumbnail": True, "min_dynamic_patch": 1, "max_dynamic_patch": 12, "vision_config": {"image_size": 448, "patch_size": 14}}


def grid_of(width, height, most, side):
    """(columns, rows): the nearest shape; of equally near ones the last by area that does not blow the picture up twice."""
    grids = sorted(((i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most), key=lambda grid: grid[0] * grid[1])
    best, near = (1, 1), float("inf")
    for columns, rows in grids:
        away = abs(width / height - columns / rows)
        if away < near or (away == near and width * height > 0.5 * side * side * columns * rows):
            best, near = (columns, rows), away
    return best


def theirs(path, model):
    picture = Image.open(path).convert("RGB")
    side = model["force_image_size"]
    columns, rows = grid_of(*picture.size, model["max_dynamic_patch"], side) if model["dynamic_image_size"] else (1, 1)
    whole = picture.resize((columns * side, rows * side))
    tiles = [whole.crop((x * side, y * side, (x + 1) * side, (y + 1) * side)) for y in range(rows) for x in range(columns)]
    if len(tiles) > 1 and model["use_thumbnail"]:
        tiles.append(picture.resize((side, side)))
    return np.stack([FINISH(tile).numpy() for tile in tiles])


def internvl(tmp_path, **values):
    folder = tmp_path / "internvl"
    folder.mkdir(exist_ok=True)
    model = MODEL | values
    (folder / "config.json").write_text(json.dumps(model))
    # The published file, which nobody reads.
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_extractor_type": "CLIPFeatureExtractor", "size": 448}))
    return folder, model


def differing(tmp_path, folder, model, path):
    wanted = theirs(path, model)
    ours = preprocess(tmp_path, folder, path)["pixel_values"]
    assert ours.shape == wanted.shape, path
    return np.count_nonzero(ours.view(np.uint32) != wanted.view(np.uint32))


@pytest.mark.parametrize("values", [{}, {"use_thumbnail": False, "max_dynamic_patch": 6}, {"dynamic_image_size": False},
                                    {"force_image_size": 224}], ids=str)
def test_internvls_own_tiles_of_odd_sizes_are_the_same(tmp_path, values):
    folder, model = internvl(tmp_path, **values)
    for width, height in SIZES:
        path = tmp_path / f"{width}x{height}.png"
        Image.open(GOLDEN / "pictures/scene.png").convert("RGB").resize((width, height)).save(path)
        assert differing(tmp_path, folder, model, path) == 0, (width, height)


def test_internvls_own_tiles_of_photos_are_the_same(tmp_path):
    folder, model = internvl(tmp_path)
    paths = photos("pictures/*.png", "images/*.jpg", "images/rgb*.png", "images/l*.webp")
    assert not [path.name for path in paths if differing(tmp_path, folder, model, path)]


def test_torchvisions_filter_is_refused(tmp_path):
    assert "works through Pillow only" in refusal(tmp_path, internvl(tmp_path)[0], GOLDEN / "pictures/scene.png", "--resampler", "aten_u8")
