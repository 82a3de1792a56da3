#!/usr/bin/env python3
"""Writes tests/golden/batches/*.json: what the collators of trainers make of the samples of tests/python/golden_batches.py.

    VENV/bin/python tests/golden/make_batch_goldens.py swift           # ms-swift 4.6.0, transformers 5.19.0, trl 0.29.1
    VENV/bin/python tests/golden/make_batch_goldens.py llamafactory    # llamafactory 0.9.5, its v1
    VENV/bin/python tests/golden/make_batch_goldens.py neat_packing    # llamafactory 0.9.5, its v0, transformers 5.6.0

Each in an environment of its own, since the trainers want different releases of transformers; with torch and Pillow 13. The
photos are those next to the tree (EVENKEEL_SHARED, or ../shared).
"""
import os
import pathlib
import sys
import tempfile
import types
from importlib.machinery import ModuleSpec
from importlib.metadata import version

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import golden_batches as golden  # noqa: E402

# Read when qwen-vl-utils, which ms-swift resizes pictures with, is imported.
os.environ.update(USE_HF="1", IMAGE_MIN_TOKEN_NUM=str(golden.MIN_TOKENS), IMAGE_MAX_TOKEN_NUM=str(golden.MAX_TOKENS))


def releases(*names):
    return ", ".join(f"{name} {version(name)}" for name in (*names, "transformers", "torch", "pillow"))


class Swift:
    """Template and collator of ms-swift, with padding_free: what it gives a model."""

    def __init__(self):
        import checkpoints
        from swift.model import get_model_processor
        self.folder = tempfile.TemporaryDirectory()
        checkpoint = checkpoints.write(pathlib.Path(self.folder.name) / "model", "qwen2_5_vl")
        golden.write_checkpoint(checkpoint)
        _, self.processor = get_model_processor(str(checkpoint), model_type="qwen2_5_vl", load_model=False)
        self.placeholder = checkpoints.ids()["image_token_id"]

    def sample(self, messages):
        pictures = []

        def text(part):
            if isinstance(part, str):
                return part
            pictures.append(str(golden.path_of(part)))
            return "<image>"
        given = [{"role": message["role"], "content": "".join(map(text, message["content"])),
                  **({"loss_scale": message["weight"]} if "weight" in message else {})} for message in messages]
        return {"messages": given, "images": pictures}

    def batch(self, name):
        from swift.template import get_template
        template = get_template(self.processor, template_type="qwen2_5_vl", padding_free=True,
                                is_binary_loss_scale=False if name == "weights" else None)
        template.image_token_id = self.placeholder  # that of Qwen's own tokenizer is written in the class
        template.set_mode("train")
        return template.data_collator([template.encode(self.sample(one), return_length=True) for one in golden.SETS[name]])


def llamafactory(name):
    """Renderer and padding-free batching of LLaMA-Factory v1, of texts alone: it takes no other parts."""
    from llamafactory.v1.core.utils.rendering import Renderer
    from llamafactory.v1.plugins.trainer_plugins.batching import BatchingPlugin
    from llamafactory.v1.utils.objects import StatefulBuffer
    from transformers import AutoTokenizer
    with tempfile.TemporaryDirectory() as folder:
        golden.write_checkpoint(pathlib.Path(folder))
        renderer = Renderer("chatml", AutoTokenizer.from_pretrained(folder))
    given = [{"messages": [{"role": one["role"], "content": [{"type": "text", "value": part} for part in one["content"]],
                            **({"loss_weight": one["weight"]} if "weight" in one else {})} for one in messages]}
             for messages in golden.SETS[name]]
    buffer = StatefulBuffer()
    buffer.put(renderer.process_samples(given))
    size = {"micro_batch_size": len(given), "num_micro_batch": 1, "cutoff_len": 4096}
    return BatchingPlugin("padding_free").generate_batch(buffer, size)[0]


def neat_packing(name):
    """Template, packing and collator of LLaMA-Factory v0, with neat_packing and flash attention."""
    import checkpoints
    import transformers
    audio = types.ModuleType("torchaudio")  # imported with its media, and not used for pictures
    audio.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", audio)
    from llamafactory.data.collator import SFTDataCollatorWith4DAttentionMask
    from llamafactory.data.processor import PackedSupervisedDatasetProcessor
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = checkpoints.write(pathlib.Path(folder) / "model", "qwen2_5_vl")
        golden.write_checkpoint(checkpoint)
        model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
        processor = transformers.AutoProcessor.from_pretrained(checkpoint)
    arguments = DataArguments(template="qwen2_vl", cutoff_len=1024, packing=True, neat_packing=True)
    template = get_template_and_fix_tokenizer(processor.tokenizer, arguments)
    examples = {key: [] for key in ("_prompt", "_response", "_system", "_tools", "_images", "_videos", "_audios")}
    for messages in golden.SETS[name]:
        system, *turns = [{"role": one["role"], "content": "".join(part if isinstance(part, str) else "<image>" for part in one["content"])}
                          for one in messages]
        pictures = [str(golden.path_of(part)) for one in messages for part in one["content"] if not isinstance(part, str)]
        for key, value in (("_prompt", turns[:-1]), ("_response", turns[-1:]), ("_system", system["content"]), ("_tools", ""),
                           ("_images", pictures), ("_videos", []), ("_audios", [])):
            examples[key].append(value)
    packed = PackedSupervisedDatasetProcessor(template, processor.tokenizer, processor, arguments).preprocess_dataset(examples)
    collator = SFTDataCollatorWith4DAttentionMask(
        tokenizer=processor.tokenizer, template=template, processor=processor, model=model, pad_to_multiple_of=8,
        block_diag_attn=True, neat_packing=True, attn_implementation="flash_attention_2")
    return collator([{key: values[0] for key, values in packed.items()}])


def main(trainer):
    if trainer == "swift":
        import qwen_vl_utils  # noqa: F401
        swift = Swift()
        for name in golden.SETS:
            golden.write(f"swift-{name}", releases("ms-swift", "qwen-vl-utils"), swift.batch(name))
    elif trainer == "llamafactory":
        golden.write("llamafactory-weights", releases("llamafactory"), llamafactory("weights"))
    elif trainer == "neat_packing":
        for name in golden.PACKED:
            golden.write(f"neat-packing-{name}", releases("llamafactory"), neat_packing(name))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
