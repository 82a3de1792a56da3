"""The Trainer of transformers over a loader: one of its batches is one step, with any number of microbatches.

    class Trainer(evenkeel.hf.TrainerMixin, transformers.Trainer):
        pass

    trainer = Trainer(model, args, data=evenkeel.Loader("job.yaml", rank=int(os.environ.get("RANK", 0))))
    trainer.train(resume_from_checkpoint=...)

`args`: max_steps, gradient_accumulation_steps=1, ignore_data_skip=True (the loader resumes by itself). The job has
`balance: drop_in`. Checkpoints contain evenkeel.json, the state of the loader.
"""

import functools
import json
import os

from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from evenkeel import loop

STATE_FILE = "evenkeel.json"


class _SaveState(TrainerCallback):
    def __init__(self, loader):
        self._loader = loader

    def on_save(self, args, state, control, **kwargs):
        if args.should_save:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            with open(os.path.join(folder, STATE_FILE), "w") as file:
                json.dump(self._loader.state_dict(), file)


class TrainerMixin:
    """Before transformers.Trainer, or a subclass of it, in the list of bases. `data`: a loader."""

    def __init__(self, *args, data, **kwargs):
        super().__init__(*args, **kwargs)
        wrong = [f"{name}={getattr(self.args, name)} (give {wanted})" for name, wanted in
                 (("gradient_accumulation_steps", 1), ("ignore_data_skip", True)) if getattr(self.args, name) != wanted]
        if wrong or self.args.max_steps <= 0:
            raise ValueError(f"evenkeel.hf: the arguments have {', '.join(wrong) or 'no max_steps'}: a step of the loader is "
                             "a step of the Trainer, and the loader resumes by itself")
        self._data = data
        data.wait_for_done()
        self.add_callback(_SaveState(data))

    def get_train_dataloader(self):
        return self._data  # not prepared: every rank has its own steps already

    def train(self, resume_from_checkpoint=None, **kwargs):
        folder = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        if folder:
            with open(os.path.join(folder, STATE_FILE)) as file, open(os.path.join(folder, "trainer_state.json")) as own:
                self._data.load_state_dict(json.load(file), trainer_step=json.load(own)["global_step"])
            self._load_published_names(folder)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _load_published_names(self, folder):
        """transformers 5 writes weights under the names of the published checkpoint, but the Trainer reads them by the
        names of the module and ignores the others (trainer.py, _load_from_checkpoint, in 5.23): of Qwen2-VL, all."""
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled  # those write and read names of their own
        if isinstance(self.model, PreTrainedModel) and not sharded and os.path.exists(os.path.join(folder, "config.json")):
            saved = type(self.model).from_pretrained(folder, dtype=self.model.dtype)
            self.model.load_state_dict(saved.state_dict())

    def get_batch_samples(self, epoch_iterator, num_batches, *_):
        batches = []
        for _ in range(num_batches):
            try:
                batches.append(next(epoch_iterator))
            except StopIteration:
                break
        return batches, None

    def training_step(self, model, step, *_):
        """The step's loss over all ranks is the mean of what the ranks return."""
        model.train()
        loss = loop.forward_backward(step, model, self.accelerator.backward,
                                     no_sync=functools.partial(self.accelerator.no_sync, model), loss_of=self.microbatch_loss)
        step.done()
        return loss

    def microbatch_loss(self, model, given, weights, denominator):
        """As `loop.model_loss`. Subclasses for trainers with a loss of their own replace it."""
        return loop.model_loss(model, given, weights, denominator)

    def floating_point_ops(self, step):
        return 0
