"""The index: atomic under SIGKILL, exclusions by the job, progress, and bad items found only when they are decoded."""

import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import harness
import media

evenkeel = pytest.importorskip("evenkeel")


def write_shards(folder, count, samples=40):
    for number in range(count):
        rng = random.Random(number)
        shard = media.Shard(folder / f"a-{number:03d}.tar")
        for i in range(samples):
            shard.add(f"{number}/{i:03d}.png", media.image_bytes(rng, "png", 60, 80))
            shard.add(f"{number}/{i:03d}.txt", b"a caption")
        shard.close()


def names_of(job):
    """The samples of step 0, as a reader of the index sees them."""
    plan = json.loads(harness.run("plan", "--job", job, "--step", 0, "--json").stdout)
    return [sample["name"] for sample in plan["samples"]]


def test_a_kill_at_any_moment_leaves_an_old_or_new_index(tmp_path):
    """The second job has one more shard and another processor, and uses the same index."""
    write_shards(tmp_path, 3)
    old = harness.write_job(tmp_path / "old.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1, batch="{samples: 4}")
    new = harness.write_job(tmp_path / "new.yaml", [("a", "a-{000..002}.tar", 1)], ranks=1, batch="{samples: 4}")
    new.write_text(new.read_text().replace("max_pixels: 50176", "max_pixels: 3200"))
    harness.run("index", "--job", old)
    begin = time.monotonic()
    harness.run("index", "--job", new)
    usual = time.monotonic() - begin
    expected_new = names_of(new)
    harness.run("index", "--job", old)
    expected_old = names_of(old)
    assert expected_old != expected_new
    rng, outcomes = random.Random(1), []
    for _ in range(20):
        shutil.rmtree(tmp_path / "index")
        harness.run("index", "--job", old)
        process = subprocess.Popen([harness.binary(), "index", "--job", str(new)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, usual))
        process.kill()
        killed = process.wait() != 0
        read = {job: harness.run("plan", "--job", job, "--step", 0, "--json", check=False) for job in (old, new)}
        seen = {job: [one["name"] for one in json.loads(done.stdout)["samples"]] for job, done in read.items()
                if done.returncode == 0}
        assert seen.get(old, expected_old) == expected_old and seen.get(new, expected_new) == expected_new
        assert seen, [done.stderr for done in read.values()]
        for done in read.values():
            assert done.returncode in (0, 2, 3, 6) and (done.returncode == 0 or "evenkeel index" in done.stderr), done.stderr
        outcomes.append((killed, new in seen))
    assert sum(killed for killed, _ in outcomes) >= 3, outcomes
    harness.run("index", "--job", new)
    assert names_of(new) == expected_new


def test_a_kill_during_the_first_index_leaves_none_or_all(tmp_path):
    write_shards(tmp_path, 2)
    rng = random.Random(2)
    for round_number in range(8):
        job = harness.write_job(tmp_path / f"job-{round_number}.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1,
                                batch="{samples: 4}", index=f"index-{round_number}")
        process = subprocess.Popen([harness.binary(), "index", "--job", str(job)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.wait()
        done = harness.run("plan", "--job", job, "--step", 0, check=False)
        assert done.returncode == 0 or "evenkeel index" in done.stderr, done.stderr
        harness.run("index", "--job", job)
        names_of(job)


def test_parts_of_an_index_survive_kills_and_merge(tmp_path):
    write_shards(tmp_path, 7)
    datasets = [("a", "a-{000..006}.tar", 1)]
    whole = harness.write_job(tmp_path / "whole.yaml", datasets, ranks=1, batch="{samples: 4}", index="whole")
    job = harness.write_job(tmp_path / "job.yaml", datasets, ranks=1, batch="{samples: 4}")
    expected = json.loads(harness.run("index", "--job", whole, "--json").stdout)
    parts = [["index", "--job", str(job), "--part", f"{number}/3", "--json"] for number in range(3)]
    begin = time.monotonic()
    counts = [json.loads(harness.run(*parts[0]).stdout)["samples"]]
    usual = time.monotonic() - begin
    rng = random.Random(3)
    for part in parts[1:]:  # killed at any moment, and then run again
        process = subprocess.Popen([harness.binary(), *part], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, usual))
        process.kill()
        process.wait()
        counts.append(json.loads(harness.run(*part).stdout)["samples"])
    done = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert done.returncode == 6, "parts alone are no index"
    merged = json.loads(harness.run("index", "--job", job, "--json").stdout)
    assert merged["digest"] == expected["digest"] and merged["samples"] == sum(counts) == expected["samples"]
    assert merged["shards"]["read"] == 0 and merged["shards"]["unchanged"] == 7
    for number in range(3):
        assert harness.run("index", "--job", job, "--part", f"{number}/3", "--verify").returncode == 0


@pytest.mark.parametrize("part", ["3/3", "1", "-1/3", "a/b", "0/0"])
def test_a_part_that_is_none_is_a_usage_error(tmp_path, part):
    write_shards(tmp_path, 1, samples=1)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-000.tar", 1)], ranks=1)
    done = harness.run("index", "--job", job, f"--part={part}", check=False)
    assert done.returncode == 2 and "--part must be K/N" in done.stderr, done.stderr


def test_an_interrupted_index_goes_on_where_it_was(tmp_path):
    write_shards(tmp_path, 12, samples=120)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-{000..011}.tar", 1)], ranks=1, batch="{samples: 4}")
    process = subprocess.Popen([harness.binary(), "index", "--job", str(job), "--threads", "1"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and \
            len(list(tmp_path.glob("index/places/*"))) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    done = json.loads(harness.run("index", "--job", job, "--json").stdout)
    assert done["shards"]["unchanged"] >= 1 and done["shards"]["read"] + done["shards"]["unchanged"] == 12


def test_a_new_shard_is_read_alone(tmp_path):
    write_shards(tmp_path, 3)
    two = harness.write_job(tmp_path / "two.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1)
    three = harness.write_job(tmp_path / "three.yaml", [("a", "a-{000..002}.tar", 1)], ranks=1)
    harness.run("index", "--job", two)
    summary = json.loads(harness.run("index", "--job", three, "--json").stdout)
    assert summary["shards"] == {"read": 1, "unchanged": 2, "remeasured": 0, "damaged": 0}
    assert summary["samples"] == 120


def columns(index):
    """The files of an index folder but `current`, which also has the times of the shards."""
    return {path.relative_to(index) for path in index.rglob("*") if path.is_file()} - {pathlib.Path("current")}


def test_pruning_leaves_what_the_index_needs_and_nothing_else(tmp_path):
    write_shards(tmp_path, 2, samples=6)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1, batch="{samples: 4}")
    harness.run("index", "--job", job)
    first = columns(tmp_path / "index")
    write_shards(tmp_path, 1, samples=7)  # another first shard
    harness.run("index", "--job", job)
    grown = columns(tmp_path / "index")
    assert first < grown, "nothing is removed without being asked"
    summary = json.loads(harness.run("index", "--job", job, "--prune", "--json").stdout)
    left = columns(tmp_path / "index")
    fresh = harness.write_job(tmp_path / "fresh.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1, batch="{samples: 4}",
                              index="fresh")
    harness.run("index", "--job", fresh)
    assert left == columns(tmp_path / "fresh") < grown
    assert summary["pruned"]["files"] == len(grown - left) and summary["samples"] == 13
    assert names_of(job) == names_of(fresh)
    again = harness.run("index", "--job", job, "--prune").stdout
    assert "pruned      0 files, 0 bytes" in again and "2 unchanged" in again


def test_progress_is_a_bar_on_terminals_only(tmp_path):
    write_shards(tmp_path, 2)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-{000..001}.tar", 1)], ranks=1)
    done = harness.run("index", "--job", job)
    assert "\r" not in done.stderr and "\x1b" not in done.stderr and "80" in done.stdout
    assert json.loads(harness.run("index", "--job", job, "--json").stdout)["samples"] == 80
    shutil.rmtree(tmp_path / "index")
    controller, terminal = pty.openpty()
    subprocess.run([harness.binary(), "index", "--job", str(job), "--json"], stdout=subprocess.DEVNULL, stderr=terminal,
                   check=True)
    os.close(terminal)
    text = os.read(controller, 65536).decode()
    os.close(controller)
    assert "\r[" in text and "2/2 shards (100 %)" in text, text


def test_the_job_excludes_exactly_the_samples_that_it_names(mixed):
    job = mixed / "job.yaml"
    wanted = json.loads(harness.run("plan", "--job", job, "--step", 0, "--json").stdout)["samples"][3]["name"]
    excluding = mixed / "job-exclude.yaml"
    excluding.write_text(job.read_text() + f"exclude:\n  - {wanted}\n")
    harness.run("index", "--job", excluding)

    def epoch(path):
        names, step = [], 0
        while step < 40:
            plan = json.loads(harness.run("plan", "--job", path, "--step", step, "--json").stdout)
            names += [one["name"] for one in plan["samples"] if one["epoch"] == 0]
            step += 1
            if all(one["epoch"] > 0 for one in plan["samples"]):
                break
        return sorted(names)

    before, after = epoch(job), epoch(excluding)
    assert before.count(wanted) == 1 and len(before) == 128
    assert after == [name for name in before if name != wanted]


def test_an_exclude_line_that_names_no_sample_is_an_error(mixed):
    job = mixed / "job-exclude-nothing.yaml"
    job.write_text((mixed / "job.yaml").read_text() + "exclude:\n  - a/a-000.tar/no-such-sample\n")
    done = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert done.returncode == 2 and "no-such-sample" in done.stderr


MASKING = """
import sys
import numpy as np, torch, torch.distributed as dist
import evenkeel, evenkeel.torch
endpoints, rank, store, steps = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
for step in evenkeel.Loader(endpoints, rank=rank, num_steps=steps):
    invalid = int((step.encoders["vision"]["item_valid"] == 0).sum()) if "item_valid" in step.encoders["vision"] else 0
    masked = evenkeel.torch.mask_labels(step)
    for microbatch, labels in zip(step.microbatches, masked):
        if labels is None:
            continue
        ends = microbatch["cu_seqlens"]
        before, after = np.asarray(microbatch["labels"]).reshape(-1), labels.numpy().reshape(-1)
        for i, (begin, end) in enumerate(zip(ends, ends[1:])):
            if (before[begin:end] != after[begin:end]).any():
                assert (after[begin:end] == -100).all()
                print("masked", *microbatch["sample_ids"][i].tolist(), flush=True)
    if invalid:
        print("invalid", invalid, "on", rank, flush=True)
"""


def test_a_damaged_photograph_masks_labels_on_another_rank(tmp_path):
    """Vision on rank 1 alone, all text on rank 0: rank 0's worker never sees the photograph."""
    pytest.importorskip("torch")
    shard = media.Shard(tmp_path / "a.tar")
    for i in range(12):
        data = media.image_bytes(random.Random(i), "jpg" if i != 5 else "png", 120, 90)
        if i == 5:
            middle = len(data) // 2
            data = data[:middle] + bytes(200) + data[middle + 200:]
        shard.add(f"{i:03d}.{'jpg' if i != 5 else 'png'}", data)
        shard.add(f"{i:03d}.txt", b"a caption of some words")
    shard.close()
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a.tar", 1)], ranks=1, batch="{samples: 4}")
    job.write_text(job.read_text().replace('name: vision, ranks: "0"', 'name: vision, ranks: "1"'))
    harness.run("index", "--job", job)
    with harness.Fleet(job, 2) as fleet:
        ranks = [subprocess.Popen([sys.executable, "-c", MASKING, fleet.endpoints, str(rank), str(tmp_path / "store"),
                                   "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        results = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(errors[-3000:] for _, errors in results)
    assert results[0][0].split("\n")[:-1] == ["masked 0 0 5"]
    assert results[1][0].split("\n")[:-1] == ["invalid 1 on 1"]


def pictures_job(folder, phases, processor=None):
    """A job over a-000.tar with the named phases; its processor is one folder for all of them."""
    path = folder / "job.yaml"
    path.write_text("\n".join([
        "name: pictures", "index: index", "datasets:", "  - {name: a, shards: [a-000.tar]}",
        f"processor: {{folder: {processor or harness.GOLDEN / 'processor' / 'qwen2-vl'}, tokenizer: {harness.GOLDEN}/tokenizer}}",
        "batch: {samples: 4}", "phases:", *[f"  - {{name: {name}, ranks: 0}}" for name in phases]]) + "\n")
    return path


def test_an_index_that_excludes_most_samples_fails_with_a_hint(tmp_path):
    """Without a phase for pictures every picture would be left out, each for a good reason."""
    write_shards(tmp_path, 1)
    phases = ["llm"]
    done = harness.run("index", "--job", pictures_job(tmp_path, phases), check=False)
    assert done.returncode == 5 and "40 of 40 samples are excluded, more than --max-excluded 5% allows" in done.stderr
    assert "digest" not in done.stdout and not (tmp_path / "index" / "current").exists()
    phases += re.findall(r"add a phase '(\w+)'", done.stdout)[:1]
    assert len(phases) == 2, done.stdout
    done = harness.run("index", "--job", pictures_job(tmp_path, phases))
    assert re.search(r"samples +40\n", done.stdout)
    before = (tmp_path / "index" / "current").read_bytes()
    failed = harness.run("index", "--job", pictures_job(tmp_path, ["llm"]), "--json", check=False)
    assert failed.returncode == 5 and json.loads(failed.stdout)["written"] is False
    assert (tmp_path / "index" / "current").read_bytes() == before, "the old index stays"
    harness.run("index", "--job", pictures_job(tmp_path, ["llm"]), "--max-excluded", "100%")


@pytest.mark.parametrize("command", ["index", "serve"])
@pytest.mark.parametrize("line,says", [("chat: lama3", "processor.chat: 'lama3' is not one of template, chatml,"),
                                       ("resampler: fast", "processor.resampler: 'fast' is not one of pil, pil13,"),
                                       ("frame_rule: unifrom", "'unifrom' is not one of qwen_vl_utils, fetch_video,")])
def test_a_word_that_names_nothing_is_an_error_of_the_job(tmp_path, command, line, says):
    """Found before a shard is read or a decoder is started, with the line of the job."""
    job = pictures_job(tmp_path, ["llm", "vision"])
    text = job.read_text().replace("processor: {", f"processor: {{{line}, ")
    job.write_text(text)
    number = 1 + text[:text.index("processor:")].count("\n")
    done = harness.run(command, "--job", job, check=False)
    assert done.returncode == 2 and f"{job}:{number}: processor." in done.stderr and says in done.stderr, done.stderr
    assert "; nearest is '" in done.stderr


@pytest.mark.parametrize("bad,bound,code", [(2, None, 0), (3, None, 5), (3, "7.5%", 0), (3, "7.4%", 5), (0, "0%", 0),
                                            (1, "0%", 5)])
def test_the_bound_on_exclusions_is_a_share_of_all_samples(tmp_path, bad, bound, code):
    write_shards(tmp_path, 1, samples=40 - bad)
    shard = media.Shard(tmp_path / "b-000.tar")
    for i in range(bad):
        shard.add(f"{i}.png", b"no picture")
        shard.add(f"{i}.txt", b"a caption")
    shard.close()
    datasets = [("a", "a-000.tar", 1), *([("b", "b-000.tar", 1)] if bad else [])]
    job = harness.write_job(tmp_path / "job.yaml", datasets, ranks=1, batch="{samples: 4}")
    done = harness.run("index", "--job", job, *(["--max-excluded", bound] if bound else []), check=False)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize("bound", ["5", "-1%", "101%", "%", "few", "nan%"])
def test_a_bound_that_is_no_percentage_is_a_usage_error(tmp_path, bound):
    write_shards(tmp_path, 1, samples=2)
    done = harness.run("index", "--job", pictures_job(tmp_path, ["llm", "vision"]), f"--max-excluded={bound}", check=False)
    assert done.returncode == 2 and "--max-excluded must be a percentage from 0% to 100%" in done.stderr


def test_nothing_is_written_where_nothing_changed(tmp_path):
    write_shards(tmp_path, 1)
    job = pictures_job(tmp_path, ["llm", "vision"])
    first = harness.run("index", "--job", job).stdout.splitlines()[-1]
    before = {path: path.stat().st_ino for path in (tmp_path / "index").rglob("*")}
    assert harness.run("index", "--job", job).stdout.splitlines()[-1] == first
    assert {path: path.stat().st_ino for path in (tmp_path / "index").rglob("*")} == before
    read_only = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"',
                 "sh", str(tmp_path / "index")]
    if os.geteuid() != 0 or subprocess.run([*read_only, "true"], capture_output=True).returncode != 0:
        pytest.skip("cannot mount a folder read-only")
    done = subprocess.run([*read_only, harness.binary(), "index", "--job", job], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["index"], ["plan", "--step", "0"], ["serve", "--listen", "127.0.0.1:0"]])
def test_a_missing_processor_folder_is_named_with_its_line(tmp_path, command):
    write_shards(tmp_path, 1, samples=4)
    harness.run("index", "--job", pictures_job(tmp_path, ["llm", "vision"]))
    job = pictures_job(tmp_path, ["llm", "vision"], processor=tmp_path / "qwen2vl")
    done = harness.run(*command, "--job", job, check=False)
    assert done.returncode == 2, done.stderr
    assert f"{job}:5: processor.vision: {tmp_path}/qwen2vl: no such folder" in done.stderr
    assert "isolation" not in done.stderr and "decoder processes" not in done.stderr
