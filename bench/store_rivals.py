"""How other libraries read the photographs of bench/stores.py from the same store: one of them a run.

    PYTHON bench/store_rivals.py LIBRARY --endpoint URL --bucket NAME --prefix PREFIX --shards N [--warmup N] [--samples N]

bench/stores.py --rivals PYTHON calls this for each of webdataset, datasets, streaming and energon; PYTHON is an interpreter
that has them, transformers and torch, as tests/preprocess/parity/install makes it, with aiohttp and boto3 in addition. Each
reads its own format: tar shards through a pipe from curl (webdataset), over HTTP (datasets) or as prepared by `energon
prepare`, over S3, as Energon does; MDS over S3 (streaming). Every picture goes through transformers' processor in a worker of
torch's DataLoader, which is where their users have it. Prints a JSON line: samples a second and CPU seconds a sample, of this
process and all that it started.
"""

import argparse
import functools
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_PIXELS = 1003520  # as the job of bench/stores.py


@functools.lru_cache(None)
def processor():
    from transformers import AutoImageProcessor
    return AutoImageProcessor.from_pretrained(ROOT / "tests" / "golden" / "processor" / "qwen2-vl", max_pixels=MAX_PIXELS)


def process(picture):
    picture = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    return processor()(images=picture.convert("RGB"), return_tensors="pt")["pixel_values"]


def web_dataset(given, urls):
    import webdataset
    data = webdataset.WebDataset([f"pipe:curl --silent --fail {url}" for url in urls], shardshuffle=False, empty_check=False)
    return DataLoader(data.repeat().map(lambda sample: process(sample["jpg"])), batch_size=None, num_workers=given.workers)


class Repeated(IterableDataset):
    """Epochs of a dataset of `datasets`, whose shards it shares between the workers itself."""

    def __init__(self, data):
        self._data = data

    def __iter__(self):
        while True:
            for row in self._data:
                yield process(row["jpg"])


def hf_datasets(given, urls):
    import datasets
    rows = datasets.load_dataset("webdataset", data_files={"train": urls}, split="train", streaming=True)
    return DataLoader(Repeated(rows.cast_column("jpg", datasets.Image())), batch_size=None, num_workers=given.workers)


def mosaic_streaming(given, _):
    from streaming import StreamingDataset

    class Processed(StreamingDataset):
        def __iter__(self):
            for row in super().__iter__():
                yield process(row["jpg"])
    data = Processed(remote=f"s3://{given.bucket}/{given.prefix}/mds", local=os.path.join(given.folder, "mds"), shuffle=False, batch_size=1)
    return DataLoader(data, batch_size=None, num_workers=given.workers)


def energon(given, _):
    import megatron.energon as energon
    (pathlib.Path(given.folder) / "msc.yaml").write_text(json.dumps({"profiles": {"store": {"storage_provider": {
        "type": "s3", "options": {"base_path": given.bucket, "endpoint_url": given.endpoint, "region_name": "us-east-1"}},
        "credentials_provider": {"type": "S3Credentials", "options": {
            "access_key": os.environ["AWS_ACCESS_KEY_ID"], "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"]}}}}}))
    os.environ["MSC_CONFIG"] = str(pathlib.Path(given.folder) / "msc.yaml")

    class Encoder(energon.DefaultTaskEncoder):
        decoder = energon.SampleDecoder(image_decode="pil")

        @energon.stateless
        def encode_sample(self, sample):
            return process(sample.image)

        def batch(self, samples):
            return samples[0]

    workers = energon.WorkerConfig(rank=0, world_size=1, num_workers=given.workers)
    data = energon.get_train_dataset(f"msc://store/{given.prefix}", worker_config=workers, batch_size=1, shuffle_buffer_size=None,
                                     max_samples_per_sequence=None, task_encoder=Encoder())
    return energon.get_loader(data)


LIBRARIES = {"webdataset": web_dataset, "datasets": hf_datasets, "streaming": mosaic_streaming, "energon": energon}


def write_mds(tars, folder):
    """The samples of tar shards as MDS shards of as many samples."""
    import tarfile

    from streaming import MDSWriter
    with MDSWriter(out=str(folder), columns={"jpg": "bytes"}, size_limit=1 << 25) as writer:
        for path in sorted(tars.glob("*.tar")):
            with tarfile.open(path) as tar:
                for member in tar:
                    if member.name.endswith(".jpg"):
                        writer.write({"jpg": tar.extractfile(member).read()})


def prepare_energon(tars):
    """Writes .nv-meta next to the tar shards."""
    subprocess.run([sys.executable, "-m", "megatron.energon.cli.main", "prepare", str(tars), "--non-interactive", "--split-ratio",
                    "1,0,0", "--sample-type", "CaptioningSample", "--field-map", '{"image": "jpg", "caption": "txt"}'],
                   check=True, stdout=subprocess.DEVNULL)


def cpu_of_all():
    sys.path.insert(0, str(ROOT / "bench"))
    from process_times import cpu_seconds
    return cpu_seconds(os.getpid())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=[*LIBRARIES, "prepare"])
    parser.add_argument("--endpoint")
    parser.add_argument("--bucket")
    parser.add_argument("--prefix")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=64)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--folder", help="prepare: of the tar shards")
    given = parser.parse_args()
    if given.library == "prepare":
        write_mds(pathlib.Path(given.folder), pathlib.Path(given.folder) / "mds")
        prepare_energon(pathlib.Path(given.folder))
        return
    torch.set_num_threads(1)
    urls = [f"{given.endpoint}/{given.bucket}/{given.prefix}/photos-{i:03d}.tar" for i in range(given.shards)]
    with tempfile.TemporaryDirectory() as given.folder:
        for number, _ in enumerate(LIBRARIES[given.library](given, urls)):
            if number + 1 == given.warmup:
                begin, cpu = time.monotonic(), cpu_of_all()
            if number + 1 == given.warmup + given.samples:
                break
        print(json.dumps({"rate": given.samples / (time.monotonic() - begin), "cpu": (cpu_of_all() - cpu) / given.samples}),
              flush=True)
        os._exit(0)  # not through the libraries' own ends, which wait for what they have fetched ahead


if __name__ == "__main__":
    main()
