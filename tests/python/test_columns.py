"""Columns of the data that the job names arrive with their samples, whatever the transport, the ranks and the packing."""

import contextlib
import json
import os
import subprocess

import numpy as np
import pytest

import evenkeel
import jobs

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
COLUMNS = ["source", "id", "score", "__key__", "missing"]
SAMPLES = 24
LONG = 14  # the sample with the longest columns


def expected(number):
    """What sample `number` has; those of plain text have no members."""
    if number % 4 == 3:
        return {"source": None, "id": None, "score": None, "__key__": f"{number:03d}", "missing": None}
    long = " and more" * 9 if number == LONG else ""
    return {"source": f"web \"ä\" {number}{long}", "id": number, "score": number / 8, "__key__": f"{number:03d}", "missing": None}


def write_shard(path):
    with contextlib.closing(jobs.media.Shard(path)) as shard:
        for number in range(SAMPLES):
            if number % 4 == 3:
                name, body = f"{number:03d}.txt", "salt " * (number + 1)
            else:
                messages = [{"role": "user", "content": "keel " * (number % 5 + 1)},
                            {"role": "assistant", "content": "even " * (number % 7 + 1)}]
                members = {name: value for name, value in expected(number).items() if name in ("source", "id", "score")}
                name, body = f"{number:03d}.json", json.dumps({"messages": messages, **members, "other": [1, 2]})
            shard.add(name, body.encode())


@pytest.fixture
def job(tmp_path):
    write_shard(tmp_path / "texts.tar")
    path = tmp_path / "job.yaml"
    path.write_text(f"""\
seed: 5
index: index
datasets: [{{name: texts, shards: ["texts.tar"]}}]
processor: {{tokenizer: {jobs.GOLDEN}/tokenizer, chat: chatml}}
columns: {json.dumps(COLUMNS)}
limits: {{max_column_bytes: 200}}
batch: {{samples: {SAMPLES}}}
microbatch: {{capacity_tokens: 256}}
phases: [{{name: llm, ranks: 0-1}}]
""")
    return path


def steps(endpoint, **options):
    """The first step of both ranks."""
    found = []
    for rank in range(2):
        with jobs.alone(endpoint, rank=rank, num_steps=1, prefetch_bytes=64 << 20, **options) as loader:
            found.append(next(loader))
    return found


def delivered(step):
    """[(index of the sample, its columns)] over the microbatches, which agree in number with the documents."""
    found = []
    for microbatch in step.microbatches:
        columns = microbatch.columns
        assert len(columns) == len(microbatch["sample_ids"])
        found += zip(microbatch["sample_ids"][:, 2].tolist(), columns)
    return found


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_each_document_has_its_columns(job, batching):
    job.write_text(job.read_text().replace("ranks: 0-1", f"ranks: 0-1, batching: {batching}"))
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        found = sorted(sum((delivered(step) for step in steps(endpoint)), []))
    assert [index for index, _ in found] == list(range(SAMPLES))
    assert [columns for _, columns in found] == [expected(number) for number in range(SAMPLES)]
    assert all(list(columns) == COLUMNS for _, columns in found), "in the job's order"


def test_columns_are_the_same_over_every_transport(job):
    jobs.make_index(job)
    with jobs.worker(job, "--trusted-data-network") as endpoint:
        by_transport = {name: steps(endpoint, transport=name, trusted_data_network=True) for name in ("memory", "grpc", "ucx")}
        found = [[(step.digest(), delivered(step)) for step in one] for one in by_transport.values()]
    assert found[0] == found[1] == found[2]


def test_a_job_without_columns_has_none(job):
    job.write_text("".join(line for line in job.read_text().splitlines(True) if not line.startswith(("columns", "limits"))))
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        microbatch = steps(endpoint)[0].microbatches[0]
    assert "columns" not in microbatch
    with pytest.raises(ValueError, match="the job names no columns"):
        microbatch.columns


def test_columns_survive_what_frameworks_do_to_a_batch(job):
    torch = pytest.importorskip("torch")
    import evenkeel.torch  # noqa: F401
    from torch.utils import _pytree, data
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        microbatch = steps(endpoint)[0].microbatches[0]
        wanted = microbatch.columns
        converted = data.default_convert(microbatch)
        assert type(converted) is dict and evenkeel.columns(converted) == wanted
        assert evenkeel.columns(_pytree.tree_map(torch.clone, converted)) == wanted
        assert evenkeel.columns(evenkeel.torch.tensors(microbatch, "cpu")) == wanted


def test_samples_with_long_columns_are_left_out(job):
    job.write_text(job.read_text().replace("max_column_bytes: 200", "max_column_bytes: 100")
                   .replace(f"samples: {SAMPLES}", f"samples: {SAMPLES - 1}"))
    done = subprocess.run([jobs.BINARY, "index", "--job", str(job)], capture_output=True, text=True)
    assert done.returncode == 0 and "columns too long" in done.stdout + done.stderr, done
    with jobs.worker(job) as endpoint:
        keys = [columns["__key__"] for step in steps(endpoint) for _, columns in delivered(step)]
    assert sorted(keys) == [f"{number:03d}" for number in range(SAMPLES) if number != LONG]


def test_show_has_the_columns(job):
    job.write_text(job.read_text() + "order: {shuffle: none}\n")
    jobs.make_index(job)
    done = subprocess.run([jobs.BINARY, "show", "--job", str(job), "--step", "0", "--width", "1000"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert 'columns {"source": "web \\"ä\\" 5", "id": 5, "score": 0.625, "__key__": "005", "missing": null}' in done.stdout


def test_the_field_is_an_object_and_spaces_a_sample(job):
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        field = steps(endpoint)[0].microbatches[0]["columns"]
    assert field.dtype == np.uint8 and field.shape[1] == 200
    for row in field:
        text = row.tobytes().decode()
        assert text.rstrip(" ").endswith("}") and text.startswith('{"source": ')
