import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# Where the extension of a build tree is not on PYTHONPATH, the release build's is used.
if "evenkeel" not in sys.modules and not any((pathlib.Path(p) / "evenkeel").is_dir() for p in sys.path if p):
    sys.path.insert(0, os.environ.get("EVENKEEL_PYTHON", str(ROOT / "build" / "release" / "python")))

pytest.importorskip("evenkeel")
