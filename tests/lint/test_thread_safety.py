"""scripts/thread_safety finds a missing lock, and every suppression has a reason."""

import importlib.machinery
import importlib.util
import os
import re
import shutil

import pytest

from sources import ROOMS, ROOT, cpp_files, read

ACCOUNT = """
#include "core/annotated_mutex.h"

class Account {
 public:
  void Add(int amount) {
    %s
    balance_ += amount;
  }

 private:
  evenkeel::Mutex mutex_;
  int balance_ ABSL_GUARDED_BY(mutex_) = 0;
};

void Use(Account& account) { account.Add(1); }
"""


def load_script():
    # As data: without a cache of its bytecode in scripts/.
    loader = importlib.machinery.SourceFileLoader("thread_safety", os.path.join(ROOT, "scripts/thread_safety"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("thread_safety", loader))
    exec(loader.source_to_code(read("scripts/thread_safety"), loader.path), module.__dict__)
    return module


def check(tmp_path, body):
    script = load_script()
    if shutil.which(script.CLANG) is None:
        pytest.skip(f"{script.CLANG} is not installed")
    source = tmp_path / "account.cc"
    source.write_text(ACCOUNT % body)
    return script.check({"file": str(source), "directory": str(tmp_path),
                         "command": f"c++ -I{ROOT} -std=c++20 -O3 -o account.o -c {source}"})


def test_a_locked_member_passes(tmp_path):
    good, text = check(tmp_path, "evenkeel::MutexLock lock(mutex_);")
    assert good, text


def test_a_missing_lock_is_an_error(tmp_path):
    good, text = check(tmp_path, "")
    assert not good
    assert "requires holding mutex 'mutex_'" in text and "-Wthread-safety" in text


def test_a_lock_that_is_not_released_is_an_error(tmp_path):
    good, text = check(tmp_path, "mutex_.Lock();")
    assert not good
    assert "still held at the end of function" in text


def test_other_warnings_are_errors_too(tmp_path):
    good, text = check(tmp_path, "evenkeel::MutexLock lock(mutex_); int unused;")
    assert not good
    assert "unused variable" in text


def test_every_source_with_a_lock_is_analysed():
    reaches_mutex = load_script().reaches_mutex
    assert reaches_mutex("server/part_pool.cc"), "directly, by its header"
    assert not reaches_mutex("preprocess/image/jpeg.cc"), "a room without threads"
    for room in ROOMS:
        for path in cpp_files(room):
            if re.search(r"\b(?:Mutex|MutexLock|ABSL_GUARDED_BY)\b", read(path)):
                assert reaches_mutex(path), path


def test_annotations_come_from_one_header():
    found = [path for room in ROOMS for path in cpp_files(room)
             if "thread_annotations.h" in read(path) and path != "core/annotated_mutex.h"]
    assert not found, "include core/annotated_mutex.h instead"


def test_the_analysis_is_not_silenced():
    found = [path for room in [*ROOMS, "tests", "bench"] for path in cpp_files(room)
             if "NO_THREAD_SAFETY_ANALYSIS" in read(path)]
    assert not found


def test_locks_are_released_by_scopes():
    found = [f"{path}: {line.strip()}" for room in ROOMS for path in cpp_files(room)
             if path != "core/annotated_mutex.h"
             for line in read(path).splitlines() if re.search(r"mutex\w*\.(?:Lock|Unlock)\(\)", line)]
    assert not found, "\n".join(found)
