"""Tensor 2 x context 2 x data 2 x pipeline 2: sixteen processes with the fields of their role train as one rank does."""

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
from evenkeel import context, packing, topology

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

MESH = {"tensor": 2, "context": 2, "data": 2, "pipeline": 2}
VOCABULARY, WIDTH, HEADS = 89, 8, 2
PATCH = 4 * 1176  # of one row of the encoder
STEPS = 2


class AllReduceBackward(torch.autograd.Function):
    """What every tensor rank has alike, before each uses a slice of the weights."""

    @staticmethod
    def forward(ctx, value, group):
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class AllReduceForward(torch.autograd.Function):
    """The sum of what tensor ranks computed with their slices."""

    @staticmethod
    def forward(ctx, value, group):
        value = value.clone()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Whole:
    """One rank: no groups."""
    tensor_index, parts = 0, 1

    def split(self, value):
        return value

    def join(self, value):
        return value

    def gather(self, value):
        return value


class Member:
    def __init__(self, place):
        def groups_of(*axes):
            others = {}
            for one in place.ranks:
                at = place.coordinates(one)
                others.setdefault(tuple(at[axis] for axis in topology.AXES if axis not in axes), []).append(one)
            made = [(members, dist.new_group(members)) for _, members in sorted(others.items())]
            return next(group for members, group in made if place.rank in members)
        self.tensor, self.context, self.same = groups_of("tensor"), groups_of("context"), groups_of("context", "data")
        self.tensor_index, self.parts, self._index = place.tensor_index, MESH["tensor"], place.context_index

    def split(self, value):
        return AllReduceBackward.apply(value, self.tensor)

    def join(self, value):
        return AllReduceForward.apply(value, self.tensor)

    def gather(self, value):
        return ranks.AllGather.apply(value, self.context, self._index)


def weights(member):
    """Attention's are cut by heads over the tensor ranks."""
    generator = torch.Generator().manual_seed(2)

    def make(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator) / shape[0] ** 0.5
    out = {"embed": make(VOCABULARY, WIDTH), "vision": make(PATCH, WIDTH), "out": make(WIDTH, VOCABULARY)}
    for layer in (0, 1):
        out.update({f"{name}{layer}": make(WIDTH, WIDTH) for name in "qkvo"}, **{f"place{layer}": make(1, WIDTH)})
    for name, one in out.items():
        if name[:-1] in ("q", "k", "v"):
            one = one.chunk(member.parts, 1)[member.tensor_index]
        if name[:-1] == "o":
            one = one.chunk(member.parts, 0)[member.tensor_index]
        out[name] = one.clone().requires_grad_()
    return out


def layer(number, hidden, microbatch, w, member):
    whole = getattr(microbatch, "whole", microbatch)
    group = microbatch.context
    query = np.arange(len(hidden)) if whole is microbatch else microbatch.tokens
    key = query if whole is microbatch else np.concatenate([group.tokens(i) for i in range(group.size)])
    query, key = torch.from_numpy(query), torch.from_numpy(key)
    document = torch.from_numpy(packing.document_ids(whole)[0])
    seen = (document[query][:, None] == document[key][None]) & (query[:, None] >= key[None])
    positions = torch.from_numpy(np.array(microbatch["position_ids"]))[:, 0].double().mean(0)
    inside = member.split(hidden + torch.sin(positions[:, None] * w[f"place{number}"]))
    q, k, v = (inside @ w[f"{name}{number}"] for name in "qkv")
    k, v = member.gather(k), member.gather(v)
    heads = HEADS // member.parts
    mixed = [torch.softmax((one @ other.T).masked_fill(~seen, -torch.inf), 1) @ value
             for one, other, value in zip(q.chunk(heads, 1), k.chunk(heads, 1), v.chunk(heads, 1))]
    return hidden + member.join(torch.cat(mixed, 1) @ w[f"o{number}"])


def first_stage(step, number, w, member):
    microbatch = step.microbatches[number]
    ids = torch.from_numpy(np.array(microbatch["input_ids"][0])) % VOCABULARY
    pixels = evenkeel.torch.pixels(microbatch.encoders["vision"]).double().reshape(-1, PATCH)
    rows = (pixels @ w["vision"])[torch.from_numpy(step.routes["vision"][number].source_rows())]
    rows = rows[torch.from_numpy(context.rows_of_shard(microbatch, "vision"))]
    hidden = evenkeel.torch.scatter_rows(w["embed"][ids], microbatch, "vision", rows)
    return layer(0, hidden, microbatch, w, member)


def last_stage(step, number, hidden, w, member):
    microbatch = step.microbatches[number]
    labels = packing.shifted(evenkeel.torch.mask_labels(step, local=True)[number].numpy())[0]
    labels = torch.from_numpy(labels if not hasattr(microbatch, "whole") else labels[microbatch.tokens])
    logits = layer(1, hidden, microbatch, w, member) @ w["out"]
    return torch.nn.functional.cross_entropy(logits, torch.where(labels >= 0, labels % VOCABULARY, labels), ignore_index=-100,
                                             reduction="sum") / step.loss_tokens


def run_member(step, number, place, w, member):
    """One microbatch through both stages and back. Returns the loss on the last stage, else 0."""
    other = place.rank_at(**{**place.coordinates(place.rank), "pipeline": 1 - place.stage})
    if place.stage == 0:
        hidden = first_stage(step, number, w, member)
        dist.send(hidden.detach().contiguous(), other)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, other)
        hidden.backward(gradient)
        return 0.0
    hidden = torch.empty(len(step.microbatches[number].tokens), WIDTH, dtype=torch.float64)
    dist.recv(hidden, other)
    loss = last_stage(step, number, hidden.requires_grad_(), w, member)
    loss.backward()
    dist.send(hidden.grad.contiguous(), other)
    return loss.item()


def reference(endpoint, leaders):
    w, losses = weights(Whole()), [0.0] * STEPS
    for leader in leaders:
        with evenkeel.Loader(endpoint, rank=leader, num_steps=STEPS, whole=True) as loader:
            for i, step in enumerate(loader):
                step.microbatches = [getattr(one, "whole", one) for one in step.microbatches]
                for number in range(len(step.microbatches)):
                    loss = last_stage(step, number, first_stage(step, number, w, Whole()), w, Whole())
                    loss.backward()
                    losses[i] += loss.item()
    return losses, {name: one.grad for name, one in w.items()}


def train(rank, endpoint, runtime):
    os.environ["EVENKEEL_RUNTIME_DIR"] = runtime
    place = topology.from_grid(rank, **MESH, ranks_per_node=8)
    member = Member(place)
    w, losses = weights(member), torch.zeros(STEPS, dtype=torch.float64)
    with evenkeel.Loader(endpoint, topology=place, fetch="node", num_steps=STEPS) as loader:
        topology.check(place, loader)
        for i, step in enumerate(loader):
            assert ("input_ids" in step.microbatches[0]) == (place.stage == 0)
            assert ("labels" in step.microbatches[0]) == (place.stage == 1)
            for number in range(len(step.microbatches)):
                losses[i] += run_member(step, number, place, w, member)
        stats = loader.stats()
    dist.all_reduce(losses, group=member.same)
    gradients = {}
    for name, one in w.items():
        if one.grad is not None:
            dist.all_reduce(one.grad, group=member.same)
            gradients[name] = one.grad.numpy()
    return place.stage, place.tensor_index, losses.tolist(), gradients, stats["bytes"], \
        reference(endpoint, place.leaders) if rank == 0 else None


def test_sixteen_members_have_the_gradients_of_one_rank(tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    jobs.write_shard(tmp_path / "mixed.tar")
    path = mesh_jobs.write_job(tmp_path, "square", MESH, ranks_per_node=8, sequences="zigzag", drop_in=True, align=4)
    jobs.make_index(path)
    with jobs.worker(path) as endpoint:
        answers = ranks.run(16, train, endpoint, str(runtime))
    losses, gradients = answers[0][-1]
    checked = set()
    for stage, tensor, own, grads, _, _ in answers:
        if stage == 1:
            np.testing.assert_allclose(own, losses, rtol=1e-10)
        for name, gradient in grads.items():
            expected = gradients[name].numpy()
            axis = {"q": 1, "k": 1, "v": 1, "o": 0}.get(name[:-1])
            expected = expected if axis is None else np.split(expected, MESH["tensor"], axis)[tensor]
            np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max(), err_msg=name)
            checked.add(name)
    assert checked == set(gradients)
    assert all(np.abs(gradient.numpy()).max() > 0 for gradient in gradients.values())
    # Stage 0 is on node 0, stage 1 on node 1; one member of each replica receives there.
    assert [rank for rank, answer in enumerate(answers) if answer[4]] == [0, 4, 8, 12]
