#!/usr/bin/env python3
"""Makes tests/golden/data/heif: small AVIF and HEIF files and what Pillow makes of them.

    python3 tests/golden/make_heif_goldens.py      (pillow 13.0.0, pillow-heif 1.8.1, numpy; Debian: ffmpeg)

For NAME.EXT: NAME.EXT.rgb is Image.open(...).convert("RGB") as raw bytes, NAME.EXT.white the same with its alpha
blended onto white. `index.txt` has a line for each: file, width, height, EXIF's orientation as Pillow has it.
"""

import io
import pathlib
import subprocess
import sys

import numpy as np
import pillow_heif
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from heif_files import colours, cut, grid, heif, joined, mirror, primary, turn, with_alpha  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "data" / "heif"
WIDTH, HEIGHT = 41, 29
INDEX = []
rng = np.random.default_rng(48)
pillow_heif.register_heif_opener()


def scene(width=WIDTH, height=HEIGHT):
    y, x = np.mgrid[0:height, 0:width]
    channels = [127 + 120 * np.sin(x / 5 + y / 9), 255 * (x / width), 127 + 100 * np.cos((x - y) / 4)]
    noise = rng.integers(-12, 12, (height, width, 3))
    return Image.fromarray(np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def by_ffmpeg(image, pixels, full):
    """An AVIF of such pixels: Pillow writes 8 bits alone."""
    name = OUT / "made.avif"
    values = "pc" if full else "tv"
    subprocess.run(["ffmpeg", "-y", "-loglevel", "error", "-f", "png_pipe", "-i", "-", "-vf",
                    f"scale=in_range=pc:out_range={values},format={pixels}", "-color_range", values, "-c:v", "libaom-av1",
                    "-threads", "1", "-still-picture", "1", "-cpu-used", "8", "-f", "avif", name],
                   input=saved(image, "PNG"), check=True)
    data = name.read_bytes()
    name.unlink()
    return data


def add(name, data):
    (OUT / name).write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    (OUT / f"{name}.rgb").write_bytes(image.convert("RGB").tobytes())
    if image.mode == "RGBA":
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        (OUT / f"{name}.white").write_bytes(white.tobytes())
    INDEX.append(f"{name} {image.width} {image.height} {image.getexif().get(0x0112, 1)}")


def add_avifs(rgb, rgba):
    for subsampling in ("4:4:4", "4:2:2", "4:2:0", "4:0:0"):
        name = subsampling.replace(":", "")
        add(f"{name}.avif", saved(rgb, "AVIF", subsampling=subsampling, quality=80))
        add(f"{name}-limited.avif", saved(rgb, "AVIF", subsampling=subsampling, quality=80, range="limited"))
        add(f"{name}-alpha.avif", saved(rgba, "AVIF", subsampling=subsampling, quality=80))
    add("lossless.avif", saved(rgb, "AVIF", quality=100, subsampling="4:4:4"))
    exif = Image.Exif()
    exif[0x0112] = 6
    add("turned-6.avif", saved(rgb, "AVIF", exif=exif))
    add("animated.avif", saved(rgb, "AVIF", save_all=True, append_images=[rgb.transpose(Image.FLIP_LEFT_RIGHT)]))
    for pixels in ("yuv420p10le", "yuv422p10le", "yuv444p12le", "gray10le"):
        add(f"{pixels}.avif", by_ffmpeg(rgb, pixels, full=True))
    alpha = Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH), np.uint8))
    for pixels in ("yuv420p10le", "yuv422p10le", "yuv444p10le", "yuv420p12le", "yuv444p12le", "gray12le"):
        deep = "gray12le" if "12" in pixels else "gray10le"
        both = joined(by_ffmpeg(rgb, pixels, full=False), by_ffmpeg(alpha, deep, full=True))
        add(f"{pixels}-alpha.avif", heif(both, "avif"))
    item = primary(saved(rgb, "AVIF", subsampling="4:2:0", quality=80)).without("colr")
    matrices = ((1, 1, 0), (1, 1, 1), (9, 9, 0), (9, 9, 1), (1, 4, 1), (1, 7, 0), (1, 12, 1), (1, 8, 1))
    for primaries, matrix, full in matrices:
        add(f"matrix-{primaries}-{matrix}-{'full' if full else 'limited'}.avif",
            heif([item.having(colours(primaries, matrix, full))], "avif"))
    identity = primary(saved(rgb, "AVIF", subsampling="4:4:4", quality=80)).without("colr")
    add("identity.avif", heif([identity.having(colours(1, 0, 1))], "avif"))
    item.pieces = 3
    add("no-colours.avif", heif([item], "avif"))


def add_heifs(rgb, rgba):
    for chroma in ("444", "422", "420"):
        add(f"{chroma}.heic", saved(rgb, "HEIF", chroma=chroma, quality=80))
        limited = {"full_range_flag": 0, "matrix_coefficients": 1}
        add(f"{chroma}-limited.heic", saved(rgb, "HEIF", chroma=chroma, quality=80, **limited))
    add("alpha.heic", saved(rgba, "HEIF", quality=80))
    add("grey.heic", saved(rgb.convert("L"), "HEIF"))
    wide = np.asarray(rgb).astype(np.uint16) * 257
    for chroma, full in (("420", 1), ("444", 0)):
        out = io.BytesIO()
        deep = pillow_heif.from_bytes(mode="RGB;16", size=rgb.size, data=wide.astype("<u2").tobytes())
        deep.save(out, quality=80, chroma=chroma, full_range_flag=full, matrix_coefficients=9)
        add(f"{chroma}-10.heif", out.getvalue())
    item = primary(saved(rgb.resize((64, 64)), "HEIF", quality=80))
    add("cut-turned.heic", heif([item.having(cut(30, 18, -6, 10), turn(1), mirror(0))]))
    both = with_alpha(saved(rgba.resize((64, 64)), "HEIF", quality=80))
    add("alpha-turned.heic", heif([one.having(turn(3)) for one in both]))
    item.stored = "idat"
    add("no-colours.heif", heif([item.without("colr")], "mif1"))


def add_grids():
    large = scene(128, 64)
    halves = [large.crop((x, 0, x + 64, 64)) for x in (0, 64)]
    # libavif takes even sides alone.
    for kind, name, brand in (("AVIF", "grid.avif", "avif"), ("HEIF", "grid.heic", "heic")):
        tiles = [primary(saved(half, kind, quality=80)) for half in halves]
        add(name, heif(grid(tiles, 2, 1, (100, 62)), brand))
    add("grid-turned.heic", heif(grid(tiles, 2, 1, (100, 62), turn(1), stored="mdat")))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rgb = scene()
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH), np.uint8)))
    add_avifs(rgb, rgba)
    add_heifs(rgb, rgba)
    add_grids()
    (OUT / "index.txt").write_text("\n".join(INDEX) + "\n")


if __name__ == "__main__":
    main()
