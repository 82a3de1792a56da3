"""Batches of Megatron-Bridge's vlm_step, and a data iterator for its DatasetProvider.

    @dataclass
    class Data(DatasetProvider):
        def build_datasets(self, context):
            return evenkeel.megatron_bridge.DataIterator(loader, num_microbatches=8), None, None

with dataloader_type "external". Every rank of a replica reads, so every rank has a loader, with the rank of the replica.
Written from the project's sources and not run with it: it needs Transformer Engine.
"""

import torch

from evenkeel import inputs, megatron

_VISUAL = ("pixel_values", "pixel_values_videos", "image_grid_thw", "video_grid_thw", "second_per_grid_ts", "image_sizes",
           "mm_token_type_ids")


class DataIterator(megatron.DataIterator):
    """visual_inputs   the class of the batch's visual inputs: GenericVisualInputs, Qwen2_5_VLVisualInputs"""

    def __init__(self, loader, num_microbatches, visual_inputs):
        super().__init__(loader, num_microbatches)
        self._visual_inputs = visual_inputs

    def make_batch(self, step, number):
        return batch(step, number, self._visual_inputs)


def batch(step, number, visual_inputs):
    """tokens and input_ids, labels of the next token (-100 where none is trained), loss_mask, position_ids [3, 1, T] of
    M-RoPE models, else [1, T]; cu_seqlens_q and cu_seqlens_kv; max_seqlen_q and max_seqlen_kv, tensors on the CPU."""
    microbatch = step.microbatches[number]
    labels, fields = inputs.media_fields(step, number)
    base = megatron.batch(microbatch, labels)
    positions = torch.from_numpy(microbatch["position_ids"])
    if "mm_token_type_ids" in microbatch:
        fields["mm_token_type_ids"] = torch.from_numpy(microbatch["mm_token_type_ids"])
    taken = {name: fields[name] for name in _VISUAL if name in fields and hasattr(visual_inputs, name)}
    bounds, longest = base["cu_seqlens"][0], base["max_seqlen"][0]
    return {"tokens": base["tokens"], "input_ids": base["tokens"], "loss_mask": base["loss_mask"], "attention_mask": None,
            "labels": torch.where(base["loss_mask"] > 0, base["labels"], -100),
            "position_ids": positions[1:] if len(positions) == 4 else base["position_ids"],
            "cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": longest, "max_seqlen_kv": longest,
            "total_tokens": base["tokens"].shape[1], "visual_inputs": visual_inputs(**taken)}
