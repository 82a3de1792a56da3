"""Rivals that are called from Rust: each is a program in a folder next to this file."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def built(name):
    """The program, built where the library itself is, so that crates are fetched once."""
    target = ROOT / "build/cargo"
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    ROOT / "bench/preprocess" / name / "Cargo.toml", "--target-dir", target], check=True)
    return target / "release" / name
