"""Trains a GPT of Megatron-Bridge on texts, by release 0.3, the newest on PyPI.

    torchrun --nproc_per_node 8 train_megatron_bridge_gpt.py JOB VOCABULARY STEPS     (the job has 2 microbatches a step)

Saves into out after every second step, and goes on from there.
"""
import os
import sys

from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.training import config
from megatron.bridge.training.callbacks import CallbackManager
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain

import evenkeel.megatron_bridge

MICROBATCHES = 2
LENGTH = 1024
LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one


def make_config(job, vocabulary, steps, ranks):
    return config.ConfigContainer(
        train=config.TrainingConfig(train_iters=steps, micro_batch_size=1, global_batch_size=MICROBATCHES * ranks, eval_iters=0),
        model=GPTModelProvider(
            num_layers=2, hidden_size=64, num_attention_heads=4, attention_dropout=0, hidden_dropout=0, seq_length=LENGTH,
            position_embedding_type="rope", vocab_size=vocabulary, calculate_per_token_loss=True),
        optimizer=config.OptimizerConfig(optimizer="adam", lr=LEARNING_RATE, min_lr=0.0, weight_decay=0.0, clip_grad=0.0),
        scheduler=config.SchedulerConfig(lr_decay_style="constant", start_weight_decay=0.0, end_weight_decay=0.0,
                                         override_opt_param_scheduler=True),
        ddp=config.DistributedDataParallelConfig(average_in_collective=False),  # the loss is divided by the step's tokens
        dataset=evenkeel.megatron_bridge.DatasetProvider(source=job, dataloader_save="out", dataloader_load="out"),
        tokenizer=config.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=vocabulary),
        checkpoint=config.CheckpointConfig(save="out", load="out", save_interval=2),
        logger=config.LoggerConfig())


def make_callbacks():
    callbacks = CallbackManager()
    callbacks.register("on_train_start", evenkeel.megatron_bridge.restore)
    callbacks.register("on_train_step_end", print_loss)
    return callbacks


def print_loss(context):
    if int(os.environ["RANK"]) == 0:
        print(context.state.train_state.step, f"{context.loss_dict['lm loss'].item():.6f}", flush=True)


def main(job, vocabulary, steps):
    pretrain(make_config(job, int(vocabulary), int(steps), int(os.environ["WORLD_SIZE"])), forward_step, make_callbacks())


if __name__ == "__main__":
    main(*sys.argv[1:])
