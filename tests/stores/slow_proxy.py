"""A TCP proxy that makes a near server a far one: latency for every request, and a limited rate for every connection.

    slow_proxy.py HOST:PORT [--listen 127.0.0.1:0] [--latency-ms 30] [--megabytes-per-second 200]

Prints the address that it listens on and ends with its stdin. What a client sends is passed on one latency later, so
that the first byte of every answer is late by it; a new connection costs one more, as its handshake would. What the
server sends is passed on at once, up to the rate. One thread; bytes pass through a pipe and are never copied to user
space, so that the proxy takes little of the processors that the measured processes share with it.
"""

import argparse
import errno
import fcntl
import heapq
import os
import select
import socket
import subprocess
import sys
import time

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
BURST_SECONDS = 0.005  # how far a connection's rate may be ahead: what it has moved is paid for afterwards


class Way:
    """One direction of a connection: bytes from `source` through a pipe to `sink`, after `latency`, up to `rate`."""

    def __init__(self, source, sink, latency, rate, ready_at):
        self.source, self.sink, self.latency, self.rate = source, sink, latency, rate
        self.pipe_out, self.pipe_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.size = fcntl.fcntl(self.pipe_in, F_SETPIPE_SZ, PIPE_BYTES)
        self.held = 0  # bytes in the pipe
        self.due = self.paid_until = ready_at  # when they may leave; when the rate allows more
        self.ended = False  # the source sends nothing more

    def fill(self, now):
        """Takes what has arrived. False: nothing more can be taken now."""
        try:
            count = os.splice(self.source.fileno(), self.pipe_in, self.size, flags=2)  # SPLICE_F_NONBLOCK
        except BlockingIOError:
            return False
        if count == 0:
            self.ended = True
            return False
        if self.held == 0:
            self.due = max(self.due, now + self.latency)
        self.held += count
        return True

    def drain(self, now):
        """Passes on what is due. Returns when to try again, or None once the pipe is empty; raises if nobody reads."""
        while self.held:
            at = max(self.due, self.paid_until - BURST_SECONDS)
            if at > now:
                return at
            count = os.splice(self.pipe_out, self.sink.fileno(), self.held, flags=2)
            self.held -= count
            if self.rate:
                self.paid_until = max(self.paid_until, now) + count / self.rate
        return None

    def close(self):
        os.close(self.pipe_in)
        os.close(self.pipe_out)


class Connection:
    def __init__(self, client, server, latency, rate):
        self.client, self.server = client, server
        opened = time.monotonic()
        self.ways = [Way(client, server, latency, 0, opened + 2 * latency), Way(server, client, 0, rate, opened)]
        self.alarm = None  # when something is due that waits for no socket

    def move(self, now):
        """Moves what can be moved. False once the connection has ended."""
        self.alarm = None
        for way in self.ways:
            while True:
                # A pipe also has a number of segments, so that one with bytes may refuse while its source has more.
                full = way.held > 0
                took = not way.ended and way.held < way.size and way.fill(now)
                try:
                    at = way.drain(now)
                except BlockingIOError:
                    break  # an edge of the sink's socket comes
                if at is not None:
                    self.alarm = at if self.alarm is None else min(self.alarm, at)
                    break
                if not took and not full:
                    break
            if way.ended and not way.held:
                return False
        return True

    def close(self):
        for end in (*self.ways, self.client, self.server):
            end.close()


class Proxy:
    def __init__(self, listener, target, latency, rate):
        self.listener, self.target, self.latency, self.rate = listener, target, latency, rate
        self.events = select.epoll()
        self.events.register(listener.fileno(), select.EPOLLIN)
        self.of_socket = {}
        self.alarms = []

    def accept(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(self.target)
        connection = Connection(client, server, self.latency, self.rate)
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.of_socket[end.fileno()] = connection
            self.events.register(end.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET | select.EPOLLRDHUP)

    def forget(self, connection):
        for end in (connection.client, connection.server):
            self.events.unregister(end.fileno())
            del self.of_socket[end.fileno()]
        connection.close()

    def move(self, connection, now):
        try:
            lives = connection.move(now)
        except OSError as error:  # one of the two has closed it
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise
            lives = False
        if not lives:
            self.forget(connection)
        elif connection.alarm is not None:
            heapq.heappush(self.alarms, (connection.alarm, id(connection), connection))

    def run(self):
        self.events.register(sys.stdin.fileno(), select.EPOLLIN)
        while True:
            wait = max(0.0, self.alarms[0][0] - time.monotonic()) if self.alarms else -1
            ready = {number for number, _ in self.events.poll(wait)}
            if sys.stdin.fileno() in ready:
                return
            if self.listener.fileno() in ready:
                self.accept()
            now = time.monotonic()
            due = {self.of_socket[number] for number in ready if number in self.of_socket}
            while self.alarms and self.alarms[0][0] <= now:
                at, _, connection = heapq.heappop(self.alarms)
                if connection.alarm == at and connection.client.fileno() >= 0:
                    due.add(connection)
            for connection in due:
                self.move(connection, now)


class SlowProxy:
    """The proxy as a process of its own, for a `with` block: `address` is HOST:PORT."""

    def __init__(self, target, latency_ms=30, megabytes_per_second=200):
        command = [sys.executable, __file__, target, "--latency-ms", latency_ms, "--megabytes-per-second",
                   megabytes_per_second]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError("the proxy did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--megabytes-per-second", type=float, default=200)
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    listener = socket.create_server((host, int(port)), backlog=256)
    print(f"{host}:{listener.getsockname()[1]}", flush=True)
    target = options.target.rpartition(":")
    Proxy(listener, (target[0], int(target[2])), options.latency_ms / 1000, options.megabytes_per_second * 1e6).run()


if __name__ == "__main__":
    main()
