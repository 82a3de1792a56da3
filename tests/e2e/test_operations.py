"""What an operator relies on: health, draining, /metrics, memory, exit codes, help."""

import fcntl
import io
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import numpy as np
import pytest
from PIL import Image

import harness
import health
import media
import prometheus

METRICS = ["--metrics", "127.0.0.1:0"]
STEPS = 10
PHASES = {"llm", "vision", "audio"}
TRANSPORTS = ("memory", "ucx", "grpc")


def wait_until(what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
    return found


def event(worker, name):
    """The fields of the worker's first log line of an event; None where there is none."""
    for line in worker.log:
        if line.startswith("{") and json.loads(line)["event"] == name:
            return json.loads(line)
    return None


def test_sigterm_drains_and_loses_no_accepted_work(mixed):
    job = mixed / "job.yaml"
    slow = ["--fault-unit-delay-ms", 30, "--threads", 2]
    with harness.Fleet(job, 1) as fleet:
        expected = harness.fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", 12)
    with harness.Fleet(job, 2, *slow) as fleet:
        leaving = fleet.workers[0]
        assert [health.check(leaving.address, name) for name in ("", "evenkeel.pb.Worker")] == [health.SERVING] * 2
        run = harness.Fetch(fleet.endpoints, job, "--ranks", "0-3", "--steps", 12)
        run.wait_for_lines(4)
        leaving.process.terminate()
        draining = wait_until(lambda: event(leaving, "draining"))
        status = {health.check(leaving.address, name) for name in ("", "evenkeel.pb.Worker")}
        assert leaving.process.wait(60) == 0
        digests = run.finish()
        assert fleet.workers[1].process.poll() is None
        assert health.check(fleet.workers[1].address) == health.SERVING
    assert status == {health.NOT_SERVING}
    assert draining["open_requests"] > 0, "the test is to see work that was accepted"
    assert event(leaving, "drained")["complete"] is True
    assert (digests.steps, digests.chain) == (expected.steps, expected.chain)
    assert " 0 duplicate" in digests.summary and " 0 damaged" in digests.summary, digests.summary


def test_an_idle_worker_drains_at_once(mixed):
    worker = harness.Worker(mixed / "job.yaml")
    begin = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - begin < 20


def test_a_signal_ends_a_worker_that_has_not_started_yet(tmp_path):
    """What it waits for, here a job file that never comes, must not make it wait for its supervisor's SIGKILL."""
    job = tmp_path / "job.yaml"
    os.mkfifo(job)

    def open_once_it_is_read():
        assert process.poll() is None
        try:
            return os.open(job, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    with subprocess.Popen([harness.binary(), "serve", "--job", job], stdout=subprocess.PIPE) as process:
        held = wait_until(open_once_it_is_read)
        try:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) != 0
        finally:
            process.kill()
            os.close(held)
        assert process.stdout.read() == b""


@pytest.mark.skipif(os.geteuid() != 0 or not sys.platform.startswith("linux") or platform.machine() != "x86_64",
                    reason="gives a program to another user, whose rights it then has")
def test_a_setuid_program_does_not_restart_for_ever(tmp_path):
    program = tmp_path / "evenkeel"
    network = tmp_path / "evenkeel-network"  # `serve` becomes it
    for copy in (program, network):
        shutil.copy(pathlib.Path(harness.binary()).with_name(copy.name), copy)
    os.chown(network, 65534, -1)
    network.chmod(0o4755)
    if os.statvfs(network).f_flag & os.ST_NOSUID:
        pytest.skip("mounted with nosuid")
    done = subprocess.run([program, "serve", "--job", "missing.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "set-user-ID" in done.stderr, done.stderr


@pytest.fixture(scope="module")
def measured(mixed):
    """/metrics of a worker before and after fetches over each transport, with the fetches' summaries."""
    with harness.Fleet(mixed / "job.yaml", 1, *METRICS, *harness.TRUSTED) as fleet:
        worker = fleet.workers[0]
        before = prometheus.scrape(worker.facts["metrics"])
        done = {transport: json.loads(harness.run(
            "fetch", "--endpoints", worker.address, "--ranks", "0-3", "--steps", STEPS, "--transport", transport,
            *harness.TRUSTED, "--json", "--job", mixed / "job.yaml", "--prefetch-steps", 2).stdout) for transport in TRANSPORTS}
        time.sleep(1.5)  # gauges are set every second
        yield before, prometheus.scrape(worker.facts["metrics"]), done


def test_metrics_have_stage_durations(measured):
    _, after, _ = measured
    stages = after["evenkeel_stage_duration_seconds"].by("stage", "_count")
    assert {"plan", "read", "media", "text", "part", "send"} <= set(stages)
    assert all(stages[name] > 0 for name in ("plan", "read", "media", "text", "part", "send")), stages


def test_metrics_count_samples_tokens_and_bytes(mixed, measured):
    before, after, done = measured
    plans = [json.loads(harness.run("plan", "--job", mixed / "job.yaml", "--step", step, "--json").stdout)
             for step in range(STEPS)]
    made = after["evenkeel_samples_total"].value(valid="true")
    assert 16 * STEPS <= made <= 16 * STEPS * len(TRANSPORTS), "each sample once for each fetch, except for parts that were still kept"
    once = sum(sum(one["tokens_after"]) for plan in plans for one in plan["phases"] if one["phase"] == "llm")
    assert once <= after["evenkeel_tokens_total"].by("phase")["llm"] <= len(TRANSPORTS) * once
    assert set(after["evenkeel_tokens_total"].by("phase")) == PHASES
    sent = after["evenkeel_sent_bytes_total"].by("transport")
    assert set(sent) == set(done)
    for transport, summary in done.items():
        assert 0.8 * summary["bytes"] <= sent[transport] <= summary["bytes"], "all but the last part of a rank"
    assert before["evenkeel_sent_bytes_total"].by("transport") == dict.fromkeys(TRANSPORTS, 0)


def test_metrics_show_memory_requests_sessions_and_wait(measured):
    _, after, done = measured
    states = after["evenkeel_part_bytes"].by("state")
    assert {"queued", "producing", "ready", "in_flight"} == set(states)
    budget = after["evenkeel_part_budget_bytes"].value()
    assert budget == (4 << 30) - (256 << 20), "the rest is for copies in sealed memory"
    assert states["producing"] + states["ready"] + states["in_flight"] <= budget
    assert states["in_flight"] == states["producing"] == 0, "nothing is asked for any more"
    outcomes = after["evenkeel_part_requests_total"].by("outcome")
    # A consumer that leaves with its last part may be gone before the worker hears that it arrived.
    parts = sum(summary["parts"] for summary in done.values())
    assert parts - 4 * len(done) <= outcomes["sent"] <= parts
    assert sum(outcomes.values()) == sum(summary["requests"] for summary in done.values())
    assert after["evenkeel_duplicate_requests_total"].value() == 0
    assert after["evenkeel_consumer_wait_seconds_total"].value() > 0
    assert after["evenkeel_sessions"].value() == 0
    assert after["evenkeel_draining"].value() == 0


def test_metrics_show_imbalance_and_transport(measured):
    _, after, _ = measured
    ratios = after["evenkeel_load_imbalance_ratio"]
    for phase in PHASES:
        assert 1 <= ratios.value(phase=phase, when="after") <= ratios.value(phase=phase, when="before")
    transports = {dict(labels)["transport"]: dict(labels) for _, labels in after["evenkeel_transport_info"].samples}
    assert set(transports) == set(TRANSPORTS) and transports["ucx"]["device"] == "tcp/lo"
    assert all(labels["rdma"] == "false" for labels in transports.values())


def test_metrics_have_few_labels_that_do_not_grow(measured):
    _, after, _ = measured
    known = {"stage", "valid", "phase", "reason", "kind", "limit", "transport", "outcome", "when", "state", "device",
             "rdma", "version", "stream_version", "stream_job", "stream_digest", "layout_digest"}
    for family in after.values():
        assert family.name.startswith("evenkeel_"), family.name
        assert family.label_names() <= known, family.name
        assert len(family.samples) <= 300, family.name
        assert family.help


def test_metrics_count_errors_by_reason(tmp_path):

    shard = media.Shard(tmp_path / "a.tar")
    for i in range(8):
        data = media.image_bytes(random.Random(i), "png", 80, 60)
        shard.add(f"{i}.png", data if i != 3 else data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        shard.add(f"{i}.txt", b"a caption")
    shard.close()
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a.tar", 1)], ranks=2, batch="{samples: 8}")
    harness.run("index", "--job", job)
    with harness.Fleet(job, 1, *METRICS) as fleet:
        harness.fetch(fleet.endpoints, job, "--ranks", "0-1", "--steps", 1)
        worker = fleet.workers[0]
        metrics = prometheus.scrape(worker.facts["metrics"])
    assert sum(metrics["evenkeel_errors_total"].by("reason").values()) == 1
    assert metrics["evenkeel_items_total"].value(phase="vision", valid="false") == 1
    assert metrics["evenkeel_items_total"].value(phase="vision", valid="true") == 7
    named = event(worker, "invalid")
    assert named["sample"] == "a/a.tar/3"
    counted = {reason for reason, count in metrics["evenkeel_errors_total"].by("reason").items() if count}
    assert counted == {named["reason"]}


def resident_bytes(worker, what="VmHWM"):
    for line in open(f"/proc/{worker.process.pid}/status"):
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    return 0


def test_a_worker_stays_within_its_memory(mixed):
    """Two groups far apart ask for much more than the budget holds; what stays outside of it does not grow."""
    budget, rest = 48 << 20, 160 << 20
    with harness.Fleet(mixed / "job.yaml", 1, "--memory", budget, "--plan-memory", 8 << 20, *METRICS) as fleet:
        worker = fleet.workers[0]
        runs = [harness.Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0-3", "--steps", 40, "--from", first,
                              "--prefetch-steps", 16) for first in (0, 5000)]
        peak = 0
        while any(run.process.poll() is None for run in runs):
            metrics = prometheus.scrape(worker.facts["metrics"])
            if "evenkeel_part_bytes" in metrics:  # after the first second
                states = metrics["evenkeel_part_bytes"].by("state")
                peak = max(peak, states["producing"] + states["ready"] + states["in_flight"])
            time.sleep(0.2)
        received = [len(run.finish().steps) for run in runs]
        highest = resident_bytes(worker)
    assert received == [160, 160]
    assert 0 < peak <= budget
    assert highest <= budget + rest, f"{highest >> 20} MiB"


def page_faults(worker):
    """Of the process and its threads: pages that were touched for the first time."""
    return int(open(f"/proc/{worker.process.pid}/stat").read().rsplit(")", 1)[1].split()[7])


def test_progressive_photographs_decode_in_reused_memory(tmp_path):
    pictures = 6
    tile = media.photo(random.Random(1), 200, 100)
    shard = media.Shard(tmp_path / "a.tar")
    for i in range(pictures):
        out = io.BytesIO()
        Image.fromarray(np.tile(tile, (25 - 2 * i, 18 - i, 1))).save(out, "JPEG", progressive=True)
        shard.add(f"{i}.jpg", out.getvalue())
        shard.add(f"{i}.txt", b"a photograph")
    shard.close()
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a.tar", 1)], ranks=1, batch=f"{{samples: {pictures}}}",
                            microbatch="{capacity_tokens: 32768}")
    job.write_text(job.read_text().replace("max_pixels: 50176", "max_pixels: 1003520"))
    harness.run("index", "--job", job)
    with harness.Fleet(job, 1, "--threads", 1, "--memory", "64MiB") as fleet:
        for first in (0, 1, 2):
            before = page_faults(fleet.workers[0])
            harness.fetch(fleet.endpoints, job, "--ranks", "0", "--from", first, "--steps", 1)
            faults = page_faults(fleet.workers[0]) - before
    # The coefficients of the smallest picture have 2,900 pages, those of the largest 6,600.
    assert faults < pictures * 300, f"{faults} pages of {pictures} pictures"


COMMANDS = ["init", "index", "serve", "fetch", "plan", "preprocess", "show", "size", "solve", "simulate"]
OPTION = r"--[a-z][a-z0-9-]+"


def test_a_log_that_nobody_reads_stops_nothing(mixed):
    job, full = mixed / "job.yaml", 16384
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, full)
    command = [harness.binary(), "serve", "--job", job, "--listen", "127.0.0.1:0", "--verbose"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True) as process:
        os.close(writing)
        try:
            address = json.loads(process.stdout.readline())["address"]
            chains = {harness.fetch(address, job, "--ranks", "0-3", "--steps", 2).chain for _ in range(30)}
            assert len(chains) == 1
            waiting = struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, bytes(4)))[0]
            assert waiting > full / 2, "the test is to see a full pipe"
            process.terminate()
            assert process.wait(harness.DEADLINE_SECONDS) == 0, "nor does it stop the end"
        finally:
            process.kill()
            os.close(reading)


def test_every_command_explains_itself():
    everything = harness.run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", everything, re.M)
        text = harness.run(command, "--help").stdout
        assert f"Usage: evenkeel {command}" in text
        for option in re.findall(r"^  (--[a-z0-9-]+)", text, re.M):
            assert re.search(rf"^  {option}\b[^\n]*\n? +\S", text, re.M), f"{command} {option} is not explained"
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", harness.run("--version").stdout)


def test_every_command_line_of_the_documents_can_be_typed():
    """What stands behind `evenkeel COMMAND` is an option of it; an option that stands alone is one of some command."""
    options = {command: set(re.findall(OPTION, harness.run(command, "--help").stdout)) for command in COMMANDS}
    known, wrong, seen = set().union(*options.values()) | {"--version"}, [], 0
    for module in ("evenkeel.profile", "evenkeel.fit"):
        done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
        known |= set(re.findall(OPTION, done.stdout))
    for path in [harness.ROOT / "README.md", *sorted((harness.ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        for command, rest in re.findall(r"evenkeel ([a-z]+)((?: [^ `\n|]+)*)", text):
            if command in options:
                wrong += [f"{path.name}: evenkeel {command} {one}" for one in re.findall(OPTION, rest)
                          if one not in options[command]]
                seen += 1
        for one in re.findall(rf"`({OPTION})[^`]*`", text):
            if one not in known and path.name not in ("planner.md", "performance.md", "preprocess.md", "safety.md"):
                wrong.append(f"{path.name}: {one}")
    assert not wrong, wrong
    assert seen > 20


@pytest.mark.parametrize("arguments", [[], ["fetc"], ["fetch"], ["plan", "--job", "missing.yaml", "--step", 0],
                                       ["plan", "--job", "missing.yaml", "--step", "many"], ["serve", "--no-such"],
                                       ["fetch", "--endpoints", "nonsense", "--steps", 1],
                                       ["fetch", "--endpoints", "localhost:1", "--steps", 1, "--ranks", "3-1"],
                                       ["fetch", "--endpoints", "localhost:1", "--steps", 1, "--ranks", "0-3,2"],
                                       ["index", "--job", "missing.yaml"],
                                       ["fetch", "--endpoints", "localhost:1", "--steps", 1, "--ranks", "0-4096"],
                                       ["preprocess", "--processor", "missing", "--out", "x", "missing.jpg"]])
def test_bad_arguments_and_missing_files_exit_with_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = harness.run(*arguments, check=False)
    assert done.returncode == 2 and done.stderr


@pytest.mark.parametrize("arguments,message", [
    (["index", "--jbo", "job.yaml"], "evenkeel index has no option --jbo; the nearest is --job"),
    (["fetch", "--endpoint=a:1", "--steps", 1], "evenkeel fetch has no option --endpoint; the nearest is --endpoints"),
    (["serve", "--job", "x", "--tls-crt", "y"], "evenkeel serve has no option --tls-crt; the nearest is --tls-cert"),
    (["serv"], "unknown command 'serv'; the nearest is 'serve'")])
def test_a_typing_error_is_named_with_the_nearest_word(arguments, message):
    done = harness.run(*arguments, check=False)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_no_worker_exits_with_4():
    done = harness.run("fetch", "--endpoints", "127.0.0.1:1", "--steps", 1, "--connect-timeout", 0.5, check=False)
    assert done.returncode == 4 and "127.0.0.1:1" in done.stderr


def test_undeliverable_data_exits_5_with_the_exclude_line(tmp_path):
    media.write_mixed_shards(tmp_path, "a", 1, 20, seed=4)
    job = harness.write_job(tmp_path / "job.yaml", [("a", "a-000.tar", 1)], ranks=1, batch="{samples: 20}")
    harness.run("index", "--job", job)
    with harness.Fleet(job, 3) as fleet:
        shard = tmp_path / "a-000.tar"
        with open(shard, "r+b") as file:  # the same size, other bytes, behind the workers' backs
            file.seek(shard.stat().st_size // 2)
            damaged = bytes(byte ^ 1 for byte in file.read(shard.stat().st_size // 4))
            file.seek(shard.stat().st_size // 2)
            file.write(damaged)
        done = harness.run("fetch", "--endpoints", fleet.endpoints, "--steps", 1, check=False)
    assert done.returncode == 5, done.stderr
    last = done.stderr.splitlines()[-1]
    lines = re.findall(r'"(a/a-000.tar/000/\d{5})"', last)
    assert lines and "exclude" in last and "3 attempts on 3 workers" in last, last
    assert "differ from the indexed ones" in last, last


def test_attempts_that_fail_are_made_again_and_change_no_byte(mixed):
    with harness.Fleet(mixed / "job.yaml", 2) as fleet:
        expected = harness.fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0-3", "--steps", 5)
    with harness.Fleet(mixed / "job.yaml", 2, "--fault-fail-every", 11) as fleet:
        digests = harness.fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0-3", "--steps", 5)
        failures = sum(line.count("attempt_failed") for worker in fleet.workers for line in worker.log)
    assert failures > 0 and digests.chain == expected.chain


def test_a_plan_in_json_is_consistent(mixed):
    for step in (0, 7):
        plan = json.loads(harness.run("plan", "--job", mixed / "job.yaml", "--step", step, "--json").stdout)
        assert plan["step"] == step and plan["num_samples"] == len(plan["samples"]) == 16
        assert len({(one["dataset"], one["epoch"], one["index"]) for one in plan["samples"]}) == 16
        assert sum(one["loss_tokens"] for one in plan["samples"]) == plan["loss_tokens"]
        media_of = {"vision": {"image", "video"}, "audio": {"audio"}}
        for phase in plan["phases"]:
            loads = [0] * len(phase["ranks"])
            for sample in plan["samples"]:
                if phase["phase"] == "llm":
                    loads[sample["place"]["rank"]] += sample["llm_length"]
                else:
                    for item in sample["items"]:
                        if item["medium"] in media_of[phase["phase"]]:
                            loads[item["place"]["rank"]] += item["input_rows"]
            assert loads == phase["tokens_after"]
            assert sum(loads) == sum(phase["tokens_before"])
            assert phase["max_over_mean_after"] <= phase["max_over_mean_before"]
        for route in plan["routes"]:
            moved = route["rows_within_node"] + route["rows_across_nodes"]
            assert (moved > 0) == (route["most_senders"] > 0) and route["most_senders"] < len(route["ranks"])
        rows = {route["from"]: route["rows_local"] + route["rows_within_node"] + route["rows_across_nodes"]
                for route in plan["routes"]}
        for name, kinds in media_of.items():
            assert rows.get(name, 0) == sum(item["output_rows"] for sample in plan["samples"]
                                            for item in sample["items"] if item["medium"] in kinds)
    text = harness.run("plan", "--job", mixed / "job.yaml", "--step", 0).stdout
    assert "max/mean" in text and "16 samples" in text
