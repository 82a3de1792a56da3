"""Trains a small Qwen2-VL by VeOmni's trainer for vision-language models, with FSDP2.

    torchrun --nproc_per_node 2 train_veomni.py JOB CHECKPOINT STEPS

The job has `balance: drop_in` and `min_items: 0`; without a GPU also one document a microbatch, since only VeOmni's flash
attention keeps packed documents apart. CHECKPOINT has the parameters under their own names: docs/trainers.md, VeOmni.
Saves into out/checkpoints after every second step, and goes on from the last.
"""
import sys

import torch
import torch.distributed as dist
from veomni.arguments import arguments_types as options
from veomni.data.data_loader import DATALOADER_REGISTRY
from veomni.data.dataset import DATASET_REGISTRY
from veomni.trainer import vlm_trainer

import evenkeel
import evenkeel.torch
import evenkeel.veomni

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one
KERNELS = ("moe", "cross_entropy_loss", "rms_norm", "swiglu_mlp", "rotary_pos_emb", "load_balancing_loss", "rms_norm_gated",
           "causal_conv1d", "chunk_gated_delta_rule")


class Trainer(vlm_trainer.VLMTrainer):
    def _build_model_assets(self):
        self.base.model_assets = [self.base.model_config]  # the worker has processor and chat template

    def _build_data_transform(self):
        self.base.data_transform = None

    def _build_optimizer(self):
        super()._build_optimizer()
        for group in self.base.optimizer.param_groups:
            group["betas"] = 0.9, 0.999                    # as in the other examples; VeOmni's trainer sets 0.9, 0.95

    def on_step_end(self, loss, **more):
        super().on_step_end(loss=loss, **more)
        if dist.get_rank() == 0:
            step, reported = self.base.state.global_step - 1, self.base.step_train_metrics
            print(step, f"{reported['training/total_loss']:.6f}", flush=True)


def register(job, steps):
    @DATASET_REGISTRY.register("evenkeel")
    def no_dataset(**_):
        return iter(())                                    # the job names the data

    @DATALOADER_REGISTRY.register("evenkeel")
    def build(**_):
        loader = evenkeel.Loader(job, rank=dist.get_rank(), num_steps=steps)
        evenkeel.torch.agree(loader)                       # all ranks follow one stream
        return evenkeel.veomni.DataLoader(loader)


def arguments(checkpoint, steps):
    """What a file of VeOmni's would say. In float32, so that losses are those of a plain loop."""
    eager = {f"{name}_implementation": "eager" for name in KERNELS}
    kernels = options.OpsImplementationConfig(**({} if torch.cuda.is_available() else
                                                 {"attn_implementation": "sdpa", **eager}))
    precision = options.MixedPrecisionConfig(param_dtype="float32")
    return vlm_trainer.VeOmniVLMArguments(
        model=vlm_trainer.VLMMModelArguments(config_path=checkpoint, model_path=checkpoint, ops_implementation=kernels),
        data=vlm_trainer.VLMMDataArguments(train_path="", datasets_type="evenkeel", train_sample=steps,
                                           dataloader=options.DataloaderConfig("evenkeel")),
        train=vlm_trainer.VLMTrainingArguments(
            dyn_bsz=False, max_steps=steps, init_device="meta", vit_lr=LEARNING_RATE,
            optimizer=options.OptimizerConfig(lr=LEARNING_RATE, lr_decay_style="constant", lr_warmup_ratio=0.0,
                                              weight_decay=0.0, max_grad_norm=1e9),
            checkpoint=options.CheckpointConfig("out", save_steps=2, save_epochs=0, load_path="auto", save_hf_weights=False),
            accelerator=options.AcceleratorConfig(fsdp_config=options.FSDPConfig(mixed_precision=precision))))


def stand_in_for_a_gpu(cpu):
    """What VeOmni asks of its device to report it."""
    cpu.get_device_name, cpu.empty_cache = lambda *_: "cpu", lambda: None
    cpu.max_memory_allocated = cpu.max_memory_reserved = lambda: 0
    cpu.memory_stats = lambda: {"num_alloc_retries": 0}


def main(job, checkpoint, steps):
    if not torch.cuda.is_available():
        stand_in_for_a_gpu(torch.cpu)
        dist.init_process_group("gloo")
    register(job, int(steps))
    Trainer(arguments(checkpoint, int(steps))).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
