"""`evenkeel init`: a first job for the data, which the other commands accept, and an error for anything else."""

import json
import pathlib
import random
import shutil
import struct

import pytest

import harness
import media
import test_formats

CHATML_TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}{{ message.content }}"
                   "{% else %}{% for part in message.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
                   "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
                   "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def write_checkpoint(folder, template=CHATML_TEMPLATE):
    shutil.copytree(harness.GOLDEN / "processor" / "qwen2-vl", folder)
    shutil.copy(harness.GOLDEN / "tokenizer" / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def write_shards(folder, form, shards=2, samples=6, extra=None):
    folder.mkdir(parents=True)
    rng = random.Random(3)
    for number in range(shards):
        shard = media.Shard(folder / f"part-{number:03d}.tar")
        for i in range(samples):
            key = f"{number:03d}{i:03d}"
            if form != "text":
                shard.add(f"{key}.png", media.image_bytes(rng, "png", 60, 80))
            if form in ("caption", "text"):
                shard.add(f"{key}.txt", b"a caption")
            else:
                turns = {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
                                      {"role": "assistant", "content": "A picture."}],
                         "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A picture."}]}
                shard.add(f"{key}.json", json.dumps({form: turns[form], **(extra or {})}).encode())
        shard.close()
    return folder


def init(tmp_path, *options, check=True):
    return harness.run("init", tmp_path / "data", "--processor", tmp_path / "model", "--out", tmp_path / "job.yaml", *options, check=check)


@pytest.mark.parametrize("form", ["messages", "conversations", "caption", "text"])
def test_the_job_is_one_that_index_and_plan_accept(tmp_path, form):
    write_checkpoint(tmp_path / "model", template=CHATML_TEMPLATE if form in ("messages", "conversations") else None)
    write_shards(tmp_path / "data", form)
    found = init(tmp_path, "--ranks", "0-1", "--samples", "4").stdout
    job = (tmp_path / "job.yaml").read_text()
    assert "balance: drop_in\n" in job and "/part-{000..001}.tar" in job
    assert ("vision" in job) == (form != "text")
    assert "samples     12\n" in found
    assert {"messages": "messages 12", "conversations": "conversations 12", "caption": "media with a caption 12",
            "text": "text alone 12"}[form] in found
    assert ("12 image items in 12 samples" in found) == (form != "text")
    assert "samples     12\n" in harness.run("index", "--job", tmp_path / "job.yaml").stdout
    plan = json.loads(harness.run("plan", "--job", tmp_path / "job.yaml", "--step", 0, "--json").stdout)
    assert len(plan["samples"]) == 4


def test_the_loader_makes_the_index_and_delivers(tmp_path, monkeypatch):
    evenkeel = pytest.importorskip("evenkeel")
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "messages")
    init(tmp_path, "--samples", "3")
    monkeypatch.setenv("EVENKEEL_BIN", harness.binary())
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(tmp_path / "runtime"))
    steps = list(evenkeel.Loader(str(tmp_path / "job.yaml"), rank=0, num_steps=2))
    assert [len(step.microbatches[0]["cu_seqlens"]) - 1 for step in steps] == [3, 3]
    assert all("pixel_values" in step.microbatches[0].encoders["vision"] for step in steps)


def test_relative_paths_are_relative_to_the_job(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "messages")
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path)
    harness.run("init", "data", "--processor", "model", "--out", "jobs/first.yaml")
    assert 'folder: "../model"' in pathlib.Path("jobs/first.yaml").read_text()
    monkeypatch.chdir("/")
    harness.run("index", "--job", tmp_path / "jobs" / "first.yaml")


def test_a_file_that_exists_stays_as_it_is(tmp_path):
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "messages")
    (tmp_path / "job.yaml").write_text("mine\n")
    refused = init(tmp_path, check=False)
    assert refused.returncode == 2 and "exists and was not changed; --force overwrites it" in refused.stderr
    assert (tmp_path / "job.yaml").read_text() == "mine\n"
    init(tmp_path, "--force")
    assert (tmp_path / "job.yaml").read_text().startswith("# The job of a stream")


def test_keys_that_reach_no_model_and_bad_samples_are_named(tmp_path):
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "messages", extra={"id": 7, "score": 0.5, "a\x1bkey": 1})
    shard = media.Shard(tmp_path / "data" / "part-002.tar")
    shard.add("bad.json", b'{"messages": [}')
    shard.close()
    out = init(tmp_path).stdout
    assert "keys of the JSON: " in out and "id 12" in out and "score 12" in out
    assert "\x1b" not in out and r"a\x1bkey 12" in out
    assert "excluded    1 samples: bad JSON; the first is part-002.tar/bad: " in out


def test_chats_without_a_template_need_a_style(tmp_path):
    write_checkpoint(tmp_path / "model", template=None)
    write_shards(tmp_path / "data", "messages")
    refused = init(tmp_path, check=False)
    assert refused.returncode == 2 and "no chat template" in refused.stderr and "--chat names a style" in refused.stderr
    assert not (tmp_path / "job.yaml").exists()
    init(tmp_path, "--chat", "chatml")
    harness.run("index", "--job", tmp_path / "job.yaml")


def test_media_that_the_checkpoint_cannot_encode_are_an_error(tmp_path):
    write_checkpoint(tmp_path / "model")
    (tmp_path / "data").mkdir()
    shard = media.Shard(tmp_path / "data" / "a.tar")
    shard.add("1.wav", media.wav_bytes(random.Random(1), 1))
    shard.add("1.txt", b"words")
    shard.close()
    refused = init(tmp_path, check=False)
    assert refused.returncode == 2 and "1 of 1 samples looked at have audio items" in refused.stderr
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize("files, words", [
    ([], "an empty folder"),
    (["a.tar.bz2"], "compressed tar files"),
    (["data.jsonl"], "its shards have no samples"),
    (["data.arrow"], "a dataset saved by Hugging Face datasets"),
    (["x.jpg", "y.jpg"], "2 media as single files"),
    (["train/a.tar"], "there are some in train"),
    (["notes"], "no shards among 1 files"),
])
def test_anything_else_says_what_is_expected(tmp_path, files, words):
    write_checkpoint(tmp_path / "model")
    (tmp_path / "data").mkdir()
    for name in files:
        (tmp_path / "data" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"")
    refused = init(tmp_path, check=False)
    assert refused.returncode == 2 and words in refused.stderr, refused.stderr
    assert "give one of these folders" in refused.stderr or "expected is a folder of WebDataset shards" in refused.stderr


@pytest.mark.parametrize("form, name", [("messages", "train.jsonl"), ("conversations", "train.json"), ("text", "train.txt")])
def test_rows_and_texts_are_recognised(tmp_path, form, name):
    write_checkpoint(tmp_path / "model", template=CHATML_TEMPLATE if form != "text" else None)
    (tmp_path / "data" / "images").mkdir(parents=True)
    rng = random.Random(3)
    rows = []
    for i in range(8):
        (tmp_path / "data" / "images" / f"{i}.png").write_bytes(media.image_bytes(rng, "png", 60, 80))
        turns = {"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A picture."}],
                 "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A picture."}]}
        rows.append({"id": i, "image": f"{i}.png", form: turns[form]} if form != "text" else "a text")
    text = "\n".join(rows) if form == "text" else json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    (tmp_path / "data" / name).write_text(text)
    found = init(tmp_path, "--samples", "4").stdout
    job = (tmp_path / "job.yaml").read_text()
    assert ("/data/images\"" in job or "media: \"data/images\"" in job) == (form != "text")
    assert {"text": "text alone 8"}.get(form, f"{form} 8") in found
    assert "samples     8\n" in harness.run("index", "--job", tmp_path / "job.yaml").stdout


def mds_shard(described, rows):
    config = json.dumps(described).encode()
    samples = [struct.pack("<2I", *map(len, row)) + b"".join(row) for row in rows]
    offsets = [8 + 4 * len(rows) + len(config)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(offsets) + 1}I", len(rows), *offsets) + config + b"".join(samples)


@pytest.mark.parametrize("has_list", [True, False])
def test_mds_shards_are_recognised_by_their_list_or_names(tmp_path, has_list):
    write_checkpoint(tmp_path / "model", template=None)
    (tmp_path / "data").mkdir()
    rng = random.Random(3)
    described = {"version": 2, "format": "mds", "column_names": ["image", "text"], "column_encodings": ["jpeg", "str"],
                 "column_sizes": [None, None]}
    shards = []
    for number in range(2):
        shard = mds_shard(described, [[media.image_bytes(rng, "jpg", 60, 80), f"words {i}".encode()] for i in range(4)])
        name = f"shard.{number:05d}.mds"
        (tmp_path / "data" / name).write_bytes(shard)
        shards.append(described | {"raw_data": {"basename": name, "bytes": len(shard), "hashes": {}}, "zip_data": None, "samples": 4})
    if has_list:
        (tmp_path / "data" / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    found = init(tmp_path, "--samples", "4").stdout
    assert "2 MDS shards" in found and "media with a caption 8" in found and "jpg 8" in found
    assert ("index.json" in (tmp_path / "job.yaml").read_text()) == has_list
    assert "samples     8\n" in harness.run("index", "--job", tmp_path / "job.yaml").stdout


def test_token_files_are_recognised_by_their_pairs(tmp_path):
    write_checkpoint(tmp_path / "model", template=None)
    (tmp_path / "data").mkdir()
    for number in range(2):
        test_formats.write_megatron(tmp_path / "data" / f"corpus-{number}", [[[1, 2, 3]]] * 4)
    (tmp_path / "data" / "alone.bin").write_bytes(b"no tokens")
    found = init(tmp_path, "--samples", "4").stdout
    assert "2 token files of Megatron-LM" in found and "tokens 8" in found
    job = (tmp_path / "job.yaml").read_text()
    assert "corpus-{0..1}.bin" in job and "alone.bin" not in job and "vision" not in job
    assert "samples     8\n" in harness.run("index", "--job", tmp_path / "job.yaml").stdout


def test_names_that_are_no_range_are_listed(tmp_path):
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "caption", shards=3)
    (tmp_path / "data" / "part-001.tar").rename(tmp_path / "data" / "extra.tar")
    init(tmp_path)
    job = (tmp_path / "job.yaml").read_text()
    assert job.index("extra.tar") < job.index("part-000.tar") < job.index("part-002.tar") and "{0" not in job
    (tmp_path / "data" / "extra.tar").rename(tmp_path / "data" / "{1..2}.tar")
    refused = init(tmp_path, "--force", check=False)
    assert refused.returncode == 2 and "rename the file" in refused.stderr
    assert (tmp_path / "job.yaml").read_text() == job


def test_costs_are_those_of_the_model(tmp_path):
    write_checkpoint(tmp_path / "model")
    write_shards(tmp_path / "data", "messages")
    assert "cost: {" not in drafted(tmp_path)
    config = json.loads((tmp_path / "model" / "config.json").read_text()) if (tmp_path / "model" / "config.json").exists() else {}
    config["text_config"] = {"hidden_size": 1024, "num_hidden_layers": 10, "num_attention_heads": 8, "intermediate_size": 4096}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert "cost: {" not in drafted(tmp_path)  # the encoder's sizes are not known: no common unit
    config["vision_config"] = {**config.get("vision_config", {}), "hidden_size": 512, "depth": 6, "intermediate_size": 2048}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    job = drafted(tmp_path)
    linear = 2 * 10 * (4 * 1024 ** 2 + 3 * 1024 * 4096) / 1e9
    assert f"cost: {{linear: {linear:.4g}, quadratic: {2 * 10 * 1024 / 1e9:.4g}}}" in job
    assert f"cost: {{linear: {2 * 6 * (4 * 512 ** 2 + 2 * 512 * 2048) / 1e9:.4g}}}" in job
    assert harness.run("index", "--job", tmp_path / "job.yaml").returncode == 0


def drafted(tmp_path):
    init(tmp_path, "--force")
    return (tmp_path / "job.yaml").read_text()
