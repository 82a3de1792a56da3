"""A worker on this node that serves the ranks of this node's trainers and ends with them.

    loader = evenkeel.Loader("job.yaml", rank=rank)        # the first rank of the node starts it, the last ends it

One process of a node, whichever comes first, starts a supervisor (this file, run as a program), which builds the index
if there is none, runs `evenkeel serve` on a free port of loopback and writes its address into a folder that this user
alone can enter. Each process holds the writing end of a FIFO there. When the last of them is gone, in whatever way, the
supervisor reads its end and stops the worker. The worker is stopped by the kernel if the supervisor dies, and started
again on its address if it ends by itself, a few times.

The folder: $EVENKEEL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/evenkeel, else evenkeel-USER in the folder for temporary files.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

_FAILED, _ENDPOINT, _LOG, _ALIVE, _LOCK, _START = "failed", "endpoint", "log", "alive", "lock", "start.json"
_POLL_SECONDS = 0.02
_LOG_BYTES = 4000  # of the worker's last words in an error
_STOP_SECONDS = 10
_PR_SET_PDEATHSIG = 1
_MAX_RESTARTS = 3
_NO_INDEX = 6  # exit code of `evenkeel serve` for an index that `evenkeel index` makes (docs/cli.md)
_held = {}  # (folder, rank): [number of loaders, descriptors]; of this process


def find_program():
    """The `evenkeel` program: $EVENKEEL_BIN; in the package's folder bin, where wheels have it; cli/ of the build tree that the package is
    in; on PATH. FileNotFoundError where there is none."""
    package = pathlib.Path(__file__).absolute().parent
    named = os.environ.get("EVENKEEL_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"EVENKEEL_BIN: {named} is not a program")
        return named
    for path in (package / "bin" / "evenkeel", package.parents[1] / "cli" / "evenkeel"):
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("evenkeel")
    if found:
        return found
    raise FileNotFoundError("no `evenkeel` program: set EVENKEEL_BIN to it, put it on PATH, or give endpoints= of workers "
                            "that run elsewhere")


def runtime_folder():
    """Created if missing. PermissionError where others could enter it."""
    base = os.environ.get("EVENKEEL_RUNTIME_DIR")
    if base is None:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        base = os.path.join(runtime, "evenkeel") if runtime and os.access(runtime, os.W_OK) else \
            os.path.join(tempfile.gettempdir(), f"evenkeel-{os.getuid()}")
    os.makedirs(base, mode=0o700, exist_ok=True)
    status = os.lstat(base)
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or not os.path.isdir(base) or os.path.islink(base):
        raise PermissionError(f"{base}: must be a folder of this user with mode 0700; it is of user {status.st_uid} with mode "
                              f"{status.st_mode & 0o7777:04o}. Remove it, or set EVENKEEL_RUNTIME_DIR to another")
    return pathlib.Path(base)


def launch_name():
    """What the ranks of one training on one node have in common and those of another have not."""
    named = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID",
                                                   "SLURM_STEP_ID")]
    return ":".join(named) if any(named) else f"parent {os.getppid()}"


class Embedded:
    """This process's hold of the worker of a job for one rank. `endpoint` is its address; `close` lets go of it.

    threads, memory   of the worker: `--threads` and `--memory` of `evenkeel serve` ("2GiB"); None: its defaults
    split             of the job's splits: `--split` of `evenkeel serve`; None: the job's
    start_timeout     seconds that the worker may take to answer, without the time for the index
    """

    def __init__(self, job, rank, threads=None, memory=None, split=None, start_timeout=60):
        job = os.path.realpath(job)
        with open(job, "rb") as file:
            content = file.read()
        options = [] if threads is None else ["--threads", str(threads)]
        options += [] if memory is None else ["--memory", str(memory)]
        options += [] if split is None else ["--split", split]
        name = hashlib.sha256(repr((job, content, options, launch_name())).encode()).hexdigest()[:16]
        self._folder = runtime_folder() / name
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._start = {"program": find_program(), "job": job, "options": options}
        self._key, self._descriptors = (str(self._folder), rank), []
        self._hold(rank)
        try:
            self.endpoint = self._join(start_timeout)
        except BaseException:
            self.close()
            raise

    def close(self):
        held = _held.get(self._key)
        if held is None or self._key is None:
            return
        held[0] -= 1
        if held[0] == 0:
            _let_go(self._key)
        self._key = None

    def last_words(self):
        """Of the worker's log, or of what it said when it failed to start."""
        for name in (_FAILED, _LOG):
            with contextlib.suppress(FileNotFoundError):
                return (self._folder / name).read_text(errors="replace")[-_LOG_BYTES:].strip()
        return ""

    def _hold(self, rank):
        """Two processes with one rank would both train on its data, and another rank's would be missing."""
        if self._key in _held:
            _held[self._key][0] += 1
            return
        path = self._folder / f"rank-{rank}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(descriptor, 32).decode() or "unknown"
            os.close(descriptor)
            raise RankInUse(f"rank {rank} of {self._start['job']} is used by process {other} already: give each process of "
                            "the training its own rank") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        _held[self._key] = [1, [descriptor]]

    def _join(self, timeout):
        with _locked(self._folder):
            if len(_held[self._key][1]) == 1:
                _held[self._key][1].append(self._open_alive() or self._start_supervisor())
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(FileNotFoundError):
                return (self._folder / _ENDPOINT).read_text()
            if (self._folder / _FAILED).exists():
                raise StartFailed((self._folder / _FAILED).read_text().strip())
            if (self._folder / "indexing").exists():
                deadline = time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise StartFailed(f"the worker of {self._start['job']} did not answer within {timeout:g} s: {self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def _open_alive(self):
        """The writing end, or None where no supervisor reads."""
        try:
            return os.open(self._folder / _ALIVE, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                return None
            raise

    def _start_supervisor(self):
        for name in (_ENDPOINT, _FAILED, _ALIVE, "indexing"):
            with contextlib.suppress(FileNotFoundError):
                (self._folder / name).unlink()
        os.mkfifo(self._folder / _ALIVE, 0o600)
        (self._folder / _START).write_text(json.dumps(self._start))
        reader = os.open(self._folder / _ALIVE, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(self._folder / _ALIVE, os.O_WRONLY | os.O_NONBLOCK)
        # A session of its own, so that an interrupt of the terminal ends the trainers first. -I -S: nothing of the
        # trainer's environment is imported.
        subprocess.Popen([sys.executable, "-I", "-S", __file__, str(self._folder), str(reader)], pass_fds=[reader],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/")
        os.close(reader)
        return writer


class StartFailed(RuntimeError):
    """The worker did not start; the message has its words."""


class RankInUse(ValueError):
    """Another process of this node has the rank."""


def _let_go(key):
    for descriptor in _held.pop(key)[1]:
        os.close(descriptor)


def _forget_in_child():
    # A child of fork would keep the worker alive after its parent.
    for key in list(_held):
        _let_go(key)


os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def _locked(folder):
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# ---- The supervisor, run as a program.


def _own_python(options, with_given=False):
    """The interpreter for jobs with `processor.python`: the trainer's, whose packages the user installed, unless the
    worker's options name one; `with_given`: then that one."""
    for i, option in enumerate(options):
        if option == "--python" or option.startswith("--python="):
            return list(options[i:i + 2] if option == "--python" else [option]) if with_given else []
    return ["--python", sys.executable]


def _die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write(path, text):
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(path)


class _Supervisor:
    def __init__(self, folder, alive):
        self._folder, self._alive = folder, alive
        self._start = json.loads((folder / _START).read_text())
        self._code, self._address, self._restarts = None, "127.0.0.1:0", 0

    def run(self):
        worker, said = self._serve()
        if worker is None and self._code == _NO_INDEX:
            said = self._index()
            if not said:
                worker, said = self._serve()
        if worker is None:
            _write(self._folder / _FAILED, said or "the worker ended without a word")
            self._wait_for_the_last(None)
            return
        self._wait_for_the_last(worker)

    def _serve(self):
        """(process, "") once it listens, or (None, its last words)."""
        with open(self._folder / _LOG, "ab" if self._restarts else "wb") as log:
            worker = subprocess.Popen([self._start["program"], "serve", "--job", self._start["job"], "--listen",
                                       self._address, *_own_python(self._start["options"]), *self._start["options"]],
                                      stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                                      preexec_fn=_die_with_parent)
        line = worker.stdout.readline()
        if not line:
            self._code = worker.wait()
            return None, (self._folder / _LOG).read_text(errors="replace")[-_LOG_BYTES:]
        self._address = json.loads(line)["address"]
        _write(self._folder / _ENDPOINT, self._address)
        return worker, ""

    def _restart(self, worker):
        """Another worker after this one ended, or None: then its end is an error for present and later ranks."""
        how = f"signal {-worker.returncode}" if worker.returncode < 0 else f"exit code {worker.returncode}"
        while self._restarts < _MAX_RESTARTS:
            self._restarts += 1
            again, _ = self._serve()
            if again is not None:
                return again
        log = (self._folder / _LOG).read_text(errors="replace")[-_LOG_BYTES:]
        _write(self._folder / _FAILED, f"{log}\nthe worker ended with {how}, after {self._restarts} restarts")
        (self._folder / _ENDPOINT).unlink(missing_ok=True)
        return None

    def _index(self):
        """Its last words where it failed. Its progress is on the standard error of the process that came first."""
        (self._folder / "indexing").touch()
        sys.stderr.write(f"evenkeel: no index for {self._start['job']} yet; making it\n")
        sys.stderr.flush()
        done = subprocess.Popen([self._start["program"], "index", "--job", self._start["job"],
                                 *_own_python(self._start["options"], with_given=True)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=_die_with_parent)
        words = b""
        while chunk := os.read(done.stderr.fileno(), 4096):
            words = (words + chunk)[-_LOG_BYTES:]
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
        (self._folder / "indexing").unlink()
        return "" if done.wait() == 0 else words.decode(errors="replace") or "evenkeel index failed"

    def _wait_for_the_last(self, worker):
        """Returns once no process holds the FIFO; the worker has ended then. Until then one that ends is replaced."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())  # whoever reads the trainers' errors to their end must not wait for this one
        while True:
            worker = self._watch(worker)
            with _locked(self._folder):
                # A rank that came meanwhile holds the lock until it has opened the FIFO; it reads as open then.
                if self._nobody_holds():
                    os.close(self._alive)  # a later rank starts another
                    (self._folder / _ENDPOINT).unlink(missing_ok=True)
                    break
        if worker is not None:
            worker.terminate()
            try:
                worker.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


    def _watch(self, worker):
        """The worker that runs, or None, when the FIFO's last writer is gone."""
        while True:
            ended = os.pidfd_open(worker.pid) if worker is not None else None
            ready, _, _ = select.select([self._alive, *([] if ended is None else [ended])], [], [])
            if ended is not None:
                os.close(ended)
            if self._alive in ready and self._nobody_holds():
                return worker
            if ended in ready:
                worker.wait()
                worker = self._restart(worker)

    def _nobody_holds(self):
        os.set_blocking(self._alive, False)
        try:
            return os.read(self._alive, 1) == b""
        except BlockingIOError:
            return False


if __name__ == "__main__":
    _Supervisor(pathlib.Path(sys.argv[1]), int(sys.argv[2])).run()
