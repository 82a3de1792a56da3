"""Writes data/video/frames.txt and frames-internvl.txt: which frames the video processors of `transformers` choose.

Needs transformers (5.23.0) and torch; one line a video: rule, frames, rate, fps, bounds, then the count and the sum of
(i + 1) * number of the i-th chosen frame. Where torch.arange runs beyond the last frame, its index is taken back to it.
Of InternVL: frames, rate, fps or 0, num_frames or 0, initial_shift or -1 for true, then the same; 0 0 where it refuses.
"""

import pathlib
import random

import numpy as np
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

RATES = [(24, 1), (25, 1), (30, 1), (30000, 1001), (24000, 1001), (60, 1), (12, 1), (1, 1), (359, 12)]


def internvl():
    rng = random.Random(4)
    for number in range(400):
        total = rng.randint(1, 30 if number % 4 == 0 else 9000)
        num, den = rng.choice(RATES)
        fps, count = (rng.choice([1, 2, 0.5, 3.7, 30]), None) if number % 2 == 0 else (None, rng.choice([1, 8, 16, 33, 512]))
        shift = rng.choice([True, True, False, 0, 1, 2.5, rng.uniform(0, total)])
        metadata = VideoMetadata(total_num_frames=total, fps=num / den)
        try:
            indices = InternVLVideoProcessor().sample_frames(metadata, num_frames=count, fps=fps, initial_shift=shift)
        except (ValueError, ZeroDivisionError, RuntimeError):
            indices = []
        indices = np.minimum(np.asarray(indices), total - 1).astype(np.int64)
        checksum = int(((np.arange(len(indices)) + 1) * indices).sum())
        first = -1 if shift is True else float(shift)
        yield f"{total} {num} {den} {fps or 0} {count or 0} {first!r} {len(indices)} {checksum}\n"


def main():
    rng = random.Random(3)
    lines = []
    for number in range(400):
        total = rng.randint(2, 30 if number % 4 == 0 else 9000)
        num, den = rng.choice(RATES)
        fps = rng.choice([1.0, 2.0, 2.0, 4.0, 0.5])
        least, most = rng.choice([(4, 768), (4, 64), (2, 256)])
        for name, processor in (("qwen2_vl", Qwen2VLVideoProcessor), ("qwen3_vl", Qwen3VLVideoProcessor)):
            rule = processor(min_frames=least, max_frames=most, fps=fps, do_sample_frames=True)
            metadata = VideoMetadata(total_num_frames=total, fps=num / den)
            indices = np.minimum(np.asarray(rule.sample_frames(metadata, fps=fps)), total - 1).astype(np.int64)
            checksum = int(((np.arange(len(indices)) + 1) * indices).sum())
            lines.append(f"{name} {total} {num} {den} {fps} {least} {most} {len(indices)} {checksum}\n")
    folder = pathlib.Path(__file__).parent / "data/video"
    (folder / "frames.txt").write_text("".join(lines))
    (folder / "frames-internvl.txt").write_text("".join(internvl()))


main()
