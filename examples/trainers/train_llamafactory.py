"""Trains a model with the trainer of LLaMA-Factory v1.

    torchrun --nproc_per_node 2 train_llamafactory.py JOB CHECKPOINT STEPS

Saves into out after every second step and goes on from there.
"""
import gc
import sys

import torch
from llamafactory.v1.accelerator.interface import DistributedInterface
from llamafactory.v1.config import get_args
from llamafactory.v1.core.model_engine import ModelEngine
from llamafactory.v1.trainers.sft_trainer import SFTTrainer
from llamafactory.v1.utils.callbacks import TrainerCallback

import evenkeel
import evenkeel.llamafactory

if not torch.cuda.is_available():
    torch.accelerator.synchronize = lambda *_: None        # the trainer waits for a GPU after every step

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


class Trainer(evenkeel.llamafactory.TrainerMixin, SFTTrainer):
    def _init_optimizer(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate, weight_decay=0.0)


class PrintLoss(TrainerCallback):
    def on_step_end(self, args, state, **_):
        if DistributedInterface().get_rank() == 0:
            print(state.global_step - 1, f"{state.loss:.6f}", flush=True)


def main(job, checkpoint, steps):
    model_args, _, training_args, _ = get_args({
        "model": checkpoint, "output_dir": "out", "max_steps": int(steps), "learning_rate": LEARNING_RATE, "max_grad_norm": 1e9,
        "dist_config": {"name": "fsdp2"}, "bf16": False, "enable_activation_checkpointing": False, "save_steps": 2,
        "resume_from_checkpoint": "auto"})
    ranks = DistributedInterface(training_args.dist_config)
    engine = ModelEngine(model_args, is_train=True)
    loader = evenkeel.Loader(job, rank=ranks.get_rank())
    trainer = Trainer(args=training_args, model=engine.model, renderer=engine.renderer, data=loader, callbacks=[PrintLoss()])
    trainer.fit()
    ranks.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
