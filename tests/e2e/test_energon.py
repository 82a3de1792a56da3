"""`evenkeel init` on Megatron-Energon's data: the shards of a split, the weights of a blend, and by name what a job cannot have."""

import itertools
import json
import random

import pytest

import harness
import media
from test_init import write_checkpoint

TURNS = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A picture."}]
CAPTIONS = ("CaptioningSample", {"image": "png", "caption": "txt"})
QUESTIONS = ("VQASample", {"image": "png", "context": "json[0][value]", "answers": "json[1][value]"})


def write_tars(folder, names, add, samples=3):
    """Tars with keys that tell their shard; `add(shard, key, rng)` writes the members of a sample. Returns samples by shard."""
    rng = random.Random(5)
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shard = media.Shard(folder / name)
        for i in range(samples):
            add(shard, f"{number:02d}{i:02d}", rng)
        shard.close()
    return {name: samples for name in names}


def add_caption(shard, key, rng):
    shard.add(f"{key}.png", media.image_bytes(rng, "png", 60, 80))
    shard.add(f"{key}.txt", f"caption {key}".encode())
    shard.add(f"{key}.json", json.dumps({"score": 1}).encode())


def add_question(shard, key, rng, turns=TURNS):
    shard.add(f"{key}.png", media.image_bytes(rng, "png", 60, 80))
    shard.add(f"{key}.json", json.dumps(turns).encode())


def write_notes(folder, counts, splits, kind, exclude=(), extra=""):
    """`.nv-meta` as `energon prepare` leaves it."""
    notes = folder / ".nv-meta"
    notes.mkdir(exist_ok=True)
    (notes / ".info.json").write_text(json.dumps({"energon_version": "7.4.1", "shard_counts": counts}, indent=2))
    lists = "".join(f"  {split}:\n" + "".join(f"  - {name}\n" for name in names) for split, names in splits.items())
    (notes / "split.yaml").write_text(f"split_parts:\n{lists}exclude: {json.dumps(list(exclude))}\n")
    sample_class, fields = kind
    (notes / "dataset.yaml").write_text(
        f"sample_type:\n  __module__: megatron.energon\n  __class__: {sample_class}\nfield_map:\n"
        + "".join(f"  {field}: {member}\n" for field, member in fields.items()) + extra)


def write_captions(folder, shards=2, exclude=(), kind=CAPTIONS, splits=None):
    names = [f"part-{number:03d}.tar" for number in range(shards)]
    counts = write_tars(folder, names, add_caption)
    write_notes(folder, counts, splits or {"train": names[:-1] or names, "val": names[-1:]}, kind, exclude)
    return folder


def write_questions(folder, shards=2, turns=TURNS):
    names = [f"shard_{number}.tar" for number in range(shards)]
    counts = write_tars(folder, names, lambda shard, key, rng: add_question(shard, key, rng, turns))
    write_notes(folder, counts, {"train": names}, QUESTIONS)
    return folder


@pytest.fixture
def init(tmp_path):
    """Runs `init` on data in `tmp_path`; returns the finished process, after which job.yaml is the job."""
    write_checkpoint(tmp_path / "model")

    def run(data, *options, check=True):
        return harness.run("init", tmp_path / data, "--processor", tmp_path / "model", "--out", tmp_path / "job.yaml", "--force",
                           "--samples", 2, *options, check=check)

    return run


def refusal(init, data, *options):
    refused = init(data, *options, check=False)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    return refused.stderr


def first_epoch(tmp_path):
    """The names of one epoch's samples in the order of the shards."""
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace("balance: drop_in", "order: {shuffle: none}\nbalance: drop_in"))
    harness.run("index", "--job", job)
    names = []
    for step in itertools.count():
        samples = json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout)["samples"]
        names += [sample["name"] for sample in samples if sample["epoch"] == 0]
        if samples[-1]["epoch"] > 0:
            return names


def test_a_split_has_its_shards_in_its_order(tmp_path, init):
    names = ["b/000.tar", "b/001.tar", "a/000.tar", "a/002.tar", "c.tar"]
    counts = write_tars(tmp_path / "data", names, add_caption)
    splits = {"train": ["b/{000..001}.tar", "'{c,a/002}.tar'"], "val": ["a/000.tar"], "both": ["'{a,b}/000.tar'"]}
    write_notes(tmp_path / "data", counts, splits, CAPTIONS,
                exclude=["b/001.tar", "c.tar/0401", "a/000.tar/0200", "{b/000.tar/00,c.tar/04}00"])
    init("data")
    assert first_epoch(tmp_path) == ["data/000.tar/0001", "data/000.tar/0002", "data/c.tar/0402", "data/002.tar/0300",
                                 "data/002.tar/0301", "data/002.tar/0302"]
    assert "CaptioningSample (image: png, caption: txt)" in (tmp_path / "job.yaml").read_text()
    init("data", "--split", "val")
    assert first_epoch(tmp_path) == ["data/000.tar/0201", "data/000.tar/0202"]
    assert "the split has 2 shards named 000.tar" in refusal(init, "data", "--split", "both")


def test_questions_are_turns_and_a_loader_delivers_them(tmp_path, init, monkeypatch):
    evenkeel = pytest.importorskip("evenkeel")
    write_questions(tmp_path / "data")
    assert "a list of turns 6" in init("data").stdout
    monkeypatch.setenv("EVENKEEL_BIN", harness.binary())
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(tmp_path / "runtime"))
    steps = list(evenkeel.Loader(str(tmp_path / "job.yaml"), rank=0, num_steps=3))
    assert [len(step.microbatches[0]["cu_seqlens"]) - 1 for step in steps] == [2, 2, 2]
    assert all("pixel_values" in step.microbatches[0].encoders["vision"] for step in steps)


def test_files_of_older_releases_are_read(tmp_path, init):
    folder = write_captions(tmp_path / "data", shards=130)
    notes = folder / ".nv-meta"
    counts = json.loads((notes / ".info.json").read_text())["shard_counts"]
    (notes / ".info.json").unlink()
    (notes / ".info.yaml").write_text("energon_version: 2.0.0\nshard_counts:\n" + "".join(f"  {n}: {c}\n" for n, c in counts.items()))
    (notes / "split.yaml").rename(notes / "split.json")
    (notes / "split.json").write_text(json.dumps({"split_parts": {"train": ["part-{000..128}.tar"]}, "exclude": []}, indent=4))
    (notes / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CaptioningWebdataset\n"
                                        "field_map: {image: 'jpg,png', caption: txt}\nsubflavors: {a: 1}\n")
    assert "shards      129 tar files" in init("data").stdout
    (notes / ".info.yaml").write_text("shard_counts:\n  part-000.tar: many\n")
    assert ".info.yaml:2: shard_counts: 'part-000.tar' has 'many' samples" in refusal(init, "data")


def test_weights_of_nested_blends_multiply(tmp_path, init):
    write_captions(tmp_path / "one" / "data")
    write_captions(tmp_path / "two" / "data")
    write_questions(tmp_path / "vqa")
    (tmp_path / "inner.yaml").write_text("__module__: megatron.energon\n__class__: Metadataset\nsplits:\n  train:\n    datasets:\n"
                                         "      - {path: one/data, weight: 1, subflavors: {a: b}}\n      - {path: vqa, weight: 3}\n")
    (tmp_path / "blend.yaml").write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    blend:\n"
        f"      - path: inner.yaml\n        weight: 2\n      - path: {tmp_path}/two/data\n        split_part: val\n        weight: 0.5\n"
        "  val:\n    path: ./two/../one/data\n")
    init("blend.yaml")
    assert datasets(tmp_path) == {"one-data": "0.5", "vqa": "1.5", "two-data": "0.5"}
    job = (tmp_path / "job.yaml").read_text()
    assert 'two/data/part-001.tar"' in job and 'one/data/part-000.tar"' in job
    assert harness.run("index", "--job", tmp_path / "job.yaml").returncode == 0
    init("blend.yaml", "--split", "val")
    assert datasets(tmp_path) == {"data": None} and 'one/data/part-001.tar"' in (tmp_path / "job.yaml").read_text()


def test_repetitions_of_nested_blends_multiply(tmp_path, init):
    write_captions(tmp_path / "data", shards=4, exclude=["part-001.tar/0100"])
    write_questions(tmp_path / "vqa")
    (tmp_path / "nested.yaml").write_text("__class__: MetadatasetV2\n__module__: megatron.energon\nsplits:\n  train:\n"
                                          "    blend_epochized:\n      - {path: data, repetitions: 3}\n")
    (tmp_path / "blend.yaml").write_text("__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    blend_epochized:\n"
                                         "      - {path: nested.yaml, repetitions: 2}\n      - {path: vqa, repetitions: 0.5}\n"
                                         "      - path: data\n")
    init("blend.yaml")
    assert datasets(tmp_path, "repeat") == {f"{tmp_path.name}-data": "6", "vqa": "0.5", f"{tmp_path.name}-data-2": "1"}
    job = (tmp_path / "job.yaml").read_text()
    assert "repeat: the repetitions of its 8 samples" in job and "weight:" not in job and f'{tmp_path.name}-data-2/part-001.tar/0100"' in job
    assert json.loads(harness.run("index", "--job", tmp_path / "job.yaml", "--json").stdout)["samples"] == 24


def datasets(tmp_path, key="weight"):
    """{name: weight} of the job, as written; or another key of its datasets."""
    found = {}
    for line in (tmp_path / "job.yaml").read_text().splitlines():
        if line.startswith("  - name: "):
            name = json.loads(line.removeprefix("  - name: "))
            found[name] = None
        elif line.startswith(f"    {key}: "):
            found[name] = line.removeprefix(f"    {key}: ")
    return found


@pytest.mark.parametrize("kind, words", [
    (("CaptioningSample", {"image": "png", "caption": "json[caption]"}), "JSON is read as a chat alone"),
    (("CaptioningSample", {"image": "png"}), "no 'caption', which CaptioningSample has"),
    (("CaptioningSample", {"image": "png[0]", "caption": "txt"}), "'png' is not a suffix of image items"),
    (("CaptioningSample", {"image": "mp4", "caption": "txt"}), "'mp4' is not a suffix of image items"),
    (("CaptioningSample", {"image": "jpg", "caption": "txt"}), "it has no such medium"),
    (("TextSample", {"text": "txt"}), "Evenkeel reads the media png, all members that are media"),
    (("OCRSample", {"image": "png", "text": "txt", "words_boxes": "json[boxes]"}), "have no 'words_boxes' of OCRSample"),
    (("VQASample", {"image": "png", "context": "json[q]", "answers": "json[a]"}), "the two turns of a chat, as json[0][value]"),
    (("VQASample", {"image": "png", "context": "json[0][value]", "answers": "json[1][value]"}), "it has no JSON with a chat"),
    (("VQASample", {"image": "png[", "context": "txt", "answers": "txt"}), "'png[' is not like jpg, or like json[0][value]"),
    (("MultiChoiceVQASample", {"image": "png"}), "samples of MultiChoiceVQASample: choices"),
    (("InterleavedSample", {"sequence": "json"}), "samples of InterleavedSample: its sequence is put together in Python"),
    (("ImageSample", {"image": "png"}), "it has no text to train on"),
    (("MySample", {"image": "png"}), "the class MySample of megatron.energon is Python, which `evenkeel init` does not run"),
])
def test_samples_without_a_form_are_refused_by_name(tmp_path, init, kind, words):
    write_captions(tmp_path / "data", kind=kind)
    message = refusal(init, "data")
    assert words in message and "dataset.yaml:" in message and "--as-tars" in message
    init("data", "--as-tars")
    assert "--as-tars" in (tmp_path / "job.yaml").read_text()
    assert harness.run("index", "--job", tmp_path / "job.yaml").returncode == 0


@pytest.mark.parametrize("text, words", [
    ("__module__: megatron.energon\n__class__: CrudeWebdataset\n", "made by a cooker, which is Python of the trainer"),
    ("sample_type: {__module__: mine, __class__: VQASample}\nfield_map: {image: png}\n", "the class VQASample of mine is Python"),
    ("sample_type: {__module__: megatron.energon, __class__: VQASample}\nsample_loader: sample_loader.py:sample_loader\n"
     "part_filter: sample_loader.py:part_filter\n", "dataset.yaml:2: sample_loader: VQASample is put together in Python"),
    ("sample_type: {__module__: megatron.energon, __class__: TextSample}\nfeld_map: {}\n", "unknown key 'feld_map' in the file; nearest is 'field_map'"),
    ("field_map: {image: png}\n", "no sample_type with __module__ and __class__"),
])
def test_python_of_a_dataset_is_refused_by_name(tmp_path, init, text, words):
    (write_captions(tmp_path / "data") / ".nv-meta" / "dataset.yaml").write_text(text)
    message = refusal(init, "data")
    assert words in message and "--as-tars" in message


@pytest.mark.parametrize("turns, words", [
    (TURNS + [{"from": "human", "value": "Why?"}, TURNS[1]], "its chat has 4 turns"),
    ([{"from": "human", "value": "What?"}, TURNS[1]], "Evenkeel reads no media, as the marks in its text have them"),
    ([{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A."}], "a turn of its JSON has no text 'value'"),
    ({"conversations": TURNS}, "its JSON has its turns in another place"),
])
def test_a_chat_that_energon_reads_otherwise_is_refused(tmp_path, init, turns, words):
    write_questions(tmp_path / "data", turns=turns)
    message = refusal(init, "data")
    assert words in message and "shard_0.tar/0000: not what Energon reads by" in message


@pytest.mark.parametrize("name, text, words", [
    (".info.json", '{"shard_counts": {"part-000.tar": 3,', ".info.json: cut off or damaged: "),
    (".info.json", '{"shards": {}}', "no map 'shard_counts'"),
    (".info.json", '{"shard_counts": {"part-000.tar": "3"}}', "'part-000.tar' has '' samples"),
    (".info.json", '{"shard_counts": {"part-001.tar": 3}}', "shard 'part-000.tar' is not one of the 1 shards of .info.json"),
    (".info.json", None, ".info.json: no such file, nor .info.yaml"),
    ("split.yaml", None, "split.yaml: No such file"),
    ("split.yaml", "split_parts:\n  val: [part-000.tar]\n  test: []\n", "split.yaml:2: no split 'train'; there are: val, test (--split)"),
    ("split.yaml", "split_parts: {train: [x\n", "split.yaml:2: "),
    ("split.yaml", "split_parts: {train: [part-000.tar, part-000.tar]}\n", "shard 'part-000.tar' is listed twice"),
    ("split.yaml", "split_parts: {train: []}\n", "split 'train' has no shards"),
    ("split.yaml", "split_parts: {train: [part-000.tar]}\nexclude: ['part-{000,001}.tar']\n", "since `exclude` has all of them"),
    ("split.yaml", "split_parts:\n  train:\n  - ../part-000.tar\n", "split.yaml:3: split 'train': shard '../part-000.tar' is not a name below"),
    ("split.yaml", "split_parts:\n  train: ['part-{0']\n", "split.yaml:2: split_parts: train: 'part-{0': braces are not balanced"),
    ("split.yaml", "split_parts:\n  train: ['{0..9999999}']\n", "more than 1000000 names"),
    ("dataset.yaml", None, "dataset.yaml: No such file"),
])
def test_damaged_notes_are_named_with_their_place(tmp_path, init, name, text, words):
    file = write_captions(tmp_path / "data") / ".nv-meta" / name
    file.unlink() if text is None else file.write_text(text)
    refused = init("data", check=False)
    assert refused.returncode not in (0, 1) and words in refused.stderr, refused.stderr
    assert not (tmp_path / "job.yaml").exists()


def test_missing_shards_are_named(tmp_path, init):
    (write_captions(tmp_path / "data", shards=4) / "part-001.tar").unlink()
    refused = init("data", check=False)
    assert refused.returncode != 0 and "1 of 3 shards of split 'train' are missing; the first is " in refused.stderr
    assert "data/part-001.tar" in refused.stderr


V2 = "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n"


@pytest.mark.parametrize("text, words", [
    (V2 + "    join: [{path: data}, {path: data}]\n    joiner: {__module__: mine, __function__: join}\n", "blend.yaml:5: join: "),
    (V2 + "    path: data\n    subset: {range: [0%, 50%]}\n", "blend.yaml:6: subset: a job has all samples of its shards"),
    (V2 + "    blend:\n    - path: msc://lake/data\n", "'msc://lake/data': `evenkeel init` reads data of this machine. Jobs have objects as s3://"),
    (V2 + "    blend:\n    - path: gone\n", "blend.yaml:6: path: "),
    (V2 + "    blend:\n    - path: blend.yaml\n", "a metadataset that contains itself"),
    (V2 + "    blend:\n    - path: b.yaml\n", "a metadataset that contains itself"),
    (V2 + "    blend:\n    - path: data\n      weight: '3'\n", "blend.yaml:7: weight: '3' is not a number of at least 0"),
    (V2 + "    blend:\n    - path: data\n      weight: -1\n", "blend.yaml:7: weight: '-1' is not a number of at least 0"),
    (V2 + "    blend:\n    - path: data\n      weight: 0\n", "every weight is 0"),
    (V2 + "    blend:\n    - path: data\n      repetitions: 2\n", "unknown key 'repetitions' in the dataset"),
    (V2 + "    blend:\n    - path: epochs.yaml\n", "blend.yaml:6: a blend by weights and one by repetitions"),
    (V2 + "    blend:\n    - path: data\n      aux: {more: data}\n", "aux: files of other folders are read by a cooker"),
    (V2 + "    blend:\n    - path: data\n      split_part: dev\n", "blend.yaml:6: "),
    (V2 + "    blend:\n    - path: data/part-000.tar\n", "no folder with .nv-meta"),
    (V2 + "    blend:\n    - path: rows.jsonl\n", "blend.yaml:6: "),
    (V2 + "    blend: []\n", "blend: a list of datasets is expected"),
    (V2.replace("train", "test") + "    path: data\n", "blend.yaml:4: no split 'train'; there are: test (--split)"),
    (V2.replace("V2", "V3") + "    path: data\n", "'MetadatasetV3' is not one of Metadataset, MetadatasetV2"),
    ("index: ./index\n", "unknown key 'index' in the metadataset"),
])
def test_what_a_job_cannot_have_is_refused_by_name(tmp_path, init, text, words):
    write_captions(tmp_path / "data")
    (tmp_path / "blend.yaml").write_text(text)
    (tmp_path / "rows.jsonl").write_text('{"text": "t"}\n')
    (tmp_path / "b.yaml").write_text(V2 + "    path: blend.yaml\n")
    (tmp_path / "epochs.yaml").write_text(V2 + "    blend_epochized: [{path: data}]\n")
    refused = init("blend.yaml", check=False)
    assert refused.returncode not in (0, 1) and words in refused.stderr, refused.stderr
    assert not (tmp_path / "job.yaml").exists()


def test_metadatasets_are_bounded(tmp_path, init):
    write_captions(tmp_path / "data")
    for depth in range(9):
        (tmp_path / f"{depth}.yaml").write_text(V2 + f"    blend: [{{path: {depth + 1}.yaml}}]\n")
    (tmp_path / "9.yaml").write_text(V2 + "    path: data\n")
    assert "nested deeper than 8" in refusal(init, "0.yaml")
    init("2.yaml")
    # Few files, but a product of references.
    for depth in range(6, 9):
        (tmp_path / f"{depth}.yaml").write_text(V2 + "    blend:\n" + f"    - path: {depth + 1}.yaml\n" * 13)
    assert "more than 2000 datasets" in refusal(init, "6.yaml")


def test_options_of_energon_need_its_data(tmp_path, init):
    write_tars(tmp_path / "data", ["a.tar"], add_caption)
    assert "--split and --as-tars are for data of Megatron-Energon" in refusal(init, "data", "--split", "val")
