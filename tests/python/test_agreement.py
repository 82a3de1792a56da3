"""All ranks of a training follow one stream, or every rank hears of it before the first step."""

import os

import numpy as np
import pytest
import torch

import evenkeel
import evenkeel.torch
import jobs
import made
import ranks
from evenkeel import agreement
from evenkeel.origin import Origin

A, B = "0" * 31 + "a", "0" * 31 + "b"


def attempt(call):
    """("ok", "") or (name of the exception's class, its text)."""
    try:
        call()
    except evenkeel.Error as error:
        return type(error).__name__, str(error)
    return "ok", ""


def exchange_from(rank, streams, layouts, times=1):
    routes, _ = made.global_route(np.random.default_rng(3), len(streams), [5] * len(streams),
                                  list(range(len(streams))))
    route = routes[rank]
    route.origin = Origin(rank, streams[rank], layouts[rank])
    gathered = []
    gather, agreement._gather = agreement._gather, lambda *said: gathered.append(1) or gather(*said)
    try:
        outcomes = {attempt(lambda: evenkeel.torch.exchange(torch.ones(5, 3), route, grad=False))
                    for _ in range(times)}
    finally:
        agreement._gather = gather
    return outcomes, len(gathered)


def test_an_exchange_between_two_streams_is_refused():
    for outcomes, _ in ranks.run(4, exchange_from, [A, A, B, A], [A] * 4):
        ((name, text),) = outcomes
        assert name == "Mismatch"
        assert f"stream digest {A} on ranks 0-1, 3" in text and f"stream digest {B} on rank 2" in text
        assert "expect_stream_digest" in text


def test_an_exchange_between_two_layouts_is_refused():
    for outcomes, _ in ranks.run(2, exchange_from, [A, A], [A, B]):
        ((name, text),) = outcomes
        assert name == "Mismatch" and f"layout digest {B} on rank 1" in text


def test_ranks_of_one_stream_are_compared_once():
    for outcomes, gathered in ranks.run(3, exchange_from, [A] * 3, [B] * 3, 4):
        assert outcomes == {("ok", "")} and gathered == 1


pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    """Workers of two streams over the same shards: they differ in their seed."""
    folder = tmp_path_factory.mktemp("two-streams")
    jobs.write_shard(folder / "mixed.tar")
    paths = [jobs.write_job(folder, name, 2, "balance_without_moving", "once_per_step",
                            f"{{capacity_tokens: {jobs.CAPACITY}}}") for name in ("first", "second")]
    paths[1].write_text(paths[1].read_text().replace("seed: 5", "seed: 6"))
    jobs.make_index(paths[0])
    with jobs.worker(paths[0]) as first, jobs.worker(paths[1]) as second:
        yield first, second


def agree_from(rank, endpoints):
    loader = evenkeel.Loader(endpoints[rank], rank=rank, connect_timeout=3 if endpoints[rank].endswith(":1") else 60)
    with loader:
        return attempt(lambda: evenkeel.torch.agree(loader))


def test_loaders_of_two_streams_do_not_agree(endpoints):
    for name, text in ranks.run(2, agree_from, endpoints):
        assert name == "Mismatch" and "on rank 0" in text and "on rank 1" in text
    assert ranks.run(2, agree_from, [endpoints[1]] * 2) == [("ok", "")] * 2


def test_a_rank_that_cannot_connect_lets_no_other_rank_wait(endpoints):
    answers = ranks.run(2, agree_from, [endpoints[0], "127.0.0.1:1"])
    assert answers[0][0] == "Error" and "rank 1 could not connect" in answers[0][1]
    assert answers[1][0] == "Unavailable"


def exchange_steps(rank, endpoints):
    with evenkeel.Loader(endpoints[rank], rank=rank, num_steps=2) as loader:
        return attempt(lambda: [evenkeel.torch.mask_labels(step) for step in loader])


def test_loaders_of_two_streams_do_not_exchange_a_first_step(endpoints):
    for name, text in ranks.run(2, exchange_steps, endpoints):
        assert name == "Mismatch" and "follow different streams" in text
    assert ranks.run(2, exchange_steps, [endpoints[0]] * 2) == [("ok", "")] * 2


def test_without_a_process_group_agreeing_only_connects(endpoints):
    with jobs.alone(endpoints[0], rank=0) as loader:
        evenkeel.torch.agree(loader)
        assert loader.origin.rank == 0 and len(loader.origin.stream_digest) == 32


def test_two_processes_with_one_rank_are_named():
    assert all(outcome == ("InvalidArgument", outcome[1]) and "ranks 2 used" not in outcome[1] and "rank 2 used by more" in
               outcome[1] for outcome in ranks.run(2, agree_as_rank_two))


def agree_as_rank_two(rank):
    class Loader:
        origin = Origin(2, A, A)
    Loader.rank = 2
    return attempt(lambda: evenkeel.torch.agree(Loader))
