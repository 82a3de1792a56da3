"""A received step as Python sees it. Arrays are views into the step's memory; they keep it alive."""

import json
from collections.abc import Mapping

import numpy as np

from evenkeel import _evenkeel, packing
from evenkeel.errors import InvalidArgument
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

    def shape(self, patches):
        """(rows, columns) of what `patches` become."""
        return len(patches), self.channels * self.frames * self.area

    def expand(self, patches, out=None):
        """u8 [rows, channels * frames_on_wire * area] -> f32 [rows, channels * frames * area], in C++.

        out   None: a new array. A contiguous float32 array with at least as many elements: what is returned are its
              first elements.
        """
        if out is not None:
            out = _first_elements(out, self.shape(patches))
        return _evenkeel.expand_pixels(np.ascontiguousarray(patches), self.channels, self.frames, self.frames_on_wire,
                                       self.patch, self.table.reshape(-1), self.patch_width, out)


def _first_elements(out, shape):
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out: expected a contiguous, writeable float32 array")
    rows, columns = shape
    if out.size < rows * columns:
        raise ValueError(f"out: {out.size} elements; the field has {rows} x {columns} = {rows * columns}")
    return out.reshape(-1)[:rows * columns].reshape(rows, columns)


class Fields(Mapping):
    """Hugging Face field name -> numpy array. Pieces of a part are joined, u8 pixels expanded, when first read.

    bf16 fields are uint16 arrays of their bits here; `evenkeel.torch.tensor` gives torch.bfloat16.

    `Fields(mapping)` is `dict(mapping)`: torch's default_convert and pin_memory, accelerate's send_to_device and others
    rebuild a mapping as `type(data)({name: value})`, and what they get is a plain dict.
    """

    def __new__(cls, pieces=()):
        return dict(pieces) if isinstance(pieces, Mapping) else super().__new__(cls)

    def __init__(self, pieces=()):
        """`pieces`: {name: (array, dtype, expansion)} in order, as the extension gives them. A function without
        arguments in the array's place is called when the field is first read."""
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
            self._final[name] = self._make(name)
        return self._final[name]

    def _make(self, name):
        expansion = self.expansion(name)
        return self.wire(name) if expansion is None else expansion.expand(self.wire(name))

    def expand(self, name, out=None):
        """The field in its final form, computed at each call and not kept; in `out` where one is given: see Expansion.expand.
        Where the wire form is the final form, that: `out` is not used."""
        expansion = self.expansion(name)
        return self.wire(name) if expansion is None else expansion.expand(self.wire(name), out)

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __contains__(self, name):
        return name in self._tensors

    def wire(self, name):
        """The field as it was sent: u8 patches where the job's wire form is u8. No copy where it is in one piece."""
        if name not in self._wire:
            arrays = [array() if callable(array) else array for array, _, _ in self._tensors[name]]
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


def columns(microbatch):
    """The columns of the data that the job names, as a list with a dict for each sample, in the order of the documents.

    microbatch   a Microbatch, or the plain dict of arrays or tensors that a framework made of one

    Each call parses the field `columns`, a JSON object a sample. A member that a sample does not have is None, as
    are all but `__key__` of a sample with `sample_valid` 0. ValueError: the job names no columns.
    """
    if "columns" not in microbatch:
        raise ValueError("the job names no columns: list them in its key `columns`, and make the index again")
    rows = microbatch["columns"]
    rows = rows.cpu() if hasattr(rows, "cpu") else rows
    return [json.loads(row.tobytes()) for row in np.asarray(rows)]


def pairs(microbatch):
    """What each document is, as an int8 array: 0 a sample of its own, 1 the chosen sequence of a preference pair, 2 the
    rejected one. In packed batches it follows the chosen one; in padded ones all rejected ones are the last rows, in the
    order of the chosen.

    microbatch   a Microbatch, or the plain dict of arrays or tensors that a framework made of one

    The two sequences of a pair are one sample: their rows of `sample_ids` are equal, which those of other neighbours, and of
    other rows of a padded batch, never are.
    """
    ids = microbatch["sample_ids"]
    ids = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
    out = np.zeros(len(ids), np.int8)
    if "cu_seqlens" in microbatch:
        chosen = np.flatnonzero((ids[1:] == ids[:-1]).all(axis=1))
        rejected = chosen + 1
    else:
        rows = {}
        both = [(rows[one], i) for i, one in enumerate(map(tuple, ids.tolist())) if rows.setdefault(one, i) != i]
        chosen, rejected = np.array(both, np.int64).reshape(-1, 2).T
    out[chosen], out[rejected] = 1, 2
    return out


class Microbatch(Fields):
    """What the llm of this rank runs at once.

    encoders   {phase: Fields} of encoders that run once per microbatch. If there are any, the mapping has them under
               the name "encoders", so that they are not lost where it is converted to a dict.
    targets    likewise, of generators that run once per microbatch
    context    evenkeel.context.ContextGroup with context parallelism in the job's mesh or with dynamic groups, else None

    `position_ids` of packed documents are [4, 1, tokens]: the position within the document, then the three positions of
    M-RoPE. Transformers recognises packed documents by the first row, and reads the others where there are four.
    """

    def __init__(self, pieces=()):
        super().__init__(pieces)
        self.encoders, self.targets = {}, {}
        self.context = None

    @property
    def columns(self):
        """A list with a dict for each document: see `evenkeel.columns`."""
        return columns(self)

    @property
    def pairs(self):
        """What each document is, 0, 1 (chosen) or 2 (rejected): see `evenkeel.pairs`."""
        return pairs(self)

    def _make(self, name):
        if name in ("encoders", "targets"):
            return getattr(self, name)
        value = super()._make(name)
        if name == "position_ids" and "cu_seqlens" in self and value.shape[0] == 3:
            return np.concatenate([packing.text_positions(self)[None], value])
        return value

    def __iter__(self):
        yield from super().__iter__()
        if self.encoders:
            yield "encoders"
        if self.targets:
            yield "targets"

    def __len__(self):
        return super().__len__() + bool(self.encoders) + bool(self.targets)

    def __contains__(self, name):
        return super().__contains__(name) or (name in ("encoders", "targets") and bool(getattr(self, name)))


class Spread:
    """A figure over the ranks of a phase.

    max, mean   over all of them
    own         of this rank, or None where the phase does not run on it
    all         a list over the phase's ranks, or None without `Loader(all_loads=True)`
    imbalance   max / mean: what a barrier waits for; 1.0 where nothing is to do
    """

    __slots__ = ("max", "mean", "own", "all")

    def __init__(self, max, mean, own=None, all=None):
        self.max = max
        self.mean = mean
        self.own = own
        self.all = all

    @property
    def imbalance(self):
        return self.max / self.mean if self.mean > 0 else 1.0

    def __repr__(self):
        return f"Spread(max={self.max}, mean={self.mean}, own={self.own})"


class PhaseLoads:
    """How much the ranks of a phase compute in a step; each attribute is a `Spread`.

    before, after                 by the job's cost: samples assigned in order, items with their sample; as planned
    tokens_before, tokens_after   in tokens (llm) or input rows (encoders): whole numbers, except the mean
    num_ranks                     of the phase
    """

    __slots__ = ("num_ranks", "before", "after", "tokens_before", "tokens_after")

    def __init__(self, num_ranks, before, after, tokens_before, tokens_after):
        self.num_ranks = num_ranks
        self.before = before
        self.after = after
        self.tokens_before = tokens_before
        self.tokens_after = tokens_after

    def __repr__(self):
        return (f"PhaseLoads(num_ranks={self.num_ranks}, before={self.before}, after={self.after}, "
                f"tokens_before={self.tokens_before}, tokens_after={self.tokens_after})")


class Step:
    """What this rank received for one step.

    index         the step's number
    num_samples   of the whole step, over all ranks
    loss_tokens   of the whole step: divide the summed loss by it
    microbatches  [Microbatch], as many on every rank
    encoders      {phase: Fields} of encoders that run once per step
    targets       {phase: Fields} of generators that run once per step
    routes        {phase: Route}, or {phase: [Route per microbatch]} where the phase runs once per microbatch. Of an encoder it
                  leads to the llm, of a generator from there
    generators    {phase: media}: of each generator of the job, the media of its targets, as in ("image",)
    loads         {phase: PhaseLoads}: largest, mean and own load, before balancing and after
    """

    def __init__(self, index, num_samples, loss_tokens, microbatches, encoders, routes, loads=None, native=None, targets=None,
                 generators=None):
        self.index = index
        self.num_samples = num_samples
        self.loss_tokens = loss_tokens
        self.microbatches = microbatches
        self.encoders = encoders
        self.routes = routes
        self.loads = loads or {}
        self.targets = targets or {}
        self.generators = generators or {}
        self._damaged = None  # of mask_labels: per microbatch, bool [samples] where its labels are
        self._native = native
        self._when_done = None

    def done(self):
        """Says that the step is trained: `Loader.state_dict()` then names the first step that is not done, whatever was
        fetched ahead. In any order; a second call changes nothing."""
        if self._when_done is not None:
            self._when_done(self.index)

    def digest(self):
        """32 hex digits, as `evenkeel fetch --digest` prints them for this step and rank."""
        return self._native.digest()

    def __repr__(self):
        return (f"Step(index={self.index}, num_samples={self.num_samples}, microbatches={len(self.microbatches)}, "
                f"encoders={list(self.encoders)}, routes={list(self.routes)})")


def _loads(num_ranks, spreads):
    """PhaseLoads of the extension's (number of ranks, {name: (max, mean, own, all)})."""
    out = {}
    for name, (largest, mean, own, every) in spreads.items():
        whole = int if name.startswith("tokens") else float
        out[name] = Spread(whole(largest), mean, None if own is None else whole(own),
                           [whole(one) for one in every] if every else None)
    return PhaseLoads(num_ranks, **out)


def _route(route, group, origin):
    """The extension's route, whose peers index `group(source, destination)`."""
    ranks, num_ranks = group(route["source"], route["destination"]), route.pop("num_ranks")
    if len(ranks) != num_ranks:
        raise InvalidArgument(f"the worker's route from {route['source']} to {route['destination']} is between {num_ranks} "
                              f"ranks, the phases it described have {len(ranks)}", "INVALID_ARGUMENT")
    return Route(ranks, **route, origin=origin)


def _with_positions(tensors):
    """Tensors of a middle stage, whose positions are derived from documents and explicit positions alone."""
    if "token_positions" not in tensors:
        return tensors
    tensors = dict(tensors)
    spans, explicit = tensors.pop("token_position_spans")[0], tensors.pop("token_positions")[0]
    bounds = tensors["cu_seqlens"][0]

    def positions():
        out = np.repeat(packing.text_positions({"cu_seqlens": bounds}), 3, 0)[:, None]
        taken = 0
        for first, count in spans.tolist():
            out[:, 0, first:first + count] = explicit[:, taken:taken + count]
            taken += count
        return out
    tensors["position_ids"] = (positions, "i64", None)
    return tensors


def _in_context(microbatch, ranks, index, sequences):
    from evenkeel import context  # which needs this module
    lengths = np.diff(microbatch["cu_seqlens"]).astype(np.int64) if "cu_seqlens" in microbatch else None
    microbatch.context = context.ContextGroup(ranks, index, lengths, sequences)
    return microbatch if sequences == "whole" else context.Shard(microbatch)


def _to_generator(route):
    """The route of a generator, whose rows travel from the llm to it: as of an encoder, backwards. Its microbatch_offsets are
    of its input."""
    return Route(route.ranks, route.receive, route.send, route.rows_out, route.rows_in, route.microbatch_offsets, route.destination,
                 route.source, route.microbatch, route.origin, route.all_stay)


def from_native(native, phases, group, origin=None, topology=None, sequences="whole", generators=None):
    """A Step over the extension's. `phases`: {name: (global ranks, once_per_microbatch, mesh)}; `group(source, destination)`:
    the global ranks of the exchange between two phases; `origin`: of the routes; `topology`: of the llm; `sequences`: what
    a member of a context group takes; `generators`: as of Step."""
    generators = generators or {}
    pieces = {}
    for phase, _, microbatch, _, _, tensors in native.parts():
        pieces.setdefault((phase, microbatch), []).append(_with_positions(tensors))
    microbatches = [Microbatch(pieces.get(("llm", i), ())) for i in range(native.num_microbatches)]
    encoders, targets, routes = {}, {}, {}
    by_phase = {}
    for given in native.routes():
        phase, route = given["source"], _route(given, group, origin)
        by_phase.setdefault(phase, {})[route.microbatch] = _to_generator(route) if phase in generators else route
    for phase, (_, once_per_microbatch, _) in phases.items():
        if phase == "llm":
            continue
        if once_per_microbatch:
            for i, microbatch in enumerate(microbatches):
                into = microbatch.targets if phase in generators else microbatch.encoders
                into[phase] = Fields(pieces.get((phase, i), ()))
            if phase in by_phase:
                routes[phase] = [by_phase[phase][i] for i in range(native.num_microbatches)]
        else:
            into = targets if phase in generators else encoders
            into[phase] = Fields(pieces.get((phase, 0), ()))
            if phase in by_phase:
                routes[phase] = by_phase[phase][0]
    dynamic = native.groups()[0]
    if topology is not None and dynamic:
        microbatches = [_in_context(one, topology.ranks_of_replicas(first, size), topology.replica - first, sequences)
                        for one, (first, size) in zip(microbatches, dynamic)]
    elif topology is not None and topology.context > 1:
        microbatches = [_in_context(one, topology.context_ranks, topology.context_index, sequences) for one in microbatches]
    loads = {phase: _loads(*one) for phase, one in native.loads().items()}
    return Step(native.index, native.num_samples, native.loss_tokens, microbatches, encoders, routes, loads, native, targets,
                generators)
