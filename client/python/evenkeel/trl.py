"""SFTTrainer of TRL over a loader, with TRL's own loss and metrics: one of its batches is one step, as in evenkeel.hf.

    class Trainer(evenkeel.trl.TrainerMixin, trl.SFTTrainer):
        pass

    trainer = Trainer(model, args, data=evenkeel.Loader("job.yaml", rank=int(os.environ.get("RANK", 0))))
    trainer.train(resume_from_checkpoint=...)

`args`: a trl.SFTConfig, with what evenkeel.hf asks for. TRL's own collator and packing are not used: a loader's batches
are packed, also those with pictures, which TRL refuses to pack.
"""

from datasets import Dataset

from evenkeel import hf


class TrainerMixin(hf.TrainerMixin):
    """Before trl.SFTTrainer in the list of bases. `data`: a loader. `train_dataset` is not read."""

    def __init__(self, *args, train_dataset=None, **kwargs):
        # SFTTrainer looks at the first sample while it is made; one of tokens needs no preparation.
        sample = Dataset.from_list([{"input_ids": [0, 0], "labels": [0, 0]}])
        super().__init__(*args, train_dataset=sample if train_dataset is None else train_dataset, **kwargs)

    def training_step(self, *args):
        with self.maybe_activation_offload_context:
            return super().training_step(*args)

    def microbatch_loss(self, model, given, weights, denominator):
        if weights is not None:
            raise ValueError("the loss of TRL takes no weights: remove processor.loss_weights from the job")
        if self.args.average_tokens_across_devices:  # compute_loss multiplies by the ranks
            denominator *= self.accelerator.num_processes
        return self.compute_loss(model, given, num_items_in_batch=denominator)
