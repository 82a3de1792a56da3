#!/usr/bin/env python3
"""Writes tests/golden/text/*.json: what the real libraries make of texts, chats and grids.

    /usr/bin/python3 -m venv --system-site-packages /tmp/venv     (Debian's torch and numpy)
    /tmp/venv/bin/pip install tokenizers==0.23.2 jinja2==3.1.6
    /tmp/venv/bin/pip install --no-deps transformers==5.23.0      (only its text is read)
    /tmp/venv/bin/python tests/golden/make_text_goldens.py FOLDER_OF_QWEN2_5_TOKENIZER

tokens.json   ids by the package `tokenizers` for the fixture tests/golden/tokenizer
qwen2_5.json  ids by the same for Qwen2.5's own tokenizer, which is not part of the project
chat.json     chats rendered by Qwen2.5's own chat template through jinja2, and their ids, labels, positions
rope.json     positions by `get_rope_index` of transformers, for Qwen2-VL and Qwen2.5-VL; rope_omni.json: for the Omni models
audio_in_video.json  placeholders and positions of the Omni models' videos with their audio; for this file transformers is imported
"""
import ast
import itertools
import json
import pathlib
import random
import re
import sys
import types
import unicodedata

import importlib.util

import jinja2
import tokenizers
import torch

GOLDEN = pathlib.Path(__file__).resolve().parent
OUT = GOLDEN / "text"
MARKS = {"image": ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"),
         "video": ("<|vision_start|>", "<|video_pad|>", "<|vision_end|>"),
         "audio": ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")}
TYPES = {"text": 0, "image": 1, "video": 2, "audio": 3}
SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

TEXTS = [
    "", " ", "a", "\n", "Hello, world!", "The picture shows a boat on the water.",
    "I can't; they're, we'll, you've, I'd, it's, I'm, DON'T, HE'S", "x = 3.14159 + 42 - 1000000",
    "def f(a):\n    return a\n\n\n    # done\n\tpass\r\n\r\nend\r", "http://example.org/a?b=c&d=%20#e",
    "Größe, Straße, naïve, Ærøskøbing, Łódź", "Лодка стоит на воде. ЁЖИК", "Το πλοίο είναι στη θάλασσα",
    "船在水上。图片里有什么?一二三", "船は水の上にあります。カタカナ ﾊﾝｶｸ", "사진에 무엇이 보입니까?",
    "القارب على الماء ١٢٣", "הסירה על המים", "नाव पानी पर है १२३", "เรืออยู่บนน้ำ", "Thuyền ở trên mặt nước",
    "ნავი წყალზე", "Նավակը ջրի վրա է", "மொழி வாழ்க", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎 𓀀",
    "😀", "👩‍👩‍👧‍👦 family", "👍🏽 thumbs", "🇩🇪🇫🇷 flags", "❤️ vs ❤", "a😀b 😀 c", "☎️1️⃣2️⃣",
    "  leading", "trailing  ", "a  b   c    d", "\t\ttabs\t", " \n \n ", "a\u00a0b\u3000c\u2003d", "\u200b\u200d\ufeffzero",
    "line\u2028sep\u2029par\u0085nel", "\r\n\r\n", "   \n\n   x", "a \n b", "\x00\x01\x7f", "\ue000\uf8ff", "\ufffd",
    "e\u0301", "é", "A\u030a \u212b Å", "\u1100\u1161\u11a8", "q\u0307\u0323 q\u0323\u0307", "\u0344", "\u0958", "fi ﬁ",
    "\u0301", " \u0301x", "a\u0301\u0301\u0301", "ᾳ\u0301", "\u2126 \u212a",
    "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|><|im_start|>", "a<|endoftext|>b", "a <|endoftext|> b",
    "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>", "<|audio_bos|><|AUDIO|><|audio_eos|>", "<|audio|>",
    "<|im_start|", "|im_start|>", "<|IM_START|>", "<|im_start|>\u0301", "<tool_call>\n{\"name\": 1}\n</tool_call>",
    "<|im_<|im_end|>", "<<|im_end|>>", "<mark> is not a token here", "1234567890", "½ ² ⅷ ٣", "a_b-c.d,e;f:g",
    "!!!???...", "«»„“”‚‘’", "—–-", "´`^~¨", "CamelCaseWords andSNAKE_CASE", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]
# [unit, count]: too long to be written out.
LONG = [["a", 30000], [" ", 20000], ["\n", 20000], ["\u0301", 3000], ["The boat lies on the water. ", 3000],
        ["船", 10000], ["😀", 5000], ["<|im_start|>", 5000], ["!", 30000], [" \n", 5000], ["0", 20000], ["ab ", 20000]]


def fnv(ids):
    value = 0xcbf29ce484222325
    for number in ids:
        for byte in number.to_bytes(8, "little", signed=True):
            value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{value:016x}"


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    text = re.sub(r"(\},|\],)(?=\{)", r"\1\n", text)
    (OUT / name).write_text(text + "\n", encoding="ascii")


def untrusted(tokenizer, text):
    """Ids without special tokens, and the byte where each ends."""
    tokenizer.encode_special_tokens = True
    encoding = tokenizer.encode(text, add_special_tokens=False)
    tokenizer.encode_special_tokens = False
    return encoding.ids, [len(text[:end].encode()) for _, end in encoding.offsets]


def random_texts():
    """Strings of characters that matter to the split pattern and the normaliser, in any order."""
    pool = list("aZé0 \t\n\r'.,_<|>") + ["\u0301", "\u00a0", "船", "😀", "ß", "\u200d", "'s", "'LL", "<|im_end|>", "\u1100",
                                          "\u1161", "  ", "\u0323", "İ", "ſ", "<tool_call>"]
    generator = random.Random(7)
    return ["".join(generator.choice(pool) for _ in range(generator.randrange(1, 40))) for _ in range(200)]


def token_cases(tokenizer, with_ends):
    cases = []
    for text in TEXTS + random_texts():
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids}
        other, ends = untrusted(tokenizer, text)
        if other != ids:
            case["untrusted"] = other
        if with_ends:
            case["ends"] = ends
        assert tokenizer.encode(text, add_special_tokens=True).ids == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)
        cases.append(case)
    for unit, count in LONG:
        ids = tokenizer.encode(unit * count, add_special_tokens=False).ids
        cases.append({"unit": unit, "count": count, "num_ids": len(ids), "fnv": fnv(ids)})
    return cases


def chats():
    """(system of the job, messages, items); a message's content is a list of text and (medium, rows, grid)."""
    image = ("image", 12, [1, 6, 8], 0)
    video = ("video", 24, [3, 4, 8], 1.0)
    slow = ("video", 8, [4, 2, 4], 1.3)
    audio = ("audio", 25, None, 0)
    yield SYSTEM, [("user", ["Hi"]), ("assistant", ["Hello there."])]
    yield SYSTEM, [("system", ["Be brief."]), ("user", ["Hi"]), ("assistant", ["Hello."])]
    yield "", [("user", ["Hi"]), ("assistant", ["Hello."])]
    yield SYSTEM, [("user", [image, "What is this?"]), ("assistant", ["A boat."])]
    yield SYSTEM, [("user", ["First ", image, " then", image, video, "and sound", audio, "?"]),
                   ("assistant", ["Two boats\nand a film."]), ("user", ["And?"]), ("assistant", ["Nothing else."])]
    yield "", [("user", [slow, "\n\nDescribe."]), ("assistant", ["\n\nIt moves."])]
    yield SYSTEM, [("user", [audio]), ("assistant", [""])]
    yield SYSTEM, [("user", ["a"]), ("system", ["Now in French."]), ("user", ["b"]), ("assistant", ["c"])]
    yield SYSTEM, [("user", ["weather?"]), ("assistant", ["<tool_call>\n{\"name\": \"w\"}\n</tool_call>"]),
                   ("tool", ["sun"]), ("tool", ["rain"]), ("assistant", ["Both."]), ("tool", ["x"])]
    yield SYSTEM, [("user", ["船在水上。😀 e\u0301 \n"]), ("assistant", [" \u0301x\n", "é 是的。", image, " \n"])]
    yield SYSTEM, [("assistant", ["I speak first."]), ("user", [" "]), ("assistant", ["  "])]
    yield SYSTEM, [("user", ["trailing\n"]), ("assistant", ["ends\n\n"])]
    yield from random_chats()


def random_chats():
    """Turns in any order, contents of any number of texts and media in any order, empty ones among them."""
    generator = random.Random(29)
    words = ["boat", " ", "\n", "", "  two\n\n", "船在水上。", "😀👍🏽", "e\u0301\u0323", "\u00a0\u2028", "ﬁ½ﾊ", "'s", "<|im_",
             "|>", "1234", "القارب", "नाव", "<tool_call>\n{\"name\": \"w\"}\n</tool_call>", "\t\r\n", "ſİ", "\ufeff"]

    def part():
        chosen = generator.randrange(6)
        if chosen == 0:
            grid = [1, 2 * generator.randrange(1, 4), 2 * generator.randrange(1, 4)]
            return "image", grid[1] * grid[2] // 4, grid, 0
        if chosen == 1 and generator.randrange(2):
            grid = [generator.randrange(1, 4), 2 * generator.randrange(1, 3), 2 * generator.randrange(1, 3)]
            return "video", grid[0] * grid[1] * grid[2] // 4, grid, generator.choice([0.5, 1.0, 1.3, 2 / 30])
        if chosen == 2 and generator.randrange(2):
            return "audio", generator.randrange(1, 9), None, 0
        return "".join(generator.choice(words) for _ in range(generator.randrange(0, 5)))

    def content():
        return [part() for _ in range(generator.randrange(0, 5))]

    for number in range(60):
        messages = [("system", [item for item in content() if isinstance(item, str)])] if generator.randrange(3) == 0 else []
        for turn in range(generator.randrange(1, 6)):
            role = generator.choice(["user", "assistant", "system", "tool"]) if number % 3 == 0 else ["user", "assistant"][turn % 2]
            messages.append((role, content()))
        yield generator.choice([SYSTEM, SYSTEM, "Sei knapp. ✓", ""]), messages


def expand(content):
    text = ""
    for part in content:
        if isinstance(part, str):
            text += part
        else:
            begin, placeholder, end = MARKS[part[0]]
            text += begin + placeholder * part[1] + end
    return text


def trained_tokens(tokenizer, encoding, rendered):
    """By character offsets in the whole rendered string."""
    ranges = [match.span(1) for match in re.finditer(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", rendered, re.S)]
    media = {tokenizer.token_to_id(mark) for marks in MARKS.values() for mark in marks}
    return [number not in media and any(begin < end_of_token <= end for begin, end in ranges)
            for number, (_, end_of_token) in zip(encoding.ids, encoding.offsets)]


def chat_cases(tokenizer, template, rope):
    for system, messages in chats():
        plain = [{"role": role, "content": expand(content)} for role, content in messages]
        if system and plain[0]["role"] != "system":
            plain = [{"role": "system", "content": system}] + plain
        rendered = template.render(messages=plain, tools=None, add_generation_prompt=False)
        if not system:  # the template has a prompt of its own
            rendered = rendered.removeprefix(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n")
        encoding = tokenizer.encode(rendered, add_special_tokens=False)
        trained = trained_tokens(tokenizer, encoding, rendered)
        items = [part for _, content in messages for part in content if not isinstance(part, str)]
        kinds = {tokenizer.token_to_id(marks[1]): TYPES[medium] for medium, marks in MARKS.items()}
        kinds_of_tokens = [kinds.get(number, 0) for number in encoding.ids]
        yield {
            "system": system,
            "turns": [{"role": role, "content": [part if isinstance(part, str) else {"medium": part[0]} for part in content]}
                      for role, content in messages],
            "items": [{"medium": medium, "rows": rows, "grid": grid, "seconds": seconds}
                      for medium, rows, grid, seconds in items],
            "rendered": rendered,
            "ids": encoding.ids,
            "labels": [-100 if i == 0 or not trained[i] else number for i, number in enumerate(encoding.ids)],
            "types": kinds_of_tokens,
            "positions": rope("qwen2_5_vl", kinds_of_tokens, items, 2),
        }


def load_rope():
    """`get_rope_index` as transformers has it, lifted out of its module: the package needs a newer torch to import."""
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "models"
    found = {}
    for model, class_name in (("qwen2_vl", "Qwen2VLModel"), ("qwen2_5_vl", "Qwen2_5_VLModel")):
        tree = ast.parse((folder / model / f"modeling_{model}.py").read_text(encoding="utf-8"))
        (owner,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name]
        wanted = [node for node in owner.body if isinstance(node, ast.FunctionDef) and
                  node.name in ("get_rope_index", "get_vision_position_ids")]
        future = ast.parse("from __future__ import annotations").body
        space = {"torch": torch, "itertools": itertools}
        exec(compile(ast.Module(future + wanted, []), model, "exec"), space)  # pylint: disable=exec-used
        found[model] = space

    def rope(model, kinds, items, tokens_per_second):
        """`kinds`: type of each token; audio counts as text there."""
        vision = types.SimpleNamespace(spatial_merge_size=2, tokens_per_second=tokens_per_second)
        owner = types.SimpleNamespace(config=types.SimpleNamespace(vision_config=vision))
        owner.get_vision_position_ids = types.MethodType(found[model]["get_vision_position_ids"], owner)
        arguments = {
            "image_grid_thw": torch.tensor([grid for medium, _, grid, _ in items if medium == "image"]),
            "video_grid_thw": torch.tensor([grid for medium, _, grid, _ in items if medium == "video"]),
        }
        if model == "qwen2_5_vl":
            seconds = [seconds for medium, _, _, seconds in items if medium == "video"]
            arguments["second_per_grid_ts"] = torch.tensor(seconds, dtype=torch.float32)
        positions, _ = found[model]["get_rope_index"](
            owner, torch.zeros(1, len(kinds), dtype=torch.int64),
            torch.tensor([[0 if kind == 3 else kind for kind in kinds]]), **arguments)
        return positions[:, 0].tolist()

    return rope


def rope_cases(rope):
    generator = random.Random(11)
    for case in range(24):
        model, tokens_per_second = [("qwen2_vl", 0), ("qwen2_5_vl", 2), ("qwen2_5_vl", 4)][case % 3]
        kinds, items, spans = [0] * generator.randrange(0, 5), [], []
        for _ in range(generator.randrange(0, 5)):
            medium = generator.choice(["image", "video", "audio"])
            if medium == "audio":
                kinds += [0] + [3] * generator.randrange(1, 9)
            else:
                time = 1 if medium == "image" else generator.randrange(1, 6)
                grid = [time, 2 * generator.randrange(1, 7), 2 * generator.randrange(1, 7)]
                seconds = generator.choice([0.5, 1.0, 2.0, 0.1, 1.3, 2 / 30, 3.7])
                rows = grid[0] * grid[1] * grid[2] // 4
                items.append((medium, rows, grid, seconds))
                kinds += [0]
                spans.append({"medium": medium, "begin": len(kinds), "grid": grid, "seconds": seconds})
                kinds += [TYPES[medium]] * rows
            kinds += [0] * generator.randrange(1, 6)
        if not kinds:
            kinds = [0]
        yield {"model": model, "tokens_per_second": tokens_per_second, "length": len(kinds), "spans": spans,
               "positions": rope(model, kinds, items, tokens_per_second)}


def load_omni(model, per_second, mark):
    """`get_rope_index` of an Omni model, which reads the tokens themselves, for tokens with the ids of `mark`."""
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "models"
    tree = ast.parse((folder / model / f"modeling_{model}.py").read_text(encoding="utf-8"))
    owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and
                 node.name.endswith("PreTrainedModelForConditionalGeneration"))
    wanted = [node for node in owner.body if isinstance(node, ast.FunctionDef) and
              node.name in ("get_rope_index", "get_llm_pos_ids_for_vision", "get_chunked_index")]
    lengths = [node for node in tree.body if isinstance(node, ast.FunctionDef) and
               node.name == "_get_feat_extract_output_lengths"]
    space = {"torch": torch}
    exec(compile(ast.Module(ast.parse("from __future__ import annotations").body + wanted + lengths, []),  # pylint: disable=exec-used
                 model, "exec"), space)
    config = types.SimpleNamespace(
        image_token_id=mark["image"], video_token_id=mark["video"], audio_token_id=mark["audio"],
        vision_start_token_id=mark["start"], audio_start_token_id=mark["audio_start"],
        position_id_per_seconds=per_second, seconds_per_chunk=2, audio_config=types.SimpleNamespace(n_window=50))
    owner = types.SimpleNamespace(spatial_merge_size=2, config=config)
    for name in ("get_llm_pos_ids_for_vision", "get_chunked_index"):
        if name in space:
            setattr(owner, name, types.MethodType(space[name], owner))
    return types.MethodType(space["get_rope_index"], owner)


OMNI = {"start": 1, "image": 2, "video": 3, "audio": 4, "audio_start": 5, "end": 6}


def whole_numbers(positions):
    return [[int(value) for value in row] for row in positions[:, 0].tolist()]


def omni_cases():
    """Positions of the Omni models."""
    generator = random.Random(12)
    for model, per_second in (("qwen2_5_omni", 25), ("qwen3_omni_moe", 13)):
        rope = load_omni(model, per_second, OMNI)
        for _ in range(12):
            ids, spans, grids, seconds, clips = [0] * generator.randrange(1, 5), [], {"image": [], "video": []}, [], []
            for _ in range(generator.randrange(1, 5)):
                medium = generator.choice(["image", "video", "audio"] if spans else ["image", "video"])
                if medium == "audio":
                    clips.append(400)
                    ids += [OMNI["audio_start"]] + [OMNI["audio"]] * (100 if per_second == 25 else 52) + [OMNI["end"]]
                else:
                    grid = [1 if medium == "image" else generator.randrange(1, 6),
                            2 * generator.randrange(1, 7), 2 * generator.randrange(1, 7)]
                    second = generator.choice([0.5, 1.0, 2.0, 0.1, 2 / 3, 4.0] if per_second == 25 else [1.0, 2.0, 4.0])
                    grids[medium].append(grid)
                    seconds += [second] if medium == "video" else []
                    ids.append(OMNI["start"])
                    spans.append({"medium": medium, "begin": len(ids), "grid": grid, "seconds": second})
                    ids += [OMNI[medium]] * (grid[0] * grid[1] * grid[2] // 4) + [OMNI["end"]]
                ids += [0] * generator.randrange(1, 6)
            tokens = torch.tensor([ids])
            positions, _ = rope(tokens, torch.tensor(grids["image"]), torch.tensor(grids["video"]), torch.ones_like(tokens),
                                False, torch.tensor(clips), torch.tensor(seconds, dtype=torch.float32))
            yield {"model": model, "tokens_per_second": per_second, "length": len(ids), "spans": spans,
                   "positions": whole_numbers(positions)}


def interleaved(kind, grid, second, audio_tokens, per_second):
    """"vvaav…": the placeholders of a video and its audio, as the processor class `kind` writes them."""
    owner = types.SimpleNamespace(video_processor=types.SimpleNamespace(merge_size=2), audio_bos_token="", audio_eos_token="",
                                  video_token="v", audio_token="a")
    owner.get_chunked_index = types.MethodType(getattr(kind, "get_chunked_index", None) or (lambda *_: None), owner)
    return kind.replace_video_with_audio_token(
        owner, {"video_grid_thw": [grid], "video_second_per_grid": [second]}, 0, {"num_audio_tokens": [audio_tokens]}, 0,
        position_id_per_seconds=per_second, seconds_per_chunk=2.0)


def omni_audio_cases():
    """Videos with their audio of the Omni models: placeholders by their processors, positions by their models."""
    from transformers.models.qwen2_5_omni import processing_qwen2_5_omni as two
    from transformers.models.qwen3_omni_moe import processing_qwen3_omni_moe as three
    generator = random.Random(13)
    for model, kind, tokens_of, per_second in (
            ("qwen2_5_omni", two.Qwen2_5OmniProcessor, two._get_feat_extract_output_lengths, 25),
            ("qwen3_omni_moe", three.Qwen3OmniMoeProcessor, three._get_feat_extract_output_lengths, 13.0)):
        rope = load_omni(model, int(per_second), OMNI)
        for _ in range(16):
            ids, videos, clips = [0] * generator.randrange(1, 4), [], []
            for _ in range(generator.randrange(1, 3)):
                grid = [generator.randrange(1, 12), 2 * generator.randrange(1, 5), 2 * generator.randrange(1, 5)]
                second = generator.choice([0.5, 1.0, 2.0, 0.1, 2 / 3, 4.0, 6.0] if per_second == 25 else [1.0, 2.0, 4.0])
                frames = max(4, int(grid[0] * second * 100 * generator.choice([0.1, 0.5, 0.97, 1.0, 1.0, 1.04, 2.0])))
                clips.append(frames)
                audio = int(tokens_of(torch.tensor(frames)))
                text = interleaved(kind, grid, second, audio, per_second)
                ids += [OMNI["start"], OMNI["audio_start"]]
                videos.append({"begin": len(ids), "grid": grid, "seconds": second, "audio": audio,
                               "runs": [len(run) for run in re.findall("v+|a+", text)]})
                ids += [OMNI["video" if letter == "v" else "audio"] for letter in text] + [OMNI["end"]] * 2
                ids += [0] * generator.randrange(1, 4)
            tokens = torch.tensor([ids])
            positions, _ = rope(tokens, None, torch.tensor([video["grid"] for video in videos]), torch.ones_like(tokens), True,
                                torch.tensor(clips), torch.tensor([video["seconds"] for video in videos], dtype=torch.float32))
            yield {"model": model, "per_second": int(per_second), "length": len(ids), "videos": videos,
                   "positions": whole_numbers(positions)}


def main():
    qwen = pathlib.Path(sys.argv[1])
    OUT.mkdir(exist_ok=True)
    fixture = tokenizers.Tokenizer.from_file(str(GOLDEN / "tokenizer" / "tokenizer.json"))
    write("tokens.json", {"tokenizers": tokenizers.__version__, "vocab_size": fixture.get_vocab_size(),
                          "cases": token_cases(fixture, True)})
    real = tokenizers.Tokenizer.from_file(str(qwen / "tokenizer.json"))
    write("qwen2_5.json", {"tokenizers": tokenizers.__version__, "vocab_size": real.get_vocab_size(),
                           "file_bytes": (qwen / "tokenizer.json").stat().st_size, "cases": token_cases(real, False)})
    config = json.loads((qwen / "tokenizer_config.json").read_text(encoding="utf-8"))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    rope = load_rope()
    write("chat.json", {"default_system": SYSTEM, "cases": list(
        chat_cases(fixture, environment.from_string(config["chat_template"]), rope))})
    write("rope.json", {"cases": list(rope_cases(rope))})
    write("rope_omni.json", {"cases": list(omni_cases())})
    write("audio_in_video.json", {"cases": list(omni_audio_cases())})


if __name__ == "__main__":
    main()
