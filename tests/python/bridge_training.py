"""Trains by examples/trainers/train_megatron_bridge_gpt.py on a CPU, or the same model by a plain loop.

    bridge_training.py JOB VOCABULARY STEPS [INITIAL]

Writes the first weights into initial.pt; trains by a plain loop from the weights INITIAL. Prints a step and its loss a line.
After the step that the file `hold` names, if there is one, a rank writes held-RANK and waits until it is killed.
"""
import dataclasses
import importlib
import pathlib
import signal
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "trainers"


def cpu_config(example, attention, *arguments):
    """The example's, with torch's attention and on gloo."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    @dataclasses.dataclass
    class OnCpu(example.GPTModelProvider):
        def provide(self, *args, **kwargs):
            self.use_cpu_initialization = True
            return super().provide(*args, **kwargs)

    def layer(_):
        spec = get_gpt_layer_local_spec()
        spec.submodules.self_attention.submodules.core_attention = attention
        return spec
    example.GPTModelProvider = OnCpu
    config = example.make_config(*arguments)
    model = config.model
    model.transformer_layer_spec = layer
    model.gradient_accumulation_fusion = model.bias_dropout_fusion = model.apply_rope_fusion = False
    model.masked_softmax_fusion = model.cross_entropy_loss_fusion = model.persist_layer_norm = False
    config.checkpoint.load_rng = False  # the random state of a GPU, which this machine does not have
    config.dist = example.config.DistributedInitConfig(distributed_backend="gloo", disable_jit_fuser=True)
    return config


def plain(config, job, steps, initial):
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.process_groups_config import ProcessGroupCollection

    import evenkeel.megatron
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    config.model.finalize()
    config.model._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    model = config.model.provide()
    model.load_state_dict(torch.load(initial))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optimizer.lr, betas=(0.9, 0.999), weight_decay=0.0)
    loader = evenkeel.Loader(job, rank=0)
    for step in loader:
        if step.index == steps:
            break
        total = 0.0
        for microbatch in step.microbatches:
            batch = evenkeel.megatron.batch(microbatch)
            losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"],
                           packed_seq_params=evenkeel.megatron.packed_seq_params(batch))
            loss = (losses * batch["loss_mask"]).sum() / step.loss_tokens
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        print(step.index, f"{total:.6f}", flush=True)
    dist.destroy_process_group()


def main(job, vocabulary, steps, initial=None):
    import os

    import bridge_on_cpu  # noqa: F401
    import torch
    sys.path.insert(0, str(EXAMPLES))
    example = importlib.import_module("train_megatron_bridge_gpt")
    attention = importlib.import_module("train_megatron").PackedAttention
    config = cpu_config(example, attention, job, int(vocabulary), int(steps), int(os.environ["WORLD_SIZE"]))
    if initial is not None:
        plain(config, job, int(steps), initial)
        return

    def save(context):
        if os.environ["RANK"] == "0" and context.state.train_state.step == 0:
            torch.save(context.model[0].module.state_dict(), "initial.pt")

    def hold(context):
        if pathlib.Path("hold").exists() and context.state.train_state.step == int(pathlib.Path("hold").read_text()):
            pathlib.Path(f"held-{os.environ['RANK']}").touch()
            signal.pause()
    callbacks = example.make_callbacks()
    callbacks.register("on_train_start", save)
    callbacks.register("on_train_step_end", hold)
    example.pretrain(config, example.forward_step, callbacks)


if __name__ == "__main__":
    main(*sys.argv[1:])
