"""The loader against a real worker: fields, ownership of memory, state, pickling, interrupts."""

import gc
import json
import os
import pickle
import signal
import subprocess
import threading

import numpy as np
import pytest
import torch

import evenkeel
import evenkeel.torch
import jobs

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader")
    jobs.write_shard(folder / "mixed.tar")
    path = jobs.write_job(folder, "two", 2, "balance_without_moving", "once_per_step",
                          f"{{capacity_tokens: {jobs.CAPACITY}}}")
    jobs.make_index(path)
    return path


@pytest.fixture(scope="module")
def endpoint(job):
    with jobs.worker(job) as address:
        yield address


def test_fields_have_the_names_types_and_shapes_of_the_models(endpoint):
    step = next(jobs.alone(endpoint, rank=0))
    microbatch = step.microbatches[0]
    tokens = microbatch["input_ids"].shape[1]
    for name in ("input_ids", "labels", "mm_token_type_ids"):
        assert microbatch[name].shape == (1, tokens) and microbatch[name].dtype == np.int64
    assert microbatch["position_ids"].shape == (4, 1, tokens)
    assert microbatch["cu_seqlens"].dtype == np.int32 and microbatch["cu_seqlens"][-1] == tokens
    vision = step.encoders["vision"]
    assert vision.dtype("pixel_values") == "u8" and vision["pixel_values"].dtype == np.float32
    rows = int(vision["image_grid_thw"].prod(1).sum())
    assert vision["pixel_values"].shape == (rows, 1176) and vision.wire("pixel_values").shape == (rows, 588)
    assert int(vision["item_rows"].sum()) == rows // 4 == step.routes["vision"].rows_in
    assert step.encoders["audio"]["input_features"].shape[1:] == (128, 3000)
    assert torch.equal(evenkeel.torch.pixels(vision), torch.from_numpy(vision["pixel_values"]))
    vision = step.loads["vision"]
    assert vision.num_ranks == 2 and vision.before.max >= vision.before.mean > 0 and vision.after.imbalance >= 1
    assert vision.tokens_after.own is not None and vision.tokens_after.all is None
    assert step.loads["llm"].tokens_after.own > 0


def test_arrays_and_tensors_outlive_step_and_loader(endpoint):
    loader = jobs.alone(endpoint, rank=1, num_steps=3, prefetch_bytes=64 << 20)
    kept, copies = [], []
    for step in loader:
        for microbatch in step.microbatches:
            tensor = evenkeel.torch.tensor(microbatch, "input_ids")
            assert tensor.data_ptr() == microbatch["input_ids"].ctypes.data, "no copy"
            kept.append(tensor)
            copies.append(tensor.clone())
    loader.close()
    del loader, step, microbatch
    gc.collect()
    assert kept and all(torch.equal(a, b) for a, b in zip(kept, copies))


def test_digests_are_those_of_fetch(endpoint, job):
    done = subprocess.run([jobs.BINARY, "fetch", "--endpoints", endpoint, "--job", str(job), "--ranks", "0-1",
                           "--steps", "3", "--digest"], capture_output=True, text=True, check=True)
    expected = [line.split() for line in done.stdout.splitlines()[:6]]
    loaders = [jobs.alone(endpoint, rank=rank, num_steps=3) for rank in range(2)]
    got = [[str(step.index), str(rank), step.digest()] for steps in zip(*loaders) for rank, step in enumerate(steps)]
    assert got == expected


def test_state_is_small_the_same_on_every_rank_and_resumes(endpoint):
    loaders = [jobs.alone(endpoint, rank=rank) for rank in range(2)]
    for loader in loaders:
        next(loader)
        next(loader)
    first, second = (loader.state_dict() for loader in loaders)
    assert first == second and first["step"] == 2 and set(first) == {"version", "step", "stream_digest", "layout_digest"}
    after = next(loaders[0])
    # Before the first step of a new loader, in the middle of a used one, and of a pickled one.
    fresh = jobs.alone(endpoint, rank=0)
    fresh.load_state_dict(dict(first, step=np.int64(first["step"])))
    assert json.loads(json.dumps(fresh.state_dict())) == first  # whatever whole number it was given
    used = loaders[0]
    used.load_state_dict(first)
    sent = pickle.loads(pickle.dumps(jobs.alone(endpoint, rank=0, first_step=2)))
    for loader in (fresh, used, sent):
        assert next(loader).digest() == after.digest()


def test_a_state_names_the_first_step_that_is_not_done(endpoint):
    loader = jobs.alone(endpoint, rank=0, wait_for_done=True)
    steps = [next(loader) for _ in range(4)]
    assert loader.state_dict()["step"] == 0
    for done, expected in [(0, 1), (2, 1), (2, 1), (1, 3), (0, 3)]:
        steps[done].done()
        assert loader.state_dict()["step"] == expected
    loader.load_state_dict(dict(loader.state_dict(), step=1))
    steps[3].done()
    assert loader.state_dict()["step"] == 1, "a step of before the state has nothing to say"
    assert next(loader).index == 1


def test_the_first_done_step_starts_the_count(endpoint):
    loader = jobs.alone(endpoint, rank=0)
    first, second = next(loader), next(loader)
    assert loader.state_dict()["step"] == 2
    first.done()
    assert loader.state_dict()["step"] == 1
    second.done()
    assert pickle.loads(pickle.dumps(loader)).state_dict()["step"] == 2


def test_the_trainers_own_step_must_be_that_of_the_data(endpoint):
    state = dict(jobs.alone(endpoint, rank=0).state_dict(), step=3)
    loader = jobs.alone(endpoint, rank=0)
    with pytest.raises(evenkeel.Mismatch, match="the trainer goes on at step 4, its data at step 3"):
        loader.load_state_dict(state, trainer_step=4)
    loader.load_state_dict(state, trainer_step=3)
    assert next(loader).index == 3


def test_the_length_is_that_of_the_iteration(endpoint):
    loader = jobs.alone(endpoint, rank=0, first_step=1, num_steps=3)
    assert len(loader) == 3
    next(loader)
    assert len(loader) == 3, "as a DataLoader's"
    loader.load_state_dict(loader.state_dict())
    assert len(loader) == 2 == len(list(loader))
    endless = jobs.alone(endpoint, rank=0)
    assert endless, "a loader is true"
    with pytest.raises(TypeError, match="num_steps was not given"):
        len(endless)


def test_a_rank_that_the_job_does_not_have_is_named(endpoint):
    with pytest.raises(evenkeel.InvalidArgument, match="rank 7 is not in the job: its phases run on ranks 0-1"):
        next(evenkeel.Loader(endpoint, rank=7))


def test_arguments_that_make_no_sense_are_refused(endpoint):
    for arguments, words in [({}, "give a job file or endpoints"), ({"source": endpoint}, "and the rank"),
                             ({"source": endpoint, "rank": 0, "worker_threads": 1}, "these run elsewhere"),
                             ({"source": endpoint, "rank": 0, "split": "eval"}, "these run elsewhere"),
                             ({"source": endpoint, "rank": 0, "prefetch": 1}, "unknown option 'prefetch'")]:
        with pytest.raises(TypeError, match=words):
            evenkeel.Loader(**arguments)


def test_a_state_of_another_stream_is_refused(endpoint):
    state = jobs.alone(endpoint, rank=0).state_dict()
    other = dict(state, stream_digest="0" * 32)
    connected = jobs.alone(endpoint, rank=0)
    connected.connect()
    for loader in (connected, jobs.alone(endpoint, rank=0)):
        with pytest.raises(evenkeel.Mismatch, match="(?i)stream digest") as caught:
            loader.load_state_dict(other)
        assert "0" * 32 in str(caught.value) and state["stream_digest"] in str(caught.value)
        assert next(loader).index == 0, "it is as it was"


def test_what_is_no_state_is_refused(endpoint):
    good = jobs.alone(endpoint, rank=0).state_dict()
    without_digest = {key: value for key, value in good.items() if key != "stream_digest"}
    for what, named in [(without_digest, "stream_digest"), (dict(good, step=-1), "step"), (dict(good, step="3"), "step"),
                        (None, "NoneType")]:
        loader = jobs.alone(endpoint, rank=0)
        with pytest.raises(ValueError, match=named):
            loader.load_state_dict(what)
        assert next(loader).index == 0, "it is as it was"


def test_a_changed_layout_is_logged(endpoint, caplog):
    state = jobs.alone(endpoint, rank=0).state_dict()
    loader = jobs.alone(endpoint, rank=0)
    loader.load_state_dict(dict(state, layout_digest="1" * 32))
    assert "the layout changed since the checkpoint" in caplog.text
    assert next(loader).index == state["step"]


def test_num_steps_counts_from_first_step(endpoint):
    loader = jobs.alone(endpoint, rank=0, first_step=4, num_steps=2)
    assert [step.index for step in loader] == [4, 5]
    assert list(loader) == []
    assert loader.stats()["steps"] == 2


def test_an_interrupt_ends_the_wait(job):
    """A worker that never answers the head step must not make the process deaf."""
    with jobs.worker(job) as address:
        loader = jobs.alone(address, rank=0, prefetch_steps=1)
        next(loader)
        loader._consumer.seek(10 ** 15)  # far from what was prefetched
    # The worker is gone; without an interrupt the loader would wait for its step_timeout of five minutes.
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    # A process that was started in the background ignores the signal until it says otherwise.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(loader)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_run_while_a_step_is_awaited(job):
    with jobs.worker(job) as address:
        loader = jobs.alone(address, rank=0, prefetch_steps=1, step_timeout=1)
        next(loader)
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.01):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    with pytest.raises(evenkeel.DeadlineExceeded, match="did not arrive within 1s"):
        while True:
            next(loader)
    stop.set()
    thread.join()
    assert ticks[0] >= 10, "the lock of the interpreter was released"


def test_the_package_has_the_version_of_the_program():
    said = subprocess.run([jobs.BINARY, "--version"], capture_output=True, text=True, check=True).stdout
    assert evenkeel.__version__ in said.split()
    assert f'version = "{evenkeel.__version__}"' in (jobs.ROOT / "client" / "python" / "pyproject.toml").read_text()


def test_help_names_every_option_of_the_loader():
    words = evenkeel.Loader.__doc__
    from evenkeel import loader
    assert [name for name in sorted(loader._OPTIONS | loader._OWN_OPTIONS) if name not in words] == []


@pytest.mark.parametrize("algorithm", ["none", "greedy_packed"])
@pytest.mark.parametrize("runs", ["once_per_step", "once_per_microbatch"])
def test_routes_say_on_every_rank_whether_all_rows_stay(job, algorithm, runs):
    path = jobs.write_job(job.parent, f"stay-{algorithm}-{runs}", 2, algorithm, runs, f"{{capacity_tokens: {jobs.CAPACITY}}}")
    with jobs.worker(path) as address:
        loaders = [jobs.alone(address, rank=rank, num_steps=jobs.STEPS) for rank in range(2)]
        said = []
        for steps in zip(*loaders):
            for phase in ("vision", "audio"):
                routes = [step.routes[phase] if runs == "once_per_microbatch" else [step.routes[phase]] for step in steps]
                for pair in zip(*routes):
                    stay = all(route.stays for route in pair)
                    assert [route.all_stay for route in pair] == [stay, stay]
                    assert pair[0].inverse().all_stay == stay
                    said.append(stay)
    assert all(said) if algorithm == "none" else not all(said)
