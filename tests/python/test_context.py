"""Static context parallelism: shards of the stream's sequences train as the whole sequences do."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist

import evenkeel
import evenkeel.torch
import jobs
import mesh_jobs
import ranks
from evenkeel import context, packing

VOCABULARY, WIDTH = 97, 8


def test_zigzag_takes_one_chunk_from_either_end():
    bounds = [0, 8, 24]
    assert context.shard_tokens(bounds, 2, 0, "zigzag").tolist() == [0, 1, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23]
    assert context.shard_tokens(bounds, 2, 1, "zigzag").tolist() == [2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 18, 19]
    assert context.shard_tokens(bounds, 2, 1, "contiguous").tolist() == [4, 5, 6, 7, *range(16, 24)]
    assert context.shard_tokens(bounds, 2, 1, "whole").tolist() == list(range(24))


@pytest.mark.parametrize("sequences", ["zigzag", "contiguous"])
def test_shards_are_equal_in_size_and_cover_every_token(sequences):
    rng = np.random.default_rng(4)
    for size in (1, 2, 3, 8):
        bounds = np.concatenate([[0], np.cumsum(2 * size * rng.integers(0, 6, 20))])
        shards = [context.shard_tokens(bounds, size, index, sequences) for index in range(size)]
        assert len({len(one) for one in shards}) == 1
        assert sorted(np.concatenate(shards).tolist()) == list(range(bounds[-1]))
    with pytest.raises(ValueError, match="multiple of 4"):
        context.shard_tokens([0, 6], 2, 0, "zigzag")


pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("context")
    jobs.write_shard(folder / "mixed.tar")
    return folder


def weights():
    generator = torch.Generator().manual_seed(1)
    shapes = {"embed": (VOCABULARY, WIDTH), "q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH),
              "place": (1, WIDTH), "out": (WIDTH, VOCABULARY)}
    return {name: torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for name, shape in shapes.items()}


def encoder_rows(count, seed):
    """Rows of an encoder, the same on every member of a group."""
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def hidden_of(microbatch, w, rows):
    ids = torch.from_numpy(np.array(microbatch["input_ids"][0])) % VOCABULARY
    positions = torch.from_numpy(np.array(microbatch["position_ids"]))[:, 0].sum(0)  # of the text and the grid
    hidden = w["embed"][ids] + torch.sin(positions[:, None].double() * w["place"])
    own = rows[torch.from_numpy(context.rows_of_shard(microbatch, "vision"))]
    return evenkeel.torch.scatter_rows(hidden, microbatch, "vision", own)


def attend(q, k, v, query, key, document):
    """query, key: numbers of the tokens in the whole microbatch; a token sees those before it in its document."""
    scores = q @ k.T / WIDTH ** 0.5
    seen = (document[query][:, None] == document[key][None]) & (query[:, None] >= key[None])
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), 1) @ v


def summed_loss(hidden, w, labels):
    return torch.nn.functional.cross_entropy(hidden @ w["out"], torch.where(labels >= 0, labels % VOCABULARY, labels),
                                             ignore_index=-100, reduction="sum")


def document_of(microbatch):
    return torch.from_numpy(packing.document_ids(microbatch)[0])


def on_one_rank(whole, seed):
    w, rows = weights(), encoder_rows(len(evenkeel.torch.placeholders(whole, "vision")), seed)
    hidden = hidden_of(whole, w, rows)
    every = torch.arange(len(hidden))
    out = attend(hidden @ w["q"], hidden @ w["k"], hidden @ w["v"], every, every, document_of(whole))
    loss = summed_loss(hidden + out, w, torch.from_numpy(packing.shifted(whole["labels"])[0]))
    loss.backward()
    return loss.item(), {**{name: one.grad for name, one in w.items()}, "rows": rows.grad}


def on_a_group(shard, group, seed):
    whole = shard.whole
    w, rows = weights(), encoder_rows(len(evenkeel.torch.placeholders(whole, "vision")), seed)
    hidden = hidden_of(shard, w, rows)
    key = torch.from_numpy(np.concatenate([shard.context.tokens(i) for i in range(shard.context.size)]))
    k, v = (ranks.AllGather.apply(hidden @ w[name], group, shard.context.index) for name in "kv")
    out = attend(hidden @ w["q"], k, v, torch.from_numpy(shard.tokens), key, document_of(whole))
    loss = summed_loss(hidden + out, w, torch.from_numpy(shard["shift_labels"][0]))
    loss.backward()
    total = loss.detach().clone()
    gradients = {**{name: one.grad for name, one in w.items()}, "rows": rows.grad}
    for one in (total, *gradients.values()):
        if one is not None:
            dist.all_reduce(one, group=group)
    return total.item(), gradients


def train(rank, endpoint, size):
    worst, tokens = 0.0, 0
    with evenkeel.Loader(endpoint, rank=rank, num_steps=2) as loader:
        pool = evenkeel.torch.GroupPool(loader.topology.context_groups())
        for step in loader:
            for number, shard in enumerate(step.microbatches):
                assert shard.context.ranks == list(range(rank // size * size, rank // size * size + size))
                assert shard["input_ids"].shape[1] * size == shard.whole["input_ids"].shape[1] == shard.context.lengths.sum()
                loss, gradients = on_a_group(shard, pool.of(shard.context), number)
                expected, reference = on_one_rank(shard.whole, number)
                worst = max(worst, abs(loss - expected) / max(1, abs(expected)))
                for name, gradient in reference.items():
                    if gradient is not None and gradient.numel():
                        worst = max(worst, ((gradients[name] - gradient).abs().max() / gradient.abs().max().clamp(min=1)).item())
                tokens += int((shard["shift_labels"] >= 0).sum())
    return worst, tokens


@pytest.mark.parametrize("mesh, sequences", [({"context": 2, "data": 2}, "zigzag"), ({"context": 4, "data": 1}, "contiguous")])
def test_a_group_has_the_loss_and_gradients_of_one_rank(folder, mesh, sequences):
    path = mesh_jobs.write_job(folder, sequences, mesh, sequences=sequences, align=2 * mesh["context"])
    if not (folder / "index").exists():
        jobs.make_index(path)
    with jobs.worker(path) as endpoint:
        answers = ranks.run(4, train, endpoint, mesh["context"])
    assert all(worst < 1e-10 for worst, _ in answers)
    assert sum(tokens for _, tokens in answers) > 100


def test_whole_sequences_come_with_their_group(folder):
    path = mesh_jobs.write_job(folder, "whole", {"context": 2, "tensor": 2, "data": 1}, align=4)
    if not (folder / "index").exists():
        jobs.make_index(path)
    with jobs.worker(path) as endpoint:
        for rank in range(4):
            with jobs.alone(endpoint, rank=rank, num_steps=1) as loader:
                (step,) = loader
            for microbatch in step.microbatches:
                group = microbatch.context
                assert group.ranks == [rank % 2, 2 + rank % 2] and group.index == rank // 2
                assert group.lengths.tolist() == np.diff(microbatch["cu_seqlens"]).tolist()
                assert not hasattr(microbatch, "whole") and microbatch["input_ids"].shape[1] == group.lengths.sum()
                assert (group.lengths % 4 == 0).all() and len(group.tokens(1, "zigzag")) == group.lengths.sum() // 2


def refuse(rank):
    pool = evenkeel.torch.GroupPool([[0, 1], [1]])
    with pytest.raises(ValueError, match=r"no group of ranks \[0, 2\]; this rank's are \[\[0, 1\]\]"):
        pool.of(context.ContextGroup([0, 2], 0, np.zeros(0, np.int64), "whole"))
    with pytest.raises(ValueError, match="is in 1 groups; the limit is 0"):
        evenkeel.torch.GroupPool([[0, 1]], limit=0)
    assert pool.of(context.ContextGroup([1], 0, np.zeros(0, np.int64), "whole")) is None


def test_a_pool_refuses_groups_that_it_does_not_have():
    ranks.run(2, refuse)
