#!/usr/bin/env python3
"""Tokenising against the Rust crate called from Rust, and against the Python package: a table of ratios.

    ninja -C build/release bench_text
    VENV/bin/python bench/preprocess/text.py build/release TOKENIZER_FOLDER     (VENV: pip install tokenizers==0.23.2)

Texts of 64 bytes and of 4 KB are cut from the project's own documents. All run with one set of texts, in turns; a ratio
of texts a second of processor time is the median of the turns' ratios. Without the Python package that column is left
out. TURNS and SECONDS (of a turn) are read from the environment.
"""
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

try:
    import tokenizers
except ImportError:
    tokenizers = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
TURNS = int(os.environ.get("TURNS", "5"))
SECONDS = float(os.environ.get("SECONDS", "1"))


def texts_of(length, count):
    document = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md"))).encode()
    texts = []
    for i in range(count):
        begin = i * 997 % (len(document) - length)
        texts.append(document[begin:begin + length].decode(errors="ignore"))
    return texts


def build_native():
    """As cargo builds it by default, where the library itself is built, so that crates are fetched once."""
    target = ROOT / "build/cargo"
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    ROOT / "bench/preprocess/text-native/Cargo.toml", "--target-dir", target], check=True)
    return target / "release/text-native"


def measure(command, threads):
    """Texts a second of processor time and of the clock, and tokens a text."""
    out = subprocess.run([str(word) for word in [*command, SECONDS, threads]], check=True, capture_output=True, text=True)
    texts, ids, processor, elapsed = out.stdout.split()
    return int(texts) / float(processor), int(texts) / float(elapsed), int(ids) / int(texts)


def load_python(folder):
    if tokenizers is None:
        return None
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer


def measure_python(tokenizer, texts):
    begin, done = time.process_time(), 0
    while time.process_time() - begin < SECONDS:
        for text in texts:
            tokenizer.encode(text, add_special_tokens=False).ids
        done += len(texts)
    return done / (time.process_time() - begin)


def main():
    build, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    native = build_native()
    python = load_python(folder)
    ours = next(path for path in (build / "bench/preprocess/bench_text", build / "bench/bench_text") if path.exists())
    print("text      threads  texts/s  MB/s   over Rust  over Python  over one thread")
    for length, count in ((64, 2000), (4096, 100)):
        texts = texts_of(length, count)
        with tempfile.NamedTemporaryFile() as file:
            for text in texts:
                file.write(struct.pack("<I", len(text.encode())) + text.encode())
            file.flush()
            alone = None
            for threads in (1, 2):
                rates, clocks, over_rust, over_python = [], [], [], []
                for _ in range(TURNS):
                    mine, clock, ids = measure([ours, folder, file.name], threads)
                    rust, _, rust_ids = measure([native, folder / "tokenizer.json", file.name], threads)
                    assert ids == rust_ids, "another number of tokens than the crate's"
                    rates.append(mine)
                    clocks.append(clock)
                    over_rust.append(mine / rust)
                    if python is not None and threads == 1:
                        over_python.append(mine / measure_python(python, texts))
                rate, clock = statistics.median(rates), statistics.median(clocks)
                alone = alone or clock
                against = f"{statistics.median(over_python):.2f}" if over_python else "-"
                print(f"{length:5} B  {threads:5}  {rate:10.0f}  {rate * length / 1e6:5.2f}  "
                      f"{statistics.median(over_rust):8.3f}  {against:>8}  {clock / alone:10.2f}")


if __name__ == "__main__":
    main()
