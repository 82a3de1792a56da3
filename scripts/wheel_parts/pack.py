#!/usr/bin/env python3
"""Packs the Python package, its extension and the programs into a wheel that still needs this machine's libraries.

    pack.py --extension FOLDER --programs FOLDER_OR_EMPTY --python PYTHON --platform PLATFORM OUT

With programs the distribution is `evenkeel`, without them `evenkeel_client`. Both have the package `evenkeel`.
"""
import argparse
import base64
import hashlib
import pathlib
import subprocess
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client" / "python"
PYTHON_FILES = ("*.py", "*.pyi", "py.typed")


def tag_of(python):
    """`cp311` for CPython 3.11."""
    return subprocess.run([python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"], check=True,
                          capture_output=True, text=True).stdout.strip()


def metadata(project, name):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join(lines)


def members(arguments, project, name, tag):
    """Path in the wheel -> (content, mode)."""
    out = {}
    for pattern in PYTHON_FILES:
        for path in sorted((PACKAGE / "evenkeel").rglob(pattern)):
            out[str(path.relative_to(PACKAGE))] = (path.read_bytes(), 0o644)
    for path in sorted(arguments.extension.glob("_evenkeel*.so")):
        out[f"evenkeel/{path.name}"] = (path.read_bytes(), 0o755)
    info = f"{name}-{project['version']}.dist-info"
    if arguments.programs:
        for path in sorted(pathlib.Path(arguments.programs).iterdir()):
            out[f"evenkeel/bin/{path.name}"] = (path.read_bytes(), 0o755)
        # Where the programs look for it: share/evenkeel next to their folder.
        script = ROOT / "isolation" / "python_items.py"
        out[f"evenkeel/share/evenkeel/{script.name}"] = (script.read_bytes(), 0o644)
        entries = "[console_scripts]\nevenkeel = evenkeel.program:main\n"
        out[f"{info}/entry_points.txt"] = (entries.encode(), 0o644)
    out[f"{info}/METADATA"] = (metadata(project, name).encode(), 0o644)
    out[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    wheel = ("Wheel-Version: 1.0\nGenerator: evenkeel\nRoot-Is-Purelib: false\n"
             f"Tag: {tag}-{tag}-{arguments.platform}\n")
    out[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    record = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},"
              f"{len(content)}" for path, (content, _) in out.items()]
    record.append(f"{info}/RECORD,,")
    out[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode(), 0o644
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extension", type=pathlib.Path, required=True)
    parser.add_argument("--programs", default="")
    parser.add_argument("--python", required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    name = project["name"] if arguments.programs else f"{project['name']}_client"
    tag = tag_of(arguments.python)
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"{name}-{project['version']}-{tag}-{tag}-{arguments.platform}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (content, mode) in members(arguments, project, name, tag).items():
            entry = zipfile.ZipInfo(path)  # of 1980, so that equal contents are equal wheels
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


if __name__ == "__main__":
    main()
