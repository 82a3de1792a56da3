#!/usr/bin/env python3
"""Writes tests/golden/text/templates.json: what transformers renders of the templates below, which use everything that it
gives templates. No template is anybody else's.

    tests/preprocess/parity/install FOLDER
    FOLDER/bin/python tests/golden/make_template_goldens.py
"""
import datetime
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils

OUT = pathlib.Path(__file__).resolve().parent / "text/templates.json"
DAY = datetime.datetime(2026, 11, 4)
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "flag": True, "numbers": [3, 1, 2]}


class PinnedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY


TURNS = "{%- for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
# [name, template]
TEMPLATES = [
    ["blocks are trimmed", "  {% for m in messages %}\n    {% if m.role == 'user' %}\n  U: {{ m.content }}\n    {% else %}\n  A {# no #}\n    {% endif %}\n"
                           "  {#- gone -#}\n  {%+ if true %} kept{% endif +%}\n{% endfor %}\nend\n"],
    ["signs", "a \n {%- if true -%} \n b \n {{- ' c ' -}} \n d {%- endif %}\n e"],
    ["loop controls", "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}"],
    ["loop", "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
             "{{ loop.previtem.role if loop.previtem }}{{ loop.nextitem.role if not loop.last }}{{ loop.cycle('a', 'b') }};{% else %}none{% endfor %}"],
    ["tojson", "{{ messages | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true) }}\n"
               "{{ messages[-1].content | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': [1.0, 1e16, 1e-7, -0.0, none, true]} | tojson }}"],
    ["text of values", "{{ true }}{{ none }}{{ 1.0 }}{{ 1e16 }}{{ 123456789012345678 }}{{ [1, 'a', none, {'k': \"it's\"}] }}{{ nothing }}|{{ 'a' ~ true ~ none ~ 1.5 ~ [2] }}"
                       "|{{ messages }}|{{ 'tab\\t\"quote\\'' }}{{ ['\\n\\x07é\\u200b\"\\''] }}"],
    ["raises", "{{ raise_exception('only ' ~ messages | length ~ ' messages') }}"],
    ["raises for a turn", "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"],
    ["date", "{{ strftime_now('%d %b %Y %A %B %j %y-%m-%-d %% %H:%M') }}"],
    ["special tokens", "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}{{ pad_token }}{{ unk_token }}"],
    ["generation", "{% for m in messages %}{% if m.role == 'assistant' %}<a>{% generation %}{{ m.content }}</a>{% endgeneration %}\n{% else %}<u>{{ m.content }}</u>\n{% endif %}{% endfor %}"],
    ["generation that is empty", "{% for m in messages %}{{ m.role }}{% generation %}{% endgeneration %}{{ m.content }}{% generation %}{{ m.content[3:] }}{% endgeneration %}{% endfor %}"],
    ["generation with a namespace", "{% set ns = namespace(n=0, last=none) %}{% for m in messages %}{% generation %}{% if m.role %}{% set later = namespace(found=false) %}"
     "{% for other in messages[loop.index:] %}{% if other.role == m.role %}{% set later.found = true %}{% endif %}{% endfor %}{{ later.found }}{% endif %}"
     "{% set ns.n = ns.n + 1 %}{% set ns.last = m.role %}{% endgeneration %}{{ ns.n }}{{ ns.last }};{% endfor %}"],
    ["generation in a macro", "{% macro say(m) %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endmacro %}{% for m in messages %}é{{ say(m) }}{% endfor %}"],
    ["generation in a block that is set", "{% for m in messages %}{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}é{{ x | upper }}{% endfor %}"],
    ["macros", "{% macro f(x, sep=', ') -%} {{ x }}{{ sep }}{{ caller() if caller }} {%- endmacro %}{{ f(1) }}{{ f(2, sep='-') }}{% call f(3) %}inner{{ flag }}{% endcall %}"],
    ["macros see later variables", "{% macro f() %}{{ a }}{{ b }}{% endmacro %}{% set a = 1 %}{{ f() }}{% set b = 2 %}{{ f() }}{% for a in [5] %}{{ f() }}{% endfor %}"],
    ["macros that call themselves", "{% macro walk(v) %}{% if v is mapping %}{{ '{' }}{% for k, w in v | items %}{{ k }}:{{ walk(w) }}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}"
     "{% elif v is iterable and v is not string %}({% for w in v %}{{ walk(w) }} {% endfor %}){% else %}{{ v }}{% endif %}{% endmacro %}{{ walk(tools) }}{{ walk(messages) }}"],
    ["sets of lists", "{% set list = [] %}{% for m in messages %}{% set list = list + [m.role] %}{% endfor %}{{ list }}{% set ns = namespace(l=[]) %}{% for m in messages %}"
     "{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l | join('/') }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t %}<{{ a }}>{% endset %}{{ t }}"],
    ["slices", "{{ messages[1:] | length }}{{ messages[::-1] | map(attribute='role') | join(',') }}{{ messages[0].content[:3] }}{{ messages[0].content[-2:] }}{{ 'abc'[1] }}{{ 'abc'[::-1] }}{{ messages[9:] }}"],
    ["methods of strings", "{% for m in messages %}{% set c = m.content if m.content is string else '' %}{{ c.strip() }}|{{ c.lstrip('\\n') }}|{{ c.rstrip() }}|{{ c.split() }}|{{ c.split('a', 1) }}|{{ c.split('</think>')[-1] }}"
     "|{{ c.splitlines() }}|{{ c.startswith('a') }}{{ c.startswith(('a', ' ')) }}{{ c.endswith('b') }}{{ c.find('b') }}{{ c.replace('a', 'xy', 1) }}{{ c.upper() }}{{ c.title() }}{{ c.capitalize() }}{{ c.count('a') }}"
     "{{ c.rsplit(' ', 1) }}{{ c.partition(' ') }}{{ c.removeprefix('a') }}{{ c.isspace() }}{{ c.isdigit() }}{{ '-'.join(['a', 'b']) }}{{ c | trim | length }};\n{% endfor %}"],
    ["methods of dictionaries", "{% for m in messages %}{{ m.get('name') }}{{ m.get('name', 'x') }}{{ m.keys() | list }}{{ m.values() | list }}{% for k, v in m.items() %}{{ k }}={{ v }},{% endfor %}{{ 'name' in m }}\n{% endfor %}"],
    ["dictionaries with names of methods", "{% set d = {'items': 1, 'get': 2, 'keys': 3} %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d.get('get') }}{{ d['items'] }}{{ d | dictsort }}"],
    ["tests", "{% for v in [1, 1.5, 'a', true, none, [], {}, missing] %}{{ v is string }}{{ v is number }}{{ v is integer }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}{{ v is none }}{{ v is defined }}{{ v is boolean }};{% endfor %}"
     "{{ 3 is odd }}{{ 3 is divisibleby(3) }}{{ 'a' is in(['a']) }}{{ 2 is eq(2) }}{{ false is false }}{{ 1 is not none }}"],
    ["filters", "{{ numbers | sort }}{{ numbers | first }}{{ numbers | last }}{{ numbers | max }}{{ numbers | sum }}{{ numbers | map('string') | join('+') }}{{ numbers | reverse | list }}{{ numbers | select('gt', 1) | list }}"
     "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }}{{ missing | default('d') }}{{ '' | default('e', true) }}"
     "{{ 'a b' | upper }}{{ 'A' | lower }}{{ 'x' | indent(2, true) }}{{ 'a\\n\\nb' | indent }}{{ '7' | int + 1 }}{{ 2.5 | round }}{{ -3 | abs }}{{ [1, 1, 2] | unique | list }}{{ 'abc' | list }}{{ 5 | string + 'x' }}{{ 'aXbX' | replace('X', '-') }}"],
    ["arithmetic", "{{ 7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 5 }}{{ 1 + 1.5 }}{{ 'ab' * 3 }}{{ [1] * 2 }}{{ '%s and %d' % ('a', 3) }}{{ 1 < 2 <= 2 }}{{ 'a' in 'cat' }}{{ 4 not in [1] }}{{ not 0 }}{{ 1 if '' else 2 }}{{ '' or 'x' }}{{ messages[9:] and 1 }}"],
    ["tools", "{% if tools %}{% for t in tools %}{{ t.function.name }}({{ t.function.parameters.properties | tojson }}){% endfor %}{% else %}no tools{% endif %}"
     "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set f = c.function or c %}{{ f.name }} {{ f.arguments if f.arguments is string else f.arguments | tojson }}{% endfor %}{% endfor %}"],
    ["documents", "{% for d in documents or [] %}{{ loop.index }}: {{ d.title }}\n{{ d.text }}\n{% endfor %}"],
    ["reasoning", "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{% if 'content' in m %}{{ m.content }}{% else %}no content{% endif %};{% endfor %}"],
    ["parts", "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}{% if add_generation_prompt %}go{% endif %}"],
    ["undefined", "{{ missing }}{% if missing %}x{% endif %}{{ missing is defined }}{% for x in missing %}y{% endfor %}{{ missing | length }}{{ 'x' in messages[0].nothing | default([]) }}"],
    ["undefined has no attributes", "{{ missing.name }}"],
    ["undefined cannot be added", "{{ 'a' + missing }}"],
    ["types cannot be added", "{{ 'a' + 1 }}"],
    ["undefined is no JSON", "{{ missing | tojson }}"],
    ["no such filter", "{{ 1 | nosuch }}"],
    ["no such method", "{{ messages.append(1) }}"],
    ["not a template", "{% if %}"],
    ["not closed", "{% for m in messages %}"],
    ["long range", "{{ range(10 ** 9) | length }}"],
    ["raw", "{% raw %}{{ not }} {% generation %}{% endraw %}{{ \"it\\\\'s \\u00e9\" }}" ],
    ["with and filter", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{% filter upper %}abc {{ bos_token }}{% endfilter %}"],
    ["line breaks", "a\r\n{% if true %}\r\nb\r\n{% endif %}\rc\n\n"],
    ["turns", TURNS],
]
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "Tells \"it\" <b>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "items": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}}
CHATS = [
    {"messages": [{"role": "user", "content": "abc"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " a b\n\nc "}, {"role": "assistant", "content": "Größe 船 😀\n"},
                  {"role": "user", "content": ""}, {"role": "assistant", "content": "\u3000x\x1f"}]},
    {"messages": [{"role": "user", "content": "it's \"q\""}, {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
        {"type": "function", "id": "1", "function": {"name": "weather", "arguments": {"city": "Zürich", "n": 1.50, "deep": [None, {"a": []}]}}}]},
                  {"role": "tool", "name": "weather", "content": "12345"}, {"role": "assistant", "content": "aab</think>b", "thinking": "t"}], "tools": [FUNCTION]},
    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}, {"role": "assistant", "content": [{"type": "text", "text": "a\u2028boat"}]}],
     "documents": [{"title": "T", "text": "x\ny"}]},
]


def rendered(template, chat, prompt):
    messages = [{key: value for key, value in message.items() if value is not None} for message in chat["messages"]]
    try:
        texts, blocks = chat_template_utils.render_jinja_template(
            [messages], tools=chat.get("tools"), documents=chat.get("documents"), chat_template=template, return_assistant_tokens_mask=True,
            add_generation_prompt=prompt, **VARIABLES)
    except jinja2.exceptions.TemplateSyntaxError:
        return {"error": "syntax"}
    except jinja2.exceptions.TemplateError as error:
        return {"error": "raised", "message": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"error": "failed"}
    except (TypeError, ValueError, KeyError, OverflowError):
        return {"error": "failed"}
    text = texts[0]
    return {"text": text, "generated": [[len(text[:at].encode()) for at in block] for block in blocks[0]]}


def main():
    chat_template_utils.datetime = PinnedDay
    cases = []
    for name, template in TEMPLATES:
        outputs = [rendered(template, chat, i % 2 == 1) for i, chat in enumerate(CHATS)]
        cases.append({"name": name, "template": template, "outputs": outputs})
    value = {"variables": VARIABLES, "date": str(DAY.date()), "chats": CHATS, "cases": cases}
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace(',{"name":', ',\n{"name":')
    OUT.write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
