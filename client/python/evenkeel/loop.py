"""Forward and backward of one step, for loops of one's own: plain PyTorch, DistributedDataParallel, FSDP2, Accelerate.

    for step in loader:
        loss = loop.forward_backward(step, model)      # backward=accelerator.backward with Accelerate
        optimizer.step()
        optimizer.zero_grad()
        step.done()

For models of transformers, in jobs with `balance: drop_in`. The other trainers' files use it too.
"""

import contextlib

import torch
import torch.distributed as dist

from evenkeel import inputs


def forward_backward(step, model, backward=torch.Tensor.backward, ranks=None, no_sync=None, loss_of=None):
    """Runs every microbatch of the step. Returns a loss whose mean over the ranks is the loss of the whole step.

    backward   called with each microbatch's loss
    ranks      over how many ranks the trainer averages gradients; None: the world, or 1 without process groups
    no_sync    a context in which gradients are accumulated and not reduced, for all microbatches but the last; None:
               that of the model if it has one. FSDP2 reduces after every microbatch, which needs less memory
    loss_of    computes a microbatch's loss; called as `model_loss`, which is the default

    The loss is summed over the trained tokens, each with its weight in jobs with `processor.loss_weights`, and divided by
    their number in the whole step, so it does not depend on the number of ranks and microbatches. It is multiplied by
    `ranks`, since trainers average gradients over them.
    """
    ranks = world_size() if ranks is None else ranks
    no_sync = getattr(model, "no_sync", contextlib.nullcontext) if no_sync is None else no_sync
    loss_of = model_loss if loss_of is None else loss_of
    total = 0.0
    for number in range(len(step.microbatches)):
        last = number == len(step.microbatches) - 1
        with contextlib.nullcontext() if last else no_sync():
            given = inputs.of(step, number, model)
            weights = inputs.loss_weights(step, number, given["labels"])
            loss = loss_of(model, given, weights, step.loss_tokens / ranks)
            backward(loss)
        total = total + loss.detach()
    return total


def model_loss(model, given, weights, denominator):
    """The sum of the loss over the trained tokens of one microbatch, divided by `denominator`, a float.

    given     the arguments of the model's forward, with labels
    weights   float32 [1, tokens], of labels; None: each counts alike. The models' own losses take no weights
    """
    if weights is None:
        return model(**given, num_items_in_batch=denominator).loss
    labels = given.pop("labels")
    logits = model(**given).logits
    each = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(),
                                             ignore_index=-100, reduction="none")
    return (each * weights[:, 1:].flatten()).sum() / denominator


def world_size():
    """Of the process group; 1 if there is none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def mean_over_ranks(loss):
    """The loss of the whole step, on every rank. A collective."""
    if world_size() > 1:
        dist.all_reduce(loss)
    return loss / world_size()
