#!/usr/bin/env python3
"""Writes tests/golden/text/styles.json: chats by the templates that checkpoints publish, and their tokens; and
timed_video.json, framed_video.json: a video of Qwen3-VL and one of InternVL in its text.

    python3 -m venv VENV && VENV/bin/pip install transformers==5.23.0 torch torchvision jinja2==3.1.6
    VENV/bin/python tests/golden/make_chat_goldens.py TEMPLATES

TEMPLATES holds the chat templates as their checkpoints have them, which are not part of the project: llama3.jinja
(Meta-Llama-3-8B-Instruct, tokenizer_config.json), llava.jinja (llava-hf/llava-1.5-7b-hf, chat_template.json),
internvl.jinja (OpenGVLab/InternVL3-8B-hf, tokenizer_config.json), gemma.jinja (google/gemma-3-4b-it), mistral.jinja
(mistralai/Mistral-Small-3.1-24B-Instruct-2503) and pixtral.jinja (mistral-community/pixtral-12b, chat_template.json). That
of Qwen2-Audio is in transformers itself.

It also trains tests/golden/tokenizer-llama, a small tokenizer of the shape of Llama-2's: a mark instead of spaces, put
before every text, and bytes for what it does not know.
"""
import json
import pathlib
import re
import sys

import jinja2
import numpy as np
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.qwen2_audio.processing_qwen2_audio import Qwen2AudioProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.utils.chat_template_utils import render_jinja_template
from transformers.video_utils import VideoMetadata

from make_tokenizer import corpus

GOLDEN = pathlib.Path(__file__).resolve().parent
TYPES = {"image": 1, "audio": 3}
GEMMA = ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
MISTRAL = ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "[IMG_END]"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"]


def train_llama():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=300, min_frequency=4, show_progress=False, max_token_length=8)
    trained.train_from_iterator((normalizer.normalize_str(line) for text in corpus() for line in text.splitlines()),
                                trainer)
    state = json.loads(trained.to_str())["model"]
    vocab = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])}
    for token in state["vocab"]:
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge) for merge in state["merges"]], byte_fallback=True,
                                     fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteFallback()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                  for token in ("<unk>", "<s>", "</s>", "<image>")])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    (GOLDEN / "tokenizer-llama").mkdir(exist_ok=True)
    tokenizer.save(str(GOLDEN / "tokenizer-llama/tokenizer.json"))


def text(value):
    return {"type": "text", "text": value}


def medium(name, rows):
    return {"type": name, "rows": rows}


def chats(kind):
    """A message's content is a list of texts and media."""
    item = medium(kind, 5) if kind else text("And then?")
    yield [("user", [text("Hi")]), ("assistant", [text("Hello there.")])]
    yield [("system", [text("Be brief.")]), ("user", [text("Hi")]), ("assistant", [text("Hello.")])]
    yield [("user", [item, text("What is this?")]), ("assistant", [text("A boat.")]), ("user", [text("And?")]),
           ("assistant", [text("Nothing else.\nAt all.")])]
    yield [("user", [text("First "), item, text("then"), item, text("?")]), ("assistant", [text("Größe 船 😀.")])]
    yield [("user", [text("\n\n  spaces \t")]), ("assistant", [text("\u3000 kept or not\n\n")])]
    yield [("assistant", [text("I speak first.")]), ("user", [text("?")]), ("assistant", [text("  ")])]
    yield [("user", [text(""), item, text("Of"), text("")]), ("assistant", [text(""), text("No one.")]),
           ("user", [text("Users?")]), ("assistant", [text("")])]


def chats_of_many(kind):
    """The same, and what only some templates write otherwise: a system that is heard where a user speaks last."""
    item = medium(kind, 5)
    yield from chats(kind)
    yield [("system", [text(" Be kind. ")]), ("user", [item, text(" What is this? "), item]), ("assistant", [text("A boat. ")]),
           ("user", [text("And?")])]
    yield [("system", [text("")]), ("user", [text("Hi")]), ("assistant", [text("Hello."), text(" Yes.")])]


def joined(content):
    return "".join(part["text"] for part in content)


def expand(rendered, written, token, begin, end, rows):
    counts = iter(rows)
    return re.sub(re.escape(written), lambda _: begin + token * next(counts) + end, rendered)


STYLES = {
    # style: (tokenizer, added tokens, medium, placeholder, its marks, regular expression of what is trained)
    "llama3": ("tokenizer", LLAMA3, None, "", ("", ""),
               r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n(.*?<\|eot_id\|>)"),
    "llava": ("tokenizer-llama", [], "image", "<image>", ("", ""), r"ASSISTANT: (.*?)(?=USER: |ASSISTANT: |$)"),
    "internvl": ("tokenizer", ["<img>", "</img>", "<IMG_CONTEXT>"], "image", "<IMG_CONTEXT>", ("<img>", "</img>"),
                 r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)"),
    "qwen2_audio": ("tokenizer", [], "audio", "<|AUDIO|>", ("", ""), r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)"),
    "gemma": ("tokenizer", GEMMA, "image", "<image_soft_token>", ("\n\n<start_of_image>", "<end_of_image>\n\n"),
              r"<start_of_turn>model\n(.*?<end_of_turn>)"),
    "mistral": ("tokenizer", MISTRAL, "image", "[IMG]", ("", "[IMG_END]"), r"(?:\[/INST\]|\[/SYSTEM_PROMPT\](?!\[INST\]))(.*?</s>)"),
    "pixtral": ("tokenizer", MISTRAL, "image", "[IMG]", ("", "[IMG_END]"), r"\[/INST\](.*?</s>)"),
}
# What templates write: for a medium, where that is not the placeholder; as the tokenizer's own marks, where that is not
# Llama-3's.
WRITTEN = {"gemma": "<start_of_image>"}
MARKS = {"gemma": {"bos_token": "<bos>"}, "mistral": {"bos_token": "<s>", "eos_token": "</s>"},
         "pixtral": {"bos_token": "<s>", "eos_token": "</s>"}}


def content_for(style, role, content):
    """Mistral's templates take texts only from those who cannot show anything, and Llama-3's from all."""
    return joined(content) if style == "llama3" or style in ("mistral", "pixtral") and role != "user" else content


def cases(style, templates):
    folder, added, kind, placeholder, (begin, end), pattern = STYLES[style]
    tokenizer = Tokenizer.from_file(str(GOLDEN / folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in added])
    template = (Qwen2AudioProcessor.default_chat_template.fget(None) if style == "qwen2_audio"
                else (templates / f"{style}.jinja").read_text(encoding="utf-8"))
    untrained = {tokenizer.token_to_id(token) for token in (placeholder, begin, end, "<|audio_bos|>", "<|audio_eos|>")}
    for turns in (chats_of_many if style in MARKS else chats)(kind):
        if style in ("qwen2_audio", "mistral") and turns[0][0] != "system":
            turns = [("system", [text("You are a helpful assistant.")])] + turns  # as the template itself would, with texts of its own
        messages = [{"role": role, "content": content_for(style, role, content)} for role, content in turns]
        try:
            (rendered,), _ = render_jinja_template([messages], chat_template=template,
                                                   **MARKS.get(style, {"bos_token": "<|begin_of_text|>"}))
        except jinja2.TemplateError:  # turns in an order that the template refuses
            continue
        items = [part for _, content in turns for part in content if part["type"] != "text"]
        rows = [part["rows"] for part in items]
        if placeholder:
            rendered = expand(rendered, WRITTEN.get(style, placeholder), placeholder, begin, end, rows)
        encoding = tokenizer.encode(rendered, add_special_tokens=style == "llava")
        ranges = [match.span(1) for match in re.finditer(pattern, rendered, re.S)]
        trained = [number not in untrained and any(begin_of < last and first < end_of for first, last in ranges)
                   for number, (begin_of, end_of) in zip(encoding.ids, encoding.offsets)]
        yield {"style": style, "tokenizer": folder, "added": added, "rendered": rendered,
               "turns": [{"role": role, "content": [part["text"] if part["type"] == "text" else {"medium": part["type"]}
                                                     for part in content]} for role, content in turns],
               "items": [{"medium": part["type"], "rows": part["rows"], "grid": None} for part in items],
               "ids": encoding.ids,
               "labels": [-100 if i == 0 or not trained[i] else number for i, number in enumerate(encoding.ids)]}


def timed_video():
    """A video in a chat by Qwen3-VL's own processor."""
    folder = GOLDEN / "data/processors/qwen3-vl"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "tokenizer/tokenizer.json"))
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**json.loads((folder / "preprocessor_config.json").read_text())),
        video_processor=Qwen3VLVideoProcessor(**json.loads((folder / "video_preprocessor_config.json").read_text())),
        tokenizer=tokenizer)
    facts = {"width": 160, "height": 96, "frames": 75, "fps": 25}
    video = np.zeros((facts["frames"], facts["height"], facts["width"], 3), np.uint8)
    metadata = VideoMetadata(total_num_frames=75, fps=25.0, width=160, height=96, duration=3.0,
                             frames_indices=list(range(75)))
    text = "<|im_start|>user\nLook: <|vision_start|><|video_pad|><|vision_end|>What?<|im_end|>\n"
    out = processor(text=[text], videos=[video], video_metadata=[metadata])
    return {**facts, "ids": list(out["input_ids"][0])}


def framed_video():
    """A video in a chat by InternVL's own processor, whose template writes `<video>` and a line break."""
    folder = GOLDEN / "data/processors/internvl"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "tokenizer/tokenizer.json"))
    marks = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    tokenizer.add_tokens([AddedToken(token, special=True) for token in marks.values()], special_tokens=True)
    for name, token in {**marks, "video_token": "<video>"}.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))
    config = {key: value for key, value in json.loads((folder / "preprocessor_config.json").read_text()).items()
              if value is not None}
    processor = InternVLProcessor(image_processor=GotOcr2ImageProcessor(**config), tokenizer=tokenizer,
                                  video_processor=InternVLVideoProcessor(size={"height": 448, "width": 448}),
                                  image_seq_length=3)
    facts = {"width": 40, "height": 24, "frames": 11, "fps": 25}
    video = np.zeros((facts["frames"], facts["height"], facts["width"], 3), np.uint8)
    text = "<|im_start|>user\nLook: <video>\nWhat?<|im_end|>\n"
    out = processor(text=[text], videos=[video])
    return {**facts, "added": list(marks.values()), "rows": 3, "ids": list(out["input_ids"][0])}


def main():
    assert tokenizers.__version__.startswith("0.2"), tokenizers.__version__
    train_llama()
    found = [case for style in STYLES for case in cases(style, pathlib.Path(sys.argv[1]))]
    out = json.dumps({"cases": found}, ensure_ascii=True, separators=(",", ":")).replace("},{\"style", "},\n{\"style")
    (GOLDEN / "text/styles.json").write_text(out + "\n", encoding="ascii")
    (GOLDEN / "text/timed_video.json").write_text(json.dumps(timed_video()) + "\n", encoding="ascii")
    (GOLDEN / "text/framed_video.json").write_text(json.dumps(framed_video()) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
