"""Preference pairs: the tokens that TRL makes of them, both sequences in one microbatch, and the loss of DPO."""

import contextlib
import importlib.util
import json
import os
import subprocess

import numpy as np
import pytest

import evenkeel
import jobs

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
CASES = json.loads((jobs.GOLDEN / "text" / "pairs.json").read_text(encoding="utf-8"))
ASK, YES, NO = ({"role": role, "content": text} for role, text in (("user", "Even?"), ("assistant", "Yes"), ("assistant", "No, odd")))
PAIR = {"prompt": [ASK], "chosen": [YES], "rejected": [NO]}


def write_job(folder, ranks=1, batch=None, samples=len(CASES), extra="", shards="pairs.jsonl", llm="", processor=""):
    path = folder / "job.yaml"
    path.write_text(f"""\
seed: 3
index: index
datasets: [{{name: pairs, shards: ["{shards}"]}}]
processor: {{tokenizer: {jobs.GOLDEN}/tokenizer, chat: template{processor}}}
batch: {batch or f"{{samples: {samples}}}"}
phases: [{{name: llm, ranks: "0-{ranks - 1}"{llm}}}]
""".replace('"0-0"', '"0"') + extra)
    return path


def write_rows(folder, rows):
    (folder / "pairs.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")


def first_step(job, ranks=1):
    """The microbatches of the first step, of all ranks."""
    with jobs.worker(job) as endpoint:
        found = []
        for rank in range(ranks):
            with jobs.alone(endpoint, rank=rank, num_steps=1, prefetch_bytes=64 << 20) as loader:
                found += [{name: np.array(microbatch[name]) for name in microbatch} for microbatch in next(loader).microbatches]
        return found


def documents(microbatch):
    """[(index of the sample, kind, ids, labels, positions)] of the documents that are samples."""
    kinds, bounds = evenkeel.pairs(microbatch), microbatch["cu_seqlens"]
    assert len(kinds) == len(microbatch["sample_ids"]) == len(microbatch["sample_valid"])
    return [(int(microbatch["sample_ids"][i, 2]), int(kind), *(microbatch[name][..., bounds[i]:bounds[i + 1]].reshape(-1, bounds[i + 1] - bounds[i])[0].tolist()
                                                               for name in ("input_ids", "labels", "position_ids")))
            for i, kind in enumerate(kinds)]


def refusal(job, *command):
    done = subprocess.run([jobs.BINARY, command[0], "--job", str(job), *command[1:]], capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.mark.parametrize("align", [1, 16])
@pytest.mark.parametrize("ranks", [1, 2])
def test_pairs_are_trls_tokens_and_stay_together(tmp_path, align, ranks):
    write_rows(tmp_path, [case["row"] for case in CASES])
    job = write_job(tmp_path, ranks, extra=f"microbatch: {{capacity_tokens: 512, align: {align}}}\nlimits: {{max_llm_length: 512}}\n")
    jobs.make_index(job)
    seen = []
    for microbatch in first_step(job, ranks):
        assert (microbatch["cu_seqlens"] % align == 0).all()
        found = documents(microbatch)
        assert [kind for _, kind, *_ in found] == [1, 2] * (len(found) // 2)
        for i, (sample, kind, ids, labels, positions) in enumerate(found):
            assert sample == found[i - i % 2][0]
            case = CASES[sample]
            made = case["chosen" if kind == 1 else "rejected"]
            length = len(made["ids"])
            assert ids[:length] == made["ids"] and len(ids) - length in range(align), case["row"]
            trained = [at >= case["prompt_length"] and said == 1 for at, said in enumerate(made["mask"])]
            assert any(trained)
            assert labels == [one if is_trained else -100 for one, is_trained in zip(made["ids"], trained)] + [-100] * (len(ids) - length), case["row"]
            assert positions == list(range(len(ids)))
            seen.append((sample, kind))
        assert microbatch["loss_tokens"][0] == (microbatch["labels"] != -100).sum()
    assert sorted(seen) == [(sample, kind) for sample in range(len(CASES)) for kind in (1, 2)]


def padded_job(folder, ranks=1, extra="microbatch: {capacity_tokens: 2048, align: 8}\nlimits: {max_llm_length: 512}\n", **options):
    job = write_job(folder, ranks, llm=", batching: padded", extra=extra, **options)
    jobs.make_index(job)
    return job


def collated(cases, pad, multiple):
    """The ids, mask and answers that TRL's DataCollatorForPreference makes, in numpy: chosen rows, then rejected ones."""
    made = [case[name]["ids"] for name in ("chosen", "rejected") for case in cases]
    longest = -(-max(map(len, made)) // multiple) * multiple
    ids = np.array([one + [pad] * (longest - len(one)) for one in made])
    mask = np.array([[1] * len(one) + [0] * (longest - len(one)) for one in made])
    answer = np.arange(longest) >= np.array([case["prompt_length"] for case in cases] * 2)[:, None]
    return {"input_ids": ids, "attention_mask": mask, "completion_mask": mask * answer}


@pytest.mark.parametrize("ranks", [1, 2])
def test_padded_pairs_are_trls_batches(tmp_path, ranks):
    write_rows(tmp_path, [case["row"] for case in CASES])
    seen = []
    for microbatch in first_step(padded_job(tmp_path, ranks), ranks):
        if not len(microbatch["sample_ids"]):
            continue
        kinds, samples = evenkeel.pairs(microbatch), microbatch["sample_ids"][:, 2].tolist()
        half = len(samples) // 2
        assert kinds.tolist() == [1] * half + [2] * half and samples[:half] == samples[half:]
        assert microbatch["input_ids"].size <= 2048 and "cu_seqlens" not in microbatch
        cases, pad = [CASES[sample] for sample in samples[:half]], int(microbatch["input_ids"][microbatch["attention_mask"] == 0][0])
        expected = collated(cases, pad, 8)
        check_collator(cases, pad, expected)
        assert (microbatch["input_ids"] == expected["input_ids"]).all()
        assert (microbatch["attention_mask"] == expected["attention_mask"]).all()
        said = np.zeros_like(expected["input_ids"])
        for row, made in zip(said, [case[name] for name in ("chosen", "rejected") for case in cases]):
            row[:len(made["mask"])] = made["mask"]
        trained = (said == 1) & (expected["completion_mask"] == 1)
        assert (microbatch["labels"] == np.where(trained, expected["input_ids"], -100)).all() and trained.any(1).all()
        assert (microbatch["position_ids"] == np.where(expected["attention_mask"], np.arange(said.shape[1]), 1)).all()
        assert microbatch["loss_tokens"][0] == trained.sum()
        seen += samples[:half]
    assert sorted(seen) == list(range(len(CASES)))


def check_collator(cases, pad, expected):
    """Where TRL is installed its own collator says the same."""
    try:
        from trl.trainer.dpo_trainer import DataCollatorForPreference
    except ImportError:
        return
    examples = [{"prompt_ids": case["chosen"]["ids"][:case["prompt_length"]],
                 **{f"{name}_ids": case[name]["ids"][case["prompt_length"]:] for name in ("chosen", "rejected")}} for case in cases]
    made = DataCollatorForPreference(pad_token_id=pad, pad_to_multiple_of=8)(examples)
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        assert (made[name].numpy() == value).all(), name


def test_padded_rows_of_other_samples_are_with_the_chosen(tmp_path):
    write_rows(tmp_path, [PAIR, {"messages": [ASK, YES]}, PAIR, {"messages": [ASK, NO]}])
    [microbatch] = first_step(padded_job(tmp_path, samples=4))
    kinds, samples = evenkeel.pairs(microbatch), microbatch["sample_ids"][:, 2].tolist()
    assert sorted(samples[:4]) == [0, 1, 2, 3] and samples[4:] == [one for one in samples[:4] if one % 2 == 0]
    assert kinds.tolist() == [1 - one % 2 for one in samples[:4]] + [2, 2]


def test_a_padded_pair_is_as_long_as_two_of_its_longer(tmp_path):
    longer = {"role": "assistant", "content": "even " * 40}
    write_rows(tmp_path, [PAIR, {**PAIR, "chosen": [longer]}])
    limits = "limits: {max_llm_length: LENGTH}\n"
    for length, excluded in ((240, 1), (640, 0)):
        job = write_job(tmp_path, samples=1, llm=", batching: padded", extra=limits.replace("LENGTH", str(length)))
        done = subprocess.run([jobs.BINARY, "index", "--job", str(job), "--max-excluded", "90%", "--json"], capture_output=True, text=True)
        assert done.returncode == 0 and ("too long" in done.stdout) == bool(excluded), (length, done.stdout, done.stderr)


def test_tables_have_the_pairs_of_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet
    rows = [case["row"] for case in CASES if isinstance(case["row"].get("prompt"), list)]
    write_rows(tmp_path, rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "pairs.parquet")
    found = []
    for shards in ("pairs.jsonl", "pairs.parquet"):
        job = write_job(tmp_path, shards=shards, samples=len(rows))
        jobs.make_index(job)
        [microbatch] = first_step(job)
        found.append(sorted(documents(microbatch)))
    assert found[0] == found[1] and len(found[0]) == 2 * len(rows)


def test_init_knows_pairs(tmp_path):
    write_rows(tmp_path, [case["row"] for case in CASES] + [{"chosen": "a"}])
    (tmp_path / "checkpoint").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / "checkpoint" / name).write_bytes((jobs.GOLDEN / "tokenizer" / name).read_bytes())
    done = subprocess.run([jobs.BINARY, "init", "pairs.jsonl", "--processor", "checkpoint"], cwd=tmp_path, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "preference pairs" in said and "bad pair" in said, said


def test_bad_pairs_are_excluded_by_name(tmp_path):
    other = {"role": "user", "content": "Odd?"}
    bad = [{"chosen": [ASK, YES]}, {"rejected": "text"}, {"chosen": "a b", "rejected": [ASK, YES]}, {"chosen": 1, "rejected": 2},
           {"chosen": [], "rejected": []}, {"chosen": [ASK, YES], "rejected": [other, NO]}, {"chosen": "yes", "rejected": "no"},
           {"prompt": [ASK], "chosen": [YES], "rejected": [other]}, {"prompt": [ASK], "chosen": [YES], "rejected": ["No"]}]
    write_rows(tmp_path, [PAIR, *bad, {"messages": [ASK, YES], "chosen": 1}, {"text": "plain", "rejected": 1}])
    job = write_job(tmp_path, samples=3)
    done = subprocess.run([jobs.BINARY, "index", "--job", str(job), "--max-excluded", "90%", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bad pair") >= len(bad), done.stdout
    [microbatch] = first_step(job)
    # Pairs and other samples may be in one job.
    assert sorted((sample, kind) for sample, kind, *_ in documents(microbatch)) == [(0, 1), (0, 2), (1, 0), (2, 0)]


def test_what_has_no_pairs_says_so(tmp_path):
    write_rows(tmp_path, [PAIR] * 4)
    job = write_job(tmp_path, batch="{chunk: {length: 8, count: 1}}")
    jobs.make_index(job)
    assert "it is a preference pair; batch.chunk" in refusal(job, "plan", "--step", "0")


def test_limits_count_both_sequences(tmp_path):
    write_rows(tmp_path, [PAIR, {**PAIR, "chosen": [{"role": "assistant", "content": "even " * 40}]}])
    job = write_job(tmp_path, samples=1, extra="limits: {max_llm_length: 64}\n")
    done = subprocess.run([jobs.BINARY, "index", "--job", str(job), "--max-excluded", "90%", "--json"], capture_output=True, text=True)
    assert done.returncode == 0 and "too long" in done.stdout, done.stderr
    cut = write_job(tmp_path, samples=2, extra="limits: {max_llm_length: 64}\n", processor=", truncate: text")
    jobs.make_index(cut)
    [microbatch] = first_step(cut)
    assert sorted((sample, kind, len(ids) <= 32) for sample, kind, ids, *_ in documents(microbatch)) == [
        (sample, kind, True) for sample in (0, 1) for kind in (1, 2)]
    assert any(len(ids) == 32 for _, _, ids, *_ in documents(microbatch))


def picture(seed):
    import random
    return jobs.png(random.Random(seed), damaged=False)


def job_with_pictures(tmp_path, llm="ranks: 0"):
    look = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Even?"}]}
    with contextlib.closing(jobs.media.Shard(tmp_path / "pairs.tar")) as shard:
        for number in range(4):
            members = {"json": json.dumps({"prompt": [look], "chosen": [YES], "rejected": [NO]}).encode(), "png": picture(number)}
            for suffix, data in members.items():
                shard.add(f"{number:03d}.{suffix}", data)
    job = tmp_path / "job.yaml"
    job.write_text(f"""\
index: index
datasets: [{{name: pairs, shards: ["pairs.tar"]}}]
processor: {{vision: {jobs.GOLDEN}/processor/qwen2-vl, tokenizer: {jobs.GOLDEN}/tokenizer, chat: template, max_pixels: 12544}}
batch: {{samples: 4}}
balance: drop_in
phases: [{{name: llm, {llm}}}, {{name: vision, ranks: 0}}]
""")
    jobs.make_index(job)
    return job


def test_both_sequences_have_the_prompts_pictures(tmp_path):
    job = job_with_pictures(tmp_path)
    with jobs.worker(job) as endpoint, jobs.alone(endpoint, rank=0, num_steps=1) as loader:
        step = next(loader)
        [microbatch] = step.microbatches
        vision = microbatch.encoders["vision"]
        grids, pixels = np.array(vision["image_grid_thw"]), np.array(vision["pixel_values"])
        found = {name: np.array(microbatch[name]) for name in microbatch if name != "encoders"}
    kinds, bounds = evenkeel.pairs(found), found["cu_seqlens"]
    assert kinds.tolist() == [1, 2] * 4 and len(grids) == 8
    rows = np.concatenate([[0], np.cumsum(grids.prod(1))])
    for i in range(0, 8, 2):
        assert (grids[i] == grids[i + 1]).all()
        assert (pixels[rows[i]:rows[i + 1]] == pixels[rows[i + 1]:rows[i + 2]]).all()
        one, two = (slice(bounds[j], bounds[j + 1]) for j in (i, i + 1))
        media = int((found["mm_token_type_ids"][0, one] != 0).sum())
        assert media == grids[i].prod() // 4 == (found["mm_token_type_ids"][0, two] != 0).sum()
        same = min(one.stop - one.start, two.stop - two.start, media + 8)
        begin = [found["position_ids"][:, 0, part][:, :same] for part in (one, two)]
        assert (begin[0] == begin[1]).all() and (begin[0][:, 0] == 0).all()
        assert len(np.unique(begin[0][2])) < same  # M-RoPE: the grid's columns repeat


def test_padded_rows_have_the_prompts_pictures(tmp_path):
    job = job_with_pictures(tmp_path, "ranks: 0, batching: padded")
    with jobs.worker(job) as endpoint, jobs.alone(endpoint, rank=0, num_steps=1) as loader:
        [microbatch] = next(loader).microbatches
        vision = microbatch.encoders["vision"]
        grids, pixels = np.array(vision["image_grid_thw"]), np.array(vision["pixel_values"])
        found = {name: np.array(microbatch[name]) for name in microbatch if name != "encoders"}
    assert evenkeel.pairs(found).tolist() == [1] * 4 + [2] * 4 and len(grids) == 8
    assert len({tuple(grid) for grid in grids.tolist()}) > 1, "the pictures differ"
    rows = np.concatenate([[0], np.cumsum(grids.prod(1))])
    for i in range(4):
        assert (grids[i] == grids[i + 4]).all()
        assert (pixels[rows[i]:rows[i + 1]] == pixels[rows[i + 4]:rows[i + 5]]).all()
    assert (found["mm_token_type_ids"] != 0).sum(1).tolist() == (grids.prod(1) // 4).tolist()


def example():
    path = jobs.ROOT / "examples" / "trainers" / "train_dpo.py"
    spec = importlib.util.spec_from_file_location("train_dpo", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_the_loss_of_a_step_is_that_of_its_pairs_alone(tmp_path, batching):
    torch = pytest.importorskip("torch")
    dpo = example()
    write_rows(tmp_path, [case["row"] for case in CASES])
    job = write_job(tmp_path, llm=f", batching: {batching}", extra="microbatch: {capacity_tokens: 512}\nlimits: {max_llm_length: 512}\n")
    jobs.make_index(job)
    size, width = jobs.vocabulary(), 16

    class Model(torch.nn.Module):
        """One layer of causal attention, within documents."""

        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.tokens, self.places = torch.nn.Embedding(size, width), torch.nn.Embedding(512, width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, size)

        def forward(self, ids, positions, bounds):
            x = self.tokens(ids) + self.places(positions)
            q, k, v = self.qkv(x).chunk(3, -1)
            document = torch.searchsorted(bounds[1:].contiguous(), torch.arange(ids.shape[1]), right=True)
            seen = (document[:, None] == document) & torch.ones(len(document), len(document), dtype=torch.bool).tril()
            scores = (q @ k.transpose(1, 2) / width ** 0.5).masked_fill(~seen, -torch.inf)
            return self.out(x + scores.softmax(-1) @ v)

    policy, reference = Model(0).double(), Model(1).double()

    def alone(model, made, prompt_length):
        ids = torch.tensor([made["ids"]])
        logits = model(ids, torch.arange(ids.shape[1])[None], torch.tensor([0, ids.shape[1]]))
        each = torch.log_softmax(logits[0, :-1].float(), -1).gather(1, ids[0, 1:, None])[:, 0]
        trained = [at >= prompt_length and said == 1 for at, said in enumerate(made["mask"])][1:]
        return each[torch.tensor(trained)].sum()

    found, total = 0, 0.0
    with torch.no_grad():
        for microbatch in first_step(job):
            ids = microbatch["input_ids"]
            bounds = microbatch.get("cu_seqlens", np.array([0, ids.shape[1]]))  # of padded rows one each
            arguments = (torch.from_numpy(ids), torch.from_numpy(microbatch["position_ids"][0].reshape(ids.shape)),
                         torch.from_numpy(bounds).long())
            losses = dpo.dpo_losses(dpo.log_probabilities(policy(*arguments), microbatch),
                                    dpo.log_probabilities(reference(*arguments), microbatch), microbatch)
            found, total = found + len(losses), total + losses.sum().item()
        expected = 0.0
        for case in CASES:
            gained = [alone(policy, case[name], case["prompt_length"]) - alone(reference, case[name], case["prompt_length"])
                      for name in ("chosen", "rejected")]
            expected -= torch.nn.functional.logsigmoid(0.1 * (gained[0] - gained[1])).item()
    assert found == len(CASES)
    assert total == pytest.approx(expected, rel=1e-5)
