"""The proxy that bench/stores.py measures behind: late, limited, and true to every byte."""

import http.client
import random
import time

from object_server import ObjectServer
from slow_proxy import SlowProxy

LATENCY_MS, MEGABYTES_PER_SECOND = 30, 40


def test_the_proxy_is_late_and_limited_and_changes_no_byte(tmp_path):
    (tmp_path / "b").mkdir()
    large = random.Random(1).randbytes(12_000_000)
    (tmp_path / "b" / "large").write_bytes(large)
    (tmp_path / "b" / "small").write_bytes(b"small")
    with ObjectServer(tmp_path, secret=None) as server:
        with SlowProxy(f"127.0.0.1:{server.server_port}", LATENCY_MS, MEGABYTES_PER_SECOND) as proxy:
            connection = http.client.HTTPConnection(proxy.address, timeout=60)

            def timed(name):
                begin = time.monotonic()
                connection.request("GET", f"/b/{name}")
                return connection.getresponse().read(), (time.monotonic() - begin) * 1000

            # The first of a connection pays for its handshake, too.
            for count in (2, 1, 1):
                body, milliseconds = timed("small")
                assert body == b"small" and milliseconds >= count * LATENCY_MS
            body, milliseconds = timed("large")
            assert body == large
            assert milliseconds >= 0.9 * len(large) / MEGABYTES_PER_SECOND / 1000
            connection.close()
