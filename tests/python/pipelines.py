"""Schedules of pipeline stages as lists of operations, and their execution between processes."""

import torch
import torch.distributed as dist


def one_f_one_b(stage, stages, count):
    """("F" or "B", chunk of the stage, microbatch) in order."""
    warm = min(stages - stage - 1, count)
    steady = [op for i in range(count - warm) for op in (("F", 0, warm + i), ("B", 0, i))]
    return [("F", 0, i) for i in range(warm)] + steady + [("B", 0, i) for i in range(count - warm, count)]


def gpipe(stage, stages, count):
    return [(kind, 0, i) for kind in "FB" for i in range(count)]


def interleaved(stage, stages, count, chunks=2):
    """As Megatron-LM: groups of `stages` microbatches pass one chunk after the other."""
    total = count * chunks
    warm = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)

    def at(k, backward):
        group, inside = divmod(k, stages * chunks)
        chunk, microbatch = inside // stages, group * stages + inside % stages
        return ("B", chunks - 1 - chunk, microbatch) if backward else ("F", chunk, microbatch)
    steady = [op for k in range(total - warm) for op in (at(warm + k, False), at(k, True))]
    return [at(k, False) for k in range(warm)] + steady + [at(k, True) for k in range(total - warm, total)]


def one_f_one_b_from_the_last(stage, stages, count):
    """1F1B over the microbatches from the last to the first."""
    return [(kind, chunk, count - 1 - i) for kind, chunk, i in one_f_one_b(stage, stages, count)]


class Stage:
    """One process's chunks. ranks: global ranks of the pipeline's stages, in order.

    enter(microbatch)            the first chunk's input
    run(chunk, hidden, number)   a chunk's output, of its number over all stages; of the last one the loss
    shape(microbatch)            of what passes from chunk to chunk, float64
    paced(work)                  does the work of a pass and returns its result
    """

    def __init__(self, ranks, rank, chunks, enter, run, shape, paced=lambda work: work()):
        self._ranks, self._stage, self._chunks = ranks, ranks.index(rank), chunks * len(ranks)
        self._enter, self._run, self._shape, self._paced = enter, run, shape, paced

    def train(self, operations):
        """The sum of the losses."""
        self._inputs, self._outputs, self._sent, total = {}, {}, [], 0.0
        for kind, local, microbatch in operations:
            chunk = local * len(self._ranks) + self._stage
            if kind == "F":
                total += self._forward(chunk, microbatch)
            else:
                self._backward(chunk, microbatch)
        for work, _ in self._sent:
            work.wait()
        return total

    def _forward(self, chunk, microbatch):
        if chunk == 0:
            hidden = self._enter(microbatch)
        else:
            hidden = self._receive(chunk, "F", microbatch).requires_grad_()
        out = self._paced(lambda: self._run(chunk, hidden, microbatch))
        self._inputs[chunk, microbatch], self._outputs[chunk, microbatch] = hidden, out
        if chunk == self._chunks - 1:
            return out.item()
        self._send(out.detach(), chunk + 1, "F", microbatch)
        return 0.0

    def _backward(self, chunk, microbatch):
        hidden, out = self._inputs.pop((chunk, microbatch)), self._outputs.pop((chunk, microbatch))
        gradient = None if chunk == self._chunks - 1 else self._receive(chunk, "B", microbatch)
        self._paced(lambda: out.backward(gradient))
        if chunk > 0:
            self._send(hidden.grad, chunk - 1, "B", microbatch)

    def _tag(self, chunk, kind, microbatch):
        return (microbatch * self._chunks + chunk) * 2 + (kind == "B")

    def _send(self, tensor, chunk, kind, microbatch):
        tensor = tensor.contiguous()
        to = self._ranks[chunk % len(self._ranks)]
        self._sent.append((dist.isend(tensor, to, tag=self._tag(chunk, kind, microbatch)), tensor))

    def _receive(self, chunk, kind, microbatch):
        tensor = torch.empty(self._shape(microbatch), dtype=torch.float64)
        neighbour = chunk - 1 if kind == "F" else chunk + 1
        dist.recv(tensor, self._ranks[neighbour % len(self._ranks)], tag=self._tag(chunk, kind, microbatch))
        return tensor
