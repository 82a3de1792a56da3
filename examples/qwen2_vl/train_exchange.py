"""Trains Qwen2-VL on pictures: one process a rank, each with its share of a balanced stream.

    torchrun --nproc_per_node 2 train_exchange.py ENDPOINTS STEPS       for example 127.0.0.1:7000 20

Writes checkpoint.pt after every step and continues from it.
"""
import gc
import os
import sys

import torch
import torch.distributed as dist
from transformers import Qwen2VLForConditionalGeneration

import evenkeel
import evenkeel.torch


class Routed(torch.nn.Module):
    """Encodes the images that this rank was given, exchanges the rows, runs the llm on this rank's documents."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, step, labels):
        images, route = step.encoders["vision"], step.routes["vision"]
        pixels = evenkeel.torch.pixels(images, "pixel_values").to(self.model.dtype)
        grids = evenkeel.torch.tensor(images, "image_grid_thw")
        encoded = self.model.get_image_features(pixels, grids).pooler_output
        rows = evenkeel.torch.exchange(torch.cat(list(encoded)), route, grad=True)
        loss = 0.0
        for i, microbatch in enumerate(step.microbatches):
            ids = evenkeel.torch.tensor(microbatch, "input_ids")
            hidden = self.model.get_input_embeddings()(ids)
            hidden = evenkeel.torch.scatter_rows(hidden, microbatch, "vision", rows[slice(*route.microbatch_rows(i))])
            positions = evenkeel.torch.tensor(microbatch, "position_ids")
            logits = self.model(inputs_embeds=hidden, position_ids=positions, use_cache=False).logits[0]
            loss = loss + torch.nn.functional.cross_entropy(
                logits[:-1].float(), labels[i][0, 1:], ignore_index=-100, reduction="sum")
        return loss / step.loss_tokens


def main(endpoints, steps):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        Routed(Qwen2VLForConditionalGeneration.from_pretrained("./qwen2-vl")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    loader = evenkeel.Loader(endpoints, rank=rank, num_steps=steps)
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["data"])
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    for step in loader:
        loss = model(step, evenkeel.torch.mask_labels(step))
        (loss * world).backward()                          # DistributedDataParallel averages; the sum is needed
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach_())
        if rank == 0:
            print(step.index, f"{loss.item():.6f}", flush=True)
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                        "data": loader.state_dict()}, "checkpoint.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
