#!/usr/bin/env python3
"""Tokenising against the Rust crate called from Rust, and against the Python package: a table of ratios.

    ninja -C build/release bench_text
    VENV/bin/python bench/preprocess/text.py build/release TOKENIZER_FOLDER [KIND...]

VENV: pip install tokenizers==0.23.2; without the Python package that column is left out. KIND: documents (the default),
code, python, chinese, cyrillic, arabic, devanagari, hangul, accents (Latin letters with them, composed or not), emoji,
scripts (words of every one of Unicode), json, markup, base64, digits, spaces, letters, marks (look-alikes of special
tokens), or the name of a file; texts of 64 bytes and of 4 KB of each. All run with one set of texts, in turns; a
ratio of texts a second of processor time is the median of the turns' ratios, and so is what two threads do by the clock
over what one does. TURNS, SECONDS (of a turn) and THREADS (at most) are read from the environment.
"""
import base64
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

from native import ROOT, built

try:
    import tokenizers
except ImportError:
    tokenizers = None

TURNS = int(os.environ.get("TURNS", "5"))
SECONDS = float(os.environ.get("SECONDS", "1"))


THREADS = int(os.environ.get("THREADS", "2"))


def source(pattern):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))


def drawn(characters):
    """A long text of these, each as likely."""
    generator = random.Random(5)
    return "".join(generator.choice(characters) for _ in range(100000))


def words(characters, seed=7):
    """Words of one to nine of these."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices(characters, k=generator.randrange(1, 10))) for _ in range(30000))


def letters(first, last):
    return [chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c)) in ("Lu", "Ll", "Lo", "Mn", "Mc")]


def records():
    generator = random.Random(9)
    return json.dumps([{"id": i, "score": generator.random(), "path": f"train/{i:08d}.jpg", "ok": i % 3 == 0,
                        "caption": generator.choice(source("docs/*.md").splitlines()), "box": [i, 2 * i, None]}
                       for i in range(2000)])


KINDS = {
    "documents": lambda: source("docs/**/*.md"),
    "code": lambda: source("core/*.cc"),
    "chinese": lambda: drawn([chr(c) for c in range(0x4e00, 0x5600)] + ["，", "。"] * 100),
    "emoji": lambda: drawn(["😀", "👍🏽", "👩\u200d👩\u200d👧", "🇩🇪", "❤️", "1️⃣", " "]),
    "spaces": lambda: " " * 200000,
    "letters": lambda: "a" * 200000,
    "json": records,
    "markup": lambda: "".join(f'<li class="c{i % 7}"><a href="/p/{i}?q=%20{i * i}">{line}</a>&nbsp;</li>\n'
                              for i, line in enumerate(source("docs/*.md").splitlines())),
    "base64": lambda: base64.b64encode(random.Random(3).randbytes(150000)).decode(),
    "digits": lambda: drawn(list("0123456789") * 3 + [" ", ".", "\n"]),
    "cyrillic": lambda: words(letters(0x430, 0x44f)),
    "arabic": lambda: words(letters(0x627, 0x64a)),
    "devanagari": lambda: words(letters(0x904, 0x94d)),
    "hangul": lambda: words(letters(0xac00, 0xb000)),
    "accents": lambda: words(list("aeiouéèüöçñ") + ["e\u0301", "o\u0308", "n\u0303", "a\u0323\u0302"]),
    "python": lambda: source("tests/**/*.py"),
    "scripts": lambda: words([chr(c) for c in range(0x20000) if unicodedata.category(chr(c))[0] in "LMNPS"]),
    "marks": lambda: drawn(["<|im_start|>", "<|im_end|>", "<|", "|>", "user\n", "<think>", "a cat ", "<|image_pad|>"]),
}


def texts_of(kind, length, count):
    document = KINDS[kind]().encode() if kind in KINDS else pathlib.Path(kind).read_bytes()
    texts = []
    for i in range(count):
        begin = i * 997 % (len(document) - length)
        texts.append(document[begin:begin + length].decode(errors="ignore"))
    return texts


def measure(command, threads):
    """Texts a second of processor time and of the clock, and tokens a text."""
    words = [str(word) for word in (*command, SECONDS, threads)]
    out = subprocess.run(words, check=True, capture_output=True, text=True)
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
    native = built("text-native")
    python = load_python(folder)
    ours = next(path for path in (build / "bench/preprocess/bench_text", build / "bench/bench_text") if path.exists())
    print("text             threads   texts/s   MB/s  over Rust  over Python  over one thread  Rust's")
    for kind in sys.argv[3:] or ["documents"]:
        for length, count in ((64, 2000), (4096, 100)):
            compare(ours, native, python, folder, kind, length, texts_of(kind, length, count))


def compare(ours, native, python, folder, kind, length, texts):
    with tempfile.NamedTemporaryFile() as file:
        for text in texts:
            file.write(struct.pack("<I", len(text.encode())) + text.encode())
        file.flush()
        alone = {}
        for threads in range(1, THREADS + 1):
            rates, over_rust, over_python, clocks = [], [], [], {"ours": [], "rust": []}
            for _ in range(TURNS):
                mine, clock, ids = measure([ours, folder, file.name], threads)
                rust, rust_clock, rust_ids = measure([native, folder / "tokenizer.json", file.name], threads)
                assert ids == rust_ids, "another number of tokens than the crate's"
                rates.append(mine)
                clocks["ours"].append(clock)
                clocks["rust"].append(rust_clock)
                over_rust.append(mine / rust)
                if python is not None and threads == 1:
                    over_python.append(mine / measure_python(python, texts))
            clock = {whose: statistics.median(values) for whose, values in clocks.items()}
            alone = alone or clock
            rate = statistics.median(rates)
            against = f"{statistics.median(over_python):.2f}" if over_python else "-"
            print(f"{pathlib.Path(kind).name[:10]:10} {length:4} {threads:7}  {rate:8.0f}  {rate * length / 1e6:5.2f}  "
                  f"{statistics.median(over_rust):9.3f}  {against:>11}  {clock['ours'] / alone['ours']:15.2f}  "
                  f"{clock['rust'] / alone['rust']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
