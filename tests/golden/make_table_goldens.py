#!/usr/bin/env python3
"""Makes the Parquet tables of the tests: tests/golden/make_table_goldens.py (needs pyarrow; 26.0.1 made these).

`formats.parquet` has the samples of tests/dataset/formats_test.cc, as `datasets` stores lists of Image and Audio;
`columns.parquet` has every kind of column that is read, in small pages and groups of three rows. Each is written
twice: with snappy, and with zstd and a page index.
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent / "data" / "tables"
MEDIUM = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def medium(path, data):
    return {"bytes": data, "path": path}


def part(kind, text=None):
    return {"type": kind, "text": text}


def turn(role, *parts):
    return {"role": role, "content": list(parts)}


def formats():
    conversations = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]
    return pa.table({
        "system": pa.array([None, None, "Be brief.", None], pa.string()),
        "images": pa.array([[medium("coco/1.jpg", b"16x16")], [medium("coco/2.jpg", b"24x8")],
                            [medium("b/2.png", b"8x8"), medium("b/10.png", b"8x16")], None], pa.list_(MEDIUM)),
        "audio": pa.array([None, medium("a.wav", b"40x1"), None, None], MEDIUM),
        "conversations": pa.array([conversations, None, None, None]),
        "messages": pa.array([
            None,
            [turn("user", part("image"), part("text", "and"), part("audio")), turn("assistant", part("text", "yes"))],
            [turn("user", part("image"), part("text", " or "), part("image"), part("text", "?")),
             turn("assistant", part("text", "The first."))],
            [turn("user", part("text", "No picture.")), turn("assistant", part("text", "None."))]]),
    })


def columns():
    rows = range(7)
    return pa.table({
        "id": pa.array(rows),
        "image": pa.array([None if i == 2 else medium(None if i == 1 else f"a/b{i}.PNG", b"image%d" % i * (i + 1)) for i in rows], MEDIUM),
        "images": pa.array([None if i == 0 else [medium(f"{j}.jpg", b"i%d.%d" % (i, j)) for j in range(i - 1)] for i in rows],
                           pa.list_(MEDIUM)),
        "raw": pa.array([None if i % 2 else b"raw%d" % i for i in rows], pa.binary()),
        "messages": pa.array([[{"role": "user", "content": f'hi "{i}" é\n'}, {"role": "assistant", "content": None if i == 3 else "yo"}]
                              for i in rows]),
        "score": pa.array([0.5, float("nan"), float("-inf"), 1, 2, 3, None]),
    })


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, table in (("formats", formats()), ("columns", columns())):
        pq.write_table(table, OUT / f"{name}.parquet", row_group_size=3, compression="snappy", data_page_size=16,
                       write_batch_size=1, store_schema=False)
        pq.write_table(table, OUT / f"{name}-zstd.parquet", row_group_size=3, compression="zstd", write_page_index=True,
                       data_page_version="2.0", store_schema=False)


if __name__ == "__main__":
    main()
