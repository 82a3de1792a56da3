#!/usr/bin/env python3
"""Draws a trace of sequences of one length whose images are skewed: python3 bench/fixed_trace.py SEED ROWS > fixed.csv

One row per sample: llm is always 8,192 tokens, as DistTrain fills its sequences (2.3), and vision lists the patches of
the images in it, four to a token. Made up: most samples have few patches and some have many.
"""
import random
import sys

seed, rows = int(sys.argv[1]), int(sys.argv[2])
r = random.Random(seed)
print("llm,vision")
for _ in range(rows):
    left, images = int(min(28672, max(256, r.lognormvariate(8.6, 1.1)))), []
    while left >= 256:
        images.append(int(min(left, 8192, max(256, r.lognormvariate(7.5, 0.7)))))
        left -= images[-1]
    print(f"8192,{' '.join(map(str, images))}")
