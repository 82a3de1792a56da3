"""A generator learns the pictures in turns of the assistant from the llm's hidden states: on the llm's ranks, or on ranks of its
own next to an llm with and without a pipeline, it trains as on one rank."""

import contextlib
import json
import os
import random
import subprocess

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import evenkeel
import evenkeel.torch
import jobs
import ranks
import toy
from evenkeel import apart, inputs, packing

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

STEPS = 2
SAMPLES = 12
TOTAL = 24
CAPACITY = 700  # tokens a microbatch
DAMAGED_TARGETS, DAMAGED_INPUTS = (4, 7), (9, 17)  # samples with a picture that only its decoding tells is damaged


def turn(role, *content):
    return {"role": role, "content": [{"type": "image", "image": one} if one.endswith(".png") else {"type": "text", "text": one}
                                      for one in content]}


def write_shard(path):
    """Chats that ask for pictures, about pictures, or both; and one without a chat, whose picture is no target."""
    rng = random.Random(5)
    with contextlib.closing(jobs.media.Shard(path)) as shard:
        for i in range(TOTAL):
            shard.add(f"{i:03d}.one.png", jobs.png(rng, damaged=i in DAMAGED_INPUTS))
            shard.add(f"{i:03d}.two.png", jobs.png(rng, damaged=i in DAMAGED_TARGETS))
            if i % 4 == 0:
                turns = [turn("user", "one.png", jobs.text(rng)), turn("assistant", jobs.text(rng), "two.png")]
            elif i % 4 == 1:
                turns = [turn("user", "one.png", jobs.text(rng)), turn("assistant", "two.png", jobs.text(rng))]
            elif i % 4 == 2:
                turns = [turn("user", "one.png", "two.png", jobs.text(rng)), turn("assistant", jobs.text(rng))]
            else:
                turns = [turn("user", jobs.text(rng)), turn("assistant", "one.png", "two.png", jobs.text(rng)),
                         turn("user", jobs.text(rng)), turn("assistant", jobs.text(rng))]
            shard.add(f"{i:03d}.json", json.dumps({"messages": turns}).encode())
        shard.add("900.png", jobs.png(rng, False))
        shard.add("900.txt", b"a caption")


def write_job(folder, name, llm="0", vision=None, draw=None, runs="once_per_microbatch", rest="", draw_media="[image]"):
    path = folder / f"{name}.yaml"
    path.write_text(f"""\
name: drawing
seed: 5
index: index
datasets: [{{name: chats, shards: ["chats.tar"]}}]
processor:
  vision: {jobs.GOLDEN}/processor/qwen2-vl
  tokenizer: {jobs.GOLDEN}/tokenizer
  max_pixels: 12544
batch: {{samples: {SAMPLES}}}
limits: {{max_llm_length: {CAPACITY}}}
topology: {{ranks_per_node: 2}}
microbatch: {{capacity_tokens: {CAPACITY if name != "one" else 0}}}
phases:
  - {{name: llm, ranks: {llm}}}
  - {{name: vision, ranks: {vision or llm}, runs: {runs}}}
  - {{name: draw, kind: generator, media: {draw_media}, processor: "{jobs.GOLDEN}/processor/qwen2-vl", ranks: {draw or llm},
     runs: {runs}, min_items: 1}}
{rest}""")
    return path


class Draw(torch.nn.Module):
    """Conditioning rows [n, WIDTH] -> merged patches [n, 4 * 1176]."""

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Linear(toy.WIDTH, 4 * 1176)

    def forward(self, fields, rows, counts, step):
        """The targets' share of the step's loss: squared errors of those that count."""
        if not len(rows):
            return (self.patches(rows)).sum()
        targets = evenkeel.torch.pixels(fields).double().reshape(-1, 4 * 1176)
        weights = torch.repeat_interleave(counts.double(), torch.from_numpy(np.array(fields["item_rows"])))
        return (weights[:, None] * (self.patches(rows) - targets) ** 2).sum() / 1176 / step.num_samples


class Llm(toy.Llm):
    def hidden(self, models, microbatch, rows):
        hidden = self.embed(torch.from_numpy(np.array(microbatch["input_ids"]))[0])
        return evenkeel.torch.scatter_rows(hidden, microbatch, "vision", rows)

    def attend(self, hidden, microbatch):
        document = torch.from_numpy(packing.document_ids(microbatch))[0]
        order = torch.arange(len(document))
        allowed = (document[:, None] == document[None]) & (order[:, None] >= order[None])
        scores = self.query(hidden) @ self.key(hidden).T / toy.WIDTH ** 0.5
        return torch.tanh(hidden + torch.softmax(scores.masked_fill(~allowed, float("-inf")), 1) @ self.value(hidden))

    def text_loss(self, hidden, labels, step):
        return F.cross_entropy(self.head(hidden)[:-1], labels[0, 1:], ignore_index=-100, reduction="sum") / step.loss_tokens


def make_models(vocabulary):
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"vision": toy.Vision(), "llm": Llm(vocabulary), "draw": Draw()}).double()


def summed(loss, models):
    total = torch.tensor(float(loss), dtype=torch.float64)
    dist.all_reduce(total)
    gradients = {}
    for name, one in models.named_parameters():
        gradients[name] = torch.zeros_like(one) if one.grad is None else one.grad.clone()
        dist.all_reduce(gradients[name])
    return total.item(), {name: one.numpy() for name, one in gradients.items()}


def exchanged_once_per_step(models, step):
    labels = evenkeel.torch.mask_labels(step)
    rows = evenkeel.torch.exchange(models["vision"](step.encoders["vision"]), step.routes["vision"])
    hidden, loss = [], torch.zeros((), dtype=torch.float64)
    for i, (microbatch, target) in enumerate(zip(step.microbatches, labels)):
        own = rows[slice(*step.routes["vision"].microbatch_rows(i))]
        out = models["llm"].attend(models["llm"].hidden(models, microbatch, own), microbatch)
        loss = loss + models["llm"].text_loss(out, target, step)
        hidden.append(evenkeel.torch.gather_rows(out, microbatch, step.generators["draw"]))
        begin, end = step.routes["draw"].microbatch_rows(i)
        assert len(hidden[-1]) == end - begin
    given = evenkeel.torch.exchange(torch.cat(hidden), step.routes["draw"])
    counts = evenkeel.torch.mask_targets(step, "draw")
    loss = loss + models["draw"](step.targets["draw"], given, counts, step)
    loss.backward()
    return loss.item(), [counts]


def exchanged_once_per_microbatch(models, step):
    labels, counts = evenkeel.torch.mask_labels(step), evenkeel.torch.mask_targets(step, "draw")
    total = 0.0
    for i, (microbatch, target) in enumerate(zip(step.microbatches, labels)):
        rows = evenkeel.torch.exchange(models["vision"](microbatch.encoders["vision"]), step.routes["vision"][i])
        out = models["llm"].attend(models["llm"].hidden(models, microbatch, rows), microbatch)
        given = evenkeel.torch.exchange(evenkeel.torch.gather_rows(out, microbatch, ("image",)), step.routes["draw"][i])
        loss = models["llm"].text_loss(out, target, step) + models["draw"](microbatch.targets["draw"], given, counts[i], step)
        loss.backward()
        total += loss.item()
    return total, counts


def train(rank, endpoint, vocabulary):
    """Per step: loss and gradients summed over ranks, how many targets count, and rows that went to another rank."""
    models, out = make_models(vocabulary), []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=STEPS) as loader:
        assert loader.generators == {"draw": ("image",)}
        for step in loader:
            models.zero_grad()
            run = exchanged_once_per_microbatch if isinstance(step.routes["draw"], list) else exchanged_once_per_step
            loss, counts = run(models, step)
            number = torch.tensor(sum(int(one.sum()) for one in counts))
            dist.all_reduce(number)
            routes = step.routes["draw"] if isinstance(step.routes["draw"], list) else [step.routes["draw"]]
            moved = sum(int(one.send_splits.sum() - one.send_splits[one.ranks.index(rank)]) for one in routes)
            out.append((*summed(loss, models), number.item(), moved, len(step.microbatches)))
    return out


def train_apart(rank, endpoint, vocabulary):
    """The same, with the generator, and with a pipeline also the encoder, on ranks of their own."""
    models, out = make_models(vocabulary), []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=STEPS) as loader:
        links = {phase: apart.Link(loader, phase, toy.WIDTH, torch.float64) for phase in ("vision", "draw")}
        for step in loader:
            models.zero_grad()
            rows = {phase: link.step(step) for phase, link in links.items()}
            loss, counted = 0.0, []

            def draw(number, given):
                counted.append(rows["draw"].counts(number))
                losses.append(models["draw"](step.microbatches[number].targets["draw"], given, counted[-1], step))
                return losses[-1]
            losses = []
            if links["vision"].encodes:
                rows["vision"].encode(lambda number: models["vision"](step.microbatches[number].encoders["vision"]))
            if loader.topology is not None:
                loss = run_stages(models, step, loader.topology, rows)
            if links["draw"].takes:
                rows["draw"].generate(draw)
                loss = sum(one.item() for one in losses)
            for one in rows.values():
                one.finish()
            if links["draw"].takes and not links["draw"].speaks:  # a member that computes the same as another
                models.zero_grad()
                loss, counted = 0.0, []
            number = torch.tensor(sum(int(one.sum()) for one in counted))
            dist.all_reduce(number)
            moved = sum(int(one.send_splits.sum()) for one in step.routes.get("draw", []))
            out.append((*summed(loss, models), number.item(), moved, len(step.microbatches)))
    return out


def run_stages(models, step, place, rows):
    """One microbatch after the other: the first of two stages embeds, the last one attends; or one stage does both."""
    loss, last = 0.0, place.stage == place.pipeline - 1
    labels = evenkeel.torch.mask_labels(step, links=[rows["vision"]]) if last else None
    other = place.rank_at(**{**place.coordinates(place.rank), "pipeline": 1 - place.stage}) if place.pipeline == 2 else None
    for number, microbatch in enumerate(step.microbatches):
        tokens = int(microbatch["cu_seqlens"][-1])
        if place.stage == 0:
            hidden = models["llm"].hidden(models, microbatch, rows["vision"].receive(number))
        else:
            hidden = torch.empty(tokens, toy.WIDTH, dtype=torch.float64)
            dist.recv(hidden, other)
            hidden.requires_grad_()
        if not last:
            dist.send(hidden.detach(), other)
            gradient = torch.empty_like(hidden)
            dist.recv(gradient, other)
            hidden.backward(gradient)
            continue
        out = models["llm"].attend(hidden, microbatch)
        own = models["llm"].text_loss(out, labels[number], step)
        given = evenkeel.torch.gather_rows(out, microbatch, step.generators["draw"])
        (own + rows["draw"].condition(number, given)).backward()
        loss += own.item()
        if place.stage > 0:
            dist.send(hidden.grad, other)
    return loss


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generator")
    write_shard(folder / "chats.tar")
    jobs.make_index(write_job(folder, "one", runs="once_per_step"))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    with jobs.worker(folder / "one.yaml") as endpoint:
        [steps] = ranks.run(1, train, endpoint, jobs.vocabulary())
    for name, gradient in steps[0][1].items():
        assert np.abs(gradient).max() > 0, name
    return steps


def check(answers, expected):
    for number, (loss, gradients, counted, *_) in enumerate(expected):
        for steps in answers:
            np.testing.assert_allclose(steps[number][0], loss, rtol=1e-10)
            assert steps[number][2] == counted
            for name, gradient in gradients.items():
                np.testing.assert_allclose(steps[number][1][name], gradient, rtol=0, atol=1e-10 * np.abs(gradient).max(),
                                           err_msg=f"step {number}, {name}")
    assert max(steps[0][4] for steps in answers) >= 2  # microbatches


@pytest.mark.parametrize("runs", ["once_per_step", "once_per_microbatch"])
def test_shared_ranks_train_as_one_rank(folder, expected, runs):
    with jobs.worker(write_job(folder, f"shared-{runs}", "0-3", runs=runs)) as endpoint:
        answers = ranks.run(4, train, endpoint, jobs.vocabulary())
    check(answers, expected)


def test_rows_move_where_the_plan_moves_targets(folder, expected):
    job = write_job(folder, "moved", "0-3", runs="once_per_microbatch")
    job.write_text(job.read_text().replace("min_items: 1", "min_items: 1, algorithm: greedy_packed"))
    with jobs.worker(job) as endpoint:
        answers = ranks.run(4, train, endpoint, jobs.vocabulary())
    check(answers, expected)
    assert sum(one[3] for steps in answers for one in steps) > 100


def test_targets_stay_with_their_samples(folder, expected):
    with jobs.worker(write_job(folder, "drop-in", "0-3", rest="balance: drop_in\n")) as endpoint:
        answers = ranks.run(4, train, endpoint, jobs.vocabulary())
    check(answers, expected)
    assert not any(one[3] for steps in answers for one in steps)


@pytest.mark.parametrize("name,llm,vision,draw", [
    ("without-stages", '0-1, mesh: {data: 2}', "2, mesh: {data: 1}", "3, mesh: {data: 1}"),
    ("two-stages", '0-1, mesh: {pipeline: 2}', "2, mesh: {data: 1}", "3, mesh: {data: 1}"),
    ("members", '0, mesh: {data: 1}', "1, mesh: {data: 1}", "2-3, mesh: {tensor: 2}")])
def test_ranks_of_its_own_train_as_one_rank(folder, expected, name, llm, vision, draw):
    with jobs.worker(write_job(folder, name, llm, vision, draw)) as endpoint:
        answers = ranks.run(4, train_apart, endpoint, jobs.vocabulary())
    check(answers, expected)
    assert sum(one[3] for steps in answers for one in steps) > 100


def seen(rank, endpoint):
    """What one rank receives: per step, types of placeholders, items of both phases and which targets count."""
    out = []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=STEPS) as loader:
        for step in loader:
            [microbatch] = step.microbatches
            types, ids = (np.asarray(microbatch[name]).reshape(-1) for name in ("mm_token_type_ids", "input_ids"))
            try:
                evenkeel.torch.mask_targets(step, "draw")
            except ValueError as error:
                early = str(error)
            evenkeel.torch.mask_labels(step)
            refusal = ""
            try:
                inputs._local_encoders(step, 0)
            except ValueError as error:
                refusal = str(error)
            out.append({
                "types": {int(kind): int((types == kind).sum()) for kind in np.unique(types)},
                "ids": {int(kind): sorted({int(one) for one in ids[types == kind]}) for kind in (1, 5)},
                "trained": int((np.asarray(microbatch["labels"]).reshape(-1)[types != 0] != -100).sum()),
                "rows": [int(np.sum(fields["item_rows"])) for fields in (step.encoders["vision"], step.targets["draw"])],
                "valid": np.array(step.targets["draw"]["item_valid"]).tolist(),
                "counts": evenkeel.torch.mask_targets(step, "draw").tolist(), "early": early, "refusal": refusal})
    return out


def test_targets_are_pictures_of_assistants(folder):
    with jobs.worker(folder / "one.yaml") as endpoint:
        [steps] = ranks.run(1, seen, endpoint)
    for step in steps:
        assert [step["types"].get(1, 0), step["types"].get(5, 0)] == step["rows"]
        assert step["ids"][1] == step["ids"][5] and len(step["ids"][1]) == 1  # the family's own placeholder
        assert step["trained"] == 0
        assert "mask_labels first" in step["early"] and "generator draw" in step["refusal"]
    valid, counts = (sum((step[name] for step in steps), []) for name in ("valid", "counts"))
    # Targets: one in samples 0 and 1 of four, two in the last of four. All 25 samples but one are drawn.
    assert len(valid) in (23, 24)
    assert valid.count(0) == len(DAMAGED_TARGETS)
    # A damaged input of the same sample: a turn of the user has it in samples 9 and 17, each with one target.
    assert counts.count(False) == len(DAMAGED_TARGETS) + len(DAMAGED_INPUTS)


SPEECH = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": 16000, "padding_value": 0.0,
          "do_normalize": True, "return_attention_mask": False}
TILES = {"image_processor_type": "CLIPImageProcessor", "crop_size": {"height": 56, "width": 56}, "do_center_crop": True,
         "size": {"shortest_edge": 56}}


@pytest.mark.parametrize("name,media,processor,text", [
    ("no-targets", "[audio]", None, "samples has a target: its targets are audio items in turns of the assistant"),
    ("no-placeholders", "[audio]", SPEECH, "phase draw: its processor has no placeholders for audio items"),
    ("other-family", "[image]", TILES, "phase draw: its processor writes image items into a sequence otherwise than")])
def test_generators_without_use_are_refused(folder, name, media, processor, text):
    given = f"{jobs.GOLDEN}/processor/qwen2-audio"
    if processor is not None:
        given = folder / f"of-{name}"
        given.mkdir()
        (given / "preprocessor_config.json").write_text(json.dumps(processor))
    job = write_job(folder, name, draw_media=media)
    job.write_text(job.read_text().replace(f'processor: "{jobs.GOLDEN}/processor/qwen2-vl"', f'processor: "{given}"')
                   .replace("index: index", f"index: index-{name}"))
    for command in (["index"], ["plan", "--step", "0"]):
        done = subprocess.run([jobs.BINARY, *command, "--job", str(job)], capture_output=True, text=True)
    assert done.returncode != 0 and text in done.stderr, done.stderr
