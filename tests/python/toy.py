"""A small float64 model with a vision encoder, an audio encoder and an llm over packed documents, and its two ways of
training: encoders once per step with one reverse exchange, or once per microbatch through autograd."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import evenkeel.packing
import evenkeel.torch

WIDTH = 12
PHASES = ("vision", "audio")


class Vision(torch.nn.Module):
    """Patches [4 * rows, 1176] -> [rows, WIDTH]."""

    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Linear(1176, WIDTH)
        self.merge = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, fields):
        parts = [evenkeel.torch.pixels(fields, name).double() for name in ("pixel_values", "pixel_values_videos")
                 if name in fields]
        patches = torch.cat(parts) if parts else torch.zeros(0, 1176, dtype=torch.float64)
        return self.merge(torch.tanh(self.patch(patches)).reshape(-1, 4 * WIDTH))


class Audio(torch.nn.Module):
    """Log-mel [clips, mels, 3000] -> the first item_rows of every clip's 750."""

    def __init__(self, mels=128):
        super().__init__()
        self.mix = torch.nn.Linear(mels, WIDTH)

    def forward(self, fields):
        if "input_features" not in fields:
            return self.mix(torch.zeros(0, self.mix.in_features, dtype=torch.float64))
        pooled = F.avg_pool1d(evenkeel.torch.tensor(fields, "input_features").double(), 4).transpose(1, 2)
        hidden = torch.tanh(self.mix(pooled))
        return torch.cat([clip[:rows] for clip, rows in zip(hidden, fields["item_rows"].tolist())])


class Llm(torch.nn.Module):
    """Embedding and position, causal attention within each document, a head."""

    def __init__(self, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, WIDTH)
        self.query = torch.nn.Linear(WIDTH, WIDTH)
        self.key = torch.nn.Linear(WIDTH, WIDTH, bias=False)  # softmax cancels a bias: its gradient would be noise
        self.value = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, vocabulary)

    def forward(self, hidden, microbatch):
        positions = torch.from_numpy(microbatch["position_ids"])[1:].reshape(3, -1).double()
        hidden = hidden + 0.01 * torch.sin(positions.sum(0) / 10)[:, None]
        document = torch.from_numpy(evenkeel.packing.document_ids(microbatch))[0]
        order = torch.arange(len(document))
        allowed = (document[:, None] == document[None]) & (order[:, None] >= order[None])
        scores = self.query(hidden) @ self.key(hidden).T / WIDTH ** 0.5
        attended = torch.softmax(scores.masked_fill(~allowed, float("-inf")), 1) @ self.value(hidden)
        return self.head(torch.tanh(hidden + attended))


def make_models(vocabulary):
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"vision": Vision(), "audio": Audio(), "llm": Llm(vocabulary)}).double()


def loss_of(models, microbatch, rows, labels, step):
    """This microbatch's share of the step's loss: divided by the loss tokens of the whole step."""
    hidden = models["llm"].embed(torch.from_numpy(microbatch["input_ids"])[0])
    for phase in PHASES:
        hidden = evenkeel.torch.scatter_rows(hidden, microbatch, phase, rows[phase])
    logits = models["llm"](hidden, microbatch)
    # A document's first label is -100, so shifting the packed row never crosses into another document.
    return F.cross_entropy(logits[:-1], labels[0, 1:], ignore_index=-100, reduction="sum") / step.loss_tokens


def run_once_per_step(models, step):
    outputs = {phase: models[phase](step.encoders[phase]) for phase in PHASES}
    routed = {phase: evenkeel.torch.exchange(out, step.routes[phase], grad=False).requires_grad_()
              for phase, out in outputs.items()}
    total = 0.0
    for i, (microbatch, labels) in enumerate(zip(step.microbatches, evenkeel.torch.mask_labels(step))):
        rows = {phase: routed[phase][slice(*step.routes[phase].microbatch_rows(i))] for phase in PHASES}
        loss = loss_of(models, microbatch, rows, labels, step)
        loss.backward()  # gradients accumulate in `routed`
        total += loss.item()
    for phase in PHASES:
        gradient = evenkeel.torch.exchange(routed[phase].grad, step.routes[phase].inverse(), grad=False)
        outputs[phase].backward(gradient)
    return total


def run_once_per_microbatch(models, step):
    total = 0.0
    for i, (microbatch, labels) in enumerate(zip(step.microbatches, evenkeel.torch.mask_labels(step))):
        rows = {phase: evenkeel.torch.exchange(models[phase](microbatch.encoders[phase]), step.routes[phase][i])
                for phase in PHASES}
        loss = loss_of(models, microbatch, rows, labels, step)
        loss.backward()
        total += loss.item()
    return total


def train(rank, endpoints, steps, vocabulary):
    """Per step: loss and {parameter: gradient} summed over ranks; number of microbatches; then this rank's
    rows that went to another one and labels that were masked for damaged samples."""
    models = make_models(vocabulary)
    out = []
    with evenkeel.Loader(endpoints, rank=rank, num_steps=steps, prefetch_bytes=256 << 20) as loader:
        for step in loader:
            models.zero_grad()
            once_per_step = bool(step.encoders)
            loss = torch.tensor((run_once_per_step if once_per_step else run_once_per_microbatch)(models, step),
                                dtype=torch.float64)
            dist.all_reduce(loss)
            gradients = {}
            for name, parameter in models.named_parameters():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                dist.all_reduce(gradient)
                gradients[name] = gradient.numpy()
            moved = 0
            for phase in PHASES:
                for route in [step.routes[phase]] if once_per_step else step.routes[phase]:
                    moved += int(route.send_splits.sum() - route.send_splits[route.ranks.index(rank)])
            masked = sum(int(((after.numpy() == evenkeel.torch.IGNORED) & (m["labels"] != evenkeel.torch.IGNORED)).sum())
                         for m, after in zip(step.microbatches, evenkeel.torch.mask_labels(step)))
            out.append((loss.item(), gradients, len(step.microbatches), moved, masked))
    return out
