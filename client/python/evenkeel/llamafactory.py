"""The trainer of LLaMA-Factory v1 over a loader: it trains a list of microbatches at every step, of any number.

    class Trainer(evenkeel.llamafactory.TrainerMixin, SFTTrainer):
        pass

    trainer = Trainer(args=..., model=model, renderer=renderer, data=evenkeel.Loader("job.yaml", rank=rank))

The arguments need `max_steps`. Checkpoints of the trainer contain the loader's state as that of its batch generator. The
job has `balance: drop_in`.
"""

import torch

from evenkeel import inputs


class TrainerMixin:
    """Before SFTTrainer of llamafactory.v1.trainers.sft_trainer in the list of bases. `data`: a loader."""

    def __init__(self, *args, data, train_dataset=None, **kwargs):
        self._data = data
        super().__init__(*args, train_dataset=train_dataset, **kwargs)

    def _create_batch_generator(self):
        self.train_batch_generator = BatchGenerator(self._data, self.model)


class BatchGenerator:
    def __init__(self, loader, model):
        self._loader, self._model = loader, model
        # The trainer passes tensors alone to forward, and with a cache transformers does not look for packed documents.
        model.config.get_text_config().use_cache = model.config.use_cache = False

    def __iter__(self):
        return self

    def __next__(self):
        step = next(self._loader)
        return [self._batch(step, number) for number in range(len(step.microbatches))]

    def __len__(self):
        return len(self._loader)

    def set_epoch(self, epoch):
        """Nothing: the loader's epochs are its own."""

    def state_dict(self):
        return self._loader.state_dict()

    def load_state_dict(self, state):
        self._loader.load_state_dict(state)

    def _batch(self, step, number):
        given = inputs.of(step, number, self._model, device="cpu")
        del given["use_cache"]
        weights = inputs.loss_weights(step, number, given["labels"])
        return {**given, "loss_weights": (given["labels"] != -100).to(torch.float32) if weights is None else weights}
