"""The faults. Each is a generator: it disturbs the world, yields seconds to wait, and puts things right again.

A fault that cannot be made just now returns before its first yield, and is not counted. `world` is run.World.
"""

import contextlib
import functools
import os
import resource
import signal
import subprocess

FAULTS = []


def fault(weight, needs=()):
    """Registers a generator. `needs`: names of what the world must have (run.World.has)."""
    def register(function):
        FAULTS.append((function, weight, needs))
        return function
    return register


def one_of(candidates):
    """The fault is given one of `candidates(world)`, chosen at random; where there is none it cannot be made."""
    def pick(function):
        @functools.wraps(function)
        def generator(world):
            found = candidates(world)
            if found:
                yield from function(world, world.rng.choice(found))
        return generator
    return pick


@contextlib.contextmanager
def impaired(slots, what):
    for slot in slots:
        slot.impaired.append(what)
    try:
        yield
    finally:
        for slot in slots:
            slot.impaired.remove(what)


def send(pids, number):
    """The pids that got the signal."""
    reached = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            reached.append(pid)
    return reached


def well_slots(world):
    return [slot for slot in world.slots if slot.well]


def well_slots_to_end(world):
    """The first worker is never ended, so that its memory and handles can be followed for the whole run."""
    return [slot for slot in well_slots(world) if slot.number > 0]


def slots_with_spawner(world):
    return [slot for slot in well_slots_to_end(world) if slot.spawner]


def decoders(world):
    return [pid for slot in well_slots(world) for pid in slot.decoders()]


def running_streams(world):
    return [stream for stream in world.streams if stream.process is not None]


def reading_streams(world):
    return [stream for stream in running_streams(world) if not stream.paused]


# --- workers

@fault(3)
@one_of(well_slots_to_end)
def worker_killed(world, slot):
    slot.kill()
    yield world.rng.uniform(0, 2)
    slot.start()


@fault(2)
@one_of(well_slots_to_end)
def worker_terminated(world, slot):
    code = yield from slot.terminate(wait=45)
    if code != 0:
        world.failures.append(f"worker {slot.number}: SIGTERM ended with {code}: {''.join(slot.worker.log[-6:])}")
    yield world.rng.uniform(0, 1)
    slot.start()


@fault(3)
@one_of(well_slots)
def worker_stopped(world, slot):
    pid = slot.pid
    with impaired([slot], "stopped"):
        send([pid], signal.SIGSTOP)
        yield world.rng.choice([world.rng.uniform(1, 4), world.rng.uniform(8, 12)])
        send([pid], signal.SIGCONT)


@fault(1)
def all_workers_gone(world):
    slots = well_slots(world)
    if len(slots) != len(world.slots):
        return
    stays = slots.pop(0)
    pid = stays.pid
    with impaired([stays], "stopped"):
        send([pid], signal.SIGSTOP)
        for slot in slots:
            slot.kill()
        yield world.rng.uniform(1, 4)
        for slot in slots:
            slot.start()
        yield world.rng.uniform(0, 1)
        send([pid], signal.SIGCONT)


@fault(2, needs=["isolation"])
def two_grey_workers(world):
    """Alive and answering, and getting nowhere."""
    slots = well_slots(world)
    if len(slots) < 3:
        return
    slots = world.rng.sample(slots, 2)
    pids = [pid for slot in slots for pid in slot.decoders()]
    with impaired(slots, "decoders stopped"):
        send(pids, signal.SIGSTOP)
        yield world.rng.uniform(6, 12)
        send(pids, signal.SIGCONT)


# --- helper processes

@fault(3, needs=["isolation"])
@one_of(decoders)
def decoder_killed(world, pid):
    send([pid], signal.SIGKILL)
    yield 0


@fault(1, needs=["isolation"])
@one_of(decoders)
def decoder_stopped(world, pid):
    send([pid], signal.SIGSTOP)
    yield world.rng.uniform(2, 6)
    send([pid], signal.SIGCONT)


@fault(1, needs=["isolation"])
@one_of(slots_with_spawner)
def spawner_killed(world, slot):
    with impaired([slot], "spawner killed"):
        send([slot.spawner], signal.SIGKILL)
        yield 3


@fault(1, needs=["isolation"])
@one_of(slots_with_spawner)
def spawner_stopped(world, slot):
    pid = slot.spawner
    with impaired([slot], "spawner stopped"):
        send([pid], signal.SIGSTOP)
        yield world.rng.uniform(2, 8)
        send([pid], signal.SIGCONT)


# --- consumers

@fault(3)
@one_of(running_streams)
def consumer_killed(world, stream):
    stream.kill()
    yield 0


@fault(2)
@one_of(reading_streams)
def slow_reader(world, stream):
    """Asked for its parts, and does not read them."""
    process = stream.process
    stream.pause(True)
    yield world.rng.uniform(2, 6)
    if stream.process is process:
        stream.pause(False)


# --- storage and disk

@fault(2)
def shards_away(world):
    if world.storage_disturbed:
        return
    world.storage_disturbed = True
    away = world.folder / "away"
    away.mkdir(exist_ok=True)
    for shard in world.shards:
        shard.rename(away / shard.name)
    yield world.rng.uniform(1, 5)
    for shard in world.shards:
        (away / shard.name).rename(shard)
    world.storage_disturbed = False


@fault(1)
def shard_truncated(world):
    if world.storage_disturbed:
        return
    world.storage_disturbed = True
    shard = world.rng.choice(world.shards)
    size = shard.stat().st_size
    with open(shard, "r+b") as file:
        file.seek(size // 3)
        tail = file.read()
        file.truncate(size // 3)
        yield world.rng.uniform(1, 3)
        file.seek(size // 3)
        file.write(tail)
    world.storage_disturbed = False


@fault(1, needs=["small_disk"])
def disk_full(world):
    filler = world.index_disk / "filler"
    if filler.exists():
        return
    with open(filler, "wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * (1 << 20))
            file.flush()
    yield world.rng.uniform(2, 6)
    filler.unlink()


# --- handles

@fault(1)
@one_of(well_slots)
def handles_short(world, slot):
    pid = slot.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with impaired([slot], "handles"):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 2, before[1]))
        yield world.rng.uniform(2, 6)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def connect_many(world, slot, count, first_bytes=b""):
    """Opens connections to a worker from where consumers are; they close when the process ends."""
    host = next(iter(world.network.links.values()))
    program = ("import socket, sys, time, resource\n"
               "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
               "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
               "kept = []\n"
               "for _ in range(int(sys.argv[3])):\n"
               "    try:\n"
               "        one = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)\n"
               "        one.sendall(bytes.fromhex(sys.argv[4]))\n"
               "        kept.append(one)\n"
               "    except OSError:\n"
               "        pass\n"
               "time.sleep(60)\n")
    return subprocess.Popen([*world.network.consumer_wrapper, "python3", "-c", program, host, str(slot.port),
                             str(count), first_bytes.hex()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@fault(1)
@one_of(well_slots)
def idle_connections(world, slot):
    flood = connect_many(world, slot, world.rng.randint(200, 2500))
    yield world.rng.uniform(3, 8)
    flood.kill()
    flood.wait()


@fault(1)
@one_of(well_slots)
def garbage_connections(world, slot):
    garbage = bytes(world.rng.randrange(256) for _ in range(world.rng.randint(1, 200)))
    flood = connect_many(world, slot, 50, garbage)
    yield 3
    flood.kill()
    flood.wait()


# --- certificates: of the workers or of the consumers

def replace_in_place(path, data):
    path.write_bytes(data)


@fault(2)
def certificate_damaged(world):
    role = world.rng.choice(["worker", "trainer"])
    if role in world.certificates_disturbed:
        return
    world.certificates_disturbed.add(role)
    paths = [world.certificates / f"{role}.pem", world.certificates / f"{role}.key"]
    good = [path.read_bytes() for path in paths]
    path, whole = world.rng.choice(list(zip(paths, good)))
    other = "trainer" if role == "worker" else "worker"
    # Another such fault may have taken away the other role's file.
    ways = ["empty", "half", "junk", "gone"] + ["other"] * (other not in world.certificates_disturbed)
    how = world.rng.choice(ways)
    if how == "gone":
        path.unlink()
    elif how == "other":
        replace_in_place(path, (world.certificates / f"{other}{path.suffix}").read_bytes())
    else:
        replace_in_place(path, {"empty": b"", "half": whole[:len(whole) // 2], "junk": os.urandom(300)}[how])
    yield world.rng.uniform(3, 7)
    for path, data in zip(paths, good):
        replace_in_place(path, data)
    world.certificates_disturbed.remove(role)


@fault(1)
def certificates_renewed(world):
    if world.certificates_disturbed:
        return
    world.make_certificates("--renew")
    yield 3


# --- clocks

@fault(1, needs=["clock"])
def clock_jumped(world):
    world.clock_file.write_text(world.rng.choice(["+0", "+3600s", "+1d", "+2d"]))
    yield world.rng.uniform(1, 5)


# --- network

BAD_LINKS = [{"delay_ms": 30}, {"delay_ms": 50, "jitter_ms": 20, "loss": 0.01}, {"loss": 0.05},
             {"delay_ms": 5, "reordered": 0.25, "duplicated": 0.02}, {"damaged": 0.005},
             {"bytes_per_second": 5e6}]


@fault(4, needs=["network"])
def bad_link(world):
    if world.links_disturbed:
        return
    world.links_disturbed = True
    world.network.disturb(**world.rng.choice(BAD_LINKS))
    yield world.rng.uniform(4, 12)
    world.network.disturb()
    world.links_disturbed = False


@fault(2, needs=["network"])
def link_cut(world):
    if world.links_disturbed:
        return
    world.links_disturbed = True
    link = world.rng.choice(list(world.network.links))
    world.cut_links.add(link)
    if link == "relay":
        world.network.disturb(cut=True)
    else:
        world.network.set_wire(False)
    yield world.rng.uniform(2, 10)
    if link == "relay":
        world.network.disturb()
    else:
        world.network.set_wire(True)
    yield 1  # connections notice it after a while, during which no side is to blame
    world.cut_links.remove(link)
    world.links_disturbed = False
