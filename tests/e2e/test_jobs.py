"""Every form of job: budgets, orders, batchings, microbatches, wire forms, topologies. The promises hold in each."""

import collections
import json

import numpy as np
import pytest

import harness

pytest.importorskip("evenkeel")

DATASETS = [("a", "a-{000..002}.tar", 2), ("b", "b-{000..001}.tar", 1)]
TOTAL = [90, 38]
STEPS = 3


def write_job(mixed, name, phases=None, order=None, where=None, **options):
    """A job next to the shards, with the shared index. `phases`: the lines of all three."""
    job = harness.write_job(mixed / f"job-{name}.yaml", DATASETS, **options)
    text = job.read_text()
    if phases is not None:
        text = text[:text.index("phases:")] + "phases:\n" + "".join(f"  - {{{line}}}\n" for line in phases)
    if where is not None:
        text = text.replace("weight: 2", f"weight: 2, where: {where}")
    if order is not None:
        text += f"order: {order}\n"
    job.write_text(text)
    harness.run("index", "--job", job, "--max-excluded", "100%")
    return job


def phases(llm="", vision="", audio="", llm_ranks="0-3", vision_ranks="0-3", audio_ranks="0-3"):
    return [f"name: {name}, ranks: \"{ranks}\"" + (f", {more}" if more else "")
            for name, ranks, more in (("llm", llm_ranks, llm), ("vision", vision_ranks, vision),
                                      ("audio", audio_ranks, audio))]


FORMS = {
    "token budget": dict(batch="{llm_tokens: 2000, window_samples: 64}"),
    "token budget, several microbatches": dict(batch="{llm_tokens: 3000}", microbatch="{capacity_tokens: 512}"),
    "blocked": dict(order="{shuffle: blocked, block_samples: 8, window_blocks: 4}"),
    "not shuffled": dict(order="{shuffle: none}"),
    "padded llm": dict(phases=phases(llm="batching: padded, algorithm: greedy_padded"),
                       microbatch="{capacity_tokens: 2048}"),
    "padded audio": dict(phases=phases(audio="batching: padded, algorithm: greedy_padded")),
    "pad_to and align": dict(microbatch="{capacity_tokens: 512, pad_to: 512, align: 16}"),
    "min_items": dict(phases=phases(vision="min_items: 2", audio="min_items: 1"), batch="{samples: 4}"),
    "once per microbatch": dict(runs="once_per_microbatch", microbatch="{capacity_tokens: 400}"),
    "capacity": dict(phases=phases(vision="runs: once_per_microbatch, capacity: 1700"), batch="{samples: 64}"),
    "pipeline": dict(phases=phases(vision="runs: once_per_microbatch, min_items: 1"),
                     microbatch="{capacity_tokens: 512, count_multiple: 4}"),
    "encoders apart": dict(phases=phases(vision_ranks="4-5", audio_ranks="6")),
    "encoders on some": dict(phases=phases(vision_ranks="1,3,9", audio_ranks="0")),
    "unbalanced": dict(phases=phases(*["algorithm: none"] * 3)),
    "quadratic": dict(phases=phases(llm="cost: {linear: 1, quadratic: 0.001}", vision="cost: {constant: 50}",
                                    audio="algorithm: greedy_packed")),
    "a part": dict(extra="splits: [{name: train, share: 0.7}, {name: eval, share: 0.3}]\n", where="{llm_tokens: ..300}"),
    "f32": dict(wire="f32"),
    "bf16": dict(wire="bf16"),
}


def ranks_of(job):
    plan = json.loads(harness.run("plan", "--job", job, "--step", 0, "--json").stdout)
    return sorted({rank for phase in plan["phases"] for rank in phase["ranks"]})


def check_step(number, steps, plan, form):
    """What all ranks received for one step against its plan."""
    samples = collections.Counter()
    rows = collections.Counter()
    loss_tokens = 0
    for step in steps.values():
        assert step.index == number and step.num_samples == plan["num_samples"]
        assert step.loss_tokens == plan["loss_tokens"]
        assert len(step.microbatches) == plan["num_microbatches"]
        for microbatch in step.microbatches:
            if "labels" not in microbatch:
                continue
            samples.update(map(tuple, microbatch["sample_ids"].tolist()))
            ids, labels = microbatch["input_ids"], microbatch["labels"]
            assert ids.shape == labels.shape
            if form == "pad_to and align":
                assert ids.size == 512
            if form.startswith("padded llm"):
                loss_tokens += int((labels[:, 1:] != -100).sum())
                assert ids.ndim == 2 and len(ids) == len(microbatch["sample_ids"])
            else:
                ends = microbatch["cu_seqlens"]
                assert ends[0] == 0 and (np.diff(ends) >= 0).all() and ends[-1] <= ids.size
                if form == "pad_to and align":
                    assert (np.diff(ends) % 16 == 0).all()
                flat = labels.reshape(-1)
                loss_tokens += sum(int((flat[begin + 1:end] != -100).sum()) for begin, end in zip(ends, ends[1:]))
    planned = collections.Counter((one["dataset"], one["epoch"], one["index"]) for one in plan["samples"])
    assert samples == planned and max(planned.values()) == 1
    assert loss_tokens == plan["loss_tokens"]
    for step in steps.values():
        for phase, route in step.routes.items():
            for one in route if isinstance(route, list) else [route]:
                rows[phase, "out"] += one.rows_out
        for phase in ("vision", "audio"):
            fields = [step.encoders.get(phase, {}), *[m.encoders.get(phase, {}) for m in step.microbatches]]
            for one in fields:
                if "item_rows" in one:
                    rows[phase, "in"] += int(one["item_rows"].sum())
    items = [item for sample in plan["samples"] for item in sample["items"]]
    dummies = collections.Counter()
    for item in plan["dummies"]:
        dummies["audio" if item["medium"] == "audio" else "vision"] += item["output_rows"]
    for phase in ("vision", "audio"):
        planned_rows = sum(item["output_rows"] for item in items if (item["medium"] == "audio") == (phase == "audio"))
        assert rows[phase, "out"] == planned_rows, phase
        assert rows[phase, "in"] == planned_rows + dummies[phase], phase


def assert_form_is_met(form, plans):
    """That the data make the form do what it is tested for."""
    if "microbatch" in form or form == "pipeline":
        assert all(plan["num_microbatches"] > 1 for plan in plans)
    if form == "pipeline":
        assert all(plan["num_microbatches"] % 4 == 0 for plan in plans)
    if form in ("min_items", "pipeline"):
        assert any(plan["dummies"] for plan in plans)
    if form == "capacity":
        for plan in plans:
            assert plan["num_microbatches"] > 1
            held = collections.Counter()
            for item in (item for sample in plan["samples"] for item in sample["items"] if item["medium"] != "audio"):
                held[item["place"]["rank"], item["place"]["microbatch"]] += item["cost_length"]
            assert max(held.values()) <= 1700
    if form == "encoders apart":
        assert all(route["rows_local"] == 0 for plan in plans for route in plan["routes"])


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_job_keeps_the_promises(mixed, form):
    job = write_job(mixed, form.replace(" ", "-").replace(",", ""), **FORMS[form])
    ranks = ranks_of(job)
    ranks_text = ",".join(map(str, ranks))
    plans = [json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout) for step in range(2)]
    assert_form_is_met(form, plans)
    with harness.Fleet(job, 2, "--threads", 2, *harness.TRUSTED) as fleet:
        one, other = (worker.address for worker in fleet.workers)
        first = harness.fetch(one, job, "--ranks", ranks_text, "--steps", STEPS, "--transport", "ucx", *harness.TRUSTED)
        second = harness.fetch(other, job, "--ranks", ranks_text, "--steps", STEPS, "--transport", "grpc")
        loaders = {rank: iter(harness.alone(fleet.endpoints, rank=rank, num_steps=2)) for rank in ranks}
        digests = []
        for number in range(2):
            steps = {rank: next(loader) for rank, loader in loaders.items()}
            digests += [f"{number} {rank} {steps[rank].digest()}" for rank in ranks]
            check_step(number, steps, plans[number], form)
    assert first.steps == second.steps and first.chain == second.chain
    assert len(first.steps) == STEPS * len(ranks)
    assert first.steps[:2 * len(ranks)] == digests, "Python receives what fetch receives"


def llm_tokens(plan):
    return sum(sample["llm_length"] for sample in plan["samples"])


def test_a_token_budget_is_used_well_and_never_exceeded(mixed):
    job = write_job(mixed, "budget", batch="{llm_tokens: 4000}")
    plans = [json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout) for step in range(8)]
    tokens = [llm_tokens(plan) for plan in plans]
    assert max(tokens) <= 4000
    assert sum(tokens) > 0.8 * 4000 * len(tokens), tokens


def drawn(job, split, steps=40):
    """Names of what the steps draw, and the lengths of the first dataset's samples."""
    names, lengths = [], []
    for step in range(steps):
        plan = json.loads(harness.run("plan", "--job", job, "--step", step, "--split", split, "--json").stdout)
        for sample in plan["samples"]:
            if sample["epoch"] == 0:
                names.append(sample["name"])
                lengths += [sample["llm_length"]] if sample["dataset"] == 0 else []
    return names, lengths


def test_splits_divide_what_meets_the_conditions(mixed):
    job = write_job(mixed, "part", **FORMS["a part"], batch="{samples: 8}")
    counted = {(one["dataset"], one["split"]): one for one in json.loads(harness.run(
        "index", "--job", job, "--max-excluded", "100%", "--json").stdout)["drawn"]}
    train, lengths = drawn(job, "train")
    evaluated, more = drawn(job, "eval")
    assert not set(train) & set(evaluated)
    for names, split in ((train, "train"), (evaluated, "eval")):
        assert len(set(names)) == len(names) == sum(counted[dataset, split]["samples"] for dataset in "ab")
    left_out = {one["left_out_by_where"] for (dataset, _), one in counted.items() if dataset == "a"}
    assert len(left_out) == 1 and len(train) + len(evaluated) == sum(TOTAL) - left_out.pop()
    assert max(lengths + more) <= 300
    done = harness.run("plan", "--job", job, "--step", 0, "--split", "test", check=False)
    assert done.returncode == 2 and "there is no split 'test'; nearest is" in done.stderr


@pytest.mark.parametrize("form", ["token budget", "blocked", "not shuffled"])
def test_every_sample_comes_once_an_epoch(mixed, form):
    job = write_job(mixed, "epochs-" + form.replace(" ", "-"), **FORMS[form])
    seen = collections.defaultdict(list)
    step = 0
    while max((epoch for _, epoch in seen), default=0) < 2:
        plan = json.loads(harness.run("plan", "--job", job, "--step", step, "--json").stdout)
        for one in plan["samples"]:
            seen[one["dataset"], one["epoch"]].append(one["index"])
        step += 1
        assert step < 100
    for dataset, total in enumerate(TOTAL):
        last = max(epoch for own, epoch in seen if own == dataset)
        for epoch in range(last):
            assert sorted(seen[dataset, epoch]) == list(range(total)), (dataset, epoch)
            if form == "not shuffled" and len(seen) == 1:
                assert seen[dataset, epoch] == list(range(total))


def pixels(job, rank=0):
    with harness.Fleet(job, 1) as fleet:
        step = next(iter(harness.alone(fleet.endpoints, rank=rank, num_steps=1)))
        out = {}
        for name in ("pixel_values", "pixel_values_videos"):
            if name in step.encoders["vision"]:
                out[name] = (np.array(step.encoders["vision"].wire(name)), np.array(step.encoders["vision"][name]))
    return out


def test_u8_expands_to_f32_bit_for_bit_and_bf16_rounds_it(mixed):
    u8, f32, bf16 = [pixels(write_job(mixed, f"wire-{wire}", wire=wire)) for wire in ("u8", "f32", "bf16")]
    assert "pixel_values" in u8 and set(u8) == set(f32) == set(bf16)
    for name, (wire, expanded) in u8.items():
        exact = f32[name][1]
        assert wire.dtype == np.uint8 and expanded.dtype == exact.dtype == np.float32
        assert (expanded.view(np.uint32) == exact.view(np.uint32)).all()
        assert wire.size * (2 if name == "pixel_values" else 1) == exact.size
        bits = exact.view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to nearest, ties to even
        assert (bf16[name][0] == rounded).all()


def test_a_rank_that_is_in_no_phase_is_refused(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        done = harness.run("fetch", "--endpoints", fleet.endpoints, "--ranks", "77", "--steps", 1, "--step-timeout", 5,
                           check=False)
    assert done.returncode in (1, 2) and "77" in done.stderr, done.stderr
