"""A received step as Python sees it. Arrays are views into the receive memory; they keep it alive."""

from collections.abc import Mapping

import numpy as np

from evenkeel import _evenkeel
from evenkeel.route import Route


class Expansion:
    """How u8 patches become float32: see `expand`. `table` is float32 [channels, 256]; patches are `patch` high and
    `patch_width` wide, or squares where that is 0."""

    def __init__(self, channels, frames, frames_on_wire, patch, table, patch_width=0):
        self.channels = channels
        self.frames = frames
        self.frames_on_wire = frames_on_wire
        self.patch = patch
        self.table = table
        self.patch_width = patch_width

    @property
    def area(self):
        """Pixels of a patch."""
        return self.patch * (self.patch_width or self.patch)

    def expand(self, patches):
        """u8 [rows, channels * frames_on_wire * area] -> f32 [rows, channels * frames * area], in C++."""
        return _evenkeel.expand_pixels(np.ascontiguousarray(patches), self.channels, self.frames, self.frames_on_wire,
                                       self.patch, self.table.reshape(-1), self.patch_width)


class Fields(Mapping):
    """Hugging Face field name -> numpy array. Pieces of a part are joined, u8 pixels expanded, when first read.

    bf16 fields are uint16 arrays of their bits here; `evenkeel.torch.tensor` gives torch.bfloat16.
    """

    def __init__(self, pieces=()):
        """`pieces`: {name: (array, dtype, expansion)} in order, as the extension gives them."""
        self._tensors = {}
        for piece in pieces:
            for name, tensor in piece.items():
                self._tensors.setdefault(name, []).append(tensor)
        self._wire = {}
        self._final = {}

    @classmethod
    def of(cls, **arrays):
        """Fields of arrays made by hand; a pair (array, Expansion) is a field that expands."""
        names = {np.dtype(np.uint8): "u8", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64",
                 np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.uint16): "bf16"}
        piece = {}
        for name, array in arrays.items():
            array, expansion = array if isinstance(array, tuple) else (array, None)
            array = np.asarray(array)
            parts = expansion and (expansion.channels, expansion.frames, expansion.frames_on_wire, expansion.patch,
                                   expansion.table, expansion.patch_width)
            piece[name] = (array, names[array.dtype], parts or None)
        return cls([piece])

    def __getitem__(self, name):
        if name not in self._final:
            expansion = self.expansion(name)
            self._final[name] = self.wire(name) if expansion is None else expansion.expand(self.wire(name))
        return self._final[name]

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __contains__(self, name):
        return name in self._tensors

    def wire(self, name):
        """The field as it was sent: u8 patches where the job's wire form is u8. No copy where it is in one piece."""
        if name not in self._wire:
            arrays = [array for array, _, _ in self._tensors[name]]
            self._wire[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return self._wire[name]

    def dtype(self, name):
        """Of the wire form: "u8", "i32", "i64", "f32", "bf16" or "f64"."""
        return self._tensors[name][0][1]

    def expansion(self, name):
        """How the wire form becomes the final one, or None where it is final already."""
        parts = self._tensors[name][0][2]
        return None if parts is None else Expansion(*parts)

    def __repr__(self):
        return "Fields(" + ", ".join(f"{name}: {self.dtype(name)} x{len(pieces)}"
                                     for name, pieces in self._tensors.items()) + ")"


class Microbatch(Fields):
    """What the llm of this rank runs at once; `encoders` where encoders run once per microbatch."""

    def __init__(self, pieces=()):
        super().__init__(pieces)
        self.encoders = {}


class Step:
    """What this rank received for one step.

    index         the step's number
    num_samples   of the whole step, over all ranks
    loss_tokens   of the whole step: divide the summed loss by it
    microbatches  [Microbatch], as many on every rank
    encoders      {phase: Fields} of encoders that run once per step
    routes        {phase: Route}, or {phase: [Route per microbatch]} where the encoder runs once per microbatch
    loads         {phase: {"before", "after", "tokens_before", "tokens_after"}}, lists over the phase's ranks
    """

    def __init__(self, index, num_samples, loss_tokens, microbatches, encoders, routes, loads=None, native=None):
        self.index = index
        self.num_samples = num_samples
        self.loss_tokens = loss_tokens
        self.microbatches = microbatches
        self.encoders = encoders
        self.routes = routes
        self.loads = loads or {}
        self._native = native

    def digest(self):
        """32 hex digits, as `evenkeel fetch --digest` prints them for this step and rank."""
        return self._native.digest()

    def __repr__(self):
        return (f"Step(index={self.index}, num_samples={self.num_samples}, microbatches={len(self.microbatches)}, "
                f"encoders={list(self.encoders)}, routes={list(self.routes)})")


def from_native(native, phases):
    """A Step over the extension's. `phases`: {name: (global ranks, once_per_microbatch)}."""
    pieces = {}
    for phase, _, microbatch, _, _, tensors in native.parts():
        pieces.setdefault((phase, microbatch), []).append(tensors)
    microbatches = [Microbatch(pieces.get(("llm", i), ())) for i in range(native.num_microbatches)]
    encoders, routes = {}, {}
    by_phase = {}
    for route in native.routes():
        by_phase.setdefault(route["source"], {})[route["microbatch"]] = Route(**route)
    for phase, (_, once_per_microbatch) in phases.items():
        if phase == "llm":
            continue
        if once_per_microbatch:
            for i, microbatch in enumerate(microbatches):
                microbatch.encoders[phase] = Fields(pieces.get((phase, i), ()))
            if phase in by_phase:
                routes[phase] = [by_phase[phase][i] for i in range(native.num_microbatches)]
        else:
            encoders[phase] = Fields(pieces.get((phase, 0), ()))
            if phase in by_phase:
                routes[phase] = by_phase[phase][0]
    return Step(native.index, native.num_samples, native.loss_tokens, microbatches, encoders, routes, native.loads(),
                native)
