"""Megatron-Bridge over a loader: a DatasetProvider, whose batches are those that vlm_step reads.

    config.dataset = evenkeel.megatron_bridge.DatasetProvider(source="job.yaml")
    config.train.micro_batch_size, config.train.global_batch_size = 1, 8 * DATA_PARALLEL    # 8 microbatches a step and rank
    config.model.calculate_per_token_loss, config.ddp.average_in_collective = True, False   # the loss of the whole step
    config.validation.eval_iters = 0

The job has `microbatch: {count_multiple: 8}` and `min_items: 0`. Needs a Megatron-Bridge whose vlm_step reads cu_seqlens_q,
as it does since June 2026; 0.3.1 on PyPI does not, and cannot import this file. Written from the project's sources, and not
run on GPUs: docs/trainers.md.
"""

from dataclasses import dataclass

import torch
from megatron.bridge.data import base
from megatron.bridge.training.utils.visual_inputs import GenericVisualInputs
from megatron.core.num_microbatches_calculator import get_num_microbatches

import evenkeel
from evenkeel import inputs, megatron


@dataclass(kw_only=True)
class DatasetProvider(base.DatasetProvider):
    """Every rank of a replica reads for itself, by the replica's data-parallel rank. Trains alone: the validation and test
    iterators are None. Checkpoints have the loader's state, which is the same for all ranks."""

    source: str
    """A job file, or endpoints of workers."""

    num_microbatches: int | None = None
    """Of a step and rank. None: global_batch_size / micro_batch_size / data-parallel ranks, as Megatron calculates it."""

    dataloader_type: str = "external"
    """Not to be changed: other types put batches together from samples."""

    def build_datasets(self, context):
        if self.dataloader_type != "external":
            raise ValueError(f"evenkeel.megatron_bridge: dataset.dataloader_type is {self.dataloader_type!r}; give 'external': a "
                             "loader's microbatches are whole")
        count = get_num_microbatches() if self.num_microbatches is None else self.num_microbatches
        return DataIterator(self.make_loader(context), count), None, None

    def make_loader(self, context):
        """The loader of this rank. For a job with a mesh replace it by one with topology=evenkeel.topology.from_megatron(),
        fetch="node" or "leader" and whole=True: Bridge reads all fields on every stage."""
        return evenkeel.Loader(self.source, rank=context.pg_collection.dp.rank())


class DataIterator(megatron.DataIterator):
    """One microbatch at a time, as evenkeel.megatron's."""

    def make_batch(self, step, number):
        return batch(step, number)


def batch(step, number):
    """tokens and input_ids, labels of the next token (-100 where none is trained), loss_mask, position_ids [3, 1, T] of
    M-RoPE models, else [1, T]; cu_seqlens_q and cu_seqlens_kv; max_seqlen_q and max_seqlen_kv, tensors on the CPU;
    visual_inputs, None without media. ValueError in jobs with loss_weights: Bridge counts trained tokens by the loss mask."""
    microbatch = step.microbatches[number]
    inputs.refuse_loss_weights(microbatch, "Megatron-Bridge")
    labels, fields = inputs.media_fields(step, number)
    packed = megatron.batch(microbatch, labels)
    positions = torch.from_numpy(microbatch["position_ids"])
    if fields and "mm_token_type_ids" in microbatch:
        fields["mm_token_type_ids"] = torch.from_numpy(microbatch["mm_token_type_ids"])
    taken = {name: value for name, value in fields.items() if name in GenericVisualInputs.__dataclass_fields__}
    bounds, longest = packed["cu_seqlens"][0], packed["max_seqlen"][0]
    return {"tokens": packed["tokens"], "input_ids": packed["tokens"], "loss_mask": packed["loss_mask"], "attention_mask": None,
            "labels": torch.where(packed["loss_mask"] > 0, packed["labels"], -100),
            "position_ids": positions[1:] if len(positions) == 4 else packed["position_ids"],
            "cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": longest, "max_seqlen_kv": longest,
            "total_tokens": packed["tokens"].shape[1], "visual_inputs": GenericVisualInputs(**taken) if taken else None}
