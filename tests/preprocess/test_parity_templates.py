"""Public chat templates as a worker renders and tokenises them, against `apply_chat_template` of the installed `transformers`:
random conversations, with tools and odd texts; ids, and masks where the template has generation blocks.

The templates are those that the package `trl` carries (tests/preprocess/parity/install puts them into the environment), the
tokenizer is the one beside the tree (EVENKEEL_SHARED, or ../shared); without either there is nothing to compare.
EVENKEEL_CHAT_TEMPLATES names another folder of *.jinja files, EVENKEEL_PARITY_CHATS how many chats each template gets (30), and
EVENKEEL_PARITY_PLAIN_CHATS how many each of those that a style stands for (400).
"""

import datetime
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from command import BINARY, SHARED
from installed import RELEASE, transformers

PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
TOKENIZER = SHARED / "tokenizers/qwen2_5"
TEMPLATES = sorted(pathlib.Path(os.environ.get("EVENKEEL_CHAT_TEMPLATES", pathlib.Path(sys.prefix) / "templates")).rglob("*.jinja"))
CHATS = int(os.environ.get("EVENKEEL_PARITY_CHATS", "30"))
PLAIN_CHATS = int(os.environ.get("EVENKEEL_PARITY_PLAIN_CHATS", "400"))
DAY = datetime.datetime(2026, 11, 24)

pytestmark = [
    pytest.mark.skipif(RELEASE == 4, reason="templates follow release 5"),
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}"),
    pytest.mark.skipif(not TOKENIZER.exists(), reason=f"no tokenizer at {TOKENIZER}: no chat was compared"),
    pytest.mark.skipif(not TEMPLATES, reason="no templates: no chat was compared"),
]

WORDS = ["Hello", " world", "\n", "  ", "\t", "船", "é", "e\u0301", "\u0301", "😀", "</think>", "<think>", "x\n\ny", "  lead", "tail  ", "{\"a\": 1}", "'q'",
         "\"dq\"", "<b>&amp;", "0.5", "\u3000", "\x1f", "\u200b", "\\n", "final", "I'm", "a" * 30, "👩‍👩‍👧", "<tool_call>", "हिन्दी"]


class PinnedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


def draw_text(generator, most=6):
    return "".join(generator.choice(WORDS) for _ in range(generator.randrange(most + 1)))


def draw_json(generator, depth=0):
    kind = generator.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [draw_json(generator, depth + 1) for _ in range(generator.randrange(3))]
    if kind == 7:
        return {generator.choice(["a", "type", "items", "name", "ключ"]): draw_json(generator, depth + 1) for _ in range(generator.randrange(3))}
    return [None, True, False, generator.randrange(-9, 10**6), generator.choice([1.5, 1e20, -0.0, 1e-7, 3.0]), draw_text(generator, 3)][kind]


def draw_tool(generator):
    types = [{"type": "string", "description": draw_text(generator, 3)}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}},
             {"type": "object", "properties": {"z": {"type": "number"}}}, {"type": ["string", "null"], "enum": ["a", "b"]}]
    properties = {generator.choice(["city", "unit", "items", "options"]): generator.choice(types) for _ in range(generator.randrange(3))}
    function = {"name": f"f{generator.randrange(5)}", "description": draw_text(generator, 4),
                "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}
    if generator.random() < 0.3:
        function["return"] = {"type": "string"}
    return {"type": "function", "function": function}


def draw_call(generator):
    function = {"name": "f1", "arguments": generator.choice([{"city": draw_text(generator, 3), "n": draw_json(generator)}, {}])}
    if generator.random() < 0.15:
        function["arguments"] = json.dumps(function["arguments"])
    if generator.random() < 0.15:
        return function
    call = {"type": "function", "function": function}
    if generator.random() < 0.5:
        call["id"] = "".join(generator.choice("abc123XYZ") for _ in range(9))
    return call


def draw_message(generator, role):
    message = {"role": role, "content": draw_text(generator, 8)}
    if role == "assistant" and generator.random() < 0.25:
        message["tool_calls"] = [draw_call(generator) for _ in range(generator.randrange(1, 3))]
        if message["content"] == "":
            message["content"] = None  # as such a turn is taken
    if role == "assistant" and generator.random() < 0.3:
        message[generator.choice(["reasoning_content", "reasoning_content", "reasoning", "thinking"])] = draw_text(generator, 5)
    if role == "tool" and generator.random() < 0.5:
        message["tool_call_id"] = "abc123XYZ"
    if generator.random() < 0.1:
        message["name"] = generator.choice(["Ada", "f1", ""])
    return message


def draw_chat(generator):
    """Of the roles that every template takes, in turns or in any order."""
    messages = [draw_message(generator, "system")] if generator.random() < 0.5 else []
    in_turns = generator.random() < 0.6
    for i in range(generator.randrange(1, 7)):
        role = ["user", "assistant"][i % 2] if in_turns else generator.choice(["user", "assistant", "tool", "user", "assistant"])
        messages.append(draw_message(generator, role))
    chat = {"messages": messages}
    if generator.random() < 0.35:
        chat["tools"] = [draw_tool(generator) for _ in range(generator.randrange(1, 3))]
    if generator.random() < 0.1:
        chat["documents"] = [{"title": draw_text(generator, 2), "text": draw_text(generator)} for _ in range(generator.randrange(1, 3))]
    return chat


def write_folder(source, folder, **members):
    """The tokenizer with this template, or none; `members` of its configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").symlink_to(TOKENIZER / "tokenizer.json")
    config = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config | members))
    if source is not None:
        (folder / "chat_template.jinja").write_bytes(source)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Loaded once: that takes longer than a template's chats."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_folder(None, folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def answers_to(requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests)
    return answers


def takes(loaded, content):
    try:
        out = loaded.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    except Exception:  # whatever a template does with what it does not take
        return False
    return "probe" in out and "'type'" not in out and '"type"' not in out


def theirs(loaded, chat, with_masks):
    """The ids and the mask, or the error."""
    try:
        out = loaded.apply_chat_template(chat["messages"], tools=chat.get("tools"), documents=chat.get("documents"), return_dict=True,
                                         return_assistant_tokens_mask=with_masks)
    except Exception as error:  # jinja2's, and those of Python that a template runs into
        return f"{type(error).__name__}: {error}"
    return out["input_ids"], out.get("assistant_masks")


@pytest.mark.parametrize("template", TEMPLATES, ids=[path.stem for path in TEMPLATES])
def test_chats_are_those_of_transformers(template, tmp_path, monkeypatch, tokenizer):
    monkeypatch.setattr(transformers.utils.chat_template_utils, "datetime", PinnedDay)
    write_folder(template.read_bytes(), tmp_path)
    loaded = tokenizer
    loaded.chat_template = template.read_text()
    blocks = "endgeneration" in loaded.chat_template
    processor = {"tokenizer": str(tmp_path), "chat": "template", "labels": "" if blocks else "all",
                 "date": str(DAY.date())}
    generator = random.Random(template.stem)
    texts, parts = takes(loaded, "probe"), takes(loaded, [{"type": "text", "text": "probe"}])
    chats = [draw_chat(generator) for _ in range(CHATS)] if texts or not parts else []
    answers = answers_to([{"processor": processor, "sample": json.dumps(chat, ensure_ascii=generator.random() < 0.5)} for chat in chats])
    for chat, answer in zip(chats, answers):
        wanted = theirs(loaded, chat, blocks)
        if isinstance(wanted, str):
            assert "error" in answer, (wanted, chat)
            # What a template raises is told in its words.
            assert not wanted.startswith("TemplateError: ") or wanted.removeprefix("TemplateError: ") in answer["error"], (wanted, answer)
            continue
        ids, mask = wanted
        assert "error" not in answer, (answer, chat)
        assert answer["ids"] == list(ids), (loaded.decode(answer["ids"]), loaded.decode(ids))
        if blocks:
            assert [int(label != -100) for label in answer["labels"][1:]] == list(mask)[1:], chat


# The templates that a hand-written style stands for, and what a tokenizer has to have for it.
LLAMA3 = {"bos_token": "<|begin_of_text|>", "additional_special_tokens": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]}
GEMMA = {"bos_token": "<bos>", "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]}
GEMMA4 = {"bos_token": "<bos>", "additional_special_tokens": ["<|turn>", "<turn|>"]}
KNOWN = {"diffusion_gemma": GEMMA4, "gemma": GEMMA, "gemma3": GEMMA, "gemma4": GEMMA4, "gemma4_v2": GEMMA4, "gemma4_v3": GEMMA4,
         "gemma4_v4": GEMMA4, "gemma4_v5": GEMMA4, "llama3": LLAMA3, "qwen2_5": {}, "qwen2_5_vl": {}, "qwen3_instruct_2507": {}, "qwen3_vl": {}}


def draw_plain_chat(generator):
    """Of the shape that styles write, or nearly."""
    roles = ["system"] if generator.random() < 0.3 else []
    for i in range(generator.randrange(1, 7)):
        roles.append(["user", "assistant"][i % 2] if generator.random() < 0.95 else generator.choice(["user", "assistant", "system", "tool"]))
    messages = []
    for role in roles:
        content = draw_text(generator, 8)
        if generator.random() < 0.05:  # texts that templates look for
            content += generator.choice(["<|im_end|>", "<turn|>", "a<|channel>thought\nb<channel|>c", "<channel|>", "<eos>"])
        messages.append({"role": role, "content": content})
        if generator.random() < 0.05:
            messages[-1] |= generator.choice([{"weight": 0}, {"weight": 1}, {"loss": False}, {"loss": True}, {"weight": 0.5}, {"name": "Ada"}])
    return {"messages": messages}


def test_known_templates_are_those_of_the_list():
    answers = answers_to([{"template": path.read_text()} for path in TEMPLATES])
    assert {path.stem for path, answer in zip(TEMPLATES, answers) if answer["known"]} == KNOWN.keys() & {path.stem for path in TEMPLATES}


@pytest.mark.parametrize("template", [path for path in TEMPLATES if path.stem in KNOWN], ids=lambda path: path.stem)
def test_a_style_writes_what_its_template_writes(template, tmp_path):
    """A comment before the template makes it another, which no style stands for."""
    source = template.read_bytes()
    write_folder(source, tmp_path / "known", **KNOWN[template.stem])
    write_folder(b"{##}" + source, tmp_path / "rendered", **KNOWN[template.stem])
    generator = random.Random(template.stem)
    requests = {"known": [], "rendered": []}
    for i in range(PLAIN_CHATS):
        chat = draw_chat(generator) if i % 4 == 0 else draw_plain_chat(generator)
        labels, system = generator.choice([("", ""), ("", "Be kind.\n"), ("data", ""), ("last_assistant", "Be kind.\n")])
        for folder, list_of in requests.items():
            processor = {"tokenizer": str(tmp_path / folder), "chat": "template", "labels": labels, "system": system}
            list_of.append({"processor": processor, "sample": json.dumps(chat)})
    assert not answers_to([{"template": (b"{##}" + source).decode()}])[0]["known"]
    known, rendered = answers_to(requests["known"]), answers_to(requests["rendered"])
    assert sum("error" not in answer for answer in rendered) > PLAIN_CHATS / 10
    for request, one, other in zip(requests["known"], known, rendered):
        assert one == other, request
