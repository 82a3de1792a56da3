"""Trains a model of transformers with Accelerate.

    torchrun --nproc_per_node 2 train_accelerate.py JOB CHECKPOINT STEPS

With GPUs `accelerate launch --num_processes 2` does the same; without them it starts one process, and the loader refuses a
job of two ranks. Saves with save_state into the folder checkpoint after every second step and goes on from it.
"""
import os
import sys

import torch
from accelerate import Accelerator
from transformers import AutoModelForImageTextToText

import evenkeel
import evenkeel.torch
from evenkeel import loop

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def main(job, checkpoint, steps):
    accelerator = Accelerator(cpu=True)
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0))
    loader = evenkeel.Loader(job, rank=accelerator.process_index, num_steps=int(steps))
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    accelerator.register_for_checkpointing(loader)         # not prepared: every rank has its own steps already
    if os.path.exists("checkpoint"):
        accelerator.load_state("checkpoint")
    for step in loader:
        loss = loop.mean_over_ranks(loop.forward_backward(step, model, accelerator.backward))
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(step.index, f"{loss.item():.6f}", flush=True)
        if step.index % 2 == 1:
            accelerator.save_state("checkpoint")
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
