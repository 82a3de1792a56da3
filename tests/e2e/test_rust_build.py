"""rust/build, with a cargo and a rustc that only write what they are asked."""

import os
import pathlib
import shutil
import subprocess

RUST = pathlib.Path(__file__).resolve().parents[2] / "rust"

CARGO = """#!/bin/bash
if [ "$1" = --version ]; then echo "cargo of a test"; exit; fi
mkdir -p "$CARGO_TARGET_DIR/release"
cat src/*.rs >"$CARGO_TARGET_DIR/release/libevenkeel_rust.a"
echo built >>"$LOG"
"""


def made(tmp_path):
    crate = tmp_path / "rust"
    crate.mkdir()
    for name in ("build", "Cargo.toml", "Cargo.lock"):
        shutil.copy(RUST / name, crate)
    (crate / "src").mkdir()
    (crate / "src/lib.rs").write_text("// one\n")
    for name, text in (("cargo", CARGO), ("rustc", '#!/bin/bash\necho "rustc ${EDITION:-1}"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return crate


def build(tmp_path, crate, target, cache, **more):
    """What the library holds, and how often cargo has built so far."""
    log = tmp_path / "log"
    environment = {**os.environ, "LOG": str(log), "EVENKEEL_RUST_CACHE": str(cache) if cache else "", **more}
    subprocess.run([crate / "build", tmp_path / "cargo", tmp_path / "rustc", target], check=True, env=environment)
    return (target / "release/libevenkeel_rust.a").read_text(), log.read_text().count("built")


def test_a_library_that_was_built_before_is_taken(tmp_path):
    crate, cache = made(tmp_path), tmp_path / "cache"
    assert build(tmp_path, crate, tmp_path / "a", cache) == ("// one\n", 1)
    assert build(tmp_path, crate, tmp_path / "b", cache) == ("// one\n", 1)
    assert build(tmp_path, crate, tmp_path / "c", None) == ("// one\n", 2)


def test_a_change_of_what_it_depends_on_builds_anew(tmp_path):
    crate, cache = made(tmp_path), tmp_path / "cache"
    build(tmp_path, crate, tmp_path / "a", cache)
    assert build(tmp_path, crate, tmp_path / "a", cache, EDITION="2")[1] == 2
    assert build(tmp_path, crate, tmp_path / "a", cache, RUSTFLAGS="-C target-cpu=native")[1] == 3
    (crate / "src/lib.rs").write_text("// two\n")
    assert build(tmp_path, crate, tmp_path / "a", cache) == ("// two\n", 4)
    (crate / "src/more.rs").write_text("// more\n")
    assert build(tmp_path, crate, tmp_path / "a", cache) == ("// two\n// more\n", 5)


def test_the_four_used_last_are_kept(tmp_path):
    crate, cache = made(tmp_path), tmp_path / "cache"
    for edition in range(6):
        build(tmp_path, crate, tmp_path / "a", cache, EDITION=str(edition))
    assert len(list(cache.iterdir())) == 4
    assert build(tmp_path, crate, tmp_path / "a", cache, EDITION="5")[1] == 6
