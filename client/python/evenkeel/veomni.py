"""Steps as VeOmni takes them: a list of all microbatches of one optimizer step, of any number.

    @veomni.data.data_loader.DATALOADER_REGISTRY.register("evenkeel")          # data.dataloader.type: evenkeel
    def build(**_):
        return evenkeel.veomni.DataLoader(evenkeel.Loader("job.yaml", rank=get_parallel_state().dp_rank))

The job has `balance: drop_in` and `min_items: 0`: VeOmni's models run their towers on dummies of their own. VeOmni wants
train_steps and a dataset, which is not read. Its background prefetcher may be on: it keeps the state of each step.
"""

import numpy as np
import torch

from evenkeel import inputs, packing

_MASKS = {"image_mask": 1, "video_mask": 2, "audio_mask": 3}  # by mm_token_type_ids


class DataLoader:
    """collator   called with each batch: VeOmni's SequenceParallelCollator() where sequence parallelism is on. It shifts
                  labels, pads and slices
    metadata   a model's get_metadata_collate_func(), which adds multimodal_metadata; with a collator give it to that
    """

    def __init__(self, loader, collator=None, metadata=None):
        self._loader, self._collator, self._metadata = loader, collator, metadata

    def __iter__(self):
        return self

    def __next__(self):
        step = next(self._loader)
        return [self._collate(batch(step, number)) for number in range(len(step.microbatches))]

    def __len__(self):
        return len(self._loader)

    def state_dict(self):
        return self._loader.state_dict()

    def load_state_dict(self, state):
        self._loader.load_state_dict(state)

    def _collate(self, one):
        if self._metadata is not None:
            self._metadata(one, {"pixel_values": 0, "pixel_values_videos": 0})
        return one if self._collator is None else self._collator(one)


def batch(step, number):
    """What MainCollator makes of the microbatch's documents: placeholders are 0 in input_ids and True in image_mask,
    video_mask or audio_mask; position_ids [1, 3, T], or [1, T] of text models; labels are not shifted."""
    microbatch = step.microbatches[number]
    inputs.refuse_loss_weights(microbatch, "VeOmni")
    labels, fields = inputs.media_fields(step, number)
    kinds = np.asarray(microbatch["mm_token_type_ids"]) if "mm_token_type_ids" in microbatch else None
    ids = np.array(microbatch["input_ids"])
    positions = np.asarray(microbatch["position_ids"])
    if kinds is not None:
        ids[kinds > 0] = 0
        fields.update({name: torch.from_numpy(kinds == kind) for name, kind in _MASKS.items() if (kinds == kind).any()})
        fields["mm_token_type_ids"] = torch.from_numpy(kinds)
    # Four rows: the first is the position in the document, which VeOmni does not want.
    positions = positions[1:].transpose(1, 0, 2) if len(positions) == 4 else packing.text_positions(microbatch)
    bounds = torch.from_numpy(np.array(microbatch["cu_seqlens"], np.int32))
    longest = packing.max_length(microbatch)
    return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels),
            "attention_mask": torch.ones_like(torch.from_numpy(ids)), "position_ids": torch.from_numpy(positions.copy()),
            "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "linear_attn_cu_seq_lens_q": bounds,
            "max_length_q": longest, "max_length_k": longest, **fields}
