"""Torch side: tensors over received memory, pixel expansion on any device, and exchanges along routes."""

import functools

import numpy as np
import torch
import torch.distributed as dist
import torch.utils._pytree as pytree

from evenkeel import agreement
from evenkeel.agreement import agree  # noqa: F401 - evenkeel.torch.agree
from evenkeel.context import Shard, rows_of_shard
from evenkeel.route import Route
from evenkeel.step import Fields, Microbatch

IGNORED = -100  # a label that counts for nothing
_TYPES = {"image": 1, "video": 2, "audio": 3}  # mm_token_type_ids of a medium's placeholders
_TARGET = 4  # more than that: of placeholders of targets
_MEDIA = {"vision": ("image", "video"), "audio": ("audio",)}  # of phases whose name implies them


def tensor(fields, name, device=None):
    """A field as a torch tensor, sharing the received memory on the CPU. u8 pixels are expanded."""
    if fields.expansion(name) is not None:
        return pixels(fields, name, device)
    return _wrap(fields[name], fields.dtype(name), device)


def tensors(fields, device=None):
    """All fields of a mapping as a plain dict of torch tensors; `encoders` and `targets` of a microbatch are dicts of such
    dicts."""
    return {name: {phase: tensors(one, device) for phase, one in fields[name].items()} if name in ("encoders", "targets")
            else tensor(fields, name, device) for name in fields}


def _register_pytree(fields):
    """tree_map goes into the fields, as into a dict, and gives a dict."""
    register = getattr(pytree, "register_pytree_node", None) or pytree._register_pytree_node
    register(fields, lambda one: (list(one.values()), list(one)), lambda values, names: dict(zip(names, values)))


for _class in (Fields, Microbatch, Shard):
    _register_pytree(_class)


class Buffer:
    """Memory for expanded pixels that is used again for every step; it grows to the largest.

        buffer = evenkeel.torch.Buffer()                       # pin_memory=True for copies to a GPU
        for step in loader:
            images = evenkeel.torch.pixels(step.encoders["vision"], out=buffer)

    What `pixels` returned is overwritten by the next call with the same buffer. Not for several threads at once.
    """

    def __init__(self, device=None, pin_memory=False):
        check_device(device)
        if pin_memory and not _can_pin():
            raise ValueError("Buffer: pin_memory=True, but this process sees no accelerator to pin memory for; leave it out")
        self._options = {"dtype": torch.float32, "device": device, "pin_memory": pin_memory}
        self._memory = torch.empty(0, **self._options)

    def take(self, count):
        """The first `count` elements: float32 [count]."""
        if self._memory.numel() < count:
            self._memory = None  # before the larger one is made
            self._memory = torch.empty(count, **self._options)
        return self._memory[:count]


def check_device(device):
    """ValueError for a device that this process does not see; the error of torch depends on how it was built."""
    if device is not None and not _is_there(torch.device(device).type):
        raise ValueError(f"device {device}: this process sees no {torch.device(device).type} device; give device=\"cpu\", or check "
                         "the driver, the build of torch and CUDA_VISIBLE_DEVICES")


@functools.lru_cache(None)
def _is_there(kind):
    module = getattr(torch, kind, None)
    return kind in ("cpu", "meta") or not hasattr(module, "is_available") or module.is_available()


def _can_pin():
    accelerator = getattr(torch, "accelerator", None)
    return accelerator.is_available() if accelerator is not None else torch.cuda.is_available()


def pixels(fields, name="pixel_values", device=None, out=None):
    """A field of patches in the final form. The wire form travels to `device` and is expanded there.

    out   None: a new tensor. A Buffer, or a contiguous float32 tensor on `device` with at least as many elements: what
          is returned are its first elements, and is valid until they are written again. Not used where the wire form
          is the final form.
    """
    wire = _wrap(fields.wire(name), fields.dtype(name), device)
    expansion = fields.expansion(name)
    return wire if expansion is None else expand_pixels(wire, expansion, out)


def expand_pixels(patches, expansion, out=None):
    """u8 patches -> f32 by table look-up on the patches' device; bit-identical to the C++ and numpy forms. `out`: as
    for `pixels`."""
    rows, columns = expansion.shape(patches)
    if out is None:
        out = torch.empty((rows, columns), dtype=torch.float32, device=patches.device)
    else:
        out = _first_elements(out, rows, columns, patches.device)
    if patches.device.type == "cpu":
        expansion.expand(patches.numpy(), out.numpy())
        return out
    _look_up(patches, expansion, out)
    return out


_LOOKED_UP_AT_ONCE = 1 << 24  # pixels, whose indices take 64 MiB


def _look_up(patches, e, out):
    """Every pixel's value in the table of its channel. Indices are four bytes wide, and made for some rows at a time."""
    rows, columns = out.shape
    table = torch.from_numpy(np.ascontiguousarray(e.table)).to(patches.device)
    wire = patches.reshape(rows, e.channels, e.frames_on_wire, e.area)
    by_frame = out.view(rows, e.channels, e.frames, e.area)
    at_once = max(1, _LOOKED_UP_AT_ONCE // max(1, e.frames_on_wire * e.area))
    for begin in range(0, rows, at_once):
        for channel in range(e.channels):
            some = wire[begin:begin + at_once, channel]
            values = table[channel].index_select(0, some.reshape(-1).to(torch.int32))
            by_frame[begin:begin + at_once, channel] = values.view(some.shape)  # one frame on the wire becomes all of them


def _first_elements(out, rows, columns, device):
    if isinstance(out, Buffer):
        out = out.take(rows * columns)
    if out.dtype != torch.float32 or not out.is_contiguous() or out.device != device or out.requires_grad:
        raise ValueError(f"out: expected a contiguous float32 tensor on {device} without gradients")
    if out.numel() < rows * columns:
        raise ValueError(f"out: {out.numel()} elements; the field has {rows} x {columns} = {rows * columns}")
    return out.view(-1)[:rows * columns].view(rows, columns)


def exchange(rows, route, group=None, grad=None):
    """Sends rows of this rank's tensor(s) along a route; a collective of the route's ranks, unless the plan lets all rows stay.

    rows    a tensor [route.rows_in, ...], or a tuple of them that travel together
    route   step.routes["vision"], its inverse(), or any Route
    group   holds exactly route.ranks in their order; None: the world
    grad    whether the backward pass runs the reverse exchange (with gradients summed where a row went to several
            places). It is a collective as well, so all ranks must agree: None asks them (one small all_reduce) whether
            any rank's rows require gradients; give True or False to save that.
    Returns tensor(s) [route.rows_out, ...]; rows that nothing is sent to are zero.

    The first exchange of a loader's connection in a group compares what its ranks follow, as `agree` does: Mismatch on
    every rank where they follow different streams.
    """
    single = isinstance(rows, torch.Tensor)
    inputs = (rows,) if single else tuple(rows)
    if inputs and route.origin is not None and _ranks_of(route, group) > 1 and (_is_running() or not route.all_stay):
        agreement.ensure(route.origin, group, inputs[0].device)
    for one in inputs:
        if one.shape[0] != route.rows_in:
            raise ValueError(f"exchange: a tensor has {one.shape[0]} rows, {route} takes {route.rows_in}")
    if grad is None:
        grad = _any_requires_grad(inputs, route, group)
    if grad:
        # Also where this rank has no rows or a constant: its part in the reverse exchange must not be missing.
        inputs = tuple(one if one.requires_grad or not one.is_floating_point() else one.detach().requires_grad_()
                       for one in inputs)
        outputs = _Exchange.apply(route, group, *inputs)
    else:
        outputs = _move(route, group, tuple(one.detach() for one in inputs))
    return outputs[0] if single else outputs


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, route, group, *inputs):
        ctx.route, ctx.group = route, group
        ctx.likes = [(one.shape[1:], one.dtype, one.device) for one in inputs]
        outputs = _move(route, group, inputs)
        ctx.mark_non_differentiable(*[out for out in outputs if not out.is_floating_point()])
        return outputs

    @staticmethod
    def backward(ctx, *gradients):
        # Only tensors that are differentiable travel back, on every rank the same ones.
        chosen, travelling = [], []
        for i, (shape, dtype, device) in enumerate(ctx.likes):
            if not dtype.is_floating_point:
                continue
            gradient = gradients[i]
            if gradient is None:
                gradient = torch.zeros((ctx.route.rows_out, *shape), dtype=dtype, device=device)
            chosen.append(i)
            travelling.append(gradient)
        out = [None] * len(ctx.likes)
        for i, gradient in zip(chosen, _move(ctx.route.inverse(), ctx.group, tuple(travelling))):
            out[i] = gradient
        return (None, None, *out)


def _move(route, group, inputs):
    """The exchange itself. Rows travel as bytes, so that every type that a backend does not know can travel too."""
    if not inputs:
        return ()
    send_index, receive_index, send_splits, receive_splits = _plan_for(route, group, inputs[0].device)
    picked = [_bytes_of(one.index_select(0, send_index)) for one in inputs]
    packed = picked[0] if len(picked) == 1 else torch.cat(picked, 1)
    arrived = packed
    if _needs_others(route, group):
        arrived = packed.new_empty((len(receive_index), packed.shape[1]))
        dist.all_to_all_single(arrived, packed.contiguous(), receive_splits, send_splits, group=group)
    outputs, at = [], 0
    for one, piece in zip(inputs, picked):
        width = piece.shape[1]
        values = arrived[:, at:at + width].contiguous().view(one.dtype).reshape(len(receive_index), *one.shape[1:])
        at += width
        out = one.new_zeros((route.rows_out, *one.shape[1:]))
        # Added, not copied: on the way back a row that was sent to several places collects several gradients.
        outputs.append(out.index_add_(0, receive_index, values))
    return tuple(outputs)


def _bytes_of(rows):
    flat = rows.contiguous().reshape(rows.shape[0], rows[0].numel() if len(rows) else int(np.prod(rows.shape[1:])))
    if flat.dtype == torch.bool:
        return flat.to(torch.uint8)
    return flat.view(torch.uint8)


def _is_running():
    return dist.is_available() and dist.is_initialized()


def _needs_others(route, group):
    return not route.all_stay and _ranks_of(route, group) > 1


def _ranks_of(route, group):
    if len(route.ranks) == 1:
        return 1  # no other rank has it, so no rank needs to join
    return dist.get_world_size(group) if _is_running() else len(route.ranks)


def _plan_for(route, group, device):
    size = _ranks_of(route, group)
    key = ("torch", str(device), size)
    if key not in route._cache:
        positions = _positions(route, size)
        splits = []
        for per_peer in (route.send_splits, route.receive_splits):
            spread = np.zeros(size, np.int64)
            spread[positions] = per_peer
            splits.append(spread.tolist())
        route._cache[key] = (torch.from_numpy(route.send_index).to(device),
                             torch.from_numpy(route.receive_index).to(device), *splits)
    return route._cache[key]


def _positions(route, size):
    """Number in the group of each of the route's ranks."""
    if size == len(route.ranks):
        return list(range(size))
    # Also where the group is larger: ranks that the route does not know would not take part, and the others would wait.
    raise ValueError(f"exchange: the group has {size} ranks, the route is between ranks {route.ranks}; "
                     "give a group of exactly those ranks")


def _any_requires_grad(inputs, route, group):
    if not torch.is_grad_enabled() or not any(one.is_floating_point() for one in inputs):
        return False
    wants = any(one.requires_grad for one in inputs)
    if not _needs_others(route, group):
        return wants
    flag = torch.tensor([int(wants)], dtype=torch.int32, device=inputs[0].device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
    return bool(flag.item())


class GroupPool:
    """Process groups of context groups, each made once.

        pool = evenkeel.torch.GroupPool(loader.groups())                 # every rank of the world calls it
        dist.all_gather(keys, own, group=pool.of(microbatch.context))

    groups    lists of global ranks, the same on every rank
    backend   of torch.distributed ("nccl", "hccl", "gloo"); None: the world's
    limit     groups that a rank may be in: each holds memory and connections
    lazy      makes no group before `add` names it

    Dynamic groups may be made as steps need them, ahead of time:

        pool = evenkeel.torch.GroupPool(loader.groups(), lazy=True)
        for ...:
            pool.add(loader.groups(steps=8))                             # every rank of the world, before every step
            step = next(loader)
    """

    def __init__(self, groups, backend=None, limit=64, lazy=False):
        self._missing = sorted({tuple(one) for one in groups if len(one) > 1})
        self._groups, self._backend = {}, backend
        own = sum(dist.get_rank() in one for one in self._missing)
        if own > limit:
            raise ValueError(f"GroupPool: rank {dist.get_rank()} is in {own} groups; the limit is {limit}")
        if not lazy:
            self._make(self._missing)

    def _make(self, groups):
        for ranks in groups:  # in one order on every rank, also for ranks that are not in the group
            group = dist.new_group(list(ranks), backend=self._backend)
            if dist.get_rank() in ranks:
                self._groups[ranks] = group
        self._missing = [one for one in self._missing if one not in set(groups)]

    def add(self, groups):
        """Makes those groups that any rank names and the pool does not have yet. A collective of the world, with a bit for each
        missing group, until all groups of the pool are made. ValueError: a group that is not of the pool."""
        wanted = {tuple(one) for one in groups if len(one) > 1}
        unknown = wanted - set(self._missing) - set(self._groups)
        if unknown:
            raise ValueError(f"GroupPool: ranks {list(min(unknown))} are no group of the pool; give it loader.groups()")
        if not self._missing:
            return
        words = [sum(1 << bit for bit, one in enumerate(self._missing[at:at + 32]) if one in wanted)
                 for at in range(0, len(self._missing), 32)]
        said = agreement.gather_numbers(words)
        self._make([one for number, one in enumerate(self._missing)
                    if any(of_rank[number // 32] >> number % 32 & 1 for of_rank in said)])

    def __len__(self):
        """Groups of this rank."""
        return len(self._groups)

    def of(self, context):
        """The process group of a ContextGroup; None where it has one member. ValueError: it is not in the pool."""
        if context.size == 1:
            return None
        ranks = tuple(context.ranks)
        if ranks not in self._groups:
            raise ValueError(f"GroupPool: the pool has no group of ranks {list(ranks)}; this rank's are "
                             f"{[list(one) for one in self._groups]}")
        return self._groups[ranks]


def placeholders(microbatch, phase, targets=False):
    """int64: positions, in the flattened sequence, of the tokens that stand for the phase's rows, in their order.

    phase   "vision", "audio", or, for a phase of another name, the media that it encodes: ("image",). A sequence has
            placeholders for the first phase of the job that encodes a medium: the number of rows of another one may
            differ.
    targets  those of a generator's targets instead; `phase` is then its media
    """
    media = _MEDIA.get(phase) if isinstance(phase, str) else tuple(phase)
    if media is None or not set(media) <= set(_TYPES):
        raise ValueError(f"placeholders: phase {phase!r} is not one of {', '.join(_MEDIA)}; for a phase of another name "
                         "give the media that it encodes, as in ('image', 'video')")
    types = np.asarray(microbatch["mm_token_type_ids"]).reshape(-1)
    return np.flatnonzero(np.isin(types, [_TYPES[medium] + (_TARGET if targets else 0) for medium in media]))


def shard_routes(step, phase, media=None, group=None):
    """The phase's route(s) of a step, cut to the rows whose placeholders are in this rank's shards: what `exchange` moves along
    them is `rows_of_shard` of what it would move along step.routes[phase], and the other rows do not travel.

        route = evenkeel.torch.shard_routes(step, "vision")
        rows = evenkeel.torch.exchange(encoded, route)
        own = rows[slice(*route.microbatch_rows(number))]

    A Route, or a list with one per microbatch where the phase runs once per microbatch. A collective of the route's ranks, with
    a byte for each row: only the receiver of a row has the text that says where its placeholder is. `media`: of a phase that is
    not named vision or audio, as for `placeholders`; `group`: as for `exchange`.
    """
    routes = step.routes[phase]
    kept = [rows_of_shard(one, phase if media is None else media) for one in step.microbatches]
    if isinstance(routes, list):
        return [_cut_route(route, [rows if number == route.microbatch else rows[:0] for number, rows in enumerate(kept)], group)
                for route in routes]
    return _cut_route(routes, kept, group)


def _cut_route(route, kept, group):
    """kept: of each microbatch, the numbers of its rows that are taken."""
    taken = np.zeros(route.rows_out, bool)
    for number, rows in enumerate(kept):
        taken[route.microbatch_rows(number)[0] + rows] = True
    place = np.cumsum(taken) - 1
    wanted = taken[route.receive_index]
    asked = torch.from_numpy(wanted.astype(np.uint8))
    if _needs_others(route, group):
        _, _, send_splits, receive_splits = _plan_for(route, group, torch.device("cpu"))
        device = agreement.device_of(group)
        answers = torch.empty(len(route.send_index), dtype=torch.uint8, device=device)
        dist.all_to_all_single(answers, asked.to(device), send_splits, receive_splits, group=group)
        asked = answers.cpu()
    sent = asked.numpy().astype(bool)
    peers = [np.repeat(np.arange(len(route.ranks)), splits) for splits in (route.send_splits, route.receive_splits)]
    return Route(route.ranks, _runs(peers[0][sent], route.send_index[sent]),
                 _runs(peers[1][wanted], place[route.receive_index[wanted]]), route.rows_in, int(taken.sum()),
                 np.concatenate([[0], np.cumsum([len(rows) for rows in kept])]).tolist(), route.source, route.destination,
                 route.microbatch, route.origin, route.all_stay)


def _runs(peers, rows):
    """Segments [n, 3] (peer, first row, rows) of rows in the order of a buffer."""
    begins = np.flatnonzero(np.concatenate([[True], (np.diff(peers) != 0) | (np.diff(rows) != 1)])) if len(rows) else peers
    return np.stack([peers[begins], rows[begins], np.diff(np.concatenate([begins, [len(rows)]]))], 1) if len(rows) else ()


def media_of(phase, fields):
    """The media that a phase encodes, for `placeholders`: by its name, or for another name than "vision" and "audio" by the
    fields of its items, so only those that have items here."""
    if phase in _MEDIA:
        return _MEDIA[phase]
    names = [name for name in fields if len(fields.wire(name))]
    found = {"audio"} if "input_features" in names else {
        "video" if "video" in name else "image" for name in names if name.startswith(("pixel_values", "image_", "video_"))}
    return tuple(medium for medium in _TYPES if medium in found)


def scatter_rows(hidden, microbatch, phase, rows):
    """`hidden` ([tokens, width], or [batch, tokens, width]) with the phase's placeholders replaced by `rows`.

    Differentiable in both, and connected to `rows` even where there are none, so that every rank takes part in the
    exchange's backward pass.
    """
    index = torch.from_numpy(placeholders(microbatch, phase)).to(hidden.device)
    if len(index) != len(rows):
        raise ValueError(f"scatter_rows: the microbatch has {len(index)} placeholders of phase {phase}, "
                         f"{len(rows)} rows were given")
    flat = hidden.reshape(-1, hidden.shape[-1])
    return flat.index_copy(0, index, rows.to(flat.dtype)).reshape(hidden.shape)


def gather_rows(hidden, microbatch, media):
    """The conditioning rows of a generator: `hidden` ([tokens, width], or [batch, tokens, width]) at the placeholders of its
    targets, [rows, width], as the phase's route takes them.

    media   of the targets: step.generators[phase]

    Differentiable, and connected to `hidden` also where there are none, so that every rank takes part in the exchange's
    backward pass.
    """
    index = torch.from_numpy(placeholders(microbatch, tuple(media), targets=True)).to(hidden.device)
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, index)


def mask_labels(step, group=None, local=False, links=()):
    """Labels per microbatch, with those of damaged samples set to -100; a collective of the routes' ranks.

    An item that could not be decoded is only known where it was to be encoded; its flag travels along the phase's
    route to the rank that holds the sample's text. `group`: as for `exchange`, or {phase: group}.

    Of shards (evenkeel.context) they are the labels of the whole sequences: shift them, then take `microbatch.tokens`.

    local   no collective, for jobs that keep all items with their samples (`balance: drop_in`); ValueError where a row
            comes from another rank
    links   evenkeel.apart.Rows of the phases whose rows travel point to point: their flags came with them, no collective
    """
    links = {one.phase: one for one in links}
    microbatches = [getattr(one, "whole", one) for one in step.microbatches]
    labels = [torch.from_numpy(np.array(m["labels"])) if "labels" in m else None for m in microbatches]
    damaged = [None if target is None else np.asarray(m["sample_valid"]) == 0 for m, target in zip(microbatches, labels)]
    for number, samples in enumerate(damaged):
        for phase in sorted(links) if samples is not None else ():
            samples |= links[phase].damaged(number)
    for phase in sorted(set(step.routes) - set(links) - set(step.generators)):
        route = step.routes[phase]
        members = group.get(phase) if isinstance(group, dict) else group
        if isinstance(route, Route):
            flags = _route_flags(step.encoders.get(phase, {}), route, members, local)
            per_microbatch = [flags[slice(*route.microbatch_rows(i))] for i in range(len(labels))]
        else:
            per_microbatch = [_route_flags(m.encoders.get(phase, {}), r, members, local)
                              for m, r in zip(microbatches, route)]
        for microbatch, samples, flags in zip(microbatches, damaged, per_microbatch):
            if samples is not None:
                fields = microbatch.encoders.get(phase, step.encoders.get(phase)) if local else None
                samples |= damaged_samples(microbatch, phase if fields is None else media_of(phase, fields), flags)
    for microbatch, target, samples in zip(microbatches, labels, damaged):
        if target is not None:
            _mask_samples(microbatch, target, np.flatnonzero(samples))
    step._damaged = damaged
    return labels


def mask_targets(step, phase, group=None):
    """Which targets of a generator count in its loss; a collective of the route's ranks, after `mask_labels` of the step.

    A target counts if it was decoded, if its sample's text is the one that was indexed, and if no item of the sample that an
    encoder was to encode is damaged. Dummies do not count. `group`: as for `exchange`.

    Returns bool [items], in the order of the fields of `step.targets[phase]`; of a phase that runs once per microbatch a list
    with one for each microbatch.
    """
    route = step.routes[phase]
    flags = sound_rows(step, phase)
    if isinstance(route, Route):
        return _targets_that_count(step.targets[phase], route, torch.cat(flags), group)
    return [_targets_that_count(m.targets[phase], one, rows, group) for m, one, rows in zip(step.microbatches, route, flags)]


def sound_rows(step, phase):
    """uint8 [rows], for each microbatch: of each conditioning row of a generator on this rank, 1 where nothing of its sample is
    damaged. ValueError before `mask_labels` of the step, which finds what is."""
    if step._damaged is None:
        raise ValueError("mask_targets: call mask_labels first: it finds the samples with damaged items")
    out = []
    for microbatch, damaged in zip(step.microbatches, step._damaged):
        microbatch = getattr(microbatch, "whole", microbatch)
        sound = np.zeros(0, np.uint8)
        if damaged is not None:
            samples = _sample_of(microbatch, placeholders(microbatch, step.generators[phase], targets=True))
            sound = (~damaged[samples]).astype(np.uint8)
        out.append(torch.from_numpy(sound))
    return out


def _targets_that_count(fields, route, flags, group):
    return counting(fields, exchange(flags, route, group, grad=False))


def counting(fields, flags):
    """bool [items]: of a generator's fields, which were decoded and have 1 in all of their `flags`, uint8 [rows]."""
    if "item_valid" not in fields:
        return torch.zeros(0, dtype=torch.bool)
    rows = np.asarray(fields["item_rows"])
    sound = np.array([one.all() for one in np.split(np.asarray(flags), np.cumsum(rows)[:-1])], bool).reshape(len(rows))
    return torch.from_numpy(sound & (np.asarray(fields["item_valid"]) != 0))


def row_flags(fields):
    """uint8 [rows]: of an encoder's fields, for each row of its output, 1 where the item was decoded. Empty without items."""
    if "item_valid" not in fields:
        return np.zeros(0, np.uint8)
    return np.repeat(np.asarray(fields["item_valid"], np.uint8), np.asarray(fields["item_rows"]))


def _route_flags(fields, route, group, local):
    """uint8 [rows_out]: 1 where the row comes from an item that was decoded."""
    flags = row_flags(fields)
    if not local:
        return exchange(torch.from_numpy(flags), route, group, grad=False).numpy()
    if not route.stays:
        raise ValueError(f"mask_labels: rows of {route} come from other ranks; their flags need the exchange (local=False)")
    return flags[route.source_rows()]


def damaged_samples(microbatch, phase, flags):
    """bool [samples]: whether a row of the sample comes from an item that was not decoded.

    phase   as for `placeholders`
    flags   uint8 [rows], in the order of the placeholders: 1 where the item was decoded
    """
    positions = placeholders(microbatch, phase)
    if len(positions) != len(flags):
        raise ValueError(f"mask_labels: the microbatch has {len(positions)} placeholders of phase {phase}, "
                         f"the route brings {len(flags)} rows")
    out = np.zeros(len(microbatch["sample_valid"]), bool)
    out[_sample_of(microbatch, positions[flags == 0])] = True
    return out


def _sample_of(microbatch, positions):
    """Number of the sample, within the microbatch, that each token of the flattened sequence belongs to."""
    if "cu_seqlens" in microbatch:
        return np.searchsorted(microbatch["cu_seqlens"], positions, side="right") - 1
    return positions // microbatch["mm_token_type_ids"].shape[-1]


def _mask_samples(microbatch, labels, samples):
    for sample in samples.tolist():
        if "cu_seqlens" in microbatch:
            begin, end = microbatch["cu_seqlens"][sample:sample + 2].tolist()
            labels.view(-1)[begin:end] = IGNORED
        else:
            labels[sample] = IGNORED


def _wrap(array, dtype, device):
    # torch has no uint16: the bits are seen as int16 on the way.
    check_device(device)
    out = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(array)
    return out if device is None else out.to(device, non_blocking=True)
