#!/usr/bin/env python3
"""Writes data/video/qwen_vl_utils.txt: how many frames qwen-vl-utils chooses, which, and the size that it gives them.

Needs qwen-vl-utils (0.0.14), transformers (5.23.0), torch and torchvision. One line a video: frames, rate, fps, bounds of the
count, sides, bounds of the pixels (0: not said), then the count, the sum of (i + 1) * number of the i-th chosen frame, and
the sides of the frames once the video processor of Qwen2-VL has had them, with the bounds of processors/qwen2-vl (0 0 where
the package fails). Its torch.linspace counts in single precision, whose last bits depend on the CPU: the numbers here are
those of the same rule in double precision, of which it may choose neighbours; more is an error.
"""

import pathlib
import random

import numpy as np
import torch
from qwen_vl_utils import vision_process
from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize

RATES = [(24, 1), (25, 1), (30, 1), (30000, 1001), (24000, 1001), (60, 1), (12, 1), (1, 1), (359, 12), (15, 2)]


class Resized(Exception):
    """Carries the size that a video would be resized to."""


def resize(video, size, **_):
    raise Resized(size)


def frame_size(count, width, height, bounds):
    """[height, width], or [0, 0] where fetch_video fails."""
    video = torch.empty(1).expand(count, 3, height, width)
    vision_process.VIDEO_READER_BACKENDS["none"] = lambda _: (video, {}, 2.0)
    vision_process.get_video_reader_backend = lambda: "none"
    try:
        vision_process.fetch_video({"video": "none", **bounds})
    except Resized as resized:
        if min(resized.args[0]) == 0:
            return [0, 0]
        return smart_resize(*resized.args[0], factor=28, min_pixels=3136, max_pixels=12845056)
    except (ValueError, AssertionError):
        return [0, 0]
    raise RuntimeError("nothing was resized")


def main():
    vision_process.transforms.functional.resize = resize
    rng = random.Random(5)
    lines = []
    for number in range(700):
        total = rng.randint(2, 30 if number % 4 == 0 else 9000)
        num, den = rng.choice(RATES)
        fps = rng.choice([1.0, 2.0, 2.0, 4.0, 0.5, 0.3])
        least, most = rng.choice([(4, 768), (4, 768), (4, 64), (3, 7), (2, 256), (9, 33)])
        width, height = (rng.randint(1, rng.choice([60, 700, 4000])) for _ in range(2))
        bounds = rng.choice([{}, {}, {"max_pixels": 50000 + rng.randint(0, 60000), "min_pixels": 50000}, {"min_pixels": 3136},
                             {"max_pixels": 1500000}, {"min_pixels": 700000}, {"min_pixels": 3136, "max_pixels": 3200}])
        if "min_pixels" not in bounds and bounds.get("max_pixels", 602112) < 100352:
            continue
        told = {"fps": fps, "min_frames": least, "max_frames": most}
        try:
            count = vision_process.smart_nframes(told, total, num / den)
        except ValueError:
            count = 0
        chosen = np.linspace(0, total - 1, count).round().astype(np.int64)
        theirs = torch.linspace(0, total - 1, count).round().long().numpy()
        assert np.abs(chosen - theirs).max(initial=0) <= 1
        checksum = int(((np.arange(count) + 1) * chosen).sum())
        sides = frame_size(count, width, height, bounds) if count else [0, 0]
        lines.append(f"{total} {num} {den} {fps} {least} {most} {width} {height} {bounds.get('min_pixels', 0)} "
                     f"{bounds.get('max_pixels', 0)} {count} {checksum} {sides[1]} {sides[0]}\n")
    path = pathlib.Path(__file__).parent / "data/video/qwen_vl_utils.txt"
    path.write_text("".join(lines))


main()
