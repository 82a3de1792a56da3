#!/usr/bin/env python3
"""Trains the small byte-level BPE tokenizer that tests and the demo use: tests/golden/tokenizer/.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.2
    /tmp/venv/bin/python tests/golden/make_tokenizer.py

It has the shape of Qwen2's tokenizer (NFC, its split pattern, byte level, its marks for chat, vision and audio),
and a few hundred merges learnt from the project's licence and the sentences below. Deterministic.
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "golden" / "tokenizer"

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = """
The picture shows a boat on the water. What does the speaker say? Describe the image in one sentence.
How many people are in the video? The audio says: hello world. I can't see it; they're not there, we'll look again.
Das Boot liegt ruhig im Wasser. Größe und Straße. Le bateau est à l'eau, c'est très beau. ¿Qué se ve en la foto?
Лодка стоит на воде. Что говорит диктор? 船在水上。图片里有什么? 船は水の上にあります。 사진에 무엇이 보입니까?
def step(rank):\n    return plan[rank]\n\n\tif x == 0:\n\t\tpass\n user assistant system tool 0 1 2 3 4 5 6 7 8 9
"""

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>", "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"]
NOT_SPECIAL = ["<tool_call>", "</tool_call>"]


def corpus():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    return [text] + [SENTENCES] * 20


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
    ])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=768, min_frequency=2, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in NOT_SPECIAL])
    FOLDER.mkdir(exist_ok=True)
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    print(json.dumps({token: tokenizer.token_to_id(token) for token in SPECIAL + NOT_SPECIAL}))


if __name__ == "__main__":
    main()
