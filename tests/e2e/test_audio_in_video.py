"""Videos with their audio (processor.use_audio_in_video): what a rank of each phase receives, for any number of ranks; damaged
and silent videos; jobs that cannot have them. That placeholders and positions are those of transformers is compared by
tests/preprocess.
"""

import subprocess

import numpy as np
import pytest

import harness
from media import Shard

evenkeel = pytest.importorskip("evenkeel")

TOKENS = ["<|vision_bos|>", "<|vision_eos|>", "<|IMAGE|>", "<|VIDEO|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>"]
PICTURE, VIDEO, AUDIO = 1, 2, 3  # mm_token_type_ids


def video(path, seconds, sound):
    audio = ["-f", "lavfi", "-t", str(sound), "-i", "anoisesrc=r=22050:seed=3:amplitude=0.3", "-c:a", "aac"] if sound else []
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-t", str(seconds), "-i", "testsrc2=s=96x64:r=8", *audio, "-c:v",
                    "mpeg4", path], check=True)
    return path.read_bytes()


GOLDEN = harness.GOLDEN / "data" / "processors"


def folders(vision="qwen3-omni", audio="qwen3-omni"):
    return "".join(f'{key}: "{GOLDEN / model}", ' for key, model in (("vision", vision), ("audio", audio)) if model)


def write_job(folder, name, phases, keys="use_audio_in_video: true", of=folders(), index="index"):
    listed = "".join(f"  - {phase}\n" for phase in phases)
    job = folder / f"{name}.yaml"
    job.write_text(f"""\
seed: 5
index: {index}
datasets: [{{name: all, shards: ["all.tar"]}}]
processor: {{{of}tokenizer: "{harness.GOLDEN}/tokenizer", chat: plain, added_tokens: {TOKENS}, {keys}}}
batch: {{samples: 5}}
order: {{shuffle: none}}
microbatch: {{capacity_tokens: 4000}}
limits: {{max_llm_length: 3000}}
phases:
{listed}""")
    return job


def phases(ranks):
    of = f"0-{ranks - 1}" if ranks > 1 else "0"
    return [f'{{name: {name}, ranks: "{of}"}}' for name in ("llm", "vision", "audio")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("audio_in_video")
    shard = Shard(path / "all.tar")
    for number, (seconds, sound) in enumerate([(3, 3), (4, 0), (2, 5), (3, 1)]):
        shard.add(f"{number}.mp4", video(path / "made.mp4", seconds, sound))
        shard.add(f"{number}.txt", b" a keel")
    loud = video(path / "made.mp4", 3, 3)
    middle = loud.index(b"mdat") + 6000
    shard.add("4.mp4", loud[:middle] + bytes(3000) + loud[middle + 3000:])  # the tables at its end are whole
    shard.add("4.txt", b" a broken one")
    shard.close()
    harness.run("index", "--job", write_job(path, "job", phases(1)))
    return path


def received(job, ranks, steps=1):
    """{(phase, what): values} of a step, of all ranks together, in an order that does not depend on them."""
    with harness.Fleet(job, 1) as fleet:
        loaders = [iter(harness.alone(fleet.endpoints, rank=rank, num_steps=steps)) for rank in range(ranks)]
        return [[next(loader) for loader in loaders] for _ in range(steps)][0]


def documents(steps):
    """{sample: (types, rows of each position)} of the step."""
    out = {}
    for step in steps:
        for microbatch in step.microbatches:
            bounds = np.asarray(microbatch["cu_seqlens"])
            types = np.asarray(microbatch["mm_token_type_ids"]).reshape(-1)
            for (dataset, epoch, index), begin, end in zip(microbatch["sample_ids"].tolist(), bounds, bounds[1:]):
                out[index] = types[begin:end]
    return out


def test_placeholders_of_both_alternate_and_each_has_its_row(folder):
    [step] = received(write_job(folder, "job", phases(1)), 1)
    types = documents([step])
    assert sorted(types) == [0, 1, 2, 3, 4]
    for index, kinds in types.items():
        changes = [kind for kind, before in zip(kinds, [0, *kinds]) if kind != before and kind != 0]
        if index == 1:
            assert changes == [VIDEO], "it has no audio"
        else:
            assert changes[:2] == [VIDEO, AUDIO] and len(changes) >= 3, index
    kinds = np.concatenate(list(types.values()))
    vision, audio = step.encoders["vision"], step.encoders["audio"]
    assert len(vision["item_valid"]) == 5 and len(audio["item_valid"]) == 4
    assert np.sum(vision["item_rows"]) == (kinds == VIDEO).sum()
    assert np.sum(audio["item_rows"]) == (kinds == AUDIO).sum()


def test_two_ranks_receive_the_same_documents(folder):
    one = documents(received(write_job(folder, "job", phases(1)), 1))
    two = documents(received(write_job(folder, "two", phases(2)), 2))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[index], two[index]) for index in one)


def test_without_the_key_the_video_stands_alone(folder):
    job = write_job(folder, "silent", phases(1), "use_audio_in_video: false", index="silent-index")
    harness.run("index", "--job", job)
    [step] = received(job, 1)
    assert set(np.concatenate(list(documents([step]).values()))) == {0, VIDEO}


LLM = '{name: llm, ranks: "0"}'


@pytest.mark.parametrize("names,of,keys,said", [
    ([LLM, '{name: vision, ranks: "0"}'], folders(audio=None), "", "processor.use_audio_in_video: no phase of the job encodes audio"),
    ([LLM, '{name: audio, ranks: "0"}'], folders(vision=None), "", "processor.use_audio_in_video: no phase of the job encodes video"),
    ([LLM, f'{{name: all, ranks: "0", media: [video, audio], processor: "{GOLDEN}/qwen3-omni"}}'], "", "",
     "phase all encodes videos and audio"),
    (phases(1), folders(), ", python: transformers", "use_audio_in_video"),
    (phases(1), folders(vision="qwen2_5-vl"), "", "only the processors of Qwen2.5-Omni and Qwen3-Omni"),
], ids=["no audio", "no video", "one phase", "python", "another family"])
def test_jobs_that_cannot_have_it_are_told_why(folder, names, of, keys, said):
    job = write_job(folder, "refused", names, f"use_audio_in_video: true{keys}", of, index="refused-index")
    done = harness.run("index", "--job", job, check=False)
    assert done.returncode != 0 and said in done.stderr, done.stderr
