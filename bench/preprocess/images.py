#!/usr/bin/env python3
"""Times stills from their bytes to final patches against what else does it, one thread each, in one run.

    python3 bench/preprocess/images.py --bench build/release/bench/bench_images --processor DIR FILE…

Makes a virtual environment with the rivals (--venv, kept; --no-install to use it as it is), calls `bench_images` for
our own figures and prints a table of ratios with versions. Rivals, each as its documentation has it used:

- slow: transformers' Qwen2VLImageProcessorPil on Image.open(...): Pillow, then numpy; f32 patches.
- fast: transformers' Qwen2VLImageProcessor on torchvision.io.decode_image(...); f32 patches.
- opencv: imdecode, resize INTER_CUBIC (no antialiasing: other pixels), u8 patches by numpy.
- dali: decoders.image and resize (cubic, antialias) on the CPU, u8 pixels without patches.
- spdl: its own JPEG decode and scale (bicubic swscale), u8 pixels without patches.

Files are grouped by how much their sides are reduced. A rival that cannot be installed is left out and named.
"""

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import venv

RIVALS = [
    "numpy", "pillow", "torch", "torchvision", "transformers", "opencv-python-headless",
    "nvidia-dali-cuda120", "spdl", "spdl-io",
]
DALI_INDEX = "https://pypi.nvidia.com"


def timed(repeat, run):
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()  # of all threads: what else runs on the machine takes none of it
        run()
        best = min(best, time.process_time() - begin)
    return best


def patches_of(image, patch, merge):
    """[height, width, 3] u8 -> rows of patches of one frame, as ours."""
    h, w = image.shape[0] // patch, image.shape[1] // patch
    blocks = image.reshape(h // merge, merge, patch, w // merge, merge, patch, 3)
    return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(h * w, 3 * patch * patch).copy()


class Slow:
    name = "slow"

    def __init__(self, config):
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        self.processor = Qwen2VLImageProcessorPil(**config)

    def run(self, data, size):
        from PIL import Image

        self.processor(Image.open(io.BytesIO(data)), return_tensors="np")["pixel_values"]


class Fast:
    name = "fast"

    def __init__(self, config):
        from transformers import Qwen2VLImageProcessor

        self.processor = Qwen2VLImageProcessor(**config)

    def run(self, data, size):
        import torch
        import torchvision.io

        tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        image = torchvision.io.decode_image(tensor, mode=torchvision.io.ImageReadMode.RGB)
        self.processor(image, return_tensors="pt")["pixel_values"]


class OpenCv:
    name = "opencv"

    def __init__(self, config):
        import cv2

        cv2.setNumThreads(1)

    def run(self, data, size):
        import cv2
        import numpy as np

        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        patches_of(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), 14, 2)


class Dali:
    name = "dali"

    def __init__(self, config):
        import nvidia.dali.fn as fn
        import nvidia.dali.types as types
        from nvidia.dali import pipeline_def

        @pipeline_def(batch_size=1, num_threads=1, device_id=None, exec_async=False, exec_pipelined=False)
        def pipeline():
            data = fn.external_source(name="data", dtype=types.UINT8, ndim=1)
            size = fn.external_source(name="size", dtype=types.FLOAT, ndim=1)
            image = fn.decoders.image(data, device="cpu", output_type=types.RGB)
            return fn.resize(image, size=size, interp_type=types.INTERP_CUBIC, antialias=True)

        self.pipeline = pipeline()
        self.pipeline.build()

    def run(self, data, size):
        import numpy as np

        self.pipeline.feed_input("data", [np.frombuffer(data, np.uint8)])
        self.pipeline.feed_input("size", [np.array([size[1], size[0]], np.float32)])
        self.pipeline.run()


class Spdl:
    name = "spdl"

    def __init__(self, config):
        import spdl.io  # noqa: F401

    def run(self, data, size):
        import spdl.io

        packets = spdl.io.demux_image(data)
        scale = spdl.io.get_video_filter_desc(
            scale_width=size[0], scale_height=size[1], scale_algo="bicubic", pix_fmt="rgb24"
        )
        frames = spdl.io.decode_packets(packets, filter_desc=scale)
        spdl.io.to_numpy(spdl.io.convert_frames(frames))


def versions():
    import importlib.metadata

    found = []
    for package in RIVALS:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)


def measure(arguments, ours):
    import torch

    torch.set_num_threads(1)
    config = json.loads(pathlib.Path(arguments.processor, "preprocessor_config.json").read_text())
    config = {key: value for key, value in config.items() if key not in ("image_processor_type", "processor_class")}
    rivals = []
    for kind in (Slow, Fast, OpenCv, Dali, Spdl):
        try:
            rivals.append(kind(config))
        except Exception as error:  # a rival that is not there is no failure of this run
            print(f"without {kind.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    for row in ours:
        data = pathlib.Path(row["file"]).read_bytes()
        for rival in list(rivals):
            try:
                rival.run(data, (row["out_width"], row["out_height"]))
                row[rival.name] = timed(
                    arguments.repeat, lambda: rival.run(data, (row["out_width"], row["out_height"]))
                )
            except Exception as error:
                print(f"without {rival.name}: {row['file']}: {str(error).splitlines()[0]}", file=sys.stderr)
                rivals.remove(rival)
                for done in ours:
                    done.pop(rival.name, None)
    return [rival.name for rival in rivals]


def group_of(row):
    side = (row["width"] * row["height"] / (row["out_width"] * row["out_height"])) ** 0.5
    return "reduced twofold or more" if side >= 2 else "reduced less" if side > 1.05 else "not reduced"


def report(ours, rivals):
    import statistics

    print(f"| photographs | files | MP | decode ns/px | resize ns/px | u8 / decode | f32 / decode | approximate / u8 | PSNR median |"
          + "".join(f" {name} / {'f32' if name in ('slow', 'fast') else 'u8'} |" for name in rivals))
    print("|---|" + "---:|" * (8 + len(rivals)))
    for group in ("reduced twofold or more", "reduced less", "not reduced"):
        rows = [row for row in ours if group_of(row) == group and row["decode"] > 0]
        if not rows:
            continue
        total = {key: sum(row[key] for row in rows) for key in ["decode", "resize", "u8", "f32", "approximate", *rivals]}
        pixels = sum(row["width"] * row["height"] for row in rows)
        cells = [
            group, len(rows), f"{pixels / 1e6:.1f}", f"{total['decode'] / pixels * 1e9:.2f}",
            f"{total['resize'] / pixels * 1e9:.2f}",
            f"{total['u8'] / total['decode']:.2f}", f"{total['f32'] / total['decode']:.2f}",
            f"{total['approximate'] / total['u8']:.2f}", f"{statistics.median(row['psnr'] for row in rows):.1f}",
        ]
        for name in rivals:
            cells.append(f"{total[name] / total['f32' if name in ('slow', 'fast') else 'u8']:.2f}")
        print("| " + " | ".join(map(str, cells)) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--processor", required=True, help="folder with a Qwen2-VL preprocessor_config.json")
    parser.add_argument("--resampler", default="pil")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--venv", default=str(pathlib.Path.home() / ".cache" / "evenkeel-bench-images"))
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--json", help="also write every file's figures there")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    python = pathlib.Path(arguments.venv, "bin", "python")
    if pathlib.Path(sys.prefix).resolve() != pathlib.Path(arguments.venv).resolve():
        if not python.exists():
            venv.create(arguments.venv, with_pip=True)
        if not arguments.no_install:
            for package in RIVALS:
                command = [python, "-m", "pip", "install", "-q", "--extra-index-url", DALI_INDEX, package]
                subprocess.run(command, check=False)
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        sys.exit(subprocess.run([python, *sys.argv], env=environment).returncode)
    command = [arguments.bench, "--processor", arguments.processor, "--resampler", arguments.resampler,
               "--repeat", str(arguments.repeat), *arguments.files]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ours = [json.loads(line) for line in lines]
    rivals = measure(arguments, ours)
    print(versions())
    report(ours, rivals)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(ours, indent=1))


if __name__ == "__main__":
    main()
