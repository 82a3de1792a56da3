"""Which sockets a process listens at, and what a stranger can send to those of UCX."""

import os
import pathlib
import socket
import struct

# UCX 1.13 over TCP: a stream begins with this number; then come messages of one byte id and four bytes length.
MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)
PUT = 33  # the id of a one-sided write, whose body is address, length, sequence number; the data follow


def _of_process(pid, state):
    """[(local address, port)] of a process's TCP sockets in a state, as /proc writes them."""
    folder = pathlib.Path(f"/proc/{pid}/fd")
    inodes = set()
    for entry in folder.iterdir():
        try:
            inodes.add(os.readlink(entry).partition("socket:[")[2].rstrip("]"))
        except FileNotFoundError:
            continue  # closed meanwhile
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.append((address, int(port, 16)))
    return found


def listening(pid):
    """{(address, port)}, the address in hexadecimal: where a process accepts TCP connections."""
    return set(_of_process(pid, "0A"))


def connected(pid):
    """[port of this side], once for each TCP connection of a process. One that it accepted has a port that it listens at."""
    return [port for _, port in _of_process(pid, "01")]


def ports(pid):
    return {port for _, port in listening(pid)}


def send(port, message, host="127.0.0.1", wait=2):
    """Sends it as somebody without a certificate or a secret; keeps the connection until the other side had time."""
    with socket.create_connection((host, port), timeout=10) as stranger:
        stranger.sendall(message)
        stranger.settimeout(wait)
        try:
            stranger.recv(1)
        except OSError:
            pass


def write_to(address, data):
    """The bytes of a message that writes `data` to `address` of the process that receives it.

    It announces one byte more than it brings: the receiver writes at once and waits for the rest, where it would
    acknowledge a complete one on a connection that it never made.
    """
    return MAGIC + struct.pack("<BIQQI", PUT, 20, address, len(data) + 1, 1) + data


def too_long():
    """13 bytes: the header of a message that is longer than what the receiver reads at once."""
    return MAGIC + struct.pack("<BI", 0, 0xFFFFFFF0)
