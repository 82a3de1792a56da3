"""Asks a worker's gRPC health service without a gRPC library: one HTTP/2 request, its answer's first message."""

import socket
import struct

SERVING, NOT_SERVING = 1, 2


def _frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _header(name, value):
    """A literal header field without indexing (HPACK), strings as they are."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _read(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the worker closed the connection")
        data += more
    return data


def check(address, service=""):
    """The status that grpc.health.v1.Health/Check answers for `service`; ConnectionError where there is no answer."""
    host, port = address.rsplit(":", 1)
    headers = b"".join(_header(*field) for field in [
        (":method", "POST"), (":scheme", "http"), (":path", "/grpc.health.v1.Health/Check"), (":authority", address),
        ("te", "trailers"), ("content-type", "application/grpc"), ("grpc-timeout", "10S")])
    request = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, headers)
                           + _frame(0, 1, 1, b"\0" + struct.pack(">I", len(request)) + request))
        while True:
            head = _read(connection, 9)
            kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
            payload = _read(connection, int.from_bytes(head[:3], "big"))
            if kind == 0 and stream == 1 and payload:
                message = payload[5:]
                return message[1] if message[:1] == b"\x08" else 0
            if kind == 4 and not flags & 1:
                connection.sendall(_frame(4, 1, 0, b""))
            if stream == 1 and kind in (1, 3) and flags & 1 or kind == 7:
                raise ConnectionError("the worker refused the call")
