"""Every pass over each dataset delivers every sample exactly once, in every phase; resume may change the ranks."""

import collections

import pytest

import harness
import media

evenkeel = pytest.importorskip("evenkeel")

TOTAL = {"a": 90, "b": 38}


def deliveries(job, ranks, steps, first=0):
    """Per step: the multiset of (dataset, epoch, index) over ranks, and the encoder items per phase."""
    with harness.Fleet(job, 2) as fleet:
        samples = [[] for _ in range(steps)]
        items = [collections.Counter() for _ in range(steps)]
        for rank in range(ranks):
            loader = harness.alone(fleet.endpoints, rank=rank, first_step=first, num_steps=steps)
            for number, step in enumerate(loader):
                assert step.index == first + number
                for microbatch in step.microbatches:
                    samples[number] += [tuple(row) for row in microbatch["sample_ids"].tolist()]
                for phase, fields in step.encoders.items():
                    items[number][phase] += len(fields["item_valid"]) if "item_valid" in fields else 0
    return samples, items


def job_for(folder, ranks, **options):
    return harness.write_job(folder / f"job-{ranks}.yaml",
                             [("a", "a-{000..002}.tar", 2), ("b", "b-{000..001}.tar", 1)], ranks=ranks, **options)


@pytest.mark.parametrize("ranks", [3, 4])
def test_every_epoch_delivers_every_sample_once(mixed, ranks):
    job = job_for(mixed, ranks)
    samples, _ = deliveries(job, ranks, steps=24)
    seen = collections.defaultdict(list)
    for step in samples:
        assert len(step) == 16
        for dataset, epoch, index in step:
            seen[dataset, epoch].append(index)
    for number, (name, total) in enumerate(TOTAL.items()):
        last = max(epoch for dataset, epoch in seen if dataset == number)
        assert last >= 1, f"{name}: the test is to see more than one epoch"
        for epoch in range(last):
            assert sorted(seen[number, epoch]) == list(range(total)), f"{name}, epoch {epoch}"
        assert len(set(seen[number, last])) == len(seen[number, last])


def test_another_number_of_ranks_sees_the_same_global_batches(mixed):
    with_four, items_four = deliveries(job_for(mixed, 4), 4, steps=6, first=5)
    with_three, items_three = deliveries(job_for(mixed, 3), 3, steps=6, first=5)
    assert [sorted(step) for step in with_four] == [sorted(step) for step in with_three]
    assert items_four == items_three, "every item of every phase arrives once, whatever the ranks"


def test_a_checkpoint_resumes_at_its_step_in_its_own_stream(mixed):
    job = job_for(mixed, 2)
    other = harness.write_job(mixed / "job-other-seed.yaml", [("a", "a-{000..002}.tar", 2),
                                                              ("b", "b-{000..001}.tar", 1)], ranks=2, seed=8)
    with harness.Fleet(job, 1) as fleet:
        loader = harness.alone(fleet.endpoints, rank=0)
        steps = iter(loader)
        for _ in range(3):
            next(steps)
        state = loader.state_dict()
        after = next(steps)
        resumed = harness.alone(fleet.endpoints, rank=0)
        resumed.load_state_dict(state)
        again = next(iter(resumed))
        assert again.index == after.index == 3
        assert (again.microbatches[0]["input_ids"] == after.microbatches[0]["input_ids"]).all()
    with harness.Fleet(other, 1) as fleet:
        with pytest.raises(Exception, match="(?i)stream digest"):
            refused = harness.alone(fleet.endpoints, rank=0)
            refused.load_state_dict(state)
            next(iter(refused))


# ---- Workers of two jobs at the same time


@pytest.fixture(scope="module")
def two_jobs(mixed):
    """The jobs before and after a change: same shards and index, another seed."""
    datasets = [("a", "a-{000..002}.tar", 2), ("b", "b-{000..001}.tar", 1)]
    return [harness.write_job(mixed / f"job-seed-{seed}.yaml", datasets, ranks=2, seed=seed) for seed in (11, 12)]


def digests_of(lines):
    return [line for line in lines if len(line.split()) == 3]


def fetch_lines(endpoints, *options):
    return digests_of(harness.run("fetch", "--endpoints", endpoints, "--ranks", "0-1", "--steps", 4, "--digest",
                                  *options).stdout.splitlines())


def test_ranks_never_follow_two_streams_at_once(two_jobs):
    with harness.Fleet(two_jobs[0], 2) as before, harness.Fleet(two_jobs[1], 2) as after:
        both = f"{before.endpoints},{after.endpoints}"
        # The list is sorted by address, so either may come first; each rank asks in another order.
        done = harness.run("fetch", "--endpoints", both, "--ranks", "0-5", "--steps", 1, check=False)
        assert done.returncode == 3
        digests = [harness.alone(fleet.endpoints, rank=0).origin.stream_digest for fleet in (before, after)]
        assert all(digest in done.stderr for digest in digests) and "--job" in done.stderr
        for rank in range(4):
            with pytest.raises(evenkeel.Mismatch, match="expect_stream_digest"):
                harness.alone(both, rank=rank).connect()
        # Who says which one is wanted gets it.
        for job, fleet, digest in zip(two_jobs, (before, after), digests):
            alone = fetch_lines(fleet.endpoints)
            assert fetch_lines(both, "--job", job) == alone
            loaders = [harness.alone(both, rank=rank, num_steps=4, expect_stream_digest=digest) for rank in range(2)]
            assert [f"{step.index} {rank} {step.digest()}" for steps in zip(*loaders)
                    for rank, step in enumerate(steps)] == alone


def test_two_streams_in_one_process_do_not_disturb_each_other(two_jobs):
    with harness.Fleet(two_jobs[0], 2) as first, harness.Fleet(two_jobs[1], 1) as second:
        expected = [fetch_lines(fleet.endpoints) for fleet in (first, second)]
        loaders = [[harness.alone(fleet.endpoints, rank=rank, num_steps=4) for rank in range(2)]
                   for fleet in (first, second)]
        got = [[], []]
        for steps in zip(*loaders[0], *loaders[1]):
            for which, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
                step = steps[2 * which + rank]
                got[which].append(f"{step.index} {rank} {step.digest()}")
        assert got == expected
        origins = {loader.origin.stream_digest for pair in loaders for loader in pair}
        assert len(origins) == 2


def test_a_job_changes_under_another_name_as_documented(two_jobs):
    """docs/deploy.md: both fleets overlap; old trainers go on, new ones begin with the new name and agree on one stream."""
    with harness.Fleet(two_jobs[0], 2) as before:
        expected = fetch_lines(before.endpoints)
        running = [harness.alone(before.endpoints, rank=rank, num_steps=4, prefetch_steps=1) for rank in range(2)]
        got = [next(loader) for loader in running]
        state = running[0].state_dict()
        with harness.Fleet(two_jobs[1], 2) as after:
            new = [harness.alone(after.endpoints, rank=rank, num_steps=4) for rank in range(2)]
            new_got = [next(loader) for loader in new]
            assert len({loader.origin.stream_digest for loader in (*running, *new)}) == 2
            # By mistake with both names: an error on every rank, before the first step.
            for rank in range(2):
                with pytest.raises(evenkeel.Mismatch, match="different streams"):
                    harness.alone(f"{before.endpoints},{after.endpoints}", rank=rank).connect()
            with pytest.raises(evenkeel.Mismatch, match="stream digest"):
                harness.alone(after.endpoints, rank=0).load_state_dict(state)
            # The old trainers end in peace, then their workers go, and the new trainers notice nothing.
            got += [step for steps in zip(*running) for step in steps]
            assert [f"{step.index} {i % 2} {step.digest()}" for i, step in enumerate(got)] == expected
            for worker in before.workers:
                assert worker.terminate() == 0
            new_got += [step for steps in zip(*new) for step in steps]
            assert [f"{step.index} {i % 2} {step.digest()}" for i, step in enumerate(new_got)] == fetch_lines(after.endpoints)


def test_a_job_changes_under_the_same_name_as_documented(two_jobs):
    """docs/deploy.md: the trainer saves its state and names its digest; workers are replaced one by one meanwhile."""
    before = harness.Fleet(two_jobs[0], 2)
    after = harness.Fleet(two_jobs[1], 0)
    with before, after:
        addresses = [worker.address for worker in before.workers]
        expected = fetch_lines(before.endpoints)
        running = [harness.alone(before.endpoints, rank=rank, num_steps=4, prefetch_steps=1) for rank in range(2)]
        got = [next(loader) for loader in running]
        state = running[0].state_dict()
        # One worker of the new job takes the place of one of the old.
        before.workers[1].terminate()
        after.workers.append(harness.Worker(two_jobs[1], listen=addresses[1]))
        mixed = f"{addresses[0]},{addresses[1]}"
        # The running trainer keeps its stream; a resumed one finds its stream; a new one gets an error that names both.
        got += [next(loader) for loader in running]
        assert [f"{step.index} {i % 2} {step.digest()}" for i, step in enumerate(got)] == expected[:4]
        resumed = harness.alone(mixed, rank=1)
        resumed.load_state_dict(state)
        assert f"1 1 {next(resumed).digest()}" == expected[3]
        with pytest.raises(evenkeel.Mismatch, match="different streams"):
            harness.alone(mixed, rank=0).connect()
        # Once the last worker of the old job is gone, new trainers need not say anything.
        for loader in running:
            loader.close()
        before.workers[0].terminate()
        after.workers.append(harness.Worker(two_jobs[1], listen=addresses[0]))
        assert harness.alone(mixed, rank=0).origin.stream_digest != state["stream_digest"]
