"""Small checkpoints of real model classes with random weights, and tar shards of pictures, videos and texts for them."""

import json
import random
import shutil

import safetensors.torch
import torch
import transformers

import jobs
from jobs import media

# The torch of the parity tests has stand-ins for CUDA's libraries, which cannot answer this question.
torch.cuda.is_current_stream_capturing = lambda: False

TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 4096}
MROPE = {"rope_type": "default", "type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
PIXELS = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "temporal_patch_size": 2, "merge_size": 2}


def tokens():
    """{text: id} of the special tokens."""
    tokenizer = json.loads((jobs.GOLDEN / "tokenizer" / "tokenizer.json").read_text())
    return {token["content"]: token["id"] for token in tokenizer["added_tokens"]}


def ids():
    names = tokens()
    return {"image_token_id": names["<|image_pad|>"], "video_token_id": names["<|video_pad|>"],
            "vision_start_token_id": names["<|vision_start|>"], "vision_end_token_id": names["<|vision_end|>"]}


def text_config(**more):
    # Both names: transformers 4 reads rope_scaling, 5 rope_parameters.
    return {"vocab_size": jobs.vocabulary(), **TEXT, "rope_scaling": dict(MROPE), "rope_parameters": dict(MROPE), **more}


def qwen2_vl():
    config = transformers.Qwen2VLConfig(
        text_config=text_config(), vision_config={"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        **ids())
    return transformers.Qwen2VLForConditionalGeneration(config), {
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor", "patch_size": 14,
        "min_pixels": 3136, "max_pixels": 12544, **PIXELS}


def qwen2_5_vl():
    config = transformers.Qwen2_5_VLConfig(
        text_config=text_config(),
        vision_config={"depth": 2, "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64, "num_heads": 2,
                       "fullatt_block_indexes": [1], "window_size": 56, "tokens_per_second": 2}, **ids())
    return transformers.Qwen2_5_VLForConditionalGeneration(config), {
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor", "patch_size": 14,
        "min_pixels": 3136, "max_pixels": 12544, **PIXELS}


def qwen3_vl():
    config = transformers.Qwen3VLConfig(
        text_config=text_config(head_dim=16),
        vision_config={"depth": 2, "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64, "num_heads": 2,
                       "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}, **ids())
    return transformers.Qwen3VLForConditionalGeneration(config), {
        "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor", "patch_size": 16,
        "size": {"shortest_edge": 4096, "longest_edge": 25088}, **PIXELS}


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(vocab_size=jobs.vocabulary(), **TEXT)), None


FAMILIES = {"qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl, "qwen2": qwen2}


def write(folder, family):
    """A checkpoint folder of random weights."""
    torch.manual_seed(0)
    model, processor = FAMILIES[family]()
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(jobs.GOLDEN / "tokenizer" / name, folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        video = {"qwen3_vl": "Qwen3VLVideoProcessor"}.get(family, "Qwen2VLVideoProcessor")
        (folder / "video_preprocessor_config.json").write_text(json.dumps(
            {key: value for key, value in processor.items() if not key.startswith("image_processor")} |
            {"video_processor_type": video}))
    return folder


def write_with_own_names(folder, checkpoint):
    """A copy of the checkpoint whose weights have the names of the model's parameters, which are not the published ones."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    shutil.copytree(checkpoint, folder)
    weights = {name: one.contiguous() for name, one in model.state_dict().items()}
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_shard(path, count, kinds, folder, seed=3):
    """Chats: `kinds` in turn of "image", "images" (two), "video", "both", "text" and "damaged", whose picture is cut off."""
    rng = random.Random(seed)
    shard = media.Shard(path)
    for number in range(count):
        kind, key = kinds[number % len(kinds)], f"{number:04d}"
        members = {"image": ["png"], "images": ["png", "jpg"], "damaged": ["png"], "video": ["mp4"],
                   "both": ["png", "mp4"], "text": []}[kind]
        content = []
        for i, form in enumerate(members):
            data = media.video_bytes(folder, 1, "64x48", 8) if form == "mp4" else \
                media.image_bytes(rng, form, rng.randint(40, 120), rng.randint(40, 120))
            shard.add(f"{key}.{i}.{form}", data[:len(data) // 2] if kind == "damaged" else data)
            medium = "video" if form == "mp4" else "image"
            content.append({"type": medium, medium: f"{i}.{form}"})
        content.append({"type": "text", "text": media.words(rng, 2, 9)})
        chat = [{"role": "user", "content": content}, {"role": "assistant", "content": media.words(rng, 3, 12)}]
        shard.add(f"{key}.json", json.dumps({"messages": chat}).encode())
    shard.close()


def write_job(path, checkpoint, shards, ranks, samples, encoder="{min_items: 0}", microbatch="{capacity_tokens: 700}",
              phases=("llm", "vision"), more="balance: drop_in\n"):
    names = f"0-{ranks - 1}" if ranks > 1 else "0"
    lines = [f'  - {{name: llm, ranks: "{names}"}}\n']
    lines += [f'  - {{name: {name}, ranks: "{names}", {encoder[1:]}\n' for name in phases if name != "llm"]
    path.write_text(f"""\
name: small
seed: 7
index: {path.stem}-index
datasets: [{{name: all, shards: ["{shards}"]}}]
processor: {{folder: "{checkpoint}", chat: chatml}}
batch: {{samples: {samples}}}
limits: {{max_llm_length: 600}}
microbatch: {microbatch}
phases:
{"".join(lines)}{more}""")
    return path
