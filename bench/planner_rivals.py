"""Other projects' own code for balancing and packing, which bench_planner compares the planner with.

    planner_rivals.py --install FOLDER        their packages from PyPI, unpacked, and the libraries that they compute with
    planner_rivals.py FOLDER METHOD           solves problems, one a line: `GROUPS LENGTH LENGTH ...` for balancing,
                                              `CAPACITY LENGTH LENGTH ...` for packing; prints the group of each length

Their packages import whole training stacks. The functions compared with need none of that, so each is taken out of its
module's source as it stands there and run with the modules it names: no line of it is changed.
"""

import argparse
import ast
import collections
import pathlib
import subprocess
import sys
import tarfile

PACKAGES = ["verl==0.9.1", "trl==1.16.0", "llamafactory==0.9.5"]
# Without a wheel.
SOURCES = ["axolotl==0.19.0"]
MULTIPACK = "src/axolotl/utils/samplers/multipack.py"
LIBRARIES = ["numpy==2.2.6", "numba==0.61.2", "llvmlite==0.44.0", "pyarrow==22.0.0"]


def install(folder):
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--upgrade", "--target", folder, *PACKAGES, *LIBRARIES], check=True)
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", folder,
                    *SOURCES], check=True)
    for archive in folder.glob("axolotl-*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, [tar.getmember(f"{archive.name.removesuffix('.tar.gz')}/{MULTIPACK}")])


def definitions(path, names, modules):
    """The functions and classes `names` of the source file at `path`, which see `modules` as their globals."""
    tree = ast.parse(path.read_text())
    # Future annotations: types of modules that are not imported stay words.
    body = [ast.parse("from __future__ import annotations").body[0]]
    body += [node for node in tree.body if getattr(node, "name", None) in names]
    missing = set(names) - {node.name for node in body[1:]}
    if missing:
        sys.exit(f"{path}: no {', '.join(sorted(missing))}; expected those of {', '.join(PACKAGES + SOURCES)}")
    exec(compile(ast.Module(body, []), str(path), "exec"), modules)
    return [modules[name] for name in names]


def verl(folder, equal_size):
    import copy
    import heapq

    (partition,) = definitions(folder / "verl/utils/seqlen_balancing.py", ["karmarkar_karp"],
                               {"copy": copy, "heapq": heapq})
    return lambda groups, lengths: partition(lengths, groups, equal_size)


def trl(folder):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ["_check_if_columns_can_be_packed", "_SegmentTree", "_pack_bfd"]
    *_, pack = definitions(folder / "trl/data_utils.py", names, {"np": np, "pa": pa, "pc": pc, "pyarrow": pa,
                                           "defaultdict": collections.defaultdict,
                                           "deque": collections.deque})

    def bins(capacity, lengths):
        # Every token is the number of its sequence, so that the packed tokens say who is where.
        ids = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        table = pack(pa.table({"input_ids": pa.ListArray.from_arrays(offsets, ids)}), capacity)
        rows = table["input_ids"].combine_chunks()
        for row in range(len(rows)):
            yield dict.fromkeys(rows[row].values.to_numpy().tolist())

    return bins


def llama_factory(folder):
    import bisect

    _, knapsack = definitions(folder / "llamafactory/data/processor/processor_utils.py",
                              ["search_for_fit", "greedy_knapsack"], {"bisect": bisect})

    def bins(capacity, lengths):
        # It answers with lengths.
        places = collections.defaultdict(collections.deque)
        for index, length in enumerate(lengths):
            places[length].append(index)
        for chosen in knapsack(list(lengths), capacity):
            yield [places[length].popleft() for length in chosen]

    return bins


def axolotl(folder):
    import numba
    import numpy as np

    (source,) = folder.glob(f"axolotl-*/{MULTIPACK}")
    (pack,) = definitions(source, ["pack_group"], {"numba": numba, "np": np})

    def bins(capacity, lengths):
        # As its pack_parallel calls it for one group: longest first, no bound on the sequences of a bin.
        order = np.argsort(-np.asarray(lengths), kind="stable")
        sorted_lengths = np.asarray(lengths)[order]
        for chosen in pack(sorted_lengths, 0, capacity, len(lengths), len(lengths), False):
            yield [int(order[i]) for i in chosen]

    return bins


METHODS = {"verl": lambda folder: verl(folder, False), "verl_equal_size": lambda folder: verl(folder, True),
           "trl": trl, "llama_factory": llama_factory, "axolotl": axolotl}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("method", nargs="?", choices=sorted(METHODS))
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    if arguments.install:
        install(arguments.folder)
        return
    if arguments.method is None:
        parser.error("a method is needed")
    sys.path.insert(0, str(arguments.folder))
    solve = METHODS[arguments.method](arguments.folder)
    for line in sys.stdin:
        bound, *lengths = map(int, line.split())
        group_of = [None] * len(lengths)
        for group, members in enumerate(solve(bound, lengths)):
            for index in members:
                group_of[index] = group
        print(*group_of)


if __name__ == "__main__":
    main()
