"""Megatron-Bridge over a loader: a DatasetProvider, whose batches are those that vlm_step reads.

    config.dataset = evenkeel.megatron_bridge.DatasetProvider(source="job.yaml")
    config.train.micro_batch_size, config.train.global_batch_size = 1, 8 * DATA_PARALLEL    # 8 microbatches a step and rank
    config.model.calculate_per_token_loss, config.ddp.average_in_collective = True, False   # the loss of the whole step
    config.validation.eval_iters = 0                        # train.eval_iters of release 0.3

The job has `microbatch: {count_multiple: 8}` and `min_items: 0`. Pictures need the vlm_step of June 2026, which reads
cu_seqlens_q. Release 0.3 trains texts, by gpt_step, and needs `restore` to resume. Not run on GPUs: docs/trainers.md.
"""

import os
from dataclasses import dataclass

import torch
from megatron.core import parallel_state
from megatron.core.num_microbatches_calculator import get_num_microbatches

try:
    from megatron.bridge.data import base
    from megatron.bridge.training.utils.visual_inputs import GenericVisualInputs
except ImportError:
    from megatron.bridge.training import config as base
    GenericVisualInputs = None  # release 0.3, whose vlm_step merges the documents of a packed batch

import evenkeel
from evenkeel import inputs, megatron


@dataclass(kw_only=True)
class DatasetProvider(base.DatasetProvider):
    """Every rank of a replica reads for itself, by the replica's data-parallel rank. Trains alone: the validation and test
    iterators are None. Checkpoints have the loader's state, which is the same for all ranks."""

    source: str
    """A job file, or endpoints of workers."""

    num_microbatches: int | None = None  # of a step and rank: as Megatron calculates it, if None
    dataloader_type: str = "external"  # other types put batches together from samples
    dataloader_save: str | None = None
    dataloader_load: str | None = None  # release 0.3: the folder of the checkpoints; later ones have defaults

    def build_datasets(self, context):
        if self.dataloader_type != "external":
            raise ValueError(f"evenkeel.megatron_bridge: dataset.dataloader_type is {self.dataloader_type!r}; give 'external': a "
                             "loader's microbatches are whole")
        count = get_num_microbatches() if self.num_microbatches is None else self.num_microbatches
        self.iterator = DataIterator(self.make_loader(context), count)
        return self.iterator, None, None

    def make_loader(self, context):
        """The loader of this rank. For a job with a mesh replace it by one with topology=evenkeel.topology.from_megatron(),
        fetch="node" or "leader" and whole=True: Bridge reads all fields on every stage."""
        groups = getattr(context, "pg_collection", None)  # release 0.3 gives none
        return evenkeel.Loader(self.source, rank=groups.dp.rank() if groups else parallel_state.get_data_parallel_rank())


def restore(context):
    """What release 0.3 lacks: the data go on where the checkpoint was saved. With callbacks=CallbackManager():
    callbacks.register("on_train_start", evenkeel.megatron_bridge.restore). ValueError if the loader's state is not there."""
    provider, step = context.state.cfg.dataset, context.state.train_state.step
    rank = parallel_state.get_data_parallel_rank()
    path = os.path.join(provider.dataloader_load or "", f"iter_{step:07}", f"train_dataloader_dprank{rank:03}.pt")
    if step > 0 and not os.path.exists(path):
        raise ValueError(f"evenkeel.megatron_bridge: {path} is missing, the state of the data at step {step}: set dataset's "
                         "dataloader_save and dataloader_load to the folder of the checkpoints, and resume on the same ranks")
    if step > 0:
        provider.iterator.restore_state(torch.load(path)["dataloader_state_dict"])


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
    if GenericVisualInputs is None and fields:
        raise ValueError("evenkeel.megatron_bridge: release 0.3 merges the documents of batches with media: take a later one")
    if fields and "mm_token_type_ids" in microbatch:
        fields["mm_token_type_ids"] = torch.from_numpy(microbatch["mm_token_type_ids"])
    taken = {name: value for name, value in fields.items() if name in GenericVisualInputs.__dataclass_fields__}
    bounds, longest = packed["cu_seqlens"][0], packed["max_seqlen"][0]
    older = {"cu_seqlens": bounds, "cu_seqlens_argmin": torch.tensor(len(bounds)), "max_seqlen": longest}
    return {"tokens": packed["tokens"], "input_ids": packed["tokens"], "loss_mask": packed["loss_mask"], "attention_mask": None,
            "labels": torch.where(packed["loss_mask"] > 0, packed["labels"], -100),
            "position_ids": positions[1:] if len(positions) == 4 else packed["position_ids"],
            "cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": longest, "max_seqlen_kv": longest,
            "total_tokens": packed["tokens"].shape[1], "visual_inputs": GenericVisualInputs(**taken) if taken else None,
            **(older if GenericVisualInputs is None else {})}
