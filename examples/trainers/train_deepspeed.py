"""Trains a model of transformers with ZeRO of DeepSpeed.

    torchrun --nproc_per_node 2 train_deepspeed.py JOB CHECKPOINT STEPS [STAGE]

Saves into the folder checkpoint after every second step and goes on from it. Stages 1 to 3. On a machine without GPUs set
DS_ACCELERATOR=cpu.
"""
import gc
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from transformers import AutoModelForImageTextToText

import evenkeel
import evenkeel.deepspeed
import evenkeel.torch
from evenkeel import loop

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def main(job, checkpoint, steps, stage="2"):
    if not torch.cuda.is_available():
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled now; gloo does as well
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", verbose=False)
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": int(stage)}, "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0})                         # 1.0 by default
    loader = evenkeel.Loader(job, rank=dist.get_rank(), num_steps=int(steps))
    if os.path.isdir("checkpoint"):
        _, state = engine.load_checkpoint("checkpoint")
        loader.load_state_dict(state["data"])
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    for step in loader:
        loss = loop.mean_over_ranks(evenkeel.deepspeed.train_step(step, engine))
        if dist.get_rank() == 0:
            print(step.index, f"{loss.item():.6f}", flush=True)
        if step.index % 2 == 1:
            engine.save_checkpoint("checkpoint", client_state={"data": loader.state_dict()})
    engine.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
