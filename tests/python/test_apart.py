"""Encoders on ranks of their own, whose rows travel point to point, train as one rank does under every schedule."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import evenkeel
import evenkeel.torch
import jobs
import pipelines
import ranks
import toy
from evenkeel import apart, packing

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

LAYERS = 4
STEPS = 2


class Layer(torch.nn.Module):
    """Position, and causal attention within each document."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(toy.WIDTH, toy.WIDTH, bias=False) for _ in range(3))

    def forward(self, hidden, microbatch):
        positions = torch.from_numpy(np.array(microbatch["position_ids"]))[1:].reshape(3, -1).double()
        hidden = hidden + 0.01 * torch.sin(positions.sum(0) / 10)[:, None]
        document = torch.from_numpy(packing.document_ids(microbatch))[0]
        order = torch.arange(len(document))
        seen = (document[:, None] == document[None]) & (order[:, None] >= order[None])
        scores = self.query(hidden) @ self.key(hidden).T / toy.WIDTH ** 0.5
        return hidden + torch.softmax(scores.masked_fill(~seen, -torch.inf), 1) @ self.value(hidden)


def make_models(vocabulary):
    torch.manual_seed(3)
    return torch.nn.ModuleDict({
        "vision": toy.Vision(), "audio": toy.Audio(), "embed": torch.nn.Embedding(vocabulary, toy.WIDTH),
        **{f"layer{i}": Layer() for i in range(LAYERS)}, "head": torch.nn.Linear(toy.WIDTH, vocabulary)}).double()


def embed(models, microbatch, rows):
    hidden = models["embed"](torch.from_numpy(np.array(microbatch["input_ids"]))[0])
    for phase in toy.PHASES:
        hidden = evenkeel.torch.scatter_rows(hidden, microbatch, phase, rows[phase])
    return hidden


def loss_of(models, hidden, labels, step):
    logits = models["head"](hidden)
    return F.cross_entropy(logits[:-1], labels[0, 1:], ignore_index=-100, reduction="sum") / step.loss_tokens


def one_rank(rank, endpoint, vocabulary):
    models, out = make_models(vocabulary), []
    with evenkeel.Loader(endpoint, rank=0, num_steps=STEPS) as loader:
        for step in loader:
            models.zero_grad()
            [microbatch], [labels] = step.microbatches, evenkeel.torch.mask_labels(step)
            rows = {phase: evenkeel.torch.exchange(models[phase](step.encoders[phase]), step.routes[phase])
                    for phase in toy.PHASES}
            hidden = embed(models, microbatch, rows)
            for i in range(LAYERS):
                hidden = models[f"layer{i}"](hidden, microbatch)
            loss = loss_of(models, hidden, labels, step)
            loss.backward()
            out.append((loss.item(), {name: one.grad.numpy().copy() for name, one in models.named_parameters()}))
    return out


def pipeline_step(rank, place, models, step, schedule, chunks, rows):
    """The llm's ranks: every microbatch through this stage's chunks."""
    stage_ranks = [place.rank_at(**{**place.coordinates(rank), "pipeline": i}) for i in range(place.pipeline)]
    per_chunk = LAYERS // (place.pipeline * chunks)
    labels = evenkeel.torch.mask_labels(step, links=rows.values()) if place.stage == place.pipeline - 1 else None

    def enter(number):
        return embed(models, step.microbatches[number], {phase: one.receive(number) for phase, one in rows.items()})

    def run(chunk, hidden, number):
        for i in range(chunk * per_chunk, (chunk + 1) * per_chunk):
            hidden = models[f"layer{i}"](hidden, step.microbatches[number])
        return loss_of(models, hidden, own_labels(step.microbatches[number], labels[number]), step) if i == LAYERS - 1 else hidden

    def shape(number):
        return int(step.microbatches[number]["cu_seqlens"][-1]), toy.WIDTH
    operations = schedule(place.stage, place.pipeline, len(step.microbatches), *([chunks] if chunks > 1 else []))
    return pipelines.Stage(stage_ranks, rank, chunks, enter, run, shape).train(operations)


def own_labels(microbatch, labels):
    """Members of a context group compute everything here, and each the loss of its own tokens."""
    if microbatch.context is None:
        return labels
    own = torch.full_like(labels, evenkeel.torch.IGNORED)
    tokens = torch.from_numpy(microbatch.context.tokens(sequences="zigzag"))
    own[:, tokens] = labels[:, tokens]
    return own


def train(rank, endpoint, vocabulary, schedule, chunks, in_flight):
    """Per step: loss and gradients summed over ranks; number of microbatches; ranks that this one talks to."""
    models, out = make_models(vocabulary), []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=STEPS) as loader:
        links = {phase: apart.Link(loader, phase, toy.WIDTH, torch.float64) for phase in toy.PHASES}
        for step in loader:
            models.zero_grad()
            rows = {phase: link.step(step) for phase, link in links.items()}
            loss = 0.0
            apart.encode([(rows[phase], lambda number, phase=phase: models[phase](step.microbatches[number].encoders[phase]))
                          for phase in toy.PHASES if links[phase].encodes], in_flight)
            if loader.topology is not None:
                loss = pipeline_step(rank, loader.topology, models, step, schedule, chunks, rows)
            for one in rows.values():
                one.finish()
            counts = loader.topology.tensor_index == 0 if loader.topology is not None else None
            for name, one in models.named_parameters():
                phase = name.split(".")[0]
                if not (links[phase].speaks and links[phase].encodes if phase in links else counts):
                    one.grad = None  # of a member that computed the same as another
            out.append((*summed(loss if counts else 0.0, models), len(step.microbatches), {p: r.peers for p, r in rows.items()}))
    return out


def summed(loss, models):
    total = torch.tensor(loss, dtype=torch.float64)
    dist.all_reduce(total)
    gradients = {}
    for name, one in models.named_parameters():
        gradients[name] = torch.zeros_like(one) if one.grad is None else one.grad.clone()
        dist.all_reduce(gradients[name])
    return total.item(), {name: one.numpy() for name, one in gradients.items()}


def write_job(folder, name, llm, virtual_stages=1, vision="data: 2", runs="once_per_microbatch"):
    """The llm on ranks 0 to 3 by the mesh `llm`, vision on 4 and 5, audio on 5 and 6."""
    path = jobs.write_job(folder, name, 4, "balance_without_moving", runs, f"{{capacity_tokens: {jobs.CAPACITY}, align: 4}}")
    text = path.read_text()
    for phase, names, mesh in (("llm", "0-3", llm), ("vision", "4-5", vision), ("audio", "5-6", "data: 2")):
        text = text.replace(f'name: {phase}, ranks: "0-3"', f'name: {phase}, ranks: "{names}", mesh: {{{mesh}}}')
    if virtual_stages > 1:
        text = text.replace("topology: {", f"topology: {{virtual_stages: {virtual_stages}, ")
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    jobs.write_shard(folder / "mixed.tar")
    jobs.make_index(jobs.write_job(folder, "one", 1, "none", "once_per_step", "{capacity_tokens: 0}"))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    with jobs.worker(folder / "one.yaml") as endpoint:
        [steps] = ranks.run(1, one_rank, endpoint, jobs.vocabulary())
    assert all(np.abs(gradient).max() > 0 for name, gradient in steps[0][1].items())
    return steps


def check(answers, expected):
    for number, (loss, gradients) in enumerate(expected):
        for steps in answers:
            np.testing.assert_allclose(steps[number][0], loss, rtol=1e-10)
            for name, gradient in gradients.items():
                np.testing.assert_allclose(steps[number][1][name], gradient, rtol=0, atol=1e-10 * np.abs(gradient).max(),
                                           err_msg=f"step {number}, {name}")


@pytest.mark.parametrize("name,llm,chunks,schedule,in_flight", [
    ("1f1b", "data: 2, pipeline: 2", 1, pipelines.one_f_one_b, 2),
    ("1f1b_of_four_stages", "data: 1, pipeline: 4", 1, pipelines.one_f_one_b, 4),
    ("gpipe", "data: 2, pipeline: 2", 1, pipelines.gpipe, None),
    ("interleaved", "data: 2, pipeline: 2", 2, pipelines.interleaved, None),
    ("no_stages", "data: 4", 1, pipelines.one_f_one_b, 1),
    ("another_order", "data: 2, pipeline: 2", 1, pipelines.one_f_one_b_from_the_last, None)])
def test_trains_as_one_rank(folder, expected, name, llm, chunks, schedule, in_flight):
    job = write_job(folder, name, llm, chunks)
    with jobs.worker(job) as endpoint:
        answers = ranks.run(7, train, endpoint, jobs.vocabulary(), schedule, chunks, in_flight)
    assert max(steps[0][2] for steps in answers) >= 2
    check(answers, expected)
    check_pairs(answers, {"data: 4": {0, 1, 2, 3}, "data: 1, pipeline: 4": {0}}.get(llm, {0, 1}))


def check_pairs(answers, leaders):
    """Rows move between the ranks of an encoder and the first stages of the llm alone."""
    for rank, steps in enumerate(answers):
        for phase, encoders in (("vision", {4, 5}), ("audio", {5, 6})):
            met = {peer for *_, peers in steps for peer in peers[phase]}
            assert met <= (leaders if rank in encoders else encoders if rank in leaders else set()), (rank, phase)
    assert any(peers["vision"] for *_, peers in answers[4])


def test_members_share_rows_and_add_gradients(folder, expected):
    job = write_job(folder, "members", "tensor: 2, context: 2, data: 1", vision="tensor: 2, data: 1")
    with jobs.worker(job) as endpoint:
        check(ranks.run(7, train, endpoint, jobs.vocabulary(), pipelines.one_f_one_b, 1, None), expected)


def message_of(call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        return str(error)
    return None


def misuse(rank, endpoint):
    """Messages by what was done wrong; the step then ends on every rank."""
    said = {}
    with evenkeel.Loader(endpoint, rank=rank, num_steps=1) as loader:
        said["no phase"] = message_of(apart.Link, loader, "depth", toy.WIDTH)
        link = apart.Link(loader, "vision", (2, 3), torch.float64)
        for step in loader:
            with link.step(step) as rows:
                said["damaged"] = message_of(rows.damaged, 0) if rank in (4, 6) else None
                if link.encodes:
                    route = step.routes["vision"][0]
                    wrong = torch.zeros(route.rows_in, 3, 2, dtype=torch.float64)
                    said["shape"] = message_of(rows.send, 0, wrong)
                    for number, route in enumerate(step.routes["vision"]):
                        rows.send(number, torch.ones(route.rows_in, 2, 3, dtype=torch.float64))
                    said["gradients"] = sum(float(rows.gradient(number).abs().sum()) for number in range(len(rows)))
                elif link.takes:
                    number = max(range(len(rows)), key=lambda i: step.routes["vision"][i].rows_out)
                    took = rows.receive(number)  # the others are never received, and this one has no backward pass
                    said["sum"] = (took.detach().sum().item(), 6 * step.routes["vision"][number].rows_out)
                    said["again"] = message_of(rows.receive, number)
                else:
                    said["receive"] = message_of(rows.receive, 0)
    return said


def test_misuse_is_said_and_unused_rows_hang_nobody(folder):
    job = write_job(folder, "misuse", "data: 2, pipeline: 2")
    with jobs.worker(job) as endpoint:
        said = ranks.run(7, misuse, endpoint)
    assert said[0]["no phase"] == "the job has no phase 'depth'; its phases are llm, vision, audio"
    assert "rows of (2, 3) torch.float64 for phase vision; given are" in said[4]["shape"]
    assert "know of damaged items" in said[4]["damaged"] and "know of damaged items" in said[6]["damaged"]
    assert said[4]["gradients"] == said[5]["gradients"] == 0
    assert "received already" in said[0]["again"] and "this rank is not in it" in said[2]["receive"]
    assert said[0]["sum"][0] == said[0]["sum"][1] > 0


def refused(rank, endpoint):
    with evenkeel.Loader(endpoint, rank=rank, num_steps=1) as loader:
        return message_of(apart.Link, loader, "vision", toy.WIDTH)


@pytest.mark.parametrize("runs,ranks_of_vision,text", [
    ("once_per_step", "4-5", "phase vision runs once per step"),
    ("once_per_microbatch", "3-4", "rank 3 computes both vision and the llm")])
def test_other_phases_are_refused(folder, runs, ranks_of_vision, text):
    job = write_job(folder, f"refused-{runs}", "data: 4", runs=runs)
    job.write_text(job.read_text().replace('vision, ranks: "4-5"', f'vision, ranks: "{ranks_of_vision}"'))
    with jobs.worker(job) as endpoint:
        assert all(text in said for said in ranks.run(7, refused, endpoint))
