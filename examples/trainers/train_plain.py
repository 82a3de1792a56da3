"""Trains a model of transformers in one process, on a worker of this machine that the loader starts.

    python train_plain.py JOB CHECKPOINT STEPS       saves checkpoint.pt after every second step and goes on from it
"""
import os
import sys

import torch
from transformers import AutoModelForImageTextToText

import evenkeel
from evenkeel import loop

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def main(job, checkpoint, steps):
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    loader = evenkeel.Loader(job, rank=0, num_steps=int(steps))
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["data"])
    for step in loader:
        loss = loop.forward_backward(step, model)
        optimizer.step()
        optimizer.zero_grad()
        print(step.index, f"{loss.item():.6f}", flush=True)
        if step.index % 2 == 1:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()},
                       "checkpoint.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
