"""Ready batches of multimodal samples, balanced over ranks, from the workers of one Evenkeel job.

    import evenkeel, evenkeel.torch
    for step in evenkeel.Loader("job.yaml", rank=rank):      # endpoints="dns:///workers.training:7000" for a fleet
        encoded = vision_encoder(evenkeel.torch.pixels(step.encoders["vision"], "pixel_values"))
        rows = evenkeel.torch.exchange(encoded, step.routes["vision"])
        ...

docs/python.md explains every name. `evenkeel.torch` needs torch; the rest needs numpy alone.
"""

from evenkeel.errors import DataLoss, DeadlineExceeded, Error, InvalidArgument, Mismatch, Unavailable
from evenkeel.loader import Loader
from evenkeel.route import Route
from evenkeel.step import Fields, Microbatch, Step, columns, pairs

__version__ = "0.1.0"  # as `evenkeel --version` and pyproject.toml

__all__ = ["DataLoss", "DeadlineExceeded", "Error", "Fields", "InvalidArgument", "Loader", "Microbatch", "Mismatch",
           "Route", "Step", "Unavailable", "columns", "pairs"]
