"""Runs an example script on several ranks, as torchrun would, without importing torch and transformers each time.

A template process imports them once; every run forks its ranks from it.
"""

import contextlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback

DEADLINE_SECONDS = 300


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Template:
    """`imports`: modules that the template imports; `path`: for sys.path; `environment`: of the ranks."""

    def __init__(self, imports, path, environment):
        self._process = subprocess.Popen(
            [sys.executable, __file__, *imports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path), **environment})

    def start(self, ranks, folder, script, *arguments):
        """Process ids of the ranks, which write folder/RANK.out and folder/RANK.err and end in folder/RANK.rc."""
        folder.mkdir(exist_ok=True)
        task = {"ranks": ranks, "folder": str(folder), "port": _free_port(),
                "argv": [str(word) for word in (script, *arguments)]}
        for rank in range(ranks):
            (folder / f"{rank}.rc").unlink(missing_ok=True)
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the template ended"
        return json.loads(line)

    def run(self, ranks, folder, script, *arguments):
        """The lines that rank 0 printed. AssertionError with the ranks' errors if one fails."""
        pids = self.start(ranks, folder, script, *arguments)
        deadline = time.monotonic() + DEADLINE_SECONDS
        codes = {}
        while len(codes) < ranks and not any(codes.values()) and time.monotonic() < deadline:
            for rank in range(ranks):
                with contextlib.suppress(FileNotFoundError, ValueError):
                    codes[rank] = int((folder / f"{rank}.rc").read_text())
            time.sleep(0.05)
        for pid in pids:  # the others wait for the one that failed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if len(codes) < ranks or any(codes.values()) else 0)
        errors = "".join(f"rank {rank}:\n{(folder / f'{rank}.err').read_text()[-3000:]}" for rank in range(ranks))
        assert len(codes) == ranks and not any(codes.values()), errors
        return (folder / "0.out").read_text().splitlines()

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def of_the_job(folder):
    """{pid: command line} of workers, their decoders and supervisors."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().decode().replace("\0", " ")
            if str(folder) in words and (" serve " in words or "embedded.py" in words):
                found[int(path.name)] = words
    return found


def shared_memory_of(pids):
    """Files of /dev/shm that the processes map or have open."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text().split()
            links = [os.readlink(one) for one in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
            found |= {word for word in maps + links if word.startswith("/dev/shm/")}
    return found


def wait_until(condition):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def killed(ranks, folder):
    """Kills the ranks of a training on a job in `folder` at the end of the block: nothing is left of them."""
    try:
        yield
        workers = of_the_job(folder)
        assert len(workers) >= 2, "a worker and its supervisor"
        memory = shared_memory_of([*ranks, *workers])
    finally:
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)
    wait_until(lambda: not of_the_job(folder))
    assert not [one for one in memory if os.path.exists(one)]
    segments = [line.split() for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    assert not [words for words in segments if int(words[4]) in {*ranks, *workers}], "of System V"


def _rank(task, rank):
    os.chdir(task["folder"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    size, port = str(task["ranks"]), str(task["port"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, GROUP_RANK="0",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_RUN_ID=port)
    code = 0
    try:
        sys.argv = task["argv"]
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: B902 - whatever it is, the test must show it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    pathlib.Path(f"{rank}.new").write_text(str(code))
    os.rename(f"{rank}.new", f"{rank}.rc")
    os._exit(code)


def _serve(imports):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in imports:
        __import__(name)
    import torch
    # Stand-ins for CUDA's libraries cannot answer this question.
    torch.cuda.is_current_stream_capturing = lambda: False
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the ranks
    for line in sys.stdin:
        task = json.loads(line)
        pids = []
        for rank in range(task["ranks"]):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(0)
                os.open(os.devnull, os.O_RDONLY)
                answers.close()
                _rank(task, rank)
            pids.append(pid)
        answers.write(json.dumps(pids) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
