"""The include table of the design: which room may include which.

A room's library links privately, so most wrong includes fail to link already; header-only ones do not.
"""

import fnmatch
import functools
import re

import pytest

from sources import ROOMS, code_only, cpp_files, files, read

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

ANY_INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.MULTILINE)

# header of cmake/room_headers.h -> what of it files name. Those are read whether a file includes them or not.
NAMES = {
    "algorithm": r"std::(ranges::)?(sort|stable_sort|nth_element|min|max|minmax|clamp|find|find_if|any_of|all_of|none_of"
                 r"|copy|copy_n|fill|fill_n|count|count_if|lower_bound|upper_bound|equal_range|remove_if|reverse|rotate"
                 r"|unique|max_element|min_element|transform|partition|stable_partition|binary_search|is_sorted"
                 r"|push_heap|pop_heap|make_heap|for_each|adjacent_find)\(",
    "array": r"std::array\b",
    "atomic": r"std::atomic\b",
    "cmath": r"std::(sqrt|floor|ceil|lround|llround|pow|exp|log2?|isfinite|isnan|nearbyint|fma|fabs)\(",
    "cstddef": r"std::byte\b",
    "cstdint": r"\bu?int(8|16|32|64)_t\b",
    "cstring": r"std::(memcpy|memcmp|memset|memmove|strerror|strlen)\(",
    "functional": r"std::function\b",
    "limits": r"std::numeric_limits\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(unique_ptr|shared_ptr|make_unique|make_shared|weak_ptr)\b",
    "numeric": r"std::(accumulate|iota|partial_sum|gcd|lcm|reduce)\(",
    "optional": r"std::(optional|nullopt)\b",
    "set": r"std::(multi)?set\b",
    "span": r"std::(span|as_bytes|as_writable_bytes)\b",
    "string": r"std::(string|to_string)\b",
    "string_view": r"std::string_view\b",
    "tuple": r"std::(tuple|tie|make_tuple)\b",
    "utility": r"std::(pair|exchange)\b",
    "variant": r"std::(variant|visit|holds_alternative)\b",
    "vector": r"std::vector\b",
    "absl/container/flat_hash_map.h": r"absl::flat_hash_map\b",
    "absl/container/flat_hash_set.h": r"absl::flat_hash_set\b",
    "absl/status/status.h": r"absl::(Status\b|\w+Error\(|OkStatus)",
    "absl/status/statusor.h": r"absl::StatusOr\b",
    "absl/strings/match.h": r"absl::(StrContains|StartsWith|EndsWith)",
    "absl/strings/numbers.h": r"absl::SimpleAto",
    "absl/strings/str_cat.h": r"absl::(StrCat|StrAppend)\(",
    "absl/strings/str_format.h": r"absl::Str(Append)?Format\(",
    "absl/strings/str_join.h": r"absl::StrJoin\b",
    "absl/strings/str_split.h": r"absl::StrSplit\b",
    "absl/time/time.h": r"absl::(Duration|Time|Seconds|Milliseconds|FormatDuration)\b",
}
# Headers that are documented to bring another one along.
BRINGS = {"absl/status/statusor.h": {"absl/status/status.h"}, "map": {"utility"}, "array": {"cstddef"},
          "span": {"cstddef"}, "absl/types/span.h": {"cstddef"}}


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


@functools.cache
def reached(path):
    """Every header that a file reads by its own includes, through the project's headers."""
    out = set()
    for include in ANY_INCLUDE.findall(read(path)):
        out |= {include} | BRINGS.get(include, set())
        if include in files():
            out |= reached(include)
    return frozenset(out)


def test_the_precompiled_headers_are_all_known():
    precompiled = ANY_INCLUDE.findall(read("cmake/room_headers.h"))
    assert set(precompiled) - set(NAMES) <= {"absl/types/span.h"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_includes_what_it_names(room):
    """Precompiled headers would hide that it does not."""
    wrong = [f"{path}: <{header}>" for path in cpp_files(room) for header, names in NAMES.items()
             if header not in reached(path) and re.search(names, code_only(read(path)))]
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
