"""Trains a model of transformers with DistributedDataParallel.

    torchrun --nproc_per_node 2 train_ddp.py JOB CHECKPOINT STEPS

Saves checkpoint.pt after every second step and goes on from it, also with another number of ranks.
"""
import gc
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForImageTextToText

import evenkeel
import evenkeel.torch
from evenkeel import loop

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def main(job, checkpoint, steps):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    loader = evenkeel.Loader(job, rank=dist.get_rank(), num_steps=int(steps))
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["data"])
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    for step in loader:
        loss = loop.mean_over_ranks(loop.forward_backward(step, model))
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step.index, f"{loss.item():.6f}", flush=True)
            if step.index % 2 == 1:
                torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                            "data": loader.state_dict()}, "checkpoint.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
