"""The examples of trainers, each with a small random model on two gloo ranks: the plain loop's losses, and the same steps
after a checkpoint of the trainer's own kind. Frameworks that are not installed are skipped."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch", minversion="2.6")
transformers = pytest.importorskip("transformers", minversion="5")

import checkpoints  # noqa: E402
import launch  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
EXAMPLES = jobs.ROOT / "examples" / "trainers"
STEPS = 4
ADAPTERS = ("deepspeed", "hf", "lightning", "llamafactory", "loop", "megatron", "megatron_bridge", "swift", "torchtitan",
            "trl", "veomni")
# Modules that an example needs in addition to torch and transformers.
NEEDS = {"train_ddp": (), "train_fsdp2": (), "train_hf": ("accelerate",), "train_accelerate": ("accelerate",),
         "train_lightning": ("pytorch_lightning",), "train_trl": ("trl", "datasets"), "train_deepspeed": ("deepspeed",),
         "train_llamafactory": ("llamafactory", "omegaconf"), "train_swift": ("swift",)}


def is_installed(name):
    return importlib.util.find_spec(name.split(".")[0]) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    checkpoints.write(folder / "model", "qwen2_vl")
    checkpoints.write_shard(folder / "all.tar", 24, ("image", "text", "images", "text"), folder)
    for ranks in (1, 2):
        job = checkpoints.write_job(folder / f"ranks-{ranks}.yaml", folder / "model", str(folder / "all.tar"), ranks, 8,
                                    encoder="{}", microbatch="{capacity_tokens: 200}")
        jobs.make_index(job)
        bare = checkpoints.write_job(folder / f"bare-{ranks}.yaml", folder / "model", str(folder / "all.tar"), ranks, 8,
                                     microbatch="{capacity_tokens: 200}")  # without dummies
        jobs.make_index(bare)
    return folder


@pytest.fixture(scope="module")
def template(folder):
    package = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
    template = launch.Template(
        ["torch", "torch.distributed", "torch.distributed.fsdp", "transformers", "transformers.models.qwen2_vl.modeling_qwen2_vl",
         *filter(is_installed, ("accelerate", "pytorch_lightning", "megatron.core.models.gpt.gpt_model", "trl.trainer.sft_trainer"))],
        [package, *filter(None, [os.environ.get("PYTHONPATH")])],
        {"EVENKEEL_BIN": jobs.BINARY, "EVENKEEL_RUNTIME_DIR": str(folder / "runtime"), "HF_HUB_OFFLINE": "1",
         "DS_ACCELERATOR": "cpu"})
    yield template
    template.close()


def losses(lines):
    """[(step, loss)] of the lines that an example prints."""
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines if line[:1].isdigit()]


def run(template, folder, ranks, place, example, steps):
    job = "bare" if example == "train_swift" else "ranks"  # ms-swift has dummies of its own
    return losses(template.run(ranks, folder / place, EXAMPLES / f"{example}.py", folder / f"{job}-{ranks}.yaml",
                               folder / "model", steps))


@pytest.fixture(scope="module")
def plain(template, folder):
    """One rank, one process, no framework."""
    return run(template, folder, 1, "plain", "train_plain", STEPS)


def test_the_plain_loop_learns_and_resumes(template, folder, plain):
    assert [step for step, _ in plain] == list(range(STEPS)) and plain[-1][1] < plain[0][1]
    parts = [run(template, folder, 1, "plain-parts", "train_plain", steps) for steps in (STEPS // 2, STEPS)]
    assert parts[0] + parts[1] == plain


@pytest.mark.parametrize("example", list(NEEDS))
def test_a_trainer_has_the_plain_losses_and_resumes(template, folder, plain, example):
    missing = [name for name in NEEDS[example] if not is_installed(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    whole = run(template, folder, 2, example, example, STEPS)
    assert [step for step, _ in whole] == list(range(STEPS))
    assert [loss for _, loss in whole] == pytest.approx([loss for _, loss in plain], rel=2e-4)
    first = run(template, folder, 2, f"{example}-parts", example, STEPS // 2)
    assert first == whole[:STEPS // 2]
    second = run(template, folder, 2, f"{example}-parts", example, STEPS)
    assert second[-(STEPS // 2):] == whole[STEPS // 2:] and second[:-(STEPS // 2)] in ([], first)


def test_a_launcher_that_starts_one_process_is_refused(folder):
    """Accelerate's, on a machine without GPUs."""
    pytest.importorskip("accelerate")
    package = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", EXAMPLES / "train_accelerate.py",
         folder / "ranks-2.yaml", folder / "model", str(STEPS)], cwd=folder, capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": package, "EVENKEEL_BIN": jobs.BINARY, "EVENKEEL_RUNTIME_DIR": str(folder / "runtime"),
             "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    assert done.returncode != 0 and "the training has 1 process" in done.stderr, done.stderr[-3000:]
    assert "the job has 2 ranks (ranks 0-1)" in done.stderr


def test_zero_of_every_stage_has_the_plain_losses(template, folder, plain):
    pytest.importorskip("deepspeed")
    for stage in (1, 3):  # 2 is the example's default
        lines = template.run(2, folder / f"zero-{stage}", EXAMPLES / "train_deepspeed.py", folder / "ranks-2.yaml",
                             folder / "model", STEPS, stage)
        assert [loss for _, loss in losses(lines)] == pytest.approx([loss for _, loss in plain], rel=2e-4), stage


def test_fsdp2_calls_the_tower_alike_on_all_ranks(template, folder):
    """A forward calls its tower for pictures and again for videos. Ranks with both, one and none make the same calls."""
    checkpoints.write_shard(folder / "both.tar", 16, ("both", "image", "video", "text"), folder, seed=6)
    jobs_of = {}
    for ranks in (1, 2):
        path = checkpoints.write_job(folder / f"kinds-{ranks}.yaml", folder / "model", str(folder / "both.tar"), ranks, 4,
                                     encoder="{}", microbatch="{capacity_tokens: 300}", phases=("llm", "pictures", "videos"))
        text = path.read_text().replace("{name: pictures,", "{name: pictures, media: [image],")
        path.write_text(text.replace("{name: videos,", "{name: videos, media: [video],"))
        jobs.make_index(path)
        jobs_of[ranks] = path
    expected = losses(template.run(1, folder / "kinds-plain", EXAMPLES / "train_plain.py", jobs_of[1], folder / "model", STEPS))
    given = losses(template.run(2, folder / "kinds-fsdp2", EXAMPLES / "train_fsdp2.py", jobs_of[2], folder / "model", STEPS))
    assert [step for step, _ in given] == list(range(STEPS))
    assert [loss for _, loss in given] == pytest.approx([loss for _, loss in expected], rel=2e-4)


def text_job(folder, ranks, microbatch):
    path = folder / f"text-{ranks}.yaml"
    checkpoints.write_job(path, folder / "model", str(folder / "text.tar"), ranks, 8, phases=("llm",), microbatch=microbatch)
    jobs.make_index(path)
    return path


def test_megatron_core_trains_and_resumes(template, folder):
    pytest.importorskip("megatron.core")
    checkpoints.write_shard(folder / "text.tar", 24, ("text",), folder, seed=5)
    job = {ranks: text_job(folder, ranks, "{capacity_tokens: 300, count_multiple: 2}") for ranks in (1, 2)}

    def train(place, ranks, steps):
        return losses(template.run(ranks, folder / place, EXAMPLES / "train_megatron.py", job[ranks], jobs.vocabulary(), steps))
    whole, one = train("megatron", 2, STEPS), train("megatron-one", 1, STEPS)
    assert [loss for _, loss in whole] == pytest.approx([loss for _, loss in one], rel=2e-4) and whole[-1][1] < whole[0][1]
    assert train("megatron-parts", 2, STEPS // 2) + train("megatron-parts", 2, STEPS) == whole


def test_torchtitan_trains_and_resumes(template, folder):
    for name in ("torchtitan", "triton", "spmd_types", "torch_checkpointing", "tensorboard"):
        pytest.importorskip(name)  # TorchTitan imports all of them
    checkpoints.write_shard(folder / "text.tar", 24, ("text",), folder, seed=5)
    job = {ranks: text_job(folder, ranks, "{pad_to: 320, count_multiple: 2}") for ranks in (1, 2)}

    def train(place, ranks, steps):
        return losses(template.run(ranks, folder / place, EXAMPLES / "train_torchtitan.py", job[ranks], folder / "model", steps))
    whole, one = train("titan", 2, STEPS), train("titan-one", 1, STEPS)
    assert [loss for _, loss in whole] == pytest.approx([loss for _, loss in one], rel=2e-4) and whole[-1][1] < whole[0][1]
    assert train("titan-parts", 2, STEPS // 2) + train("titan-parts", 2, STEPS) == whole


def test_nothing_is_left_of_a_killed_trainer(template, folder):
    place = folder / "killed"
    ranks = template.start(2, place, EXAMPLES / "train_ddp.py", folder / "ranks-2.yaml", folder / "model", 100000)
    with launch.killed(ranks, folder):
        launch.wait_until(lambda: (place / "0.out").exists() and len((place / "0.out").read_text().splitlines()) > 2)


def test_no_file_of_a_trainer_is_imported_by_the_package():
    package = pathlib.Path(evenkeel.__file__).absolute().parent
    lazy = [path.stem for path in package.glob("*.py") if path.stem in ADAPTERS]
    assert sorted(lazy) == sorted(ADAPTERS)
    for name in ADAPTERS:
        assert len((package / f"{name}.py").read_text().splitlines()) <= 100, name
    code = f"import evenkeel, sys; print([n for n in {[f'evenkeel.{name}' for name in ADAPTERS] + ['torch']} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(package.parent)})
    assert done.stdout == "[]\n", done.stdout + done.stderr
