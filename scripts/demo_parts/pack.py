"""Packs media into tar shards of the WebDataset kind and writes the job of the demo.

    pack.py OUT [FOLDER]

FOLDER may hold any images, audio, video and text files, in folders of its own, too; files that cannot be used are
counted and named. Without it the media come from Debian packages: photographs of mate-backgrounds, recorded speech of
asterisk-core-sounds-en-wav, text of the common licences, and video that ffmpeg draws. Image captions and transcripts
are the file names, which is nearly what they show and say.
"""

import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What the decoders read; docs/datasets.md has the table. Texts are cut into paragraphs.
KINDS = {
    "photographs": {".jpg", ".jpeg", ".png", ".webp"},
    "recordings": {".wav", ".flac", ".mp3", ".m4a", ".aac", ".ac3", ".ogg", ".oga", ".opus", ".mka"},
    "videos": {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm"},
    "texts": {".txt", ".md"},
}
SEED = 11
SAMPLES = 480
SAMPLES_PER_SHARD = 80
MAX_MEDIA_BYTES = 32 << 20


class Found:
    """The files below a folder by kind, sorted; and for every reason the files that no sample is made of."""

    def __init__(self, folder):
        self.kinds = {kind: [] for kind in KINDS}
        self.ignored = {}
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                self._take(path)

    def _take(self, path):
        suffix = path.suffix.lower()
        kind = next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), None)
        if kind is None:
            self._ignore(f"of a kind that is not decoded ({suffix or 'no suffix'})", path)
        elif not os.access(path, os.R_OK):
            self._ignore("not readable", path)
        elif path.stat().st_size > MAX_MEDIA_BYTES:
            self._ignore(f"larger than {MAX_MEDIA_BYTES >> 20} MiB", path)
        else:
            self.kinds[kind].append(path)

    def _ignore(self, reason, path):
        self.ignored.setdefault(reason, []).append(path)

    def report(self, longest=5):
        """A line for each reason: how many, and the first names."""
        for reason, paths in sorted(self.ignored.items()):
            names = ", ".join(path.name for path in paths[:longest]) + (", ..." if len(paths) > longest else "")
            print(f"ignored {len(paths)} files {reason}: {names}")


def caption(path):
    words = re.sub(r"[^A-Za-z0-9]+", " ", re.sub(r"([a-z])([A-Z])", r"\1 \2", path.stem)).strip()
    return words.lower() or "a file without a name"


def draw_videos(out):
    """Three short clips with a moving test picture: [paths]."""
    paths = []
    for number, (source, seconds) in enumerate([("testsrc2", 2), ("mandelbrot", 3), ("testsrc", 4)]):
        path = out / f"{source}.mp4"
        if not path.exists():
            subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", f"{source}=size=320x240:rate=12",
                            "-t", str(seconds), "-c:v", "mpeg4", "-q:v", "4", "-pix_fmt", "yuv420p", str(path)],
                           check=True)
        paths.append(path)
    return paths


def web_size(path, side):
    """The photograph at the size in which the web would serve it; real pipelines see many sizes."""
    picture = Image.open(path).convert("RGB")
    picture.thumbnail((side, side))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=88)
    return out.getvalue()


class Deck:
    """Deals the files of a kind out in a random order, each before any comes again."""

    def __init__(self, paths):
        self.paths = list(paths)
        self.rest = []

    def __len__(self):
        return len(self.paths)

    def draw(self, rng):
        if not self.rest:
            self.rest = rng.sample(self.paths, len(self.paths))
        return self.rest.pop()


class Media:
    def __init__(self, out, folder):
        self.resize = not folder
        if folder:
            found = Found(folder)
            found.report()
            if not any(found.kinds.values()):
                sys.exit(f"{folder}: no file of it can be used; wanted are "
                         + ", ".join(sorted(suffix for suffixes in KINDS.values() for suffix in suffixes)))
            images, audio, video, texts = found.kinds.values()
        else:
            images = Found("/usr/share/backgrounds/mate").kinds["photographs"]
            audio = Found("/usr/share/asterisk/sounds/en_US_f_Allison").kinds["recordings"]
            video = draw_videos(out)
            texts = sorted(path for path in pathlib.Path("/usr/share/common-licenses").iterdir() if path.is_file())
        self.images, self.audio, self.video = Deck(images), Deck(audio), Deck(video)
        paragraphs = []
        for text in texts:
            if text.stat().st_size < 1 << 20:
                paragraphs += [" ".join(p.split()) for p in text.read_text("utf-8", "replace").split("\n\n")]
        self.paragraphs = [p for p in paragraphs if len(p) > 80] or ["No text was given, so this is all there is."]
        self.cache = {}

    def image(self, rng):
        path = self.images.draw(rng)
        if not self.resize:
            return path.suffix.lower().lstrip("."), path.read_bytes(), caption(path)
        key = (path, rng.choice([256, 384, 512, 768, 1024, 1600]))
        if key not in self.cache:
            self.cache[key] = web_size(*key)
        return "jpg", self.cache[key], caption(path)

    def clip(self, rng):
        path = self.audio.draw(rng)
        return path.suffix.lower().lstrip("."), path.read_bytes(), caption(path)

    def film(self, rng):
        path = self.video.draw(rng)
        return path.suffix.lower().lstrip("."), path.read_bytes(), caption(path)

    def text(self, rng, longest=1200):
        return rng.choice(self.paragraphs)[:longest]


def captioned(media, rng):
    suffix, data, text = media.image(rng)
    return [(suffix, data), ("txt", text.encode())]


def document(media, rng):
    """A document with several images between paragraphs, as chat messages."""
    parts, members = [], []
    for number in range(rng.randint(2, 4)):
        suffix, data, _ = media.image(rng)
        members.append((f"{number}.{suffix}", data))
        parts += [{"type": "text", "text": media.text(rng, 300)}, {"type": "image", "image": f"{number}.{suffix}"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": media.text(rng)}]
    return members + [("json", json.dumps({"messages": messages}).encode())]


def transcription(media, rng):
    suffix, data, text = media.clip(rng)
    return [(suffix, data), ("txt", text.encode())]


def spoken_question(media, rng):
    suffix, data, _ = media.clip(rng)
    turns = [{"from": "human", "value": "<audio>\nWhat follows?"}, {"from": "gpt", "value": media.text(rng)}]
    return [(suffix, data), ("json", json.dumps({"conversations": turns}).encode())]


def film(media, rng):
    suffix, data, text = media.film(rng)
    return [(suffix, data), ("txt", text.encode())]


def text_only(media, rng):
    return [("txt", (media.text(rng) + " " + media.text(rng)).encode())]


def kinds_of(media):
    kinds = [(text_only, 14)]
    if media.images:
        kinds += [(captioned, 30), (document, 12)]
    if media.audio:
        kinds += [(transcription, 24), (spoken_question, 14)]
    if media.video:
        # Where a folder has many, more: each file of a small one is to be seen.
        kinds += [(film, max(6, min(24, len(media.video) * 2 // 5)))]
    return kinds


def pack(out, folder):
    media = Media(out, folder)
    rng = random.Random(SEED)
    kinds, weights = zip(*kinds_of(media))
    shards = out / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    for number in range(SAMPLES // SAMPLES_PER_SHARD):
        with tarfile.open(shards / f"mixed-{number:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(SAMPLES_PER_SHARD):
                for suffix, data in rng.choices(kinds, weights)[0](media, rng):
                    info = tarfile.TarInfo(f"{number:03d}-{i:03d}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    print(f"packed {SAMPLES} samples: {len(media.images)} photographs, {len(media.audio)} recordings, "
          f"{len(media.video)} videos, {len(media.paragraphs)} paragraphs")


def write_job(out):
    (out / "job.yaml").write_text(f"""\
name: demo
seed: 7
index: index
datasets:
  - {{name: mixed, shards: ["shards/mixed-{{000..{SAMPLES // SAMPLES_PER_SHARD - 1:03d}}}.tar"]}}
processor:
  vision: {ROOT}/tests/golden/processor/qwen2-vl
  audio: {ROOT}/tests/golden/processor/qwen2-audio
  tokenizer: {ROOT}/tests/golden/tokenizer
  max_pixels: 200704
  video_max_pixels: 100352
batch: {{samples: 32}}
topology: {{ranks_per_node: 2}}
microbatch: {{capacity_tokens: 8192}}
phases:
  - {{name: llm, ranks: 0-3}}
  - {{name: vision, ranks: 0-3}}
  - {{name: audio, ranks: 0-3}}
""")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    pack(out, sys.argv[2] if len(sys.argv) > 2 else None)
    write_job(out)


if __name__ == "__main__":
    main()
