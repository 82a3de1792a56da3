"""Items that a class of the user makes in Python processes: indexed, planned, served and equal to the class called directly;
and whatever the class does, only its own items are invalid or tried again."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest
from PIL import Image

import evenkeel
import jobs

sys.path.insert(0, str(jobs.ROOT / "tests" / "e2e"))
import media  # noqa: E402
import prometheus  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

NUM_SAMPLES, BATCH = 12, 4
# A picture of this width makes its process misbehave.
WIDTHS = {"good": 100, "crash": 110, "hang": 120, "leak": 130, "shape": 140, "dtype": 150, "nan": 160, "print": 170, "raise": 180,
          "names": 190, "escape": 200, "sleep": 210}
SOURCE = textwrap.dedent('''\
    import os
    import sys
    import time
    import zlib

    import numpy as np


    class Squares:
        media = {"image": {"placeholder": "<|image_pad|>", "begin": "<|vision_start|>", "end": "<|vision_end|>",
                           "fields": {"pixel_values": ("float32", ("rows", 4)), "crc": ("int64", (1, 1))}}}

        def __init__(self, folder):
            self.kept = []

        def lengths(self, item):
            return item.facts["width"] // 10, item.facts["height"] // 10

        def process(self, item):
            rows, _ = self.lengths(item)
            values = np.frombuffer(bytes(item.bytes)[: rows * 4], np.uint8).astype(np.float32).reshape(rows, 4)
            out = {"pixel_values": values, "crc": np.array([[zlib.crc32(item.bytes)]])}
            return getattr(self, NAMES.get(item.facts["width"], "good"))(out)

        def good(self, out):
            return out

        def crash(self, out):
            os._exit(3)

        def hang(self, out):
            while True:
                pass

        def sleep(self, out):
            time.sleep(1000)

        def leak(self, out):
            while True:
                self.kept.append(np.ones(1 << 20))

        def shape(self, out):
            return {**out, "pixel_values": out["pixel_values"][1:]}

        def dtype(self, out):
            return {**out, "pixel_values": out["pixel_values"].astype(np.float64)}

        def nan(self, out):
            out["pixel_values"][2, 1] = np.nan
            return out

        def print(self, out):
            print("{\\"code\\": 0, \\"lengths\\": [1, 2, 3]}", flush=True)
            os.write(1, b"x" * 70000)
            os.write(2, b"x" * 70000)
            return out

        def names(self, out):
            return {"pixels": out["pixel_values"]}

        def escape(self, out):
            """Everything that a confined process may not do."""
            import socket
            for forbidden in (lambda: open("/etc/hostname"), lambda: socket.socket(), os.fork, lambda: os.kill(os.getppid(), 9),
                              lambda: os.execv("/bin/true", ["true"])):
                try:
                    forbidden()
                except PermissionError:
                    continue
                return out
            raise ValueError("all of it was refused")


    setattr(Squares, "raise", lambda self, out: out["nothing"])


    class Augmented(Squares):
        """Lengths of the bytes, and values drawn at random."""
        media = {"image": {**Squares.media["image"], "lengths": "bytes"}}

        def lengths(self, item):
            return 1 + item.bytes[-5] % 7, 1 + item.bytes[-6] % 5

        def process(self, item):
            rows, _ = self.lengths(item)
            return {"pixel_values": np.random.normal(size=(rows, 4)).astype(np.float32), "crc": np.array([[zlib.crc32(item.bytes)]])}


''') + f"NAMES = { {width: name for name, width in WIDTHS.items()} }\n"


FILMS = textwrap.dedent('''\
    import zlib

    import numpy as np


    class Films:
        media = {"video": {"placeholder": "<|video_pad|>",
                           "fields": {"pixel_values": ("float32", ("rows", 3)), "crc": ("int64", (1, 1))}}}

        def __init__(self, folder):
            pass

        def lengths(self, item):
            return item.facts["num_frames"], 5

        def process(self, item):
            of = [item.size[0], item.size[1], item.fps]
            return {"pixel_values": np.tile(np.float32(of), (item.facts["num_frames"], 1)), "crc": np.array([[zlib.crc32(item.bytes)]])}
''')


def picture(rng, width, height):
    pixels = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 256, (height, width, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_job(folder, processor, batch, more=""):
    """A job over the shard and the checkpoint of the folder. `processor`: further keys of the section."""
    job = folder / "job.yaml"
    job.write_text(f"""\
seed: 5
index: index
datasets: [{{name: all, shards: ["all.tar"]}}]
processor: {{folder: "checkpoint", {processor}}}
batch: {{samples: {batch}}}
phases:
  - {{name: llm, ranks: "0", algorithm: none}}
  - {{name: vision, ranks: "0", algorithm: none}}
{more}""")
    return job


def write(folder, kinds, name="Squares", more=""):
    """A job over one shard; {crc: (kind, bytes)} of its pictures."""
    rng, pictures = random.Random(5), {}
    (folder / "squares.py").write_text(SOURCE)
    shutil.copytree(jobs.GOLDEN / "tokenizer", folder / "checkpoint")
    shard = media.Shard(folder / "all.tar")
    for i in range(NUM_SAMPLES):
        kind = kinds[i % len(kinds)]
        data = picture(rng, WIDTHS[kind], rng.randint(40, 90))
        pictures[zlib.crc32(data)] = (kind, data)
        shard.add(f"{i:03d}.png", data)
        shard.add(f"{i:03d}.txt", f"picture {i} of a boat".encode())
    shard.close()
    return write_job(folder, f'python: "squares:{name}", chat: plain', BATCH, more), pictures


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def run(*arguments, check=True):
    done = subprocess.run([jobs.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def index(job, *options):
    return json.loads(run("index", "--job", job, "--json", "--python", sys.executable, *options).stdout)


def items(endpoint, steps=NUM_SAMPLES // BATCH):
    """(valid, rows, output rows, crc, values) of every item of some steps; the parts are those of one rank."""
    out = []
    with evenkeel.Loader(endpoint, rank=0, num_steps=steps) as loader:
        for step in loader:
            fields, at = step.encoders["vision"], 0
            for i, valid in enumerate(fields["item_valid"]):
                out.append((bool(valid), int(fields["item_rows"][i]), int(fields["crc"][i, 0])))
            values = fields["pixel_values"]
            placeholders = sum(int((microbatch["mm_token_type_ids"] == 1).sum()) for microbatch in step.microbatches)
            out[-1] += (values, placeholders)
            del at
    return out


def served(job, *options):
    with jobs.worker(job, "--python", sys.executable, *options) as endpoint:
        return items(endpoint)


def direct(tmp_path, name, data, width, height):
    """What the class gives where nothing of Evenkeel is around it."""
    sys.path.insert(0, str(tmp_path))
    try:
        sys.modules.pop("squares", None)
        module = __import__("squares")
    finally:
        sys.path.remove(str(tmp_path))

    class Item:
        bytes, facts = data, {"width": width, "height": height}
    np.random.seed(zlib.crc32(data))
    kind = getattr(module, name)("")
    return kind.process(Item), kind.lengths(Item)


def steps_of(made):
    """Per step the items' (valid, rows, crc), and its values and number of placeholders."""
    out, now = [], []
    for item in made:
        now.append(item[:3])
        if len(item) == 5:
            out.append((now, *item[3:]))
            now = []
    return out


@pytest.mark.parametrize("name", ["Squares", "Augmented"])
def test_what_is_served_is_what_the_class_makes(tmp_path, name):
    job, pictures = write(tmp_path, ["good"], name)
    assert index(job)["samples"] == NUM_SAMPLES
    seen = set()
    for step, values, placeholders in steps_of(served(job)):
        wanted, tokens = [], 0
        for valid, rows, crc in step:
            kind, data = pictures[crc]
            width, height = struct.unpack(">II", data[16:24])
            out, (_, made_tokens) = direct(tmp_path, name, data, width, height)
            assert valid and rows == made_tokens
            wanted.append(out["pixel_values"])
            tokens += made_tokens
            seen.add(crc)
        assert np.array_equal(values, np.concatenate(wanted)) and placeholders == tokens
    assert seen == set(pictures)


def test_videos_reach_a_class_as_bytes_and_facts(tmp_path):
    (tmp_path / "films.py").write_text(FILMS)
    shutil.copytree(jobs.GOLDEN / "tokenizer", tmp_path / "checkpoint")
    shard, wanted = media.Shard(tmp_path / "all.tar"), {}
    for i, name in enumerate(["h264.mp4", "vp9.webm", "mpeg4-b.mp4", "h264-variable.mkv"]):
        path = jobs.GOLDEN / "data" / "video" / name
        shard.add(f"{i:03d}{path.suffix}", path.read_bytes())
        shard.add(f"{i:03d}.txt", b" a film")
        wanted[zlib.crc32(path.read_bytes())] = name
    shard.close()
    job = write_job(tmp_path, 'python: "films:Films", chat: plain', 1)
    assert index(job)["samples"] == len(wanted)
    seen = set()
    with jobs.worker(job, "--python", sys.executable) as endpoint, evenkeel.Loader(endpoint, rank=0, num_steps=len(wanted)) as loader:
        for step in loader:
            fields = step.encoders["vision"]
            assert list(fields["item_valid"]) == [1]
            width, height, fps = fields["pixel_values"][0]
            assert int(fields["item_rows"][0]) == 5 < len(fields["pixel_values"]) and min(width, height, fps) > 0
            seen.add(int(fields["crc"][0, 0]))
    assert seen == set(wanted)


CHATS = textwrap.dedent('''\
    import numpy as np


    class Chats:
        media = {"image": {"placeholder": "<|image_pad|>", "fields": {"pixel_values": ("float32", ("rows", 2))}}}

        def __init__(self, folder):
            pass

        def lengths(self, item):
            return 3, 4

        def process(self, item):
            return {"pixel_values": np.zeros((3, 2), np.float32)}

        def render(self, sample):
            if sample.get("tools"):
                raise ValueError("no tools here")
            out = []
            for turn in sample["messages"]:
                parts = turn["content"] if isinstance(turn["content"], list) else [{"type": "text", "text": turn["content"]}]
                text = "".join(part["text"] if part["type"] == "text" else "<|image_pad|>" for part in parts)
                trained = turn["role"] == "assistant"
                out += [(turn["role"] + ": ", False), (text, trained), ("<|im_end|>", trained)]
            return out
''')


def test_a_class_writes_chats_and_what_is_trained(tmp_path):
    tokenizer = json.loads((jobs.GOLDEN / "tokenizer" / "tokenizer.json").read_text())
    number = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    (tmp_path / "chats.py").write_text(CHATS)
    shutil.copytree(jobs.GOLDEN / "tokenizer", tmp_path / "checkpoint")
    shard, rng = media.Shard(tmp_path / "all.tar"), random.Random(2)
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}, {"role": "assistant", "content": "a boat"},
            {"role": "user", "content": "And that?"}, {"role": "assistant", "content": "Größe 船"}]
    samples = [{"messages": chat}, {"messages": chat, "tools": [{"name": "f"}]},
               {"messages": [*chat[:1], {"role": "assistant", "content": "<|im_end|>"}]}]
    for i, sample in enumerate(samples):
        shard.add(f"{i:03d}.png", picture(rng, 20, 30))
        shard.add(f"{i:03d}.json", json.dumps(sample).encode())
    shard.close()
    job = write_job(tmp_path, 'python: "chats:Chats"', 1)
    made = index(job, "--max-excluded", "90%")
    why = json.dumps(made)
    assert made["samples"] == 1, made
    assert "no tools here" in why and "spells the special token '<|im_end|>'" in why
    with jobs.worker(job, "--python", sys.executable) as endpoint, evenkeel.Loader(endpoint, rank=0, num_steps=1) as loader:
        [step] = loader
        [microbatch] = step.microbatches
        ids, labels = (np.asarray(microbatch[name]).reshape(-1) for name in ("input_ids", "labels"))
    assert list(ids).count(number["<|image_pad|>"]) == 4 and list(ids).count(number["<|im_end|>"]) == 4
    trained = labels[labels != -100]
    assert list(trained).count(number["<|im_end|>"]) == 2 and number["<|image_pad|>"] not in trained
    assert 4 < len(trained) < len(ids) - 4


def test_an_index_is_kept_until_the_source_of_the_class_changes(tmp_path):
    job, _ = write(tmp_path, ["good"])
    first = index(job)
    again = index(job)
    assert again["shards"] == {"read": 0, "unchanged": 1, "remeasured": 0, "damaged": 0} and again["digest"] == first["digest"]
    (tmp_path / "squares.py").write_text(SOURCE + "\n# another release\n")
    changed = index(job)
    assert changed["shards"]["remeasured"] == 1


BAD = {"shape": "has shape [13, 4], expected [14, 4]", "dtype": "has values of type float64, expected float32",
       "nan": "1 of 64 values are not finite", "names": "process returned ['pixels']", "raise": "KeyError: 'nothing'",
       "escape": "all of it was refused"}


def test_bad_results_are_verdicts_and_prints_reach_nobody(tmp_path):
    kinds = [*BAD, "print", "good"]
    job, pictures = write(tmp_path, kinds)
    index(job)
    bad = run("index", "--job", job, "--json", "--verify", "--python", sys.executable, check=False)
    undeliverable = {entry["sample"]: entry["detail"] for entry in json.loads(bad.stdout)["undeliverable"]}
    for i in range(NUM_SAMPLES):
        kind = kinds[i % len(kinds)]
        detail = undeliverable.get(f"all/all.tar/{i:03d}")
        assert (detail is not None) == (kind in BAD), (kind, detail)
        if detail is not None:
            assert BAD[kind] in detail
    valid = {True: 0, False: 0}
    for step, _, _ in steps_of(served(job)):
        for ok, _, crc in step:
            valid[ok] += 1
            assert not ok or pictures[crc][0] not in BAD
    assert valid[False] == sum(kinds[i % len(kinds)] in BAD for i in range(NUM_SAMPLES))


@pytest.mark.parametrize("kind,reason", [("crash", "crash"), ("hang", "cpu"), ("leak", "memory")])
def test_a_process_that_fails_is_replaced_and_blames_no_data(tmp_path, kind, reason):
    job, _ = write(tmp_path, [kind])
    index(job)
    done = run("index", "--job", job, "--verify", "--json", "--threads", "1", "--python", sys.executable, "--python-memory", "128MiB",
               "--python-cpu", "1", check=False)
    assert f'"reason":"{reason}"' in done.stderr.replace(" ", ""), done.stderr[-2000:]
    assert "Python process was replaced: " + reason in done.stdout + done.stderr


def test_kills_change_no_byte(tmp_path):
    job, _ = write(tmp_path, ["good", "print"])
    index(job)
    steps, kills, rng = 16, 0, random.Random(3)
    with jobs.worker(job, "--python", sys.executable) as endpoint:
        undisturbed = [values for _, values, _ in steps_of(items(endpoint, steps))]
    with jobs.worker(job, "--python", sys.executable) as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=steps) as loader:
            for step, values in zip(loader, undisturbed):
                processes = python_processes(tmp_path)
                # Now and then the one that forks the others.
                for pid in rng.sample(processes, min(2, len(processes))):
                    with contextlib.suppress(ProcessLookupError):  # it ended with the one that forked it
                        os.kill(pid, signal.SIGKILL)
                        kills += 1
                assert np.array_equal(step.encoders["vision"]["pixel_values"], values)
                assert step.encoders["vision"]["item_valid"].all()
    assert kills >= 5, "the steps were made before anything was killed"


def test_replaced_processes_are_counted(tmp_path):
    job, _ = write(tmp_path, ["good"])
    index(job)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = "127.0.0.1:%d" % free.getsockname()[1]
    with jobs.worker(job, "--python", sys.executable, "--threads", "1", "--metrics", metrics) as endpoint:
        items(endpoint, 1)
        assert prometheus.scrape(metrics)["evenkeel_decoder_restarts_total"].by("reason").get("killed", 0) == 0
        processes = python_processes(tmp_path)
        works = [pid for pid in processes if parent(pid) in processes]
        for pid in works:
            os.kill(pid, signal.SIGKILL)
        items(endpoint)
        assert prometheus.scrape(metrics)["evenkeel_decoder_restarts_total"].by("reason")["killed"] == len(works) > 0


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def python_processes(folder):
    """Those that run python_items.py for a job in `folder`, the one that forks the others included."""
    out = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                line = file.read()
        except (OSError, ValueError):
            continue
        if b"python_items.py" in line and str(folder).encode() in line:
            out.append(int(entry))
    return sorted(out)


@pytest.mark.parametrize("change,message", [
    ('python: "squares"', "processor.python: 'squares' is neither transformers nor package.module:Class"),
    ('python: "nowhere:Class"', "ModuleNotFoundError: No module named 'nowhere'"),
    ('python: "squares:Missing"', "has no attribute 'Missing'"),
    ('python: "squares:Squares", resampler: pil', "processor.resampler: belongs to native processors")])
def test_wrong_jobs_are_refused(tmp_path, change, message):
    job, _ = write(tmp_path, ["good"])
    job.write_text(job.read_text().replace('python: "squares:Squares"', change))
    done = run("index", "--job", job, "--python", sys.executable, check=False)
    assert done.returncode != 0 and message in done.stderr


def test_an_interpreter_that_cannot_do_it_is_named(tmp_path):
    job, _ = write(tmp_path, ["good"])
    done = run("index", "--job", job, "--python", "/nowhere/python", check=False)
    assert done.returncode != 0 and "--python /nowhere/python: is not a program" in done.stderr
    (tmp_path / "transformers.py").write_text("raise ImportError('no transformers here')\n")
    job.write_text(job.read_text().replace("squares:Squares", "transformers"))
    done = run("index", "--job", job, "--python", sys.executable, check=False)
    assert done.returncode != 0 and sys.executable in done.stderr and "--python" in done.stderr
