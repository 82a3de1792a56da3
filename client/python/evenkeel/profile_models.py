"""Modules of checkpoints of transformers, for `evenkeel.profile`: made from `config.json` alone, with random weights.

The `llm` is the language model with its head and loss, called with embeddings. Any other phase except `audio` is the vision
tower, since pictures and videos may be phases of their own: one that takes `grid_thw` encodes pictures, or videos of frames of `--window` patches; one that takes pictures of one size
encodes tiles. Other towers need a function of their own.
"""

import json
import math
import os

from evenkeel.errors import InvalidArgument

__all__ = ["load"]


def load(source, phase, window=None):
    """The `Subject` of a phase, for a folder or a config.json. InvalidArgument if the checkpoint has no such module."""
    from evenkeel.profile import Subject
    folder = os.path.dirname(source) or "." if source.endswith(".json") else source
    config, name = _config(folder), os.path.basename(os.path.abspath(folder))
    if phase == "llm":
        if window is not None:
            raise InvalidArgument("--window: is for vision towers", "INVALID_ARGUMENT")
        module = _llm(config)
        return Subject(module, module.make_inputs, name)
    vision = getattr(config, "vision_config", None)
    if phase == "audio" or vision is None:
        raise InvalidArgument(f"{source}: has no module for phase '{phase}'; write a function that returns (module, "
                              "make_inputs) and give it as package.module:function", "INVALID_ARGUMENT")
    tower = _part(config, vision)
    if hasattr(vision, "spatial_merge_size"):
        grid = _Grid(vision, window)
        return Subject(tower, grid.make_inputs, name, grid.fit_length, window)
    tiles = _Tiles(vision)
    if window not in (None, tiles.patches):
        raise InvalidArgument(f"--window {window}: the tower of {name} encodes tiles of {tiles.patches} patches; leave it out",
                              "INVALID_ARGUMENT")
    return Subject(tower, tiles.make_inputs, name, tiles.fit_length, tiles.patches)


def _config(folder):
    path = os.path.join(folder, "config.json")
    if not os.path.isfile(path):
        raise InvalidArgument(f"{path}: does not exist; expected a checkpoint's folder or package.module:function",
                              "INVALID_ARGUMENT")
    try:
        import transformers
        with open(path, encoding="utf-8") as file:
            kind = json.load(file).get("model_type")
        if kind is None:
            raise ValueError("it has no model_type")
        return transformers.AutoConfig.from_pretrained(folder)
    except ImportError as error:
        raise InvalidArgument(f"{path}: a checkpoint needs transformers: {error}", "INVALID_ARGUMENT") from error
    except (ValueError, OSError) as error:
        raise InvalidArgument(f"{path}: {error}", "INVALID_ARGUMENT") from error


def _part(config, part):
    """The module that has the configuration `part` within the model of `config`, alone and on the CPU."""
    import torch
    import transformers
    if part is config:
        return transformers.AutoModel.from_config(part)
    with torch.device("meta"):
        whole = transformers.AutoModel.from_config(config)
    for module in whole.modules():
        if isinstance(module, transformers.PreTrainedModel) and type(module.config) is type(part) and module is not whole:
            return type(module)._from_config(part)
    raise InvalidArgument(f"{type(whole).__name__} has no part with {type(part).__name__}; write a function that returns "
                          "(module, make_inputs)", "INVALID_ARGUMENT")


def _llm(config):
    import torch

    class LanguageModel(torch.nn.Module):
        """Embeddings [units, length, width] and labels [units, length] -> the mean loss."""

        def __init__(self):
            super().__init__()
            self.text = config.get_text_config()
            self.body = _part(config, self.text)
            self.head = torch.nn.Linear(self.text.hidden_size, self.text.vocab_size, bias=False)

        def forward(self, inputs_embeds, labels):
            hidden = self.body(inputs_embeds=inputs_embeds, use_cache=False).last_hidden_state
            logits = self.head(hidden).float()
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

        def make_inputs(self, length, units):
            return {"inputs_embeds": torch.randn(units, length, self.text.hidden_size),
                    "labels": torch.randint(self.text.vocab_size, (units, length))}

    return LanguageModel()


class _Grid:
    """Inputs of towers that encode patches on grids of any size, with attention within each frame."""

    def __init__(self, config, window):
        self.merge = config.spatial_merge_size
        self.width = config.patch_size ** 2 * getattr(config, "temporal_patch_size", 1) * \
            getattr(config, "in_channels", getattr(config, "in_chans", 3))
        self.frame = None if window is None else self._grid(window)
        if self.frame is not None and math.prod(self.frame) != window:
            raise InvalidArgument(f"--window {window}: no grid of {self.merge}x{self.merge} cells near a square has as many "
                                  f"patches; the nearest has {math.prod(self.frame)}", "INVALID_ARGUMENT")

    def _grid(self, patches):
        """(rows, columns) near a square, multiples of the merged cell, with about as many patches."""
        cell = self.merge ** 2
        rows = max(1, round(math.sqrt(patches / cell)))
        return rows * self.merge, max(1, round(patches / cell / rows)) * self.merge

    def _grids(self, length):
        """(frames, rows, columns)"""
        if self.frame is None:
            return (1, *self._grid(length))
        return (max(1, round(length / math.prod(self.frame))), *self.frame)

    def fit_length(self, length):
        return math.prod(self._grids(length))

    def make_inputs(self, length, units):
        import torch
        return torch.randn(units * length, self.width), torch.tensor([self._grids(length)] * units)


class _Tiles:
    """Inputs of towers that encode pictures of one size."""

    def __init__(self, config):
        size, patch = (value if isinstance(value, (list, tuple)) else (value, value)
                       for value in (config.image_size, config.patch_size))
        self.shape = (getattr(config, "num_channels", 3), *size)
        self.patches = (size[0] // patch[0]) * (size[1] // patch[1])

    def fit_length(self, length):
        return max(1, round(length / self.patches)) * self.patches

    def make_inputs(self, length, units):
        import torch
        return {"pixel_values": torch.randn(units * length // self.patches, *self.shape)}
