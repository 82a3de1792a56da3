"""`evenkeel solve`: problems in, solutions out, and what is no problem is refused with exit code 2."""

import json
import random
import subprocess

import pytest

import harness


def solve(text, *arguments):
    return subprocess.run([harness.binary(), "solve", *map(str, arguments)], input=text, capture_output=True,
                          text=True, timeout=harness.DEADLINE_SECONDS)


def solution(text, *arguments):
    done = solve(text, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def balance_problem(algorithm, samples=200, ranks=8):
    rng = random.Random(5)
    problem = {"ranks_per_node": 4, "samples": [],
               "phases": [{"name": name, "num_ranks": ranks, "algorithm": algorithm} for name in ("llm", "vision", "audio")]}
    for _ in range(samples):
        vision = [{"cost_length": 4 * n, "output_rows": n} for n in (rng.randint(50, 900) for _ in range(rng.randint(0, 3)))]
        audio = [{"cost_length": 2 * n, "output_rows": n} for n in (rng.randint(50, 400) for _ in range(rng.randint(0, 1)))]
        llm = sum(item["output_rows"] for item in vision + audio) + rng.randint(10, 300)
        problem["samples"].append({"llm": llm, "vision": vision, "audio": audio})
    return problem


@pytest.mark.parametrize("algorithm", ["balance_without_moving", "greedy_packed", "karmarkar_karp", "intra_microbatch",
                                       "greedy_quadratic", "greedy_padded_attention", "binary_search_padded", "node_wise", "none"])
def test_a_balance_solution_agrees_with_its_problem(algorithm):
    problem = balance_problem(algorithm)
    solved = solution(json.dumps({"balance": problem}))
    assert solved["wall_ms"] > 0
    balance = solved["balance"]
    llm, vision = balance["phases"][0], balance["phases"][1]
    loads = [0] * 8
    for sample, rank in zip(problem["samples"], balance["llm_rank"], strict=True):
        loads[rank] += sample["llm"]
    assert loads == llm["load"]
    assert llm["max_over_mean"] == pytest.approx(max(loads) * 8 / sum(loads))
    between, ranks = 0, iter(vision["rank"])
    for sample, home in zip(problem["samples"], balance["llm_rank"], strict=True):
        between += sum(item["output_rows"] for item in sample["vision"] if next(ranks) // 4 != home // 4)
    assert int(vision["inter_node_rows"]) == between
    rows = sum(item["output_rows"] for sample in problem["samples"] for item in sample["vision"])
    assert sum(map(int, balance["routes"][0]["rows"])) == rows


def test_a_given_placement_is_kept():
    problem = balance_problem("balance_without_moving")
    problem["llm_rank"] = [i % 8 for i in range(200)]
    assert solution(json.dumps({"balance": problem}))["balance"]["llm_rank"] == problem["llm_rank"]


def test_composing_leads_rows_the_whole_way_and_back():
    first = {"num_ranks": 2, "from": [0], "from_row": [0], "to": [1], "to_row": [4], "rows": [6]}
    second = {"num_ranks": 2, "from": [1], "from_row": [0], "to": [0], "to_row": [0], "rows": [7]}
    composed = solution(json.dumps({"compose": {"first": first, "second": second}}))["compose"]
    assert composed["route"] == {"num_ranks": 2, "from": [0], "from_row": ["0"], "to": [0], "to_row": ["4"], "rows": ["3"]}
    assert composed["inverse"]["from_row"] == ["4"] and composed["inverse"]["to_row"] == ["0"]


def test_microbatches_are_ordered():
    microbatches = [{"forward": [size, size], "backward": [2 * size, 2 * size]} for size in (4, 1, 2, 3)]
    solved = solution(json.dumps({"order": {"stages": 2, "schedule": "1f1b", "microbatches": microbatches}}))
    order = solved["order"]
    assert solved["wall_ms"] > 0 and sorted(order["order"]) == [0, 1, 2, 3]
    assert order["bound"] <= order["iteration_time"] < order["given_time"]


def test_a_trace_of_five_encoders_becomes_a_problem(tmp_path):
    names = ("audio", "tower", "vision", "depth", "points")
    rng = random.Random(11)
    rows = [",".join(["300", *(" ".join(str(rng.randint(1, 400)) for _ in range(rng.randint(0, 2))) for _ in names)])
            for _ in range(200)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join([",".join(("llm", *names)), *rows]) + "\n")
    balance = solution("", "--trace", trace, "--ranks", 4, "--per-rank", 50, "--ranks-per-node", 2)["balance"]
    phases = {phase["name"]: phase for phase in balance["phases"]}
    assert list(phases) == ["llm", "vision", "audio", "tower", "depth", "points"]
    columns = [row.split(",")[1:] for row in rows]
    for name in names:
        lengths = [int(word) for row in columns for word in row[names.index(name)].split()]
        assert sum(phases[name]["load"]) == sum(lengths) and len(phases[name]["rank"]) == len(lengths)
        per_row = 2 if name == "audio" else 4
        assert int(phases[name]["rows"]) == sum(-(-length // per_row) for length in lengths)
    pack = solution("", "--trace", trace, "--kind", "pack", "--devices", 2)["pack"]
    assert [phase["name"] for phase in pack["phases"]] == list(phases) and len(pack["bin"]) == 200


def test_a_trace_becomes_a_problem(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("vision,audio,llm\n" + "".join(f"{400 + i} 80,,{150 + i}\n,{100 + i},{60 + i}\n" for i in range(100)))
    solved = solution("", "--trace", trace, "--ranks", 4, "--per-rank", 50, "--ranks-per-node", 2, "--algorithm",
                      "greedy_packed", "--llm-placement", "greedy_packed", "--seed", 9)["balance"]
    assert len(solved["llm_rank"]) == 200 and [phase["name"] for phase in solved["phases"]] == ["llm", "vision", "audio"]
    for arguments in (["--ranks", 100], ["--algorithm", "best"], ["--llm-placement", "best"]):
        assert solve("", "--trace", trace, *arguments).returncode == 2
    short = solve("", "--trace", trace, "--ranks", 2560)
    assert short.returncode == 2 and "the trace has 200 samples, but 153600 are needed" in short.stderr
    assert "--samples N" in short.stderr
    repeated = solution("", "--trace", trace, "--ranks", 2560, "--samples", 7001, "--seed", 9)["balance"]
    assert len(repeated["llm_rank"]) == 7001 and len(repeated["phases"][0]["load"]) == 2560
    trace.write_text("vision,llm\n12,x\n")
    refused = solve("", "--trace", trace, "--ranks", 1, "--per-rank", 1)
    assert refused.returncode == 2 and f"{trace}:2: 'x' in column llm" in refused.stderr
    assert solve("", "--trace", tmp_path / "none.csv").returncode == 2


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '{"balance": {}}', '{"balance": {"phases": [{"name": "llm"}]}}',
    '{"balance": {"phases": [{"name": "text", "num_ranks": 1}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 4294967295}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "min_items": 4294967295}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "cost": {"linear": "NaN"}}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "batching": "loose"}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "runs": "never"}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "tolerance": -1}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2}], "llm_rank": [0]}}',
    '{"balance": {"phases": [{"name": "llm", "ranks": [1, 1]}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2, "nodes": [0]}]}}',
    '{"balance": {"phases": [{"name": "llm", "num_ranks": 2}], "samples": [{"vision": [{"output_rows": 1}]}]}}',
    '{"compose": {"first": {"num_ranks": 1, "from": [0]}}}',
    '{"compose": {"first": {"num_ranks": 1}, "second": {"num_ranks": 2}}}',
])
def test_what_is_no_problem_is_refused(text):
    done = solve(text)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stderr.startswith("evenkeel: ") and not done.stdout


def test_lines_are_answered_in_order_and_one_at_a_time():
    problems = [{"balance": balance_problem("greedy_packed", samples=n)} for n in (8, 3)]
    with subprocess.Popen([harness.binary(), "solve", "--lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        for problem in problems:
            process.stdin.write(json.dumps(problem) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())  # before the next problem is written
            assert answer["balance"] == solution(json.dumps(problem))["balance"]
        process.stdin.close()
        assert process.wait(harness.DEADLINE_SECONDS) == 0


def test_a_line_without_a_solution_says_why():
    good = json.dumps({"balance": balance_problem("none", samples=4)})
    done = solve(f"{good}\nno JSON\n\n{good}\n", "--lines")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 2 and "2 of 4 problems" in done.stderr
    assert "balance" in answers[0] and answers[0]["balance"] == answers[3]["balance"]
    assert all("problem:" in answer["error"] and len(answer) == 2 for answer in answers[1:3])  # and wall_ms
