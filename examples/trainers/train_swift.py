"""Trains a model with ms-swift. The same as `swift sft --external_plugins PLUGIN ...`, where PLUGIN calls install() as here.

    torchrun --nproc_per_node 2 train_swift.py JOB CHECKPOINT STEPS [MODEL_TYPE]

Saves into out after every second step and goes on from there. The job has `min_items: 0`.
"""
import json
import os
import sys

os.environ["USE_HF"] = "1"

from swift import sft_main  # noqa: E402
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

import evenkeel  # noqa: E402
import evenkeel.swift  # noqa: E402

LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def main(job, checkpoint, steps, model_type="qwen2_vl"):
    evenkeel.swift.install(lambda: evenkeel.Loader(job, rank=int(os.environ.get("RANK", 0))))
    with open("looked-at.jsonl", "w") as file:             # ms-swift wants a dataset, and looks at its first sample
        file.write(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
    given = {
        "model": checkpoint, "model_type": model_type, "template": model_type, "dataset": "looked-at.jsonl", "torch_dtype": "float32",
        "tuner_type": "full", "freeze_vit": "false", "freeze_aligner": "false", "gradient_checkpointing": "false", "max_steps": steps,
        "gradient_accumulation_steps": "1", "ignore_data_skip": "true", "learning_rate": LEARNING_RATE, "warmup_ratio": "0",
        "lr_scheduler_type": "constant", "weight_decay": "0", "adam_beta2": "0.999", "max_grad_norm": "0", "logging_steps": "1",
        "save_steps": "2", "output_dir": "out", "add_version": "false", "report_to": "none", "use_cpu": "true",
        "check_model": "false"}
    last = get_last_checkpoint("out") if os.path.isdir("out") else None
    if last:
        given["resume_from_checkpoint"] = last
    done = sft_main([str(word) for name, value in given.items() for word in (f"--{name}", value)])
    if int(os.environ.get("RANK", 0)) == 0:
        for entry in done["log_history"]:
            if "loss" in entry:
                print(entry["step"] - 1, f"{float(entry['loss']):.6f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
