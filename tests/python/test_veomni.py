"""VeOmni's own Qwen2-VL on our batches: the loss and the gradients of transformers' on the same samples."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

import jobs

torch = pytest.importorskip("torch", minversion="2.6")
pytest.importorskip("transformers", minversion="5")
pytestmark = [pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)"),
              pytest.mark.skipif(importlib.util.find_spec("veomni") is None, reason="veomni is not installed")]
STEPS = 8


def test_its_model_has_the_loss_of_transformers(tmp_path):
    imported = subprocess.run([sys.executable, "-c", "import veomni"], capture_output=True, text=True, timeout=300)
    if imported.returncode != 0:
        pytest.skip(f"veomni cannot be imported with this transformers: {imported.stderr.splitlines()[-1]}")
    import checkpoints
    checkpoints.write(tmp_path / "model", "qwen2_vl")
    checkpoints.write_shard(tmp_path / "all.tar", 24, ("image", "text", "images", "text"), tmp_path)
    # A document a microbatch: of packed ones only its flash attention keeps documents apart, which needs a GPU.
    job = checkpoints.write_job(tmp_path / "job.yaml", tmp_path / "model", str(tmp_path / "all.tar"), 1, 1, microbatch="{}")
    jobs.make_index(job)
    script = pathlib.Path(__file__).with_name("veomni_losses.py")
    with jobs.worker(job) as endpoint:
        done = subprocess.run([sys.executable, script, endpoint, tmp_path / "model", tmp_path, str(STEPS)],
                              capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    assert len(losses) == STEPS and any(one["media"] for one in losses) and not all(one["media"] for one in losses)
    for one in losses:
        assert one["veomni"] == pytest.approx(one["plain"], abs=1e-5)
        assert one["same"] and one["gradients_apart"] <= 1e-4 * one["largest"]
