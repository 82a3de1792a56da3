"""Texts concatenated and cut into chunks: the tokens that they have, the same for any format, ranks, workers and resume."""

import json

import numpy as np
import pytest

import harness
import test_formats

evenkeel = pytest.importorskip("evenkeel")

LENGTH, COUNT = 48, 4
END = 768  # <|endoftext|> of the tokenizer
CHUNK = f"{{chunk: {{length: {LENGTH}, count: {COUNT}}}}}"


def write_job(folder, name, shards, ranks=1, batch=CHUNK, shuffle="none", extra=""):
    path = folder / f"{name}.yaml"
    rank_list = f"0-{ranks - 1}" if ranks > 1 else "0"
    path.write_text("\n".join([
        "seed: 7", f"index: index-{shards}", f"datasets: [{{name: data, shards: [{shards}]}}]",
        f"processor: {{folder: {harness.GOLDEN}/tokenizer, chat: plain}}", f"batch: {batch}", f"order: {{shuffle: {shuffle}}}",
        f"phases: [{{name: llm, ranks: \"{rank_list}\"}}]"]) + "\n" + extra)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chunks")
    texts, ids = test_formats.texts_with_tokens()
    (path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    test_formats.write_megatron(path / "tokens", [[document] for document in ids])
    for shards in ("texts.jsonl", "tokens.bin"):
        harness.run("index", "--job", write_job(path, "job", shards))
    return path, ids


def received(job, ranks, steps, first=0, workers=1):
    """[steps] The chunks that all ranks receive, as (ids, labels, ends of documents), in the order of their ids."""
    with harness.Fleet(job, workers) as fleet:
        loaders = [iter(harness.alone(fleet.endpoints, rank=rank, first_step=first, num_steps=steps)) for rank in range(ranks)]
        out = []
        for _ in range(steps):
            chunks = []
            for loader in loaders:
                step = next(loader)
                for microbatch in step.microbatches:
                    chunks.append((microbatch["input_ids"].reshape(-1).tolist(), microbatch["labels"].reshape(-1).tolist(),
                                   microbatch["cu_seqlens"].tolist(), np.array(microbatch["position_ids"]).reshape(-1).tolist()))
            out.append(sorted(chunks))
        return out


def test_chunks_have_the_tokens_of_the_texts_one_after_another(folder):
    path, ids = folder
    tokens = [token for document in ids for token in document]
    ends = np.cumsum([len(document) for document in ids]).tolist()
    begins = {0, *ends}
    steps = 2 * len(tokens) // (LENGTH * COUNT) + 1  # into the third epoch
    for shards in ("texts.jsonl", "tokens.bin"):
        delivered = received(write_job(path, f"tokens-{shards}", shards), 1, steps)
        endless = tokens * (steps * LENGTH * COUNT // len(tokens) + 1)
        for number, chunks in enumerate(delivered):
            expected = []
            for c in range(COUNT):
                begin = (number * COUNT + c) * LENGTH
                cuts = [i for i in range(LENGTH) if i == 0 or (begin + i) % len(tokens) in begins]
                of_chunk = endless[begin:begin + LENGTH]
                labels = [-100 if i in cuts else token for i, token in enumerate(of_chunk)]
                expected.append((of_chunk, labels, cuts + [LENGTH]))
            assert [chunk[:3] for chunk in chunks] == sorted(expected), (shards, number)
            for _, _, cuts, positions in chunks:
                counted = [i for begin, end in zip(cuts, cuts[1:]) for i in range(end - begin)]
                assert positions[:LENGTH] == counted


def test_formats_workers_and_ranks_change_no_chunk(folder):
    path, _ = folder
    expected = received(write_job(path, "one", "texts.jsonl", shuffle="full"), 1, 6)
    assert expected != received(write_job(path, "ordered", "texts.jsonl"), 1, 6)
    assert received(write_job(path, "tokens", "tokens.bin", shuffle="full"), 1, 6) == expected
    for ranks in (2, 4):
        assert received(write_job(path, f"ranks{ranks}", "texts.jsonl", ranks, shuffle="full"), ranks, 2, first=4, workers=2) == expected[4:]
    job = write_job(path, "killed", "texts.jsonl", 2, shuffle="full")
    with harness.Fleet(job, 1) as fleet:
        whole = harness.fetch(fleet.endpoints, job, "--steps", 12)
    killed = harness.fetch_with_kills(job, "--steps", 12)
    assert (killed.steps, killed.chain) == (whole.steps, whole.chain)


def test_a_text_that_changed_is_named_by_its_first_chunk(tmp_path):
    texts, ids = test_formats.texts_with_tokens()
    rows = [json.dumps({"text": text}) for text in texts]
    changed = max(range(len(texts)), key=lambda number: len(ids[number]))
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    job = write_job(tmp_path, "job", "texts.jsonl", batch=f"{{chunk: {{length: 16, count: {COUNT}}}}}")
    harness.run("index", "--job", job)
    rows[changed] = json.dumps({"text": "x" * len(texts[changed])})[:len(rows[changed])].ljust(len(rows[changed]))
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    first = sum(len(one) for one in ids[:changed]) // (16 * COUNT)
    with harness.Fleet(job, 1) as fleet:
        loader = harness.alone(fleet.endpoints, rank=0)
        for _ in range(first):
            next(loader)
        with pytest.raises(evenkeel.DataLoss, match=f"data/texts.jsonl/{changed + 1}, step {first} .*the file was changed"):
            next(loader)


@pytest.mark.parametrize("change, why", [
    ({"ranks": 3}, "4 is not a multiple of 3"),
    ({"extra": "microbatch: {align: 8}\n"}, "microbatch.align is 8"),
    ({"extra": "microbatch: {capacity_tokens: 4096}\n"}, "leave out microbatch.capacity_tokens"),
    ({"batch": "{window_samples: 4, chunk: {length: 8, count: 4}}", "shuffle": "full, heavy: 8"}, "order.heavy"),
])
def test_wrong_chunks_are_clear_errors(folder, change, why):
    refused = harness.run("plan", "--job", write_job(folder[0], "wrong", "texts.jsonl", **change), "--step", 0, check=False)
    assert refused.returncode != 0 and why in refused.stderr, refused.stderr


def test_a_chat_is_named(tmp_path):
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps(row) for row in [{"text": "words"}, {"messages": turns}]))
    job = write_job(tmp_path, "job", "texts.jsonl")
    harness.run("index", "--job", job)
    refused = harness.run("plan", "--job", job, "--step", 0, check=False)
    assert refused.returncode != 0 and "data/texts.jsonl/2: " in refused.stderr and "trained whole" in refused.stderr
