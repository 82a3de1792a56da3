"""Trains a model of transformers on preference pairs by DPO, in one process, on a worker of this machine.

    python train_dpo.py JOB CHECKPOINT STEPS
"""
import copy
import sys

import torch

import evenkeel

BETA = 0.1
LEARNING_RATE = 1e-3  # of a small model with random weights; 1e-6 for a pretrained one


def log_probabilities(logits, microbatch):
    """Of each document, the sum over its trained tokens. `logits`: [1, tokens, vocabulary]."""
    labels = torch.as_tensor(microbatch["labels"], device=logits.device)[0, 1:]  # the first of a document is -100
    ends = torch.as_tensor(microbatch["cu_seqlens"], device=logits.device)[1:].long()
    each = -torch.nn.functional.cross_entropy(logits[0, :-1].float(), labels, ignore_index=-100, reduction="none")
    document = torch.searchsorted(ends, torch.arange(1, len(labels) + 1, device=logits.device), right=True)
    return torch.zeros(len(ends) + 1, device=logits.device).index_add(0, document, each)[:-1]  # without what follows them


def dpo_losses(policy, reference, microbatch, beta=BETA):
    """Of each pair whose text is valid. `policy`, `reference`: log-probabilities of the documents."""
    kinds = torch.as_tensor(evenkeel.pairs(microbatch))
    valid = torch.as_tensor(microbatch["sample_valid"]) != 0
    chosen = torch.nonzero((kinds == 1) & valid)[:, 0].to(policy.device)
    gained = policy - reference
    return -torch.nn.functional.logsigmoid(beta * (gained[chosen] - gained[chosen + 1]))


def main(job, checkpoint, steps):
    from transformers import AutoModelForCausalLM

    from evenkeel import inputs
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).train()
    frozen = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for step in evenkeel.Loader(job, rank=0, num_steps=int(steps)):
        losses = []
        for number, microbatch in enumerate(step.microbatches):
            given = inputs.of(step, number, model)
            fed = {**microbatch, "labels": given.pop("labels")}
            with torch.no_grad():
                reference = log_probabilities(frozen(**given).logits, fed)
            of_pairs = dpo_losses(log_probabilities(model(**given).logits, fed), reference, fed)
            of_pairs.sum().backward()
            losses += of_pairs.tolist()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= max(1, len(losses))
        optimizer.step()
        optimizer.zero_grad()
        print(step.index, f"{sum(losses) / max(1, len(losses)):.6f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
