"""The samples of tests/golden/batches, which hold the batches that trainers' own collators make of them; a job that delivers
the same samples in one microbatch; and the form in which a batch is kept."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile

import numpy as np

import jobs

FOLDER = jobs.GOLDEN / "batches"
PHOTOS = pathlib.Path(os.environ.get("EVENKEEL_SHARED", jobs.ROOT.parent / "shared")) / "media" / "photos"
MIN_TOKENS, MAX_TOKENS, TOKEN_PIXELS = 4, 64, 28 * 28  # of a picture
PIXELS = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "min_pixels": MIN_TOKENS * TOKEN_PIXELS,
          "max_pixels": MAX_TOKENS * TOKEN_PIXELS, "image_mean": [0.48145466, 0.4578275, 0.40821073],
          "image_std": [0.26862954, 0.26130258, 0.27577711]}


def chat(*turns):
    """Messages of (role, text or list of texts and pictures, weight of the turn's loss)."""
    return [{"role": "system", "content": ["Be brief."]}] + [
        {"role": role, "content": [said] if isinstance(said, str) else said, **({"weight": weight[0]} if weight else {})}
        for role, said, *weight in turns]


def picture(name):
    return pathlib.Path(name)


def samples(first, second):
    """With two pictures: alone, together, in a second turn, and none."""
    return [chat(("user", [picture(first), "What is this?"]), ("assistant", "A picture, it seems.")),
            chat(("user", "And what is harbour water?"), ("assistant", "Salt.")),
            chat(("user", [picture(second), picture(first), "Which is larger?"]), ("assistant", "The first one of both."),
                 ("user", ["And now ", picture(second), "?"]), ("assistant", "Still the first.")),
            chat(("user", "A keel?"), ("assistant", "Even."), ("user", "Why?"), ("assistant", "It was built so."))]


SETS = {"pictures": samples("smooth.jpg", "scene.png"), "photos": samples("12b3dd-coffee.png", "1753c7-baboon.jpg"),
        "weights": [chat(("user", "Which way?"), ("assistant", "West, I think.", 0.5), ("user", "Are you sure?"),
                         ("assistant", "East!")),
                    chat(("user", "And back?"), ("assistant", "Never.", 2)), chat(("user", "Well?"), ("assistant", "Well."))]}

# The order in which LLaMA-Factory v0 packs the samples of a set: the longest first.
PACKED = {"pictures": (2, 0, 3, 1), "photos": (2, 0, 3, 1)}

# ChatML, with what a trainer trains in a generation block.
_TEMPLATE = """\
{%%- macro said(content) -%%}
    {%%- for part in content -%%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text -}}
    {%%- endfor -%%}
{%%- endmacro -%%}
{%%- for message in messages -%%}
    {%%- if message.role == 'assistant' -%%}
        %s
    {%%- else -%%}
        {{- '<|im_start|>' + message.role + '\\n' + said(message.content) + '<|im_end|>\\n' -}}
    {%%- endif -%%}
{%%- endfor -%%}
"""
_BLOCK = "{%%- generation -%%}{{- %ssaid(message.content) + '<|im_end|>\\n' -}}{%%- endgeneration -%%}"
_HEADING = "'<|im_start|>assistant\\n'"
TEMPLATES = {"swift": _TEMPLATE % f"{{{{- {_HEADING} -}}}}{_BLOCK % ''}",  # the text, and all that ends the turn
             "llamafactory": _TEMPLATE % (_BLOCK % f"{_HEADING} + ")}  # the whole turn


def path_of(part):
    """A picture of the goldens, or a photo."""
    committed = jobs.GOLDEN / "data" / "pictures" / part
    return committed if committed.exists() else PHOTOS / part


def missing(name):
    """Pictures of the set that this machine does not have."""
    return [part for messages in SETS[name] for message in messages for part in message["content"]
            if isinstance(part, pathlib.Path) and not path_of(part).exists()]


def write_checkpoint(folder, template=None):
    """Tokenizer and processor of a small Qwen2.5-VL; `template`: a chat template with the trained parts of a trainer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(jobs.GOLDEN / "tokenizer" / name, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor", **PIXELS}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)


def write_job(folder, name, processor, phases=("llm", "vision"), order=None):
    """A job with the set as one step of one microbatch, in its order or that of the numbers of samples."""
    with tarfile.open(folder / f"{name}.tar", "w") as tar:
        def add(member, data):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for number, sample in enumerate(range(len(SETS[name])) if order is None else order):
            messages = SETS[name][sample]
            given, pictures = [], 0
            for message in messages:
                parts = []
                for part in message["content"]:
                    if isinstance(part, str):
                        parts.append({"type": "text", "text": part})
                        continue
                    parts.append({"type": "image", "image": f"{pictures}{part.suffix}"})
                    add(f"{number}.{pictures}{part.suffix}", path_of(part).read_bytes())
                    pictures += 1
                given.append({**message, "content": parts})
            add(f"{number}.json", json.dumps({"messages": given}).encode())
    job = folder / f"{name}.yaml"
    lines = "".join(f'  - {{name: {phase}, ranks: "0"{"" if phase == "llm" else ", min_items: 0"}}}\n' for phase in phases)
    job.write_text(f"""\
name: {name}
seed: 1
index: {name}-index
order: {{shuffle: none}}
datasets: [{{name: all, shards: ["{name}.tar"]}}]
processor: {processor}
batch: {{samples: {len(SETS[name])}}}
limits: {{max_llm_length: 600}}
microbatch: {{capacity_tokens: 4000}}
balance: drop_in
phases:
{lines}""")
    jobs.make_index(job)
    return job


def levels_of(pixels):
    """The bytes that pixel values [patches, 3 * 2 * 14 * 14] were normalised from. ValueError if they are not those of any."""
    mean, std = (np.array(PIXELS[name], np.float32)[:, None] for name in ("image_mean", "image_std"))
    channels = pixels.reshape(len(pixels), 3, -1)
    levels = np.rint((channels * std + mean) * 255)
    if np.abs((levels / 255 - mean) / std - channels).max() > 1e-6:
        raise ValueError("values that are not normalised bytes")
    return levels.astype(np.uint8)


def kept(name, value):
    """A field as a golden has it: type, shape and values; of pixels the digest of the bytes that they were normalised from,
    since classes of transformers differ in the last bits of the floats."""
    value = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
    form = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if name == "pixel_values":
        return {**form, "sha256 of bytes": hashlib.sha256(levels_of(value).tobytes()).hexdigest()}
    return {**form, "values": value.reshape(-1).tolist()}


def write(name, vendor, fields):
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(field)}: {json.dumps(kept(field, value))}" for field, value in sorted(fields.items())
                       if value is not None)
    (FOLDER / f"{name}.json").write_text(f'{{"made by": {json.dumps(vendor)}, "fields": {{\n{lines}\n}}}}\n')


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())
