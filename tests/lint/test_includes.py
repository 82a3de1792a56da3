"""The include table of the design: which room may include which.

A room's library links privately, so most wrong includes fail to link already; header-only ones do not.
"""

import fnmatch
import re

import pytest

from sources import ROOMS, cpp_files, files, read

MESSAGES = {"proto/job.pb.h", "proto/part.pb.h"}
PROBLEMS = {"proto/problem.pb.h"}  # what `evenkeel solve` and `evenkeel.plan` read and write
STUBS = {"proto/service.pb.h", "proto/service.grpc.pb.h"}

# room -> (rooms it may include, files of proto/ it may include)
TABLE = {
    "rust": (set(), set()),
    "core": (set(), MESSAGES),
    "dataset": ({"core", "rust"}, set()),
    "preprocess": ({"core", "rust"}, set()),
    "reorder": ({"core"}, set()),
    "advise": ({"core", "reorder"}, set()),
    "stream": ({"core", "dataset", "preprocess", "reorder"}, set()),
    "isolation": ({"core", "preprocess"}, set()),
    "telemetry": ({"core"}, set()),
    "transport": ({"core"}, STUBS),
    "server": ({"core", "dataset", "preprocess", "reorder", "stream", "isolation", "telemetry", "transport"}, STUBS),
    # The control plane is spoken by both ends, so the client has the stubs too.
    "client": ({"core", "transport"}, STUBS),
    "cli": ({"core", "dataset", "preprocess", "reorder", "advise", "stream", "isolation", "telemetry", "transport",
             "server", "client"}, MESSAGES | STUBS | PROBLEMS),
}
# The sub-folders of a room, and which of each other they may include; every one may include the room's top. No circle.
FOLDERS = {
    "dataset": {"source": set(), "format": {"source"}, "index": {"source", "format"}, "order": {"source", "index"}},
    "preprocess": {"resize": set(), "image": {"resize"}, "video": {"image", "resize"}, "audio": set(),
                   "families": {"image", "resize", "video", "audio"}, "text": {"families"}},
    "reorder": {"balance": set(), "microbatch": {"balance"}, "pipeline": set(), "pack": set(), "context_parallel": set(),
                "problem": {"balance", "pipeline", "pack", "context_parallel"}},
    "client": {"python": set()},
}
# A folder that may include more than the room it lies in: rooms, and files of proto/.
EXTRA = {"client/python/": ({"reorder"}, set()), "reorder/problem/": (set(), PROBLEMS)}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
INTERNAL = re.compile(r"Internal to (\w+)\.")
ROOM_TARGET = re.compile(r"^[ \t]*evenkeel_room\(\s*(\w+)", re.MULTILINE)


def prose(path):
    """A file with its comments' lines joined, wherever they were broken."""
    return read(path).replace("\n// ", " ")


def includes(path):
    return INCLUDE.findall(read(path))


def allowed(path, room, include):
    rooms, protos = (set(of_room) for of_room in TABLE[room])
    for folder, (more_rooms, more_protos) in EXTRA.items():
        if path.startswith(folder):
            rooms |= more_rooms
            protos |= more_protos
    first = include.split("/")[0]
    if first == "proto":
        return include in protos
    if first not in TABLE:
        return True  # a third party's header
    return first == room or first in rooms


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_only_what_the_table_allows(room):
    wrong = [f"{path}: {include}" for path in cpp_files(room) for include in includes(path)
             if not allowed(path, room, include)]
    assert not wrong, "\n".join(wrong)


def test_the_table_refuses_what_it_should():
    assert not allowed("dataset/x.cc", "dataset", "preprocess/processor.h")
    assert not allowed("core/x.cc", "core", "proto/service.pb.h")
    assert not allowed("reorder/x.cc", "reorder", "proto/job.pb.h")
    assert not allowed("reorder/x.cc", "reorder", "proto/problem.pb.h")
    assert not allowed("reorder/problem/x.cc", "reorder", "proto/service.pb.h")
    assert not allowed("client/python/x.cc", "client", "proto/problem.pb.h")
    assert not allowed("client/x.cc", "client", "reorder/planner.h")
    assert not allowed("stream/x.cc", "stream", "isolation/decoder_pool.h")
    assert not allowed("stream/x.cc", "stream", "telemetry/metrics.h")
    assert not allowed("server/x.cc", "server", "advise/step_model.h")
    assert not allowed("server/x.cc", "server", "proto/job.pb.h")
    assert not allowed("transport/x.cc", "transport", "telemetry/metrics.h")
    assert allowed("client/python/x.cc", "client", "reorder/planner.h")
    assert allowed("reorder/problem/x.cc", "reorder", "proto/problem.pb.h")
    assert allowed("server/x.cc", "server", "dataset/index/index.h")
    assert allowed("core/x.cc", "core", "absl/status/status.h")


def folder_of(path):
    """preprocess/image/jpeg.cc -> image; preprocess/processor.cc -> none: the room's top."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else None


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_of_a_room_includes_only_those_below_it(room):
    folders = FOLDERS.get(room, {})
    assert {folder_of(path) for path in cpp_files(room)} - {None} == set(folders)
    wrong = [f"{path}: {include}" for path in cpp_files(room) for include in includes(path)
             if folder_of(path) and include.startswith(room + "/") and folder_of(include)
             and folder_of(include) not in folders[folder_of(path)] | {folder_of(path)}]
    assert not wrong, "\n".join(wrong)


def test_the_folders_make_no_circle():
    for folders in FOLDERS.values():
        left = dict(folders)
        while left:
            free = [folder for folder, below in left.items() if not below & set(left)]
            assert free, left
            for folder in free:
                del left[folder]


def test_includes_are_written_from_the_root():
    known = set(files())
    wrong = []
    for room in ROOMS:
        for path in cpp_files(room):
            folder = path.rsplit("/", 1)[0]
            wrong += [f"{path}: {include}" for include in includes(path)
                      if include not in known and f"{folder}/{include}" in known]
    assert not wrong, "\n".join(wrong)


def test_internal_headers_stay_in_their_room():
    internal = {}
    for room in ROOMS:
        for path in cpp_files(room):
            found = INTERNAL.search(prose(path)) if path.endswith(".h") else None
            if found:
                internal[path] = found.group(1)
    assert internal, "core has internal headers; the search is broken"
    wrong = []
    for path in files():
        if not path.endswith((".cc", ".h")):
            continue
        for include in includes(path):
            room = internal.get(include)
            if room and not path.startswith((f"{room}/", f"tests/{room}/", f"bench/{room}")):
                wrong.append(f"{path}: {include}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_a_room_is_exactly_one_target(room):
    declared = ROOM_TARGET.findall(read(f"{room}/CMakeLists.txt"))
    assert declared == [room]


@pytest.mark.parametrize("room", ROOMS)
def test_every_source_of_a_room_is_built(room):
    lists = "\n".join(read(path) for path in files()
                      if path.startswith(room + "/") and path.endswith("CMakeLists.txt"))
    globs = [f"{room}/{pattern}" for pattern in re.findall(r"^file\(GLOB .* (\S+\.cc)\)$", lists, re.MULTILINE)]
    forgotten = [path for path in cpp_files(room)
                 if path.endswith(".cc") and not any(fnmatch.fnmatch(path, pattern) for pattern in globs)
                 and not re.search(rf"(?<![\w]){re.escape(path.rsplit('/', 1)[1])}", lists)]
    assert not forgotten, "\n".join(forgotten)
