"""Jobs over a mesh, with the data of jobs.py, and members of a replica as threads of one process."""

import threading

import jobs
from evenkeel import topology


def write_job(folder, name, mesh, ranks_per_node=0, sequences="", drop_in=False, microbatch=None, align=1):
    """mesh: {axis: size}, with "order" if another than the default."""
    path = jobs.write_job(folder, name, 1, "balance_without_moving", "once_per_step",
                          microbatch or f"{{capacity_tokens: 704, align: {align}}}")
    inside = ", ".join(f"{key}: {value}" for key, value in {"data": 1, **mesh}.items())
    more = f", sequences: {sequences}" if sequences else ""
    text = path.read_text().replace("topology: {ranks_per_node: 2}",
                                    f"topology: {{ranks_per_node: {ranks_per_node}, mesh: {{{inside}}}{more}}}")
    text = text.replace(', ranks: "0"', "")
    if drop_in:
        text = text.replace("algorithm: balance_without_moving", "algorithm: none").replace(", runs: once_per_step", "")
        text = text.replace("name: llm, algorithm: none", "name: llm") + "balance: drop_in\n"
    path.write_text(text)
    return path


def topology_of(rank, mesh, ranks_per_node=None):
    return topology.from_grid(rank, **{"data": 1, **mesh}, ranks_per_node=ranks_per_node)


def in_threads(ranks, call):
    """{rank: call(rank)}, all at the same time. The first error is raised once all have ended."""
    results, errors = {}, {}

    def run(rank):
        try:
            results[rank] = call(rank)
        except BaseException as error:  # noqa: B902 - raised below
            errors[rank] = error
    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a member does not end"
    for rank, error in sorted(errors.items()):
        raise AssertionError(f"rank {rank}; errors of {sorted(errors)}") from error
    return results
