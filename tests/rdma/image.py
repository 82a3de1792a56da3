"""The virtual machines' disk: an initial ramdisk of Debian's kernel modules and this machine's own programs.

The base (libraries, tools, modules, `init`) is cached in build/rdma under a hash of its inputs. A second archive with
the binary and the job follows it, since the kernel unpacks ramdisks one after the other; so a new binary costs no new
base. Nothing here needs root. Raises Unavailable where a machine cannot be made here.
"""

import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / "build" / "rdma"
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
# What the machines need of the kernel: a network card, Soft-RoCE on it, and a link without a card.
MODULES = ["virtio_pci", "virtio_net", "dummy", "rdma_rxe", "ib_uverbs"]
PROGRAMS = ["busybox", "ip", "rdma", "ucx_info", "ucx_perftest"]
# Opened by name at run time, so that no program is linked with them.
PLUGINS = ["libucp.so.0", "ucx/libuct_ib.so.0", "ucx/libuct_rdmacm.so.0", "ucx/libuct_cma.so.0",
           "libibverbs/librxe-rdmav34.so"]
DOWNLOAD_SECONDS = 300


class Unavailable(Exception):
    """Says what is missing and how to get it."""


class Archive:
    """Writes a cpio archive of the kernel's `newc` format, owned by root, uncompressed."""

    def __init__(self, path):
        self._out = open(path, "wb")
        self._inode = 0
        self._names = set()

    def _entry(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        encoded = name.encode() + b"\0"
        # Modified in 2001: gRPC does not read certificates of the time zero.
        fields = [self._inode, mode, 0, 0, 1, 10**9, len(data), 0, 0, *device, len(encoded), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        for block in (header + encoded, data):
            self._out.write(block + b"\0" * (-len(block) % 4))

    def folder(self, name):
        if name in ("", ".") or name in self._names:
            return
        self.folder(os.path.dirname(name))
        self._names.add(name)
        self._entry(name, stat.S_IFDIR | 0o755)

    def add(self, name, data, mode=0o644):
        """A file; the folders above it are added when they are not there yet."""
        if name in self._names:
            return
        self.folder(os.path.dirname(name))
        self._names.add(name)
        self._entry(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self.folder(os.path.dirname(name))
        self._names.add(name)
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def console(self):
        self.folder("dev")
        self._entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))

    def close(self):
        self._entry("TRAILER!!!", 0)
        self._out.close()


def _output(*command, **options):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout
    except (OSError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or str(error)).strip()
        raise Unavailable(f"{' '.join(map(str, command))}: {detail[-300:]}") from error


def kernel():
    """The folder of Debian's kernel and its modules; downloaded once, never installed."""
    unpacked = sorted((CACHE / "kernel").glob("boot/vmlinuz-*"))
    if unpacked:
        return CACHE / "kernel"
    depends = _output("apt-cache", "depends", "linux-image-amd64")
    names = re.findall(r"Depends: (linux-image-\S+-amd64)\s", depends)
    if not names:
        raise Unavailable("apt-cache depends linux-image-amd64 names no kernel; the machines need Debian 12's")
    CACHE.mkdir(parents=True, exist_ok=True)
    download = CACHE / "download"
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir()
    _output("apt-get", "download", "-qq", names[0], cwd=download, timeout=DOWNLOAD_SECONDS)
    package = next(download.glob("*.deb"))
    _output("dpkg-deb", "-x", str(package), str(download / "kernel"))
    os.replace(download / "kernel", CACHE / "kernel")
    shutil.rmtree(download)
    return CACHE / "kernel"


def _modules(folder):
    """[(name, path)] of MODULES and what they depend on, in the order in which they are loaded."""
    paths = {path.name[:-3].replace("-", "_"): path for path in folder.glob("lib/modules/*/kernel/**/*.ko")}
    order = []

    def visit(name):
        if name in (seen for seen, _ in order) or name not in paths:  # built in
            return
        # The dependencies that depmod reads: "depends=a,b", between zero bytes.
        text = paths[name].read_bytes()
        for dependency in re.findall(rb"\0depends=([^\0]*)\0", text)[0].decode().split(","):
            if dependency:
                visit(dependency)
        # rdma_rxe asks for its checksum by an alias that needs no module: loaded where the kernel has it.
        order.append((name, paths[name]))

    for name in ["crc32_generic", *MODULES]:
        visit(name)
    return order


def _libraries(program):
    """The shared libraries that `program` is linked with, as {path in the machine: file here}."""
    found = {}
    for line in _output("ldd", str(program)).splitlines():
        if "not found" in line:
            raise Unavailable(f"{program}: {line.strip()}")
        for path in re.findall(r"(/\S+) \(0x", line):
            found[path] = pathlib.Path(path)
    return found


def _both(binary):
    """`evenkeel`, and the programs next to it that it becomes."""
    return [binary, *(binary.with_name(f"evenkeel-{name}") for name in ("data", "network"))]


def _files(binary):
    """{path in the machine: file here} of programs, plug-ins and all their libraries."""
    files = {}
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        if path is None:
            raise Unavailable(f"{name} is not installed: scripts/setup --rdma")
        files[f"/bin/{name}"] = pathlib.Path(path)
    for name in PLUGINS:
        if not (LIBRARIES / name).exists():
            raise Unavailable(f"{LIBRARIES / name} is missing: scripts/setup --rdma")
        files[str(LIBRARIES / name)] = LIBRARIES / name
    files["/etc/libibverbs.d/rxe.driver"] = pathlib.Path("/etc/libibverbs.d/rxe.driver")
    for path in [*files.values(), *_both(binary)]:
        if path.suffix != ".driver":
            if "statically linked" in subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout:
                continue
            if path.name != "busybox":
                files.update(_libraries(path))
    return files


def _key(files):
    """Changes with any of the files, without reading them all."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        facts = path.stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def base(binary):
    """Makes, or finds, the archive of everything but the binary and the job; returns its path."""
    modules = _modules(kernel())
    files = _files(binary)
    own = {"/init": HERE / "init.sh", "/image.py": HERE / "image.py"}
    key = _key({**files, **own, **{f"/modules/{name}.ko": path for name, path in modules}})
    path = CACHE / f"base-{key}.cpio"
    if path.exists():
        return path
    for old in CACHE.glob("base-*.cpio"):
        old.unlink()
    partial = path.with_suffix(".partial")
    archive = Archive(partial)
    for folder in ("proc", "sys", "dev", "tmp", "run", "root"):
        archive.folder(folder)
    archive.console()
    for name, target in (("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "bin"), ("usr/bin", "../bin")):
        archive.link(name, target)
    archive.add("init", own["/init"].read_bytes(), 0o755)
    for name, source in files.items():
        inside = name.lstrip("/")
        if inside.startswith(("lib/", "lib64/")):  # one place for both, as Debian has it
            inside = f"usr/{inside}"
        archive.add(inside, source.read_bytes(), 0o755)
    for name, source in modules:
        archive.add(f"modules/{name}.ko", source.read_bytes())
    archive.add("modules/order", "\n".join(name for name, _ in modules).encode())
    archive.add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    archive.add("etc/hosts", b"127.0.0.1 localhost\n")
    archive.close()
    os.replace(partial, path)
    return path


def ramdisk(binary, folder, out):
    """Writes `out`: the base, then the stripped programs in /bin and the files of `folder` as /job."""
    stripped = out.with_suffix(".stripped")
    overlay = out.with_suffix(".overlay")
    archive = Archive(overlay)
    for program in _both(binary):
        _output("strip", "-o", str(stripped), str(program))
        archive.add(f"bin/{program.name}", stripped.read_bytes(), 0o755)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            archive.add(f"job/{path.relative_to(folder)}", path.read_bytes())
    archive.close()
    with open(out, "wb") as joined:
        for part in (base(binary), overlay):
            with open(part, "rb") as source:
                shutil.copyfileobj(source, joined, 1 << 20)
            joined.write(b"\0" * (-joined.tell() % 512))
    stripped.unlink()
    overlay.unlink()
    return out


def boot_image():
    return next((kernel() / "boot").glob("vmlinuz-*"))
