"""Writes a Hugging Face dataset with the columns image, question and answer as tar shards.

    pack.py ORG/NAME FOLDER

The image files stay as they are; nothing is decoded or compressed again.
"""
import io
import json
import os
import sys
import tarfile

from datasets import Image, load_dataset

SAMPLES_PER_SHARD = 1000
SUFFIX = {b"\xff\xd8": "jpg", b"\x89P": "png", b"RI": "webp"}


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def main(dataset, folder):
    rows = load_dataset(dataset, split="train").cast_column("image", Image(decode=False))
    os.makedirs(folder, exist_ok=True)
    tar = None
    for number, row in enumerate(rows):
        if number % SAMPLES_PER_SHARD == 0:
            if tar:
                tar.close()
            tar = tarfile.open(f"{folder}/train-{number // SAMPLES_PER_SHARD:05d}.tar", "w", format=tarfile.USTAR_FORMAT)
        image = row["image"]["bytes"] or open(row["image"]["path"], "rb").read()
        chat = {"messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row["question"]}]},
            {"role": "assistant", "content": row["answer"]}]}
        add(tar, f"{number:08d}.{SUFFIX[image[:2]]}", image)
        add(tar, f"{number:08d}.json", json.dumps(chat, ensure_ascii=False).encode())
    tar.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
