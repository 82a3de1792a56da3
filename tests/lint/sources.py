"""The files of the project, and C++ text without comments and strings."""

import functools
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = ["core", "dataset", "preprocess", "reorder", "advise", "stream", "isolation", "telemetry",
         "transport", "server", "client", "cli"]


@functools.cache
def files():
    """Paths relative to the root: what is committed, and what would be by `git add`."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        listed = [os.path.relpath(os.path.join(folder, name), ROOT)
                  for folder, _, names in os.walk(ROOT) for name in names
                  if not os.path.relpath(folder, ROOT).startswith("build")]
    return sorted(path for path in listed if os.path.isfile(os.path.join(ROOT, path)))


def cpp_files(folder):
    return [path for path in files()
            if path.startswith(folder + "/") and path.endswith((".cc", ".h"))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


_TOKENS = re.compile(
    r'R"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                        # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"        # characters, but not the digit separator of 1'000
    r"|//[^\n]*|/\*.*?\*/",                        # comments
    re.DOTALL)


def code_only(text):
    """`text` with comments and the insides of strings blanked; the lines stay where they are."""
    def blank(match):
        return '""' + "\n" * match.group().count("\n")
    return _TOKENS.sub(blank, text)
