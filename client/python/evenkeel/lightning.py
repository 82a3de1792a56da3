"""A LightningModule that trains steps of a loader: one of Lightning's batches is one step, with any number of microbatches.

    class Training(evenkeel.lightning.StepModule):
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-5)

    loader = evenkeel.Loader("job.yaml", rank=int(os.environ.get("RANK", 0)), wait_for_done=True)
    Trainer(max_steps=1000, strategy="ddp", use_distributed_sampler=False).fit(Training(model), loader, ckpt_path=...)

Lightning saves and restores the loader by itself, since it has state_dict and load_state_dict. `wait_for_done=True` makes
that state the first step that is not trained: Lightning fetches one step ahead. The job has `balance: drop_in`.
"""

import contextlib

from pytorch_lightning import LightningModule

from evenkeel import loop


class StepModule(LightningModule):
    """`model`: one of transformers. Subclasses give configure_optimizers. Logs `loss`, that of the whole step."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.automatic_optimization = False  # a step has several backward passes

    def training_step(self, step, _):
        optimizer = self.optimizers()
        loss = loop.forward_backward(step, self.model, self.manual_backward, self.trainer.world_size, self._no_sync())
        if self.trainer.gradient_clip_val:
            self.clip_gradients(optimizer, self.trainer.gradient_clip_val, self.trainer.gradient_clip_algorithm)
        optimizer.step()
        optimizer.zero_grad()
        scheduler = self.lr_schedulers()
        if scheduler is not None:
            scheduler.step()
        self.log("loss", loss, prog_bar=True, sync_dist=True, batch_size=1)
        step.done()

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return batch  # evenkeel.inputs moves each microbatch when it is its turn

    def _no_sync(self):
        return getattr(self.trainer.strategy.model, "no_sync", contextlib.nullcontext)
