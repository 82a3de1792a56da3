#!/usr/bin/env python3
"""Draws a trace of video samples with a long tail: python3 bench/video_trace.py SEED ROWS > videos.csv

One row per sample: vision lists the patches of its one video, llm is the length of the sequence. Made up after what
DHP (4.1) says of MSRVTT, InternVid and OpenVid: most videos are under 8 seconds, few exceed 64. Two frames a second
in pairs, 16 x 16 patches, four to a token, as Qwen3-VL has them.
"""
import random
import sys

seed, rows = int(sys.argv[1]), int(sys.argv[2])
r = random.Random(seed)
SIZES = ((512, 512), (640, 360), (848, 480), (1280, 720))
print("vision,llm")
for _ in range(rows):
    seconds = min(300.0, max(1.0, r.lognormvariate(1.6, 0.95)))
    width, height = r.choice(SIZES)
    patches = 4 * max(1, round(seconds)) * max(1, round(width / 32)) * max(1, round(height / 32))
    text = int(min(2000, max(8, r.lognormvariate(4.2, 0.8))))
    print(f"{patches},{text + patches // 4}")
