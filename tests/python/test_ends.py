"""Streams that end after max_epochs: loaders and `evenkeel fetch` stop there, and know how many steps there are."""

import json
import os
import subprocess

import jobs
import pytest

pytest.importorskip("evenkeel")

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

EPOCHS = 2
STEPS = EPOCHS * jobs.TOTAL // jobs.SAMPLES_PER_STEP


def write_job(folder, name, batch):
    path = jobs.write_job(folder, name, 2, "balance_without_moving", "once_per_step", f"{{capacity_tokens: {jobs.CAPACITY}}}")
    text = path.read_text().replace('shards: ["mixed.tar"]', f'shards: ["mixed.tar"], max_epochs: {EPOCHS}')
    path.write_text(text.replace(f"batch: {{samples: {jobs.SAMPLES_PER_STEP}}}", f"batch: {batch}"))
    return path


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    """By kind of batch: of a worker whose stream has two epochs."""
    folder = tmp_path_factory.mktemp("ends")
    jobs.write_shard(folder / "mixed.tar")
    samples = write_job(folder, "samples", f"{{samples: {jobs.SAMPLES_PER_STEP}}}")
    tokens = write_job(folder, "tokens", "{llm_tokens: 3000, window_samples: 20}")
    jobs.make_index(samples)
    with jobs.worker(samples) as one, jobs.worker(tokens) as other:
        yield {"samples": one, "tokens": other}


def fetch(endpoint, *options):
    done = subprocess.run([jobs.BINARY, "fetch", "--endpoints", endpoint, "--ranks", "0-1", "--digest", "--json", *options],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_the_iteration_ends_with_the_stream(endpoints):
    loaders = [jobs.alone(endpoints["samples"], rank=rank) for rank in range(2)]
    assert len(loaders[0]) == STEPS
    assert [[step.index for step in loader] for loader in loaders] == [list(range(STEPS))] * 2
    with pytest.raises(StopIteration):
        next(loaders[0])
    assert loaders[0].state_dict()["step"] == STEPS


def test_a_number_of_steps_counts_where_it_is_smaller(endpoints):
    assert len(jobs.alone(endpoints["samples"], rank=0, num_steps=4)) == 4
    assert [step.index for step in jobs.alone(endpoints["samples"], rank=0, num_steps=4)] == [0, 1, 2, 3]
    longer = jobs.alone(endpoints["samples"], rank=0, num_steps=100)
    assert len(list(longer)) == STEPS == len(longer)


def test_a_resumed_loader_ends_at_the_same_step(endpoints):
    loader = jobs.alone(endpoints["samples"], rank=0)
    for _ in range(4):
        next(loader)
    resumed = jobs.alone(endpoints["samples"], rank=0)
    resumed.load_state_dict(loader.state_dict())
    assert len(resumed) == STEPS - 4
    assert [step.index for step in resumed] == list(range(4, STEPS))
    past = jobs.alone(endpoints["samples"], rank=0, first_step=STEPS + 7)
    assert list(past) == [] and len(past) == 0


def test_fetch_takes_what_there_is(endpoints):
    whole, said = fetch(endpoints["samples"], "--steps", "100")
    assert f"the stream has {STEPS} steps" in said
    assert whole["samples"] == STEPS * jobs.SAMPLES_PER_STEP and len(whole["digests"]) == 2 * STEPS
    rest, _ = fetch(endpoints["samples"], "--steps", "100", "--from", "4")
    assert rest["digests"] == whole["digests"][8:]


def test_a_budget_of_tokens_delivers_every_epoch_whole(endpoints):
    whole, said = fetch(endpoints["tokens"], "--steps", "1000")
    assert whole["samples"] == EPOCHS * jobs.TOTAL
    assert len(whole["digests"]) == 2 * len(jobs.alone(endpoints["tokens"], rank=0))
    assert f"the stream has {len(whole['digests']) // 2} steps" in said
