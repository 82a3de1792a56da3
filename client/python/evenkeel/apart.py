"""Encoders on ranks of their own: rows travel point to point, microbatch by microbatch, and their gradients back.

    link = evenkeel.apart.Link(loader, "vision", width=3584, dtype=torch.bfloat16)      # once, on every rank of the world
    for step in loader:
        with link.step(step) as rows:
            # on ranks of the encoder
            rows.encode(lambda number: vision(step.microbatches[number].encoders["vision"]))
            # on the llm's first stage, inside any schedule and in any order of microbatches
            hidden = evenkeel.torch.scatter_rows(hidden, microbatch, "vision", rows.receive(number))
            # on its last stage
            labels = evenkeel.torch.mask_labels(step, links=[rows])

The rows of a generator travel the other way, from the llm's last stage:

            # on ranks of the generator
            rows.generate(lambda number, given: draw_loss(step.microbatches[number].targets["draw"], given, rows.counts(number)))
            # on the llm's last stage, for each microbatch; after mask_labels
            loss = loss + rows.condition(number, evenkeel.torch.gather_rows(hidden, microbatch, step.generators["draw"]))

Only pairs of ranks between which rows move talk to each other, and nobody waits in a collective for ranks of another
replica: a 1F1B schedule of the llm and the encoder's forward and backward passes need no common order. For phases that run
once per microbatch, on ranks that the llm does not have. docs/parallelism.md says who takes part where replicas have members.
"""

import collections

import numpy as np
import torch
import torch.distributed as dist

from evenkeel import agreement
from evenkeel.torch import check_device, counting, damaged_samples, placeholders, row_flags, sound_rows


class Link:
    """The connections between the ranks of one encoder, or one generator, and those of the llm. Its making is a collective of
    the world.

    loader   of this rank; connects
    phase    name of an encoder or generator that runs once per microbatch
    width    of a row; or a tuple, the shape of a row
    dtype    of the rows
    media    that the phase encodes, where its name is not "vision" or "audio": ("image",)
    device   of rows and gradients; None: the CPU, or the current CUDA device if the world has NCCL alone
    ahead    for how many microbatches after the one that is received memory is held, so that their rows arrive meanwhile

    ValueError: the phase runs once per step, or a rank belongs to both phases: evenkeel.torch.exchange is for those.
    Not for several threads at once.
    """

    def __init__(self, loader, phase, width, dtype=torch.float32, media=None, device=None, ahead=2):
        self.phase, self.dtype, self.ahead, self.media = phase, dtype, ahead, media or phase
        self.shape = tuple(width) if isinstance(width, (tuple, list)) else (width,)
        encoder, llm = loader.mesh_of(phase), loader.mesh_of("llm")
        self.conditions = phase in loader.generators  # rows travel from the llm to a generator
        if not loader.once_per_microbatch(phase):
            raise ValueError(f"Link: phase {phase} runs once per step; set `runs: once_per_microbatch` in the job, or use exchange")
        both = sorted(set(encoder.ranks) & set(llm.ranks))
        if both:
            raise ValueError(f"Link: rank {both[0]} computes both {phase} and the llm; use evenkeel.torch.exchange for it")
        agreement.agree(loader)
        self.device = torch.device(device) if device is not None else agreement.device_of(None)
        check_device(self.device)
        # The last stage of an encoder has its rows, the first stage of the llm takes them, its last stage has the labels, and
        # gives the rows of a generator, which has one stage.
        giver, taker = (llm, encoder) if self.conditions else (encoder, llm)
        self._speaker = {leader: giver.rank_at(data=replica, pipeline=giver.pipeline - 1)
                         for replica, leader in enumerate(giver.leaders)}
        self._speaker.update({leader: leader for leader in taker.leaders})
        everyone = sorted({*self._speaker.values(), *(one for i in range(llm.data) for one in llm.members(i, llm.pipeline - 1))})
        # One group per direction, so that backends that ignore tags see every pair's messages in the order of microbatches.
        self.rows, self.gradients, self.flags = (dist.new_group(everyone) for _ in range(3))
        self._make_roles(loader.rank, giver, taker)
        if not self.conditions:
            self._make_hearers(loader.rank, llm)

    def _make_roles(self, rank, giver, taker):
        self.encodes = self.takes = self.has_labels = self.speaks = False
        self.leader = self.members = self.context = self.giver = None
        self.hearers = []
        for mesh, stage in ((giver, giver.pipeline - 1), (taker, 0)):
            for replica in range(mesh.data):
                members = mesh.members(replica, stage)
                group = dist.new_group(members) if len(members) > 1 else None
                context = [mesh.rank_at(data=replica, context=one) for one in range(mesh.context)]
                # Gradients of shards are parts of a sum; tensor members have equal ones.
                sums = dist.new_group(context) if mesh is taker and mesh.context > 1 else None
                if rank in members:
                    self.encodes, self.takes = mesh is giver, mesh is taker
                    self.leader, self.members = mesh.rank_at(data=replica, pipeline=stage), group
                    self.context = sums if rank in context else None
                    self.speaks = rank == self.leader

    def _make_hearers(self, rank, llm):
        for replica, leader in enumerate(llm.leaders):
            members = llm.members(replica, llm.pipeline - 1)
            if rank in members:
                self.has_labels, self.giver = True, leader
            if rank == leader:
                self.hearers = [one for one in members if one != leader]

    def step(self, step, grad=True):
        """The rows of one step; `grad`, the same on every rank: whether gradients travel back."""
        if self.conditions and self.encodes and self.speaks and len(step.routes.get(self.phase, [])) < len(step.microbatches):
            raise ValueError(f"Link: the llm's last stage has no routes of the generator {self.phase}; with a pipeline every rank "
                             "receives for itself: fetch=\"each\"")
        return Rows(self, step, grad)

    def _rank(self, route, peer):
        """Of the process that sends or takes the rows of a route's peer."""
        return self._speaker[route.ranks[peer]]


class Rows:
    """One step's rows of one encoder; made by Link.step. A context manager, whose end waits until all was taken."""

    def __init__(self, link, step, grad):
        self.phase, self._link, self.grad, self._step = link.phase, link, grad, step
        self._routes = step.routes.get(link.phase, [])
        self._going, self._sent = {}, []         # (work, tensor): rows by microbatch; all else, until the end
        self._posted, self._arriving = 0, {}     # microbatch: [(work, tensor)] of rows or of gradients
        self._made = {}                          # microbatch: rows of it that were sent
        self._taken, self._given, self._next_gradient = set(), {}, 0
        self._anchor = torch.zeros((), requires_grad=True)
        self._microbatches = [getattr(one, "whole", one) for one in step.microbatches]
        self._damaged = self._coming = None
        self._said = False  # the flags of a generator were sent
        if not link.conditions and link.speaks and link.encodes:
            self._send_flags(step)
        self._expect_flags()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.finish()

    def __len__(self):
        """Microbatches of the step."""
        return len(self._microbatches)

    @property
    def peers(self):
        """Ranks that this one sends rows to or takes them from in the step, ascending."""
        if not self._link.speaks:
            return []
        return sorted({self._link._rank(route, peer) for route in self._routes
                       for peer in np.unique(np.concatenate([route.send[:, 0], route.receive[:, 0]])).tolist()})

    # ---- the encoder's side

    def encode(self, run, in_flight=None):
        """Forward and backward of all microbatches of this encoder: see `encode`."""
        encode([(self, run)], in_flight)

    def send(self, number, rows):
        """Sends the rows of a microbatch, [rows_in, width], and does not wait. Microbatches in ascending order."""
        self._check_rows(number, rows)
        self._made[number] = len(rows)
        if not self._link.speaks:
            return
        route = self._routes[number]
        picked = rows.detach().index_select(0, _on(rows, route.send_index))
        self._going[number] = [self._start_send(part, self._link._rank(route, peer), self._link.rows, number)
                               for peer, part in _parts(picked, route.send_splits)]
        if self.grad:
            self._arriving[number] = [self._start_receive(int(count), self._link._rank(route, peer), self._link.gradients, number)
                                      for peer, count in _counts(route.send_splits)]

    def gradient(self, number):
        """Waits for the gradients of a microbatch that was sent: [rows_in, width]; zeros where none travel back."""
        link = self._link
        out = self._zeros(self._made.pop(number))
        if not self.grad:
            return out
        if link.speaks:
            arrived = _wait(self._arriving.pop(number))
            _wait(self._going.pop(number))  # taken, since they came back as gradients
            if arrived:
                out.index_add_(0, _on(out, self._routes[number].send_index), torch.cat(arrived))
        if link.members is not None and len(out):
            dist.broadcast(out, link.leader, group=link.members)
        return out

    def _check_rows(self, number, rows):
        link = self._link
        if not link.encodes:
            owner = "the llm" if link.conditions else self.phase
            raise ValueError(f"send: ranks of the last stage of {owner} have the rows; this rank is not in it")
        count = self._routes[number].rows_in if link.speaks else len(rows)
        if tuple(rows.shape) != (count, *link.shape) or rows.dtype != link.dtype:
            raise ValueError(f"send: microbatch {number} has {count} rows of {link.shape} {link.dtype} for phase {self.phase}; given "
                             f"are {tuple(rows.shape)} {rows.dtype}")

    # ---- a generator's two sides

    def condition(self, number, rows):
        """Sends the conditioning rows of a microbatch from the llm's last stage, [rows, width], to the generator, and does not
        wait. Returns 0 to be added to the loss: the backward pass that reaches it waits for the gradients of the rows, as the
        generator's loss gives them, whatever the scale of this one. Microbatches in ascending order, after mask_labels of the
        step. Every member of the stage calls it, with all rows of the microbatch."""
        link = self._link
        if not link.conditions:
            raise ValueError(f"condition: {self.phase} is no generator; its rows are received")
        if not self._said:
            self._said = True
            self._send_sound()
        if not self.grad:
            self.send(number, rows)
            return rows.new_zeros(())
        return _Conditioning.apply(rows if rows.requires_grad else rows.detach().requires_grad_(), self, number)

    def generate(self, run):
        """All microbatches of this generator, in ascending order: forward and backward. `run(number, rows)` gives the loss of the
        microbatch's targets, whose backward pass sends the gradients of the rows back; or None."""
        for number in range(len(self)):
            given = self.receive(number)
            loss = run(number, given)
            if loss is not None and loss.requires_grad:
                loss.backward()
            if self.grad and number >= self._next_gradient and number not in self._given:
                self._give_back(number, torch.zeros_like(given))

    def counts(self, number):
        """bool [items]: which targets of a microbatch count in the generator's loss (evenkeel.torch.mask_targets). Every member of
        the generator calls it, and the first call waits until the llm has sent the rows of its first microbatch."""
        if not (self._link.conditions and self._link.takes):
            raise ValueError(f"counts: a generator knows which of its targets count; this rank does not run {self.phase}")
        if self._damaged is None:
            self._damaged = self._wait_for_sound()
        return counting(self._microbatches[number].targets[self.phase], self._damaged[number])

    def _wait_for_sound(self):
        link, sizes = self._link, [self._rows_out(number) for number in range(len(self))]
        out = torch.zeros(sum(sizes), dtype=torch.uint8, device=link.device)
        if link.speaks:
            arrived = {rank: _wait([one])[0].cpu() for rank, one in self._coming.items()}
            flags = [self._flags_of(number, arrived) for number in range(len(self))]
            out = torch.from_numpy(np.concatenate(flags) if flags else np.zeros(0, np.uint8)).to(link.device)
        if link.members is not None and len(out):
            dist.broadcast(out, link.leader, group=link.members)
        return [one.cpu().numpy() for one in out.split(sizes)]

    def _send_sound(self):
        parts = {}
        if self._link.speaks:
            for flags, route in zip(sound_rows(self._step, self.phase), self._routes):
                self._add_flags(flags, route, parts)
        self._send_parts(parts)

    # ---- the taking side: the llm's first stage, or a generator

    def receive(self, number):
        """Waits for the rows of a microbatch: [rows_out, width], in the order of its placeholders. Every member of the first
        stage calls it, in the same order. Their gradients are sent back by the backward pass that reaches them."""
        link = self._link
        if not link.takes:
            owner = self.phase if link.conditions else "the llm"
            raise ValueError(f"receive: the first stage of {owner} takes the rows of {self.phase}; this rank is not in it")
        if number in self._taken:
            raise ValueError(f"receive: the rows of microbatch {number} were received already")
        self._taken.add(number)
        out = self._zeros(self._rows_out(number))
        if link.speaks:
            self._post(number)
            if not link.conditions:
                self.damaged(number)  # passed on to the last stage
            arrived = _wait(self._arriving.pop(number))
            if arrived:
                out.index_copy_(0, _on(out, self._routes[number].receive_index), torch.cat(arrived))
        if link.members is not None and len(out):
            dist.broadcast(out, link.leader, group=link.members)
        return _Received.apply(self._anchor, out, self, number) if self.grad else out

    def _rows_out(self, number):
        """Of the whole microbatch. Leaders alone have routes; others count the placeholders, or the rows of the targets."""
        if self._link.speaks:
            return self._routes[number].rows_out
        if self._link.conditions:
            return len(row_flags(self._microbatches[number].targets[self.phase]))
        return len(placeholders(self._microbatches[number], self._link.media))

    def _post(self, number):
        while self._posted < min(number + 1 + self._link.ahead, len(self)):
            route = self._routes[self._posted]
            self._arriving[self._posted] = [
                self._start_receive(int(count), self._link._rank(route, peer), self._link.rows, self._posted)
                for peer, count in _counts(route.receive_splits)]
            self._posted += 1

    def _give_back(self, number, gradient):
        link = self._link
        if number in self._given or number < self._next_gradient:
            raise ValueError(f"a second backward pass through the rows of microbatch {number}: their gradients were sent already")
        if link.context is not None and len(gradient):
            gradient = gradient.contiguous()
            dist.all_reduce(gradient, group=link.context)
        self._given[number] = gradient
        self._send_gradients()

    def _send_gradients(self):
        """Those that are next, in ascending order, whatever the order of the backward passes."""
        while self._next_gradient in self._given:
            number, self._next_gradient = self._next_gradient, self._next_gradient + 1
            gradient = self._given.pop(number)
            if not self._link.speaks:
                continue
            route = self._routes[number]
            picked = gradient.index_select(0, _on(gradient, route.receive_index))
            for peer, part in _parts(picked, route.receive_splits):
                self._sent.append(self._start_send(part, self._link._rank(route, peer), self._link.gradients, number))

    # ---- damaged items

    def damaged(self, number):
        """bool [samples of the microbatch]: whether an item of the sample could not be decoded. Where the llm has its labels,
        and on the leaders of its first stage. It waits until the encoder has begun the step."""
        if self._damaged is None:
            self._damaged = self._wait_for_damaged()
        return self._damaged[number]

    def _send_flags(self, step):
        """To each peer, for each of its rows of all microbatches, whether the item was decoded."""
        parts = {}
        for microbatch, route in zip(step.microbatches, self._routes):
            self._add_flags(torch.from_numpy(row_flags(microbatch.encoders[self.phase])), route, parts)
        self._send_parts(parts)

    def _add_flags(self, flags, route, parts):
        for peer, part in _parts(flags[torch.from_numpy(route.send_index)], route.send_splits):
            parts.setdefault(self._link._rank(route, peer), []).append(part)

    def _send_parts(self, parts):
        link = self._link
        for rank in sorted(parts):
            self._sent.append(self._start_send(torch.cat(parts[rank]).to(link.device), rank, link.flags, 0))

    def _expect_flags(self):
        link, counts = self._link, {}
        if link.takes and link.speaks:
            for route in self._routes:
                for peer, count in _counts(route.receive_splits):
                    rank = link._rank(route, peer)
                    counts[rank] = counts.get(rank, 0) + count
            self._coming = {rank: self._start_receive(counts[rank], rank, link.flags, 0, (), torch.uint8)
                            for rank in sorted(counts)}
        elif link.takes and link.conditions:
            self._coming = {}  # the leader passes them on
        elif link.has_labels:
            samples = sum(len(one["sample_valid"]) for one in self._microbatches)
            self._coming = {link.giver: self._start_receive(samples, link.giver, link.flags, 0, (), torch.uint8)} if samples else {}

    def _wait_for_damaged(self):
        link = self._link
        if self._coming is None:
            raise ValueError(f"damaged: the llm's last stage, and the leader of its first, know of damaged items of {self.phase}")
        sizes = [len(one["sample_valid"]) for one in self._microbatches]
        arrived = {rank: _wait([one])[0].cpu() for rank, one in self._coming.items()}
        if not link.takes or not link.speaks:
            said = arrived.get(link.giver, torch.zeros(0, dtype=torch.uint8))
            return [one.bool().numpy() for one in said.split(sizes)]
        out = [self._damaged_samples(number, arrived) for number in range(len(self))]
        everything = torch.from_numpy(np.concatenate(out).astype(np.uint8)).to(link.device)
        self._sent += [self._start_send(everything, rank, link.flags, 0) for rank in link.hearers if len(everything)]
        return out

    def _damaged_samples(self, number, arrived):
        return damaged_samples(self._microbatches[number], self._link.media, self._flags_of(number, arrived))

    def _flags_of(self, number, arrived):
        """uint8 [rows_out] of a microbatch; takes them from the begin of what arrived of each rank."""
        link, route = self._link, self._routes[number]
        # Rows that nobody sends are those of a generator's dummies.
        flags = np.zeros(route.rows_out, np.uint8) if link.conditions else np.ones(route.rows_out, np.uint8)
        taken = []
        for peer, count in _counts(route.receive_splits):
            rank = link._rank(route, peer)
            taken.append(arrived[rank][:count].numpy())
            arrived[rank] = arrived[rank][count:]
        if taken:
            flags[route.receive_index] = np.concatenate(taken)
        return flags

    # ---- messages

    def _zeros(self, rows):
        return torch.zeros((rows, *self._link.shape), dtype=self._link.dtype, device=self._link.device)

    def _start_send(self, part, rank, group, number):
        part = part.contiguous()
        return dist.isend(part, rank, group=group, tag=number), part

    def _start_receive(self, count, rank, group, number, shape=None, dtype=None):
        shape = self._link.shape if shape is None else shape
        into = torch.empty((count, *shape), dtype=dtype or self._link.dtype, device=self._link.device)
        return dist.irecv(into, rank, group=group, tag=number), into

    def finish(self):
        """Waits until all that was sent is taken. Rows that no backward pass reached, also those that were not received, have
        zeros for gradients."""
        link = self._link
        if link.takes:
            for number in range(len(self)):
                if link.speaks and number not in self._taken:
                    self._post(number)
                    _wait(self._arriving.pop(number))
                if self.grad and number >= self._next_gradient and number not in self._given:
                    self._given[number] = self._zeros(self._rows_out(number))
            self._send_gradients()
        if self._coming is not None and self._microbatches:
            self.counts(0) if link.conditions else self.damaged(0)
        for works in [*self._going.values(), self._sent]:
            _wait(works)
        self._going, self._sent = {}, []


def encode(encoders, in_flight=None):
    """Forward and backward of all microbatches of the encoders that run on this rank.

    encoders    [(rows, run)]: Rows, and a function of which `run(number)` gives the rows of a microbatch. Several encoders of
                one rank are run together, since the llm needs all rows of a microbatch to send back any gradient
    in_flight   how many microbatches may wait for their gradients, at least as many as the llm's schedule has under way
                (1F1B: its stages; interleaved, and gpipe: all). None: all, which takes the most memory

    Microbatches in ascending order, forward and backward. The order of the passes does not depend on time: ranks of an
    encoder may meet in collectives (tensor parallelism, FSDP), and sums of gradients are the same in every run.
    """
    waiting = collections.deque()

    def backward():
        number, made = waiting.popleft()
        for (rows, _), one in zip(encoders, made):
            gradient = rows.gradient(number)
            if one.requires_grad:
                one.backward(gradient)
    grad = any(rows.grad for rows, _ in encoders)
    for number in range(max((len(rows) for rows, _ in encoders), default=0)):
        if grad and len(waiting) == in_flight:
            backward()
        made = [run(number) for _, run in encoders]
        for (rows, _), one in zip(encoders, made):
            rows.send(number, one)
        if grad:
            waiting.append((number, made))
    while waiting:
        backward()


class _Conditioning(torch.autograd.Function):
    """Sends rows; the backward pass waits for their gradients."""

    @staticmethod
    def forward(ctx, rows, owner, number):
        ctx.owner, ctx.number = owner, number
        owner.send(number, rows)
        return rows.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return ctx.owner.gradient(ctx.number), None, None


class _Received(torch.autograd.Function):
    """Rows as a part of the graph; the backward pass sends their gradients."""

    @staticmethod
    def forward(ctx, anchor, rows, owner, number):
        ctx.owner, ctx.number = owner, number
        return rows

    @staticmethod
    def backward(ctx, gradient):
        ctx.owner._give_back(ctx.number, gradient)
        return None, None, None, None


def _wait(works):
    """The tensors, when they are complete."""
    for work, _ in works:
        work.wait()
    return [tensor for _, tensor in works]


def _counts(splits):
    return [(peer, int(count)) for peer, count in enumerate(splits) if count]


def _parts(rows, splits):
    """(peer, rows for it), of those that get some."""
    return [(peer, part) for peer, part in enumerate(rows.split([int(one) for one in splits])) if len(part)]


def _on(like, index):
    return torch.from_numpy(index).to(like.device)
