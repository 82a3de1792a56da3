"""Whether all ranks of a process group follow one stream. A collective; needs torch.

While workers of two jobs answer under one name, every rank could connect to either. Ranks of different streams would
train on unrelated samples, and their routes do not fit each other.
"""

import torch
import torch.distributed as dist

from evenkeel.errors import Error, InvalidArgument, Mismatch, name_ranks

_DIGEST_BYTES = 64  # of one digest's text, padded


def agree(loader, group=None):
    """Connects the loader and compares what all ranks of `group` (None: the world) follow. Call it before training.

    A collective: every rank of the group calls it. Mismatch on every rank where stream or layout digests differ; it
    names the ranks of each. A rank that cannot connect raises its own error, the others one that names it. Without a
    process group it only connects.
    """
    error = None
    try:
        origin = loader.origin
    except Exception as raised:  # the other ranks wait for this one's word
        origin, error = None, raised
    if dist.is_available() and dist.is_initialized():
        rank = loader.rank
        said = [_unpack(one) for one in _gather(_pack(rank, origin), group, device_of(group))]
        if error is None:
            _check(said)
            origin.mark_agreed(_group(group))
    if error is not None:
        raise error


def ensure(origin, group, device):
    """As `agree`, for a connected loader's origin, and only the first time that it meets the group."""
    group = _group(group)
    if origin.is_agreed(group, dist.group.WORLD):
        return
    _check([_unpack(one) for one in _gather(_pack(origin.rank, origin), group, device)])
    origin.mark_agreed(group)


def _group(group):
    return dist.group.WORLD if group is None else group


def device_of(group):
    """Where tensors of a group's collectives live: the current CUDA device with NCCL, the current NPU with HCCL, else the CPU."""
    if "nccl" in str(dist.get_backend(group)):
        return torch.device("cuda", torch.cuda.current_device())
    if "hccl" in str(dist.get_backend(group)):
        return torch.device("npu", torch.npu.current_device())
    return torch.device("cpu")


def _pack(rank, origin):
    digests = ("", "") if origin is None else (origin.stream_digest, origin.layout_digest)
    text = b"".join(digest.encode().ljust(_DIGEST_BYTES)[:_DIGEST_BYTES] for digest in digests)
    return torch.frombuffer(bytearray(int(rank).to_bytes(8, "little") + text), dtype=torch.uint8)


def _unpack(tensor):
    """(rank, stream digest, layout digest); empty digests: the rank did not connect."""
    data = bytes(tensor.cpu().tolist())
    return (int.from_bytes(data[:8], "little"), data[8:8 + _DIGEST_BYTES].decode().strip(),
            data[8 + _DIGEST_BYTES:].decode().strip())


def _gather(own, group, device):
    """The tensors of all ranks, of the same form, in the order of the group."""
    own = own.to(device)
    said = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(said, own, group=group)
    return said


def gather_numbers(numbers, group=None):
    """The lists of whole numbers of all ranks, equally long, in the order of the group. A collective."""
    return [one.tolist() for one in _gather(torch.tensor(numbers, dtype=torch.int64), group, device_of(group))]


def _check(said):
    ranks = [rank for rank, _, _ in said]
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        raise InvalidArgument(f"{name_ranks(twice)} used by more than one process of the group: give each process its own rank, "
                              "or a group of one process for each rank", "INVALID_ARGUMENT")
    absent = sorted(rank for rank, stream, _ in said if not stream)
    if absent:
        raise Error(f"{name_ranks(absent)} could not connect to the workers; the error there says why", "UNAVAILABLE")
    for what, which in (("stream", 1), ("layout", 2)):
        ranks_of = {}
        for one in said:
            ranks_of.setdefault(one[which], []).append(one[0])
        if len(ranks_of) == 1:
            continue
        parts = "; ".join(f"{what} digest {digest} on {name_ranks(sorted(ranks))}"
                          for digest, ranks in sorted(ranks_of.items(), key=lambda item: min(item[1])))
        raise Mismatch(f"the ranks follow different {what}s: {parts}. Workers of two jobs answer: give every rank the "
                       f"digest that is wanted (expect_{what}_digest), or the endpoints of one job only",
                       "FAILED_PRECONDITION")
