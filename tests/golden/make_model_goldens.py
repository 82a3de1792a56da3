#!/usr/bin/env python3
"""Writes tests/golden/models.json: how many parameters the towers of released models have.

    python3 -m venv VENV && VENV/bin/pip install transformers==5.23.0 torch torchvision
    VENV/bin/python tests/golden/make_model_goldens.py

Each entry has the sizes of a config.json as its publisher has it, and the parameters that transformers makes of it, by
tower, on a device that holds no data. `experts` are those parameters of the llm that belong to experts of a mixture. A
projector counts to the tower before it.
"""
import json
import pathlib
import tempfile

import torch
import transformers

QWEN_VISION = {"in_chans": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN3_VISION = {"model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
                "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
                "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
          "patch_size": 14, "vision_use_head": False}


def text(hidden, layers, inner, heads, kv_heads, vocab, **more):
    return {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "vocab_size": vocab, **more}


CONFIGS = {
    "llama-3.1-8b": {"model_type": "llama", **text(4096, 32, 14336, 32, 8, 128256), "tie_word_embeddings": False},
    "qwen2.5-7b": {"model_type": "qwen2", **text(3584, 28, 18944, 28, 4, 152064), "tie_word_embeddings": False},
    "qwen3-0.6b": {"model_type": "qwen3", **text(1024, 28, 3072, 16, 8, 151936), "head_dim": 128, "tie_word_embeddings": True},
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", **text(2048, 48, 6144, 32, 4, 151936), "head_dim": 128, "num_experts": 128,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
                      "mlp_only_layers": [], "tie_word_embeddings": False},
    "mixtral-8x7b": {"model_type": "mixtral", **text(4096, 32, 14336, 32, 8, 32000), "num_local_experts": 8,
                     "num_experts_per_tok": 2, "tie_word_embeddings": False},
    "qwen2-vl-7b": {"model_type": "qwen2_vl", **text(3584, 28, 18944, 28, 4, 152064), "tie_word_embeddings": False,
                    "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "hidden_size": 3584,
                                      **QWEN_VISION}},
    "qwen2.5-vl-7b": {"model_type": "qwen2_5_vl", **text(3584, 28, 18944, 28, 4, 152064), "tie_word_embeddings": False,
                      "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
                                        "num_heads": 16, "out_hidden_size": 3584, "window_size": 112,
                                        "fullatt_block_indexes": [7, 15, 23, 31], **QWEN_VISION}},
    "qwen3-vl-8b": {"model_type": "qwen3_vl", "tie_word_embeddings": False,
                    "text_config": {"model_type": "qwen3_vl_text", **text(4096, 36, 12288, 32, 8, 151936), "head_dim": 128},
                    "vision_config": {**QWEN3_VISION, "out_hidden_size": 4096}},
    "qwen3-vl-30b-a3b": {"model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
                         "text_config": {"model_type": "qwen3_vl_moe_text", **text(2048, 48, 6144, 32, 4, 151936),
                                         "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
                                         "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []},
                         "vision_config": {**QWEN3_VISION, "model_type": "qwen3_vl_moe", "out_hidden_size": 2048}},
    "internvl3-8b": {"model_type": "internvl", "tie_word_embeddings": False, "downsample_ratio": 0.5,
                     "text_config": {"model_type": "qwen2", **text(3584, 28, 18944, 28, 4, 151674)},
                     "vision_config": {"model_type": "internvl_vision", "hidden_size": 1024, "image_size": [448, 448],
                                       "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                                       "patch_size": [14, 14]}},
    "llava-1.5-7b": {"model_type": "llava", "tie_word_embeddings": False,
                     "text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": CLIP},
    "llava-onevision-7b": {"model_type": "llava_onevision", "tie_word_embeddings": False,
                           "text_config": {"model_type": "qwen2", **text(3584, 28, 18944, 28, 4, 152000)},
                           "vision_config": {**SIGLIP, "image_size": 384, "num_hidden_layers": 26}},
    "gemma-3-4b": {"model_type": "gemma3",
                   "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                                   "num_hidden_layers": 34, "sliding_window": 1024},
                   "vision_config": {**SIGLIP, "image_size": 896, "num_hidden_layers": 27}},
    "gemma-3-27b": {"model_type": "gemma3",
                    "text_config": {"model_type": "gemma3_text", "head_dim": 128, **text(5376, 62, 21504, 32, 16, 262208),
                                    "sliding_window": 1024},
                    "vision_config": {**SIGLIP, "image_size": 896, "num_hidden_layers": 27}},
    "mistral-small-3.1": {"model_type": "mistral3", "spatial_merge_size": 2, "tie_word_embeddings": False,
                          "text_config": {"model_type": "mistral", **text(5120, 40, 32768, 32, 8, 131072), "head_dim": 128},
                          "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096,
                                            "head_dim": 64, "num_attention_heads": 16, "num_hidden_layers": 24,
                                            "image_size": 1540, "patch_size": 14}},
    "qwen2-audio-7b": {"model_type": "qwen2_audio", "tie_word_embeddings": False,
                       "text_config": {"model_type": "qwen2", "intermediate_size": 11008, "vocab_size": 156032},
                       "audio_config": {"model_type": "qwen2_audio_encoder", "d_model": 1280, "encoder_layers": 32,
                                        "encoder_ffn_dim": 5120, "encoder_attention_heads": 20, "num_mel_bins": 128}},
    "qwen2.5-omni-7b": {"model_type": "qwen2_5_omni_thinker", "tie_word_embeddings": False,
                        "text_config": {"model_type": "qwen2_5_omni_text", **text(3584, 28, 18944, 28, 4, 152064)},
                        "vision_config": {"model_type": "qwen2_5_omni_vision_encoder", "depth": 32, "hidden_act": "silu",
                                          "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
                                          "out_hidden_size": 3584, "window_size": 112,
                                          "fullatt_block_indexes": [7, 15, 23, 31], **QWEN_VISION},
                        "audio_config": {"model_type": "qwen2_5_omni_audio_encoder", "d_model": 1280, "encoder_layers": 32,
                                         "encoder_ffn_dim": 5120, "encoder_attention_heads": 20, "num_mel_bins": 128,
                                         "n_window": 100, "output_dim": 3584}},
}


def class_of(config):
    if "vision_config" in config:
        return (transformers.Qwen2_5OmniThinkerForConditionalGeneration if "omni" in config["model_type"]
                else transformers.AutoModelForImageTextToText)
    return transformers.Qwen2AudioForConditionalGeneration if "audio_config" in config else transformers.AutoModelForCausalLM


def model_of(config):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        of_thinker = "omni" in config["model_type"]
        read = (transformers.Qwen2_5OmniThinkerConfig if of_thinker else transformers.AutoConfig).from_pretrained(folder)
    made = class_of(config)
    with torch.device("meta"):
        return made.from_config(read) if hasattr(made, "from_config") else made(read)


def tower_of(name, config):
    if "audio" in name or "projector" in name and "vision_config" not in config:
        return "audio"
    return "vision" if any(part in name for part in ("visual", "vision", "projector", "image_newline")) else "llm"


out = {}
for name, config in CONFIGS.items():
    counts, experts = {}, 0
    for parameter, value in model_of(config).named_parameters():
        tower = tower_of(parameter, config)
        counts[tower] = counts.get(tower, 0) + value.numel()
        experts += value.numel() if ".experts." in parameter else 0
    out[name] = {"config": config, "parameters": counts, "experts": experts}
path = pathlib.Path(__file__).parent / "models.json"
path.write_text(json.dumps({"transformers": transformers.__version__, "models": out}, indent=1) + "\n")
