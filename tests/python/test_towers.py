"""Five encoder phases, two of them for the same images and two for the same sound, on four ranks: planned, served, and
their rows exchanged to where the llm needs them."""

import json
import os
import subprocess

import numpy as np
import pytest
import torch

import evenkeel
import evenkeel.torch
import jobs
import ranks

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

STEPS = 2
ENCODERS = {"vision": ("pixel_values", "image"), "clip": ("pixel_values", "image"), "dino": ("pixel_values", "image"),
            "audio": ("input_features", "audio"), "whisper": ("input_features", "audio")}


def write_processor(folder, kind, edge):
    folder.mkdir()
    config = {"image_processor_type": kind, "crop_size": {"height": edge, "width": edge}, "do_center_crop": True,
              "size": {"shortest_edge": edge}}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))


def write_whisper(folder):
    folder.mkdir()
    config = json.loads((jobs.GOLDEN / "processor" / "qwen2-audio" / "preprocessor_config.json").read_text())
    config.update(processor_class="WhisperProcessor", return_attention_mask=False)
    (folder / "preprocessor_config.json").write_text(json.dumps(config))


def write_job(folder, name, count, algorithm, runs, capacity):
    path = folder / f"{name}.yaml"
    names = f"0-{count - 1}" if count > 1 else "0"
    rest = f'ranks: "{names}", algorithm: {algorithm}, runs: {runs}, min_items: 1'
    path.write_text(f"""\
name: towers
seed: 5
index: index
datasets: [{{name: mixed, shards: ["mixed.tar"]}}]
processor:
  vision: {jobs.GOLDEN}/processor/qwen2-vl
  audio: {jobs.GOLDEN}/processor/qwen2-audio
  tokenizer: {jobs.GOLDEN}/tokenizer
  max_pixels: 12544
batch: {{samples: {jobs.SAMPLES_PER_STEP}}}
limits: {{max_llm_length: {jobs.CAPACITY}}}
topology: {{ranks_per_node: 2}}
microbatch: {{capacity_tokens: {capacity}}}
phases:
  - {{name: llm, ranks: "{names}", algorithm: {algorithm}}}
  - {{name: vision, {rest}}}
  - {{name: audio, {rest}}}
  - {{name: clip, media: [image], processor: clip, {rest}}}
  - {{name: dino, media: [image], processor: dino, cost: {{constant: 1}}, {rest}}}
  - {{name: whisper, media: [audio], processor: whisper, {rest}}}
""")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towers")
    jobs.write_shard(folder / "mixed.tar")
    write_processor(folder / "clip", "CLIPImageProcessor", 56)
    write_processor(folder / "dino", "BitImageProcessor", 28)
    write_whisper(folder / "whisper")
    jobs.make_index(write_job(folder, "one", 1, "none", "once_per_step", 0))
    return folder


def items_of(fields, name):
    """(content, output rows) of every item of a part, dummies and damaged ones included; content is a number."""
    if "item_rows" not in fields:
        return []
    rows, values = fields["item_rows"], fields[name]
    if len(values) == len(rows):
        pieces = [values[i:i + 1] for i in range(len(rows))]
    else:  # patches: as many as the item's grid has
        ends = np.cumsum(fields["image_grid_thw"].prod(axis=1))
        pieces = np.split(values, ends[:-1])
    return [(int.from_bytes(np.ascontiguousarray(piece).tobytes()[::97][:4096].ljust(8, b"\0")[:7], "little")
             + int(np.abs(piece.astype(np.float64)).sum() * 1000), int(count)) for piece, count in zip(pieces, rows)]


def tags(items):
    """int64 [rows, 2]: which item, which of its rows."""
    return torch.tensor([(content, row) for content, count in items for row in range(count)], dtype=torch.int64).view(-1, 2)


def receive(rank, endpoint):
    """Per step: {phase: (own items, tags received per llm microbatch)}, the samples of each microbatch, the loads."""
    out = []
    with evenkeel.Loader(endpoint, rank=rank, num_steps=STEPS, prefetch_bytes=256 << 20) as loader:
        for step in loader:
            phases = {}
            for phase, (name, _) in ENCODERS.items():
                if phase in step.encoders:
                    items = items_of(step.encoders[phase], name)
                    moved = evenkeel.torch.exchange(tags(items), step.routes[phase], grad=False)
                    arrived = [moved[slice(*step.routes[phase].microbatch_rows(i))].numpy()
                               for i in range(len(step.microbatches))]
                else:
                    items, arrived = [], []
                    for microbatch, route in zip(step.microbatches, step.routes[phase]):
                        mine = items_of(microbatch.encoders[phase], name)
                        arrived.append(evenkeel.torch.exchange(tags(mine), route, grad=False).numpy())
                        items += mine
                phases[phase] = (items, arrived)
            samples = [[tuple(one) for one in microbatch["sample_ids"].tolist()] for microbatch in step.microbatches]
            placeholders = [{medium: len(evenkeel.torch.placeholders(microbatch, (medium,))) for medium in ("image", "audio")}
                            for microbatch in step.microbatches]
            loads = {phase: step.loads[phase].after.imbalance for phase in step.loads}
            out.append((phases, samples, placeholders, loads))
    return out


@pytest.fixture(scope="module")
def expected(folder):
    """Per step: {phase: {sample: tags}} of one rank that balances nothing, where the order is that of the samples."""
    with jobs.worker(folder / "one.yaml") as endpoint:
        [steps] = ranks.run(1, receive, endpoint)
    out = []
    for phases, samples, _, _ in steps:
        [order] = samples
        out.append(({phase: arrived[0] for phase, (_, arrived) in phases.items()}, order))
    return out


def plan(job):
    done = subprocess.run([jobs.BINARY, "plan", "--job", str(job), "--step", "0", "--json"], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def test_a_plan_has_every_phase_in_the_order_of_the_job(folder):
    job = write_job(folder, "planned", 4, "balance_without_moving", "once_per_step", jobs.CAPACITY)
    phases = [phase["phase"] for phase in plan(job)["phases"]]
    assert phases == ["llm", "vision", "clip", "dino", "audio", "whisper"]  # images before sound


@pytest.mark.parametrize("runs", ["once_per_step", "once_per_microbatch"])
@pytest.mark.parametrize("algorithm", ["balance_without_moving", "greedy_packed"])
def test_rows_of_five_encoders_reach_the_samples_of_their_items(folder, expected, algorithm, runs):
    job = write_job(folder, f"{algorithm}-{runs}", 4, algorithm, runs, jobs.CAPACITY)
    with jobs.worker(job) as endpoint:
        per_rank = ranks.run(4, receive, endpoint)
    for number, (reference, order) in enumerate(expected):
        for phase, (_, medium) in ENCODERS.items():
            wanted = split_by_sample(reference[phase], order, phase)
            seen = []
            for rank in per_rank:
                phases, microbatches, placeholders, loads = rank[number]
                assert set(loads) == {"llm", *ENCODERS}
                for i, samples in enumerate(microbatches):
                    arrived = phases[phase][1][i]
                    rows = [np.zeros((0, 2), np.int64), *(wanted[sample] for sample in samples)]
                    assert np.array_equal(arrived, np.concatenate(rows)), (phase, number)
                    if phase in ("vision", "audio"):  # the first of their medium: the sequence has places for their rows
                        assert len(arrived) == placeholders[i][medium]
                    seen += samples
            assert sorted(seen) == sorted(order)


def split_by_sample(rows, order, phase):
    """{sample: its rows}: by the number of media that its place in the shard gives it (jobs.write_shard)."""
    begins = [i for i in range(len(rows)) if rows[i][1] == 0] + [len(rows)]
    pieces = [rows[a:b] for a, b in zip(begins, begins[1:])]
    out, at = {}, 0
    for sample in order:
        kind = sample[2] % 4
        count = {"image": (1, 0, 0, 2), "audio": (0, 1, 0, 1)}[ENCODERS[phase][1]][kind]
        out[sample] = np.concatenate(pieces[at:at + count]) if count else np.zeros((0, 2), np.int64)
        at += count
    assert at == len(pieces)
    return out
