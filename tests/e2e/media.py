"""Makes small real media and packs them into tar shards: the data that the end-to-end tests stream.

Everything is drawn from a seeded generator, so that two runs write the same bytes.
"""

import io
import json
import math
import random
import struct
import subprocess
import tarfile
import wave

import numpy as np
from PIL import Image


def photo(rng, width, height):
    """A smooth random picture with some texture: uint8 [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    picture = np.zeros((height, width, 3))
    for channel in range(3):
        for _ in range(4):
            fx, fy, phase = rng.uniform(0, 0.15), rng.uniform(0, 0.15), rng.uniform(0, 6.28)
            picture[:, :, channel] += np.sin(fx * x + fy * y + phase)
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 0.3, picture.shape)
    picture = (picture + noise + 4) / 8
    return (np.clip(picture, 0, 1) * 255).astype(np.uint8)


def image_bytes(rng, form, width, height):
    picture = Image.fromarray(photo(rng, width, height))
    out = io.BytesIO()
    if form == "jpg":
        picture.save(out, "JPEG", quality=rng.choice([75, 88, 95]), subsampling=rng.choice([0, 1, 2]),
                     progressive=rng.random() < 0.3)
    elif form == "png":
        picture.save(out, "PNG")
    else:
        picture.save(out, "WEBP", quality=85, lossless=rng.random() < 0.3)
    return out.getvalue()


def wav_bytes(rng, seconds, rate=8000, channels=1):
    t = np.arange(int(seconds * rate)) / rate
    tone = sum(np.sin(2 * math.pi * rng.uniform(80, 2000) * t + rng.uniform(0, 6)) for _ in range(3)) / 3
    samples = (tone * 20000).astype("<i2")
    if channels == 2:
        samples = np.stack([samples, samples[::-1]], 1).reshape(-1)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def video_bytes(folder, seconds=2, size="128x96", rate=12, codec="mpeg4"):
    """An MP4 made by ffmpeg, with a moving test picture."""
    path = folder / f"video-{seconds}-{size}-{rate}-{codec}.mp4"
    if not path.exists():
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i",
                        f"testsrc2=duration={seconds}:size={size}:rate={rate}", "-c:v", codec, "-g", "12",
                        "-pix_fmt", "yuv420p", "-threads", "1", "-fflags", "+bitexact", "-flags:v", "+bitexact",
                        str(path)], check=True)
    return path.read_bytes()


WORDS = ("the quick photograph of a river meets an old speaking clock under green trees while somebody reads "
         "the weather report für Köln, 東京 and São Paulo 🚀 out loud").split()


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


class Shard:
    """Writes members of samples into a tar file."""

    def __init__(self, path):
        self.tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)

    def add(self, name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self.tar.addfile(info, io.BytesIO(data))

    def close(self):
        self.tar.close()


def write_mixed_sample(rng, shard, key, folder):
    """One sample of a random kind; every form that the format knows is drawn."""
    kind = rng.choice(["image", "image", "audio", "audio", "text", "messages", "llava", "video"])
    if kind == "image":
        form = rng.choice(["jpg", "png", "webp"])
        shard.add(f"{key}.{form}", image_bytes(rng, form, rng.randint(40, 300), rng.randint(40, 300)))
        shard.add(f"{key}.txt", words(rng, 3, 30).encode())
    elif kind == "audio":
        shard.add(f"{key}.wav", wav_bytes(rng, rng.uniform(0.3, 4), rng.choice([8000, 16000, 22050, 44100]),
                                          rng.choice([1, 2])))
        shard.add(f"{key}.txt", words(rng, 3, 30).encode())
    elif kind == "video":
        shard.add(f"{key}.mp4", video_bytes(folder, rng.choice([1, 2, 3])))
        shard.add(f"{key}.txt", words(rng, 3, 12).encode())
    elif kind == "text":
        shard.add(f"{key}.txt", words(rng, 5, 200).encode())
    elif kind == "messages":
        parts, members = [], []
        for i in range(rng.randint(1, 3)):
            parts.append({"type": "text", "text": words(rng, 2, 10)})
            if rng.random() < 0.6:
                members.append((f"{i}.jpg", image_bytes(rng, "jpg", rng.randint(30, 200), rng.randint(30, 200))))
                parts.append({"type": "image", "image": f"{i}.jpg"})
            else:
                members.append((f"{i}.wav", wav_bytes(rng, rng.uniform(0.2, 2))))
                parts.append({"type": "audio", "audio": f"{i}.wav"})
        messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": words(rng, 2, 40)}]
        for suffix, data in members:
            shard.add(f"{key}.{suffix}", data)
        shard.add(f"{key}.json", json.dumps({"messages": messages}, ensure_ascii=False).encode())
    else:
        shard.add(f"{key}.jpg", image_bytes(rng, "jpg", rng.randint(30, 260), rng.randint(30, 260)))
        turns = [{"from": "human", "value": "<image>\n" + words(rng, 2, 8)},
                 {"from": "gpt", "value": words(rng, 2, 30)},
                 {"from": "human", "value": words(rng, 2, 8)}, {"from": "gpt", "value": words(rng, 2, 30)}]
        shard.add(f"{key}.json", json.dumps({"image": f"{key}.jpg", "conversations": turns}).encode())


def write_mixed_shards(folder, name, num_shards, samples_per_shard, seed):
    """Writes folder/NAME-000.tar ...; returns the number of samples."""
    for number in range(num_shards):
        rng = random.Random(f"{seed}/{name}/{number}")
        shard = Shard(folder / f"{name}-{number:03d}.tar")
        for i in range(samples_per_shard):
            write_mixed_sample(rng, shard, f"{number:03d}/{i:05d}", folder)
        shard.close()
    return num_shards * samples_per_shard
