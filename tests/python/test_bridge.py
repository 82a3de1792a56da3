"""Megatron-Bridge's own training loop on our provider, on a CPU: a plain loop's losses, and after a kill
nothing is left, and the checkpoint goes on with the same steps."""

import os
import pathlib
import subprocess
import sys

import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch", minversion="2.6")
pytest.importorskip("transformers", minversion="5")
pytest.importorskip("megatron.core")

import checkpoints  # noqa: E402
import launch  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
# Bridge, and the release of transformers that it needs, where tests/preprocess/parity/install put them.
OVERLAYS = [str(pathlib.Path(sys.prefix) / name) for name in ("v4", "bridge")]
PATH = [*OVERLAYS, PACKAGE, str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = {"EVENKEEL_BIN": jobs.BINARY, "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = subprocess.run([sys.executable, "-c", "import importlib.util as u; exit(not u.find_spec('megatron.bridge'))"],
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)})
    if found.returncode != 0:
        pytest.skip("megatron-bridge is not installed (tests/preprocess/parity/install puts it into FOLDER/bridge)")
    folder = tmp_path_factory.mktemp("bridge")
    checkpoints.write(folder / "model", "qwen2_vl")
    checkpoints.write_shard(folder / "text.tar", 24, ("text",), folder, seed=5)
    for ranks in (1, 2):
        checkpoints.write_job(folder / f"ranks-{ranks}.yaml", folder / "model", str(folder / "text.tar"), ranks, 8,
                              phases=("llm",), microbatch="{capacity_tokens: 300, count_multiple: 2}")
        jobs.make_index(folder / f"ranks-{ranks}.yaml")
    return folder


@pytest.fixture(scope="module")
def template(folder):
    template = launch.Template(["bridge_on_cpu", "train_megatron_bridge_gpt"], [*PATH, str(jobs.ROOT / "examples" / "trainers")],
                               {**ENVIRONMENT, "EVENKEEL_RUNTIME_DIR": str(folder / "runtime")})
    yield template
    template.close()


def arguments(folder, place, ranks, steps, *more):
    return ranks, folder / place, HERE / "bridge_training.py", folder / f"ranks-{ranks}.yaml", jobs.vocabulary(), steps, *more


def losses(lines):
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines if line[:1].isdigit()]


@pytest.fixture(scope="module")
def train(folder, template):
    """A function that trains and gives [(step, loss)]."""
    return lambda *told: losses(template.run(*arguments(folder, *told)))


@pytest.fixture(scope="module")
def whole(train):
    return train("whole", 2, STEPS)


def test_bridges_loop_has_the_plain_losses(folder, train, whole):
    plain = train("plain", 1, STEPS, folder / "whole" / "initial.pt")
    assert [step for step, _ in whole] == list(range(STEPS)) and whole[-1][1] < whole[0][1]
    assert [loss for _, loss in whole] == pytest.approx([loss for _, loss in plain], rel=2e-4)


def test_a_killed_training_leaves_nothing_and_resumes(folder, template, train, whole):
    place = folder / "killed"
    place.mkdir()
    (place / "hold").write_text("2")  # the step after which the ranks wait; the checkpoint has the two before it
    ranks = template.start(*arguments(folder, "killed", 2, STEPS))
    with launch.killed(ranks, folder):
        launch.wait_until(lambda: all((place / f"held-{rank}").exists() for rank in (0, 1)))
    assert all((place / "out" / "iter_0000002" / f"train_dataloader_dprank00{rank}.pt").exists() for rank in (0, 1))
    assert losses((place / "0.out").read_text().splitlines()) == whole[:3]
    (place / "hold").unlink()
    assert train("killed", 2, STEPS) == whole[2:]


def test_bridges_checkpoint_without_the_datas_state_is_refused(folder, train):
    train("stateless", 1, STEPS // 2)
    (folder / "stateless" / "out" / "iter_0000002" / "train_dataloader_dprank000.pt").unlink()
    with pytest.raises(AssertionError, match="dprank000.pt is missing, the state of the data at step 2"):
        train("stateless", 1, STEPS)
