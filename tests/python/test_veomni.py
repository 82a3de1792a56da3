"""VeOmni's own Qwen2-VL on our batches: transformers' loss and gradients; and its trainer: the plain loop's losses, resumed."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch", minversion="2.6")
pytest.importorskip("transformers", minversion="5")

import checkpoints  # noqa: E402
import launch  # noqa: E402

pytestmark = [pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)"),
              pytest.mark.skipif(importlib.util.find_spec("veomni") is None, reason="veomni is not installed")]
EXAMPLES = jobs.ROOT / "examples" / "trainers"
PACKAGE = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
# The release of transformers that this VeOmni needs, where tests/preprocess/parity/install put it.
OLDER_TRANSFORMERS = str(pathlib.Path(sys.prefix) / "veomni")
PATH = [OLDER_TRANSFORMERS, PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])]
STEPS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A document a microbatch: of packed ones only VeOmni's flash attention keeps documents apart, which needs a GPU."""
    imported = subprocess.run([sys.executable, "-c", "import veomni"], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)})
    if imported.returncode != 0:
        pytest.skip(f"veomni cannot be imported with this transformers: {imported.stderr.splitlines()[-1]}")
    folder = tmp_path_factory.mktemp("veomni")
    checkpoints.write(folder / "model", "qwen2_vl")
    checkpoints.write_with_own_names(folder / "named", folder / "model")
    checkpoints.write_shard(folder / "all.tar", 24, ("image", "text", "images", "text"), folder)
    for ranks, samples in ((1, 1), (1, 2), (2, 2)):
        job = checkpoints.write_job(folder / f"ranks-{ranks}-samples-{samples}.yaml", folder / "model", str(folder / "all.tar"),
                                    ranks, samples, microbatch="{}")
        jobs.make_index(job)
    return folder


def test_its_model_has_the_loss_of_transformers(folder, tmp_path):
    script = pathlib.Path(__file__).with_name("veomni_losses.py")
    with jobs.worker(folder / "ranks-1-samples-1.yaml") as endpoint:
        done = subprocess.run([sys.executable, script, endpoint, folder / "model", folder / "named", tmp_path, str(STEPS)],
                              capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)})
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    assert len(losses) == STEPS and any(one["media"] for one in losses) and not all(one["media"] for one in losses)
    for one in losses:
        assert one["veomni"] == pytest.approx(one["plain"], abs=1e-5)
        assert one["same"] and one["gradients_apart"] <= 1e-4 * one["largest"]


def test_its_trainer_has_the_plain_losses_and_resumes(folder):
    environment = {"EVENKEEL_BIN": jobs.BINARY, "EVENKEEL_RUNTIME_DIR": str(folder / "runtime"), "HF_HUB_OFFLINE": "1"}
    shared = ["torch.distributed.fsdp", "transformers.models.qwen2_vl.modeling_qwen2_vl"]

    def run(modules, ranks, example, model, places_and_steps):
        template = launch.Template([*shared, *modules], PATH, environment)
        try:
            lines = [template.run(ranks, folder / place, EXAMPLES / f"{example}.py", folder / f"ranks-{ranks}-samples-2.yaml",
                                  folder / model, steps) for place, steps in places_and_steps]
        finally:
            template.close()
        return [[(int(line.split()[0]), float(line.split()[1])) for line in one if line[:1].isdigit()] for one in lines]
    plain, = run([], 1, "train_plain", "model", [("plain", STEPS)])
    whole, first, second = run(["veomni.trainer.vlm_trainer"], 2, "train_veomni", "named",
                               [("whole", STEPS), ("parts", STEPS // 2), ("parts", STEPS)])
    assert [step for step, _ in whole] == list(range(STEPS)) and whole[-1][1] < whole[0][1]
    assert [loss for _, loss in whole] == pytest.approx([loss for _, loss in plain], rel=2e-4)
    assert first + second == whole
