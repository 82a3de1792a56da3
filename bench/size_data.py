"""Writes samples of several sizes and a job for them, to be measured by `evenkeel size`.

    bench/size_data.py FOLDER [samples of each kind]
    evenkeel index --job FOLDER/job.yaml
    evenkeel size --job FOLDER/job.yaml --step-seconds 2 --samples 48

Pictures are JPEGs of made-up scenes with noise, clips are WAV files, videos are MPEG-4 of ffmpeg's test source. The
processors are those of Qwen2-VL and Qwen2-Audio, with their own bounds on pixels.
"""

import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import media  # noqa: E402

PICTURES = ((512, 384), (1024, 768), (2048, 1536))
CLIP_SECONDS = (10, 30)
VIDEOS = ((10, "640x360"), (10, "1280x720"))


def main(folder, count=6):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    shard = media.Shard(folder / "sizes.tar")
    kinds = [("jpg", lambda w=w, h=h: media.image_bytes(rng, "jpg", w, h)) for w, h in PICTURES]
    kinds += [("wav", lambda s=s: media.wav_bytes(rng, s, rate=16000)) for s in CLIP_SECONDS]
    kinds += [("mp4", lambda s=s, size=size: media.video_bytes(folder, s, size, 24)) for s, size in VIDEOS]
    for number, (suffix, make) in enumerate(kinds * int(count)):
        shard.add(f"{number:05d}.{suffix}", make())
        shard.add(f"{number:05d}.txt", media.words(rng, 50, 200).encode())
    shard.close()
    golden = ROOT / "tests" / "golden"
    (folder / "job.yaml").write_text(f"""index: index
datasets: [{{name: sizes, shards: [sizes.tar]}}]
processor:
  vision: {golden}/processor/qwen2-vl
  audio: {golden}/processor/qwen2-audio
  tokenizer: {golden}/tokenizer
  chat: chatml
batch: {{samples: {len(kinds) * int(count)}}}
order: {{shuffle: none}}
phases: [{{name: llm, ranks: 0}}, {{name: vision, ranks: 0}}, {{name: audio, ranks: 0}}]
""")


if __name__ == "__main__":
    main(*sys.argv[1:])
