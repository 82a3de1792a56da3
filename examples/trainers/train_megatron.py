"""Trains a GPT of Megatron-Core on texts. Packed documents go through PackedSeqParams, as with Transformer Engine, but the
attention is torch's, so that it runs anywhere.

    torchrun --nproc_per_node 2 train_megatron.py JOB VOCABULARY STEPS      (the job has 2 microbatches a step)

Saves checkpoint.pt after every second step and goes on from it.
"""
import gc
import itertools
import os
import sys

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.rerun_state_machine import RerunDataIterator
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import scaled_dot_product_attention as attend

import evenkeel
import evenkeel.megatron
import evenkeel.torch

MICROBATCHES = 2
LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-5 for a pretrained one

if not torch.cuda.is_available():
    torch.cuda.current_device = lambda: "cpu"              # Megatron-Core creates its buffers there


class PackedAttention(torch.nn.Module):
    """Causal within each document."""

    def __init__(self, *_, **__):
        super().__init__()

    def forward(self, query, key, value, *_, packed_seq_params, **__):
        query, key, value = (one.transpose(0, 1) for one in (query, key, value))  # [heads, tokens, width]
        bounds = packed_seq_params.cu_seqlens_q.tolist()
        documents = [attend(query[:, a:b], key[:, a:b], value[:, a:b], is_causal=True) for a, b in itertools.pairwise(bounds)]
        return torch.cat(documents, 1).transpose(0, 1).flatten(1)[:, None]


def make_model(vocabulary):
    torch.manual_seed(0)
    layer = get_gpt_layer_local_spec()
    layer.submodules.self_attention.submodules.core_attention = PackedAttention
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, attention_dropout=0, hidden_dropout=0, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False)
    return GPTModel(config, layer, vocab_size=vocabulary, max_sequence_length=1024, position_embedding_type="rope")


def main(job, vocabulary, steps):
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    model = make_model(int(vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    loader = evenkeel.Loader(job, rank=parallel_state.get_data_parallel_rank())
    evenkeel.torch.agree(loader)                           # all ranks follow one stream
    iterator = evenkeel.megatron.DataIterator(loader, MICROBATCHES)
    first = 0
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        iterator.restore_state(state["data"])
        first = state["data"]["step"]
    batches = RerunDataIterator(iterator)                  # as Megatron-LM wraps an external dataloader
    for step in range(first, int(steps)):
        total = 0.0
        for _ in range(MICROBATCHES):
            batch = next(batches)
            losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"],
                           packed_seq_params=evenkeel.megatron.packed_seq_params(batch))
            loss = (losses * batch["loss_mask"]).sum() / iterator.loss_tokens
            loss.backward()
            total += loss.detach()
        batches.advance()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)                # sums: the loss is divided by the tokens of all ranks
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(step, f"{total.item():.6f}", flush=True)
            if step % 2 == 1:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": iterator.save_state()},
                           "checkpoint.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    gc.collect()  # ends gloo's threads while there is an interpreter: docs/trainers.md, The end of a training
