#!/usr/bin/env python3
"""Writes tests/golden/text/tools.json: chats with tools by the templates that Qwen2.5 and Qwen3 publish, and their tokens.

    VENV/bin/python tests/golden/make_tool_goldens.py TEMPLATES

VENV is that of make_chat_goldens.py. TEMPLATES holds qwen2_5.jinja and qwen3.jinja, the `chat_template` of the two models'
tokenizer_config.json, which are not part of the project. A case is written where both give the same text, as they do for
all of these.
"""
import json
import pathlib
import re
import sys

from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

GOLDEN = pathlib.Path(__file__).resolve().parent
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Das Wetter in \"Köln\" & <überall>, 😀",
           "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"enum": [1, 2.5, 1e-7, None, True]}}}}}
EMPTY = {}


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def chats():
    """The turn before the last one of the assistant's is always a user's or a tool's, and says what Qwen3 leaves alone."""
    system = {"role": "system", "content": "Be kind."}
    ask, answer = {"role": "user", "content": "How warm is it?"}, {"role": "tool", "content": "{\"t\": 21.5}\n"}
    calling = {"role": "assistant", "content": "I look. ", "tool_calls": [call("weather", z="Köln", a=1e16)]}
    silent = {"role": "assistant", "content": "", "tool_calls": [call("weather"), call("other", deep={"list": [[], {}, "\n\t\u0007"]})]}
    done, thanks = {"role": "assistant", "content": "21.5 degrees."}, {"role": "user", "content": "Thanks."}
    for tools in ([], [WEATHER], [EMPTY, WEATHER]):
        for first in ([], [system], [{"role": "system", "content": ""}]):
            yield tools, first + [ask, calling, answer, done, thanks]
            yield tools, first + [ask, silent, answer, answer, done, thanks]


def rendered(template, messages, tools):
    (text,), _ = render_jinja_template([messages], tools=tools or None, chat_template=template)
    return text


def main():
    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer/tokenizer.json"))
    older, newer = ((pathlib.Path(sys.argv[1]) / f"{name}.jinja").read_text(encoding="utf-8") for name in ("qwen2_5", "qwen3"))
    cases = []
    for tools, messages in chats():
        job_system = ""
        text = rendered(newer, messages, tools)
        if messages[0]["role"] == "system":
            assert rendered(older, messages, tools) == text
        else:  # Qwen2.5's own
            job_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
            text = rendered(older, messages, tools)
        encoding = tokenizer.encode(text)
        ranges = [match.span(1) for match in re.finditer(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", text, re.S)]
        cases.append({
            "system": job_system, "tools": [json.dumps(tool, ensure_ascii=False) for tool in tools], "rendered": text,
            "turns": [{"role": message["role"], "content": [message["content"]],
                       "calls": [[of["function"]["name"], json.dumps(of["function"]["arguments"], ensure_ascii=False)]
                                 for of in message.get("tool_calls", [])]} for message in messages],
            "ids": encoding.ids,
            "labels": [number if any(begin < last and first < end for first, last in ranges) else -100
                       for number, (begin, end) in zip(encoding.ids, encoding.offsets)]})
    out = json.dumps({"cases": cases}, ensure_ascii=True, separators=(",", ":")).replace("},{\"system", "},\n{\"system")
    (GOLDEN / "text/tools.json").write_text(out + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
