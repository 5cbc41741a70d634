"""What the kernel may remember, slow work that nobody waits for, files that go past fsproxy: real mounts."""
import contextlib
import ctypes
import errno
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import fsproxy_records
import fsproxy_world
from fsproxy_world import World, error_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not fsproxy_world.fuse_available(), reason="needs root and /dev/fuse")
NO_PASSTHROUGH = fsproxy_world.why_no_passthrough()
# What may be done with passthrough and without, is done both ways.
WAYS = [pytest.param(True, marks=pytest.mark.skipif(NO_PASSTHROUGH is not None, reason=str(NO_PASSTHROUGH)),
                     id="passthrough"), pytest.param(False, id="copy")]


@pytest.fixture(params=WAYS)
def world(request):
    with World() as made:
        made.passthrough = request.param
        yield made


def soon(condition, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def stats(world):
    return world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]


def requests(world):
    return stats(world)["requests"]


# --- what is remembered, and until when

def test_nothing_is_asked_twice_while_nothing_changes(world):
    for number in range(50):
        (world.lower / f"dir{number % 5}").mkdir(exist_ok=True)
        (world.lower / f"dir{number % 5}" / f"f{number}").write_text("x")
    world.start()

    def walk():
        seen = 0
        for path, _, files in os.walk(world.mnt):
            seen += sum(1 for f in files if os.stat(os.path.join(path, f)))
        return seen
    assert walk() == 50
    # Attributes that were told before a directory was watched are asked for once more.
    time.sleep(1.2)
    walk()
    time.sleep(1.2)
    before = requests(world)
    assert walk() == 50
    # OPENDIR and RELEASEDIR of six directories; no name, no attribute, no listing.
    assert requests(world) - before <= 14


def test_files_that_were_read_are_not_asked_for_one_by_one(world):
    """The kernel doubts the attributes of what was read: they come with the next listing."""
    names = [f"f{n}" for n in range(200)]
    for name in names:
        (world.lower / name).write_text(name)
    world.start()

    def asked():
        counts = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["by_operation"]
        return counts.get("getattr", 0), counts.get("readdirplus", 0)

    def look():
        assert sorted(os.listdir(world.mnt)) == sorted(names)
        for name in names:
            assert os.stat(world.mnt / name).st_size == len(name)

    look()
    for name in names:
        assert (world.mnt / name).read_text() == name
    time.sleep(0.3)
    getattrs, listings = asked()
    look()
    assert asked()[0] - getattrs < 20 and asked()[1] > listings
    getattrs, listings = asked()
    look()
    # One for the directory itself.
    assert asked()[0] - getattrs < 3 and asked()[1] == listings


def test_a_file_replaced_below_is_seen_whole(world):
    (world.lower / "file").write_text("old")
    world.start()
    assert (world.mnt / "file").read_text() == "old"
    (world.lower / "new").write_text("the new content")
    os.rename(world.lower / "new", world.lower / "file")
    assert soon(lambda: (world.mnt / "file").read_text() == "the new content")
    assert soon(lambda: sorted(os.listdir(world.mnt)) == ["file"])


def test_a_name_that_was_absent_appears(world):
    (world.lower / "dir").mkdir()
    world.start()
    assert not (world.mnt / "dir" / "later").exists()
    assert os.listdir(world.mnt / "dir") == []
    (world.lower / "dir" / "later").write_text("here")
    assert soon((world.mnt / "dir" / "later").exists)
    assert soon(lambda: os.listdir(world.mnt / "dir") == ["later"])


def test_a_name_that_is_deleted_below_goes(world):
    (world.lower / "dir").mkdir()
    (world.lower / "dir" / "file").write_text("x")
    world.start()
    assert (world.mnt / "dir" / "file").exists() and os.listdir(world.mnt / "dir") == ["file"]
    (world.lower / "dir" / "file").unlink()
    assert soon(lambda: not (world.mnt / "dir" / "file").exists())
    assert soon(lambda: os.listdir(world.mnt / "dir") == [])


def test_an_edit_in_place_is_seen(world):
    (world.lower / "file").write_text("one")
    world.start()
    assert (world.mnt / "file").read_text() == "one"
    (world.lower / "file").write_text("three")
    assert soon(lambda: os.stat(world.mnt / "file").st_size == 5)
    assert (world.mnt / "file").read_text() == "three"
    os.chmod(world.lower / "file", 0o711)
    assert soon(lambda: os.stat(world.mnt / "file").st_mode & 0o777 == 0o711)


def test_a_directory_replaced_below_is_followed(world):
    (world.lower / "a" / "b").mkdir(parents=True)
    (world.lower / "a" / "b" / "f").write_text("old")
    world.start()
    assert (world.mnt / "a" / "b" / "f").read_text() == "old"
    os.rename(world.lower / "a", world.root / "away")
    (world.lower / "a" / "b").mkdir(parents=True)
    (world.lower / "a" / "b" / "g").write_text("new")
    assert soon(lambda: (world.mnt / "a" / "b" / "g").exists())
    assert not (world.mnt / "a" / "b" / "f").exists()
    assert os.listdir(world.mnt / "a" / "b") == ["g"]


def test_a_storm_of_changes_leaves_the_last_state(world):
    for number in range(400):
        (world.lower / f"f{number}").write_text("0")
    world.start()
    for number in range(400):
        assert (world.mnt / f"f{number}").read_text() == "0"
    for number in range(400):
        (world.lower / "t").write_text("11")
        os.rename(world.lower / "t", world.lower / f"f{number}")
    assert soon(lambda: all((world.mnt / f"f{n}").read_text() == "11" for n in range(400)))


def test_the_name_of_a_lower_file_with_two_names_changes_within_a_second(world):
    # Its second name lies where nobody looked, so nobody is told of what is written there.
    (world.lower / "far").mkdir()
    (world.lower / "file").write_text("one")
    os.link(world.lower / "file", world.lower / "far" / "other")
    world.start()
    assert os.stat(world.mnt / "file").st_size == 3
    (world.lower / "far" / "other").write_text("three")
    assert soon(lambda: os.stat(world.mnt / "file").st_size == 5)


def test_without_a_watch_changes_are_seen_all_the_same(world):
    limit = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
    (world.lower / "file").write_text("old")
    held = []
    try:
        while True:
            fd = fsproxy_world.LIBC.inotify_init1(os.O_CLOEXEC)
            if fd < 0:
                break
            held.append(fd)
            assert len(held) <= int(limit.read_text())
        world.start()
    finally:
        for fd in held:
            os.close(fd)
    assert stats(world)["watches"] == 0
    assert (world.mnt / "file").read_text() == "old"
    (world.lower / "new").write_text("newer")
    os.rename(world.lower / "new", world.lower / "file")
    assert soon(lambda: (world.mnt / "file").read_text() == "newer")


def test_watches_are_given_back(world):
    for number in range(40):
        (world.lower / f"d{number}").mkdir()
    world.start()
    for number in range(40):
        assert os.listdir(world.mnt / f"d{number}") == []
    assert soon(lambda: stats(world)["watches"] == 41)
    for number in range(40):
        os.rmdir(world.mnt / f"d{number}")
    assert soon(lambda: stats(world)["watches"] <= 2)


# --- listings

def test_offsets_stay_while_names_come_and_go(world):
    for number in range(3000):
        (world.lower / f"file{number:05}").touch()
    world.start()
    seen = []
    with os.scandir(world.mnt) as listing:
        for entry in listing:
            seen.append(entry.name)
            if len(seen) % 50 == 0:
                (world.mnt / f"new{len(seen)}").touch()
                name = f"file{(len(seen) * 7) % 3000:05}"
                (world.mnt / name).unlink(missing_ok=True)
    assert len(seen) == len(set(seen)), "a name came twice"
    gone = {f"file{n:05}" for n in range(3000)} - set(os.listdir(world.mnt))
    stayed = {f"file{n:05}" for n in range(3000)} - gone
    assert stayed <= set(seen), "a name that was there all the time did not come"


# --- slow work

SLOW = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b'x', 0)
"""


def big_file(path, mebibytes):
    with open(path, "wb") as file:
        for number in range(mebibytes):
            file.write(bytes([number % 251 + 1]) * (1 << 20))


def test_a_large_copy_up_is_whole(world):
    big_file(world.lower / "big", 24)
    time.sleep(0.1)  # what changed just before the start is no known base
    world.start()
    with open(world.mnt / "big", "r+b") as file:
        file.seek(5 << 20)
        file.write(b"changed")
    expected = bytearray((world.lower / "big").read_bytes())
    expected[5 << 20:(5 << 20) + 7] = b"changed"
    assert (world.mnt / "big").read_bytes() == bytes(expected)
    assert world.staged() == []
    bases = fsproxy_records.bases(world.layer)
    digest = world.run("sha256sum", world.lower / "big", cwd=world.root).split()[0]
    assert [(path, row["state"], row["sha256"].hex()) for path, row in bases.items()] == [("big", 0, digest)]


def test_many_writers_wait_for_one_copy(world):
    big_file(world.lower / "big", 16)
    world.start()
    writers = [subprocess.Popen([sys.executable, "-c", SLOW, world.mnt / "big"]) for _ in range(6)]
    assert [w.wait(60) for w in writers] == [0] * 6
    assert (world.mnt / "big").read_bytes()[:3] == b"x\x01\x01"
    assert world.staged() == []


def test_who_waits_for_a_copy_can_be_killed_and_nothing_stays(world):
    big_file(world.lower / "big", 256)
    world.start()
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", SLOW, world.mnt / "big"])
        time.sleep(0.15)
        writer.send_signal(signal.SIGKILL)
        writer.wait(30)
        # It goes on for everybody else meanwhile.
        assert os.stat(world.mnt / "big").st_size == 256 << 20
    assert soon(lambda: world.staged() == [])
    with open(world.mnt / "big", "r+b") as file:
        file.write(b"x")
    assert os.stat(world.mnt / "big").st_size == 256 << 20


def test_a_large_copy_counts_and_is_refused_over_the_quota():
    with World(quota_bytes=20 << 20) as world:
        big_file(world.lower / "big", 24)
        big_file(world.lower / "fits", 12)
        world.start()
        assert error_of(open, world.mnt / "big", "r+b") == "ENOSPC"
        with open(world.mnt / "fits", "r+b") as file:
            file.write(b"x")
        used = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"]
        assert 12 << 20 <= used <= 13 << 20
        assert world.staged() == []


def test_a_file_that_changes_while_it_is_copied_is_no_known_base(world):
    big_file(world.lower / "big", 64)
    world.start()
    writer = subprocess.Popen([sys.executable, "-c", SLOW, world.mnt / "big"])
    with open(world.lower / "big", "r+b") as user:
        while writer.poll() is None:
            user.seek(0)
            user.write(os.urandom(16))
            user.flush()
    assert writer.returncode == 0
    assert fsproxy_records.bases(world.layer)["big"]["state"] == 1


# --- passthrough

passthrough = pytest.mark.skipif(NO_PASSTHROUGH is not None, reason=str(NO_PASSTHROUGH))


def test_stats_tell_which_way_is_in_use(world):
    world.start()
    os.listdir(world.mnt)
    assert soon(lambda: stats(world)["passthrough"] == world.passthrough)


@passthrough
def test_the_service_has_no_more_rights_than_before_and_the_helper_one():
    with World() as world:
        world.start()
        children = pathlib.Path(f"/proc/{world.process.pid}/task/{world.process.pid}/children").read_text().split()
        assert len(children) == 1
        status = dict(l.split(":", 1) for l in pathlib.Path(f"/proc/{children[0]}/status").read_text().splitlines())
        assert int(status["CapEff"], 16) == 1 << 21 | 1 << 4 == int(status["CapPrm"], 16)  # SYS_ADMIN, FSETID
        assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
        held = {os.readlink(f"/proc/{children[0]}/fd/{fd}") for fd in os.listdir(f"/proc/{children[0]}/fd") if int(fd) > 2}
        assert len(held) == 2 and "/dev/fuse" in held
        world.process.kill()
        world.process.wait()
        assert soon(lambda: not pathlib.Path(f"/proc/{children[0]}").exists())


@passthrough
def test_reads_and_writes_of_large_files_do_not_come_by():
    with World() as world:
        big_file(world.lower / "big", 8)
        world.start()
        with open(world.mnt / "big", "rb", buffering=0) as file:
            before = requests(world)
            while file.read(4096):
                pass
            assert requests(world) - before < 20
        with open(world.mnt / "new", "wb", buffering=0) as file:
            before = requests(world)
            for _ in range(2000):
                file.write(b"y" * 4096)
            assert requests(world) - before < 20
        assert (world.mnt / "new").read_bytes() == b"y" * 4096 * 2000


def test_a_reader_keeps_what_it_opened_and_the_next_sees_the_change(world):
    big_file(world.lower / "big", 1)
    world.start()
    with open(world.mnt / "big", "rb", buffering=0) as old:
        inode = os.fstat(old.fileno()).st_ino
        assert old.read(1) == b"\x01"
        with open(world.mnt / "big", "r+b", buffering=0) as writer:
            assert os.fstat(writer.fileno()).st_ino == inode
            writer.write(b"new")
            with open(world.mnt / "big", "rb", buffering=0) as new:
                assert new.read(4) == b"new\x01"
                assert os.fstat(new.fileno()).st_ino == inode
        old.seek(0)
        # As with overlayfs a descriptor may stay with the file it opened; it never sees half of each.
        assert old.read(4) in (b"\x01\x01\x01\x01", b"new\x01")
    assert os.stat(world.mnt / "big").st_ino == inode
    assert (world.mnt / "big").read_bytes()[:4] == b"new\x01"


def test_truncating_under_a_reader_reaches_the_next(world):
    big_file(world.lower / "big", 1)
    world.start()
    with open(world.mnt / "big", "rb", buffering=0) as old:
        assert old.read(1) == b"\x01"
        os.truncate(world.mnt / "big", 3)
        assert os.stat(world.mnt / "big").st_size == 3
        assert (world.mnt / "big").read_bytes() == b"\x01\x01\x01"
    os.chmod(world.mnt / "big", 0o600)
    assert os.stat(world.mnt / "big").st_mode & 0o777 == 0o600


def test_opens_of_every_kind_at_once_never_fail(world):
    big_file(world.lower / "big", 1)
    (world.lower / "small").write_text("small")
    world.start()
    held = []
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY):
        for name in ("big", "small"):
            held.append(os.open(world.mnt / name, flags))
    for fd in held:
        os.close(fd)
    for fd in [os.open(world.mnt / "made", os.O_RDWR | os.O_CREAT | flags) for flags in (0, os.O_TRUNC, os.O_APPEND, 0)]:
        os.write(fd, b"x" * 100000)
        os.close(fd)
    assert (world.mnt / "made").read_bytes()[:100000] == b"x" * 100000


def test_what_is_written_through_a_mapping_shows_in_the_attributes(world):
    world.start()
    with open(world.mnt / "made", "wb") as file:
        file.write(b"a" * 200000)
    os.utime(world.mnt / "made", (1, 1))
    with open(world.mnt / "made", "r+b") as file:
        with mmap.mmap(file.fileno(), 0) as view:
            assert os.stat(world.mnt / "made").st_mtime == 1
            view[:3] = b"new"
            view.flush()
    assert soon(lambda: os.stat(world.mnt / "made").st_mtime > 1)
    assert (world.mnt / "made").read_bytes()[:4] == b"newa"


def test_pages_of_before_are_not_shown_after_a_write_past_us(world):
    world.start()
    path = world.mnt / "made"
    path.write_bytes(b"1" * 5000)
    assert path.read_bytes() == b"1" * 5000
    for turn in range(2, 9):
        path.write_bytes(str(turn).encode() * 5000)
        assert path.read_bytes() == str(turn).encode() * 5000
        with open(path, "r+b") as file:
            file.write(b"!")
        assert path.read_bytes()[:2] == b"!" + str(turn).encode()


def test_a_shared_mapping_and_a_writer_agree(world):
    world.start()
    with open(world.mnt / "made", "w+b", buffering=0) as file:
        file.write(b"a" * 100000)
        with open(world.mnt / "made", "r+b", buffering=0) as other, mmap.mmap(other.fileno(), 0) as view:
            file.seek(10)
            file.write(b"bbb")
            assert view[9:14] == b"abbba"
            view[20:23] = b"ccc"
            file.seek(19)
            assert file.read(5) == b"accca"


@passthrough
def test_what_is_written_past_us_is_charged():
    with World(quota_bytes=4 << 30) as world:
        world.start()
        with open(world.mnt / "made", "wb", buffering=0) as file:
            file.write(b"x" * (8 << 20))
            assert soon(lambda: world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] >= 8 << 20)
        (world.mnt / "made").unlink()
        assert soon(lambda: world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] < 1 << 20)


@passthrough
def test_who_writes_past_us_never_gets_past_the_quota():
    """A writer that the service cannot hold back, while the mount's thread is kept busy too: the service ends in time,
    and whoever started it ends the sandbox then (test_native_engine.py)."""
    with World(quota_bytes=1152 << 20) as world:
        os.mkdir(world.lower / "busy")
        for number in range(3000):
            (world.lower / "busy" / f"{number}").write_bytes(b"x" * 4096)
        world.start()
        with contextlib.suppress(OSError), open(world.mnt / "made", "wb", buffering=0) as file:
            mover = threading.Thread(target=move, args=(world.mnt / "busy", world.mnt / "moved"))
            mover.start()
            for _ in range(1536):
                if world.process.poll() is not None:
                    break
                file.write(b"x" * (1 << 20))
        mover.join()
        assert world.process.wait(timeout=20) == 3
        assert os.stat(world.layer / "upper" / "made").st_blocks * 512 <= 1152 << 20
        assert any(e["reason"] == "quota_exceeded" for e in world.events())
        os.unlink(world.layer / "upper" / "made")


def move(source, target):
    with contextlib.suppress(OSError):
        os.rename(source, target)


def test_with_little_quota_left_nobody_writes_past_it(world):
    world.quota["bytes"] = 8 << 20
    world.start()
    with open(world.mnt / "made", "wb", buffering=0) as file:
        written = 0
        with pytest.raises(OSError) as full:
            while True:
                written += file.write(b"x" * (1 << 18))
        assert full.value.errno == errno.ENOSPC
    assert 7 << 20 <= written <= 8 << 20
    assert os.stat(world.layer / "upper" / "made").st_blocks * 512 <= 8 << 20


# --- files without a name

HAS_TMPFILE = [int(n) for n in fsproxy_world.version_lines()["libfuse"].split(".")[:2]] >= [3, 17]
tmpfile = pytest.mark.skipif(not HAS_TMPFILE, reason="this build has no O_TMPFILE: its libfuse is older than 3.17")


def name_it(fd, path):
    """linkat(2) with AT_SYMLINK_FOLLOW, which os.link has not."""
    if fsproxy_world.LIBC.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(path), 0x400) != 0:
        raise OSError(ctypes.get_errno(), "linkat")


@tmpfile
def test_a_file_without_a_name_can_get_one(world):
    (world.lower / "taken").write_text("lower")
    (world.lower / "dir").mkdir()
    world.start()
    (world.mnt / "taken").unlink()
    for place in ("new", "taken", "dir/inside"):
        fd = os.open(world.mnt, os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, b"content of " + place.encode())
        st = os.fstat(fd)
        assert st.st_nlink == 0 and st.st_mode & 0o7777 == 0o640
        assert not (world.mnt / place).exists()
        name_it(fd, world.mnt / place)
        assert os.fstat(fd).st_nlink == 1 and os.stat(world.mnt / place).st_ino == st.st_ino
        assert error_of(name_it, fd, world.mnt / "dir") == "EEXIST"
        os.write(fd, b"!")
        os.close(fd)
        assert (world.mnt / place).read_bytes() == b"content of " + place.encode() + b"!"
    assert sorted(os.listdir(world.mnt)) == ["dir", "new", "taken"] and world.staged() == []
    world.restart()
    assert (world.mnt / "taken").read_bytes() == b"content of taken!"


@tmpfile
def test_a_file_without_a_name_leaves_nothing(world):
    world.start()
    before = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]
    for _ in range(20):
        fd = os.open(world.mnt, os.O_TMPFILE | os.O_RDWR)
        os.pwrite(fd, b"x" * 100000, 0)
        os.ftruncate(fd, 200000)
        os.fchmod(fd, 0o600)
        assert os.fstat(fd).st_size == 200000
        os.close(fd)
    once = os.open(world.mnt, os.O_TMPFILE | os.O_RDWR | os.O_EXCL)
    assert error_of(name_it, once, world.mnt / "never") == "ENOENT"
    os.close(once)
    assert os.listdir(world.mnt) == []
    assert soon(lambda: world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] == before["bytes"])
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["entries"] == before["entries"]


@tmpfile
def test_rules_hold_for_the_name_that_a_file_gets():
    with World(rules=[("hide", "secret"), ("readonly", "kept/**")]) as world:
        (world.lower / "kept").mkdir()
        world.start()
        fd = os.open(world.mnt, os.O_TMPFILE | os.O_RDWR)
        for name in ("secret", "kept/new"):
            assert error_of(name_it, fd, world.mnt / name) == "EACCES"
        os.close(fd)
        assert [e["path"] for e in world.events()] == ["secret", "kept/new"]


def test_deleting_a_lower_tree_takes_one_inode_of_upper(world):
    for number in range(300):
        (world.lower / f"d{number % 3}").mkdir(exist_ok=True)
        (world.lower / f"d{number % 3}" / f"f{number}").write_text("x")
    world.start()
    for number in range(0, 300, 2):
        (world.mnt / f"d{number % 3}" / f"f{number}").unlink()
    made = [os.lstat(world.layer / "upper" / f"d{n % 3}" / f"f{n}") for n in range(0, 300, 2)]
    assert all(st.st_rdev == 0 and st.st_mode & 0o170000 == 0o020000 for st in made)
    assert len({st.st_ino for st in made}) == 1
    for number in range(0, 300, 2):
        (world.mnt / f"d{number % 3}" / f"f{number}").write_text("again")
    for number in range(300):
        (world.mnt / f"d{number % 3}" / f"f{number}").unlink()
    assert sum(len(os.listdir(world.mnt / f"d{n}")) for n in range(3)) == 0
    assert soon(lambda: world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["entries"] == 303)


def test_replacing_lower_files_one_by_one_takes_no_inode_for_their_whiteouts(world):
    """As a checkout does: on ext4 every inode that was just freed makes the next creations slower."""
    for number in range(10):
        (world.lower / f"f{number}").write_text("x")
    world.start()
    seen = set()
    for number in range(10):
        (world.mnt / f"f{number}").unlink()
        st = os.lstat(world.layer / "upper" / f"f{number}")
        seen.add((st.st_ino, st.st_mode & 0o170000, st.st_rdev))
        (world.mnt / f"f{number}").write_text("new")
    assert len(seen) == 1


def test_the_same_holds_in_a_user_namespace_without_any_right_outside():
    if os.environ.get("COFFERDAM_INSIDE"):
        return
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "pytest", "-q", "-x", "-p",
                           "no:cacheprovider", __file__], env=dict(os.environ, COFFERDAM_INSIDE="1", COFFERDAM_ALL_TESTS="0"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "passthrough needs the first user namespace" in done.stdout or NO_PASSTHROUGH
    assert " passed" in done.stdout
