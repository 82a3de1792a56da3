"""Where workers and consumers meet: two network namespaces with a good and a bad link, or loopback."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

RELAY = pathlib.Path(__file__).with_name("relay.py")


class Loopback:
    """One network for all, which cannot be disturbed: where namespaces cannot be made."""

    can_disturb = False
    listen = "127.0.0.1"
    links = {"loopback": "127.0.0.1"}
    worker_wrapper = consumer_wrapper = ()

    def close(self):
        pass


class Namespaces:
    """Workers in one network namespace, consumers in another; `wire` is a veth pair, `relay` passes through relay.py."""

    can_disturb = True
    listen = "0.0.0.0"
    links = {"wire": "10.88.0.1", "relay": "10.89.0.1"}  # the workers' addresses

    def __init__(self, seed):
        self.workers, self.consumers = f"ekw{os.getpid()}", f"ekc{os.getpid()}"
        # Not nsenter: UCX finds devices in /sys, which has to be mounted again in the namespace.
        self.worker_wrapper = ("ip", "netns", "exec", self.workers)
        self.consumer_wrapper = ("ip", "netns", "exec", self.consumers)
        self._relay = None
        try:
            self._make(seed)
        except BaseException:
            self.close()
            raise

    def _make(self, seed):
        for name in (self.workers, self.consumers):
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "set", "lo", "up")
        self._ip("link", "add", "wire0", "netns", self.workers, "type", "veth", "peer", "name", "wire0", "netns",
                 self.consumers)
        for name, address in ((self.workers, "10.88.0.1"), (self.consumers, "10.88.0.2")):
            self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire0")
            self._ip("-n", name, "link", "set", "wire0", "up")
        self._relay = subprocess.Popen(
            [sys.executable, str(RELAY), self.workers, "10.89.0.1", self.consumers, "10.89.0.2", str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._relay.stdout.readline() != "ready\n":
            raise OSError("the relay did not start")

    def disturb(self, **settings):
        """Settings of relay.py for the link `relay`; none: as good as it gets."""
        self._relay.stdin.write(json.dumps(settings) + "\n")
        self._relay.stdin.flush()

    def set_wire(self, up):
        self._ip("-n", self.workers, "link", "set", "wire0", "up" if up else "down")

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def close(self):
        if self._relay is not None:
            try:
                self._relay.stdin.close()
            except BrokenPipeError:
                pass  # it ended before, and with it what was still to be written
            try:
                self._relay.wait(10)
            except subprocess.TimeoutExpired:
                self._relay.kill()
        for name in (self.workers, self.consumers):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def make(seed):
    """Namespaces where they can be made, else loopback; with the reason why not."""
    if os.geteuid() != 0:
        return Loopback(), "not root: no network faults"
    if not os.path.exists("/dev/net/tun") or shutil.which("ip") is None:
        return Loopback(), "no /dev/net/tun or ip: no network faults"
    try:
        return Namespaces(seed), ""
    except (OSError, subprocess.CalledProcessError) as error:
        return Loopback(), f"no namespaces ({error}): no network faults"
