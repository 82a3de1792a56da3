"""Packed microbatches through the forwards of transformers' models: what one sample at a time gives, on every attention
that runs on a CPU."""

import os

import numpy as np
import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="4.57")

import checkpoints  # noqa: E402
from evenkeel import inputs  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
KINDS = ("image", "text", "video", "images", "damaged", "text")
MEDIA = {1: ("pixel_values", "image_grid_thw"), 2: ("pixel_values_videos", "video_grid_thw")}


def family_steps(folder, family, num_steps=2, **job):
    """(checkpoint, steps) of one rank."""
    kinds = ("text",) if family == "qwen2" else KINDS
    if family == "qwen2_5_vl" and transformers.__version__ < "5":  # whose get_rope_index cuts seconds to whole ones
        kinds = tuple(kind for kind in kinds if kind != "video")
    checkpoint = checkpoints.write(folder / family, family)
    checkpoints.write_shard(folder / f"{family}.tar", 18, kinds, folder)
    phases = ("llm",) if family == "qwen2" else ("llm", "vision")
    path = checkpoints.write_job(folder / f"{family}.yaml", checkpoint, f"{family}.tar", 1, 9, phases=phases, **job)
    jobs.make_index(path)
    with jobs.worker(path) as endpoint:
        return checkpoint, list(evenkeel.Loader(endpoint, rank=0, num_steps=num_steps))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, known = tmp_path_factory.mktemp("inputs"), {}

    def make(family):
        if family not in known:
            known[family] = family_steps(folder, family)
        return known[family]
    return make


def load(checkpoint, attention, dtype):
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    kind = transformers.AutoModelForCausalLM if config.model_type == "qwen2" else transformers.AutoModelForImageTextToText
    return kind.from_pretrained(checkpoint, attn_implementation=attention, dtype=dtype).train()


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum")


def gradients(model):
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def packed_loss(model, step):
    model.zero_grad()
    total = 0.0
    for number in range(len(step.microbatches)):
        given = inputs.of(step, number, model)
        labels = given.pop("labels")
        loss = loss_of(model(**given).logits, labels)
        loss.backward()
        total += loss.item()
    return total, gradients(model)


def single_documents(step, number):
    """Each document with its own rows of pixels and no position_ids: the model computes those itself."""
    microbatch = step.microbatches[number]
    fields = microbatch.encoders.get("vision", {})
    at = {kind: [0, 0] for kind in MEDIA}  # items and patches used
    bounds = microbatch["cu_seqlens"].tolist()
    labels = evenkeel.torch.mask_labels(step, local=True)[number]
    for begin, end in zip(bounds, bounds[1:]):
        types = microbatch["mm_token_type_ids"][:, begin:end]
        document = {"input_ids": torch.from_numpy(microbatch["input_ids"][:, begin:end]), "labels": labels[:, begin:end],
                    "mm_token_type_ids": torch.from_numpy(types)}
        document["attention_mask"] = torch.ones_like(document["input_ids"])
        for kind, (pixels, grid) in MEDIA.items():
            rows, item, patch = int((types == kind).sum()), *at[kind]
            grids = []
            while rows > 0:
                grids.append(fields[grid][item + len(grids)])
                rows -= int(grids[-1].prod()) // 4
            assert rows == 0
            if grids:
                patches = int(np.prod(grids, 1).sum())
                document[pixels] = torch.from_numpy(fields[pixels][patch:patch + patches])
                document[grid] = torch.from_numpy(np.stack(grids))
                if kind == 2 and "second_per_grid_ts" in fields:
                    document["second_per_grid_ts"] = torch.from_numpy(fields["second_per_grid_ts"][item:item + len(grids)])
                at[kind] = [item + len(grids), patch + patches]
        yield document


def single_loss(model, step):
    model.zero_grad()
    total, documents = 0.0, 0
    taken = set(inputs.forward_names(model))
    dtype = next(model.parameters()).dtype
    for number in range(len(step.microbatches)):
        for document in single_documents(step, number):
            labels = document.pop("labels")
            given = {name: value.to(dtype) if value.is_floating_point() and "pixel" in name else value
                     for name, value in document.items() if name in taken}
            loss = loss_of(model(**given, use_cache=False).logits, labels)
            loss.backward()
            total, documents = total + loss.item(), documents + 1
    assert documents > len(step.microbatches), "documents are packed"
    return total, gradients(model)


@pytest.mark.parametrize("attention,dtype,tolerance", [("sdpa", torch.float64, 1e-9), ("eager", torch.float64, 1e-5),
                                                       ("sdpa", torch.float32, 1e-4)])
@pytest.mark.parametrize("family", list(checkpoints.FAMILIES))
def test_packed_documents_train_as_one_sample_at_a_time(made, family, attention, dtype, tolerance):
    checkpoint, steps = made(family)
    model = load(checkpoint, attention, dtype)
    for step in steps:
        packed, expected = packed_loss(model, step), single_loss(model, step)
        assert packed[0] == pytest.approx(expected[0], rel=tolerance)
        assert packed[1].keys() == expected[1].keys()
        for name, gradient in expected[1].items():
            assert (packed[1][name] - gradient).abs().max() <= tolerance * gradient.abs().max().clamp_min(1e-6) * 10, name


def test_three_rows_of_positions_would_mix_documents(made):
    """The reason for the fourth row: without it the same batch has another loss, and nothing complains."""
    checkpoint, [step, _] = made("qwen2_5_vl")
    model = load(checkpoint, "sdpa", torch.float64)
    given = inputs.of(step, 0, model)
    labels, right = given.pop("labels"), model(**given).logits
    assert given["position_ids"].shape[0] == 4
    wrong = model(**{**given, "position_ids": given["position_ids"][1:]}).logits
    assert abs(loss_of(right, labels) - loss_of(wrong, labels)) > 1e-6 * abs(loss_of(right, labels))


def test_the_models_own_loss_is_the_sum_over_the_steps_tokens(made):
    checkpoint, [step, _] = made("qwen2_vl")
    model = load(checkpoint, "sdpa", torch.float32)
    total = sum(model(**inputs.of(step, number, model), num_items_in_batch=step.loss_tokens).loss.item()
                for number in range(len(step.microbatches)))
    assert total == pytest.approx(single_loss(model, step)[0] / step.loss_tokens, rel=1e-4)


def test_variable_lengths_are_int32_tensors_and_python_ints(made):
    checkpoint, [step, _] = made("qwen2_vl")
    model = load(checkpoint, "sdpa", torch.float32)
    assert not any(name.startswith(("cu_", "max_length")) for name in inputs.of(step, 0, model))
    given = inputs.of(step, 0, model, varlen=True)
    bounds = step.microbatches[0]["cu_seqlens"]
    for name in ("cu_seq_lens_q", "cu_seq_lens_k"):
        assert given[name].dtype == torch.int32 and given[name].tolist() == bounds.tolist()
    assert type(given["max_length_q"]) is int and given["max_length_k"] == np.diff(bounds).max()
    assert model(**given).logits.isfinite().all(), "the vision tower keeps its own lengths"


def test_a_damaged_picture_has_no_loss(made):
    checkpoint, steps = made("qwen2_vl")
    model = load(checkpoint, "sdpa", torch.float32)
    damaged = [(step, number) for step in steps for number, one in enumerate(step.microbatches)
               if "vision" in one.encoders and "item_valid" in one.encoders["vision"]
               and not one.encoders["vision"]["item_valid"].all()]
    assert damaged
    for step, number in damaged:
        labels = inputs.of(step, number, model)["labels"].numpy()
        assert (labels != -100).sum() < (step.microbatches[number]["labels"] != -100).sum()


def test_a_field_that_the_model_does_not_take_is_named(made):
    _, [step, _] = made("qwen2_vl")
    text = load(made("qwen2")[0], "sdpa", torch.float32)
    with pytest.raises(ValueError, match="Qwen2ForCausalLM.forward does not take image_grid_thw, pixel_values"):
        for number in range(len(step.microbatches)):
            inputs.of(step, number, text)


def test_a_rank_without_pictures_runs_the_tower_on_a_dummy(tmp_path):
    encoder = "{min_items: 1}"
    folder = tmp_path
    checkpoint = checkpoints.write(folder / "model", "qwen2_vl")
    checkpoints.write_shard(folder / "all.tar", 12, ("text", "text", "image"), folder)
    losses = []
    for name, how in (("with", encoder), ("without", "{min_items: 0}")):
        job = checkpoints.write_job(folder / f"{name}.yaml", checkpoint, "all.tar", 1, 4, encoder=how,
                                    microbatch="{capacity_tokens: 100}")
        jobs.make_index(job)
        model = load(checkpoint, "sdpa", torch.float64)
        with jobs.worker(job) as endpoint:
            steps = list(evenkeel.Loader(endpoint, rank=0, num_steps=3))
        losses.append([packed_loss(model, step) for step in steps])
        given = [inputs.of(step, number, model) for step in steps for number in range(len(step.microbatches))]
        assert all("pixel_values" in one for one in given) == (name == "with")
    for (loss, grads), (expected_loss, expected) in zip(*losses):
        assert loss == pytest.approx(expected_loss, rel=1e-12)
        for name, gradient in expected.items():
            assert (grads[name] - gradient).abs().max() <= 1e-10, name


class Masked(torch.nn.Module):
    def forward(self, input_features, input_features_mask):
        raise NotImplementedError


class Counted(torch.nn.Module):
    def forward(self, input_features, audio_feature_lengths):
        raise NotImplementedError


def test_clips_are_stacked_for_a_forward_that_takes_a_mask():
    fields = {"input_features": np.arange(8, dtype=np.float32).reshape(4, 2), "audio_feature_lengths": np.array([1, 3])}
    out = {name: torch.from_numpy(value) for name, value in fields.items()}
    inputs._stack_clips(out, fields, Counted())
    assert out["input_features"].shape == (4, 2), "takes them as they are"
    inputs._stack_clips(out, fields, Masked())
    assert out["input_features"].tolist() == [[[0, 1], [0, 0], [0, 0]], [[2, 3], [4, 5], [6, 7]]]
    assert out["input_features_mask"].tolist() == [[True, False, False], [True, True, True]] and len(out) == 2
