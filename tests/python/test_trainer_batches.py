"""Batches as trainers' own code makes and reads them, from microbatches made by hand."""

import numpy as np
import pytest

import made

torch = pytest.importorskip("torch")

LENGTHS = [3, 1, 4]
# Labels are aligned with the tokens, and the first of a document is never trained.
LABELS = [-100, 11, 12, -100, -100, -100, 22, 23]


def microbatch():
    from evenkeel.step import Microbatch
    one = made.packed_microbatch(LENGTHS, [0] * sum(LENGTHS))
    fields = {name: np.array(one.wire(name)) for name in one if name != "labels"}
    return Microbatch.of(**{**fields, "labels": np.array([LABELS], np.int64)})


def step_of(*microbatches, index=0):
    from evenkeel.step import Step
    return Step(index, 3, 4, list(microbatches), {}, {})


class Loader:
    """Steps of `counts` microbatches, with the state of a real loader."""

    def __init__(self, *counts):
        self.counts, self.next = counts, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == len(self.counts):
            raise StopIteration
        self.next += 1
        return step_of(*[microbatch() for _ in range(self.counts[self.next - 1])], index=self.next - 1)

    def state_dict(self):
        return {"step": self.next}

    def load_state_dict(self, state):
        self.next = state["step"]


@pytest.fixture
def megatron():
    pytest.importorskip("megatron.core")
    import evenkeel.megatron
    return evenkeel.megatron


def test_megatrons_labels_are_those_of_the_next_token(megatron):
    batch = megatron.batch(microbatch())
    assert batch["labels"].tolist() == [[11, 12, 0, 0, 0, 22, 23, 0]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 0, 0, 1, 1, 0]] and batch["loss_mask"].dtype == torch.float32
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 0, 1, 2, 3]] and batch["attention_mask"] is None
    assert batch["cu_seqlens"].tolist() == [[0, 3, 4, 8]] and batch["cu_seqlens"].dtype == torch.int32
    assert batch["max_seqlen"].tolist() == [4] and batch["max_seqlen"].dtype == torch.int32


def test_megatrons_packed_parameters_have_integers_as_lengths(megatron):
    packed = megatron.packed_seq_params(megatron.batch(microbatch()))
    assert packed.qkv_format == "thd" and packed.cu_seqlens_q.tolist() == packed.cu_seqlens_kv_padded.tolist() == [0, 3, 4, 8]
    assert type(packed.max_seqlen_q) is int and packed.max_seqlen_kv == 4


def test_megatrons_mask_keeps_documents_apart(megatron):
    mask = megatron.attention_mask(megatron.batch(microbatch()))
    assert mask.shape == (1, 1, 8, 8)
    seen = [(i, j) for i in range(8) for j in range(8) if not mask[0, 0, i, j]]
    documents = np.repeat(range(3), LENGTHS)
    assert seen == [(i, j) for i in range(8) for j in range(i + 1) if documents[i] == documents[j]]


def test_megatrons_schedule_has_a_fixed_number_of_microbatches(megatron):
    from megatron.core.rerun_state_machine import RerunDataIterator
    batches = RerunDataIterator(megatron.DataIterator(Loader(2, 2, 4), 2))
    with pytest.raises(ValueError, match="step 2 has 4 microbatches, the schedule 2: set microbatch.count_multiple: 2"):
        for _ in range(5):
            next(batches)


def test_megatrons_state_is_saved_between_steps(megatron):
    iterator = megatron.DataIterator(Loader(2, 2), 2)
    next(iterator)
    with pytest.raises(ValueError, match="step 0 has 1 microbatches left"):
        iterator.save_state()
    next(iterator)
    assert iterator.save_state() == {"step": 1} and iterator.loss_tokens == 4
    next(iterator)
    iterator.restore_state({"step": 0})
    next(iterator), next(iterator)
    assert iterator.save_state() == {"step": 1}
