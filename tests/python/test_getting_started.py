"""The commands of docs/getting-started.md with a tiny checkpoint: examples/qwen2_vl as it lies there."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

sys.path.insert(0, str(jobs.ROOT / "tests" / "e2e"))
import media  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
EXAMPLE = jobs.ROOT / "examples" / "qwen2_vl"
NUM_ROWS, NUM_STEPS, DEADLINE_SECONDS = 40, 4, 240
# A module of the name and the two functions that pack.py uses; the real one needs a network.
DATASETS = """
import json


class Image:
    def __init__(self, decode):
        assert not decode


class Rows(list):
    def cast_column(self, name, feature):
        return self


def load_dataset(name, split):
    rows = json.load(open(name))
    return Rows({**row, "image": {"bytes": None, "path": row["image"]}} for row in rows)
"""
# The torch of the parity tests has stand-ins for CUDA's libraries, which cannot answer this question.
NO_CUDA = """
import torch

torch.cuda.is_current_stream_capturing = lambda: False
"""


def run(*command, folder, more_path=()):
    path = os.pathsep.join([str(folder), str(pathlib.Path(evenkeel.__file__).absolute().parents[1])] + list(more_path))
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True,
                          timeout=DEADLINE_SECONDS, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[:6000]
    return done.stdout


def write_checkpoint(folder):
    """Qwen2-VL of two small layers with random weights, the project's tokenizer and the real image processor's file."""
    shutil.copytree(jobs.GOLDEN / "processor" / "qwen2-vl", folder)
    shutil.copy(jobs.GOLDEN / "tokenizer" / "tokenizer.json", folder)
    tokens = {token["content"]: token["id"]
              for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]}
    torch.manual_seed(0)
    config = transformers.Qwen2VLConfig(
        text_config={"vocab_size": max(tokens.values()) + 1, "hidden_size": 64, "intermediate_size": 128,
                     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                     "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        vision_config={"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        image_token_id=tokens["<|image_pad|>"], vision_start_token_id=tokens["<|vision_start|>"])
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)


def write_rows(folder):
    rng = random.Random(1)
    (folder / "images").mkdir()
    rows = []
    for number in range(NUM_ROWS):
        path = folder / "images" / f"{number}.bin"
        path.write_bytes(media.image_bytes(rng, rng.choice(["jpg", "png", "webp"]), rng.randint(60, 300), rng.randint(60, 300)))
        rows.append({"image": str(path), "question": "What is this?", "answer": f"Picture {number}."})
    (folder / "rows.json").write_text(json.dumps(rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a user would stand before `evenkeel serve`: checkpoint, shards, job and index."""
    folder = tmp_path_factory.mktemp("getting-started")
    write_checkpoint(folder / "qwen2-vl")
    write_rows(folder)
    (folder / "datasets.py").write_text(DATASETS)
    (folder / "no_cuda").mkdir()
    (folder / "no_cuda" / "sitecustomize.py").write_text(NO_CUDA)
    run(sys.executable, EXAMPLE / "pack.py", "rows.json", "shards", folder=folder)
    assert [path.name for path in (folder / "shards").iterdir()] == ["train-00000.tar"]
    for name in ("job.yaml", "exchange.yaml"):
        job = (EXAMPLE / name).read_text()
        assert "{00000..00001}" in job
        (folder / name).write_text(job.replace("{00000..00001}", "00000").replace("./index", f"./index-of-{name}"))
    assert f"samples     {NUM_ROWS}\n" in run(jobs.BINARY, "index", "--job", "exchange.yaml", folder=folder)
    return folder


def train(folder, name, endpoint, steps, ranks=2):
    """The lines `step loss` that train_exchange.py prints."""
    place = folder / name
    place.mkdir(exist_ok=True)
    if not (place / "qwen2-vl").exists():
        (place / "qwen2-vl").symlink_to(folder / "qwen2-vl")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks]
    return run(*launch, EXAMPLE / "train_exchange.py", endpoint, steps, folder=place,
               more_path=[str(folder / "no_cuda")]).splitlines()


def first_script(folder, monkeypatch, name, script):
    """The losses that it prints."""
    monkeypatch.setenv("EVENKEEL_BIN", jobs.BINARY)
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(folder / "runtime"))
    (folder / name).write_text(script)
    lines = run(sys.executable, name, folder=folder, more_path=[str(folder / "no_cuda")]).splitlines()
    assert [line.split()[0] for line in lines] == [str(step) for step in range(20)]
    return [float(line.split()[1]) for line in lines]


def test_ten_lines_train_without_a_server(folder, monkeypatch):
    script = (EXAMPLE / "train.py").read_text()
    assert len([line for line in script.splitlines() if line]) <= 10
    assert not (folder / "index-of-job.yaml").exists()
    script = script.replace("lr=1e-5", "lr=1e-3")  # a small model of random weights
    alone = first_script(folder, monkeypatch, "first.py", script)
    assert sum(alone[-5:]) < sum(alone[:5]) - 1, "it learns"
    with jobs.worker(folder / "job.yaml") as one, jobs.worker(folder / "job.yaml") as other:
        fleet = script.replace("num_steps=20", f'num_steps=20, endpoints="{one},{other}"')
        assert fleet != script and first_script(folder, monkeypatch, "fleet.py", fleet) == alone


def test_training_stops_and_goes_on(folder):
    with jobs.worker(folder / "exchange.yaml") as endpoint:
        whole = train(folder, "whole", endpoint, NUM_STEPS)
        assert [line.split()[0] for line in whole] == [str(step) for step in range(NUM_STEPS)]
        parts = [train(folder, "parts", endpoint, steps) for steps in (NUM_STEPS // 2, NUM_STEPS)]
    assert parts[0] + parts[1] == whole


def test_one_rank_and_two_have_the_same_losses(folder):
    (folder / "one.yaml").write_text((folder / "exchange.yaml").read_text().replace("0-1", "0"))
    losses = []
    for job, ranks in (("exchange.yaml", 2), ("one.yaml", 1)):
        with jobs.worker(folder / job) as endpoint:
            losses.append([float(line.split()[1]) for line in train(folder, f"ranks-{ranks}", endpoint, 2, ranks)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
