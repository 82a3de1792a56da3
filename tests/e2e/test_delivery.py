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
            loader = evenkeel.Loader(fleet.endpoints, rank=rank, first_step=first, num_steps=steps)
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
def test_every_epoch_of_every_dataset_delivers_every_sample_once(mixed, ranks):
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


def test_a_checkpoint_resumes_at_its_step_and_is_refused_by_another_stream(mixed):
    job = job_for(mixed, 2)
    other = harness.write_job(mixed / "job-other-seed.yaml", [("a", "a-{000..002}.tar", 2),
                                                              ("b", "b-{000..001}.tar", 1)], ranks=2, seed=8)
    with harness.Fleet(job, 1) as fleet:
        loader = evenkeel.Loader(fleet.endpoints, rank=0)
        steps = iter(loader)
        for _ in range(3):
            next(steps)
        state = loader.state_dict()
        after = next(steps)
        resumed = evenkeel.Loader(fleet.endpoints, rank=0)
        resumed.load_state_dict(state)
        again = next(iter(resumed))
        assert again.index == after.index == 3
        assert (again.microbatches[0]["input_ids"] == after.microbatches[0]["input_ids"]).all()
    with harness.Fleet(other, 1) as fleet:
        with pytest.raises(Exception, match="(?i)stream digest"):
            refused = evenkeel.Loader(fleet.endpoints, rank=0)
            refused.load_state_dict(state)
            next(iter(refused))
