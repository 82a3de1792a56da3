"""A dataloader for TorchTitan, of texts: one of its batches is a microbatch of fixed length.

    dataloader=evenkeel.torchtitan.DataLoader.Config(source="job.yaml", microbatches=8)

TorchTitan runs the same number of microbatches at every step (gradient accumulation times those of the pipeline), each of
training.seq_len tokens with training.local_batch_size 1: `microbatch: {pad_to: SEQ_LEN, count_multiple: 8}` in the job.
Pictures are refused: TorchTitan orders their patches in another way.
"""

from dataclasses import dataclass

import torch
from torchtitan.components.dataloader import BaseDataLoader

import evenkeel
from evenkeel import inputs, packing


class DataLoader(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        source: str = ""
        """A job file, or endpoints of workers."""

        microbatches: int = 1
        """Of a step and rank."""

    def __init__(self, config, *, dp_rank, seq_len, local_batch_size, loader=None, **_):
        if local_batch_size != 1:
            raise ValueError(f"evenkeel.torchtitan: training.local_batch_size is {local_batch_size}; give 1: a microbatch is one "
                             "row of packed documents")
        self._loader = evenkeel.Loader(config.source, rank=dp_rank) if loader is None else loader
        self._count, self._seq_len, self._left = config.microbatches, seq_len, 0

    def __iter__(self):
        for step in self._loader:
            if len(step.microbatches) != self._count:
                raise ValueError(f"step {step.index} has {len(step.microbatches)} microbatches, TorchTitan runs {self._count}: set "
                                 f"microbatch.count_multiple: {self._count} in the job, and lower the batch if a step needs more")
            for number, microbatch in enumerate(step.microbatches):
                self._left = self._count - number - 1
                yield self._batch(step, microbatch, inputs.labels_of(step, number))

    def state_dict(self):
        if self._left:
            raise ValueError(f"{self._left} microbatches of the step are left: Config.microbatches is not that of TorchTitan's step")
        return self._loader.state_dict()

    def load_state_dict(self, state):
        if state:  # a checkpoint without data has none
            self._loader.load_state_dict(state)

    def _batch(self, step, microbatch, labels):
        ids = microbatch["input_ids"]
        if ids.shape[1] != self._seq_len:
            raise ValueError(f"step {step.index}: a microbatch has {ids.shape[1]} tokens, training.seq_len is {self._seq_len}: set "
                             f"microbatch.pad_to: {self._seq_len} in the job")
        inputs.refuse_loss_weights(microbatch, "TorchTitan")
        if step.encoders or microbatch.encoders:
            raise ValueError("evenkeel.torchtitan takes texts alone: remove the job's encoder phases")
        given = {"input": torch.from_numpy(ids), "positions": torch.from_numpy(packing.text_positions(microbatch))}
        return given, torch.from_numpy(packing.shifted(labels))
