"""Measures what a module of a model costs: seconds forward and backward, and bytes of activations, at several lengths.

    python -m evenkeel.profile llm    Qwen2-VL-7B        --lengths 512:16384:12 --dtype bfloat16 > llm.json
    python -m evenkeel.profile vision Qwen2-VL-7B        --lengths 256:16384:12 --dtype bfloat16 --frozen > vision.json
    python -m evenkeel.profile depth  my_towers:make     --lengths 64,128,256,512,1024 > depth.json
    python -m evenkeel.fit llm.json vision.json depth.json

The module is `package.module:function` or the folder of a checkpoint of transformers, of which only `config.json` is
read: weights are random. The function returns (module, make_inputs). `make_inputs(length)`, or `make_inputs(length,
units)`, returns what the module is called with for a unit of that length: a tensor, a tuple, or a dictionary of
keywords. docs/costs.md explains what is measured and how. Needs torch.
"""

import argparse
import contextlib
import gc
import importlib
import inspect
import json
import os
import random
import statistics
import sys
import time

from evenkeel.errors import InvalidArgument
from evenkeel.profiles import Point, Profile, Seconds

__all__ = ["Subject", "load", "measure", "parse_lengths"]

_CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
_DTYPES = ("float32", "bfloat16", "float16", "float64")


class Subject:
    """What is measured: a module, and what makes its inputs.

    module        torch.nn.Module, on any device; `measure` moves it
    make_inputs   (length[, units]) -> a tensor, a tuple of arguments or a dictionary of keywords, for one call
    model         name that all profiles of one model share
    fit_length    the nearest length that a unit can have
    window        the length of which units are made (patches of a frame or tile), or None
    """

    def __init__(self, module, make_inputs, model, fit_length=lambda length: length, window=None):
        self.module, self.model, self.fit_length, self.window = module, model, fit_length, window
        self._make, self._takes_units = make_inputs, len(inspect.signature(make_inputs).parameters) > 1

    def inputs(self, length, units):
        """(arguments, keywords) of a call. InvalidArgument if the factory cannot make several units."""
        if units > 1 and not self._takes_units:
            raise InvalidArgument(f"--units {units}: make_inputs of {self.model} takes a length alone; give it a second "
                                  "parameter, the number of units", "INVALID_ARGUMENT")
        made = self._make(length, units) if self._takes_units else self._make(length)
        if isinstance(made, dict):
            return (), made
        return (tuple(made) if isinstance(made, (tuple, list)) else (made,)), {}


def load(source, phase, window=None):
    """The `Subject` for the command's argument. InvalidArgument, with what was expected, if it cannot be made."""
    if ":" not in source:
        from evenkeel import profile_models
        return profile_models.load(source, phase, window)
    name, function = source.rsplit(":", 1)
    try:
        factory = getattr(importlib.import_module(name), function)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{source}: cannot be imported: {error}; expected package.module:function, with its package "
                              "on PYTHONPATH", "INVALID_ARGUMENT") from error
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
        raise InvalidArgument(f"{source}: must return (module, make_inputs), got {type(made).__name__}", "INVALID_ARGUMENT")
    return Subject(*made, model=name, window=window)


def measure(subject, phase, lengths, *, units=(1,), dtype="float32", device="cpu", repetitions=7, warm_up=2, clock="wall",
            frozen=False, input_gradients=False, tensor_parallel=1, model=None):
    """A `Profile`. Every repetition measures all lengths once, in an order of its own, so that a disturbance of some
    seconds meets all lengths alike. Uses the current device's default stream; not thread-safe."""
    import torch
    lengths = sorted({subject.fit_length(length) for length in lengths})
    shapes = [(length, count) for length in lengths for count in sorted(set(units))]
    module = subject.module.to(device=device, dtype=getattr(torch, dtype)).train(not frozen)
    module.requires_grad_(not frozen)
    call = _Call(module, subject, torch.device(device), getattr(torch, dtype), frozen, input_gradients, _CLOCKS[clock])
    seconds, saved = {shape: [] for shape in shapes}, {}
    for length, count in shapes:
        with _named(length, count):
            saved[length, count] = call.saved_bytes(length, count)
            for _ in range(warm_up):
                call.run(length, count)
    with _without_collection():
        for repetition in range(repetitions):
            for shape in random.Random(repetition).sample(shapes, len(shapes)):
                seconds[shape].append(call.run(*shape))
    points = [Point(length, count, _summary([one[0] for one in seconds[length, count]]),
                    _summary([one[1] for one in seconds[length, count]]) if call.has_backward else None,
                    saved[length, count]) for length, count in shapes]
    return Profile(phase=phase, model=model or subject.model, module=type(module).__name__, dtype=dtype,
                   device=_device_name(torch, device), torch=torch.__version__, clock=clock, threads=torch.get_num_threads(),
                   tensor_parallel=tensor_parallel, frozen=frozen, input_gradients=input_gradients, window=subject.window,
                   warm_up=warm_up, repetitions=repetitions, points=tuple(points))


class _Call:
    """Runs the module once and times both passes."""

    def __init__(self, module, subject, device, dtype, frozen, input_gradients, clock):
        self.module, self.subject, self.device, self.dtype = module, subject, device, dtype
        self.input_gradients, self.clock = input_gradients, clock
        self.has_backward = not frozen or input_gradients

    def run(self, length, units):
        """Seconds (forward, backward). Inputs are made, and gradients released, outside these."""
        import torch
        arguments, keywords = self._inputs(length, units)
        with contextlib.nullcontext() if self.has_backward else torch.no_grad():
            begin = self._now()
            output = self.module(*arguments, **keywords)
            forward = self._now() - begin
        if not self.has_backward:
            return forward, None
        ends, gradients = _ends(torch, output)
        begin = self._now()
        torch.autograd.backward(ends, gradients)
        backward = self._now() - begin
        self.module.zero_grad(set_to_none=True)
        return forward, backward

    def saved_bytes(self, length, units):
        """Of the storages that autograd keeps from the forward pass to the backward pass, each once."""
        import torch
        own = {_storage(tensor)[0] for tensor in [*self.module.parameters(), *self.module.buffers()]}
        kept = {}

        def keep(tensor):
            address, size = _storage(tensor)
            kept[address] = size
            return tensor
        arguments, keywords = self._inputs(length, units)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            with contextlib.nullcontext() if self.has_backward else torch.no_grad():
                output = self.module(*arguments, **keywords)
        del output
        return sum(size for address, size in kept.items() if address not in own)

    def _now(self):
        if self.device.type != "cpu":
            import torch
            getattr(torch, self.device.type).synchronize(self.device)
        return self.clock()

    def _inputs(self, length, units):
        arguments, keywords = self.subject.inputs(length, units)
        return tuple(self._placed(value) for value in arguments), {key: self._placed(value) for key, value in keywords.items()}

    def _placed(self, value):
        import torch
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)
        return value.detach().requires_grad_(self.input_gradients and value.is_floating_point())


def _storage(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def _ends(torch, output):
    """Where the backward pass begins: the output's loss if it has one, else all its tensors, each with a gradient of ones."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return [loss], [None]
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
    ends = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
    if not ends:
        raise InvalidArgument("the module's output has no tensor with a gradient; for a frozen module give --frozen",
                              "INVALID_ARGUMENT")
    return ends, [torch.ones_like(value) for value in ends]


def _summary(values):
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Seconds(statistics.median(values), min(values), high - low)


@contextlib.contextmanager
def _named(length, units):
    """Errors of the module, memory that does not suffice above all, with the length that they happened at."""
    try:
        yield
    except InvalidArgument:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{units} units of length {length}: {type(error).__name__}: {error}; give shorter lengths if "
                              "memory does not suffice", "INVALID_ARGUMENT") from error


@contextlib.contextmanager
def _without_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _device_name(torch, device):
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return str(torch.device(device).type)


def parse_lengths(text):
    """[512, 1024] of "512,1024"; "512:16384:12" are 12 in geometric progression, both ends included."""
    try:
        if ":" in text:
            low, high, count = (int(part) for part in text.split(":"))
            lengths = [] if min(low, high) < 1 else [round(low * (high / low) ** (i / (count - 1))) for i in range(count)]
        else:
            lengths = [int(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError):
        lengths = []
    if not lengths or min(lengths) < 1:
        raise InvalidArgument(f"--lengths {text}: expected lengths of at least 1 as 512,1024,2048 or FROM:TO:HOW_MANY",
                              "INVALID_ARGUMENT")
    return sorted(set(lengths))


def _arguments(argv):
    parser = argparse.ArgumentParser("python -m evenkeel.profile", description="Measure what a module costs at several lengths")
    parser.add_argument("phase", help="phase of the job: llm, vision, ...")
    parser.add_argument("source", help="package.module:function, or the folder of a checkpoint (its config.json)")
    parser.add_argument("--lengths", required=True, help="512,1024,2048, or FROM:TO:HOW_MANY in geometric progression")
    parser.add_argument("--units", default="1", help="units of a call; with several values, the cost of a unit is told apart "
                        "from that of a call (default: 1)")
    parser.add_argument("--window", type=int, help="patches of one frame: units are made of such frames")
    parser.add_argument("--dtype", default="float32", choices=_DTYPES)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2, help="calls of every length before the first that counts")
    parser.add_argument("--clock", default="wall", choices=_CLOCKS,
                        help="processor: processor time, for a CPU that other work shares")
    parser.add_argument("--frozen", action="store_true", help="no gradients of the weights")
    parser.add_argument("--input-gradients", action="store_true", help="gradients of the inputs, as before other modules that "
                        "are trained")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="accelerators that share the module (noted only)")
    parser.add_argument("--model", help="name of the model, the same in all its profiles (default: from the source)")
    parser.add_argument("--output", help="file (default: standard output)")
    return parser.parse_args(argv)


def _run(options):
    device = options.device
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    for name in ("repetitions", "tensor_parallel"):
        if getattr(options, name) < 1:
            raise InvalidArgument(f"--{name.replace('_', '-')}: must be at least 1", "INVALID_ARGUMENT")
    if options.clock == "processor" and not device.startswith("cpu"):
        raise InvalidArgument(f"--clock processor: does not see the work of {device}; leave it out", "INVALID_ARGUMENT")
    subject = load(options.source, options.phase, options.window)
    units = parse_lengths(options.units)
    profile = measure(subject, options.phase, parse_lengths(options.lengths), units=units, dtype=options.dtype, device=device,
                      repetitions=options.repetitions, warm_up=options.warm_up, clock=options.clock, frozen=options.frozen,
                      input_gradients=options.input_gradients, tensor_parallel=options.tensor_parallel, model=options.model)
    if os.environ.get("RANK", "0") != "0":  # of torchrun: one file for all
        return
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(profile.to_json())
    else:
        sys.stdout.write(profile.to_json())


def main(argv=None):
    try:
        _run(_arguments(argv))
    except (InvalidArgument, OSError, json.JSONDecodeError) as error:
        print(f"evenkeel.profile: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
