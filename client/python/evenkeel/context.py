"""Context parallelism: the group of a microbatch, and the shards of its sequences.

    group = microbatch.context                  # ContextGroup, or None without context parallelism
    hidden = embed(microbatch["input_ids"])     # with `sequences: zigzag` in the job: this member's tokens alone
    loss = cross_entropy(logits, microbatch["shift_labels"])

A group is data; the communicator of its ranks is the trainer's. Every document has a multiple of `parts` tokens, padding
included (the job's microbatch.align).
"""

import numpy as np

from evenkeel import packing
from evenkeel.step import Microbatch

_TOKEN_FIELDS = ("input_ids", "labels", "position_ids", "mm_token_type_ids", "loss_weights")


class ContextGroup:
    """ranks       global ranks of the members, in order; this one is ranks[index]
    index, size    of this member
    lengths        int64 [documents]: tokens of each document of the microbatch, padding included
    sequences      "whole", "zigzag" or "contiguous": what the member's fields hold
    """

    def __init__(self, ranks, index, lengths, sequences):
        self.ranks, self.index, self.size = list(ranks), index, len(ranks)
        self.lengths, self.sequences = lengths, sequences

    def tokens(self, index=None, sequences=None):
        """int64: numbers, in the whole microbatch, of the tokens of a member's shard (None: this one's), in its order."""
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        return shard_tokens(bounds, self.size, self.index if index is None else index, sequences or self.sequences)

    def __repr__(self):
        return f"ContextGroup(ranks={self.ranks}, index={self.index}, {len(self.lengths)} documents, {self.sequences})"


def shard_tokens(cu_seqlens, size, index, sequences):
    """int64: numbers of the tokens of member `index` of `size`, document by document.

    zigzag       each document in 2 * size chunks: chunk `index`, then chunk 2 * size - 1 - index, which evens out causal
                 attention (Megatron-Core, ring attention)
    contiguous   each document in `size` chunks: chunk `index` (Ulysses)
    whole        all tokens

    ValueError: a document is not a multiple of the number of chunks.
    """
    bounds = np.asarray(cu_seqlens, np.int64)
    if sequences == "whole":
        return np.arange(bounds[-1])
    chunks = {"zigzag": 2 * size, "contiguous": size}[sequences]
    own = (index, 2 * size - 1 - index) if sequences == "zigzag" else (index,)
    lengths = np.diff(bounds)
    if (lengths % chunks).any():
        raise ValueError(f"a document of {lengths[lengths % chunks != 0][0]} tokens is not a multiple of {chunks}: set "
                         f"microbatch.align to a multiple of {chunks} in the job")
    pieces = [np.arange(begin + chunk * (length // chunks), begin + (chunk + 1) * (length // chunks))
              for begin, length in zip(bounds[:-1], lengths) for chunk in own]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


class Shard(Microbatch):
    """A member's shard of a microbatch. Token fields are those of its tokens, [1, tokens / size]; other fields, encoders
    and `cu_seqlens` (of the whole sequences) are the microbatch's.

    whole         the Microbatch
    tokens        int64: number, in the whole, of each token of the shard
    shift_labels  a field: labels of the next token of the document, which may lie in another shard; -100 at its end.
                  With loss_weights also `shift_loss_weights`
    """

    def __new__(cls, whole=()):
        # As of Fields, another mapping is what a framework made of the fields, and becomes a plain dict.
        return object.__new__(cls) if isinstance(whole, Microbatch) else super().__new__(cls, whole)

    def __init__(self, whole):
        super().__init__()
        self.whole = whole
        self.context = whole.context
        self.encoders, self.targets = whole.encoders, whole.targets
        self.tokens = whole.context.tokens()
        self._tensors = dict(whole._tensors)
        for name in ("labels", "loss_weights"):
            if name in self._tensors:
                self._tensors[f"shift_{name}"] = self._tensors[name]

    def _make(self, name):
        if name == "shift_labels":
            return packing.shifted(self.whole["labels"])[..., self.tokens]
        if name == "shift_loss_weights":
            return packing.shifted(self.whole["loss_weights"], last=0)[..., self.tokens]
        value = self.whole[name]
        return np.ascontiguousarray(value[..., self.tokens]) if name in _TOKEN_FIELDS else value

    def wire(self, name):
        """As sent, of the whole microbatch."""
        return self.whole.wire(name)


def rows_of_shard(microbatch, phase):
    """int64: which rows of an encoder belong to placeholders of this shard, in their order. `phase`: as in
    evenkeel.torch.placeholders. Of a whole microbatch: all."""
    from evenkeel import torch as evenkeel_torch
    whole = getattr(microbatch, "whole", microbatch)
    places = evenkeel_torch.placeholders(whole, phase)
    if whole is microbatch:
        return np.arange(len(places))
    number = np.full(np.asarray(whole["mm_token_type_ids"]).size, -1, np.int64)
    number[places] = np.arange(len(places))
    rows = number[microbatch.tokens]
    return rows[rows >= 0]
