"""Makes Megatron-Bridge importable and trainable without Transformer Engine, NVIDIA's other packages and GPUs. Only for tests:
import this file before any module of Bridge. What has a stand-in is never called in a training of a small GPT; but for the
replaced functions below, all code that runs is Bridge's own and Megatron-Core's."""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import pathlib
import sys
import types

import megatron.core
import torch
import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl  # noqa: F401 - asks for packages that get stand-ins below

# Not on PyPI for CPUs, built for CUDA, or of another release of transformers (datasets).
MISSING = ("transformer_engine", "modelopt", "nvidia_resiliency_ext", "mamba_ssm", "causal_conv1d", "hydra", "datasets",
           "megatron.core.ssm.mamba_mixer", "megatron.energon", "torch.utils.tensorboard")


class Inert(type):
    """A class that has every public member, each such a class; calling it makes another."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        setattr(cls, name, Inert(name, (), {}))
        return cls.__dict__[name]

    def __call__(cls, *_, **__):
        return Inert(cls.__name__, (), {})


class InertModule(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Inert(name, (), {}))
        return self.__dict__[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an inert module for every name of MISSING and below."""

    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in MISSING):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        return InertModule(spec.name)

    def exec_module(self, module):
        pass


class OnCpu(torch.overrides.TorchFunctionMode):
    """Tensors that are made on or moved to a GPU are on the CPU."""

    @staticmethod
    def place(device):
        return "cpu" if isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda" else device

    def __torch_function__(self, function, _, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = self.place(kwargs["device"])
        if function is torch.Tensor.to:
            args = (args[0], *(self.place(one) if isinstance(one, torch.device) or one == "cuda" else one for one in args[1:]))
        return function(*args, **kwargs)


class Stream:
    def wait_stream(self, _):
        pass


def import_core():
    """All of Megatron-Core that asks for Transformer Engine, so that it finds none and takes torch instead."""
    folder = pathlib.Path(megatron.core.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if "transformer_engine" in path.read_text():
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            with contextlib.suppress(ImportError):
                importlib.import_module(f"megatron.core.{name}")


def replace_cuda():
    """What asks for a GPU by name."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.get_rng_state = lambda *_: torch.zeros(1, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.Stream = Stream
    torch.cuda.current_stream = lambda *_: Stream()
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.nn.Module.cuda = lambda self, *_: self
    OnCpu().__enter__()


def replace_functions():
    """Of Bridge: the check for CUDA, by its own argument; the compilation of helpers for Megatron's own data sets, whose
    Makefile is not in the package; and a function of modelopt, which gives None without a teacher."""
    from megatron.bridge.training import initialize, setup, train
    setup.initialize_megatron = functools.partial(setup.initialize_megatron, allow_no_cuda=True)
    initialize.compile_helpers = lambda: None
    train.get_tensor_shapes_adjust_fn_for_distillation = lambda *_, **__: None


import_core()
sys.meta_path.insert(0, Finder())
replace_cuda()
replace_functions()
