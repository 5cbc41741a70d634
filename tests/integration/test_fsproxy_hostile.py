"""What a workload that knows our source tries, and a lower directory that its owner changes meanwhile
(docs/fuse-cases.md). Each attack has a control that must succeed."""
import ctypes
import fcntl
import json
import os
import pathlib
import resource
import stat
import subprocess
import sys
import threading
import time

import pytest

import fsproxy_records
import fsproxy_world as fw
from fsproxy_model import EXCHANGE, renameat2

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")
LIBC = ctypes.CDLL(None, use_errno=True)
MAX_DEPTH = 2048


@pytest.fixture
def world():
    with fw.World() as w:
        (w.lower / "file").write_text("lower\n")
        (w.lower / "dir/sub").mkdir(parents=True)
        (w.lower / "dir/one").write_text("1")
        (w.lower / "dir/sub/two").write_text("2")
        (w.root / "outside").mkdir()
        (w.root / "outside/secret").write_text("secret")
        yield w


def names(path):
    return sorted(os.listdir(path))


def size_of_meta(world):
    return sum(os.stat(world.layer / name).st_size for name in ("meta", "meta-records"))


def memory_of(world):
    """Resident bytes of the service."""
    return int(pathlib.Path(f"/proc/{world.process.pid}/statm").read_text().split()[1]) * 4096


def descriptors_of(world):
    return len(os.listdir(f"/proc/{world.process.pid}/fd"))


# --- links, devices, special files

def test_forged_links_are_never_followed_by_the_service(world):
    secret = world.root / "outside/secret"
    before = os.stat(secret)
    os.symlink(world.root / "outside", world.lower / "way-out")
    world.start()
    m = world.mnt
    os.symlink(secret, m / "leaf")
    os.symlink(world.root / "outside", m / "parent")
    for name in ("leaf", "parent", "way-out"):
        os.utime(m / name, ns=(1, 2), follow_symlinks=False)
        os.link(m / name, m / f"{name}.l", follow_symlinks=False)
        os.rename(m / name, m / f"{name}.r")
        assert stat.S_ISLNK(os.lstat(m / f"{name}.r").st_mode)
        assert fw.error_of(os.open, m / f"{name}.r", os.O_WRONLY | os.O_NOFOLLOW) == "ELOOP"
        os.unlink(m / f"{name}.r")
    # A directory of upper that became a link on disk under our feet (what a bug elsewhere could do).
    for name in ("made", "other"):
        (m / name).mkdir()
        (m / name / "x").write_text("x")
    held = os.open(m / "made", os.O_RDONLY)
    upper = world.layer / "upper"
    os.rename(upper / "made", upper / "aside")
    os.symlink(world.root / "outside", upper / "made")
    for i in range(600):  # the descriptor that was held is dropped
        (m / f"d{i}").mkdir()
        os.stat(m / f"d{i}")
    for call in (lambda: os.open("secret", os.O_RDONLY, dir_fd=held), lambda: os.unlink("secret", dir_fd=held),
                 lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=held), lambda: os.mkdir("new", dir_fd=held)):
        assert fw.error_of(call) in ("ENOENT", "ELOOP", "ENOTDIR", "ESTALE", "EXDEV", "EIO", None)
    os.close(held)
    assert names(world.root / "outside") == ["secret"] and secret.read_text() == "secret"
    assert os.stat(secret).st_mtime_ns == before.st_mtime_ns and os.stat(secret).st_mode == before.st_mode


def test_a_lower_directory_that_becomes_a_link_leads_nowhere(world):
    world.start()
    m = world.mnt
    held = os.open(m / "dir", os.O_RDONLY)
    assert names(m / "dir/sub") == ["two"]
    os.rename(world.lower / "dir", world.root / "aside")
    os.symlink(world.root / "outside", world.lower / "dir")
    for path in ("secret", "../outside/secret"):
        assert fw.error_of(os.open, path, os.O_RDONLY, dir_fd=held) in ("ENOENT", "ESTALE", "ENOTDIR")
    assert fw.error_of(os.open, "planted", os.O_WRONLY | os.O_CREAT, dir_fd=held) in ("ENOENT", "ESTALE", "ENOTDIR", None)
    os.close(held)
    time.sleep(1.2)
    assert os.readlink(m / "dir") == str(world.root / "outside")  # data, for the workload's kernel to follow
    assert names(world.root / "outside") == ["secret"]


def test_devices_are_made_by_nobody_and_lower_ones_hide_nothing(world):
    os.mknod(world.lower / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(world.lower / "zero-zero", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    world.start()
    m = world.mnt
    for kind, number in ((stat.S_IFCHR, 0), (stat.S_IFCHR, os.makedev(1, 3)), (stat.S_IFBLK, os.makedev(8, 0))):
        for target in (m / "new", m / "file", m / "dir/new"):
            assert fw.error_of(os.mknod, target, kind | 0o666, number) in ("EPERM", "EEXIST")
    assert names(m) == ["dir", "file", "null", "zero-zero"]
    for name in ("null", "zero-zero"):
        assert stat.S_ISCHR(os.lstat(m / name).st_mode)
        assert fw.error_of(open, m / name) == "EACCES"  # nodev
        assert fw.error_of(os.chmod, m / name, 0o600) == "EPERM"
        assert fw.error_of(os.link, m / name, m / f"{name}.l") == "EPERM"
        assert fw.error_of(os.rename, m / name, m / f"{name}.r") == "EPERM"
    os.unlink(m / "null")
    world.restart()
    assert names(m) == ["dir", "file", "zero-zero"]
    os.mkfifo(m / "null")


def test_fifos_and_sockets_are_never_opened_by_the_service(world):
    import socket
    os.mkfifo(world.lower / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(world.lower)
        server.bind("sock")
        os.chdir("/")
        world.start()
        m = world.mnt
        for name in ("pipe", "sock"):
            os.chmod(m / name, 0o640)  # copied up
            os.link(m / name, m / f"{name}.l")
            os.rename(m / name, m / f"{name}.r")
            assert fw.error_of(os.truncate, m / f"{name}.r", 0) in ("EINVAL", "ENXIO")
            assert stat.S_IMODE(os.stat(m / f"{name}.l").st_mode) == 0o640
        os.rename(m / "dir", m / "moved")
        assert (m / "file").read_text() == "lower\n"


def test_no_handle_reaches_past_the_names(world):
    world.rules = [("hide", ".env")]
    for path in (".env", "dir/.env"):
        (world.lower / path).write_text("secret")
    world.start()
    fd = os.open(world.mnt, os.O_RDONLY)
    handle = ctypes.create_string_buffer(136)
    ctypes.memmove(handle, (128).to_bytes(4, "little"), 4)
    mount_id = ctypes.c_int()
    assert LIBC.name_to_handle_at(fd, b"file", handle, ctypes.byref(mount_id), 0) == 0
    for path in (".env", "dir/.env"):
        assert fw.error_of(open, world.mnt / path) == "ENOENT"
    opened = set()
    for number in range(200):
        ctypes.memmove(ctypes.addressof(handle) + 8, bytes(4) + number.to_bytes(4, "little"), 8)  # the node's
        got = LIBC.open_by_handle_at(fd, handle, os.O_RDONLY)
        if got >= 0:
            opened.add(os.readlink(f"/proc/self/fd/{got}"))
            assert stat.S_ISDIR(os.fstat(got).st_mode) or b"secret" not in os.read(got, 100)
            os.close(got)
    # What was looked up is there, the control; what is hidden has no number.
    assert str(world.mnt / "file") in opened and not any(".env" in path for path in opened)
    os.close(fd)


def test_ioctls_direct_io_and_odd_space_calls(world):
    world.start()
    path = world.mnt / "file"
    with open(path, "r+b", buffering=0) as f:
        flags = ctypes.c_long(0x10)  # FS_IMMUTABLE_FL
        for request, argument in ((0x40086602, flags), (0x80086601, flags), (0x40049409, f.fileno())):
            assert fw.error_of(fcntl.ioctl, f, request, argument) in ("ENOTTY", "ENOTSUP", "EINVAL", "ENOSYS")
        for mode in (0x08, 0x20, 0x40, 0x08 | 0x02, 0x7F):  # collapse, insert, unshare, nonsense
            assert LIBC.fallocate(f.fileno(), mode, ctypes.c_long(0), ctypes.c_long(4096)) == -1
            assert ctypes.get_errno() in (95, 22, 1)
        assert fw.error_of(os.ftruncate, f.fileno(), 1 << 62) in ("EFBIG", "EINVAL")
        assert fw.error_of(os.pwrite, f.fileno(), b"x", (1 << 62)) in ("EFBIG", "EINVAL")
        assert os.fstat(f.fileno()).st_size == 6
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    import mmap
    with mmap.mmap(-1, 4096) as page:
        page[:] = b"d" * 4096
        assert os.pwritev(fd, [page], 0) == 4096
    os.close(fd)
    assert path.read_bytes() == b"d" * 4096
    os.unlink(path)


# --- exhausting the service

def test_depth_is_bounded_and_the_service_can_start_over_it(world):
    world.start()
    fd = os.open(world.mnt, os.O_RDONLY)
    depth = 0
    failure = None
    while depth < MAX_DEPTH + 50:
        failure = fw.error_of(os.mkdir, "d" * 20, dir_fd=fd)
        if failure:
            break
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd, depth = below, depth + 1
    os.close(fd)
    assert failure == "ENAMETOOLONG" and depth == MAX_DEPTH
    before = descriptors_of(world)
    top = world.mnt / ("d" * 20)
    os.rename(top, world.mnt / "renamed")
    assert fw.error_of(os.rename, world.mnt / "dir", world.mnt / "renamed/dir") is None
    assert descriptors_of(world) <= before + 520
    world.stop()
    # With few descriptors, as on a machine with a low hard limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    world.limits = 300
    world.start()
    assert "renamed" in names(world.mnt)
    world.limits = None
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["entries"] >= MAX_DEPTH
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


HOLDER = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
try:
    while len(held) < 17000:
        held.append(os.open(sys.argv[1], os.O_RDONLY))
except OSError as e:
    print(e.errno, flush=True)
print(len(held), flush=True)
sys.stdin.read()
"""


def test_a_hundred_thousand_handles(world):
    """More than the service can have: the rest is ENFILE, and everything else goes on."""
    world.start()
    resource_of = [int(line.split()[4]) for line in open(f"/proc/{world.process.pid}/limits") if "open files" in line][0]
    before, holders = memory_of(world), []
    try:
        for _ in range(6):
            holders.append(subprocess.Popen([sys.executable, "-c", HOLDER, world.mnt / "file"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True))
        lines = [holder.stdout.readline().strip() for holder in holders]
        counts = [int(holder.stdout.readline()) if line in ("23", "24") else int(line)
                  for holder, line in zip(holders, lines)]
        held = sum(counts)
        assert held <= resource_of and descriptors_of(world) <= resource_of
        assert memory_of(world) - before < held * 1024 + (8 << 20)
        assert os.stat(world.mnt / "dir/one").st_size == 1 and "one" in os.listdir(world.mnt / "dir")
        os.mkdir(world.mnt / "made")
        # All of them, unless the service or a holder itself may have no more.
        assert "23" in lines or held == 6 * 17000 or "24" in lines
    finally:
        for holder in holders:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()
    assert (world.mnt / "file").read_text() == "lower\n"


def test_handles_are_bounded_and_come_back(world):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    world.limits = 1000
    world.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4000), hard))
    held, idle = [], descriptors_of(world)
    try:
        with pytest.raises(OSError) as failure:
            while True:
                held.append(os.open(world.mnt / "file", os.O_RDONLY))
        assert failure.value.errno == 23  # ENFILE
        assert len(held) < 1000
        # A handle may have to wait a few milliseconds for its descriptor.
        until = time.monotonic() + 20
        while descriptors_of(world) < idle + len(held):
            assert time.monotonic() < until
            time.sleep(0.01)
        # Of directories the kernel does not tell: they cost nothing.
        before = descriptors_of(world)
        held += [os.open(world.mnt / "dir", os.O_RDONLY) for _ in range(2000)]
        assert sorted(os.listdir(held[-1])) == sorted(os.listdir(world.lower / "dir"))
        assert descriptors_of(world) <= before + 2
        os.close(held.pop())
        assert os.stat(world.mnt / "dir/one").st_size == 1
        os.close(held.pop(0))
        held.append(os.open(world.mnt / "dir/sub/two", os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for _ in range(50):
        if descriptors_of(world) < 100:
            break
        time.sleep(0.1)
    assert (world.mnt / "file").read_text() == "lower\n"
    (world.mnt / "new").write_text("new")


def test_names_that_are_looked_up_for_ever_are_not_kept(world):
    world.start()
    m = os.fspath(world.mnt)
    for i in range(200):
        assert not os.path.exists(f"{m}/warm{i}")
    before = memory_of(world)
    for i in range(100000):
        os.path.exists(f"{m}/{i}-does-not-exist")
    assert memory_of(world) - before < 8 << 20
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["nodes"] < 100


def test_many_names_are_forgotten_again(world):
    """More names than the service keeps, each of which the kernel remembers as long as it may."""
    count = int(os.environ.get("COFFERDAM_MANY_NAMES", "200000"))
    for i in range(count):
        if i % 10000 == 0:
            (world.lower / f"many{i // 10000}").mkdir()
        os.symlink("x", world.lower / f"many{i // 10000}/l{i}")
    world.start()
    before = memory_of(world)
    m = os.fspath(world.mnt)
    worst = 0
    for i in range(count):
        os.lstat(f"{m}/many{i // 10000}/l{i}")
        if i % 10000 == 0:
            worst = max(worst, memory_of(world) - before)
    for _ in range(100):
        nodes = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["nodes"]
        if nodes < 150000:
            break
        os.lstat(f"{m}/file")
        time.sleep(0.1)
    print(f"{count} names: {nodes} nodes, {worst >> 20} MiB more at the worst")
    assert nodes < 150000 and worst < 200 << 20
    assert os.readlink(f"{m}/many0/l7") == "x" and len(os.listdir(f"{m}/many0")) == 10000


def test_a_directory_of_a_hundred_thousand_names(world):
    big = world.lower / "big"
    big.mkdir()
    for i in range(100000):
        os.symlink("x", big / f"lower-{i:06}")
    world.start()
    before = memory_of(world)
    for i in range(0, 100000, 1000):
        os.unlink(world.mnt / f"big/lower-{i:06}")
        (world.mnt / f"big/new-{i:06}").touch()
    want = {f"{'lower' if i % 1000 else 'new'}-{i:06}" for i in range(100000)}
    listed = os.listdir(world.mnt / "big")
    assert len(listed) == 100000 and set(listed) == want
    held = [os.open(world.mnt / "big", os.O_RDONLY) for _ in range(10)]
    for fd in held:
        next(os.scandir(fd))
    # Ten listings at once, and what the kernel was told of.
    assert memory_of(world) - before < 250 << 20
    for fd in held:
        os.close(fd)


def test_moving_directories_in_loops_keeps_nothing(world):
    for i in range(300):
        (world.lower / f"dir/sub/f{i}").write_text("x")
    world.start()
    m = world.mnt

    def turn(times):
        for _ in range(times):
            os.rename(m / "dir", m / "moved")
            os.rename(m / "moved/sub", m / "sub")
            os.mkdir(m / "moved/other")
            renameat2(m / "moved/other", m / "sub", EXCHANGE)
            os.rmdir(m / "sub")
            os.rename(m / "moved/other", m / "moved/sub")
            os.rename(m / "moved", m / "dir")
    turn(20)
    before, disk = memory_of(world), size_of_meta(world)
    turn(200)
    assert memory_of(world) - before < 8 << 20
    assert size_of_meta(world) - disk < 1 << 20
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["nodes"] < 1000


def test_events_and_odd_names(world):
    world.stop()
    world.rules = [("readonly", "/keep/")]
    (world.lower / "keep").mkdir()
    world.start()
    odd = [b"\xff\xfe\x80", b"new\nline", b"quote\"'\\", b"\x1b[31m", "‮gnp".encode(), b"a" * 255, b" ", b"\x01"]
    for name in odd:
        assert fw.error_of(os.mkdir, os.fsencode(world.mnt) + b"/keep/" + name) == "EACCES"
        os.mkdir(os.fsencode(world.mnt) + b"/" + name)
    text = (world.root / "events.jsonl").read_bytes()
    assert all(byte >= 0x20 or byte == 0x0A for byte in text) and len(text.splitlines()) == len(odd)
    for line in text.splitlines():
        json.loads(line.decode())


# --- quotas

def test_sparse_tricks_cost_what_they_hold(world):
    world.quota = {"bytes": 4 << 20, "entries": 1000}
    world.start()
    path = world.mnt / "sparse"
    with open(path, "wb") as f:
        f.truncate(1 << 43)
        f.seek(1 << 42)
        f.write(b"x" * (1 << 20))
    with open(path, "r+b") as f:
        assert LIBC.fallocate(f.fileno(), 1, ctypes.c_long(0), ctypes.c_long(64 << 20)) == -1  # KEEP_SIZE
        assert ctypes.get_errno() == 28
        assert LIBC.fallocate(f.fileno(), 3, ctypes.c_long(1 << 42), ctypes.c_long(1 << 20)) == 0  # PUNCH_HOLE
    for i in range(3):
        (world.mnt / f"full{i}").write_bytes(b"y" * (1 << 20))
    assert fw.error_of((world.mnt / "over").write_bytes, b"z" * (2 << 20)) == "ENOSPC"
    st = os.statvfs(world.mnt)
    assert st.f_blocks * st.f_frsize == 4 << 20 and st.f_files == 1000


def on_disk(*layers):
    """What lies in the layers: (bytes, entries). A root's first block is nobody's."""
    seen, size, entries = set(), 0, 0
    for layer in layers:
        if (layer / "meta-records").exists():
            size += sum(len(row["content"]) for row in fsproxy_records.bases(layer).values())
        for part in ("upper", "index"):
            top = layer / part
            if part == "upper":
                size += max(0, os.stat(top).st_blocks * 512 - 4096)
            for path in top.rglob("*"):
                st = os.lstat(path)
                entries += part == "upper"
                if st.st_ino not in seen:
                    seen.add(st.st_ino)
                    size += st.st_blocks * 512
    return size, entries


def test_usage_is_exact_while_two_mounts_are_written_at_once():
    import fsproxy_model
    os.umask(0o022)
    with fw.World(extra=[("home", False, True)]) as world:
        fsproxy_model.populate(world.lower, 77)
        for i in range(40):
            (world.lower / f"base{i}").write_bytes(os.urandom(3000 * i))
        world.start()
        roots = [world.mnt, world.mnt, world.root / "home-mnt", world.root / "home-mnt"]
        failures = []

        def work(number):
            model = fsproxy_model.Model([roots[number]], 300 + number)
            # Two threads in one tree get in each other's way, and may.
            def both(_, call):
                try:
                    return call(0, str(roots[number]))
                except OSError as error:
                    if error.errno in (5, 12, 23, 24, 28, 116, 122):
                        failures.append(error)
            model.both = both
            for _ in range(2500):
                try:
                    model.step()
                except (OSError, TypeError):
                    pass
            model.close_all()
            for i in range(number, 40, 4):
                path = world.mnt / f"base{i}"
                if path.is_file():
                    with open(path, "ab") as f:
                        f.write(b"x" * 100000)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        layers = (world.layer, world.root / "home-layer")
        # A file in many pieces gets one more block when the disk writes it, which nobody is told of.
        for unseen in (64 << 10, 0):
            os.sync()
            for _ in range(50):  # handles are closed a moment after the last close(2)
                used = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]
                size, entries = on_disk(*layers)
                if used["entries"] == entries and 0 <= size - used["bytes"] <= unseen:
                    break
                time.sleep(0.1)
            assert used["entries"] == entries and 0 <= size - used["bytes"] <= unseen
            world.restart()


def test_usage_at_the_limit_never_passes_it():
    with fw.World(quota_bytes=16 << 20, extra=[("home", False, True)]) as world:
        (world.lower / "big").write_bytes(os.urandom(3 << 20))
        world.start()
        layers = (world.layer, world.root / "home-layer")

        def fill(root, name):
            for i in range(400):
                try:
                    with open(root / f"{name}{i % 50}", "ab", buffering=0) as f:
                        f.write(b"x" * 70000)
                    if i % 7 == 0:
                        os.mkdir(root / f"{name}d{i}")
                    if i % 11 == 0:
                        os.unlink(root / f"{name}{i % 50}")
                except OSError as error:
                    assert error.errno in (28, 122), error
        threads = [threading.Thread(target=fill, args=a) for a in (
            (world.mnt, "a"), (world.mnt, "b"), (world.root / "home-mnt", "c"))]
        for thread in threads:
            thread.start()
        worst = 0
        while any(t.is_alive() for t in threads):
            try:
                worst = max(worst, on_disk(*layers)[0])
            except FileNotFoundError:
                pass
        for thread in threads:
            thread.join()
        # A look at all files takes a while: it may count one that goes and what is written in its place. A file in many
        # pieces gets one more block when the disk writes it.
        assert 12 << 20 < worst <= 18 << 20
        assert on_disk(*layers)[0] <= (16 << 20) + (64 << 10)
        assert fw.error_of(open, world.mnt / "big", "r+b") == "ENOSPC"
        os.unlink(world.mnt / "big")  # also when its base finds no room
        world.run("sh", "-c", "rm -r a* b*")
        (world.mnt / "again").write_bytes(b"x" * (1 << 20))


# --- the service dies, the client dies

def test_a_dead_service_means_no_access_and_the_next_one_starts_clean(world):
    # What was opened past the service stays open: it holds what it was given and nothing else.
    world.passthrough = False
    world.start()
    (world.mnt / "kept").write_text("kept")
    held = os.open(world.mnt / "kept", os.O_RDWR)
    os.fsync(held)
    world.process.kill()
    world.process.wait()
    for call in (lambda: open(world.mnt / "kept"), lambda: os.listdir(world.mnt), lambda: os.stat(world.mnt / "file"),
                 lambda: (world.mnt / "new").write_text("x"), lambda: os.fstat(held), lambda: os.pread(held, 1, 1 << 20)):
        assert fw.error_of(call) in ("ENOTCONN", "ECONNABORTED", "EIO")
    os.close(held)
    world.stop()
    (world.layer / "work/leftover").mkdir()
    (world.layer / "work/leftover/x").write_text("x")
    world.start()
    assert (world.mnt / "kept").read_text() == "kept" and world.staged() == []


# --- the user changes lower meanwhile

def test_the_user_moves_and_removes_directories(world):
    for name in ("a", "b", "c"):
        (world.lower / name / "in").mkdir(parents=True)
        (world.lower / name / "in/file").write_text(name)
    world.start()
    m = world.mnt
    (m / "a/in/mine").write_text("mine")
    for name in ("a", "b", "c"):
        assert (m / name / "in/file").read_text() == name
    os.rename(world.lower / "a", world.lower / "a-elsewhere")
    os.rename(world.lower / "b", world.lower / "b-elsewhere")
    for path in ("c/in/file", "c/in", "c"):
        (os.unlink if path.endswith("file") else os.rmdir)(world.lower / path)
    time.sleep(1.2)
    assert names(m) == ["a", "a-elsewhere", "b-elsewhere", "dir", "file"]
    assert names(m / "a/in") == ["mine"] and (m / "a/in/mine").read_text() == "mine"
    assert (m / "a-elsewhere/in/file").read_text() == "a"
    (m / "b-elsewhere/in/file").write_text("changed")
    (m / "b").mkdir()
    assert names(m / "b") == []
    world.restart()
    assert names(m / "b") == [] and names(m / "a/in") == ["mine"]


def test_a_deleted_name_that_the_user_makes_again_stays_deleted(world):
    world.start()
    os.unlink(world.mnt / "file")
    world.run("rm", "-r", "dir/sub")
    os.unlink(world.lower / "file")
    (world.lower / "file").write_text("made again by the user")
    (world.lower / "dir/sub/three").write_text("3")
    time.sleep(1.2)
    for _ in range(2):
        assert names(world.mnt) == ["dir"] and names(world.mnt / "dir") == ["one"]
        world.restart()


def test_a_checkout_by_the_user_is_seen_whole_within_a_second(world):
    world.run("git", "init", "-q", "-b", "main", cwd=world.lower)
    for branch in ("one", "two"):
        for i in range(400):
            (world.lower / f"dir/f{i}").write_text(f"{branch} {i}\n")
        world.run("git", "add", ".", cwd=world.lower)
        world.run("git", "commit", "-qm", branch, cwd=world.lower)
        world.run("git", "branch", branch, cwd=world.lower)
    world.start()
    for branch in ("one", "two", "one"):
        assert len(world.run("cat", *[f"dir/f{i}" for i in range(400)])) > 0
        world.run("git", "checkout", "-q", branch, cwd=world.lower)
        time.sleep(1.2)
        assert world.run("sh", "-c", "cat dir/f*").splitlines().count(f"{branch} 7") == 1
        assert {(world.mnt / f"dir/f{i}").read_text() for i in range(400)} == {f"{branch} {i}\n" for i in range(400)}


def test_a_file_that_is_written_all_the_time_is_copied_with_an_unknown_base(world):
    big = world.lower / "busy"
    big.write_bytes(b"a" * (8 << 20))
    time.sleep(0.05)
    world.start()
    ended = threading.Event()

    def user():
        with open(big, "r+b", buffering=0) as f:
            turn = 0
            while not ended.is_set():
                f.seek(turn % (8 << 20))
                f.write(b"b")
                turn += 4096
    writer = threading.Thread(target=user)
    writer.start()
    try:
        with open(world.mnt / "busy", "r+b") as f:
            f.write(b"mine")
    finally:
        ended.set()
        writer.join()
    assert fsproxy_records.bases(world.layer)["busy"]["state"] == 1


def test_an_edit_after_copy_up_changes_neither_the_copy_nor_its_base(world):
    import hashlib
    time.sleep(0.05)
    world.start()
    with open(world.mnt / "file", "a") as f:
        f.write("mine")
    (world.lower / "file").write_text("the user's edit, later")
    time.sleep(1.2)
    assert (world.mnt / "file").read_text() == "lower\nmine"
    base = fsproxy_records.bases(world.layer)["file"]
    assert base["state"] == 0 and base["sha256"] == hashlib.sha256(b"lower\n").digest()

