"""Rearranging changes nothing: the same loss and gradients on 2 and 4 balanced ranks as on one without balancing."""

import os

import numpy as np
import pytest

import jobs
import ranks
import toy

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")


def train(job, count):
    with jobs.worker(job) as endpoint:
        return ranks.run(count, toy.train, endpoint, jobs.STEPS, jobs.vocabulary())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    jobs.write_shard(folder / "mixed.tar")
    jobs.make_index(jobs.write_job(folder, "one", 1, "none", "once_per_step", "{capacity_tokens: 0}"))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """One rank, everything in one microbatch, nothing balanced and nothing moved."""
    [steps] = train(folder / "one.yaml", 1)
    assert all(microbatches == 1 and moved == 0 for _, _, microbatches, moved, _ in steps)
    assert sum(masked for *_, masked in steps) > 0, "a damaged image is among them"
    for phase in ("vision", "audio", "llm"):
        assert any(np.abs(g).max() > 0 for _, gradients, *_ in steps
                   for name, g in gradients.items() if name.startswith(phase)), f"{phase} is trained"
    return steps


@pytest.mark.parametrize("runs", ["once_per_step", "once_per_microbatch"])
@pytest.mark.parametrize("count,algorithm", [(2, "balance_without_moving"), (4, "balance_without_moving"),
                                             (2, "greedy_packed"), (4, "greedy_packed")])
def test_balanced_ranks_train_as_one_rank_does(folder, expected, count, algorithm, runs):
    job = jobs.write_job(folder, f"{count}-{algorithm}-{runs}", count, algorithm, runs, f"{{capacity_tokens: {jobs.CAPACITY}}}")
    per_rank = train(job, count)
    assert max(microbatches for _, _, microbatches, _, _ in per_rank[0]) > 1
    if algorithm == "greedy_packed":
        assert sum(moved for rank in per_rank for _, _, _, moved, _ in rank) > 0, "rows travel between ranks"
    for number, (loss, gradients, _, _, masked) in enumerate(expected):
        assert sum(rank[number][-1] for rank in per_rank) == masked
        for rank in per_rank:
            assert abs(rank[number][0] - loss) <= 1e-10 * abs(loss)
            for name, gradient in gradients.items():
                scale = np.abs(gradient).max()
                assert np.abs(rank[number][1][name] - gradient).max() <= 1e-10 * scale, (number, name)
