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


def test_encoders_on_ranks_of_their_own_count_as_that_many(tmp_path):
    trace, seconds = write_trace(tmp_path / "trace.csv"), []
    for ranks in (0, 8, 32):
        done = simulate("--trace", trace, "--steps", 1, "--pipeline-stages", 2, "--microbatch-tokens", 8192, "--json",
                        "--encoder-ranks", ranks)
        assert done.returncode == 0, done.stderr
        policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
        assert {policy["gpus"] for policy in policies.values()} == {16 + ranks}
        assert "omnibal" in policies and "job" not in policies
        seconds.append(policies["balance_without_moving"]["iteration_seconds"])
    assert seconds[2] < seconds[0]


def test_five_encoders_are_simulated_by_their_columns(tmp_path):
    names = ("vision", "tower", "audio", "depth", "points")
    rng = random.Random(4)
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join([",".join(("llm", "empty", *names)), *(
        ",".join(["600", "", *(str(rng.choice([256, 1024])) for _ in names)]) for _ in range(500))]) + "\n")
    for arguments in ((), ("--context-parallel", "--memory-gb", 800)):
        done = simulate("--trace", trace, "--steps", 1, "--json", "--padded", "tower", "--svg", tmp_path / "pictures",
                        *arguments)
        assert done.returncode == 0, done.stderr
        for policy in json.loads(done.stdout)["policies"]:
            assert [phase["phase"] for phase in policy["phases"]] == ["llm", "vision", "audio", "tower", "depth", "points"]
    lengths = (tmp_path / "pictures" / "lengths.svg").read_text()
    assert all(f"{name}: 100.0 %" in lengths for name in names) and "empty" not in lengths


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
    assert seconds["regroup"] < min(seconds["megatron"], seconds["deepspeed"])
    assert seconds["regroup"] < min(seconds["static_power_of_two"], seconds["static"]), "even with hindsight"
    assert seconds["dhp"] < min(seconds["megatron"], seconds["deepspeed"])
    degrees = {len(group["ranks"]) for group in policies["regroup"]["groups"]}
    assert len(degrees) > 1 and len({len(group["ranks"]) for group in policies["megatron"]["groups"]}) == 1
    assert all(policy["peak_memory_bytes"] <= 80e9 for policy in policies.values())
    for name in ("lengths", "loads-dhp", "degrees-regroup"):
        assert xml.dom.minidom.parse(str(tmp_path / "pictures" / f"{name}.svg"))


def test_static_degrees_fit_the_longest_sequence(tmp_path):
    """One sequence that no step of the run draws decides what Megatron-LM's groups are."""
    rows = ["1024,300"] * 999
    degrees = {}
    for name, longest in (("short", "1024,300"), ("long", "1024,60000")):
        trace = tmp_path / f"{name}.csv"
        trace.write_text("vision,llm\n" + "\n".join(rows + [longest]) + "\n")
        done = simulate("--trace", trace, "--ranks", 8, "--per-rank", 8, "--context-parallel", "--model", "internvl3-8b",
                        "--no-recompute", "--steps", 1, "--policies", "megatron,regroup", "--json")
        assert done.returncode == 0, done.stderr
        policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
        degrees[name] = {len(group["ranks"]) for group in policies["megatron"]["groups"]}
        assert {len(group["ranks"]) for group in policies["regroup"]["groups"]} == {1}
    assert degrees == {"short": {1}, "long": {8}}


def test_the_table_of_degrees_compares_with_static_degrees(tmp_path):
    done = simulate("--trace", write_videos(tmp_path / "videos.csv"), "--ranks", 64, "--per-rank", 8, "--context-parallel",
                    "--model", "internvl3-8b", "--no-recompute", "--steps", 2)
    assert done.returncode == 0, done.stderr
    rows = {cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines())
            if len(cells) > 3}
    with_hindsight, of_trainers = rows["policy"].index("than static with hindsight"), rows["policy"].index("times faster than static")
    assert max(float(rows[name][of_trainers]) for name in ("megatron", "deepspeed")) == 1
    assert max(float(rows[name][with_hindsight]) for name in ("static_power_of_two", "static")) == 1
    assert float(rows["regroup"][of_trainers]) > 1 and float(rows["regroup"][with_hindsight]) > 1


def test_degrees_of_a_job_are_simulated_from_its_index(mixed):
    done = simulate("--job", mixed / "job.yaml", "--steps", 2, "--context-parallel", "--model", "mllm-10b", "--json",
                    "--memory-gb", 400)
    assert done.returncode == 0, done.stderr
    policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
    assert set(policies) == {"megatron", "megatron_hybrid", "deepspeed", "static_power_of_two", "static", "dhp_powers_of_two", "dhp", "persistent", "regroup_pool", "regroup"}
    assert all(policy["steps"] == 2 and policy["groups"] for policy in policies.values())


def test_a_wrong_trace_is_named_with_its_line_and_column(tmp_path):
    trace = tmp_path / "trace.csv"
    for text, why in (("", "not a CSV file with the header"),
                      ("vision,lmm\n1,2\n", ":1: no column 'llm'; the columns are vision, lmm"),
                      ("llm,llm\n1,2\n", ":1: column 'llm' is listed twice"),
                      ("vision\n1\n", ":1: no column 'llm'"),
                      ("vision,llm\n1,2\n\n3,x4\n", ":4: 'x4' in column llm is not a length"),
                      ("vision,llm\n1 -5,2\n", ":2: '-5' in column vision is not a length"),
                      ("vision,llm\n1,4294967296\n", ":2: '4294967296' in column llm is not a length"),
                      ("vision,llm\n1,2 3\n", ":2: 2 lengths in column llm; expected one"),
                      ("vision,llm\n1\n", ":2: 1 cells for 2 columns"),
                      ("Vision,llm\n1,2\n", ":1: a column has no phase: 'Vision' is not the name of a phase"),
                      ("vision,llm\n1,2\n", "the trace has 1 samples, but 480 are needed")):
        trace.write_text(text)
        done = simulate("--trace", trace)
        assert done.returncode == 2 and why in done.stderr, (text, done.stderr)
        assert text.count("\n") < 2 or str(trace) in done.stderr or "are needed" in why, done.stderr
    assert str(tmp_path) in simulate("--trace", tmp_path / "none.csv").stderr


def test_a_trace_shorter_than_a_step_is_drawn_with_repetition(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("llm\n100\n200\n300\n")
    done = simulate("--trace", trace, "--ranks", 4, "--samples", 37, "--policies", "none", "--steps", 2)
    assert done.returncode == 0 and "4 llm ranks, 37 samples a step, 2 steps" in done.stdout, done.stderr


def test_a_job_is_simulated_from_its_index(mixed):
    done = simulate("--job", mixed / "job.yaml", "--steps", 3, "--json")
    assert done.returncode == 0, done.stderr
    policies = {policy["policy"]: policy for policy in json.loads(done.stdout)["policies"]}
    assert "balance_without_moving" in policies and all(policy["steps"] == 3 for policy in policies.values())
    assert simulate("--job", mixed / "none.yaml").returncode == 2


def test_a_model_is_read_from_a_file_or_a_checkpoint(tmp_path):
    trace = write_trace(tmp_path / "trace.csv")
    printed = simulate("--model", "mllm-10b", "--print-model")
    assert printed.returncode == 0 and "parameters: 7e+09" in printed.stdout, printed.stderr
    (tmp_path / "own.yaml").write_text(printed.stdout + "machine: {peak_tflops: 1978}\n")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps({
        "model_type": "qwen2_vl", "hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
        "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "hidden_size": 3584,
                          "patch_size": 14}}))
    seconds, headings = {}, {}
    for name, arguments in (("preset", ["mllm-10b"]), ("file", [tmp_path / "own.yaml"]),
                            ("slower", [tmp_path / "own.yaml", "--peak-tflops", 989]), ("folder", [tmp_path / "checkpoint"])):
        done = simulate("--trace", trace, "--steps", 1, "--policies", "none", "--json", "--model", *arguments)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        seconds[name], headings[name] = document["policies"][0]["iteration_seconds"], document["heading"]
    assert seconds["file"] < 0.51 * seconds["preset"] and seconds["slower"] == seconds["preset"]
    assert headings["folder"].startswith("checkpoint (") and 0.5 < seconds["folder"] / seconds["preset"] < 1.5


def test_groups_of_a_pipeline_are_pipelines(tmp_path):
    trace = write_trace(tmp_path / "trace.csv")
    mfu = []
    for stages in (1, 2):
        done = simulate("--trace", trace, "--ranks", 8, "--context-parallel", "--steps", 1, "--json", "--pipeline-stages", stages)
        assert done.returncode == 0, done.stderr
        mfu.append({policy["policy"]: policy["mfu"] for policy in json.loads(done.stdout)["policies"]})
    assert all(0 < mfu[1][name] < one for name, one in mfu[0].items() if name not in ("megatron", "megatron_hybrid")), mfu


def test_what_is_unknown_is_named(tmp_path):
    trace = write_trace(tmp_path / "trace.csv")
    for arguments, why in ((["--model", "gpt"], "mllm-10b"), (["--policies", "best"], "post_balancing"),
                           (["--context-parallel", "--policies", "llm_only"],
                            "megatron, megatron_hybrid, deepspeed, static_power_of_two"),
                           (["--context-parallel", "--memory-gb", 1], "a rank holds 0 in addition to the model")):
        done = simulate("--trace", trace, *arguments)
        assert done.returncode == 2 and why in done.stderr
    assert simulate().returncode == 2
