"""Every format that can hold the same samples delivers the same bytes."""

import gzip
import importlib.util
import io
import json
import random
import shutil
import struct
import tarfile

import pytest

import harness
import media

SAMPLES = 24
STEPS = 4


class Sample:
    """A sample of a tar: its JSON or text, and its media by suffix."""

    def __init__(self, key):
        self.key, self.members = key, {}

    def row(self, name_of):
        """The sample as one JSON object whose media are `name_of(suffix)`."""
        files = [suffix for suffix in self.members if suffix not in ("json", "txt")]
        if "json" not in self.members:
            kinds = {"wav": "audio", "mp4": "video"}
            row = {"text": self.members["txt"].decode()}
            for suffix in files:
                row[kinds.get(suffix, "image")] = name_of(suffix)
            return row
        row = json.loads(self.members["json"])
        if "image" in row:
            row["image"] = name_of("jpg")
        for message in row.get("messages", []):
            for part in message["content"] if isinstance(message["content"], list) else []:
                if part["type"] != "text":
                    part[part["type"]] = name_of(part[part["type"]])
        return row


def samples_of(path):
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            key, _, suffix = member.name.partition(".")
            samples.setdefault(key, Sample(key)).members[suffix] = tar.extractfile(member).read()
    return list(samples.values())


def write_media(folder, samples):
    for sample in samples:
        for suffix, data in sample.members.items():
            if suffix in ("json", "txt"):
                continue
            file = folder / f"{sample.key}.{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def rows_of(samples):
    return [sample.row(lambda suffix, key=sample.key: f"{key}.{suffix}") for sample in samples]


def as_tar(folder, samples, tar):
    return f'shards: ["{tar}"]'


def as_gzipped_tar(folder, samples, tar):
    (folder / "data.tar.gz").write_bytes(gzip.compress(tar.read_bytes()))
    return 'shards: ["data.tar.gz"]'


def as_gzipped_members(folder, samples, tar):
    """Each of several gzip members with zeros between them, as Python's gzip reads it."""
    with tarfile.open(tar) as source, tarfile.open(folder / "data.tar", "w") as out:
        for member in source:
            data = source.extractfile(member).read()
            packed = gzip.compress(data[:50]) + bytes(9) + gzip.compress(data[50:]) + bytes(3)
            assert gzip.decompress(packed) == data
            packed_member = tarfile.TarInfo(member.name + ".gz")
            packed_member.size = len(packed)
            out.addfile(packed_member, io.BytesIO(packed))
    return 'shards: ["data.tar"]'


def as_gzipped_lines(folder, samples, tar):
    write_media(folder, samples)
    (folder / "data.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows_of(samples))).encode()))
    return 'shards: ["data.jsonl.gz"]'


def as_json_lines(folder, samples, tar):
    write_media(folder / "media", samples)
    lines = [json.dumps(row) for row in rows_of(samples)]
    (folder / "data.jsonl").write_text("\n".join(lines[:5] + [""] + lines[5:]))
    return 'shards: ["data.jsonl"], media: media'


def as_json_list(folder, samples, tar):
    write_media(folder, samples)
    (folder / "data.json").write_text(json.dumps(rows_of(samples), indent=2, ensure_ascii=False))
    return 'shards: ["data.json"]'


def as_parquet(folder, samples, tar):
    """Every row as its JSON is, with the media as lists of Image, Audio and Video."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    medium = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    part = pa.struct([("type", pa.string()), ("text", pa.string())])
    columns = {name: [] for name in ("text", "image", "audio", "video", "conversations", "messages")}
    for sample, row in zip(samples, rows_of(samples)):
        def stored(name, sample=sample):
            return {"bytes": sample.members[name.partition(".")[2]], "path": name}
        found = {name: [stored(row[name])] if name in row else [] for name in ("image", "audio", "video")}
        turns = None
        for message in row.get("messages", []):
            content = message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": message["content"]}]
            for piece in content:
                if piece["type"] != "text":
                    found[piece["type"]].append(stored(piece[piece["type"]]))
            turns = (turns or []) + [{"role": message["role"], "content": [{"type": p["type"], "text": p.get("text")} for p in content]}]
        columns["text"].append(row.get("text"))
        columns["conversations"].append(row.get("conversations"))
        columns["messages"].append(turns)
        for name, media_of_row in found.items():
            columns[name].append(media_of_row or None)
    types = {"text": pa.string(), "image": pa.list_(medium), "audio": pa.list_(medium), "video": pa.list_(medium),
             "conversations": pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())])),
             "messages": pa.list_(pa.struct([("role", pa.string()), ("content", pa.list_(part))]))}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    parquet.write_table(table, folder / "data.parquet", row_group_size=7)
    return 'shards: ["data.parquet"]'


def as_mds(folder, samples, tar, compression=None):
    """By the library itself, in several shards: pictures as they are in an array, other media as bytes."""
    streaming = pytest.importorskip("streaming")
    columns = {"text": "json", "image": "jpegarray", "audio": "bytes", "video": "bytes", "conversations": "json", "messages": "json",
               "number": "int"}
    with streaming.MDSWriter(out=str(folder / "mds"), columns=columns, size_limit=20_000, compression=compression) as writer:
        for number, (sample, row) in enumerate(zip(samples, rows_of(samples))):
            def stored(name, sample=sample):
                return sample.members[name.partition(".")[2]]
            found = {name: [stored(row[name])] if name in row else [] for name in ("image", "audio", "video")}
            for message in row.get("messages", []):
                for part in message["content"] if isinstance(message["content"], list) else []:
                    if part["type"] != "text":
                        found[part["type"]].append(stored(part.pop(part["type"])))
            assert len(found["audio"]) < 2 and len(found["video"]) < 2
            writer.write({"text": row.get("text"), "image": found["image"], "audio": b"".join(found["audio"]),
                          "video": b"".join(found["video"]), "conversations": row.get("conversations"),
                          "messages": row.get("messages"), "number": number})
    assert len(list((folder / "mds").glob("*.mds*"))) > 3
    return 'shards: ["mds/index.json"]'


def as_mds_by_zstd(folder, samples, tar):
    return as_mds(folder, samples, tar, "zstd")


def as_mds_by_gzip(folder, samples, tar):
    return as_mds(folder, samples, tar, "gz:3")


def write_megatron(path, documents, code=4):
    """X.bin and X.idx as Megatron-LM's IndexedDatasetBuilder writes them; a document is a list of sequences of ids."""
    letter = {1: "B", 4: "i", 5: "q", 8: "H"}[code]
    sequences = [sequence for document in documents for sequence in document]
    ends = [0]
    for document in documents:
        ends.append(ends[-1] + len(document))
    pointers = [0]
    for sequence in sequences:
        pointers.append(pointers[-1] + struct.calcsize(f"<{letter}") * len(sequence))
    path.with_suffix(".bin").write_bytes(b"".join(struct.pack(f"<{len(sequence)}{letter}", *sequence) for sequence in sequences))
    path.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sequences), len(ends)) +
        struct.pack(f"<{len(sequences)}i", *map(len, sequences)) + struct.pack(f"<{len(sequences)}q", *pointers[:-1]) +
        struct.pack(f"<{len(ends)}q", *ends))


def texts_with_tokens():
    """Texts, and their ids by the Python package `tokenizers`, each with the end of a text."""
    tokens = json.loads((harness.GOLDEN / "text" / "tokens.json").read_text())
    cases = [case for case in tokens["cases"] if case.get("text") and case["ids"] and case.get("untrusted", case["ids"]) == case["ids"]]
    end = 768  # <|endoftext|> of this tokenizer
    return [case["text"] for case in cases], [case["ids"] + [end] for case in cases]


def write_job(folder, dataset, extra=""):
    job = harness.write_job(folder / "job.yaml", [("data", "x", 1)], ranks=2, batch="{samples: 6}", extra=extra)
    line = next(line for line in job.read_text().splitlines() if "name: data" in line)
    job.write_text(job.read_text().replace(line, f"  - {{name: data, {dataset}}}"))
    return job


def delivered(folder, dataset):
    """The digests of the first steps, and what `index` said."""
    job = write_job(folder, dataset)
    index = json.loads(harness.run("index", "--job", job, "--verify", "--json").stdout)
    with harness.Fleet(job, 1) as fleet:
        return harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", STEPS).steps, index


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tar")
    media.write_mixed_shards(folder, "data", 1, SAMPLES, seed=5)
    tar = folder / "data-000.tar"
    return tar, samples_of(tar), delivered(folder, as_tar(folder, [], tar))


@pytest.mark.parametrize("write", [as_json_lines, as_json_list, as_parquet, as_mds, as_gzipped_tar, as_gzipped_members, as_gzipped_lines,
                                   as_mds_by_zstd, as_mds_by_gzip])
def test_every_format_delivers_the_same_bytes(tmp_path, made, write):
    tar, samples, (expected, index) = made
    assert index["samples"] == SAMPLES
    steps, index = delivered(tmp_path, write(tmp_path, samples, tar))
    assert index["samples"] == SAMPLES and index["excluded"] == {}
    assert steps == expected


@pytest.mark.parametrize("code", [4, 5, 8])
def test_tokens_of_megatron_deliver_the_bytes_of_their_texts(tmp_path, code):
    texts, ids = texts_with_tokens()
    assert len(texts) > 10
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    write_megatron(tmp_path / "tokens", [[document[:2], document[2:]] if i % 3 == 0 else [document] for i, document in enumerate(ids)],
                   code)
    expected, index = delivered(tmp_path, 'shards: ["texts.jsonl"]')
    assert index["samples"] == len(texts) and index["excluded"] == {}
    steps, index = delivered(tmp_path, 'shards: ["tokens.bin"]')
    assert index["samples"] == len(texts) and index["excluded"] == {}
    assert index["llm_tokens"] == sum(map(len, ids)) and steps == expected


def test_tokens_that_cannot_be_used_are_named(tmp_path):
    write_megatron(tmp_path / "tokens", [[[1, 2, 3]]] * 20 + [[[1, -2]], [[1, 1000]], [[1, 774]], [[]]])
    job = write_job(tmp_path, 'shards: ["tokens.bin"]')
    index = json.loads(harness.run("index", "--job", job, "--json", "--max-excluded", "50%").stdout)
    assert index["samples"] == 20
    assert index["excluded"] == {"bad tokens": 1, "text refused by the processor": 2, "no text": 1}
    refused = harness.run("index", "--job", job, "--max-excluded", "1%", check=False)
    assert refused.returncode == 5 and "tokens.bin/20" in refused.stderr + refused.stdout
    idx = (tmp_path / "tokens.idx").read_bytes()
    (tmp_path / "tokens.idx").write_bytes(idx[:-1])
    cut = harness.run("index", "--job", job, check=False)
    assert cut.returncode == 5 and "its .idx: its lists need" in cut.stderr + cut.stdout
    (tmp_path / "tokens.idx").write_bytes(idx[:17] + b"\7" + idx[18:])
    floats = harness.run("index", "--job", job, check=False)
    assert floats.returncode != 0 and "tokens.idx: values of type float32" in floats.stderr
    (tmp_path / "tokens.idx").unlink()
    missing = harness.run("index", "--job", job, check=False)
    assert missing.returncode != 0 and "tokens.idx: no such file" in missing.stderr
    for wrong, what in (("tokens.idx", ""), ("tokens", ", format: megatron"), ("tokens.bin.gz", "")):
        refused = harness.run("index", "--job", write_job(tmp_path, f'shards: ["{wrong}"]{what}'), check=False)
        assert refused.returncode == 2 and f"'{wrong}' does not end in .bin" in refused.stderr


def test_mds_has_the_samples_that_its_own_library_reads(tmp_path):
    streaming = pytest.importorskip("streaming")
    rng = random.Random(3)
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns={"image": "bytes", "text": "str", "key": "str_int", "size": "float32"},
                             size_limit=30_000) as writer:
        for i in range(SAMPLES):
            writer.write({"image": media.image_bytes(rng, rng.choice(["jpg", "png"]), 40 + i, 60), "text": f"\u00e9 \"{i}\"\n" * (i + 1), "key": 10**i,
                          "size": i / 3})
    theirs = streaming.LocalDataset(str(tmp_path / "mds"))
    rows = []
    for i in range(len(theirs)):
        (tmp_path / f"{i}.bin").write_bytes(theirs[i]["image"])
        rows.append({"text": theirs[i]["text"], "image": f"{i}.bin"})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    steps, index = delivered(tmp_path, 'shards: ["mds"], format: mds')
    assert index["samples"] == SAMPLES and index["shards"]["read"] > 3
    expected, _ = delivered(tmp_path, 'shards: ["rows.jsonl"]')
    assert steps == expected


def test_a_shard_that_decompresses_to_too_much_is_an_error(tmp_path):
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(bytes(100 << 20)))
    (tmp_path / "unpacked").mkdir()
    job = write_job(tmp_path, 'shards: ["bomb.tar.gz"]')
    done = harness.run("index", "--job", job, "--unpack-dir", tmp_path / "unpacked", "--unpack-size", "256MiB", check=False)
    assert done.returncode != 0 and "bomb.tar.gz: decompresses to more than 67108864 bytes" in done.stderr
    assert not any((tmp_path / "unpacked").iterdir())


def test_a_list_that_does_not_match_its_shards_is_named(tmp_path):
    (tmp_path / "mds").mkdir()
    (tmp_path / "mds" / "a.mds").write_bytes(bytes(8))
    described = {"version": 2, "format": "mds", "column_names": ["text"], "column_encodings": ["str"], "column_sizes": [None],
                 "raw_data": {"basename": "a.mds", "bytes": 9, "hashes": {}}, "zip_data": None, "samples": 1}
    (tmp_path / "mds" / "index.json").write_text(json.dumps({"version": 2, "shards": [described]}))
    done = harness.run("index", "--job", write_job(tmp_path, 'shards: ["mds/index.json"]'), check=False)
    assert done.returncode != 0 and "a.mds has 8 bytes, in the list it has 9" in done.stderr


def test_lines_and_media_that_cannot_be_used_are_named(tmp_path):
    rng = random.Random(2)
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "1.png").write_bytes(media.image_bytes(rng, "png", 60, 80))
    (tmp_path / "media" / "cut.png").write_bytes(media.image_bytes(rng, "png", 60, 80)[:20])
    (tmp_path / "secret.png").write_bytes(media.image_bytes(rng, "png", 60, 80))
    rows = [{"text": "good", "image": "1.png"}] * 20 + [{"text": "t", "image": "gone.png"}, {"text": "t", "image": "../secret.png"},
                                                        {"text": "t", "image": "http://169.254.169.254/1.png"},
                                                        {"text": "t", "image": "cut.png"}]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{broken\n")
    job = write_job(tmp_path, 'shards: ["data.jsonl"], media: media')
    done = harness.run("index", "--job", job, "--json", "--max-excluded", "50%")
    index = json.loads(done.stdout)
    assert index["samples"] == 20
    assert index["excluded"] == {"missing media": 1, "unusable name of a medium": 2, "damaged image": 1, "bad JSON": 1}
    refused = harness.run("index", "--job", job, "--max-excluded", "1%", check=False)
    assert refused.returncode == 5 and "data.jsonl/21" in refused.stderr + refused.stdout


def test_media_that_changed_are_read_again_with_their_file(tmp_path):
    rng = random.Random(2)
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(media.image_bytes(rng, "png", 60, 80))
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps({"text": "t", "image": f"{i}.png"}) for i in range(6)))
    job = write_job(tmp_path, 'shards: ["data.jsonl"]')

    def index():
        return json.loads(harness.run("index", "--job", job, "--json").stdout)

    first = index()
    assert index()["shards"] == {"read": 0, "unchanged": 1, "remeasured": 0, "damaged": 0}
    (tmp_path / "3.png").write_bytes(media.image_bytes(rng, "png", 60, 80))
    assert harness.run("index", "--job", job, "--verify", check=False).returncode == 0
    assert index()["digest"] != first["digest"]


def test_the_examples_run_on_data_of_their_form(tmp_path):
    """Each job of examples/formats, with the data that it names."""
    rng = random.Random(4)
    shutil.copytree(harness.GOLDEN / "processor" / "qwen2-vl", tmp_path / "qwen2-vl")
    shutil.copy(harness.GOLDEN / "tokenizer" / "tokenizer.json", tmp_path / "qwen2-vl")
    (tmp_path / "qwen2-vl" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    (tmp_path / "data" / "images" / "coco").mkdir(parents=True)
    pictures = [media.image_bytes(rng, "jpg", 60, 80) for _ in range(4)]
    for i, picture in enumerate(pictures):
        (tmp_path / "data" / "images" / "coco" / f"{i}.jpg").write_bytes(picture)
    for number in range(2):
        shard = media.Shard(tmp_path / "data" / f"train-0000{number}.tar")
        for i, picture in enumerate(pictures):
            shard.add(f"{i}.jpg", picture)
            shard.add(f"{i}.txt", b"a caption")
        shard.close()
    turns = [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", "value": "A picture."}]
    rows = {"json": [{"image": f"coco/{i}.jpg", "conversations": turns} for i in range(4)], "text": [{"text": "words"}] * 4}
    (tmp_path / "data" / "vqa.json").write_text(
        json.dumps([{"question": "What?", "label": "A picture.", "picture": f"coco/{i}.jpg"} for i in range(4)]))
    (tmp_path / "data" / "train.txt").write_text("one\ntwo\n")
    write_megatron(tmp_path / "data" / "corpus_text_document", [[[1, 2, 3, 768]], [[4, 768]]])
    jobs = {"webdataset": 8, "json": 8, "text": 6, "megatron": 2}
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet
        table = pyarrow.table({"image": [{"bytes": picture, "path": None} for picture in pictures], "caption": ["words"] * 4})
        for number in range(2):
            pyarrow.parquet.write_table(table, tmp_path / "data" / f"train-0000{number}-of-00002.parquet")
        jobs["parquet"] = 8
    if importlib.util.find_spec("streaming"):
        import streaming
        with streaming.MDSWriter(out=str(tmp_path / "data" / "mds"), columns={"image": "jpeg", "caption": "str"}) as writer:
            for picture in pictures:
                writer.write({"image": picture, "caption": "words"})
        jobs["mds"] = 4
    for name, samples in jobs.items():
        (tmp_path / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows.get(name, []))))
        job = tmp_path / f"{name}.yaml"
        text = (harness.ROOT / "examples" / "formats" / f"{name}.yaml").read_text()
        # The tokenizer of the tests has no template of its own.
        job.write_text(text.replace("./index", f"./index-{name}").replace("max_pixels", "chat: chatml, max_pixels"))
        index = json.loads(harness.run("index", "--job", job, "--verify", "--json").stdout)
        assert (index["samples"], index["excluded"]) == (samples, {}), name
