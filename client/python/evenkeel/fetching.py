"""Who of a replica receives from the workers: every member, one per node, or one alone (`Loader(fetch=...)`).

A Giver receives and passes on; a Taker takes from one. Both have the methods of the extension's Consumer that a Loader
uses. Between them is a channel: over sealed-off memory of one node here, over a broadcast in broadcasting.py. What
passes is a step as bytes (client/shared_step.h), cut to the role of the one that takes it.
"""

import contextlib
import hashlib
import json
import mmap
import os
import select
import socket
import struct
import time

from evenkeel import _evenkeel, embedded, errors
from evenkeel.topology import ROLES

HELLO, STEP, END, ERROR = range(4)
_AHEAD = 2  # steps that a taker may be behind the giver
_GRACE_SECONDS = 30  # a taker waits longer than the giver, which has the reason why a step did not arrive
_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 10
_HEADER = struct.Struct("<4sBQQ")  # magic, kind, step, bytes of what follows or of the memory
_MAGIC = b"EVKS"


def worded(error):
    """An error as a message to the takers, whose `Taker` raises it."""
    return json.dumps([error.code, str(error)]).encode()


class Giver:
    """Receives by `consumer` and passes every step on.

    own      role of this process; None: the step as it was received, since all have one role
    channel  its takers: hello(bytes), step(index, native, own) -> memory or None, end(), error(bytes), close()
    """

    def __init__(self, consumer, channel, own):
        self._consumer, self._channel, self._own = consumer, channel, own
        self._passed = 0
        channel.hello(json.dumps({"phases": consumer.phases(), "generators": consumer.generators(),
                                  "sequences": consumer.sequences(), "group_sizes": consumer.group_sizes(),
                                  "num_steps": consumer.num_steps(),
                                  "state": consumer.state()}).encode())

    def next(self):
        try:
            native = self._consumer.next()
        except errors.Error as error:
            self._channel.error(worded(error))
            raise
        if native is None:
            self._channel.end()
            return None
        memory, passed = self._channel.step(native.index, native)
        self._passed += passed
        if self._own is None:
            return native
        number = ROLES.index(self._own)
        memory = native.share(number, lambda size: mmap.mmap(-1, size)) if memory is None else memory
        return _evenkeel.Step.from_shared(memory, native.index)

    def stats(self):
        return dict(self._consumer.stats(), shared_bytes=self._passed)

    def state(self):
        return self._consumer.state()

    def seek(self, step):
        self._consumer.seek(step)

    def phases(self):
        return self._consumer.phases()

    def generators(self):
        return self._consumer.generators()

    def sequences(self):
        return self._consumer.sequences()

    def group_sizes(self):
        return self._consumer.group_sizes()

    def num_steps(self):
        return self._consumer.num_steps()

    def close(self):
        self._channel.close()
        self._consumer.close()


class Taker:
    """Takes what a Giver passes on. `channel`: receive() -> (kind, step, memory), close()."""

    def __init__(self, channel, first_step, transport):
        self._channel, self._next, self._transport = channel, first_step, transport
        self._process = os.getpid()
        kind, _, memory = channel.receive()
        if kind == ERROR:
            self._raise(memory)
        hello = json.loads(bytes(memory))
        self._phases = {name: (ranks, once, None if mesh is None else tuple(mesh))
                        for name, (ranks, once, mesh) in hello["phases"].items()}
        self._generators = {name: tuple(media) for name, media in hello["generators"].items()}
        self._sequences, self._state, self._num_steps = hello["sequences"], hello["state"], hello["num_steps"]
        self._group_sizes = hello["group_sizes"]
        self._steps = self._bytes = 0
        self._waited = 0.0

    def next(self):
        if os.getpid() != self._process:
            raise errors.Mismatch(f"this loader was connected by process {self._process} and does not work in its forked child "
                                  f"{os.getpid()}; connect after the fork", "FAILED_PRECONDITION")
        begin = time.monotonic()
        try:
            while True:
                kind, index, memory = self._channel.receive()
                if kind == END:
                    return None
                if kind == ERROR:
                    self._raise(memory)
                if index == self._next:  # others were sent before this process went elsewhere
                    break
        finally:
            self._waited += time.monotonic() - begin
        self._next += 1
        self._steps += 1
        self._bytes += len(memory)
        return _evenkeel.Step.from_shared(memory, index)

    @staticmethod
    def _raise(memory):
        code, text = json.loads(bytes(memory))
        raise errors.make(code, f"the member that receives for this one: {text}")

    def stats(self):
        return {"steps": self._steps, "parts": 0, "bytes": 0, "requests": 0, "duplicate_requests": 0, "replaced_workers": 0,
                "refused": 0, "grey_workers": 0, "hash_failures": 0, "wait_seconds": self._waited,
                "transport": self._transport, "shared_bytes": self._bytes}

    def state(self):
        return dict(self._state, step=self._next)

    def seek(self, step):
        self._next = step

    def phases(self):
        return self._phases

    def generators(self):
        return self._generators

    def sequences(self):
        return self._sequences

    def group_sizes(self):
        return self._group_sizes

    def num_steps(self):
        return self._num_steps

    def close(self):
        self._channel.close()


def roles_between(topology, takers):
    """(whether the giver must receive everything, {rank: number of the role that it takes}). All of one role take what
    was received."""
    roles = {one: topology.role_of(one) for one in [topology.rank, *takers]}
    if len(set(roles.values())) == 1:
        return False, dict.fromkeys(roles, 0)
    return True, {one: ROLES.index(role) for one, role in roles.items()}


# ---- One node: a Unix socket carries descriptors of memory


def _path(source, topology, giver):
    """Of the socket, in a folder that this user alone can enter; the same for all members of the replica on this node."""
    name = hashlib.sha256(repr((embedded.launch_name(), str(source), giver)).encode()).hexdigest()[:16]
    return str(embedded.runtime_folder() / f"share-{name}")


def _send(connection, kind, step=0, payload=b"", size=None, descriptor=None):
    header = _HEADER.pack(_MAGIC, kind, step, len(payload) if size is None else size)
    if descriptor is None:
        connection.sendall(header + payload)
        return
    sent = socket.send_fds(connection, [header], [descriptor])
    if sent < len(header):
        connection.sendall(header[sent:])


def _receive_exactly(connection, size):
    """(bytes, descriptors); EOFError where the other side has ended."""
    data, descriptors = b"", []
    while len(data) < size:
        got, some, _, _ = socket.recv_fds(connection, size - len(data), 1)
        descriptors += some
        if not got:
            for one in descriptors:
                os.close(one)
            raise EOFError
        data += got
    return data, descriptors


class NodeGiver:
    """The channel of the member that receives for its node. `takers`: ranks; they connect within `timeout` seconds."""

    def __init__(self, source, topology, takers, roles, timeout, step_timeout):
        self._path, self._roles, self._timeout = _path(source, topology, topology.rank), roles, step_timeout
        self._own = roles[topology.rank]
        self._connections, self._behind = {}, {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener.bind(self._path)
        self._listener.listen(len(takers) + 8)
        self._takers, self._connect_timeout = set(takers), timeout

    def hello(self, payload):
        deadline = time.monotonic() + self._connect_timeout
        try:
            while self._takers:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.Unavailable(f"{errors.name_ranks(sorted(self._takers))} of this node did not connect to "
                                             "the member that receives for them: every member makes a Loader with "
                                             "fetch=\"node\"", "UNAVAILABLE")
                self._listener.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    self._greet(self._listener.accept()[0])
        except BaseException:
            self.close()
            raise
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        for rank in self._connections:
            self._pass(rank, HELLO, payload=payload)

    def _greet(self, connection):
        connection.settimeout(self._timeout)
        try:
            (rank,) = struct.unpack("<Q", _receive_exactly(connection, 8)[0])
        except (EOFError, TimeoutError):
            connection.close()
            return
        if rank not in self._takers:
            _send(connection, ERROR, payload=worded(errors.InvalidArgument(
                f"rank {rank} is not awaited: it is connected already, or of another replica or node", "INVALID_ARGUMENT")))
            connection.close()
            return
        self._takers.discard(rank)
        self._connections[rank], self._behind[rank] = connection, 0

    def step(self, index, native):
        made, passed = {}, 0
        for rank in self._connections:
            self._wait_for(rank)
        for rank in self._connections:
            role = self._roles[rank]
            if role not in made:
                made[role] = self._write(native, role)
            descriptor, memory = made[role]
            self._pass(rank, STEP, index, size=len(memory), descriptor=descriptor)
            self._behind[rank] += 1
            passed += len(memory)
        for descriptor, _ in made.values():
            os.close(descriptor)
        return made[self._own][1] if self._own in made else None, passed

    @staticmethod
    def _write(native, role):
        kept = []

        def allocate(size):
            descriptor = os.memfd_create("evenkeel-step", os.MFD_CLOEXEC)
            kept.append(descriptor)
            os.ftruncate(descriptor, size)
            return mmap.mmap(descriptor, size)
        memory = native.share(role, allocate)
        return kept[0], memory

    def _wait_for(self, rank):
        """Until the taker is not too far behind: what was passed on and not taken is bounded."""
        connection = self._connections[rank]
        while self._behind[rank]:
            if self._behind[rank] < _AHEAD and not select.select([connection], [], [], 0)[0]:
                return
            try:
                _receive_exactly(connection, 1)
            except (EOFError, OSError) as error:
                raise self._gone(rank, error) from error
            self._behind[rank] -= 1

    def _pass(self, rank, *message, **more):
        try:
            _send(self._connections[rank], *message, **more)
        except OSError as error:
            raise self._gone(rank, error) from error

    def _gone(self, rank, error):
        why = f"did not take its steps within {self._timeout:g} s" if isinstance(error, TimeoutError) else "has ended"
        return errors.Unavailable(f"rank {rank}, which takes its steps from this process, {why}", "UNAVAILABLE")

    def refuse(self, error):
        """Tells those that have come why this process could not connect."""
        payload = worded(error)
        self._listener.settimeout(0)
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                _send(connection, ERROR, payload=payload)
                connection.close()
        self.close()

    def end(self):
        for rank in self._connections:
            self._pass(rank, END)

    def error(self, payload):
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                _send(connection, ERROR, payload=payload)

    def close(self):
        """Waits a moment for the others to take what was passed on: closing a connection with unread answers resets it, and
        drops what the other side has not read."""
        self._listener.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for rank, connection in self._connections.items():
            with contextlib.suppress(EOFError, OSError):
                while self._behind[rank]:
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                    _receive_exactly(connection, 1)
                    self._behind[rank] -= 1
            connection.close()
        self._connections = {}


class NodeTaker:
    """The channel of a member that takes its steps from `giver`, a rank of its node."""

    def __init__(self, source, topology, giver, timeout, step_timeout):
        path, deadline = _path(source, topology, giver), time.monotonic() + timeout
        self._giver, self._wait = giver, step_timeout + _GRACE_SECONDS
        while True:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._connection.connect(path)
                self._connection.sendall(struct.pack("<Q", topology.rank))
                return  # the first answer may take long, since an index may be made first; the giver has the time limits
            except OSError as error:
                self._connection.close()
                if time.monotonic() > deadline:
                    raise errors.Unavailable(f"rank {giver}, which receives for this node's members of replica "
                                             f"{topology.replica}, does not listen after {timeout:g} s: {error}",
                                             "UNAVAILABLE") from error
            time.sleep(_POLL_SECONDS)

    def receive(self):
        try:
            header, descriptors = _receive_exactly(self._connection, _HEADER.size)
            self._connection.settimeout(self._wait)
            magic, kind, step, size = _HEADER.unpack(header)
            if magic != _MAGIC:
                raise errors.Mismatch("the member that receives for this node runs another release", "FAILED_PRECONDITION")
            if kind != STEP:
                return kind, step, _receive_exactly(self._connection, size)[0] if size else b""
            with contextlib.closing(_Descriptor(descriptors)) as one:
                memory = mmap.mmap(one.number, size, access=mmap.ACCESS_COPY)
            with contextlib.suppress(OSError):  # the giver may have ended; then the next call says so
                self._connection.sendall(b"\0")
            return kind, step, memory
        except TimeoutError as error:
            raise errors.DeadlineExceeded(f"rank {self._giver}, which receives for this node, passed on no step within "
                                          f"{self._wait:g} s", "DEADLINE_EXCEEDED") from error
        except (EOFError, OSError) as error:
            raise errors.Unavailable(f"rank {self._giver}, which receives for this node, has ended", "UNAVAILABLE") from error

    def close(self):
        self._connection.close()


class _Descriptor:
    def __init__(self, descriptors):
        if len(descriptors) != 1:
            raise EOFError
        self.number = descriptors[0]

    def close(self):
        os.close(self.number)
