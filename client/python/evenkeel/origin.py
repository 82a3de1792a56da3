"""Which stream steps come from: what all ranks of a training must share."""


class Origin:
    """What one connection of a loader follows. All steps and routes of the connection refer to the same object.

    rank                           global rank of the loader
    stream_digest, layout_digest   what the workers serve
    """

    def __init__(self, rank, stream_digest, layout_digest):
        self.rank = rank
        self.stream_digest = stream_digest
        self.layout_digest = layout_digest
        self._agreed = []  # process groups whose ranks were compared

    def is_agreed(self, *groups):
        return any(known is group for known in self._agreed for group in groups)

    def mark_agreed(self, group):
        self._agreed.append(group)

    def __getstate__(self):
        return dict(self.__dict__, _agreed=[])  # a process group belongs to its process
