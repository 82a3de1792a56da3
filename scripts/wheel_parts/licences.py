#!/usr/bin/env python3
"""Adds the licence of every bundled library to a wheel, and refuses what may not be bundled.

    licences.py WHEEL OUT_FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Debian's packages of these were linked with GPL parts; FFmpeg comes from scripts/wheel_parts/ffmpeg instead.
FFMPEG = ("libavcodec", "libavformat", "libavutil", "libswscale", "libswresample")
REFUSED = ("libjbig", "libx264", "libx265", "libxvidcore", "libpostproc", "librubberband", "libucp", "libucs", "libuct")
WORK = pathlib.Path(__file__).resolve().parents[2] / "build" / "wheel"


def original_name(library):
    """`libgrpc-0a1b2c3d.so.29.0.0` -> `libgrpc.so.29.0.0`: auditwheel adds eight digits of a hash."""
    return re.sub(r"-[0-9a-f]{8}(?=[.])", "", library, count=1)


def copyright_of(library):
    """(package, text of its copyright file) of a bundled library's original."""
    if library.startswith(FFMPEG):
        return "ffmpeg", (WORK / "ffmpeg" / "copyright").read_text()
    found = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True).stdout.split(":")[0]
    path = pathlib.Path("/usr/share/doc") / found / "copyright"
    if not found or not path.exists():
        raise SystemExit(f"{library}: no Debian package has it, so its licence is unknown")
    return found, path.read_text(errors="replace")


def main():
    wheel, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel], check=True,
                       stdout=subprocess.DEVNULL)
        (tree,) = pathlib.Path(folder).iterdir()
        libraries = sorted(path.name for path in tree.glob("*.libs/*"))
        refused = [name for name in libraries if name.startswith(REFUSED)]
        if refused:
            raise SystemExit(f"{wheel.name}: must not be bundled: {', '.join(refused)}")
        (licences,) = tree.glob("*.dist-info/licenses")
        packages = {}
        for library in libraries:
            package, text = copyright_of(original_name(library))
            packages.setdefault(package, []).append(library)
            (licences / f"{package}.txt").write_text(text)
        listing = [f"{package}: {', '.join(names)}" for package, names in sorted(packages.items())]
        (licences / "BUNDLED.txt").write_text("Debian package: libraries in this wheel\n\n" + "\n".join(listing) + "\n")
        subprocess.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", out, tree], check=True,
                       stdout=subprocess.DEVNULL)
    print(f"{out / wheel.name}: {len(libraries)} bundled libraries of {len(packages)} packages")


if __name__ == "__main__":
    main()
