"""Joins two network namespaces by a link that can be made bad: latency, loss, reordering, damage, a low rate, a cut.

    relay.py NAMESPACE_A ADDRESS_A NAMESPACE_B ADDRESS_B SEED

A tun device in each namespace, and this process between them. Reads settings from stdin, one JSON object a line (see
Settings); prints `ready` once both devices are up; ends with its stdin. Needed where the kernel has no netem.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
DEVICE, MTU = "relay0", 9000
MAX_QUEUED = 8192  # packets; a full queue drops, as a switch does


@dataclasses.dataclass
class Settings:
    delay_ms: float = 0
    jitter_ms: float = 0
    loss: float = 0  # shares of packets, 0 to 1
    reordered: float = 0  # sent 20 ms late
    duplicated: float = 0
    damaged: float = 0  # one byte flipped
    bytes_per_second: float = 0  # of each direction; 0: no limit
    cut: bool = False


def open_tun(namespace, address):
    with open(f"/run/netns/{namespace}") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    for command in (["addr", "add", f"{address}/24", "dev", DEVICE], ["link", "set", DEVICE, "mtu", str(MTU), "up"]):
        subprocess.run(["ip", *command], check=True)
    return tun


class Relay:
    def __init__(self, ends, seed):
        self.ends = ends
        self.settings = Settings()
        self.rng = random.Random(seed)
        self.queue = []  # (due, number, end, packet)
        self.number = 0
        self.free_at = dict.fromkeys(ends, 0.0)  # when the limited link has sent what it accepted

    def accept(self, packet, to, now):
        settings = self.settings
        if settings.cut or self.rng.random() < settings.loss or len(self.queue) >= MAX_QUEUED:
            return
        if self.rng.random() < settings.damaged:
            place = self.rng.randrange(len(packet))
            packet = packet[:place] + bytes([packet[place] ^ (1 << self.rng.randrange(8))]) + packet[place + 1:]
        due = now + max(0.0, self.rng.gauss(settings.delay_ms, settings.jitter_ms)) / 1000
        if self.rng.random() < settings.reordered:
            due += 0.02
        if settings.bytes_per_second:
            self.free_at[to] = max(self.free_at[to], now) + len(packet) / settings.bytes_per_second
            due = max(due, self.free_at[to])
        for _ in range(2 if self.rng.random() < settings.duplicated else 1):
            self.number += 1
            heapq.heappush(self.queue, (due, self.number, to, packet))

    def deliver(self, now):
        while self.queue and self.queue[0][0] <= now:
            _, _, to, packet = heapq.heappop(self.queue)
            try:
                os.write(to, packet)
            except OSError:
                pass  # the device is down or full: the packet is lost

    def run(self):
        a, b = self.ends
        other = {a: b, b: a}
        text = b""
        while True:
            wait = max(0.0, min(1.0, self.queue[0][0] - time.monotonic())) if self.queue else 1.0
            ready, _, _ = select.select([a, b, 0], [], [], wait)
            now = time.monotonic()
            for end in ready:
                if end == 0:
                    data = os.read(0, 65536)
                    if not data:
                        return
                    *lines, text = (text + data).split(b"\n")
                    for line in lines:
                        self.settings = Settings(**json.loads(line))
                    continue
                for _ in range(64):
                    try:
                        packet = os.read(end, MTU + 100)
                    except (BlockingIOError, OSError):
                        break
                    self.accept(packet, other[end], now)
            self.deliver(time.monotonic())


def main():
    namespace_a, address_a, namespace_b, address_b, seed = sys.argv[1:]
    ends = [open_tun(namespace_a, address_a), open_tun(namespace_b, address_b)]
    print("ready", flush=True)
    Relay(ends, int(seed)).run()


if __name__ == "__main__":
    main()
