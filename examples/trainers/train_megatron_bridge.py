"""Trains Qwen2.5-VL with Megatron-Bridge, on GPUs. Not run by the tests: docs/trainers.md, Megatron-Bridge.

    torchrun --nproc_per_node 8 train_megatron_bridge.py JOB PRETRAINED STEPS      (the job has 8 microbatches a step)

PRETRAINED is Qwen2.5-VL-3B-Instruct as AutoBridge.import_ckpt writes it. Saves into out after every 100 steps, and goes on
from there.
"""
import os
import sys

from megatron.bridge.recipes.qwen_vl import qwen25_vl_3b_sft_config
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.vlm_step import forward_step

import evenkeel.megatron_bridge

MICROBATCHES = 8


def make_config(job, pretrained, steps, ranks):
    config = qwen25_vl_3b_sft_config()
    config.dataset = evenkeel.megatron_bridge.DatasetProvider(source=job)
    config.train.train_iters = steps
    config.train.micro_batch_size, config.train.global_batch_size = 1, MICROBATCHES * ranks
    config.validation.eval_iters = 0                       # a loader trains alone
    config.model.calculate_per_token_loss = True           # the loss is divided by the trained tokens of the whole step
    config.ddp.average_in_collective = False
    config.checkpoint.pretrained_checkpoint = pretrained
    config.checkpoint.save = config.checkpoint.load = "out"
    config.checkpoint.save_interval = 100
    return config


def main(job, pretrained, steps):
    finetune(make_config(job, pretrained, int(steps), ranks=int(os.environ["WORLD_SIZE"])), forward_step)


if __name__ == "__main__":
    main(*sys.argv[1:])
