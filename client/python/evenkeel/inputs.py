"""A microbatch as the forward of a transformers model takes it: names, shapes and types, and nothing else.

    for number in range(len(step.microbatches)):
        loss = model(**inputs.of(step, number, model), num_items_in_batch=step.loss_tokens).loss

For models that run their encoders inside forward. The job has `balance: drop_in`: the items of a sample are in the rank
and microbatch of the sample.
"""

import collections
import inspect

import numpy as np
import torch

import evenkeel.torch
from evenkeel import packing

# Token types and the names that configurations have for the token that stands for a row: of images, videos, audio.
_MEDIA = {1: ("image_token_id", "image_token_index"), 2: ("video_token_id", "video_token_index"),
          3: ("audio_token_id", "audio_token_index")}
_NEVER = {"cu_seqlens", "loss_tokens", "loss_weights", "columns", "sample_ids", "sample_valid", "item_valid", "item_rows",
          "encoders"}
# What position_ids contain already; a forward that does not name them does without.
_IMPLIED = {"mm_token_type_ids", "second_per_grid_ts", "video_second_per_grid"}


def of(step, number, model, device=None, varlen=None):
    """The arguments of `model.forward` for microbatch `number` of `step`, as a plain dict of tensors.

    device   where the tensors go; None: that of the model's first parameter
    varlen   whether to give cu_seq_lens_q, cu_seq_lens_k (int32 tensors) and max_length_q, max_length_k (Python ints);
             None: where the model's attention is one of flash attention's

    position_ids are [4, 1, T] for models with M-RoPE and [1, T] for others, beginning at 0 in every document. Labels are
    aligned with input_ids (transformers shifts them), and those of damaged samples are -100, as `mask_labels` makes
    them, but without a collective. A dummy item (`min_items`) gets placeholders in a document of its own, without loss.
    Floating-point fields get the model's type. ValueError where rows move between ranks or microbatches, and for a field
    that the model does not take.
    """
    model = _unwrap(model)
    parameter = next(model.parameters())
    evenkeel.torch.check_device(device)
    device = parameter.device if device is None else device
    microbatch = step.microbatches[number]
    encoders = _local_encoders(step, number)
    llm = {name: np.asarray(microbatch[name]) for name in microbatch if name not in _NEVER}
    llm["labels"] = labels_of(step, number)
    cu_seqlens = np.asarray(microbatch["cu_seqlens"]) if "cu_seqlens" in microbatch else None
    if cu_seqlens is not None:
        cu_seqlens = _add_dummies(llm, cu_seqlens, encoders, model.config)
    if not has_mrope(model.config):
        llm["position_ids"] = llm["position_ids"][0]
    out = {name: torch.from_numpy(value).to(device, non_blocking=True) for name, value in llm.items()}
    for fields in encoders.values():
        for name in set(fields) - _NEVER:
            value = evenkeel.torch.tensor(fields, name, device)
            out[name] = value.to(parameter.dtype) if value.is_floating_point() else value
    for fields in encoders.values():
        _stack_clips(out, fields, model)
    out = _accepted(out, model)
    out["use_cache"] = False  # with a cache transformers does not look for packed documents
    if cu_seqlens is not None and (_is_flash(model.config) if varlen is None else varlen):
        bounds = torch.from_numpy(cu_seqlens.astype(np.int32)).to(device, non_blocking=True)
        longest = int(np.diff(cu_seqlens).max())
        out.update(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=longest, max_length_k=longest)
    return out


def media_fields(step, number):
    """(labels, {name: tensor}) of microbatch `number`, for trainers whose batches are not a forward's arguments: labels as
    `of` makes them, in numpy, and the fields of all encoders. ValueError for dummies, which have no placeholders."""
    fields, encoders = {}, _local_encoders(step, number)
    if _dummy_rows(step.microbatches[number], encoders):
        raise ValueError(f"step {step.index}: phase {' or '.join(encoders)} has a dummy, and this trainer runs its encoder without "
                         "one; set min_items: 0 for the phase in the job")
    for one in encoders.values():
        fields.update({name: evenkeel.torch.tensor(one, name) for name in set(one) - _NEVER})
    return labels_of(step, number), fields


def loss_weights(step, number, labels):
    """The weights of the loss of `labels`, a tensor that `of` made for that microbatch: float32 of its shape and on its
    device, 0 where a label is -100. None in jobs without `processor.loss_weights`."""
    microbatch = step.microbatches[number]
    if "loss_weights" not in microbatch:
        return None
    given = torch.from_numpy(np.asarray(microbatch["loss_weights"])).to(labels.device)
    weights = torch.nn.functional.pad(given, (0, labels.shape[-1] - given.shape[-1]))  # dummies are behind all samples
    return weights * (labels != evenkeel.torch.IGNORED)


def refuse_loss_weights(microbatch, trainer):
    """ValueError where the job asks for weights of the loss, for trainers whose loss takes none."""
    if "loss_weights" in microbatch:
        raise ValueError(f"the loss of {trainer} takes no weights: remove processor.loss_weights from the job")


def labels_of(step, number):
    """Labels of microbatch `number` in numpy, those of damaged samples -100. No collective."""
    return _labels(step)[number].numpy()


def has_mrope(config):
    """Whether a model's text positions have three rows of media positions after them."""
    text = config.get_text_config()
    rope = [getattr(text, name, None) or {} for name in ("rope_parameters", "rope_scaling")]
    return any("mrope_section" in one for one in rope)


def _unwrap(model):
    """The module that has the forward of the model: inside of DistributedDataParallel and PEFT."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _is_flash(config):
    return "flash" in str(getattr(config, "_attn_implementation", ""))


def _local_encoders(step, number):
    """{phase: Fields} of the microbatch, whose rows are in the order of its placeholders."""
    encoders = dict(step.microbatches[number].encoders)
    if step.generators:
        raise ValueError(f"step {step.index}: the job has the generator {next(iter(step.generators))}, and a model's own forward has "
                         "no rows for its placeholders; use evenkeel.torch.gather_rows and exchange")
    if step.encoders and len(step.microbatches) > 1:
        raise ValueError(f"step {step.index} has {len(step.microbatches)} microbatches, and phase {next(iter(step.encoders))} "
                         "runs once per step; set `balance: drop_in` in the job")
    encoders.update(step.encoders)
    for phase, route in step.routes.items():
        route = route[number] if isinstance(route, list) else route
        if not route.stays:
            raise ValueError(f"step {step.index}: rows of phase {phase} move between ranks, and a model's own forward cannot "
                             "exchange them; set `balance: drop_in` in the job, or use evenkeel.torch.exchange")
        _check_order(step, phase, route, step.microbatches[number], encoders[phase])
    return encoders


def _check_order(step, phase, route, llm, fields):
    """Each medium's rows are in the order of its placeholders, which is how a forward puts them there."""
    kinds = llm["mm_token_type_ids"].reshape(-1)[evenkeel.torch.placeholders(llm, evenkeel.torch.media_of(phase, fields))]
    for kind in np.unique(kinds):
        if (np.diff(route.source_rows()[kinds == kind]) <= 0).any():
            raise ValueError(f"step {step.index}: rows of phase {phase} are not in the order of their placeholders")


def _labels(step):
    """Masked without a collective, once for all microbatches of the step."""
    if not hasattr(step, "_local_labels"):
        step._local_labels = evenkeel.torch.mask_labels(step, local=True)
    return step._local_labels


def _rows(fields):
    """{token type: rows} of a phase's items, dummies included. Images come before videos."""
    rows = np.asarray(fields["item_rows"]) if "item_rows" in fields else np.zeros(0, np.int64)
    if "input_features" in fields:
        return {3: rows.sum()}
    videos = len(fields["video_grid_thw"]) if "video_grid_thw" in fields else 0
    return {1: rows[:len(rows) - videos].sum(), 2: rows[len(rows) - videos:].sum()}


def _dummy_rows(llm, encoders):
    """{token type: rows} of items that no placeholder stands for, over all phases: each may have media of its own."""
    have = collections.Counter()
    for fields in encoders.values():
        have.update(_rows(fields))
    extra = {kind: int(count - (llm["mm_token_type_ids"] == kind).sum()) for kind, count in sorted(have.items())}
    return {kind: count for kind, count in extra.items() if count}


def _add_dummies(llm, cu_seqlens, encoders, config):
    """Appends a document of placeholders for each medium with dummies; the new bounds."""
    for kind, count in _dummy_rows(llm, encoders).items():
        token = next((getattr(config, name) for name in _MEDIA[kind] if getattr(config, name, None) is not None), None)
        if token is None or count < 0:
            raise ValueError(f"{count} rows more than placeholders of type {kind}; the model's configuration has none of "
                             f"{' and '.join(_MEDIA[kind])}" if token is None else
                             f"the microbatch has {-count} placeholders of type {kind} more than rows")
        for name, value in (("input_ids", token), ("labels", evenkeel.torch.IGNORED), ("mm_token_type_ids", kind)):
            llm[name] = np.concatenate([llm[name], np.full((1, count), value, llm[name].dtype)], 1)
        positions = np.broadcast_to(np.arange(count), (len(llm["position_ids"]), 1, count))
        llm["position_ids"] = np.concatenate([llm["position_ids"], positions], 2)
        cu_seqlens = np.append(cu_seqlens, cu_seqlens[-1] + count)
    return cu_seqlens


def _stack_clips(out, fields, model):
    """Makes frames of clips one after another [clips, frames, mels] with a mask, for a forward that takes these (Gemma)."""
    names = forward_names(model)
    if "audio_feature_lengths" not in fields or "audio_feature_lengths" in names or "input_features_mask" not in names:
        return
    lengths = np.asarray(fields["audio_feature_lengths"])
    clips = torch.split(out["input_features"], lengths.tolist())
    out["input_features"] = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
    mask = np.arange(lengths.max()) < lengths[:, None]
    out["input_features_mask"] = torch.from_numpy(mask).to(out["input_features"].device, non_blocking=True)
    del out["audio_feature_lengths"]


def forward_names(model):
    """What a model's forward takes by name."""
    parameters = inspect.signature(_unwrap(model).forward).parameters
    return sorted(name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))


def _accepted(out, model):
    names = forward_names(model)
    unknown = sorted(set(out) - set(names) - _IMPLIED)
    if unknown:
        raise ValueError(f"{type(model).__name__}.forward does not take {', '.join(unknown)}; it takes {', '.join(names)}. "
                         "Is the job's processor that of another model?")
    return {name: value for name, value in out.items() if name in names}
