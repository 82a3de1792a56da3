"""What can go wrong, by what the trainer can do about it."""


class Error(RuntimeError):
    """Any error of the consumer. `code` is the status code's name ("UNAVAILABLE", ...)."""

    def __init__(self, message, code="UNKNOWN"):
        super().__init__(message)
        self.code = code


class Mismatch(Error):
    """The workers serve another stream, layout or version than expected; or a forked child uses its parent's loader."""


class Unavailable(Error):
    """No worker answered in time."""


class DeadlineExceeded(Unavailable):
    """A step did not arrive in time; the message has what was awaited and from whom."""


class DataLoss(Error):
    """Data that no worker could deliver; the message has the line for the job's `exclude` list."""


class InvalidArgument(Error, ValueError):
    """An option that makes no sense, or a step that does not fit into `prefetch_bytes`."""


_CLASSES = {"FAILED_PRECONDITION": Mismatch, "UNAVAILABLE": Unavailable, "DEADLINE_EXCEEDED": DeadlineExceeded,
            "DATA_LOSS": DataLoss, "INVALID_ARGUMENT": InvalidArgument}


def make(code, message):
    """The exception for a status of the C++ library."""
    return _CLASSES.get(code, Error)(message, code)


def name_ranks(ranks):
    """"ranks 0-2, 5" for [0, 1, 2, 5]."""
    out, begin = [], 0
    for i in range(1, len(ranks) + 1):
        if i == len(ranks) or ranks[i] != ranks[i - 1] + 1:
            out.append(f"{ranks[begin]}" if i - begin == 1 else f"{ranks[begin]}-{ranks[i - 1]}")
            begin = i
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(out)
