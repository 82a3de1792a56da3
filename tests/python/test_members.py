"""Members of a replica: what each receives, who receives for whom, and how many bytes that takes."""

import os
import pickle

import numpy as np
import pytest
import torch
import torch.distributed as dist

import evenkeel
import evenkeel.torch
import jobs
import mesh_jobs
import ranks
from evenkeel import topology

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")

STAGES = {"data": 2, "pipeline": 3}
WIDE = {"tensor": 4, "context": 2, "pipeline": 2}  # one replica of 16 ranks
DEEP = {"pipeline": 4}
SQUARE = {"tensor": 2, "data": 1, "pipeline": 2}
LLM_FIRST = {"input_ids", "position_ids", "mm_token_type_ids"}
LLM_ALL = {"cu_seqlens", "loss_tokens", "sample_ids", "sample_valid"}


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    os.environ["EVENKEEL_RUNTIME_DIR"] = str(folder)
    yield
    del os.environ["EVENKEEL_RUNTIME_DIR"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    jobs.write_shard(folder / "mixed.tar")
    return folder


def serve(folder, name, mesh, **options):
    path = mesh_jobs.write_job(folder, name, mesh, **options)
    if not (folder / "index").exists():
        jobs.make_index(path)
    return jobs.worker(path)


@pytest.fixture(scope="module")
def stages(folder):
    with serve(folder, "stages", STAGES) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def wide(folder):
    with serve(folder, "wide", WIDE, ranks_per_node=8) as endpoint:
        yield endpoint


def steps_of(endpoint, rank, **options):
    with jobs.alone(endpoint, rank=rank, num_steps=jobs.STEPS, **options) as loader:
        steps = list(loader)
        return steps, loader.stats()


def plain(step):
    """Everything of a step that a member sees, as bytes that can be compared."""
    return pickle.dumps((step.index, step.loss_tokens, step.num_samples, repr(step.loads),
                         [sorted((name, np.asarray(m[name]).tobytes()) for name in m if name != "encoders")
                          for m in step.microbatches],
                         sorted((phase, name, np.asarray(fields[name]).tobytes())
                                for phase, fields in step.encoders.items() for name in fields),
                         sorted((phase, route.ranks, route.send.tobytes(), route.receive.tobytes())
                                for phase, route in step.routes.items())))


def test_each_stage_has_its_fields_with_the_whole_values(stages):
    for replica in (0, 1):
        whole, _ = steps_of(stages, replica, whole=True)
        first, middle, last = (steps_of(stages, replica + 2 * stage)[0] for stage in range(3))
        for steps, fields in ((first, LLM_FIRST | LLM_ALL), (middle, {"position_ids"} | LLM_ALL),
                              (last, {"labels", "position_ids", "mm_token_type_ids"} | LLM_ALL)):
            for step, all_of_it in zip(steps, whole):
                assert len(step.microbatches) == len(all_of_it.microbatches)
                for one, other in zip(step.microbatches, all_of_it.microbatches):
                    assert set(one) == fields
                    assert all(np.array_equal(one[name], other[name]) for name in fields)
        for one, other, none in zip(first, whole, middle):
            assert all(not fields for fields in none.encoders.values()) and not none.routes
            for phase, fields in one.encoders.items():
                assert set(fields) == set(other.encoders[phase])
                assert all(np.array_equal(fields[name], other.encoders[phase][name]) for name in fields)


def test_the_last_stage_masks_damaged_samples(folder):
    damaged = 0
    with serve(folder, "dropped", STAGES, drop_in=True) as endpoint:
        for replica in (0, 1):
            whole, _ = steps_of(endpoint, replica, whole=True)
            last, _ = steps_of(endpoint, replica + 4)
            for one, other in zip(last, whole):
                assert not any(name.startswith(("pixel", "input_features")) for m in one.microbatches
                               for fields in m.encoders.values() for name in fields)
                assert all(route.ranks == [4, 5] for routes in one.routes.values() for route in routes)
                expected = evenkeel.torch.mask_labels(other, local=True)
                got = evenkeel.torch.mask_labels(one, local=True)
                assert all(torch.equal(a, b) for a, b in zip(got, expected))
                damaged += sum(int((np.asarray(m["labels"]) != label.numpy()).sum())
                               for m, label in zip(other.microbatches, expected))
    assert damaged > 0


def test_other_meshes_have_the_same_global_batches(folder, stages):
    def samples(endpoint, members):
        rows = [steps_of(endpoint, rank)[0] for rank in members]
        return [sorted(tuple(row) for steps in rows for m in steps[i].microbatches for row in m["sample_ids"].tolist())
                for i in range(jobs.STEPS)]
    path = jobs.write_job(folder, "flat", 3, "balance_without_moving", "once_per_step", "{capacity_tokens: 700}")
    with jobs.worker(path) as flat:
        assert samples(flat, [0, 1, 2]) == samples(stages, [0, 1]) == samples(stages, [4, 5])


def test_digests_do_not_depend_on_workers_or_transport(folder, stages):
    def digests(endpoints, **options):
        return [[step.digest() for step in steps_of(endpoints, rank, **options)[0]] for rank in range(6)]
    path = folder / "stages.yaml"
    with jobs.worker(path) as second, jobs.worker(path) as third:
        alone = digests(stages)
        assert digests(f"{stages},{second},{third}") == digests(second, transport="grpc") == alone
    assert len({digest for one in alone for digest in one}) == 6 * jobs.STEPS


def test_one_of_a_node_receives_for_the_others(wide):
    alone = {rank: steps_of(wide, rank) for rank in range(16)}

    def take(rank):
        place = mesh_jobs.topology_of(rank, WIDE, ranks_per_node=8)
        steps, stats = steps_of(wide, rank, topology=place, fetch="node")
        return [plain(step) for step in steps], stats
    together = mesh_jobs.in_threads(range(16), take)
    for rank, (steps, stats) in together.items():
        assert steps == [plain(step) for step in alone[rank][0]]
        assert (stats["bytes"] == alone[rank][1]["bytes"]) if rank in (0, 8) else (stats["bytes"] == 0)
        assert stats["shared_bytes"] > 0 and stats["steps"] == jobs.STEPS
    # One copy for each node, of which the last stage's has no pixels.
    assert sum(stats["bytes"] for _, stats in together.values()) == alone[0][1]["bytes"] + alone[8][1]["bytes"]
    assert alone[8][1]["bytes"] < alone[0][1]["bytes"] / 10


def test_one_receives_for_two_stages_on_its_node(folder):
    with serve(folder, "square", SQUARE, ranks_per_node=4) as endpoint:
        alone = [[plain(step) for step in steps_of(endpoint, rank)[0]] for rank in range(4)]
        whole = steps_of(endpoint, 0, whole=True)[1]["bytes"]

        def take(rank):
            steps, stats = steps_of(endpoint, rank, topology=mesh_jobs.topology_of(rank, SQUARE, 4), fetch="node")
            return [plain(step) for step in steps], stats["bytes"]
        together = mesh_jobs.in_threads(range(4), take)
        assert [together[rank][0] for rank in range(4)] == alone
        assert [together[rank][1] for rank in range(4)] == [whole, 0, 0, 0]


def test_four_stages_receive_little_more_than_one_copy(folder):
    with serve(folder, "deep", DEEP) as endpoint:
        received = [steps_of(endpoint, rank)[1]["bytes"] for rank in range(4)]
        whole = steps_of(endpoint, 0, whole=True)[1]["bytes"]
        assert sum(received) <= 1.1 * whole
        assert received[1] == received[2] < received[3] < received[0] <= whole


def lead(rank, endpoint):
    place = topology.from_grid(rank, **SQUARE)
    steps, stats = steps_of(endpoint, rank, topology=place, fetch="leader")
    with evenkeel.Loader(endpoint, topology=place, fetch="leader", num_steps=2) as loader:
        next(loader)
        total = topology.wire_bytes(loader, place)
    return [plain(step) for step in steps], stats, total


def test_a_leader_receives_and_broadcasts(folder):
    with serve(folder, "led", SQUARE) as endpoint:
        alone = [[plain(step) for step in steps_of(endpoint, rank)[0]] for rank in range(4)]
        answers = ranks.run(4, lead, endpoint)
        whole = steps_of(endpoint, 0, whole=True)[1]["bytes"]
    assert [steps for steps, _, _ in answers] == alone
    assert [stats["bytes"] for _, stats, _ in answers] == [whole, 0, 0, 0]
    assert len({tuple(total.items()) for _, _, total in answers}) == 1
    assert 0 < answers[0][2][0] < whole


def fail_to_lead(rank):
    place = topology.from_grid(rank, tensor=2, data=1)
    try:
        evenkeel.Loader("127.0.0.1:1", topology=place, fetch="leader", connect_timeout=1).connect()
    except evenkeel.Error as error:
        return type(error).__name__, str(error)


def test_all_members_hear_why_their_leader_cannot_connect():
    (name, text), (other, said) = ranks.run(2, fail_to_lead)
    assert name == other == "Unavailable" and text in said and "receives for this one" in said


def test_takers_hear_that_the_one_that_receives_has_ended(wide):
    def take(rank):
        place = mesh_jobs.topology_of(rank, WIDE, ranks_per_node=8)
        with jobs.alone(wide, topology=place, fetch="node", num_steps=3) as loader:
            next(loader)
            if rank == 8:
                return "ended"
            with pytest.raises(evenkeel.Unavailable, match="rank 8, which receives for this node, has ended"):
                next(loader)
            return "heard"
    assert list(mesh_jobs.in_threads(range(8, 16), take).values()).count("heard") == 7


def test_members_resume_together_at_another_step(wide):
    def take(rank):
        place = mesh_jobs.topology_of(rank, WIDE, ranks_per_node=8)
        with jobs.alone(wide, topology=place, fetch="node", num_steps=4) as loader:
            first = [next(loader).index, next(loader).index]
            state = loader.state_dict()
            loader.load_state_dict(dict(state, step=1))
            return first, state["step"], next(loader).index, loader.state_dict()
    states = list(mesh_jobs.in_threads(range(8), take).values())
    assert all(one[:3] == ([0, 1], 2, 1) for one in states)
    assert all(one[3] == states[0][3] for one in states)


def test_arrays_of_takers_may_be_written_and_kept(wide):
    def take(rank):
        place = mesh_jobs.topology_of(rank, WIDE, ranks_per_node=8)
        steps, _ = steps_of(wide, rank, topology=place, fetch="node")
        ids = steps[0].microbatches[0]["cu_seqlens"]
        ids += rank
        return ids - rank
    kept = mesh_jobs.in_threads(range(8), take)
    assert all(np.array_equal(one, kept[0]) for one in kept.values())


def test_a_mesh_other_than_the_jobs_is_refused(wide):
    place = topology.from_grid(3, tensor=2, context=4, pipeline=2, data=1)
    with pytest.raises(evenkeel.InvalidArgument, match="mesh of the training is not that of the job's llm"):
        evenkeel.Loader(wide, topology=place).connect()
    with pytest.raises(evenkeel.InvalidArgument, match="rank 16 is not in the job: its phases run on ranks 0-15"):
        evenkeel.Loader(wide, rank=16).connect()


def test_options_that_make_no_sense_are_refused(wide):
    place = mesh_jobs.topology_of(3, WIDE, 8)
    with pytest.raises(TypeError, match="needs the topology"):
        evenkeel.Loader(wide, rank=0, fetch="node")
    with pytest.raises(ValueError, match="not one of each, node, leader"):
        evenkeel.Loader(wide, rank=0, fetch="all")
    with pytest.raises(ValueError, match="rank 4 with the topology of rank 3"):
        evenkeel.Loader(wide, rank=4, topology=place)


def check_from(rank, endpoint, kind):
    try:
        grid = dict(SQUARE)
        number, nodes = rank, 4
        if kind == "mesh" and rank == 2:
            grid = {"tensor": 4, "data": 1}
        if kind == "rank" and rank == 2:
            number = 1
        if kind == "nodes" and rank == 3:
            nodes = 2
        if kind == "job":
            grid = {"tensor": 2, "data": 2}
        place = topology.from_grid(number, **grid, ranks_per_node=nodes)
        loader = evenkeel.Loader(endpoint, rank=number) if kind in ("job", "fine") else None
        topology.check(place, loader)
    except evenkeel.Error as error:
        return type(error).__name__, str(error)
    return "ok", ""


@pytest.mark.parametrize("kind, words", [("mesh", "rank 2 have another mesh than rank 0"),
                                         ("rank", "rank 1 used by more than one process"),
                                         ("nodes", "rank 3 have another ranks_per_node than rank 0"),
                                         ("job", "the job's llm has another mesh than ranks 0-3"), ("fine", "")])
def test_all_ranks_hear_that_meshes_differ(folder, kind, words):
    with serve(folder, "checked", SQUARE, ranks_per_node=4) as endpoint:
        for name, text in ranks.run(4, check_from, endpoint, kind):
            assert name == ("Mismatch" if words else "ok") and words in text


def test_ranks_of_one_node_on_two_hosts_are_refused():
    said = [[0, 0, 2, 7, 0], [1, 0, 2, 7, 0], [2, 0, 2, 7, 0], [3, 0, 2, 8, 0]]
    with pytest.raises(RuntimeError, match="ranks of node 1 run on 2 hosts"):
        topology._check_hosts(2, said, lambda text: (_ for _ in ()).throw(RuntimeError(text)))


def exchange_flags(rank, endpoint):
    """Labels of the last stage where items move between replicas: the flags take the route among the last stages."""
    place = topology.from_grid(rank, **{"data": 2, "pipeline": 2})
    first, last = dist.new_group([0, 1]), dist.new_group([2, 3])
    steps, _ = steps_of(endpoint, rank)
    if place.stage == 0:
        whole, _ = steps_of(endpoint, rank, whole=True)
        return [[one.tolist() for one in evenkeel.torch.mask_labels(step, group=first)] for step in whole]
    return [[one.tolist() for one in evenkeel.torch.mask_labels(step, group=last)] for step in steps]


def test_flags_of_moved_items_reach_the_last_stage(folder):
    path = mesh_jobs.write_job(folder, "moving", {"data": 2, "pipeline": 2})
    path.write_text(path.read_text().replace("balance_without_moving", "greedy_packed"))
    with jobs.worker(path) as endpoint:
        assert any(not route.stays for step in steps_of(endpoint, 0)[0] for route in step.routes.values())
        answers = ranks.run(4, exchange_flags, endpoint)
    assert answers[0] == answers[2] and answers[1] == answers[3]
