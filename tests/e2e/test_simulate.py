"""`evenkeel simulate` on a trace: every policy has its figures, and the pictures are drawings."""

import json
import pathlib
import random
import subprocess
import sys
import xml.dom.minidom

import harness


def simulate(*arguments):
    return subprocess.run([harness.binary(), "simulate", *map(str, arguments)], capture_output=True, text=True,
                          timeout=harness.DEADLINE_SECONDS)


def write_trace(path):
    rng = random.Random(3)
    rows = [f"{rng.choice([256, 1024, 4096])},{rng.randint(200, 3000)}" for _ in range(2000)]
    path.write_text("vision,llm\n" + "\n".join(rows) + "\n")
    return path


def test_policies_are_compared_and_drawn(tmp_path):
    done = simulate("--trace", write_trace(tmp_path / "trace.csv"), "--steps", 2, "--pipeline-stages", 2,
                    "--microbatch-tokens", 8192, "--json", "--svg", tmp_path / "pictures")
    assert done.returncode == 0, done.stderr
    policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
    assert policies["balance_without_moving"]["iteration_seconds"] < policies["random"]["iteration_seconds"]
    assert all(0 < policy["mfu"] < 1 and policy["steps"] == 2 for policy in policies.values())
    for name in ("lengths", "loads-none", "pipeline-disttrain"):
        assert xml.dom.minidom.parse(str(tmp_path / "pictures" / f"{name}.svg"))


def write_videos(path):
    """Most videos are short and a few are many times as long, as DHP has them."""
    script = pathlib.Path(__file__).parents[2] / "bench" / "video_trace.py"
    path.write_text(subprocess.run([sys.executable, script, "5", "4000"], capture_output=True, text=True, check=True).stdout)
    return path


def test_dynamic_degrees_beat_static_ones(tmp_path):
    done = simulate("--trace", write_videos(tmp_path / "videos.csv"), "--ranks", 64, "--per-rank", 8, "--context-parallel",
                    "--model", "qwen3-vl-8b", "--no-recompute", "--steps", 4, "--json", "--svg", tmp_path / "pictures")
    assert done.returncode == 0, done.stderr
    policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
    seconds = {name: policy["iteration_seconds"] for name, policy in policies.items()}
    assert seconds["regroup"] < min(seconds["megatron"], seconds["static_power_of_two"], seconds["static"])
    assert seconds["dhp"] < seconds["megatron"]
    degrees = {len(group["ranks"]) for group in policies["regroup"]["groups"]}
    assert len(degrees) > 1 and len({len(group["ranks"]) for group in policies["megatron"]["groups"]}) == 1
    assert all(policy["peak_memory_bytes"] <= 80e9 for policy in policies.values())
    for name in ("lengths", "loads-dhp", "degrees-regroup"):
        assert xml.dom.minidom.parse(str(tmp_path / "pictures" / f"{name}.svg"))


def test_a_job_is_simulated_from_its_index(mixed):
    done = simulate("--job", mixed / "job.yaml", "--steps", 3, "--json")
    assert done.returncode == 0, done.stderr
    policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
    assert "balance_without_moving" in policies and all(policy["steps"] == 3 for policy in policies.values())
    assert simulate("--job", mixed / "none.yaml").returncode == 2


def test_what_is_unknown_is_named(tmp_path):
    trace = write_trace(tmp_path / "trace.csv")
    for arguments, why in ((["--model", "gpt"], "mllm-10b"), (["--policies", "best"], "post_balancing"),
                           (["--context-parallel", "--policies", "llm_only"], "megatron, static_power_of_two"),
                           (["--context-parallel", "--memory-gb", 1], "memory_per_rank"),
                           (["--context-parallel", "--pipeline-stages", 2], "without pipelines")):
        done = simulate("--trace", trace, *arguments)
        assert done.returncode == 2 and why in done.stderr
    assert simulate().returncode == 2
