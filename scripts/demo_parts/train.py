"""One training rank of the demo: a small vision encoder, audio encoder and llm in torch.

    train.py --rank R --ranks N --endpoints HOST:PORT,... --steps S --rendezvous FILE --report FILE

Per step: encode the items that the plan gave this rank, exchange the encoder outputs along their routes, run the
llm over each microbatch, send the gradients back along the same routes, sum over ranks, one optimiser step.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import evenkeel
import evenkeel.torch

WIDTH = 48
WINDOW = 512  # tokens that attend to each other
VISION, AUDIO = "vision", "audio"


class VisionEncoder(torch.nn.Module):
    """Patches [rows, 1176] -> [rows / 4, WIDTH]: four patches of a 2x2 block become one row."""

    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Linear(1176, WIDTH)
        self.merge = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, pixels):
        return self.merge(F.gelu(self.patch(pixels)).reshape(-1, 4 * WIDTH))


class AudioEncoder(torch.nn.Module):
    """Log-mel [clips, mels, 3000] -> the first output_rows of [clips, 750, WIDTH], concatenated."""

    def __init__(self, mels=128):
        super().__init__()
        self.mix = torch.nn.Linear(mels, WIDTH)

    def forward(self, features, rows):
        pooled = F.avg_pool1d(features, 4).transpose(1, 2)
        hidden = F.gelu(self.mix(pooled))
        return torch.cat([hidden[i, : int(n)] for i, n in enumerate(rows)]) if len(rows) else hidden.reshape(0, WIDTH)


class SmallLlm(torch.nn.Module):
    """Embedding, one causal attention layer in windows of a document, a head for the tokens that have a label."""

    def __init__(self, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, WIDTH)
        self.attend = torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, vocabulary)
        self.register_buffer("mask", torch.triu(torch.ones(WINDOW, WINDOW, dtype=torch.bool), 1))

    def forward(self, hidden, cu_seqlens, labels):
        """The sum of the losses. Labels are those of the tokens themselves: each is predicted from the one before."""
        out = []
        for begin, end in zip(cu_seqlens[:-1], cu_seqlens[1:]):
            for window in hidden[begin:end].split(WINDOW):
                size, window = len(window), window.unsqueeze(0)
                mixed, _ = self.attend(window, window, window, attn_mask=self.mask[:size, :size], need_weights=False)
                out.append((window + mixed)[0])
        counts = (labels[1:] != -100).nonzero()[:, 0]
        return F.cross_entropy(self.head(torch.cat(out)[counts]), labels[1:][counts], reduction="sum")


def encode(step, models):
    """Outputs of this rank's encoders: {phase: [rows, WIDTH]} with a row for every planned output row."""
    outputs = {}
    fields = step.encoders.get(VISION, {})
    parts = [models[VISION](evenkeel.torch.pixels(fields, name))
             for name in ("pixel_values", "pixel_values_videos") if name in fields]
    outputs[VISION] = torch.cat(parts) if parts else torch.zeros(0, WIDTH)
    fields = step.encoders.get(AUDIO, {})
    if "input_features" in fields:
        features = evenkeel.torch.tensor(fields, "input_features").float()
        outputs[AUDIO] = models[AUDIO](features, fields["item_rows"])
    else:
        outputs[AUDIO] = torch.zeros(0, WIDTH)
    return outputs


def train_step(step, models, optimizer):
    optimizer.zero_grad()
    local = encode(step, models)
    routed = {}
    for phase, output in local.items():
        if phase in step.routes:
            routed[phase] = evenkeel.torch.exchange(output, step.routes[phase]).detach().requires_grad_()
    labels = evenkeel.torch.mask_labels(step)
    loss_sum = 0.0
    for i, microbatch in enumerate(step.microbatches):
        ids = evenkeel.torch.tensor(microbatch, "input_ids")[0]
        hidden = models["llm"].embed(ids)
        for phase, rows in routed.items():
            begin, end = step.routes[phase].microbatch_rows(i)
            hidden = evenkeel.torch.scatter_rows(hidden, microbatch, phase, rows[begin:end])
        loss = models["llm"](hidden, microbatch["cu_seqlens"].tolist(), labels[i][0]) / step.loss_tokens
        loss.backward()
        loss_sum += float(loss)
    # One reverse exchange carries the gradients of all microbatches back to the ranks that encoded.
    for phase, rows in routed.items():
        gradient = rows.grad if rows.grad is not None else torch.zeros_like(rows)
        back = evenkeel.torch.exchange(gradient, step.routes[phase].inverse())
        if local[phase].requires_grad:
            local[phase].backward(back)
    for model in models.values():
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
    optimizer.step()
    total = torch.tensor([loss_sum], dtype=torch.float64)
    dist.all_reduce(total)
    return float(total)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--vocabulary", type=int, default=2048)
    return parser.parse_args()


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{options.rendezvous}", rank=options.rank,
                            world_size=options.ranks)
    models = {VISION: VisionEncoder(), AUDIO: AudioEncoder(), "llm": SmallLlm(options.vocabulary)}
    optimizer = torch.optim.Adam([p for m in models.values() for p in m.parameters()], lr=1e-2)
    loader = evenkeel.Loader(options.endpoints, rank=options.rank, num_steps=options.steps,
                             prefetch_bytes=512 << 20, prefetch_steps=3, all_loads=True)
    losses, loads, samples = [], [], 0
    begin = time.monotonic()
    for step in loader:
        losses.append(train_step(step, models, optimizer))
        loads.append({phase: {"tokens_before": one.tokens_before.all, "tokens_after": one.tokens_after.all}
                      for phase, one in step.loads.items()})
        samples += step.num_samples
        if options.rank == 0:
            print(f"step {step.index}: {step.num_samples} samples, loss {losses[-1]:.4f}", flush=True)
    report = {"rank": options.rank, "losses": losses, "loads": loads, "samples": samples,
              "seconds": time.monotonic() - begin, "stats": loader.stats()}
    with open(options.report, "w") as file:
        json.dump(report, file)
    dist.barrier()


if __name__ == "__main__":
    main()
