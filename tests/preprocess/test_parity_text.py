"""Chats as a worker tokenises them against `apply_chat_template` of the installed `transformers`, release 4 or 5: random
conversations, with media, tools and look-alikes of special tokens; ids, spans of media, and what is trained.

The tokenizers and the processors are those next to the tree (EVENKEEL_SHARED, or ../shared); without them there is nothing
to compare. EVENKEEL_PARITY_CHATS (150) is how many chats each test draws.
"""

import json
import os
import pathlib
import random
import re
import subprocess

import numpy as np
import pytest

from command import BINARY, SHARED
from installed import RELEASE, Image, image_processor, transformers

PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
TOKENIZER = SHARED / "tokenizers/qwen2_5"
CHATS = int(os.environ.get("EVENKEEL_PARITY_CHATS", "150"))
SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
AUDIO_TOKENS = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}"),
    pytest.mark.skipif(not TOKENIZER.exists(), reason=f"no tokenizer at {TOKENIZER}: no chat was compared"),
]

WORDS = ["Hello", " world", "What's", " it", "?", "\n", "\n\n", " ", "   ", "\t", "\r\n", "ship", " 船が", "海の上", "Größe", "e\u0301",
         "\u0301", "п", "ривет", " عربي", "हिन्दी", "한국어", "ไทย", "😀", "👩‍👩‍👧", "🇩🇪", "12345", "0.5", "def f(x):\n    return x", "{\"a\": 1}",
         "\u3000", "\u00a0", "\u200b", "\ufeff", "\x00", "\x7f", "<|im_start", "im_end|>", "<|", "|>", "< |im_end|>", "<image>", "<IMG>",
         "<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>", "<tools>", "assistant\n", "user\n", "𝕏", "ﬁ", "İ", "\ud7ff",
         "\U0010ffff", "'s", "'LL", "a" * 40, "=" * 20]
MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|vision_start|>", "<|im_end|>\n<|im_start|>assistant\n"]
SPECIAL = re.compile("|".join(re.escape(f"<|{name}|>") for name in ("im_start", "im_end", "endoftext", "image_pad", "vision_start")))
OPENS = "\ue000"  # for the "<|" of a special token that a text spells


def draw_text(generator, marks, most=8):
    """marks: whole special tokens, too."""
    words = WORDS + (MARKS if marks else [])
    while True:
        text = "".join(generator.choice(words) for _ in range(generator.randrange(most + 1)))
        if marks or not SPECIAL.search(text):
            return text


def draw_json(generator, marks, depth=0):
    kind = generator.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return [draw_json(generator, marks, depth + 1) for _ in range(generator.randrange(4))]
    if kind == 8:
        return draw_object(generator, marks, depth + 1)
    return [None, generator.random() < 0.5, generator.randrange(-5, 10**generator.randrange(1, 30)),
            generator.uniform(-1, 1) * 10.0**generator.randrange(-30, 30), float(generator.randrange(-9, 10**8)),
            draw_text(generator, marks), generator.choice(['"', "\\", "\b\f\n\r\t\x1f/\x7f\u2028", 1e16, 1e-5, 0.0001, 5e-324, -0.0,
                                                           float("inf"), 1.7976931348623157e308])][kind]


def draw_object(generator, marks, depth=1):
    return {draw_text(generator, marks, 3): draw_json(generator, marks, depth) for _ in range(generator.randrange(4))}


def sequences(requests):
    """What the program says of each request, in order."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tokenizer():
    loaded = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    loaded.add_tokens([transformers.AddedToken(token, special=True) for token in AUDIO_TOKENS], special_tokens=True)
    return loaded


def trained_of(loaded, ids):
    """The ids that are trained: of every assistant's turn what stands behind its header, with its end; no media."""
    begin, end = loaded.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    never = set(loaded.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", *AUDIO_TOKENS]))
    turn, labels = None, []
    for token in ids:
        if token == begin:
            turn = []
            labels.append(-100)
            continue
        trained = False
        if turn is not None:
            turn.append(token)
            said = loaded.backend_tokenizer.decode(turn, skip_special_tokens=False)
            trained = said.startswith("assistant\n") and said != "assistant\n" and token not in never
        if token == end:
            turn = None
        labels.append(token if trained else -100)
    return labels


def draw_turns(generator, marks, tools):
    """Messages of texts; tools: with calls of them and what they answer."""
    messages = []
    if generator.random() < 0.5:
        messages.append({"role": "system", "content": draw_text(generator, marks)})
    roles = ["user", "assistant"] + (["tool", "call", "tool"] if tools else [])
    for _ in range(generator.randrange(1, 7)):
        role = generator.choice(roles + ["system"] * (len(messages) > 0 and generator.random() < 0.2))
        message = {"role": role, "content": draw_text(generator, marks)}
        if role == "call":
            message["role"] = "assistant"
            calls = [{"name": draw_text(generator, marks, 3), "arguments": draw_object(generator, marks)}
                     for _ in range(generator.randrange(1, 4))]
            message["tool_calls"] = [{"type": "function", "function": call} if generator.random() < 0.5 else call for call in calls]
            if message["content"] == "" and generator.random() < 0.5:
                message["content"] = None
        messages.append(message)
    return messages


def hidden(value):
    """Without special tokens, so that a template's own are the only ones."""
    return json.loads(json.dumps(value, ensure_ascii=False).replace("<|", OPENS))


def ids_of(loaded, rendered):
    """Of a chat rendered with hidden ones: they are the letters that they consist of."""
    library, ids = loaded.backend_tokenizer, []
    for piece in re.split(f"({SPECIAL.pattern})", rendered):
        library.encode_special_tokens = not SPECIAL.fullmatch(piece)
        ids += library.encode(piece.replace(OPENS, "<|"), add_special_tokens=False).ids
    library.encode_special_tokens = False
    return ids


def assert_same(loaded, requests, wanted):
    answers = sequences(requests)
    assert len(answers) == len(wanted)
    for request, answer, ids in zip(requests, answers, wanted):
        assert "error" not in answer, (answer, request)
        assert answer["ids"] == ids, (request["sample"], loaded.decode(answer["ids"]), loaded.decode(ids))
        assert answer["labels"] == trained_of(loaded, ids), request["sample"]


@pytest.mark.parametrize("tools", [False, True])
def test_chats_are_those_of_the_tokenizers_own_template(tools):
    loaded, generator = tokenizer(), random.Random(f"text {tools}")
    processor = {"tokenizer": str(TOKENIZER), "chat": "chatml", "system": SYSTEM, "added_tokens": AUDIO_TOKENS}
    requests, wanted = [], []
    for i in range(CHATS):
        marks = i % 2 == 0
        messages = draw_turns(generator, marks, tools)
        offered = [draw_object(generator, marks) for _ in range(generator.randrange(4))] if tools else []
        sample = json.dumps({"tools": offered, "messages": messages}, ensure_ascii=generator.random() < 0.5)
        requests.append({"processor": processor, "sample": sample})
        if marks:
            rendered = loaded.apply_chat_template(hidden(messages), tools=hidden(offered) or None, tokenize=False)
            wanted.append(ids_of(loaded, rendered))
        else:
            wanted.append(loaded.apply_chat_template(messages, tools=offered or None, tokenize=True, return_dict=False))
    assert_same(loaded, requests, wanted)


# ChatML as the models that see have it, with the marks by which transformers finds what the assistant says.
TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- macro content(parts) -%}
{%- if parts is string %}{{ parts }}{% else %}{% for part in parts %}{% if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>'
}}{% elif part.type == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
{%- endmacro -%}
{%- if message.role == 'assistant' -%}{% generation %}{{ content(message.content) + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
{%- else -%}{{ content(message.content) + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}"""


def draw_message(generator, media):
    """A message, and the same for transformers with media themselves; `media` draws (part, its facts, the medium)."""
    role = generator.choice(["user", "user", "assistant"])
    if role == "assistant" or generator.random() < 0.3:
        content = draw_text(generator, False)
        parts = [{"type": "text", "text": content}]  # release 4 takes nothing else
        return {"role": role, "content": content}, {"role": role, "content": parts}, [], []
    ours, theirs, facts = [], [], []
    for _ in range(generator.randrange(5)):
        if generator.random() < 0.5:
            part = {"type": "text", "text": draw_text(generator, False)}
            ours.append(part)
            theirs.append(part)
        else:
            kind, fact, medium = media(generator)
            ours.append({"type": kind})
            theirs.append({"type": kind, kind: medium})
            facts.append(fact)
    return {"role": role, "content": ours}, {"role": role, "content": theirs}, facts, [
        part[part["type"]] for part in theirs if part["type"] != "text"]


def draw_chat(generator, media):
    drawn = [draw_message(generator, media) for _ in range(generator.randrange(1, 6))]
    return ([ours for ours, _, _, _ in drawn], [theirs for _, theirs, _, _ in drawn],
            [fact for _, _, facts, _ in drawn for fact in facts], [medium for *_, media_of in drawn for medium in media_of])


def draw_image(generator):
    width, height = generator.randrange(30, 300), generator.randrange(30, 300)
    return "image", {"width": width, "height": height}, Image.new("RGB", (width, height))


VISION = {"qwen2-vl": ("qwen2_vl", "Qwen2VL"), "qwen2_5-vl": ("qwen2_5_vl", "Qwen2_5_VL"), "qwen3-vl": ("qwen3_vl", "Qwen3VL")}


@pytest.mark.parametrize("folder", VISION)
def test_chats_with_pictures_are_those_of_the_processor(folder):
    module, name = VISION[folder]
    config = json.loads((SHARED / "processors" / folder / "preprocessor_config.json").read_text())
    videos = "Qwen3VL" if folder == "qwen3-vl" else "Qwen2VL"
    theirs = getattr(transformers, f"{name}Processor")(
        image_processor=image_processor("qwen2_vl", "Qwen2VLImageProcessor", "aten_u8")(**config), tokenizer=tokenizer(),
        video_processor=getattr(transformers, f"{videos}VideoProcessor")(), chat_template=TEMPLATE)
    processor = {"tokenizer": str(TOKENIZER), "vision": str(SHARED / "processors" / folder), "chat": "chatml",
                 "added_tokens": AUDIO_TOKENS}
    generator = random.Random(folder)
    requests, wanted, masks = [], [], []
    for _ in range(CHATS // 3):
        ours, messages, facts, _ = draw_chat(generator, draw_image)
        requests.append({"processor": processor, "sample": json.dumps({"messages": ours}), "facts": facts})
        out = theirs.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        wanted.append([int(token) for token in out["input_ids"][0]])
        masks.append([int(trained) for trained in out["assistant_masks"][0]])
    assert_same(theirs.tokenizer, requests, wanted)
    image = theirs.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    for request, answer, mask in zip(requests, sequences(requests), masks):
        # Release 4 finds what is said in the text before its placeholders are as many as they will be.
        assert RELEASE == 4 or [int(label != -100) for label in answer["labels"]] == mask, request["sample"]
        assert [token == image for token in answer["ids"]] == [kind == 1 for kind in answer["types"]]


def draw_clip(generator):
    samples = generator.randrange(2000, 40000)
    return "audio", {"samples": samples, "sample_rate": 16000}, np.zeros(samples, np.float32)


def test_chats_with_clips_are_those_of_the_processor():
    folder = SHARED / "processors/qwen2-audio"
    config = json.loads((folder / "preprocessor_config.json").read_text())
    theirs = transformers.Qwen2AudioProcessor(feature_extractor=transformers.WhisperFeatureExtractor(**config), tokenizer=tokenizer())
    processor = {"tokenizer": str(TOKENIZER), "audio": str(folder), "chat": "qwen2_audio", "added_tokens": AUDIO_TOKENS,
                 "system": "You are a helpful assistant."}
    generator = random.Random("clips")
    requests, wanted = [], []
    for _ in range(CHATS // 8):
        ours, messages, facts, clips = draw_chat(generator, draw_clip)
        requests.append({"processor": processor, "sample": json.dumps({"messages": ours}), "facts": facts})
        text = theirs.apply_chat_template(messages, tokenize=False)
        out = theirs(text=text, audio=clips or None, sampling_rate=16000)
        wanted.append([int(token) for token in out["input_ids"][0]])
    assert_same(theirs.tokenizer, requests, wanted)
