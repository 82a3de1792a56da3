"""The `evenkeel` command of a wheel: becomes the program inside the package."""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "bin" / "evenkeel"


def main():
    """Runs `evenkeel` with this process's arguments. Does not return."""
    try:
        os.execv(PROGRAM, ["evenkeel", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"evenkeel: {PROGRAM}: {error.strerror}; install the wheel again")
