"""Trains a model with SFTTrainer of TRL.

    torchrun --nproc_per_node 2 train_trl.py JOB CHECKPOINT STEPS       saves after every second step and goes on from there
"""
import os
import sys

import transformers
import trl
from transformers.trainer_utils import get_last_checkpoint

import evenkeel
import evenkeel.trl

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


class Trainer(evenkeel.trl.TrainerMixin, trl.SFTTrainer):
    pass


def main(job, checkpoint, steps):
    args = trl.SFTConfig(
        "out", max_steps=int(steps), learning_rate=LEARNING_RATE, lr_scheduler_type="constant", max_grad_norm=0, logging_steps=1,
        save_steps=2, gradient_accumulation_steps=1, ignore_data_skip=True, report_to=[], disable_tqdm=True, use_cpu=True, bf16=False)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    trainer = Trainer(model, args, data=evenkeel.Loader(job, rank=int(os.environ.get("RANK", 0))), processing_class=tokenizer)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            if "loss" in entry:  # also entry["mean_token_accuracy"] and entry["entropy"], computed by TRL
                print(entry["step"] - 1, f"{float(entry['loss']):.6f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
