"""`evenkeel preprocess` against the installed `transformers`, release 4 or 5: every family of pictures, both resamplers,
bit for bit; the audio of the Omni models.

The pictures are the photos next to the tree (EVENKEEL_SHARED, or ../shared), else those of the goldens; every
EVENKEEL_PARITY_EVERY-th of them (29), 1 for all.
"""

import json
import struct
import wave
import zlib

import numpy as np
import pytest

from command import preprocess, refusal
from installed import GOLDEN, PROCESSORS, RELEASE, Image, image_processor, in_patches, needed, photos, transformers

ImageOps = pytest.importorskip("PIL.ImageOps")
PngInfo = pytest.importorskip("PIL.PngImagePlugin").PngInfo

pytestmark = needed

# folder: (module of transformers, class without the words for its path)
FAMILIES = {
    "clip": ("clip", "CLIPImageProcessor"),
    "gemma3": ("gemma3", "Gemma3ImageProcessor"),
    "glm4v": ("glm4v", "Glm4vImageProcessor"),
    "internvl": ("got_ocr2", "GotOcr2ImageProcessor"),
    "llava": ("clip", "CLIPImageProcessor"),
    "llava-next": ("llava_next", "LlavaNextImageProcessor"),
    "llava-pad": ("llava", "LlavaImageProcessor"),
    "mistral3": ("pixtral", "PixtralImageProcessor"),
    "paligemma": ("siglip", "SiglipImageProcessor"),
    "pixtral": ("pixtral", "PixtralImageProcessor"),
    "qwen2-vl": ("qwen2_vl", "Qwen2VLImageProcessor"),
    "qwen3-vl": ("qwen2_vl", "Qwen2VLImageProcessor"),
    "siglip": ("siglip", "SiglipImageProcessor"),
}
PATCHES = {"mistral3": (14, 2), "pixtral": (16, 1)}  # sides of patches that are given, and how many in a row are merged
MAX_PIXELS = 1003520  # keeps the largest photos of the Qwen families in memory


def reference(folder, resampler):
    config = json.loads((PROCESSORS / folder / "preprocessor_config.json").read_text())
    config = {key: value for key, value in config.items() if value is not None}
    if folder.startswith("qwen"):
        config["max_pixels"] = MAX_PIXELS
        # The slow class of 4.57 takes its default bounds instead of the file's "size", which small pictures show.
        config.setdefault("min_pixels", config.get("size", {}).get("shortest_edge", 56 * 56))
    if folder in PATCHES:  # as its processor calls it
        config["patch_size"] = dict.fromkeys(("height", "width"), PATCHES[folder][0] * PATCHES[folder][1])
    return image_processor(*FAMILIES[folder], resampler)(**config)


def leaves_conversion(folder):
    """Whether the file leaves it to the caller to convert to RGB, which drops transparency."""
    config = json.loads((PROCESSORS / folder / "preprocessor_config.json").read_text())
    of_processor = config.get("processor_class") == "Gemma3Processor"  # which converts
    return "do_convert_rgb" in config and config["do_convert_rgb"] is None and not of_processor


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("folder", FAMILIES)
def test_pixels_equal_transformers_bit_for_bit(tmp_path, folder, resampler):
    processor = reference(folder, resampler)
    wrong = []
    for photo in photos("pictures/*.png", "pictures/smooth.jpg", "images/*.jpg", "images/rgb*.png", "images/l*.webp"):
        extra = ["--max-pixels", MAX_PIXELS] if folder.startswith("qwen") else []
        image = Image.open(photo)
        if RELEASE == 4 or leaves_conversion(folder):  # drops alpha
            extra += ["--alpha", "drop"]
            image = image.convert("RGB")
            image.info.pop("transparency", None)  # which Pillow keeps, and release 5 would blend by
        try:
            theirs = processor(image, return_tensors="pt")
        except ValueError as error:  # 5 resizes them
            assert RELEASE == 4 and folder == "glm4v" and "must be larger than factor" in str(error), photo.name
            continue
        ours = preprocess(tmp_path, PROCESSORS / folder, photo, "--resampler", resampler, *extra)
        values = theirs["pixel_values"].numpy()
        if folder in PATCHES:
            values = in_patches(values, PATCHES[folder][0])
        values = np.ascontiguousarray(values, np.float32)
        mine = ours["pixel_values"].reshape(values.shape)
        differ = np.count_nonzero(mine.view(np.uint32) != values.view(np.uint32))
        if differ:
            wrong.append((photo.name, differ, values.size))
        if "image_grid_thw" in theirs:
            assert np.array_equal(ours["image_grid_thw"], theirs["image_grid_thw"]), photo.name
        if "image_sizes" in theirs:
            assert np.array_equal(ours["image_sizes"], theirs["image_sizes"]), photo.name
    assert not wrong


def ours_and_theirs(tmp_path, path, image, resampler, *extra):
    """Both processors' values of a picture by SigLIP's rules, converted by theirs."""
    config = json.loads((PROCESSORS / "siglip/preprocessor_config.json").read_text())
    config["do_convert_rgb"] = True
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    processor = image_processor(*FAMILIES["siglip"], resampler).from_pretrained(folder)
    ours = preprocess(tmp_path, folder, path, "--resampler", resampler, *extra)["pixel_values"]
    return ours, processor(image, return_tensors="pt")["pixel_values"].numpy()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.skipif(RELEASE == 4, reason="drops transparency")
@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("before,entries", [(b"IDAT", 16), (b"IDAT", 5), (b"IDAT", 256), (b"PLTE", 16), (b"PLTE", 99)])
def test_a_palettes_transparency_is_found_as_by_pillow(tmp_path, before, entries, resampler):
    path = tmp_path / "palette.png"
    Image.open(GOLDEN / "images/scene.png").convert("RGB").quantize(16).save(path, bits=8)
    data = path.read_bytes()
    at = data.index(before) - 4
    path.write_bytes(data[:at] + chunk(b"tRNS", bytes(7 * i % 256 for i in range(entries))) + data[at:])
    ours, theirs = ours_and_theirs(tmp_path, path, Image.open(path), resampler)
    assert np.array_equal(ours, theirs)
    assert not np.array_equal(ours, ours_and_theirs(tmp_path, path, Image.open(path), resampler, "--alpha", "drop")[0])


# TIFF's types: only bytes, texts, fractions and floats are no whole numbers to Pillow.
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", range(1, 14))
def test_pictures_are_turned_as_by_pillow(tmp_path, kind, order):
    value = struct.pack(order + {2: "H2x", 4: "I", 1: "B3x"}[{3: 2, 8: 2, 4: 4, 9: 4, 13: 4}.get(kind, 1)], 6)
    entry = struct.pack(order + "HHI", 0x0112, kind, 1) + value
    tiff = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIH", 42, 8, 1) + entry + bytes(4)
    path = tmp_path / "turned.jpg"
    Image.open(GOLDEN / "images/scene.png").convert("RGB").save(path, exif=b"Exif\0\0" + tiff)
    upright = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    ours, theirs = ours_and_theirs(tmp_path, path, upright, "pil13", "--exif-orientation", "apply")
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("exif", [None, "turned", "without"])
@pytest.mark.parametrize("xmp", ['tiff:Orientation="8"', "<tiff:Orientation>5</tiff:Orientation>", "tiff:Orientation='3'", "none"])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_pictures_are_turned_by_xmp_where_exif_says_nothing(tmp_path, suffix, xmp, exif):
    path = tmp_path / f"turned.{suffix}"
    options = {"pnginfo": PngInfo()} if suffix == "png" else {"lossless": True, "xmp": xmp} if suffix == "webp" else {"xmp": xmp.encode()}
    if suffix == "png":
        options["pnginfo"].add_itxt("XML:com.adobe.xmp", xmp)
    if exif:
        tags = Image.Exif()
        tags[0x0112 if exif == "turned" else 0x010F] = 6 if exif == "turned" else "maker"
        options["exif"] = tags
    Image.open(GOLDEN / "images/scene.png").convert("RGB").save(path, **options)
    upright = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    ours, theirs = ours_and_theirs(tmp_path, path, upright, "pil13", "--exif-orientation", "apply")
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("lossless", [False, True])
def test_an_animated_webp_is_its_first_frame(tmp_path, lossless, alpha):
    path = tmp_path / "animated.webp"
    first = Image.open(GOLDEN / "images/scene.png").convert("RGBA" if alpha else "RGB")
    if alpha:
        first.putalpha(first.getchannel("R"))
        first.paste((0, 0, 0, 0), (0, 0, 12, first.height))  # the frame that is written begins after it
    first.save(path, save_all=True, append_images=[first.rotate(180), first.rotate(90)], lossless=lossless)
    with Image.open(path) as image:
        assert image.n_frames == 3
        upright = image.convert("RGB")
    ours, theirs = ours_and_theirs(tmp_path, path, upright, "pil13", "--alpha", "drop")
    assert np.array_equal(ours, theirs)


def segment(marker, body):
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


# Of a JPEG: what stands before its frame in place of one segment of EXIF.
@pytest.mark.parametrize("place", ["split", "split-apart", "behind-others", "junk", "fill", "restart", "comment", "short", "twice",
                                   "two-prefixes", "three-prefixes", "after-the-frame"])
def test_pictures_are_turned_by_exif_wherever_pillow_finds_it(tmp_path, place):
    prefix = b"Exif\0\0"
    tiff = b"II" + struct.pack("<HIHHHIHH", 42, 8, 1, 0x0112, 3, 1, 6, 0) + bytes(4)
    first, whole, other = segment(0xE1, prefix + tiff[:13]), segment(0xE1, prefix + tiff), segment(0xE5, b"other")
    rest = segment(0xE1, prefix + tiff[13:])
    between = {"split": first + rest, "split-apart": first + other + rest, "behind-others": other + segment(0xE1, b"http:") + whole,
               "junk": other + b"junk" + whole, "fill": b"\xff\xff\xff" + whole, "restart": b"\xff\xd0" + whole,
               "comment": segment(0xFE, prefix + tiff), "short": segment(0xE1, prefix) + whole, "twice": whole + whole,
               "two-prefixes": segment(0xE1, prefix * 2 + tiff), "three-prefixes": segment(0xE1, prefix * 3 + tiff),
               "after-the-frame": first + rest}[place]
    path = tmp_path / "turned.jpg"
    Image.open(GOLDEN / "images/scene.png").convert("RGB").save(path)
    data = path.read_bytes()
    at = data.index(b"\xff\xda") if place == "after-the-frame" else 2
    path.write_bytes(data[:at] + between + data[at:])
    upright = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    ours, theirs = ours_and_theirs(tmp_path, path, upright, "pil13", "--exif-orientation", "apply")
    assert np.array_equal(ours, theirs)
    assert (upright.width < upright.height) == (place not in ("comment", "three-prefixes"))


def clips(tmp_path):
    rng = np.random.default_rng(7)
    for count in (209, 320, 321, 8000, 16000, 124321, 500800):
        samples = rng.integers(-9000, 9000, count).astype("<i2")
        path = tmp_path / f"{count}.wav"
        with wave.open(str(path), "wb") as out:
            out.setparams((1, 2, 16000, 0, "NONE", None))
            out.writeframes(samples.tobytes())
        yield path, samples.astype(np.float32) / 32768


@pytest.mark.parametrize("folder,padding", [("qwen2_5-omni", "max_length"), ("qwen3-omni", True)])
def test_omni_features_equal_the_extractors(tmp_path, folder, padding):
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(PROCESSORS / folder)
    for path, samples in clips(tmp_path):
        if len(samples) <= 320 and folder == "qwen2_5-omni":  # whose encoder pools two frames away
            assert f"clip of {len(samples)} samples at 16000 Hz is too short for one token" in refusal(
                tmp_path, PROCESSORS / folder, path)
            continue
        ours = preprocess(tmp_path, PROCESSORS / folder, path)
        theirs = extractor(samples, sampling_rate=16000, padding=padding, truncation=padding == "max_length",
                           return_attention_mask=True, return_tensors="np")
        features = theirs["input_features"]
        if folder == "qwen3-omni":
            features = features[0].T
            assert ours["audio_feature_lengths"] == theirs["attention_mask"].sum()
        else:
            assert np.array_equal(ours["feature_attention_mask"], theirs["attention_mask"])
        assert ours["input_features"].shape == features.shape
        assert np.abs(ours["input_features"] - features).max() <= 1e-4  # its path in single precision
