#!/usr/bin/env python3
"""Writes the examples of a header's comments as C++ to include: extract.py HEADER OUTPUT

An example is the lines after `// Example:` that are indented by four spaces or more; it ends at the first line that
is not. A header may have several. Errors of the compiler name the header and its line.
"""

import pathlib
import re
import sys

TITLE = re.compile(r"^\s*// Example:$")
LINE = re.compile(r"^\s*//     (.*)$")


def examples(text):
    """Lists (line number of the first line, lines) of each example. ValueError: an example without lines."""
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines):
        if not TITLE.match(line):
            continue
        code = []
        for following in lines[number + 1:]:
            match = LINE.match(following)
            if match is None:
                break
            code.append(match.group(1))
        if not code:
            raise ValueError(f"line {number + 1}: an example has no lines indented by four spaces")
        found.append((number + 2, code))
    return found


def as_cpp(name, text):
    out = []
    for first, code in examples(text):
        out += ["{", f'#line {first} "{name}"', *code, "}"]
    return "\n".join(out) + "\n"


def main():
    header, output = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    path = pathlib.Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_cpp(header, (root / header).read_text()))


if __name__ == "__main__":
    main()
