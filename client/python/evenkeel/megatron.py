"""Microbatches as Megatron-Core and Megatron-LM take them: an external data iterator and PackedSeqParams.

    def train_valid_test_provider(_, vp_stage=None):                # of pretrain(..., --dataloader-type external)
        return evenkeel.megatron.DataIterator(loader, num_microbatches=8), None, None

`next` gives the batch of pretrain_gpt.py for one microbatch. Schedules want a fixed number of microbatches: `microbatch:
{capacity_tokens: ..., count_multiple: 8}` in the job. Only ranks that Megatron reads on have an iterator.
"""

import numpy as np
import torch
from megatron.core.packed_seq_params import PackedSeqParams

import evenkeel.torch
from evenkeel import inputs, packing


class DataIterator:
    """One microbatch at a time. Megatron saves its state by `save_state` (--dataloader-save)."""

    def __init__(self, loader, num_microbatches):
        self._loader, self._count = loader, num_microbatches
        self._step, self._next = None, num_microbatches

    def __iter__(self):
        return self

    def __next__(self):
        if self._next == self._count:
            step = next(self._loader)
            if len(step.microbatches) != self._count:
                raise ValueError(f"step {step.index} has {len(step.microbatches)} microbatches, the schedule {self._count}: set "
                                 f"microbatch.count_multiple: {self._count} in the job, and raise microbatch.capacity_tokens "
                                 "or lower the batch if a step needs more")
            self._step, self._next = step, 0
        number, self._next = self._next, self._next + 1
        return self.make_batch(self._step, number)

    def make_batch(self, step, number):
        """What `next` gives for a microbatch."""
        microbatch = step.microbatches[number]
        return batch(microbatch, inputs.labels_of(step, number) if "labels" in microbatch else None)

    @property
    def loss_tokens(self):
        """Trained tokens of the whole step of the last microbatch, over all ranks: what its summed loss is divided by."""
        return self._step.loss_tokens

    def save_state(self):
        """The loader's state, the same on every rank. ValueError within a step."""
        if self._next != self._count:
            raise ValueError(f"step {self._step.index} has {self._count - self._next} microbatches left: save after the step")
        return self._loader.state_dict()

    def restore_state(self, state):
        self._loader.load_state_dict(state)
        self._step, self._next = None, self._count


def batch(microbatch, labels=None):
    """The dict of pretrain_gpt.py: tokens, labels, loss_mask, position_ids [1, T], cu_seqlens [1, documents + 1], max_seqlen.

    labels   if not those of the microbatch. They become those of the next token; where none is trained, label and mask
             are 0

    loss_mask has the weights of the loss in jobs with `processor.loss_weights`. A member of a pipeline stage has tokens or
    labels and loss_mask as far as it receives them. Of a shard (evenkeel.context) they are its tokens'; cu_seqlens are
    those of the whole sequences.
    """
    whole = getattr(microbatch, "whole", microbatch)
    own = slice(None) if whole is microbatch else microbatch.tokens
    bounds = torch.from_numpy(np.array(whole["cu_seqlens"], np.int32))[None]
    out = {"attention_mask": None, "position_ids": torch.from_numpy(packing.text_positions(whole)[..., own]),
           "cu_seqlens": bounds, "cu_seqlens_padded": bounds,
           "max_seqlen": torch.tensor([packing.max_length(whole)], dtype=torch.int32)}
    if "input_ids" in whole:
        out["tokens"] = torch.from_numpy(whole["input_ids"][..., own])
    if labels is not None or "labels" in whole:
        labels = packing.shifted(whole["labels"] if labels is None else labels)
        trained = labels != evenkeel.torch.IGNORED
        mask = trained.astype(np.float32)
        if "loss_weights" in whole:
            mask[..., :-1] *= whole["loss_weights"][..., 1:]
        out.update(labels=torch.from_numpy(np.where(trained, labels, 0)[..., own]), loss_mask=torch.from_numpy(mask[..., own]))
    return out


def packed_seq_params(batch):
    """Megatron's PackedSeqParams of a batch, for Transformer Engine's attention."""
    bounds, longest = batch["cu_seqlens"][0], int(batch["max_seqlen"])
    return PackedSeqParams(qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds, cu_seqlens_q_padded=bounds,
                           cu_seqlens_kv_padded=bounds, max_seqlen_q=longest, max_seqlen_kv=longest)


def attention_mask(batch):
    """bool [1, 1, T, T], True where a token must not see another: for attention that does not take packed sequences."""
    bounds = batch["cu_seqlens"][0]
    document = torch.repeat_interleave(torch.arange(len(bounds) - 1), bounds.diff())
    later = torch.ones(len(document), len(document), dtype=torch.bool).triu(1)
    return (later | (document[:, None] != document[None]))[None, None]
