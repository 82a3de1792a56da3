"""AVIF and HEIF pictures against Pillow and pillow-heif, bit for bit: subsamplings, depths, ranges, matrices, alphas,
grids, turns and cuts."""

import io
import itertools
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import ImageOps

from command import ROOT, preprocess, refusal
from installed import GOLDEN, RELEASE, Image, image_processor, needed
from test_parity_tiff import folder_of

sys.path.insert(0, str(ROOT / "tests"))
from heif_files import colours, cut, grid, heif, joined, mirror, primary, turn, with_alpha  # noqa: E402

pillow_heif = pytest.importorskip("pillow_heif")
pillow_heif.register_heif_opener()
pytestmark = needed
SUBSAMPLINGS = ("444", "422", "420", "400")
rng = np.random.default_rng(7)


def scene(width, height):
    """Strong colours and noise: a difference in rounding or in the place of chroma shows."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [127 + 127 * np.sin(x / 3 + y / 7), 255 * (x % 31 / 30), 127 + 127 * np.cos((x - 2 * y) / 4)]
    return Image.fromarray(np.clip(np.stack(channels, -1) + rng.integers(-30, 30, (height, width, 3)), 0, 255).astype(np.uint8))


def with_noise(picture):
    out = picture.copy()
    out.putalpha(Image.fromarray(rng.integers(0, 256, (picture.height, picture.width), np.uint8)))
    return out


def saved(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def avif(picture, chroma="420", **options):
    return saved(picture, "AVIF", subsampling=":".join(chroma), **options)


def heic(picture, chroma="420", **options):
    options = {"quality": 80, **options}
    return saved(picture.convert("L") if chroma == "400" else picture, "HEIF", **({} if chroma == "400" else {"chroma": chroma}), **options)


def by_ffmpeg(tmp_path, picture, pixels, full):
    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg, which writes more than 8 bits")
    values, out = "pc" if full else "tv", tmp_path / "made.avif"
    subprocess.run(["ffmpeg", "-y", "-loglevel", "error", "-f", "png_pipe", "-i", "-", "-vf",
                    f"scale=in_range=pc:out_range={values},format={pixels}", "-color_range", values, "-c:v", "libaom-av1",
                    "-still-picture", "1", "-cpu-used", "8", "-f", "avif", out], input=saved(picture, "PNG"), check=True)
    return out.read_bytes()


def deep_heic(picture, **options):
    mode = "RGBA;16" if picture.mode == "RGBA" else "RGB;16"
    wide = np.asarray(picture).astype(np.uint16) * 256 + rng.integers(0, 256, np.asarray(picture).shape, np.uint16)
    out = io.BytesIO()
    pillow_heif.from_bytes(mode=mode, size=picture.size, data=wide.astype("<u2").tobytes()).save(out, quality=80, **options)
    return out.getvalue()


def check(tmp_path, files, *extra, turned=False, alphas=("drop", "white") if RELEASE > 4 else ("drop",)):
    """Compares all files with the processor, in one call for each size of picture."""
    sizes = {}
    for i, (name, (suffix, data)) in enumerate(files.items()):
        path = tmp_path / f"{i}.{suffix}"
        path.write_bytes(data)
        picture = Image.open(path)
        picture.load()
        if turned:
            picture = ImageOps.exif_transpose(picture)
        sizes.setdefault(picture.size, []).append((name, path, picture))
    for alpha, (size, pictures) in itertools.product(alphas, sizes.items()):
        folder = folder_of(tmp_path, size)
        processor = image_processor("siglip", "SiglipImageProcessor", "aten_u8").from_pretrained(folder)
        ours = preprocess(tmp_path, folder, [path for _, path, _ in pictures], "--alpha", alpha, *extra)["pixel_values"]
        for (name, _, picture), values in zip(pictures, ours, strict=True):
            if RELEASE == 4 or alpha == "drop":
                picture = picture.convert("RGB")
            theirs = np.asarray(processor(picture, return_tensors="pt")["pixel_values"], np.float32)[0]
            assert values.shape == theirs.shape, name
            assert np.count_nonzero(values.view(np.uint32) != theirs.view(np.uint32)) == 0, (name, alpha)


@pytest.mark.parametrize("chroma", SUBSAMPLINGS)
def test_avif_as_pillow_writes_it(tmp_path, chroma):
    files = {}
    for width, height in ((61, 47), (64, 48), (1, 1), (2, 3), (3, 2), (33, 1), (1, 34)):
        picture = scene(width, height)
        for values, quality in itertools.product(("full", "limited"), (30, 90)):
            files[f"{width}x{height} {values} {quality}"] = "avif", avif(picture, chroma, range=values, quality=quality)
        files[f"{width}x{height} alpha"] = "avif", avif(with_noise(picture), chroma)
    files["lossless"] = "avif", avif(scene(61, 47), chroma, quality=100)
    files["animated"] = "avif", avif(scene(61, 47), chroma, save_all=True, append_images=[scene(61, 47)])
    files["animated alpha"] = "avif", avif(with_noise(scene(61, 47)), chroma, save_all=True, append_images=[with_noise(scene(61, 47))])
    check(tmp_path, files)


@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("bits", [8, 10, 12])
def test_avif_of_other_depths(tmp_path, bits, full):
    picture, alpha = scene(61, 47), Image.fromarray(rng.integers(0, 256, (47, 61), np.uint8))
    end = f"{bits}le" if bits > 8 else ""
    alphas = {values: by_ffmpeg(tmp_path, alpha, f"gray{end}", values) for values in (False, True)}
    files = {}
    for pixels in ("yuv444p", "yuv422p", "yuv420p", "gray"):
        coded = by_ffmpeg(tmp_path, picture, pixels + end, full)
        files[pixels] = "avif", coded
        for values, one in alphas.items():
            files[f"{pixels} alpha {values}"] = "avif", heif(joined(coded, one), "avif")
    check(tmp_path, files)


@pytest.mark.parametrize("kind", ["avif", "heic"])
def test_matrices_and_ranges(tmp_path, kind):
    files = {}
    for chroma in ("444", "422", "420"):
        item = primary({"avif": avif, "heic": heic}[kind](scene(64, 64), chroma)).without("colr")
        files[f"{chroma} none"] = kind, heif([item], kind)
        for matrix, primaries, full in itertools.product((1, 2, 4, 5, 6, 7, 9), (1, 9), (0, 1)):
            files[f"{chroma} {matrix} {primaries} {full}"] = kind, heif([item.having(colours(primaries, matrix, full))], kind)
        if kind == "avif":
            for primaries, full in itertools.product((1, 2, 5, 6, 9), (0, 1)):
                files[f"{chroma} 12 {primaries} {full}"] = kind, heif([item.having(colours(primaries, 12, full))], kind)
            files[f"{chroma} 8"] = kind, heif([item.having(colours(1, 8, 1))], kind)
        if chroma == "444":
            files["identity"] = kind, heif([item.having(colours(1, 0, 1))], kind)
    check(tmp_path, files)


@pytest.mark.parametrize("chroma", SUBSAMPLINGS)
def test_heic_as_pillow_heif_writes_it(tmp_path, chroma):
    files = {}
    for width, height in ((61, 47), (64, 48), (2, 3), (33, 17)):
        picture = scene(width, height)
        for full, quality in itertools.product((0, 1), (30, 90)):
            files[f"{width}x{height} {full} {quality}"] = "heic", heic(picture, chroma, full_range_flag=full, matrix_coefficients=1,
                                                                      quality=quality)
        if chroma != "400":
            files[f"{width}x{height} alpha"] = "heic", heic(with_noise(picture), chroma)
    if chroma != "400":
        for full in (0, 1):
            files[f"deep {full}"] = "heif", deep_heic(scene(61, 47), chroma=chroma, full_range_flag=full, matrix_coefficients=6)
            files[f"deep alpha {full}"] = "heif", deep_heic(with_noise(scene(61, 47)), chroma=chroma, full_range_flag=full,
                                                            matrix_coefficients=6)
    check(tmp_path, files)


@pytest.mark.parametrize("kind", ["avif", "heic"])
def test_grids(tmp_path, kind):
    files, large = {}, scene(192, 128)
    for chroma in ("444", "420"):
        tiles = [primary({"avif": avif, "heic": heic}[kind](large.crop((x, y, x + 64, y + 64)), chroma)) for y in (0, 64) for x in (0, 64, 128)]
        bare = [tile.without("colr") for tile in tiles]
        for size in ((180, 110), (192, 128), (130, 66)):
            files[f"{chroma} {size}"] = kind, heif(grid(tiles, 3, 2, size), kind)
            files[f"{chroma} {size} bare"] = kind, heif(grid(bare, 3, 2, size, stored="mdat"), kind)
    check(tmp_path, files)


@pytest.mark.parametrize("kind", ["avif", "heic"])
def test_turns_and_mirrors(tmp_path, kind):
    item = primary({"avif": avif, "heic": heic}[kind](scene(64, 64).resize((64, 64))))
    files = {}
    for quarters, axis in itertools.product(range(4), (None, 0, 1)):
        changes = [turn(quarters)] + ([mirror(axis)] if axis is not None else [])
        files[f"{quarters} {axis}"] = kind, heif([item.having(*changes)], kind)
        if kind == "heic":  # libheif keeps the order of the properties, and cuts before it turns
            files[f"{axis} {quarters}"] = kind, heif([item.having(*reversed(changes))], kind)
            files[f"cut {quarters} {axis}"] = kind, heif([item.having(cut(30, 18, -6, 10), *changes)], kind)
        else:
            files[f"cut {quarters} {axis}"] = kind, heif([item.having((cut(31, 17, -5, 9)[0], True), *changes)], kind)
    check(tmp_path, files)
    check(tmp_path, files, "--exif-orientation", "apply", turned=True)


def test_shifted_samples_of_colour_are_refused(tmp_path):
    """libheif doubles their rows in a way of its own."""
    for changes in ([cut(31, 17, -4, 10), turn(1)], [cut(31, 18, -4, 10), mirror(1)], [cut(30, 18, -4, 10)]):
        path = tmp_path / "picture.heic"
        path.write_bytes(heif([primary(heic(scene(64, 64))).having(*changes)]))
        assert "fewer samples of colour" in refusal(tmp_path, GOLDEN / "processors/siglip", path)
        path.write_bytes(heif([primary(heic(scene(64, 64), "444")).having(*changes)]))
        check(tmp_path, {"full": ("heic", path.read_bytes())})


def test_an_alpha_is_turned_with_its_picture(tmp_path):
    both = with_alpha(heic(with_noise(scene(64, 64))))
    check(tmp_path, {"turned": ("heic", heif([one.having(turn(3), mirror(1)) for one in both]))})


def test_files_that_end_early_are_refused_as_by_pillow(tmp_path):
    for kind, data in (("avif", avif(scene(61, 47))), ("heic", heic(scene(61, 47)))):
        path = tmp_path / f"cut.{kind}"
        for length in (40, len(data) // 2, len(data) - 10):
            path.write_bytes(data[:length])
            with pytest.raises((OSError, SyntaxError, ValueError, RuntimeError, EOFError)):
                Image.open(path).load()
            assert "HEIF" in refusal(tmp_path, GOLDEN / "processors/siglip", path)
