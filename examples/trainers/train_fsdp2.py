"""Trains a model of transformers with FSDP2 (fully_shard) and saves with torch.distributed.checkpoint.

    torchrun --nproc_per_node 2 train_fsdp2.py JOB CHECKPOINT STEPS

Saves into the folder checkpoint after every second step and goes on from it, also with another number of ranks.
"""
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForImageTextToText

import evenkeel
import evenkeel.torch
from evenkeel import loop

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


class Training:
    """Weights, optimizer and data, as torch.distributed.checkpoint saves and loads them."""

    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "data": self.loader.state_dict()}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.loader.load_state_dict(state["data"])


def main(job, checkpoint, steps):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    for layer in [*model.model.language_model.layers, *model.model.visual.blocks, model]:
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    loader = evenkeel.Loader(job, rank=dist.get_rank(), num_steps=int(steps))
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    training = Training(model, optimizer, loader)
    if os.path.exists("checkpoint"):
        dcp.load({"training": training}, checkpoint_id="checkpoint")
    for step in loader:
        loss = loop.mean_over_ranks(loop.forward_backward(step, model))
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step.index, f"{loss.item():.6f}", flush=True)
        if step.index % 2 == 1:
            dcp.save({"training": training}, checkpoint_id="checkpoint")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
