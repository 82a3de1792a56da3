"""Trains a small Llama of TorchTitan on texts, with FSDP2. Packed documents go through the metadata of its varlen attention,
but the attention is torch's, so that it runs anywhere.

    torchrun --nproc_per_node 2 train_torchtitan.py JOB TOKENIZER STEPS

The job has `microbatch: {pad_to: 320, count_multiple: 2}`. Saves into out/checkpoint after every second step, and goes on
from it.
"""
import gc
import itertools
import os
import sys
import types
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torchtitan.tools.utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import distribute_tensor
from torch.nn.functional import scaled_dot_product_attention as attend

if not torch.cuda.is_available():                          # before other modules of TorchTitan take these
    torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", torch.cpu

import torchtitan.components.metrics  # noqa: E402
import torchtitan.distributed.utils  # noqa: E402
from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.config.configs import TrainingConfig  # noqa: E402
from torchtitan.models.common.attention import VarlenAttention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

import evenkeel.torchtitan  # noqa: E402

if not torch.cuda.is_available():                          # it measures the memory of a GPU, and names it in a barrier
    torchtitan.distributed.utils.set_pg_timeouts = lambda **_: None
    torchtitan.components.metrics.build_device_memory_monitor = lambda: types.SimpleNamespace(
        device_name="cpu", reset_peak_stats=lambda: None,
        get_peak_stats=lambda: torchtitan.components.metrics.DeviceMemStats(0, 0, 0, 0, 0, 0))

MICROBATCHES, TOKENS = 2, 320
LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


class PackedAttention(VarlenAttention):
    """Causal within each document."""

    @dataclass(kw_only=True, slots=True)
    class Config(VarlenAttention.Config):
        pass

    def forward(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks, scale=None, **_):
        heads = [one.transpose(1, 2) for one in (q_BLNH, k_BLNH, v_BLNH)]
        bounds = attention_masks.cu_seq_q.tolist()
        documents = [attend(*(one[:, :, a:b] for one in heads), is_causal=True, scale=scale)
                     for a, b in itertools.pairwise(bounds)]
        return torch.cat(documents, 2).transpose(1, 2)


class PrintedLoss(MetricsProcessor):
    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        pass

    def log(self, step, global_avg_loss, *_, **__):
        if dist.get_rank() == 0:
            print(step - 1, f"{global_avg_loss:.6f}", flush=True)


def make_model():
    spec = model_registry("debugmodel", attn_backend="varlen")
    spec.model.layers = spec.model.layers[:2]
    for layer in spec.model.layers:
        layer.attention.inner_attention = PackedAttention.Config()
    return spec


def main(job, tokenizer, steps):
    config = Trainer.Config(
        model_spec=make_model(), loss=CrossEntropyLoss.Config(), hf_assets_path=tokenizer, dump_folder="out",
        dataloader=evenkeel.torchtitan.DataLoader.Config(source=job, microbatches=MICROBATCHES),
        optimizer=default_adamw(LEARNING_RATE), metrics=PrintedLoss.Config(log_freq=1), activation_checkpoint=None,
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0, decay_ratio=0.0),
        training=TrainingConfig(local_batch_size=1, global_batch_size=MICROBATCHES * int(os.environ["WORLD_SIZE"]), seq_len=TOKENS,
                                steps=int(steps), mixed_precision_param="float32", disable_cuda_graphs=True),
        checkpoint=CheckpointManager.Config(enable=True, interval=2, last_save_model_only=False))
    trainer = Trainer(config)
    torch.manual_seed(0)                                   # weights that do not depend on the number of ranks
    whole = make_model().model
    whole.update_from_config(config=config)
    whole = whole.build()
    whole.init_weights()
    with torch.no_grad():
        for shard, one in zip(trainer.model_parts[0].parameters(), whole.parameters(), strict=True):
            shard.copy_(distribute_tensor(one, shard.device_mesh, shard.placements))
    for module in trainer.model_parts[0].modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor
    trainer.train()                                        # loads the newest checkpoint first
    trainer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
