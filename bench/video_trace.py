#!/usr/bin/env python3
"""Draws a trace of video samples with a long tail: python3 bench/video_trace.py SEED ROWS [SET] > videos.csv

One row per sample: vision lists the patches of its one video, llm is the length of the sequence. Made up after what
DHP says of its data: most videos are under 8 seconds, few exceed 64, and data sets differ (4.1); with a static degree
the longest need 8 ranks of OpenVid, 4 of MSRVTT (table 4). Frames in pairs, 16 x 16 patches, four to a token, as
Qwen3-VL has them.

SET is openvid (the default: short and long clips of any size, two frames a second), internvid (web video, longer on
average) or msrvtt (clips of 10 to 32 seconds, all of one size, eight frames a second).
"""
import random
import sys

SETS = {
    # mean and deviation of the logarithm of the seconds, least and most of them, pairs of frames a second, sizes
    "openvid": (1.6, 0.95, 1, 300, 1, ((512, 512), (640, 360), (848, 480), (1280, 720))),
    "internvid": (2.0, 0.8, 1, 120, 1, ((640, 360), (848, 480), (1280, 720))),
    "msrvtt": (2.7, 0.35, 10, 32, 4, ((640, 480),)),
}
seed, rows = int(sys.argv[1]), int(sys.argv[2])
mean, deviation, least, most, pairs, sizes = SETS[sys.argv[3] if len(sys.argv) > 3 else "openvid"]
r = random.Random(seed)
print("vision,llm")
for _ in range(rows):
    seconds = min(float(most), max(float(least), r.lognormvariate(mean, deviation)))
    width, height = r.choice(sizes)
    patches = 4 * max(1, round(pairs * seconds)) * max(1, round(width / 32)) * max(1, round(height / 32))
    text = int(min(2000, max(8, r.lognormvariate(4.2, 0.8))))
    print(f"{patches},{text + patches // 4}")
