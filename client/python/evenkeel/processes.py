"""Whether the training has a process for each rank of the job. Without one, its share of every step would not be trained.

The number of processes is that of torch.distributed where it is initialized, else what the launcher set for each process,
else 1. torch is not imported here.
"""

import os
import sys

from evenkeel.errors import InvalidArgument, name_ranks

# Of torchrun, accelerate, deepspeed and lightning; of srun; of mpirun (Open MPI); of mpiexec (MPICH, Intel MPI).
_VARIABLES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def count():
    """(number of processes, what gives it)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), "torch.distributed is initialized with that number"
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value), f"{name} is set to that number"
    return 1, f"torch.distributed is not initialized, and none of {', '.join(_VARIABLES)} is set"


def check(ranks):
    """InvalidArgument if the training has fewer processes than the job has ranks. `ranks`: global, ascending, members of
    replicas included. Processes without a rank of the job are allowed."""
    number, source = count()
    if number >= len(ranks):
        return
    raise InvalidArgument(
        f"the training has {number} {'process' if number == 1 else 'processes'} ({source}), but the job has {len(ranks)} ranks "
        f"({name_ranks(ranks)}): what the others should train would be left out. Start a process for each rank (torchrun "
        f"--nproc_per_node {len(ranks)} on one node), or change `ranks` in the job. For a trial with some of the ranks: "
        "Loader(some_ranks=True)", "INVALID_ARGUMENT")
