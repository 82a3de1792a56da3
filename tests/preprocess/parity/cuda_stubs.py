"""Stands in for the CUDA libraries that PyPI's torch for x86-64 is linked against, so that it runs on a CPU without them.

They are 2 GB that nothing calls where there is no GPU, but the loader wants their names and symbols. For each library
that torch's own need and that is not there this writes, next to them, a small one with every symbol that they leave
undefined; each function in it answers cudaErrorNoDevice.

    python tests/preprocess/parity/cuda_stubs.py VENV/lib/python3.11/site-packages/torch/lib

Needs binutils and cc. Does nothing where nothing is missing.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

VENDOR = re.compile(r"lib(cu|nv|nccl)")  # libcudart, libcublas, libcudnn, libnvrtc, libnccl, ...
SYMBOL = re.compile(r"(__)?(cu|nv|nccl)[A-Za-z]")
NO_DEVICE = 100


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def symbols(library, kind):
    """{name: version or ""}"""
    words = (line.split()[-1].replace("@@", "@").partition("@") for line in lines("nm", "-D", f"--{kind}-only", library))
    return {name: version for name, _, version in words}


def dynamic_section(library):
    """The libraries it needs, and {library: versions of symbols wanted of it}."""
    needed, versions, source = set(), {}, None
    for line in lines("objdump", "-p", library):
        words = line.split()
        if words[:1] == ["NEEDED"]:
            needed.add(words[1])
        elif words[:2] == ["required", "from"]:
            source = words[2].rstrip(":")
        elif source and len(words) == 4:
            versions.setdefault(source, set()).add(words[3])
    return needed, versions


def main():
    folder = pathlib.Path(sys.argv[1])
    needed, versions, undefined, defined = set(), {}, {}, {}
    for library in sorted(map(str, folder.glob("*.so*"))):
        more, wanted = dynamic_section(library)
        needed |= more
        for name, found in wanted.items():
            versions.setdefault(name, set()).update(found)
        undefined |= symbols(library, "undefined")
        defined |= symbols(library, "defined")
    names = {name: undefined[name] for name in sorted(undefined.keys() - defined) if SYMBOL.match(name)}
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stubs.c"), pathlib.Path(scratch, "versions")
        source.write_text("".join(
            f'const char *{name}(void) {{ return "no CUDA here"; }}\n' if name.endswith("String")
            else f"long {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
        for library in sorted(name for name in needed if VENDOR.match(name) and not (folder / name).exists()):
            # The loader insists that a library has the versions that are asked of it by name.
            groups = {"stub": [name for name, version in names.items() if version not in versions.get(library, ())]}
            for version in sorted(versions.get(library, ())):
                groups[version] = [name for name in names if names[name] == version]
            script.write_text("".join(f"{version} {{ {' '.join(name + ';' for name in group)} }};\n"
                                      for version, group in groups.items()))
            # -w: some of the names are known to the compiler with other types.
            subprocess.run(["cc", "-w", "-O1", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library}",
                            f"-Wl,--version-script,{script}", "-o", folder / library, source], check=True)


if __name__ == "__main__":
    main()
