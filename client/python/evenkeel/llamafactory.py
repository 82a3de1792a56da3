"""A batch generator for the trainer of LLaMA-Factory v1, which trains a list of microbatches at every step.

    trainer = SFTTrainer(args=..., model=model, renderer=..., train_dataset=...)       # with max_steps
    trainer.train_batch_generator = evenkeel.llamafactory.BatchGenerator(loader, model)

The dataset that the trainer was made with is not read. To resume, load the loader's state before training: the trainer
restores its own generator while it is made. The job has `balance: drop_in`. Written from the project's sources and not
run with it: its dependencies exclude recent releases of transformers.
"""

import torch

from evenkeel import inputs


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
