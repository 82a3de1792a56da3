"""Prints the golden values of tests/dataset/sampler_test.cc from the documented rule alone (docs/datasets.md).

Run: python3 tests/dataset/order_golden.py
"""
from math import isqrt

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = 12


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def mix_key(*values):
    mixed = GOLDEN
    for value in values:
        mixed = mix((mixed ^ value) + GOLDEN & MASK)
    return mixed


def permuted(key, n, i):
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [mix(key + (r + 1) * GOLDEN & MASK) for r in range(ROUNDS)]
    while True:
        left, right = divmod(i, b)
        for r in range(0, ROUNDS, 2):
            left = (left + (mix(right ^ keys[r]) * a >> 64)) % a
            right = (right + (mix(left ^ keys[r + 1]) * b >> 64)) % b
        i = left * b + right
        if i < n:
            return i


def blocked(seed, dataset, epoch, n, block, window):
    """The whole epoch, by lists instead of arithmetic."""
    key = mix_key(seed, dataset, epoch)
    num_blocks = -(-n // block)
    blocks = [permuted(mix_key(key, 1), num_blocks, i) for i in range(num_blocks)]
    out = []
    for w in range(0, num_blocks, window):
        rows = [row for b in blocks[w : w + window] for row in range(b * block, min(n, (b + 1) * block))]
        out += [rows[permuted(mix_key(key, 2, w // window), len(rows), i)] for i in range(len(rows))]
    return out


if __name__ == "__main__":
    print("MixKey({1, 2, 3}):", mix_key(1, 2, 3))
    for n in (10, 100000000):
        print(f"Permutation(7, {n}):", [permuted(7, n, i) for i in range(8)])
    print("blocked:", blocked(7, 1, 2, 50, 4, 3))
