"""Trains a model of transformers with Lightning.

    torchrun --nproc_per_node 2 train_lightning.py JOB CHECKPOINT STEPS

Saves out/last.ckpt after every second step and goes on from it.
"""
import os
import sys

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from transformers import AutoModelForImageTextToText

import evenkeel
import evenkeel.lightning

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


class Training(evenkeel.lightning.StepModule):
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=0.0)


class PrintLoss(Callback):
    def on_train_batch_end(self, trainer, module, outputs, step, number):
        if trainer.is_global_zero:
            print(step.index, f"{trainer.callback_metrics['loss'].item():.6f}", flush=True)


def main(job, checkpoint, steps):
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    loader = evenkeel.Loader(job, rank=int(os.environ.get("RANK", 0)), num_steps=1000, wait_for_done=True)
    save = ModelCheckpoint("out", every_n_train_steps=2, save_last=True, save_top_k=0)
    trainer = Trainer(max_steps=int(steps), accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", 1)), strategy="ddp",
                      use_distributed_sampler=False, callbacks=[save, PrintLoss()], logger=False, log_every_n_steps=1,
                      enable_progress_bar=False, enable_model_summary=False)
    last = "out/last.ckpt" if os.path.exists("out/last.ckpt") else None
    trainer.fit(Training(model), loader, ckpt_path=last, weights_only=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
