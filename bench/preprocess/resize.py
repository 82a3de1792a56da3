#!/usr/bin/env python3
"""The resizer alone, from memory to memory on one thread, against what else resizes: a table, in one run.

    ninja -C build/release bench_resize
    VENV/bin/python bench/preprocess/resize.py build/release [WIDTHxHEIGHT:OUT_WIDTHxOUT_HEIGHT...]

VENV: pip install pillow torch; what is not installed is left out. Rivals, which take turns with ours:

- fast_image_resize, called from Rust (cargo builds it): the fastest that is known to us; its weights have 16 bits, so
  its bytes are not Pillow's;
- Pillow's Image.resize, whose bytes `pil` gives (`pil13` since release 13);
- torch's interpolate of bytes with antialiasing, channels last, whose bytes `aten_u8` gives.

Nanoseconds of processor time a source pixel, the least of all turns; ratios are theirs over ours, of `pil`, of torch's
over `aten_u8`. EVENKEEL_CPU=avx2 holds ours and the crate to AVX2. TURNS is read from the environment.
"""
import os
import pathlib
import subprocess
import sys
import time

from native import built

os.environ.setdefault("OMP_NUM_THREADS", "1")

try:
    from PIL import Image
except ImportError:
    Image = None
try:
    import torch
except ImportError:
    torch = None

TURNS = int(os.environ.get("TURNS", "7"))
SIZES = ["2448x1632:2142x1428", "2448x1632:1204x812", "3464x2310:1204x812", "6000x4000:1204x812", "6000x4000:588x392",
         "6000x4000:308x196"]


def printed(*command):
    return float(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def timed(work, pixels):
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1e9 / pixels


def contestants(build, native, size, out):
    """Name -> a turn's nanoseconds a source pixel."""
    binary, pixels = pathlib.Path(build) / "bench/bench_resize", size[0] * size[1]
    level = "avx2" if os.environ.get("EVENKEEL_CPU") == "avx2" else "best"
    found = {name: lambda name=name: printed(binary, *size, *out, 3, name) for name in ("pil", "aten_u8")}
    found["fast_image_resize"] = lambda: printed(native, *size, *out, 3, level)
    if Image is not None:
        picture = Image.frombytes("RGB", size, os.urandom(3 * pixels))
        found["Pillow"] = lambda: timed(lambda: picture.resize(out, Image.Resampling.BICUBIC), pixels)
    if torch is not None:
        torch.set_num_threads(1)
        planes = torch.randint(0, 256, (1, 3, size[1], size[0]), dtype=torch.uint8).to(memory_format=torch.channels_last)
        found["torch"] = lambda: timed(lambda: torch.nn.functional.interpolate(
            planes, size=out[::-1], mode="bicubic", antialias=True), pixels)
        try:
            found["torch"]()
        except RuntimeError:  # before 2.1 it resizes no bytes
            del found["torch"]
    return found


def main():
    build, *sizes = sys.argv[1:]
    native = built("resize-native")
    print(f"{'':<26}{'reduced':>8}{'pil':>8}{'aten_u8':>9}{'fast_image_resize':>19}{'Pillow':>14}{'torch':>14}")
    for words in sizes or SIZES:
        size, out = (tuple(int(side) for side in part.split("x")) for part in words.split(":"))
        turns = contestants(build, native, size, out)
        least = {name: min(figures) for name, figures in
                 zip(turns, zip(*[[turn() for turn in turns.values()] for _ in range(TURNS)]))}
        cells = [f"{least[name]:.2f} ({least[name] / least['aten_u8' if name == 'torch' else 'pil']:.2f})"
                 if name in least else "" for name in ("fast_image_resize", "Pillow", "torch")]
        print(f"{words:<26}{size[0] / out[0]:>8.1f}{least['pil']:>8.2f}{least['aten_u8']:>9.2f}"
              f"{cells[0]:>19}{cells[1]:>14}{cells[2]:>14}", flush=True)
    print("Pillow", getattr(Image, "__version__", "not installed"), "torch", getattr(torch, "__version__", "not installed"))


if __name__ == "__main__":
    main()
