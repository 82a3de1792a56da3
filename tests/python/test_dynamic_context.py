"""Dynamic context parallelism: groups that the plan chooses train as one rank does, and come the same from any workers."""

import contextlib
import json
import os
import subprocess

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import evenkeel
import evenkeel.topology
import evenkeel.torch
import jobs
import mesh_jobs
import ranks
import toy
from evenkeel import context, packing

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

RANKS = 4
GROUPS = "sizes: powers_of_two, tokens_per_rank: 192, ring: 0.1"


def write_job(folder, name, sequences="zigzag", runs="once_per_step", groups=GROUPS, drop_in=False, count=RANKS):
    path = jobs.write_job(folder, name, count, "balance_without_moving", runs, "{count_multiple: 2}")
    text = path.read_text().replace("topology: {ranks_per_node: 2}", "topology: {ranks_per_node: 2, context_parallel: dynamic, "
                                    f"sequences: {sequences}, groups: {{{groups}}}}}")
    text = text.replace("algorithm: balance_without_moving, cost", "cost")  # of the llm
    if drop_in:
        text = text.replace(f"algorithm: balance_without_moving, runs: {runs}", "min_items: 0") + "balance: drop_in\n"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dynamic")
    jobs.write_shard(folder / "mixed.tar")
    jobs.make_index(jobs.write_job(folder, "one", 1, "none", "once_per_step", "{capacity_tokens: 0}"))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """One rank, everything in one microbatch."""
    with jobs.worker(folder / "one.yaml") as endpoint:
        [steps] = ranks.run(1, toy.train, endpoint, jobs.STEPS, jobs.vocabulary())
    return steps


def forward(llm, hidden, microbatch, gather):
    """toy.Llm over a shard: keys and values of all members, attention of this one's tokens."""
    whole, group = getattr(microbatch, "whole", microbatch), microbatch.context
    query = torch.from_numpy(group.tokens(sequences=microbatch.context.sequences))
    key = torch.from_numpy(np.concatenate([group.tokens(index) for index in range(group.size)]))
    positions = torch.from_numpy(np.array(microbatch["position_ids"]))[1:].reshape(3, -1).double()
    hidden = hidden + 0.01 * torch.sin(positions.sum(0) / 10)[:, None]
    document = torch.from_numpy(packing.document_ids(whole))[0]
    allowed = (document[query][:, None] == document[key][None]) & (query[:, None] >= key[None])
    keys, values = gather(llm.key(hidden)), gather(llm.value(hidden))
    scores = llm.query(hidden) @ keys.T / toy.WIDTH ** 0.5
    attended = torch.softmax(scores.masked_fill(~allowed, float("-inf")), 1) @ values
    return llm.head(torch.tanh(hidden + attended))


def loss_of(models, shard, rows, labels, step, pool):
    hidden = models["llm"].embed(torch.from_numpy(np.array(shard["input_ids"]))[0])
    for phase in toy.PHASES:
        hidden = evenkeel.torch.scatter_rows(hidden, shard, phase, rows[phase])
    group = pool.of(shard.context)
    logits = forward(models["llm"], hidden, shard,
                     lambda one: one if group is None else ranks.AllGather.apply(one, group, shard.context.index))
    labels = torch.from_numpy(packing.shifted(labels.numpy())[..., shard.context.tokens()])
    return F.cross_entropy(logits, labels[0], ignore_index=-100, reduction="sum") / step.loss_tokens


def run_step(models, step, pool, cut):
    """cut: rows travel to the shards that hold their placeholders alone."""
    routes = {phase: evenkeel.torch.shard_routes(step, phase) if cut else step.routes[phase] for phase in toy.PHASES}
    outputs = {phase: models[phase](step.encoders[phase]) for phase in step.encoders}
    routed = {phase: evenkeel.torch.exchange(out, routes[phase], grad=False).requires_grad_() for phase, out in outputs.items()}
    total = 0.0
    for i, (shard, labels) in enumerate(zip(step.microbatches, evenkeel.torch.mask_labels(step))):
        rows = {phase: routed[phase][slice(*routes[phase].microbatch_rows(i))] if phase in routed else
                evenkeel.torch.exchange(models[phase](shard.encoders[phase]), routes[phase][i]) for phase in toy.PHASES}
        if not cut:
            rows = {phase: one[torch.from_numpy(context.rows_of_shard(shard, phase))] for phase, one in rows.items()}
        loss = loss_of(models, shard, rows, labels, step, pool)
        loss.backward()
        total += loss.item()
    for phase, out in outputs.items():
        out.backward(evenkeel.torch.exchange(routed[phase].grad, routes[phase].inverse(), grad=False))
    return total


def train(rank, endpoint, ahead, cut):
    """Per step: loss and gradients summed over ranks, and the groups of this rank. ahead: communicators are made for so many
    steps at a time; 0: those of the whole pool at once."""
    models, out = toy.make_models(jobs.vocabulary()), []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=jobs.STEPS) as loader:
        pool = evenkeel.torch.GroupPool(loader.groups(), lazy=ahead > 0)
        for _ in range(jobs.STEPS):
            if ahead:
                pool.add(loader.groups(steps=ahead))
            step = next(loader)
            models.zero_grad()
            loss = torch.tensor(run_step(models, step, pool, cut), dtype=torch.float64)
            dist.all_reduce(loss)
            gradients = {}
            for name, parameter in models.named_parameters():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                dist.all_reduce(gradient)
                gradients[name] = gradient.numpy()
            out.append((loss.item(), gradients, [tuple(one.context.ranks) for one in step.microbatches]))
    return out, len(pool)


@pytest.mark.parametrize("count, sequences, runs, ahead, drop_in, cut", [
    (8, "zigzag", "once_per_step", 3, False, True), (4, "contiguous", "once_per_step", 0, False, False),
    (4, "zigzag", "once_per_microbatch", 1, False, True), (4, "contiguous", "once_per_microbatch", 2, True, False),
    (4, "zigzag", "once_per_microbatch", 9, True, True)])
def test_groups_train_as_one_rank_does(folder, expected, count, sequences, runs, ahead, drop_in, cut):
    path = write_job(folder, f"{count}-{sequences}-{runs}-{drop_in}", sequences, runs, drop_in=drop_in, count=count)
    with jobs.worker(path) as endpoint:
        per_rank = ranks.run(count, train, endpoint, ahead, cut)
    sizes = {len(group) for steps, _ in per_rank for *_, groups in steps for group in groups}
    assert sizes >= {1, 2} or sizes >= {1, 4}, "groups of several sizes were used"
    for number, (loss, gradients, *_) in enumerate(expected):
        for steps, _ in per_rank:
            assert abs(steps[number][0] - loss) <= 1e-10 * abs(loss)
            for name, gradient in gradients.items():
                scale = np.abs(gradient).max()
                assert np.abs(steps[number][1][name] - gradient).max() <= 1e-10 * scale, (number, name)
        waves = [steps[number][2] for steps, _ in per_rank]
        assert len({len(one) for one in waves}) == 1, "every rank has as many waves"
        for wave in zip(*waves):
            assert sorted(rank for group in set(wave) for rank in group) == list(range(count))
    if ahead == 0:
        assert all(count == 2 for _, count in per_rank), "a group of two and one of four"


def test_groups_are_named_steps_ahead(folder):
    with jobs.worker(write_job(folder, "ahead")) as endpoint:
        for rank in range(RANKS):
            with jobs.alone(endpoint, rank=rank, num_steps=12) as loader:
                assert loader.groups() == [[0, 1], [2, 3], [0, 1, 2, 3]]
                named, used = [], []
                for _ in range(12):
                    before = loader.state_dict()
                    named.append([loader.groups(steps=n) for n in (1, 4, 9)])
                    assert loader.state_dict() == before, "looking ahead consumes nothing"
                    used.append({tuple(m.context.ranks) for m in next(loader).microbatches if m.context.size > 1})
                for number in range(3):
                    for n, groups in zip((1, 4, 9), named[number]):
                        assert {tuple(one) for one in groups} == set().union(*used[number:number + n]), (rank, number, n)
                assert any(named[0][2])
                with pytest.raises(ValueError, match="steps is 10; a step comes with the groups of itself and of the next 8"):
                    loader.groups(steps=10)
    path = write_job(folder, "ends")
    path.write_text(path.read_text().replace("{name: mixed,", "{name: mixed, max_epochs: 1,"))
    with jobs.worker(path) as endpoint, jobs.alone(endpoint, rank=1) as loader:
        named = loader.groups(steps=9)
        used = {tuple(one.context.ranks) for step in loader for one in step.microbatches if one.context.size > 1}
        assert {tuple(one) for one in named} == used, "up to the end of the stream"
        assert loader.groups(steps=9) == []
    with jobs.worker(folder / "one.yaml") as endpoint, evenkeel.Loader(endpoint, rank=0) as loader:
        assert loader.groups() == []
        with pytest.raises(ValueError, match="needs a job with context_parallel: dynamic"):
            loader.groups(steps=1)


def test_the_command_plan_shows_the_groups(folder):
    path = write_job(folder, "shown")

    def plan(*options):
        done = subprocess.run([jobs.BINARY, "plan", "--job", str(path), "--step", "1", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
    groups = json.loads(plan("--json"))["groups"]
    lines = [line for line in plan().splitlines() if line.startswith("groups of microbatch")]
    assert len(lines) == len(groups) and any(len(wave) < RANKS for wave in groups)
    with jobs.worker(path) as endpoint, jobs.alone(endpoint, rank=2, first_step=1, num_steps=1) as loader:
        for wave, line, microbatch in zip(groups, lines, next(loader).microbatches):
            assert [rank for first, size in wave for rank in range(first, first + size)] == list(range(RANKS))
            assert [microbatch.context.ranks[0], microbatch.context.size] in wave
            assert f" of {microbatch.context.size} rank" in line


def test_tensor_ranks_are_grouped_by_their_places(folder):
    path = write_job(folder, "tensor", groups="sizes: powers_of_two, tokens_per_rank: 352")
    path.write_text(path.read_text().replace("ranks_per_node: 2,", "ranks_per_node: 2, mesh: {tensor: 2, data: 2},"))
    with jobs.worker(path) as endpoint:
        def receive(rank):
            topology = evenkeel.topology.from_grid(rank, tensor=2, data=2, ranks_per_node=2)
            with jobs.alone(str(endpoint), topology=topology, fetch="node", num_steps=2) as loader:
                assert loader.groups() == [[0, 2], [1, 3]]
                steps = list(loader)
            return [(one.context.ranks, one.context.index, one["input_ids"]) for step in steps for one in step.microbatches]
        by_rank = mesh_jobs.in_threads(range(RANKS), receive)
    assert any(len(group) == 2 for group, *_ in by_rank[0])
    for rank in range(RANKS):
        for (group, index, tokens), (other, _, same) in zip(by_rank[rank], by_rank[rank ^ 1]):
            assert group[index] == rank and group in ([rank], [rank % 2, 2 + rank % 2])
            assert len(group) == len(other) and np.array_equal(tokens, same), "tensor ranks have the same tokens"


def digests(endpoints, rank, **options):
    with jobs.alone(endpoints, rank=rank, num_steps=jobs.STEPS, **options) as loader:
        return [step.digest() for step in loader]


def test_one_chain_from_one_or_three_workers(folder):
    path = write_job(folder, "chain")
    with jobs.worker(path) as endpoint:
        alone = [digests(endpoint, rank) for rank in range(RANKS)]
        over_grpc = [digests(endpoint, rank, transport="grpc") for rank in range(RANKS)]
        with jobs.alone(endpoint, rank=0, num_steps=1) as loader:
            next(loader)
            state = loader.state_dict()
    assert over_grpc == alone
    with contextlib.ExitStack() as stack:
        endpoints = ",".join(stack.enter_context(jobs.worker(path)) for _ in range(3))
        assert [digests(endpoints, rank) for rank in range(RANKS)] == alone
        with jobs.alone(endpoints, rank=0, num_steps=jobs.STEPS) as loader:
            loader.groups(steps=2)  # a step that was looked at is dropped
            loader.load_state_dict(state)
            assert [step.digest() for step in loader] == alone[0][1:]
    with contextlib.ExitStack() as stack:
        second = stack.enter_context(jobs.worker(path))
        with contextlib.ExitStack() as first:
            endpoints = f"{first.enter_context(jobs.worker(path))},{second}"
            loader = stack.enter_context(jobs.alone(endpoints, rank=0, num_steps=jobs.STEPS, prefetch_steps=1))
            found = [next(loader).digest()]
        assert found + [step.digest() for step in loader] == alone[0], "also after one of them was killed"


@pytest.mark.parametrize("sequences", ["whole", "zigzag"])
def test_members_have_the_same_sequences_or_their_shards(folder, sequences):
    with jobs.worker(write_job(folder, f"members-{sequences}", sequences, groups="sizes: powers_of_two, max_size: 2, tokens_per_rank: 352")) as endpoint:
        steps = []
        for rank in range(RANKS):
            with jobs.alone(endpoint, rank=rank, num_steps=1) as loader:
                steps.append(next(loader))
    seen = 0
    for number in range(len(steps[0].microbatches)):
        for rank in range(RANKS):
            microbatch = steps[rank].microbatches[number]
            group = microbatch.context
            assert group.ranks[group.index] == rank
            first = steps[group.ranks[0]].microbatches[number]
            whole = getattr(microbatch, "whole", microbatch)
            assert group.lengths.tolist() == np.diff(whole["cu_seqlens"]).tolist()
            assert group.lengths.sum() <= 352 * group.size
            assert np.array_equal(whole["input_ids"], getattr(first, "whole", first)["input_ids"])
            if sequences == "zigzag":
                assert (group.lengths % 4 == 0).all() and microbatch["input_ids"].shape[1] * group.size == group.lengths.sum()
                assert np.array_equal(microbatch["input_ids"][0], whole["input_ids"][0][group.tokens()])
            seen += group.size == 2
    assert seen > 0
