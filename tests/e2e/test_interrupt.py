"""Ctrl-C ends `fetch` and `index` with a message and exit code 130, and leaves nothing half done."""

import os
import pty
import shutil
import signal
import subprocess
import time

import harness
import pytest
from prometheus import scrape

SIGINT_BIT = 1 << (signal.SIGINT - 1)


def wait_for(condition, seconds=harness.DEADLINE_SECONDS):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def blocks_interrupts(pid):
    with open(f"/proc/{pid}/status") as status:
        return any(line.startswith("SigBlk:") and int(line.split()[1], 16) & SIGINT_BIT for line in status)


def sessions(worker):
    family = scrape(worker.facts["metrics"]).get("evenkeel_sessions")  # counted about once a second
    return None if family is None else family.value()


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fetch_names_the_next_step(mixed, number, code):
    with harness.Fleet(mixed / "job.yaml", 1, "--metrics", "127.0.0.1:0") as fleet:
        run = harness.Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0-1", "--steps", 1000000, "--from", 5)
        run.wait_for_lines(10)
        wait_for(lambda: sessions(fleet.workers[0]) == 2)
        run.process.send_signal(number)
        assert run.process.wait(harness.DEADLINE_SECONDS) == code
        wait_for(lambda: any("interrupted" in line for line in run.errors))
        message = next(line for line in run.errors if "interrupted" in line)
        assert "steps were complete on all ranks, the next one is step" in message
        wait_for(lambda: sessions(fleet.workers[0]) == 0)


def test_a_fetch_that_waits_for_a_worker_hears_an_interrupt(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        run = harness.Fetch(fleet.endpoints, mixed / "job.yaml", "--ranks", "0", "--steps", 1000000)
        run.wait_for_lines(4)
        fleet.workers[0].signal(signal.SIGSTOP)
        lines = len(run.lines)
        time.sleep(1)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(60) == 130, "it does not wait for --step-timeout"
        assert len(run.lines) >= lines


def test_an_interrupted_index_keeps_the_old_one_and_resumes(mixed, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(mixed, folder, ignore=shutil.ignore_patterns("index*"))
    process = subprocess.Popen([harness.binary(), "index", "--job", str(folder / "job.yaml")], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    wait_for(lambda: blocks_interrupts(process.pid))  # it loads the tokenizer now: no shard was begun
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=harness.DEADLINE_SECONDS)
    assert process.returncode == 130, errors
    assert "interrupted: not all of the work was done" in errors
    plan = harness.run("plan", "--job", folder / "job.yaml", "--step", 0, check=False)
    assert plan.returncode != 0, "there is no index"
    harness.run("index", "--job", folder / "job.yaml")
    harness.run("plan", "--job", folder / "job.yaml", "--step", 0)


def test_a_fetch_draws_its_progress_on_a_terminal_alone(mixed):
    with harness.Fleet(mixed / "job.yaml", 1) as fleet:
        command = [harness.binary(), "fetch", "--endpoints", fleet.endpoints, "--steps", "12"]
        ours, terminal = pty.openpty()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        drawn = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            drawn += piece
        os.close(ours)
        assert process.wait(60) == 0
        assert b"12/12 steps (100 %)" in drawn
        elsewhere = harness.run("fetch", "--endpoints", fleet.endpoints, "--steps", 12)
        assert "steps (" not in elsewhere.stderr
