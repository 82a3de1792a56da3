"""Losses and gradients of one model by VeOmni and by transformers, each on steps of one document, as one line of JSON.

    python veomni_losses.py ENDPOINT CHECKPOINT THE_SAME_WITH_OWN_NAMES FOLDER STEPS

In a process of its own, since VeOmni changes transformers when it is imported.
"""
import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
import transformers

import evenkeel
import evenkeel.veomni
from evenkeel import inputs

EAGER = ("moe", "cross_entropy_loss", "rms_norm", "swiglu_mlp", "rotary_pos_emb", "load_balancing_loss", "rms_norm_gated",
         "causal_conv1d", "chunk_gated_delta_rule")  # instead of kernels for GPUs


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def veomnis_model(checkpoint):
    from veomni.arguments.arguments_types import OpsImplementationConfig
    from veomni.models import build_foundation_model
    options = {f"{name}_implementation": "eager" for name in EAGER}
    return build_foundation_model(checkpoint, checkpoint, torch_dtype="float32", init_device="cpu",
                                  ops_implementation=OpsImplementationConfig(attn_implementation="sdpa", **options))


def main(endpoint, checkpoint, named, folder, steps):
    torch.set_num_threads(1)
    torch.cuda.is_current_stream_capturing = lambda: False  # the parity tests' torch cannot answer it
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    steps = list(evenkeel.Loader(endpoint, rank=0, num_steps=int(steps)))
    plain = transformers.Qwen2VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="sdpa")
    expected = []
    for step in steps:
        loss = plain(**inputs.of(step, 0, plain)).loss
        expected.append((float(loss), gradients(plain, loss)))
    with contextlib.redirect_stdout(sys.stderr):
        theirs = veomnis_model(named)
    out = []
    for step, (loss, gradient) in zip(steps, expected):
        batch = evenkeel.veomni.batch(step, 0)
        theirs_loss = theirs(**batch, use_cache=False).loss
        other = gradients(theirs, theirs_loss)
        apart = max(float((gradient[name] - other[name]).abs().max()) for name in gradient)
        out.append({"plain": loss, "veomni": float(theirs_loss), "gradients_apart": apart, "same": set(gradient) <= set(other),
                    "largest": max(float(one.abs().max()) for one in gradient.values()), "media": "pixel_values" in batch})
    print(json.dumps(out), flush=True)
    os._exit(0)  # its threads do not end


if __name__ == "__main__":
    main(*sys.argv[1:])
