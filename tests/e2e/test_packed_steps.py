"""Steps of packed bins: exact epochs, the same bins for any number of ranks, one chain through kills and resumes."""

import collections
import json

import pytest

import harness
import media

BINS = 8
BATCH = (f"{{window_samples: 100, pack: {{bins: {BINS}, capacities: "
         "[{phase: llm, length: 3000}, {phase: vision, length: 6000}, {phase: audio, length: 12000}]}}")
SAMPLES = 240


def write_job(folder, name, ranks, batch=BATCH, microbatch="{}"):
    path = folder / f"{name}.yaml"
    return harness.write_job(path, [("a", "a-{000..001}.tar", 1)], ranks=ranks, batch=batch, microbatch=microbatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("packed")
    assert media.write_mixed_shards(path, "a", 2, SAMPLES // 2, seed=5) == SAMPLES
    harness.run("index", "--job", write_job(path, "job", 4))
    return path


def plan(job, step):
    return json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout)


def bins_of(document):
    """The names of every bin's samples, as a set of sets: a bin is a microbatch of a rank."""
    bins = collections.defaultdict(set)
    for sample in document["samples"]:
        bins[sample["place"]["rank"], sample["place"]["microbatch"]].add(sample["name"])
    return {frozenset(names) for names in bins.values()}


def test_bins_do_not_depend_on_ranks_and_epochs_are_exact(folder):
    jobs = [write_job(folder, f"ranks{ranks}", ranks) for ranks in (1, 2, 4, 8)]
    drawn, step = collections.Counter(), 0
    while True:
        documents = [plan(job, step) for job in jobs]
        bins = [bins_of(document) for document in documents]
        assert all(other == bins[0] for other in bins), step
        epochs = {sample["epoch"] for sample in documents[0]["samples"]}
        assert len(epochs) == 1, "a step of two epochs"
        if epochs != {0}:
            break
        drawn.update(sample["name"] for sample in documents[0]["samples"])
        step += 1
    indexed = json.loads(harness.run("index", "--job", jobs[0], "--json").stdout)
    assert set(drawn.values()) == {1}
    assert len(drawn) == indexed["samples"] and step >= 4


def test_kills_change_nothing_and_other_ranks_resume(folder):
    job = write_job(folder, "job", 4)
    with harness.Fleet(job, 1) as fleet:
        expected = harness.fetch(fleet.endpoints, job, "--steps", 12)
        middle = harness.fetch(fleet.endpoints, job, "--from", 5, "--steps", 7)
    assert middle.steps == [line for line in expected.steps if int(line.split()[0]) >= 5]
    killed = harness.fetch_with_kills(job, "--steps", 12)
    assert (killed.steps, killed.chain) == (expected.steps, expected.chain)
    for ranks in (1, 2):
        other = write_job(folder, f"resumed{ranks}", ranks)
        with harness.Fleet(other, 1) as fleet:
            assert len(harness.fetch(fleet.endpoints, other, "--from", 5, "--steps", 2).steps) == 2


def test_plan_measures_how_full_and_alike_bins_are(folder):
    job = write_job(folder, "job", 4)
    figures = json.loads(harness.run("plan", "--job", job, "--step", 0, "--steps", 4, "--json").stdout)
    assert figures["bins"] == 4 * BINS
    llm = next(phase for phase in figures["phases"] if phase["phase"] == "llm")
    assert 0.3 < llm["fill"] <= 1 and 0 <= llm["distribution_ratio"] < 0.5
    table = harness.run("plan", "--job", job, "--step", 0, "--steps", 4).stdout
    assert "llm" in table and "max/mean" in table
    plain = write_job(folder, "plain", 4, batch="{samples: 16}", microbatch="{capacity_tokens: 3000}")
    refused = harness.run("plan", "--job", plain, "--step", 0, "--steps", 4, check=False)
    assert refused.returncode != 0 and "batch.pack" in refused.stderr


@pytest.mark.parametrize("pack, why", [
    ("{bins: 6, capacities: [{phase: llm, length: 1500}]}", "is not a multiple of 4"),
    ("{bins: 8}", "none of the llm"),
    ("{bins: 8, capacities: [{phase: llm, length: 1500}, {phase: visoin, length: 9}]}", "nearest is 'vision'"),
    ("{bins: 8, algorithm: tetris, capacities: [{phase: llm, length: 1500}]}", "best_fit_decreasing"),
    ("{bins: 8, capacities: [{phase: llm, length: 3000}, {phase: vision, length: 16}]}", "in phase vision, more than a bin's capacity of 16"),
])
def test_wrong_packs_are_clear_errors(folder, pack, why):
    job = write_job(folder, "wrong", 4, batch=f"{{pack: {pack}}}")
    refused = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert refused.returncode != 0 and why in refused.stderr, refused.stderr
