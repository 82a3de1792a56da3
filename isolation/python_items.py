"""The Python processes of a worker: measure and produce items with code that is not Evenkeel's own.

The worker starts this file with an interpreter (isolation/python_spawner.cc). It loads the processor, describes it, and
then forks a process for each order; that process confines itself, and serves one call after another. So a process that
died is replaced within milliseconds, without importing anything again.

    python python_items.py SPEC        SPEC: {"what": "transformers", TRUSTED or "package.module:Class", "folder": DIR, "media": [NAME]}

Files that it has from the start: 3, a SOCK_SEQPACKET socket of the worker; 4, where the description is written; 5, the
program of the seccomp filter. Messages are JSON, one in each packet. Items and fields are in files that come with a call.
What is printed goes to /dev/null.

A class of the user:

    class Squares:
        media = {"image": {"placeholder": "<image>", "lengths": "facts", "fields": {"pixel_values": ("float32", ("rows", 3, 8, 8))}}}
        def __init__(self, folder): ...
        def lengths(self, item): return rows, tokens
        def process(self, item): return {"pixel_values": array}
        def render(self, sample): return [(text, trained), ...]      # optional
"""

import ctypes
import gc
import hashlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import platform
import random
import resource
import signal
import socket
import sys
import traceback
import zlib

SOCKET, DESCRIPTION, FILTER = 3, 4, 5
MAX_MESSAGE = 128 << 10
PAGE = 4096
EXIT_NO_MEMORY = 86  # isolation/decoder_sandbox.h
# Numbers of absl::StatusCode.
OK, INVALID, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 3, 8, 12, 13, 14
DTYPES = ("uint8", "int32", "int64", "float32", "bfloat16", "float64")
TRUSTED = "transformers:trust_remote_code"  # which runs code of the checkpoint's repository, too
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
TEXT_FIELDS = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "position_ids"}
# Sizes of pictures by which the shapes of a processor's outputs are found: flat, tall, small, large, square.
PROBED_SIZES = ((640, 480), (480, 640), (300, 200), (97, 211), (1400, 500), (500, 1300), (64, 64), (1024, 1024), (1900, 1150))
PROBED_SECONDS = (1.0, 2.5, 0.3, 11.0)
# Of videos: width, height, frames, frames a second.
PROBED_VIDEOS = ((320, 180, 90, 25.0), (64, 48, 40, 8.0), (48, 64, 64, 10.0), (97, 211, 33, 24.0), (56, 56, 12, 4.0), (240, 100, 200, 12.5))

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Refused(Exception):
    """The item is bad, by counted work; the same on every machine."""


class Item:
    """What a processor gets: `medium`, `suffix`, `facts` (width, height, rotation, num_frames, num_samples, ...), and `bytes`
    where they are read. `seed` follows from the bytes alone: the random generators of Python, NumPy and torch begin with it."""

    def __init__(self, medium, suffix, facts, data):
        self.medium, self.suffix, self.facts, self.bytes = medium, suffix, facts, data
        self.seed = zlib.crc32(data) if data is not None else 0

    @property
    def size(self):
        """(width, height) of a picture after EXIF's rotation."""
        sides = self.facts["width"], self.facts["height"]
        return sides[::-1] if self.facts["rotation"] % 180 else sides

    def image(self):
        """The picture as transformers.image_utils.load_image has it: turned upright, RGB."""
        from PIL import Image, ImageOps
        return ImageOps.exif_transpose(Image.open(io.BytesIO(self.bytes))).convert("RGB")

    @property
    def fps(self):
        """The average frames a second of a video."""
        return self.facts["fps_num"] / max(1, self.facts["fps_den"])

    def video(self, indices=None):
        """Frames of the video by torchcodec, all or those with these numbers: a uint8 tensor [frames, 3, height, width]."""
        return decoded_frames(self.bytes, range(self.facts["num_frames"]) if indices is None else indices)

    def audio(self, rate):
        """The clip as float32 of one channel at `rate`, as long as its facts say."""
        import numpy
        samples = decoded_audio(self.bytes, rate)
        wanted = num_samples(self.facts, rate)
        out = numpy.zeros(wanted, numpy.float32)
        out[: min(wanted, len(samples))] = samples[:wanted]
        return out


def num_samples(facts, rate):
    """At `rate`, rounded up."""
    return max(1, -(-facts["num_samples"] * rate // max(1, facts["sample_rate"])))


def decoded_audio(data, rate):
    from torchcodec.decoders import AudioDecoder
    return AudioDecoder(data, sample_rate=rate, num_channels=1).get_all_samples().data[0].numpy()


def decoded_frames(data, indices):
    """As transformers' own loader decodes them."""
    from torchcodec.decoders import VideoDecoder
    decoder = VideoDecoder(data, seek_mode="exact", num_ffmpeg_threads=1)
    return decoder.get_frames_at(indices=[int(i) for i in indices]).data.contiguous()


# ---- Outputs ----


def as_array(value):
    """A NumPy array of a processor's output for one item; bfloat16 stays a tensor."""
    import numpy
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if hasattr(value, "detach"):
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            return value
        value = value.numpy()
    return numpy.ascontiguousarray(value)


def dtype_of(array):
    name = str(array.dtype).removeprefix("torch.")
    return "uint8" if name == "bool" else name


class Layout:
    """How outputs of one medium become fields: found from outputs for several sizes.

    `rows`: axis 0 is an item's rows. `item`: the same shape for every item. `flat`: shapes vary in more than that; the values
    in their order, a fixed number of them in each row, and the shape as a field of its own.
    """

    def __init__(self, outputs):
        first = outputs[0]
        self.fields = []
        shapes = {name: [tuple(output[name].shape) for output in outputs] for name in first}
        for output in outputs:
            if set(output) != set(first) or any(dtype_of(output[n]) != dtype_of(first[n]) for n in first):
                raise ValueError(f"outputs differ in names or types: {sorted(first)} and {sorted(output)}")
        varying = [name for name in first if len(set(shapes[name])) > 1]
        rows = [shapes[name][0][:1] for name in first]
        same_rows = all(len({shape[1:] for shape in shapes[n]}) == 1 and shapes[n][0] for n in varying) and all(
            len({shapes[n][i][:1] for n in varying}) == 1 for i in range(len(outputs))) if varying else False
        self.unit, self.constant_rows = None, 1
        if not varying and len(set(rows)) == 1 and rows[0] and rows[0][0] > 1:
            varying, same_rows = list(first), True
        if varying and not same_rows:
            counts = {name: [count(shape) for shape in shapes[name]] for name in varying}
            self.unit = min(varying, key=lambda name: counts[name][0])
            for name in varying:
                quotients = {divmod(own, unit) for own, unit in zip(counts[name], counts[self.unit])}
                if len(quotients) != 1 or next(iter(quotients))[1]:
                    raise ValueError(f"{name}: its number of values is not a multiple of that of {self.unit}")
        for name in first:
            shape = shapes[name][0]
            if name not in varying:
                item = shape[1:] if shape[:1] == (1,) else shape
                self.add(name, dtype_of(first[name]), False, item, "item", name)
            elif same_rows:
                self.add(name, dtype_of(first[name]), True, shape[1:], "rows", name)
            else:
                each = count(shape) // count(shapes[self.unit][0])
                self.add(name, dtype_of(first[name]), True, () if each == 1 else (each,), "flat", name)
                self.add(f"{name}_shape", "int64", False, (len(shape),), "shape", name)

    def add(self, name, dtype, per_row, trailing, kind, source):
        if dtype not in DTYPES:
            raise ValueError(f"{name}: values of type {dtype} are not supported; these are: {', '.join(DTYPES)}")
        self.fields.append({"name": name, "dtype": dtype, "per_row": per_row, "trailing": list(trailing), "kind": kind, "source": source})

    def rows(self, output):
        for field in self.fields:
            if field["kind"] == "rows":
                return output[field["source"]].shape[0]
        return count(output[self.unit].shape) if self.unit else 1

    def arrays(self, output):
        """The fields' arrays, in order."""
        import numpy
        return [numpy.array(output[f["source"]].shape, numpy.int64) if f["kind"] == "shape" else output.get(f["source"])
                for f in self.fields]


def count(shape):
    out = 1
    for extent in shape:
        out *= extent
    return out


def checked(field, array, rows):
    """The array's memory, after its type, number of values and finiteness are those of the field."""
    import numpy
    name = field["name"]
    if array is None:
        raise Refused(f"{name}: the processor returned no such array")
    array = as_array(array)
    if dtype_of(array) != field["dtype"]:
        raise Refused(f"{name}: has values of type {dtype_of(array)}, expected {field['dtype']}")
    shape = tuple(array.shape)
    wanted = ((rows,) if field["per_row"] else (1,)) + tuple(field["trailing"])
    loose = field.get("kind") in ("flat", "shape", "item")
    if shape != wanted and not (loose and count(shape) == count(wanted)):
        raise Refused(f"{name}: has shape {list(shape)}, expected {list(wanted)}")
    if field["dtype"] == "bfloat16":
        if not bool(array.isfinite().all()):
            raise Refused(f"{name}: has values that are not finite")
        import torch
        array = array.view(torch.int16).numpy()
    elif field["dtype"].startswith("float") and array.size and not numpy.isfinite([array.min(), array.max()]).all():
        raise Refused(f"{name}: {int(numpy.count_nonzero(~numpy.isfinite(array)))} of {array.size} values are not finite")
    return array


# ---- Processors ----


def code_of(folder):
    """The classes that the files of a checkpoint's folder name in its own code."""
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith("_config.json") and name != "config.json":
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            named = json.load(file).get("auto_map", {})
        found += [f"{kind} in {name}: {value}" for kind, value in named.items() if "Processor" in kind or "FeatureExtractor" in kind]
    return ", ".join(found) or "no file names its class"


class OfTransformers:
    """The checkpoint's own processor, as AutoProcessor makes it; or its image processor, where there is no more. Code in the
    checkpoint's folder is run only if it is `trusted`."""

    def __init__(self, folder, media, trusted):
        import torch
        import transformers
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        has_tokenizer = any(os.path.exists(os.path.join(folder, name)) for name in TOKENIZER_FILES)
        auto = transformers.AutoProcessor if has_tokenizer or media == ["audio"] else transformers.AutoImageProcessor
        try:
            self.processor = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
        except ValueError as error:
            if trusted or "trust_remote_code" not in str(error):
                raise
            raise Refused(f"{folder}: its processor is code of the checkpoint's repository ({code_of(folder)}), which is not run. Read it; if "
                          f"you trust it, set processor.python to {TRUSTED} in the job") from error
        self.tokenizer = getattr(self.processor, "tokenizer", None)
        self.name = f"{type(self.processor).__module__}:{type(self.processor).__qualname__}"
        self.frames = None  # of the video that is processed: a function of the numbers of frames
        self.media = {}
        for medium in sorted(media, key="video".__eq__):
            if medium == "video":
                if getattr(self.processor, "video_processor", None) is None or self.tokenizer is None:
                    continue
                self.processor.video_processor.fetch_videos = self.fetch_videos
            try:
                if medium == "video":
                    warm_up_videos()
                self.media[medium] = self.describe(medium)
            except Exception as error:
                if medium != "video" or not self.media:
                    raise
                # A phase may encode videos that the data do not have.
                print(f"{self.name}: videos are left out: {error}", file=sys.stderr)

    def fetch_videos(self, videos, sample_indices_fn=None):
        """In place of the video processor's own, which opens a file: frames of the item, and what is known of it."""
        if isinstance(videos, list):
            return list(zip(*[self.fetch_videos(video, sample_indices_fn) for video in videos]))
        import numpy
        from transformers.video_utils import VideoMetadata
        (width, height, total, fps), frames = self.frames
        metadata = VideoMetadata(total_num_frames=total, fps=fps, width=width, height=height, duration=total / fps,
                                 video_backend="torchcodec")
        chosen = numpy.arange(total) if sample_indices_fn is None else sample_indices_fn(metadata=metadata)
        metadata.frames_indices = chosen
        return frames(chosen), metadata

    def feature_rate(self):
        return (getattr(self.processor, "feature_extractor", None) or self.processor.audio_processor).sampling_rate

    def call(self, medium, value, token):
        """{name: array} of the media's fields, and the ids of what stands for the item in a text."""
        words = {"image": "images", "audio": "audio", "video": "videos"}
        if medium == "video":
            self.frames, value = value, "item"
        if self.tokenizer is None:
            out, ids = self.processor(images=value, return_tensors="pt"), []
        else:
            more = {"sampling_rate": self.feature_rate()} if medium == "audio" else {}
            out = self.processor(text=[token], **{words[medium]: [value]}, return_tensors="pt", add_special_tokens=False, **more)
            ids = [int(i) for i in as_array(out["input_ids"]).reshape(-1)]
        text = TEXT_FIELDS | set(getattr(self.tokenizer, "model_input_names", ()))
        return {name: as_array(out[name]) for name in out.keys() if name not in text}, ids

    def blank(self, medium, size):
        if medium == "image":
            from PIL import Image
            return Image.new("RGB", size, (127, 127, 127))
        if medium == "video":
            import torch
            width, height = size[:2]
            return size, lambda chosen: torch.full((len(chosen), 3, height, width), 127, dtype=torch.uint8)
        import numpy
        return numpy.zeros(size, numpy.float32)

    def tokens(self, medium):
        """(token of the chat template, placeholder, its id) by what the processor makes of candidates."""
        if self.tokenizer is None:
            return "", "", None
        placeholder = getattr(self.processor, f"{medium}_token_id", None)
        if placeholder is None:
            name = getattr(self.processor, f"{medium}_token", None) or getattr(self.tokenizer, f"{medium}_token", None)
            placeholder = self.tokenizer.convert_tokens_to_ids(str(name)) if name else None
        if placeholder is None:
            raise ValueError(f"{self.name} names no {medium}_token, so its place in a text is unknown")
        first = {"image": "boi_token", "audio": "boa_token", "video": "video_start_token"}[medium]
        problems = []
        for source in (f"{medium}_token", first):
            token = getattr(self.processor, source, None) or getattr(self.tokenizer, source, None)
            if token is None:
                continue
            try:
                _, ids = self.call(medium, self.blank(medium, self.probes(medium)[0]), str(token))
            except Exception as error:
                problems.append(f"{token}: {error}")
                continue
            # Some expand one token to many of another one.
            number = placeholder if placeholder in ids else max(ids, key=ids.count, default=None)
            if number is not None and (number == placeholder or (ids.count(number) > 1 and number in self.tokenizer.added_tokens_decoder)):
                return str(token), self.tokenizer.convert_ids_to_tokens(number), number
            problems.append(f"{token}: becomes {len(ids)} tokens, of which none is an added one and repeated")
        raise ValueError(f"{self.name} makes no placeholders of a {medium}: {'; '.join(problems)[:500]}")

    def probes(self, medium):
        if medium == "audio":
            return [int(seconds * self.feature_rate()) for seconds in PROBED_SECONDS]
        return PROBED_SIZES if medium == "image" else PROBED_VIDEOS

    def describe(self, medium):
        token, placeholder, number = self.tokens(medium)
        sizes = self.probes(medium)
        made = [self.call(medium, self.blank(medium, size), token) for size in sizes]
        out = {"token": token, "number": number, "layout": Layout([output for output, _ in made]), "placeholder": placeholder}
        out["counts"] = self.counts_agree(medium, sizes, made, out)
        return out

    def runs(self, ids, number):
        """[[ids before], placeholders] of a text's ids."""
        runs, before, rows = [], [], 0
        for i in ids:
            if i == number:
                rows += 1
                continue
            if rows:
                runs.append([before, rows])
                before, rows = [], 0
            before.append(i)
        runs.append([before, rows])
        return [run for run in runs if run[0] or run[1]]

    def counts_agree(self, medium, sizes, made, stated):
        """Whether _get_num_multimodal_tokens gives what the processor makes, and only the number of placeholders varies: then
        nothing is processed to find lengths. The tokens around the placeholders, or None."""
        if not hasattr(self.processor, "_get_num_multimodal_tokens") or self.tokenizer is None:
            return None
        around = set()
        for size, (output, ids) in zip(sizes, made):
            try:
                counted = self.counted(medium, size)
            except Exception:
                return None
            if counted != (stated["layout"].rows(output), ids.count(stated["number"])):
                return None
            runs = self.runs(ids, stated["number"])
            ends = runs[1][0] if len(runs) == 2 and not runs[1][1] else []
            if len(runs) > 1 and not ends:
                return None
            around.add((tuple(runs[0][0]), tuple(ends)))
        return around.pop() if len(around) == 1 else None

    def counted(self, medium, size):
        """(rows, placeholders)"""
        if medium != "image":
            raise ValueError("pictures only")
        counts = self.processor._get_num_multimodal_tokens(image_sizes=[size[::-1]])
        return int(counts["num_image_patches"][0]), int(counts["num_image_tokens"][0])

    # The interface of all processors here.

    def fields(self, medium):
        return self.media[medium]["layout"].fields

    def description(self, medium):
        stated = self.media[medium]
        return {"placeholder": stated["placeholder"], "in_template": stated["token"], "begin": "", "end": "", "stored": False}

    def size_of(self, item):
        if item.medium == "video":
            if not item.facts["num_frames"] or not item.facts["fps_num"]:
                raise Refused("a video without frames or without a frame rate")
            return (*item.size, item.facts["num_frames"], item.fps)
        return item.size if item.medium == "image" else num_samples(item.facts, self.feature_rate())

    def lengths(self, item):
        stated, size = self.media[item.medium], self.size_of(item)
        if stated["counts"] is not None:
            rows, tokens = self.counted(item.medium, size)
            before, after = stated["counts"]
            return tokens, rows, tokens, [[list(before), tokens]] + ([[list(after), 0]] if after else [])
        output, ids = self.call(item.medium, self.blank(item.medium, size), stated["token"])
        rows, tokens = stated["layout"].rows(output), ids.count(stated["number"])
        return tokens or rows, rows, tokens, self.runs(ids, stated["number"])

    def arrays(self, item, blank):
        stated = self.media[item.medium]
        if blank:
            value = self.blank(item.medium, self.size_of(item))
        elif item.medium == "video":
            value = self.size_of(item), item.video
        else:
            value = item.image() if item.medium == "image" else item.audio(self.feature_rate())
        output, _ = self.call(item.medium, value, stated["token"])
        return stated["layout"].arrays(output)


class OfUser:
    """A class of the user."""

    def __init__(self, name, folder, media):
        sys.path.insert(0, os.getcwd())
        module, _, attribute = name.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        self.kind, self.name = kind, name
        self.code = kind(folder)
        self.media = {}
        for medium in media:
            stated = dict(kind.media).get(medium)
            if stated is None:
                continue
            wrong = set(stated) - {"placeholder", "begin", "end", "in_template", "lengths", "fields"}
            if wrong:
                raise ValueError(f"{name}.media[{medium!r}]: unknown keys {sorted(wrong)}")
            if stated.get("lengths", "facts") not in ("facts", "bytes"):
                raise ValueError(f"{name}.media[{medium!r}]['lengths']: is {stated['lengths']!r}, expected 'facts' or 'bytes'")
            fields = []
            for field, (dtype, shape) in stated["fields"].items():
                if dtype not in DTYPES:
                    raise ValueError(f"{name}: field {field}: unknown type {dtype!r}; these are: {', '.join(DTYPES)}")
                if not shape or shape[0] not in ("rows", 1) or not all(isinstance(e, int) and e > 0 for e in shape[1:]):
                    raise ValueError(f"{name}: field {field}: shape {shape!r} is not ('rows' or 1, and positive numbers)")
                fields.append({"name": field, "dtype": dtype, "per_row": shape[0] == "rows", "trailing": list(shape[1:])})
            self.media[medium] = {**stated, "fields": fields}

    def render(self, sample):
        return self.code.render(sample)

    def fields(self, medium):
        return self.media[medium]["fields"]

    def description(self, medium):
        stated = self.media[medium]
        return {"placeholder": stated.get("placeholder", ""), "in_template": stated.get("in_template", ""),
                "begin": stated.get("begin", ""), "end": stated.get("end", ""), "stored": stated.get("lengths", "facts") == "bytes"}

    def lengths(self, item):
        given = tuple(int(n) for n in self.code.lengths(item))
        if len(given) not in (2, 3) or min(given) < 0 or max(given) >= 1 << 31:
            raise Refused(f"lengths: {given}, expected (rows, tokens) or (rows, tokens, cost), from 0 to 2^31 - 1")
        rows, tokens = given[:2]
        return (given[2] if len(given) == 3 else tokens or rows), rows, tokens, []

    def arrays(self, item, blank):
        stated = self.media[item.medium]
        if blank:
            if not hasattr(self.code, "blank"):
                return None
            made = self.code.blank(item)
        else:
            made = self.code.process(item)
        names = [field["name"] for field in stated["fields"]]
        if not isinstance(made, dict) or set(made) != set(names):
            found = sorted(made) if isinstance(made, dict) else type(made).__name__
            raise Refused(f"process returned {found}, expected a dict of {sorted(names)}")
        return [made[name] for name in names]


def load(spec):
    if spec["what"] in ("transformers", TRUSTED):
        return OfTransformers(spec["folder"], spec["media"], trusted=spec["what"] == TRUSTED)
    return OfUser(spec["what"], spec["folder"], spec["media"])


def warm_up_videos():
    """A film of three frames without compression."""
    header, frame = b"YUV4MPEG2 W16 H16 F8:1 Ip A1:1 C420jpeg\n", b"FRAME\n" + bytes(16 * 16 * 3 // 2)
    decoded_frames(header + frame * 3, [0, 2])


def warm_up(processor):
    """Loads what packages load at the first use, since a confined process may open no file."""
    if isinstance(processor, OfUser) and "video" in processor.media and importlib.util.find_spec("torchcodec"):
        warm_up_videos()
    try:
        from PIL import Image, ImageOps
    except ImportError:
        return
    Image.init()
    for form in ("PNG", "JPEG", "WEBP"):
        out = io.BytesIO()
        picture = Image.new("RGB", (9, 7))
        exif = picture.getexif()
        exif[0x0112] = 6
        try:
            picture.save(out, form, exif=exif)
        except KeyError:  # built without this format
            continue
        ImageOps.exif_transpose(Image.open(io.BytesIO(out.getvalue()))).convert("RGB")
    if isinstance(processor, OfTransformers) and "audio" in processor.media:
        import wave
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(bytes(1600))
        decoded_audio(out.getvalue(), processor.feature_rate())


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def versions(processor, spec):
    """[(key, value)] of what values depend on."""
    from importlib import metadata
    out = [("python", platform.python_version())]
    for package in ("transformers", "tokenizers", "torch", "torchvision", "torchcodec", "numpy", "pillow"):
        try:
            out.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    if isinstance(processor, OfUser):
        out.append(("source", file_digest(inspect.getsourcefile(processor.kind))))
        out += [(str(key), str(value)) for key, value in getattr(processor.kind, "versions", {}).items()]
    elif os.path.isdir(spec["folder"]):
        for name in sorted(os.listdir(spec["folder"])):
            path = os.path.join(spec["folder"], name)
            # Configuration, tokenizer and templates; never weights.
            if name.endswith((".json", ".jinja", ".py", ".txt", ".model")) and os.path.isfile(path) and not name.endswith(".index.json"):
                out.append((f"file.{name}", file_digest(path)))
    return out


def description(processor, spec):
    return {"name": processor.name, "renders": isinstance(processor, OfUser) and hasattr(processor.code, "render"), "interpreter": sys.executable, "versions": versions(processor, spec),
            "media": [{"medium": medium, **processor.description(medium),
                       "fields": [{key: field[key] for key in ("name", "dtype", "per_row", "trailing")} for field in processor.fields(medium)]}
                      for medium in processor.media]}


# ---- Calls ----


class Mapped:
    """A range of a file in memory."""

    def __init__(self, fd, offset, size, writable):
        self.skipped = offset % PAGE
        self.size, self.length = size, self.skipped + size
        self.address = None
        if size == 0:
            return
        protection = 3 if writable else 1  # PROT_READ, PROT_WRITE
        flags = 0x8001 if writable else 1  # MAP_SHARED; MAP_POPULATE, since each page is written, and would be a fault
        self.address = libc.mmap(None, self.length, protection, flags, fd, offset - self.skipped)
        if self.address in (None, ctypes.c_void_p(-1).value):
            raise MemoryError("cannot map shared memory")

    def bytes(self):
        return ctypes.string_at(self.address + self.skipped, self.size) if self.size else b""

    def fill(self, array):
        if array is None:
            ctypes.memset(self.address + self.skipped, 0, self.size)
            return
        if array.nbytes != self.size:
            raise Refused(f"{array.nbytes} bytes where the plan has {self.size}")
        ctypes.memmove(self.address + self.skipped, array.ctypes.data, self.size)

    def close(self):
        if self.address is not None:
            libc.munmap(self.address, self.length)
            self.address = None


def seed(number):
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        # That of the CPU: torch.manual_seed also writes down the stack for devices that are not there, which takes
        # milliseconds.
        sys.modules["torch"].default_generator.manual_seed(number)


def measure(processor, call, mapped):
    item = Item(call["medium"], call["suffix"], call["facts"], mapped[0].bytes() if mapped else None)
    seed(item.seed)
    cost, rows, tokens, runs = processor.lengths(item)
    return {"lengths": [int(cost), int(rows), int(tokens)], "runs": runs}


def produce(processor, call, mapped):
    blank = call["work"] == "blank"
    item = Item(call["medium"], call["suffix"], call["facts"], None if blank else mapped[0].bytes())
    seed(item.seed)
    arrays = processor.arrays(item, blank)
    outputs = mapped[1:]
    fields = processor.fields(item.medium)
    if arrays is None:
        arrays = [None] * len(fields)
    else:
        arrays = [checked(field, array, call["planned"][1]) for field, array in zip(fields, arrays)]
    for field, array, output in zip(fields, arrays, outputs):
        output.fill(None if blank and (array is None or array.dtype.kind == "f" or field["dtype"] == "bfloat16") else array)
    return {}


def render(processor, call, mapped):
    """A sample as the class writes it: what is trained in bytes of the text."""
    data = mapped[0].bytes()
    seed(zlib.crc32(data))
    parts, trained, at = [], [], 0
    pieces = processor.render(json.loads(data))
    if not isinstance(pieces, (list, tuple)):
        raise Refused(f"render returned {type(pieces).__name__}, expected a list of (text, trained)")
    for piece in pieces:
        if not isinstance(piece, (list, tuple)) or len(piece) != 2 or not isinstance(piece[0], str) or not isinstance(piece[1], (bool, int, float)):
            raise Refused(f"render returned {str(piece)[:80]!r} among its parts, expected (text, trained)")
        text, weight = piece[0].encode(), float(piece[1])
        if not 0 <= weight <= 1e6:
            raise Refused(f"render returned the weight {weight}, expected 0 to 1e6")
        if text and weight:
            if trained and trained[-1][1:] == [at, weight]:
                trained[-1][1] = at + len(text)
            else:
                trained.append([at, at + len(text), weight])
        parts.append(text)
        at += len(text)
    text = b"".join(parts).decode()
    size = len(json.dumps([text, trained], ensure_ascii=False).encode())
    if size > MAX_MESSAGE - PAGE:
        raise Refused(f"render returned {at} bytes of text, {size} with what is trained; at most {MAX_MESSAGE - PAGE} are taken")
    return {"text": text, "trained": trained}


def is_of_memory(error):
    return isinstance(error, MemoryError) or (isinstance(error, (RuntimeError, OSError)) and (
        "can't allocate memory" in str(error) or "Cannot allocate memory" in str(error)))


def answer(processor, call, files):
    mapped = []
    try:
        ranges = ([(call["input"], False)] if "input" in call else []) + [(r, True) for r in call.get("fields", ())]
        for (offset, size), writable in ranges:
            mapped.append(Mapped(files[-1] if writable else files[0], offset, size, writable))
        for fd in files:
            os.close(fd)  # before the first byte of the item is read
        files.clear()
        work = {"measure": measure, "render": render}.get(call["work"], produce)
        if call["work"] == "blank":
            mapped.insert(0, None)
        made = work(processor, call, mapped)
        return {"code": OK, **made}
    except Refused as error:
        return {"code": INVALID, "message": str(error)}
    except (ImportError, PermissionError, ConnectionError, TimeoutError, BlockingIOError) as error:
        # Nothing of this is the item's: a file, a module or a network that a confined process may not open.
        return {"code": INTERNAL, "message": f"a confined process may not do this: {type(error).__name__}: {error}"}
    except NotImplementedError as error:
        return {"code": UNIMPLEMENTED, "message": f"{error}"}
    except Exception as error:
        if is_of_memory(error):
            os._exit(EXIT_NO_MEMORY)
        return {"code": INVALID, "message": f"{type(error).__name__}: {error}{where(error)}"}
    finally:
        for fd in files:
            os.close(fd)
        for one in mapped:
            if one is not None:
                one.close()


def where(error):
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


# ---- Processes ----


def send(link, message):
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    if len(data) > MAX_MESSAGE:
        data = json.dumps({"number": message.get("number", 0), "code": INTERNAL, "message": f"a reply of {len(data)} bytes; at most {MAX_MESSAGE} are sent"}).encode()
    link.sendmsg([data])  # which a confined process may call


def confine(memory_bytes, program):
    """Takes all rights that processing does not need from this process."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory_bytes,) * 2)
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if not program:
        return  # a build with sanitizers

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    loaded = Program(len(program) // 8, program)
    if libc.prctl(22, 2, ctypes.byref(loaded), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp")


def serve(link, processor, memory_bytes, program):
    """The whole life of a process that works on items."""
    try:
        confine(memory_bytes, program)
    except OSError as error:
        send(link, {"code": 9, "message": f"cannot confine a Python process: {error}"})
        os._exit(1)
    send(link, {"code": OK})
    while True:
        data, files, _, _ = socket.recv_fds(link, MAX_MESSAGE, 4)
        if not data:
            os._exit(0)
        try:
            call = json.loads(data)
            send(link, {"number": call["number"], **answer(processor, call, list(files))})
        except MemoryError:
            os._exit(EXIT_NO_MEMORY)


def fork(files, processor, memory_bytes, program):
    own = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != own:
            os._exit(1)
        os.dup2(files[0], SOCKET)
        os.closerange(SOCKET + 1, 1024)
        serve(socket.socket(fileno=SOCKET), processor, memory_bytes, program)
    finally:
        os._exit(1)


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ProcessLookupError, ChildProcessError):
        return signal.SIGKILL


def obey(link, processor, memory_bytes, program):
    """Forks and ends processes on order, until the worker is gone."""
    children = set()
    while True:
        data, files, _, _ = socket.recv_fds(link, MAX_MESSAGE, 4)
        if not data:
            break
        order = json.loads(data)
        if order.get("end"):
            children.discard(order["end"])
            send(link, {"status": int(end(order["end"]))})
        else:
            try:
                pid = fork(files, processor, memory_bytes, program)
                children.add(pid)
                send(link, {"pid": pid})
            except OSError as error:
                send(link, {"pid": -1, "message": str(error)})
        for fd in files:
            os.close(fd)
    for pid in children:
        end(pid)


def main():
    spec = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 32))  # signals to the worker's group are for the worker
    link = socket.socket(fileno=SOCKET)
    try:
        processor = load(spec)
        warm_up(processor)
        with os.fdopen(DESCRIPTION, "w", encoding="utf-8") as file:
            json.dump(description(processor, spec), file)
        with os.fdopen(FILTER, "rb") as file:
            program = file.read()
    except BaseException as error:
        send(link, {"code": INVALID, "message": f"{type(error).__name__}: {str(error)[:2000]}{where(error)}"})
        return 1
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 2)  # from here on nobody reads it
    os.close(nothing)
    seed(0)  # NumPy 2 imports its generators at their first use, and children may not open files
    gc.collect()
    gc.freeze()  # so that collections in children do not copy pages
    send(link, {"code": OK})
    obey(link, processor, spec["memory_bytes"], program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
