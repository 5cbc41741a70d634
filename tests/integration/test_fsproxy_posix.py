"""The merged view as a file system: what programs rely on, copy-up, whiteouts, restart, kill -9."""
import errno
import fcntl
import mmap
import os
import pathlib
import socket
import stat
import threading
import time

import pytest

import fsproxy_world as fw
from fsproxy_model import EXCHANGE, NOREPLACE, renameat2

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")


@pytest.fixture
def world():
    with fw.World() as w:
        (w.lower / "file").write_text("lower\n")
        (w.lower / "dir/sub").mkdir(parents=True)
        (w.lower / "dir/one").write_text("1")
        (w.lower / "dir/sub/two").write_text("2")
        os.symlink("file", w.lower / "link")
        yield w


def names(path):
    return sorted(os.listdir(path))


def test_reading_changes_nothing_on_disk(world):
    world.start()
    assert (world.mnt / "file").read_text() == "lower\n"
    assert os.readlink(world.mnt / "link") == "file"
    assert (world.mnt / "dir/sub/two").read_text() == "2"
    with open(world.mnt / "file", "rb"):
        pass
    assert names(world.layer / "upper") == []


def test_every_change_stays_out_of_lower(world):
    before = fw.tree(world.lower, times=True)
    world.start()
    m = world.mnt
    (m / "file").write_text("changed")
    with open(m / "dir/one", "a") as f:
        f.write("+")
    os.rename(m / "dir/sub", m / "moved")
    os.unlink(m / "link")
    (m / "new").write_text("new")
    os.chmod(m / "moved/two", 0o600)
    assert fw.tree(world.lower, times=True) == before
    assert (m / "dir/one").read_text() == "1+"
    assert names(m) == ["dir", "file", "moved", "new"]


def test_inode_numbers_survive_copy_up_rename_and_restart(world):
    world.start()
    m = world.mnt
    before = {p: os.lstat(m / p).st_ino for p in ("file", "dir", "dir/one", "dir/sub", "link")}
    assert before["file"] == os.stat(world.lower / "file").st_ino
    (m / "file").write_text("x")
    os.chmod(m / "dir/one", 0o600)
    os.rename(m / "dir/one", m / "dir/uno")
    (m / "dir/sub/new").write_text("")
    (m / "born").write_text("")
    os.utime(m / "link", ns=(1, 1), follow_symlinks=False)

    def check():
        after = {p: os.lstat(m / p).st_ino for p in ("file", "dir", "dir/uno", "dir/sub", "link")}
        assert [after[p] for p in ("file", "dir", "dir/uno", "dir/sub", "link")] == list(before.values())
        return os.stat(m / "born").st_ino
    born = check()
    assert born not in before.values() and born < 2 ** 53
    world.restart()
    assert check() == born


def test_numbers_in_listings_are_those_of_stat(world):
    world.start()
    m = world.mnt
    (m / "file").write_text("copied up")
    (m / "new").write_text("")
    (m / "dir/sub/deep").mkdir()
    for directory in (m, m / "dir", m / "dir/sub"):
        for entry in os.scandir(directory):
            assert entry.inode() == os.lstat(entry.path).st_ino, entry.path


def test_times_and_modes_survive_copy_up(world):
    os.chmod(world.lower / "file", 0o6751)
    os.utime(world.lower / "file", ns=(1234567890123456789, 987654321987654321))
    parent = os.stat(world.lower / "dir")
    os.utime(world.lower / "dir", ns=(parent.st_atime_ns, 555))
    world.start()
    os.link(world.mnt / "file", world.mnt / "again")
    st = os.stat(world.mnt / "file")
    assert (st.st_mode & 0o7777, st.st_mtime_ns, st.st_atime_ns, st.st_nlink) == (
        0o6751, 987654321987654321, 1234567890123456789, 2)
    os.chmod(world.mnt / "dir/one", 0o600)
    assert os.stat(world.mnt / "dir").st_mtime_ns == 555


def test_holes_survive_copy_up(world):
    with open(world.lower / "sparse", "wb") as f:
        f.truncate(64 << 20)
        f.seek(32 << 20)
        f.write(b"middle")
    world.start()
    with open(world.mnt / "sparse", "r+b") as f:
        f.seek(0)
        f.write(b"start")
        f.seek(32 << 20)
        assert f.read(6) == b"middle"
        assert os.lseek(f.fileno(), 1 << 20, os.SEEK_DATA) == 32 << 20
    st = os.stat(world.mnt / "sparse")
    assert st.st_size == 64 << 20 and st.st_blocks * 512 < 1 << 20


def test_open_handles_see_what_is_written_after_copy_up(world):
    world.start()
    with open(world.mnt / "file", "rb", buffering=0) as old:
        assert old.read() == b"lower\n"
        with open(world.mnt / "file", "ab") as writer:
            writer.write(b"more")
        old.seek(0)
        assert old.read() == b"lower\nmore"
        assert os.fstat(old.fileno()).st_size == 10


def test_unlinked_files_live_until_closed(world):
    world.start()
    m = world.mnt
    (m / "mine").write_text("mine")
    for name, content in (("file", b"lower\n"), ("mine", b"mine")):
        with open(m / name, "rb") as f:
            os.unlink(m / name)
            assert not (m / name).exists()
            assert f.read() == content
            assert os.fstat(f.fileno()).st_nlink == 0
    with open(m / "dir/one", "r+b", buffering=0) as f:
        os.unlink(m / "dir/one")
        f.write(b"after the end")
        f.seek(0)
        assert f.read() == b"after the end"
        os.fchmod(f.fileno(), 0o600)
        os.ftruncate(f.fileno(), 3)
        assert os.fstat(f.fileno()).st_size == 3
    assert names(m / "dir") == ["sub"]
    # Deleted means deleted: a change through a handle brings nothing back.
    fd = os.open(m / "dir/sub/two", os.O_RDONLY)
    os.unlink(m / "dir/sub/two")
    os.fchmod(fd, 0o600)
    os.close(fd)
    assert names(m / "dir/sub") == []
    world.restart()
    assert names(m / "dir/sub") == [] and names(m / "dir") == ["sub"]


def test_deleted_stays_deleted_over_restarts(world):
    world.start()
    os.unlink(world.mnt / "file")
    os.unlink(world.mnt / "dir/sub/two")
    os.rmdir(world.mnt / "dir/sub")
    for _ in range(2):
        world.restart()
        assert names(world.mnt) == ["dir", "link"] and names(world.mnt / "dir") == ["one"]
        assert fw.error_of(open, world.mnt / "file") == "ENOENT"


def test_a_directory_made_again_is_empty(world):
    world.start()
    m = world.mnt
    assert fw.error_of(os.rmdir, m / "dir") == "ENOTEMPTY"
    for name in ("one", "sub/two"):
        os.unlink(m / "dir" / name)
    os.rmdir(m / "dir/sub")
    os.rmdir(m / "dir")
    os.mkdir(m / "dir")
    assert names(m / "dir") == []
    (m / "dir/fresh").write_text("")
    world.restart()
    assert names(m / "dir") == ["fresh"]
    os.unlink(m / "dir/fresh")
    os.rmdir(m / "dir")
    (m / "dir").write_text("now a file")
    world.restart()
    assert (m / "dir").read_text() == "now a file"


def test_renaming_lower_directories_never_crosses_a_device(world):
    world.start()
    m = world.mnt
    os.rename(m / "dir", m / "renamed")
    assert (m / "renamed/sub/two").read_text() == "2" and not (m / "dir").exists()
    os.mkdir(m / "dir")
    assert names(m / "dir") == []
    os.rename(m / "renamed/sub", m / "dir/sub")
    world.restart()
    assert fw.tree(m / "dir").keys() == {"sub", "sub/two"} and names(m / "renamed") == ["one"]


def test_rename_flags(world):
    world.start()
    m = world.mnt
    assert fw.error_of(renameat2, m / "file", m / "link", NOREPLACE) == "EEXIST"
    assert fw.error_of(renameat2, m / "file", m / "absent", EXCHANGE) == "ENOENT"
    assert fw.error_of(renameat2, m / "file", m / "x", 4) == "EINVAL"  # RENAME_WHITEOUT
    os.unlink(m / "link")
    renameat2(m / "file", m / "link", NOREPLACE)  # a whiteout is not there
    renameat2(m / "link", m / "dir", EXCHANGE)
    assert (m / "dir").read_text() == "lower\n" and names(m / "link") == ["one", "sub"]
    world.restart()
    assert (m / "dir").read_text() == "lower\n" and names(m / "link") == ["one", "sub"]
    assert fw.error_of(os.rename, m / "link", m / "link/sub/inside") == "EINVAL"


def test_hard_links_are_one_file(world):
    world.start()
    m = world.mnt
    os.link(m / "file", m / "dir/other")
    (m / "dir/other").write_text("both")
    assert (m / "file").read_text() == "both"
    a, b = os.stat(m / "file"), os.stat(m / "dir/other")
    assert (a.st_ino, a.st_nlink) == (b.st_ino, 2)
    os.unlink(m / "file")
    assert os.stat(m / "dir/other").st_nlink == 1
    world.restart()
    assert (m / "dir/other").read_text() == "both" and not (m / "file").exists()
    assert fw.error_of(os.link, m / "dir", m / "d2") == "EPERM"


def test_append_is_atomic_between_writers(world):
    world.start()
    path = world.mnt / "log"

    def writer(letter):
        with open(path, "a", buffering=1) as f:
            for _ in range(200):
                f.write(letter * 20 + "\n")
    threads = [threading.Thread(target=writer, args=(c,)) for c in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 800 and all(len(set(line)) == 1 and len(line) == 20 for line in lines)


def test_shared_mappings(world):
    (world.lower / "map").write_bytes(b"a" * 8192)
    world.start()
    with open(world.mnt / "map", "r+b") as f, mmap.mmap(f.fileno(), 8192) as area:
        area[4096:4099] = b"XYZ"
        area.flush()
        with open(world.mnt / "map", "rb") as other:
            assert other.read()[4096:4099] == b"XYZ"
        with open(world.mnt / "map", "r+b") as other:
            other.seek(10)
            other.write(b"written")
        assert area[10:17] == b"written"
    world.restart()
    assert (world.mnt / "map").read_bytes()[4096:4099] == b"XYZ"
    assert (world.lower / "map").read_bytes() == b"a" * 8192
    with open(world.mnt / "map", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as area:
        assert area[4096:4099] == b"XYZ"


def test_locks_are_those_of_one_machine(world):
    world.start()
    with open(world.mnt / "file", "r+b") as a, open(world.mnt / "file", "r+b") as b:
        fcntl.flock(a, fcntl.LOCK_EX)
        assert fw.error_of(fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB) in ("EAGAIN", "EWOULDBLOCK")
        fcntl.flock(a, fcntl.LOCK_UN)
        fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(a, fcntl.LOCK_EX, 10)


def test_special_files(world):
    world.start()
    m = world.mnt
    os.mkfifo(m / "pipe")
    assert stat.S_ISFIFO(os.stat(m / "pipe").st_mode)
    got = []
    reader = threading.Thread(target=lambda: got.append((m / "pipe").read_bytes()))
    reader.start()
    (m / "pipe").write_bytes(b"through")
    reader.join(5)
    assert got == [b"through"]
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(m)
        server.bind("sock")
        os.chdir("/")
    assert stat.S_ISSOCK(os.stat(m / "sock").st_mode)
    for kind, number in ((stat.S_IFCHR, 0), (stat.S_IFCHR, os.makedev(1, 3)), (stat.S_IFBLK, os.makedev(8, 0))):
        assert fw.error_of(os.mknod, m / "device", kind | 0o666, number) == "EPERM"
    assert [e["reason"] for e in world.events()] == ["special_file"] * 3


def test_extended_attributes_do_not_exist(world):
    world.start()
    for name in (b"user.x", b"user.overlay.opaque", b"trusted.overlay.opaque"):
        assert fw.error_of(os.setxattr, world.mnt / "dir", name, b"y") == "ENOTSUP"
    assert fw.error_of(os.getxattr, world.mnt / "dir", b"user.x") == "ENOTSUP"


def test_owners_are_kept_beside_the_layer(world):
    """What is given away, or made by somebody else, shows so over restarts and moves; on disk it is the owner's."""
    world.start()
    m = world.mnt
    os.chown(m / "file", os.geteuid(), os.getegid())
    assert names(world.layer / "upper") == [], "telling the present owner copies nothing"
    os.chown(m / "file", 1234, 4321)
    os.lchown(m / "link", 77, -1)
    os.chmod(m / "dir", 0o2777)
    os.chown(m / "dir", -1, 55)
    os.chmod(world.root, 0o755)
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
        (m / "dir/theirs").write_text("x")
        os.symlink("x", m / "dir/theirlink")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    want = {"file": (1234, 4321), "link": (77, 0), "dir": (0, 55), "dir/theirs": (12345, 55), "dir/theirlink": (12345, 55)}
    for _ in range(2):
        for path, owner in want.items():
            st = os.lstat(m / path)
            assert (st.st_uid, st.st_gid) == owner, path
        assert {os.lstat(p).st_uid for p in (world.layer / "upper").rglob("*")} == {os.geteuid()}
        world.restart()
    os.rename(m / "dir/theirs", m / "moved")
    os.unlink(m / "file")
    (m / "file").write_text("another")
    assert os.stat(m / "moved").st_uid == 12345 and os.stat(m / "file").st_uid == os.geteuid()
    world.restart()
    assert os.stat(m / "moved").st_uid == 12345 and os.stat(m / "file").st_uid == os.geteuid()


def test_names_are_bytes(world):
    world.start()
    m = os.fsencode(world.mnt)
    odd = [b"\xff\xfe", b"new\nline", b"-rf", b" ", b"\x01\x7f", "‮".encode(), b"a" * 255, b"...", b".wh.file",
           b".wh..wh..opq", b"CON", b"\\", b"'\""]
    for name in odd:
        with open(m + b"/" + name, "wb") as f:
            f.write(name)
    assert sorted(os.listdir(m)) == sorted(odd + [b"file", b"dir", b"link"])
    for call in (lambda: open(m + b"/" + b"a" * 256, "wb"), lambda: os.stat(m + b"/" + b"a" * 256),
                 lambda: os.rename(m + b"/file", m + b"/" + b"b" * 256)):
        assert fw.error_of(call) == "ENAMETOOLONG"
    world.restart()
    for name in odd:
        with open(m + b"/" + name, "rb") as f:
            assert f.read() == name


def test_large_directories_list_each_name_once(world):
    (world.lower / "many").mkdir()
    for i in range(1500):
        (world.lower / f"many/l{i}").touch()
    world.start()
    many = world.mnt / "many"
    for i in range(1500):
        (many / f"u{i}").touch()
    for i in range(0, 1500, 3):
        os.unlink(many / f"l{i}")
        (many / f"u{i}").rename(many / f"r{i}")
    want = {f"l{i}" for i in range(1500) if i % 3} | {f"u{i}" for i in range(1500) if i % 3} | {
        f"r{i}" for i in range(0, 1500, 3)}
    listed = [e.name for e in os.scandir(many)]
    assert len(listed) == len(want) and set(listed) == want
    # Entries go while they are read.
    count = 0
    for entry in os.scandir(many):
        os.unlink(entry.path)
        count += 1
    assert count == len(want) and names(many) == []


def test_deep_trees_without_recursion(world):
    world.start()
    fd = os.open(world.mnt, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    leaf = os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    os.write(leaf, b"deep")
    os.close(leaf)
    os.close(fd)
    os.rename(world.mnt / "d", world.mnt / "e")
    world.restart()
    path = "/".join(["e"] + ["d"] * 600)
    assert names(world.mnt / path) == ["d"]
    world.run("rm", "-rf", "e")
    assert "e" not in names(world.mnt)


def test_setgid_directories_hand_their_bit_down(world):
    world.start()
    os.mkdir(world.mnt / "shared")
    os.chmod(world.mnt / "shared", 0o2775)
    os.mkdir(world.mnt / "shared/below")
    assert os.stat(world.mnt / "shared/below").st_mode & 0o2000


def test_writing_takes_setuid_away_from_others(world):
    (world.lower / "suid").write_text("x")
    os.chmod(world.lower / "suid", 0o4777)
    os.chmod(world.root, 0o755)
    world.start()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
        try:
            with open(world.mnt / "suid", "w") as f:
                f.write("changed")
            os._exit(0)
        except OSError:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert stat.S_IMODE(os.stat(world.mnt / "suid").st_mode) == 0o777


def test_space_calls(world):
    world.start()
    with open(world.mnt / "file", "r+b") as f:
        os.posix_fallocate(f.fileno(), 0, 100000)
        assert os.fstat(f.fileno()).st_size == 100000
        f.truncate(50)
        assert os.fstat(f.fileno()).st_size == 50
    with open(world.mnt / "dir/one", "rb") as a, open(world.mnt / "copy", "wb") as b:
        assert os.copy_file_range(a.fileno(), b.fileno(), 100) == 1
    assert (world.mnt / "copy").read_text() == "1"


def test_the_workload_is_bound_by_permissions(world):
    os.chmod(world.root, 0o755)
    (world.lower / "private").write_text("secret")
    os.chmod(world.lower / "private", 0o600)
    world.start()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
        failures = [fw.error_of(open, world.mnt / "private"), fw.error_of(open, world.mnt / "file", "w"),
                    fw.error_of(os.unlink, world.mnt / "file"), fw.error_of(os.chmod, world.mnt / "file", 0o777)]
        os._exit(0 if failures == ["EACCES", "EACCES", "EACCES", "EPERM"] else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_read_only_mounts_refuse_every_change():
    with fw.World(writable=False) as world:
        (world.lower / "file").write_text("x")
        (world.lower / "dir").mkdir()
        world.start()
        m = world.mnt
        calls = [lambda: open(m / "file", "w"), lambda: open(m / "new", "w"), lambda: os.unlink(m / "file"),
                 lambda: os.mkdir(m / "d"), lambda: os.rmdir(m / "dir"), lambda: os.rename(m / "file", m / "g"),
                 lambda: os.chmod(m / "file", 0o600), lambda: os.utime(m / "file"), lambda: os.link(m / "file", m / "h"),
                 lambda: os.symlink("x", m / "s"), lambda: os.truncate(m / "file", 0), lambda: os.mkfifo(m / "p")]
        assert [fw.error_of(c) for c in calls] == ["EROFS"] * len(calls)
        assert (m / "file").read_text() == "x"
        assert not any(world.layer.iterdir())


def test_a_mount_without_lower_keeps_what_was_made():
    with fw.World(lower=False, record=False) as world:
        world.start()
        (world.mnt / "a").mkdir()
        (world.mnt / "a/b").write_text("home")
        os.rename(world.mnt / "a", world.mnt / "c")
        world.restart()
        assert (world.mnt / "c/b").read_text() == "home" and names(world.mnt) == ["c"]


def test_killed_service_leaves_a_consistent_layer(world):
    (world.lower / "big").write_bytes(os.urandom(8 << 20))
    for i in range(60):
        (world.lower / f"dir/f{i}").write_text(str(i))
    for attempt in range(6):
        world.start()
        done = threading.Event()

        def work():
            m = world.mnt
            try:
                for i in range(10000):
                    with open(m / "big", "r+b") as f:
                        f.write(b"x" * 1000)
                    os.rename(m / "dir", m / "moved")
                    os.rename(m / "moved", m / "dir")
                    (m / f"n{i}").write_text("n")
                    os.unlink(m / f"n{i}")
                    if attempt % 2:
                        for j in range(60):
                            os.unlink(m / f"dir/f{j}")
                            (m / f"dir/f{j}").write_text(str(j))
            except OSError:
                pass
            done.set()
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.03 * (attempt + 1))
        world.kill()
        thread.join(10)
        assert done.is_set()
    world.start()
    assert world.staged() == []
    present = names(world.mnt)
    assert "file" in present and ("dir" in present) != ("moved" in present)
    where = world.mnt / ("dir" if "dir" in present else "moved")
    for i in range(60):
        path = where / f"f{i}"
        assert not path.exists() or path.read_text() in (str(i), ""), i
    assert sum(1 for i in range(60) if (where / f"f{i}").exists()) >= 59
    assert os.stat(world.mnt / "big").st_size == 8 << 20
    whole = fw.tree(world.mnt)
    world.stop()
    with fw.KernelOverlay(world) as kernel:
        assert fw.tree(kernel) == whole


def test_the_users_edits_below_are_seen(world):
    world.start()
    m = world.mnt
    assert (m / "file").read_text() == "lower\n"
    # Replacement by rename, as editors and git do.
    (world.lower / "tmp").write_text("replaced by the user")
    os.rename(world.lower / "tmp", world.lower / "file")
    (world.lower / "dir/added").write_text("added")
    os.unlink(world.lower / "dir/one")
    time.sleep(1.2)
    assert (m / "file").read_text() == "replaced by the user"
    assert names(m / "dir") == ["added", "sub"]
    # In place: never stale pages after an open.
    with open(world.lower / "file", "r+") as f:
        f.write("REPLACED")
    time.sleep(1.2)
    assert (m / "file").read_text() == "REPLACED by the user"
    # What the sandbox changed is the sandbox's.
    (m / "file").write_text("mine")
    (world.lower / "file").write_text("the user's")
    time.sleep(1.2)
    assert (m / "file").read_text() == "mine"


def test_a_change_under_an_open_file_is_an_event(world):
    world.start()
    with open(world.mnt / "file") as f:
        assert f.read() == "lower\n"
        with open(world.lower / "file", "a") as user:
            user.write("edited")
    for _ in range(50):
        if world.events():
            break
        time.sleep(0.02)
    assert [(e["reason"], e["path"]) for e in world.events()] == [("changed_under", "file")]


def test_other_file_systems_below_are_empty_directories(world):
    (world.lower / "dir/sub/visible").touch()
    fw.mount("tmpfs", world.lower / "dir/sub", "tmpfs", 0, "size=1m")
    try:
        (world.lower / "dir/sub/secret").write_text("on another file system")
        world.start()
        assert names(world.mnt / "dir/sub") == []
        assert fw.error_of(open, world.mnt / "dir/sub/secret") == "ENOENT"
        (world.mnt / "dir/sub/mine").write_text("mine")
        world.restart()
        assert names(world.mnt / "dir/sub") == ["mine"]
    finally:
        world.stop()
        fw.umount(world.lower / "dir/sub")


def test_many_files_need_few_descriptors(world):
    for i in range(30):
        (world.lower / f"t{i}").mkdir()
        for j in range(100):
            (world.lower / f"t{i}/f{j}").write_text("x")
    world.start()
    world.run("grep", "-r", "-c", "x", ".", check=False)
    world.run("find", ".", "-size", "+1")
    held = len(os.listdir(f"/proc/{world.process.pid}/fd"))
    assert held < 200, held


def test_ends_with_0_and_frees_everything(world):
    world.start()
    (world.mnt / "a").write_text("x")
    pid = world.process.pid
    assert world.stop() == 0 and not pathlib.Path(f"/proc/{pid}").exists()
    world.start()
    world.process.terminate()
    assert world.process.wait(timeout=5) == 0
    assert fw.error_of(os.listdir, world.mnt) in ("ENOTCONN", "ECONNABORTED")
    assert errno.ENOTCONN
