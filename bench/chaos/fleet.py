"""Workers that are started again when they end, and what is known of their state."""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import harness

# After SIGTERM: a worker drains for at most 25 s by default and ends itself ten seconds later if it has not ended.
LONG_END_SECONDS = 28


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid):
    found = children(pid)
    for child in list(found):
        found += descendants(child)
    return found


def started_at(pid):
    """When a process that lives was started, in ticks since boot, else None: with its number, which a later process may
    have again, it names the process."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def is_decoder(pid):
    """Decoders, and nothing else of a worker, are the out-of-memory killer's first choice."""
    try:
        return pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
    except OSError:
        return False


def memory(pid):
    """Resident bytes of a process."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    return 0


def handles(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def stacks(pid):
    """What each thread of a process and of its children does: by gdb where it is installed, else by the kernel's word."""
    told = []
    for one in [pid, *descendants(pid)]:
        for thread in sorted(pathlib.Path(f"/proc/{one}/task").glob("*"), key=lambda path: int(path.name)):
            try:
                state = (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
                told.append(f"process {one} thread {thread.name} {(thread / 'comm').read_text().strip()} {state} "
                            f"in {(thread / 'wchan').read_text()}")
            except OSError:
                pass  # it has ended
    if shutil.which("gdb"):
        all_threads = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 24"], capture_output=True,
                                     text=True, timeout=120).stdout
        told.append(all_threads)
        # Once more what matters most, last: the main thread, before it the thread that it waits for.
        threads = [thread for thread in all_threads.split("\n\n") if thread.startswith("Thread ")]
        main = [thread for thread in threads if f"(LWP {pid})" in thread]
        awaited = re.findall(r"expected=(\d+)", "".join(main))[:1]
        told += [thread for number in awaited for thread in threads if f"(LWP {number})" in thread] + main
    return "\n".join(told)


def free_port(number):
    """A port for the worker of that number: free, and never given to an outgoing connection by the kernel.

    The kernel hands out /proc/sys/net/ipv4/ip_local_port_range. A worker that listens there may find its port taken
    when it starts again, by one of the thousands of connections that some faults open.
    """
    first_handed_out = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    tries = 100
    ports = random.Random(os.getpid()).sample(range(first_handed_out // 2, first_handed_out), (number + 1) * tries)
    for port in ports[number * tries:]:
        with socket.socket() as one:
            try:
                one.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise SystemExit(f"{tries} ports were tried, and each is taken")


class Slot:
    """A place for one worker, at one port for ever. `impaired`: names of faults that keep it from serving well."""

    def __init__(self, number, job, network, options, hindered, env=None):
        self.number, self.job, self.network, self.options, self.env = number, job, network, options, env or {}
        self.hindered = hindered  # whether files that a start reads are, or just were, disturbed
        self.worker = None
        self.port = free_port(number)
        self.impaired = []
        self.expected_end = False  # a fault ends it, or has ended it
        self.starting = None
        self.processes = set()  # (pid, started_at) of every process that it ever had
        self.failures = []
        self.ended_by_itself = 0

    def start(self):
        """Begins a start; `worker` is set when it listens."""
        self.expected_end = False
        self.worker = None
        self.starting = threading.Thread(target=self._start, daemon=True)
        self.starting.start()

    def _start(self):
        while self.hindered(0):
            time.sleep(0.05)
        try:
            worker = harness.Worker(self.job, *self.options, listen=f"{self.network.listen}:{self.port}",
                                    wrapper=self.network.worker_wrapper, env=self.env)
        except AssertionError as error:
            # A start that finds its files broken is refused, as it should be; `watch` makes another one.
            if not self.hindered(10):
                self.failures.append(f"worker {self.number} did not start: {str(error)[-2000:]}")
            return
        self.port = int(worker.address.rsplit(":", 1)[1])
        self.worker = worker

    def wait(self, seconds=120):
        self.starting.join(seconds)
        if self.worker is None:
            raise SystemExit("\n".join(self.failures) or "the worker does not start")

    @property
    def running(self):
        return self.worker is not None and self.worker.process.poll() is None

    @property
    def well(self):
        return self.running and not self.impaired and not self.expected_end

    @property
    def pid(self):
        return self.worker.process.pid

    @property
    def spawner(self):
        """The process that makes decoders, while it has some; else None."""
        makers = [pid for pid in descendants(self.pid) if any(map(is_decoder, children(pid)))] if self.running else []
        return makers[0] if makers else None

    def decoders(self):
        return [pid for pid in descendants(self.pid) if is_decoder(pid)] if self.running else []

    def watch(self):
        """Notes processes, and starts a worker again that ended without a fault's doing."""
        if self.worker is None:
            if self.starting is not None and not self.starting.is_alive():
                self.start()  # the port may have been taken for a moment; failures has it
            return
        code = self.worker.process.poll()
        if code is None:
            self.processes.update((pid, started_at(pid)) for pid in [self.pid, *descendants(self.pid)])
        elif not self.expected_end:
            tail = "".join(self.worker.log[-40:])
            if code < 0:
                self.failures.append(f"worker {self.number} ended by signal {-code}:\n{tail}")
            else:
                self.ended_by_itself += 1
                print(f"worker {self.number} ended by itself with code {code}:\n{tail}", flush=True)
            self.start()

    def kill(self):
        self.expected_end = True
        self.worker.kill()

    def terminate(self, wait=60):
        """SIGTERM: a generator of seconds to wait, which returns the exit code; None where it did not end in time (then
        it is killed). A worker may drain for a while, and everything else goes on meanwhile."""
        self.expected_end = True
        worker = self.worker
        worker.signal(signal.SIGTERM)
        begin = time.monotonic()
        looked = False
        while worker.process.poll() is None and time.monotonic() < begin + wait:
            yield 0.02
            if not looked and time.monotonic() > begin + LONG_END_SECONDS:
                looked = True
                print(f"worker {self.number} does not end; its threads:\n{stacks(self.pid)}", flush=True)
        code = worker.process.poll()
        if code is None:
            worker.kill()
        return code
