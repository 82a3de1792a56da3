#!/usr/bin/env python3
"""Writes tests/golden/text/pairs.json: preference pairs in the forms that TRL reads, and the tokens that it makes of them.

    VENV/bin/python tests/golden/make_pair_goldens.py

VENV has trl 1.16.0, transformers and torch. A case has the row of the data, the ids of both sequences, the length of the
prompt as DPOTrainer finds it, and what the template marks as said by the assistant (of a text: all of it).
"""
import json
import pathlib
import random

from transformers import PreTrainedTokenizerFast
from trl import extract_prompt
from trl.data_utils import is_conversational, maybe_extract_prompt
from trl.trainer.dpo_trainer import common_prefix_length

GOLDEN = pathlib.Path(__file__).resolve().parent
WORDS = ["keel", "even", "wave", "harbour", "lantern", "salt", "Köln", "über", "😀", "1,000"]


def text(rng, most=12):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def said(role, rng):
    return {"role": role, "content": text(rng)}


def rows():
    rng = random.Random(5)
    for _ in range(6):
        ask, chosen, rejected = said("user", rng), said("assistant", rng), said("assistant", rng)
        system, earlier = said("system", rng), [said("user", rng), said("assistant", rng)]
        yield {"prompt": [ask], "chosen": [chosen], "rejected": [rejected]}
        yield {"prompt": [system, *earlier, ask], "chosen": [chosen], "rejected": [rejected]}
        yield {"chosen": [ask, chosen], "rejected": [ask, rejected]}
        yield {"chosen": [*earlier, ask, chosen], "rejected": [*earlier, ask, rejected]}
        yield {"prompt": ask["content"], "chosen": [ask, chosen], "rejected": [ask, rejected]}
        yield {"prompt": [ask], "chosen": [chosen, said("user", rng), said("assistant", rng)], "rejected": [rejected]}
        prompt, ending = text(rng) + ":", text(rng)
        yield {"prompt": prompt, "chosen": " " + ending, "rejected": " " + text(rng)}
        yield {"chosen": f"{prompt} yes {ending}", "rejected": f"{prompt} no {text(rng)}"}
    same = [said("user", rng), said("assistant", rng)]
    yield {"chosen": same, "rejected": same}


def cut(one):
    """The row with its prompt apart, as DPOTrainer has it."""
    return maybe_extract_prompt(one) if "prompt" in one else extract_prompt(one)


def ids_of(tokenizer, example, name):
    """(ids, mask) of prompt and answer."""
    if is_conversational(example):
        made = tokenizer.apply_chat_template(example["prompt"] + example[name], tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        return made["input_ids"], made["assistant_masks"]
    ids = tokenizer(example["prompt"] + example[name] + tokenizer.eos_token)["input_ids"]
    return ids, [1] * len(ids)


def case(tokenizer, row):
    example = cut(row)
    if is_conversational(example):
        prompt = tokenizer.apply_chat_template(example["prompt"], tokenize=True, return_dict=True, add_generation_prompt=True)["input_ids"]
    else:
        prompt = tokenizer(example["prompt"])["input_ids"]
    made = {name: ids_of(tokenizer, example, name) for name in ("chosen", "rejected")}
    length = min(common_prefix_length(prompt, ids) for ids, _ in made.values())
    return {"row": row, "prompt_length": length, **{name: {"ids": ids, "mask": mask} for name, (ids, mask) in made.items()}}


def main():
    config = json.loads((GOLDEN / "tokenizer/tokenizer_config.json").read_text())
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "tokenizer/tokenizer.json"), eos_token=config["eos_token"],
                                        pad_token=config["pad_token"])
    tokenizer.chat_template = (GOLDEN / "tokenizer/chat_template.jinja").read_text(encoding="utf-8")
    cases = [case(tokenizer, row) for row in rows()]
    (GOLDEN / "text/pairs.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
