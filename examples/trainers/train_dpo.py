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
    """Of each document, the sum over its trained tokens. `logits`: [rows, tokens, vocabulary], one row if packed."""
    labels = torch.as_tensor(microbatch["labels"], device=logits.device)[:, 1:]  # the first of a document is -100
    each = -torch.nn.functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), labels, ignore_index=-100, reduction="none")
    if "cu_seqlens" not in microbatch:
        return each.sum(1)
    ends = torch.as_tensor(microbatch["cu_seqlens"], device=logits.device)[1:].long()
    document = torch.searchsorted(ends, torch.arange(1, labels.shape[1] + 1, device=logits.device), right=True)
    return torch.zeros(len(ends) + 1, device=logits.device).index_add(0, document, each[0])[:-1]  # without what follows them


def dpo_losses(policy, reference, microbatch, beta=BETA):
    """Of each pair whose text is valid. `policy`, `reference`: log-probabilities of the documents."""
    kinds = torch.as_tensor(evenkeel.pairs(microbatch))
    valid = torch.as_tensor(microbatch["sample_valid"]) != 0
    gained = (policy - reference)[:len(kinds)]  # of padding nothing
    chosen, rejected = (gained[((kinds == kind) & valid).to(gained.device)] for kind in (1, 2))
    return -torch.nn.functional.logsigmoid(beta * (chosen - rejected))


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
