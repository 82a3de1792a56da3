"""Batches of the trainers' files against those that the trainers' own collators made of the same samples, field by field:
the goldens of tests/golden/make_batch_goldens.py. They are made again where the trainer is installed."""

import importlib.util
import os
import sys

import numpy as np
import pytest

import jobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

import checkpoints  # noqa: E402
import golden_batches as golden  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
PIXELS = "resampler: pil13"  # ms-swift resizes with Pillow, in qwen-vl-utils


@pytest.fixture(scope="module")
def step_of(tmp_path_factory):
    """(the step of a set, a model for it), for a trainer's labels and options of the processor."""
    import evenkeel
    made = {}

    def make(trainer, name, family, options="", phases=("llm", "vision"), order=None):
        missing = golden.missing(name)
        if missing:
            pytest.skip(f"{golden.PHOTOS} has no {missing[0]}")
        if (trainer, name, order) not in made:
            folder = tmp_path_factory.mktemp(f"{trainer}-{name}")
            checkpoint = checkpoints.write(folder / "model", family)
            golden.write_checkpoint(checkpoint, golden.TEMPLATES[trainer])
            weights = ", labels: data, loss_weights: data" if name == "weights" else ""
            job = golden.write_job(folder, name, f'{{folder: "{checkpoint}"{weights}{options}}}', phases, order)
            with jobs.worker(job) as endpoint:
                step, = evenkeel.Loader(endpoint, rank=0, num_steps=1)
            assert len(step.microbatches) == 1
            auto = transformers.AutoModelForCausalLM if family == "qwen2" else transformers.AutoModelForImageTextToText
            made[trainer, name, order] = step, auto.from_pretrained(checkpoint, dtype=torch.float32)
        return made[trainer, name, order]

    return make


def differing(ours, theirs):
    """{name: positions} of fields that differ; None where only one batch has the field, or types or shapes differ."""
    found = {}
    for name in sorted(set(ours) | set(theirs)):
        given, wanted = golden.kept(name, ours[name]) if name in ours else {}, theirs.get(name, {})
        if given == wanted:
            continue
        alike = "values" in given and all(given[key] == wanted.get(key) for key in ("dtype", "shape"))
        found[name] = np.flatnonzero(np.not_equal(given["values"], wanted["values"])).tolist() if alike else None
    return found


def turn_ends(fields):
    """(positions of the special tokens that end trained turns, of the line breaks after them), by a trainer's labels."""
    end = checkpoints.tokens()["<|im_end|>"]
    ids, labels = fields["input_ids"]["values"], fields["labels"]["values"]
    ends = [i for i, token in enumerate(ids) if token == end and labels[i] == end]
    return ends, [i + 1 for i in ends if labels[i + 1] != -100]


@pytest.mark.parametrize("name", list(golden.SETS))
def test_a_batch_is_that_of_ms_swift(step_of, name):
    from evenkeel import inputs
    theirs = golden.read(f"swift-{name}")["fields"]
    step, model = step_of("swift", name, "qwen2_5_vl", f", {PIXELS}")
    ours = inputs.of(step, 0, model, varlen=True)  # what evenkeel.swift.Trainer gives to compute_loss, with loss_scale
    assert not ours.pop("use_cache")
    # ms-swift has positions in two fields, of which its model makes one; and its lengths are tensors.
    positions = ours.pop("position_ids")
    ours.update(text_position_ids=positions[0], position_ids=positions[1:])
    for length in ("max_length_q", "max_length_k"):
        assert theirs.pop(length)["values"] == [ours.pop(length)]
    if name != "weights":
        assert differing(ours, theirs) == {}
        return
    # What ends a turn has the weight of the turn, which ms-swift gives the text alone.
    ours["loss_scale"] = inputs.loss_weights(step, 0, ours["labels"])
    ends, breaks = turn_ends(theirs)
    weighted = [i for i in sorted(ends + breaks) if ours["loss_scale"][0, i] != 1]
    assert len(weighted) == 4 and len(breaks) == 4
    assert differing(ours, theirs) == {"loss_scale": weighted}


def test_a_batch_is_that_of_llama_factory(step_of):
    import evenkeel.llamafactory
    theirs = golden.read("llamafactory-weights")["fields"]
    step, model = step_of("llamafactory", "weights", "qwen2", phases=("llm",))
    ours, = next(evenkeel.llamafactory.BatchGenerator(iter([step]), model))
    # With a mask transformers looks for packed documents under flash attention alone, so ours has none.
    assert set(theirs.pop("attention_mask")["values"]) == {1}
    assert differing(ours, theirs) == {}


@pytest.mark.parametrize("name", list(golden.PACKED))
def test_a_batch_is_that_of_neat_packing(step_of, name):
    """LLaMA-Factory v0, which takes pictures. Its template trains what ms-swift's does."""
    import evenkeel.llamafactory
    theirs = golden.read(f"neat-packing-{name}")["fields"]
    step, model = step_of("swift", name, "qwen2_5_vl", order=golden.PACKED[name])
    ours, = next(evenkeel.llamafactory.BatchGenerator(iter([step]), model))
    # v1 wants weights; the types of tokens are in the positions already, for both.
    assert torch.equal(ours.pop("loss_weights"), (ours["labels"] != -100).float())
    ours.pop("mm_token_type_ids", None)
    # Its first row is that of time, as the second. Both rows begin at 0 in each document, which is what transformers looks for.
    positions = np.reshape(theirs["position_ids"]["values"], theirs["position_ids"]["shape"])
    assert np.array_equal(positions[0], positions[1])
    positions[0] = ours["position_ids"][0]
    theirs["position_ids"]["values"] = positions.reshape(-1).tolist()
    assert differing(ours, theirs) == {}


def made_again(trainer):
    if importlib.util.find_spec(trainer) is None:
        pytest.skip(f"{trainer} is not installed")
    sys.path.insert(0, str(jobs.GOLDEN))
    import make_batch_goldens
    return make_batch_goldens


def compare(fields, name):
    assert differing(fields, golden.read(name)["fields"]) == {}


def test_llama_factory_still_makes_its_golden():
    compare(made_again("llamafactory").llamafactory("weights"), "llamafactory-weights")


def test_ms_swift_still_makes_its_goldens():
    swift = made_again("swift").Swift()
    for name in golden.SETS:
        if not golden.missing(name):
            compare(swift.batch(name), f"swift-{name}")
