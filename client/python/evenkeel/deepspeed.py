"""Steps of a loader in an engine of DeepSpeed: ZeRO stages 0 to 3.

    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in loader:
        loss = evenkeel.deepspeed.train_step(step, engine)

`config` has gradient_accumulation_steps 1, which is its default: a step of the loader is a step of the optimizer, with any
number of microbatches. The loader's state goes into `engine.save_checkpoint(folder, client_state=...)`.
"""

import contextlib

from evenkeel import loop


def train_step(step, engine):
    """Forward, backward and the optimizer's step. Returns a loss whose mean over the ranks is the loss of the whole step.

    ValueError if the engine counts microbatches by itself: their number varies.
    """
    if engine.gradient_accumulation_steps() != 1:
        raise ValueError(f"evenkeel.deepspeed: gradient_accumulation_steps is {engine.gradient_accumulation_steps()}; give 1: a "
                         "step of the loader is a step of the optimizer")
    left = len(step.microbatches)

    def loss_of(*given):
        nonlocal left
        left -= 1
        engine.set_gradient_accumulation_boundary(left == 0)  # from the forward on: gradients are reduced in backward
        return loop.model_loss(*given)

    # The engine's own no_sync is not allowed in stages 2 and 3, and not needed in the others.
    loss = loop.forward_backward(step, engine, engine.backward, no_sync=contextlib.nullcontext, loss_of=loss_of)
    engine.step()
    step.done()
    return loss
