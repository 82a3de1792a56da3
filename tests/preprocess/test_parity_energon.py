"""`evenkeel init` on data that the real `energon prepare` has prepared: the same samples as Megatron-Energon reads, in number, order
and content, and the same shares of a blend."""

import io
import json
import subprocess
import sys

import pytest

from command import BINARY, ROOT

sys.path.append(str(ROOT / "tests/e2e"))
pytest.importorskip("megatron.energon")
import harness  # noqa: E402
import media  # noqa: E402
from megatron.energon import SampleDecoder, WorkerConfig, get_loader, load_dataset  # noqa: E402
from megatron.energon.dataset_config import get_dataset_from_config  # noqa: E402
from test_energon import TURNS, add_caption, add_question, write_tars  # noqa: E402
from test_init import write_checkpoint  # noqa: E402

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason=f"no binary at {BINARY}")
PER_STEP = 5
ALONE = WorkerConfig(rank=0, world_size=1, num_workers=0)
CAPTIONS = {"train": 30, "val": 10, "test": 12}  # 3 a shard, less one shard; less one shard and two samples; all


def prepare(folder, sample_class, fields, ratio="0.55,0.25,0.2"):
    done = subprocess.run([sys.executable, "-m", "megatron.energon.cli.main", "prepare", str(folder), "--non-interactive",
                           "--split-ratio", ratio, "--sample-type", sample_class, "--field-map", json.dumps(fields)],
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """captions, with exclusions, and questions; and a checkpoint."""
    folder = tmp_path_factory.mktemp("energon")
    write_checkpoint(folder / "model")
    names = [f"shard_{number}.tar" for number in range(20)]  # in energon's order 10 comes after 1, in that of numbers after 9
    write_tars(folder / "captions", names, add_caption)
    write_tars(folder / "questions", names, lambda shard, key, rng: add_question(
        shard, key, rng, [{**TURNS[0], "value": f"<image>\nWhat is {key}?"}, {**TURNS[1], "value": f"The picture {key}."}]))
    prepare(folder / "captions", "CaptioningSample", {"image": "png", "caption": "txt"})
    prepare(folder / "questions", "VQASample", {"image": "png", "context": "json[0][value]", "answers": "json[1][value]"})
    split = folder / "captions" / ".nv-meta" / "split.yaml"
    assert "exclude: []" in split.read_text()
    split.write_text(split.read_text().replace("exclude: []", "exclude: ['shard_{3,12}.tar', 'shard_{5.tar/0501,4.tar/0400}']"))
    return folder


def energon_samples(folder, split, decoder):
    return read(get_dataset_from_config(folder, split_part=split, training=False, worker_config=ALONE, decoder=decoder))


def read(factory):
    return list(get_loader(factory.build(), watchdog_timeout_seconds=None))


def init(data, tmp_path, name, *options):
    """The job of `init` in the order of the shards."""
    job = tmp_path / "job.yaml"
    harness.run("init", data / name, "--processor", data / "model", "--out", job, "--samples", PER_STEP, *options)
    job.write_text(job.read_text().replace("balance: drop_in", "order: {shuffle: none}\nbalance: drop_in"))
    return job


def delivered(job, count):
    """The digests of steps with the first `count` samples, which are an epoch, and the names of these."""
    harness.run("index", "--job", job)
    steps = count // PER_STEP + 1
    plans = [json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout) for step in range(steps)]
    drawn = [sample for plan in plans for sample in plan["samples"]]
    assert [sample["epoch"] for sample in drawn] == [0] * count + [1] * (len(drawn) - count)
    with harness.Fleet(job, 1) as fleet:
        digests = harness.fetch(fleet.endpoints, job, "--ranks", "0", "--steps", steps).steps
    return digests, [sample["name"] for sample in drawn[:count]]


def reference(job, tmp_path, name, members):
    """A job like `job` over one tar with the given members of each sample."""
    shard = media.Shard(tmp_path / "reference.tar")
    for number, sample in enumerate(members):
        for suffix, content in sample.items():
            shard.add(f"{number:04d}.{suffix}", content)
    shard.close()
    text, rest = job.read_text().split("datasets:\n")
    rest = rest[rest.index("processor:\n"):]
    if "exclude:\n" in rest:
        rest = "\n".join(line for line in rest.splitlines() if not line.startswith(("exclude:", f'  - "{name}/'))) + "\n"
    out = tmp_path / "reference.yaml"
    out.write_text(f'{text.replace("./index", "./reference-index")}datasets:\n  - {{name: {name}, shards: [reference.tar]}}\n{rest}')
    return out


@pytest.mark.parametrize("split", list(CAPTIONS))
def test_captions_of_a_split_are_those_of_energon(tmp_path, data, split):
    samples = energon_samples(data / "captions", split, None)
    assert len(samples) == CAPTIONS[split]
    job = init(data, tmp_path, "captions", "--split", split)
    steps, names = delivered(job, len(samples))
    assert [name.split("/")[2] for name in names] == [sample.__key__.split("/")[-1] for sample in samples]
    again = reference(job, tmp_path, "captions", [{"png": sample.image, "txt": sample.caption} for sample in samples])
    assert delivered(again, len(samples))[0] == steps


def test_questions_of_a_split_are_those_of_energon(tmp_path, data):
    samples = energon_samples(data / "questions", "val", SampleDecoder(image_decode="pil"))
    assert len(samples) == 15
    job = init(data, tmp_path, "questions", "--split", "val")
    steps, names = delivered(job, len(samples))
    assert [name.split("/")[2] for name in names] == [sample.__key__.split("/")[-1] for sample in samples]

    def members(sample):
        picture = io.BytesIO()
        sample.image.save(picture, "PNG")
        turns = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": sample.context.removeprefix("<image>")}]},
                 {"role": "assistant", "content": sample.answers}]
        return {"png": picture.getvalue(), "json": json.dumps({"messages": turns}).encode()}

    assert delivered(reference(job, tmp_path, "questions", map(members, samples)), len(samples))[0] == steps


BLENDS = {
    "weights": "blend:\n      - {path: nested.yaml, weight: 2}\n      - {path: questions, weight: 5, split_part: val}\n",
    "repetitions": "blend_epochized:\n      - {path: captions, repetitions: 3}\n      - {path: questions, repetitions: 0.5}\n",
}


@pytest.mark.parametrize("kind", list(BLENDS))
def test_shares_of_a_blend_are_those_of_energon(tmp_path, data, kind):
    head = "__module__: megatron.energon\n__class__: "
    (data / "nested.yaml").write_text(head + "Metadataset\nsplits:\n  train:\n    datasets:\n"
                                      "      - {path: captions, weight: 1}\n      - {path: questions, weight: 3}\n")
    (data / f"{kind}.yaml").write_text(head + "MetadatasetV2\nsplits:\n  train:\n    " + BLENDS[kind])
    loaded = load_dataset(data / f"{kind}.yaml").get_datasets(training=False, split_part="train", worker_config=ALONE).datasets
    expected = [each.weight if kind == "weights" else each.repetitions for each in loaded]
    job = init(data, tmp_path, f"{kind}.yaml").read_text()
    key = "    weight: " if kind == "weights" else "    repeat: "
    shares = [float(line.split()[1]) for line in job.splitlines() if line.startswith(key)]
    assert [share / sum(shares) for share in shares] == pytest.approx([share / sum(expected) for share in expected], rel=1e-9)
