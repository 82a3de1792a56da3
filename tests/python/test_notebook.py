"""examples/first_steps.ipynb in a Jupyter kernel, from a folder of shards to trained steps, and nothing left behind."""

import json
import os
import pathlib
import shutil
import time

import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")
jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

import checkpoints  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
NOTEBOOK = jobs.ROOT / "examples" / "first_steps.ipynb"
# The torch of the parity tests has stand-ins for CUDA's libraries, which cannot answer this question.
NO_CUDA = "import torch\ntorch.cuda.is_current_stream_capturing = lambda: False\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a user would stand: a checkpoint with a chat template, shards, and `evenkeel` on PATH."""
    checkpoint = checkpoints.write(tmp_path / "qwen2-vl", "qwen2_vl")
    shutil.copy(jobs.GOLDEN / "tokenizer" / "chat_template.jinja", checkpoint)
    (tmp_path / "shards").mkdir()
    checkpoints.write_shard(tmp_path / "shards" / "train-00000.tar", 24, ("image", "text", "images"), tmp_path)
    (tmp_path / "sitecustomize.py").write_text(NO_CUDA)
    package = str(pathlib.Path(evenkeel.__file__).absolute().parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), package, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PATH", os.pathsep.join([str(pathlib.Path(jobs.BINARY).parent), os.environ["PATH"]]))
    monkeypatch.setenv("EVENKEEL_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    return tmp_path


def run(folder):
    """[text that each code cell prints]; fails with the traceback of a cell that raises."""
    manager = jupyter_client.KernelManager()  # of this interpreter
    manager.start_kernel(cwd=folder)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        printed = []
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                said = []
                reply = client.execute_interactive("".join(cell["source"]), timeout=240, output_hook=said.append)
                text = "".join(message["content"].get("text", "") for message in said)
                assert reply["content"]["status"] == "ok", text + "\n".join(reply["content"]["traceback"])
                printed.append(text)
        return printed
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def workers_of(folder):
    """Processes with the folder in their command line or working directory."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(str(folder)):
                found.append(process.name)
        except OSError:
            pass  # it has ended, or is not ours
    return found


def test_the_first_steps_train_and_leave_nothing(folder):
    printed = run(folder)
    assert "samples     24" in printed[1] and "balance: drop_in" in printed[2]
    assert "input_ids" in printed[3]
    assert (folder / "step.html").stat().st_size > 1000
    steps = [line.split() for text in printed[5:] for line in text.splitlines() if line[:1].isdigit()]
    assert [int(step) for step, _ in steps] == list(range(12)), "it goes on with the first step that was not trained"
    assert float(steps[-1][1]) < float(steps[0][1])
    end = time.monotonic() + 30
    while (left := workers_of(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "the kernel was killed, and its worker is still there"
