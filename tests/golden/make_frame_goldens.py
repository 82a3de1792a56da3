"""Writes data/video/frames.txt: which frames the video processors of `transformers` choose.

Needs transformers (5.23.0) and torch; one line a video: rule, frames, rate, fps, bounds, then the count and the sum of
(i + 1) * number of the i-th chosen frame. Where torch.arange runs beyond the last frame, its index is taken back to it.
"""

import pathlib
import random

import numpy as np
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

RATES = [(24, 1), (25, 1), (30, 1), (30000, 1001), (24000, 1001), (60, 1), (12, 1), (1, 1), (359, 12)]


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
    path = pathlib.Path(__file__).parent / "data/video/frames.txt"
    path.write_text("".join(lines))


main()
