"""Virtual machines with Soft-RoCE that this process gives commands to, joined by one cable.

QEMU needs no privilege: it emulates the processor, or uses KVM where that works. The cable is a socket between the two
QEMU processes. Commands travel over a serial line (init.sh), so that nothing of the tests depends on the network that
they break.
"""

import base64
import hashlib
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import time

import image

BOOT_SECONDS = 300  # emulated, on a machine that has other things to do
KVM_SECONDS = 10    # in which a kernel must say its first line; half a second is usual
LINE_TRIES = 5  # of a command over the serial line, which may lose bytes
MEMORY_MIB = 2048
# What a kernel measures of its timers while it starts is wrong on an emulated processor that other processes hold up:
# it would panic, or lose its ticks later. So it measures nothing and takes the timers whose rate is known.
EMULATED = "no_timer_check nolapic_timer nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
KERNEL_OPTIONS = f"console=ttyS0 panic=-1 quiet random.trust_cpu=on mitigations=off {EMULATED}"


class Done:
    """A finished command: its exit status and its output, both streams together."""

    def __init__(self, status, output):
        self.status = status
        self.output = output


class _Line:
    """One end of a Unix socket that QEMU listens on, read by lines."""

    def __init__(self, path, process, seconds=60):
        end = time.monotonic() + seconds
        self._socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._socket.connect(str(path))
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"QEMU does not open {path.name}")
                time.sleep(0.05)
        self._rest = b""

    def write(self, data):
        self._socket.sendall(data)

    def read(self, seconds):
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            got = self._socket.recv(1 << 16)  # TimeoutError: the machine does not answer
            if not got:
                raise EOFError("the machine has ended")
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode(errors="replace").strip()


def _line(command):
    """The checksum of a command, and the rest of its line."""
    encoded = base64.b64encode(command.encode()) + b"\n"
    return hashlib.md5(encoded).hexdigest().encode(), encoded


def accelerator(kernel):
    """The options of QEMU for its processor: KVM where a kernel starts under it, else emulation."""
    if os.access("/dev/kvm", os.R_OK | os.W_OK) and _starts(kernel, ["-accel", "kvm", "-cpu", "host"]):
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def _starts(kernel, options):
    command = ["qemu-system-x86_64", *options, "-m", "256", "-nographic", "-no-reboot", "-kernel", str(kernel),
               "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"]
    try:
        text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KVM_SECONDS).stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
    except OSError:
        return False
    return b"Linux version" in text


class Machine:
    """One running machine, 10.9.0.NODE on the cable. Its console is in `console`, for a person to read."""

    def __init__(self, folder, node, ramdisk, processor, cores=1):
        self.address = f"10.9.0.{node}"
        self.console = folder / f"console-{node}.log"
        cable, serial, control = (folder / name for name in ("cable", f"serial-{node}", f"control-{node}"))
        self._process = subprocess.Popen(
            ["qemu-system-x86_64", *processor, "-M", "q35", "-smp", str(cores), "-m", str(MEMORY_MIB), "-nodefaults",
             "-display", "none", "-no-reboot", "-kernel", str(image.boot_image()), "-initrd", str(ramdisk),
             "-append", f"{KERNEL_OPTIONS} node={node}",
             "-serial", f"file:{self.console}",
             "-chardev", f"socket,id=commands,path={serial},server=on,wait=on", "-serial", "chardev:commands",
             "-qmp", f"unix:{control},server=on,wait=off",
             "-netdev", f"stream,id=cable,server={'on' if node == 1 else 'off'},addr.type=unix,addr.path={cable}",
             "-device", f"virtio-net-pci,netdev=cable,id=card,mac=52:54:00:00:09:{node:02x}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(folder / f"qemu-{node}.log", "wb"))
        self._folder = folder
        self._node = node
        try:
            self._serial = _Line(serial, self._process)
            self._control = _Line(control, self._process)
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}: {(folder / f'qemu-{node}.log').read_text()[-500:]}")

    def wait(self):
        """Until the machine takes commands; returns its kernel's release."""
        try:
            line = self._serial.read(BOOT_SECONDS)
            self._control.read(BOOT_SECONDS)
            self._ask({"execute": "qmp_capabilities"})
        except (OSError, EOFError) as error:
            raise AssertionError(f"machine {self._node} does not start: {error}\n{self.console_tail()}")
        assert line.startswith("READY "), line
        return line.split()[1]

    def console_tail(self):
        return self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""

    def run(self, command, timeout=240, check=True):
        """Runs a shell command in the machine, to its end."""
        answer = self._exchange(command, timeout)
        encoded, _, status = answer.rpartition(" ")
        done = Done(int(status), base64.b64decode(encoded).decode(errors="replace"))
        if check and done.status != 0:
            raise AssertionError(f"`{command}`: exit {done.status}\n{done.output[-4000:]}")
        return done

    def _exchange(self, command, timeout):
        """The answer to a command, which runs once whatever the line loses (init.sh)."""
        wanted, sent = _line(command)[0], command
        for _ in range(LINE_TRIES):
            self._serial.write(b" ".join(_line(sent)))
            try:
                checksum, _, answer = self._serial.read(timeout).partition(" ")
            except (OSError, EOFError) as error:
                raise AssertionError(f"no answer to `{command}`: {error!r}\n{self.console_tail()}")
            whole = checksum == hashlib.md5(answer.encode() + b"\n").hexdigest()
            ran, _, answer = answer.partition(" ")
            if whole and ran.encode() == wanted:
                return answer
            # Where the answer is damaged, `again` shows whether the command ran.
            if checksum != "DAMAGED":
                sent = command if whole else "again"
        raise AssertionError(f"the line damaged `{command}` or its answer {LINE_TRIES} times\n{self.console_tail()}")

    def _ask(self, request):
        self._control.write(json.dumps(request).encode() + b"\n")
        while True:
            answer = json.loads(self._control.read(30))
            if "event" not in answer:
                assert "return" in answer, answer
                return answer["return"]

    def set_cable(self, plugged):
        """Takes the cable out of the network card, or puts it in; the machine sees its carrier go or come."""
        self._ask({"execute": "set_link", "arguments": {"name": "card", "up": plugged}})

    def stop(self):
        self._process.kill()
        self._process.wait(30)


def missing():
    """What this machine lacks to run others; None: nothing that is known before trying."""
    if platform.machine() != "x86_64":
        return f"the machines are x86-64, this one is {platform.machine()}"
    if shutil.which("qemu-system-x86_64") is None:
        return "qemu-system-x86_64 is not installed: scripts/setup --rdma"
    return None


def prepare(binary, folder, out):
    """The ramdisk and QEMU's processor options, for Machine. Raises image.Unavailable."""
    return image.ramdisk(pathlib.Path(binary), folder, out), accelerator(image.boot_image())


def main():
    """Makes what is cached; ends with an error that says why where the machines cannot be made here."""
    try:
        if (reason := missing()) is not None:
            raise image.Unavailable(reason)
        image.base(pathlib.Path(sys.argv[1]))
    except image.Unavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
