"""ms-swift over a loader, with its own loss and metrics: one of its batches is one step, as in evenkeel.hf.

    # plugin.py, for `swift sft --external_plugins plugin.py`
    evenkeel.swift.install(lambda: evenkeel.Loader("job.yaml", rank=int(os.environ.get("RANK", 0))))

The command needs `--max_steps`, `--gradient_accumulation_steps 1` and `--ignore_data_skip true`, and a `--dataset` of one
sample: ms-swift looks at the first one, and trains none. In the job the vision phase has `min_items: 0`: ms-swift runs the
tower on a picture of its own in microbatches without media.
"""

import torch
from swift.trainers import Seq2SeqTrainer, TrainerFactory

from evenkeel import hf


def install(make_loader):
    """Lets `swift sft` and `swift pt` train steps of the loader that `make_loader()` returns. Called when the trainer is made."""
    Trainer.make_loader = staticmethod(make_loader)
    TrainerFactory.TRAINER_MAPPING["causal_lm"] = "evenkeel.swift.Trainer"


class Trainer(hf.TrainerMixin, Seq2SeqTrainer):
    make_loader = None

    def __init__(self, *args, data=None, **kwargs):
        super().__init__(*args, data=self.make_loader() if data is None else data, **kwargs)

    def get_train_dataloader(self, skip_batches=0):
        return super().get_train_dataloader()

    def microbatch_loss(self, model, given, weights, denominator):
        # With a loss_scale ms-swift sums the loss of each token; without one it starts from the mean of the microbatch,
        # which does not exist if no token is trained.
        scale = (given["labels"] != -100).to(torch.float32) if weights is None else weights
        given = self._prepare_inputs({**given, "loss_scale": scale})
        if self.args.average_tokens_across_devices and self.model_accepts_loss_kwargs:  # compute_loss multiplies by the ranks
            denominator *= self.accelerator.num_processes
        with self.template.forward_context(self.model, given):
            return self.compute_loss(model, given, num_items_in_batch=denominator)
