"""What users of other union file systems reported, by the row numbers of docs/fuse-cases.md."""
import ctypes
import mmap
import os
import pathlib
import re
import select
import stat
import time

import pytest

import fsproxy_world as fw
from fsproxy_model import NOREPLACE, renameat2

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def world():
    with fw.World() as w:
        (w.lower / "file").write_text("lower\n")
        (w.lower / "dir/sub").mkdir(parents=True)
        (w.lower / "dir/one").write_text("1")
        (w.lower / "dir/sub/two").write_text("2")
        yield w


def names(path):
    return sorted(os.listdir(path))


def whiteouts(world):
    return sorted(str(p.relative_to(world.layer / "upper")) for p in (world.layer / "upper").rglob("*")
                  if stat.S_ISCHR(os.lstat(p).st_mode))


def test_every_row_names_tests_that_exist():
    rows = "\n".join(line for line in (ROOT / "docs/fuse-cases.md").read_text().splitlines() if line.startswith("|"))
    python = "".join(f.read_text() for f in (ROOT / "tests/integration").glob("test_*.py"))
    unit = "".join(f.read_text() for f in (ROOT / "tests/unit").rglob("*.cc"))
    cases = {f"{a}.{b}" for a, b in re.findall(r"TEST(?:_[FP])?\((\w+),\s*(\w+)\)", unit)}
    absent = [name for name in re.findall(r"::(test_\w+)", rows) if f"def {name}(" not in python]
    absent += [name for name in re.findall(r"`([A-Z]\w+\.\w+)`", rows) if name not in cases]
    assert not absent
    # A row without a test says who or what it waits for.
    for line in rows.splitlines():
        assert "test_" in line or re.search(r"`[A-Z]\w+\.\w+`", line) or "waits for" in line or "| case |" in line \
            or set(line) <= set("|- "), line


def test_2_a_read_only_descriptor_sees_what_a_later_writer_wrote(world):
    world.start()
    path = world.mnt / "file"
    old = os.open(path, os.O_RDONLY)
    before = os.fstat(old).st_ino
    with mmap.mmap(old, 6, prot=mmap.PROT_READ) as area:
        new = os.open(path, os.O_RDWR)
        os.pwrite(new, b"LOWER", 0)
        assert os.pread(old, 10, 0) == b"LOWER\n" and area[:5] == b"LOWER"
        assert {os.fstat(old).st_ino, os.fstat(new).st_ino, os.stat(path).st_ino} == {before}
    os.close(old), os.close(new)


def test_4_a_link_to_a_lower_file_is_the_same_file_at_once_and_after_a_restart(world):
    world.start()
    m = world.mnt
    os.link(m / "dir/one", m / "link")
    for _ in range(2):
        assert os.stat(m / "link").st_ino == os.stat(m / "dir/one").st_ino == os.stat(world.lower / "dir/one").st_ino
        assert os.path.samefile(m / "link", m / "dir/one") and (m / "link").read_text() == "1"
        world.restart()


def test_5_numbers_from_before_a_restart_name_the_same_objects(world):
    world.start()
    m = world.mnt
    (m / "dir/one").write_text("changed")
    os.rename(m / "dir/sub", m / "moved")
    before = {str(p.relative_to(m)): os.lstat(p).st_ino for p in m.rglob("*")}
    for _ in range(2):
        world.restart()
        assert {str(p.relative_to(m)): os.lstat(p).st_ino for p in m.rglob("*")} == before
        assert (m / "dir/one").read_text() == "changed" and (m / "moved/two").read_text() == "2"


@pytest.mark.parametrize("restarted", [False, True])
def test_7_a_directory_of_both_layers_is_one_directory_for_every_call(world, restarted):
    world.start()
    m = world.mnt
    (m / "dir/sub/mine").write_text("mine")  # dir and dir/sub lie in both layers now
    if restarted:
        world.restart()
    assert names(m / "dir") == ["one", "sub"] and names(m / "dir/sub") == ["mine", "two"]
    assert (m / "dir/sub/two").read_text() == "2" and (m / "dir/one").read_text() == "1"
    assert fw.error_of(os.rmdir, m / "dir/sub") == "ENOTEMPTY"
    (m / "dir/sub/deeper").mkdir()
    (m / "dir/sub/deeper/x").write_text("x")
    os.link(m / "dir/sub/two", m / "dir/sub/deeper/two")
    os.rename(m / "dir/one", m / "dir/sub/one")
    os.symlink("two", m / "dir/sub/sym")
    assert (m / "dir/sub/sym").read_text() == "2"
    os.truncate(m / "dir/sub/two", 0)
    os.chmod(m / "dir", 0o711)
    assert names(m / "dir/sub") == ["deeper", "mine", "one", "sym", "two"] and names(m / "dir") == ["sub"]
    fd = os.open(m / "dir/sub", os.O_RDONLY | os.O_DIRECTORY)
    os.unlink("mine", dir_fd=fd)
    assert os.stat("../sub/one", dir_fd=fd).st_size == 1
    os.close(fd)
    world.restart()
    assert names(m / "dir/sub") == ["deeper", "one", "sym", "two"]


@pytest.mark.parametrize("change", ["write", "append", "chmod", "utime", "truncate", "link", "rename"])
def test_9_all_mode_bits_and_times_survive_copy_up(world, change):
    files = {}
    for mode in (0o755, 0o4755, 0o2755, 0o6711, 0o1644, 0o000, 0o7777):
        path = world.lower / f"f{mode:o}"
        path.write_text("content")
        os.chmod(path, mode)
        os.utime(path, ns=(1111111111, 2222222222))
        files[path.name] = mode
    world.start()
    for name, mode in files.items():
        path = world.mnt / name
        if change == "write":
            os.close(os.open(path, os.O_WRONLY))
        elif change == "append":
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        elif change == "chmod":
            os.chmod(path, mode)
        elif change == "utime":
            os.utime(path, ns=(1111111111, 2222222222))
        elif change == "truncate":
            os.truncate(path, 7)
        elif change == "link":
            os.link(path, f"{path}.l")
        else:
            path = path.rename(f"{path}.r")
        st = os.stat(path)
        assert stat.S_IMODE(st.st_mode) == mode, name
        if change != "truncate":
            assert st.st_mtime_ns == 2222222222, name
    world.restart()
    for name, mode in files.items():
        path = world.mnt / (name + (".r" if change == "rename" else ""))
        assert stat.S_IMODE(os.stat(path).st_mode) == mode and path.read_text() == "content"


def test_10_reading_everything_copies_nothing(world):
    for i in range(200):
        (world.lower / f"dir/sub/f{i}").write_text("needle\n" if i % 7 == 0 else "hay\n")
    world.start()
    assert len(world.run("grep", "-r", "needle", ".").splitlines()) == 29
    world.run("find", ".", "-newer", "file")
    world.run("sh", "-c", "cat dir/sub/* >/dev/null; md5sum dir/sub/* >/dev/null; test -x dir && test -w file")
    assert list((world.layer / "upper").rglob("*")) == []


def test_12_copying_between_files_that_have_no_name_any_more(world):
    (world.lower / "source").write_bytes(b"0123456789" * 1000)
    world.start()
    m = world.mnt
    source = os.open(m / "source", os.O_RDONLY)
    target = os.open(m / "target", os.O_RDWR | os.O_CREAT)
    os.unlink(m / "source")
    os.unlink(m / "target")
    assert os.copy_file_range(source, target, 5000, 10, 0) == 5000
    assert os.pread(target, 6000, 0) == (b"0123456789" * 1000)[10:5010]
    assert os.fstat(target).st_nlink == 0 and os.fstat(source).st_nlink == 0
    assert os.sendfile(target, source, 0, 10) == 10
    os.close(source), os.close(target)
    assert names(m) == ["dir", "file"]


def test_14_whiteouts_count_neither_as_entries_nor_as_names(world):
    (world.lower / "other").mkdir()
    world.start()
    m = world.mnt
    (m / "fresh").mkdir()
    for name in ("one", "sub/two"):
        os.unlink(m / "dir" / name)
    os.rmdir(m / "dir/sub")  # holds a whiteout
    os.rename(m / "fresh", m / "dir")  # so does this one
    (m / "dir/in").write_text("in")
    os.unlink(m / "file")
    renameat2(m / "dir/in", m / "file", NOREPLACE)  # a whiteout is no name
    world.run("rm", "-rf", "dir")
    os.rename(m / "other", m / "dir")
    world.restart()
    assert names(m) == ["dir", "file"] and names(m / "dir") == [] and (m / "file").read_text() == "in"
    os.rmdir(m / "dir")


def test_15_no_name_means_something_to_us(world):
    world.start()
    m = world.mnt
    odd = [".wh.file", ".wh.dir", ".wh..wh..opq", ".wh..opq", ".fuse_hidden0001", ".nfs0001", "work", "upper", "meta"]
    for name in odd:
        (m / name).write_text(name)
        (m / "dir" / name).write_text(name)
    for _ in range(2):
        assert names(m) == sorted([*odd, "dir", "file"]) and names(m / "dir") == sorted([*odd, "one", "sub"])
        world.restart()
    for name in odd:
        os.unlink(m / name)
    assert names(m) == ["dir", "file"]


def test_16_a_set_user_id_file_unpacked_by_root_keeps_its_bits(world):
    world.start()
    path = world.mnt / "su"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.fchmod(fd, 0o4755)
    os.write(fd, b"binary")  # as an archiver that writes after it set the mode
    os.fchown(fd, os.geteuid(), os.getegid())
    os.fchmod(fd, 0o4755)
    os.write(fd, b"more")
    os.utime(fd, ns=(5, 6))
    os.close(fd)
    st = os.stat(path)
    assert (stat.S_IMODE(st.st_mode), st.st_size, st.st_mtime_ns) == (0o4755, 10, 6)
    # It is shown, and means nothing: the mount is nosuid.
    mounts = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(world.mnt) in line]
    assert "nosuid" in mounts[0] and "nodev" in mounts[0]


def test_17_listings_tell_the_numbers_and_types_of_stat(world):
    os.symlink("file", world.lower / "link")
    os.mkfifo(world.lower / "pipe")
    os.link(world.lower / "file", world.lower / "hard")
    world.start()
    m = world.mnt

    def check():
        for directory in (m, m / "dir", m / "dir/sub"):
            for entry in os.scandir(directory):
                st = os.lstat(entry.path)
                assert entry.inode() == st.st_ino != 0
                assert (entry.is_dir(follow_symlinks=False), entry.is_symlink()) == (
                    stat.S_ISDIR(st.st_mode), stat.S_ISLNK(st.st_mode))
        listed = world.run("ls", "-fia")
        assert f"{os.stat(m).st_ino} ." in listed.replace("  ", " ")
    check()
    (m / "file").write_text("copied up")
    os.rename(m / "dir/sub", m / "sub")
    os.mkdir(m / "dir/sub")
    (m / "dir/sub/new").write_text("")
    os.utime(m / "pipe")
    check()
    world.restart()
    check()


def test_18_whiteouts_are_only_where_lower_has_the_name(world):
    world.start()
    m = world.mnt
    (m / "pure").mkdir()
    (m / "pure/x").write_text("x")
    os.unlink(m / "pure/x")
    (m / "pure/y").write_text("y")
    assert fw.error_of(os.rmdir, m / "pure") == "ENOTEMPTY"
    os.rename(m / "pure/y", m / "pure/z")
    (m / "dir/mine").write_text("")
    os.unlink(m / "dir/mine")
    assert whiteouts(world) == []
    os.unlink(m / "dir/one")
    assert whiteouts(world) == ["dir/one"]
    assert not any(stat.S_ISCHR(e.stat(follow_symlinks=False).st_mode) for e in os.scandir(m / "dir"))
    os.unlink(m / "pure/z")
    os.rmdir(m / "pure")
    assert whiteouts(world) == ["dir/one"]


def test_19_appending_to_lower_and_new_files(world):
    world.start()
    for i in range(20):
        world.run("sh", "-c", f"echo {i} >> file; echo {i} >> new")
    assert (world.mnt / "file").read_text() == "lower\n" + "".join(f"{i}\n" for i in range(20))
    assert (world.mnt / "new").read_text() == "".join(f"{i}\n" for i in range(20))
    fd = os.open(world.mnt / "file", os.O_RDWR | os.O_APPEND)
    os.pwrite(fd, b"end", 0)  # Linux appends, whatever the offset
    assert os.pread(fd, 6, 0) == b"lower\n" and (world.mnt / "file").read_text().endswith("19\nend")
    os.close(fd)


def test_21_mappings_work_on_every_kind_of_open(world):
    (world.lower / "map").write_bytes(b"a" * 8192)
    world.start()
    for flags, extra in ((os.O_RDWR, 0), (os.O_RDWR, os.O_DIRECT), (os.O_RDWR, os.O_SYNC)):
        fd = os.open(world.mnt / "map", flags | extra)
        with mmap.mmap(fd, 8192) as shared, mmap.mmap(fd, 8192, flags=mmap.MAP_PRIVATE) as private:
            private[0:3] = b"prv"
            shared[4096:4099] = b"shr"
            shared.flush()
            assert os.pread(fd, 3, 0) == b"aaa" if not extra & os.O_DIRECT else True
            assert (world.mnt / "map").read_bytes()[4096:4099] == b"shr"
        os.close(fd)
    reader = os.open(world.mnt / "map", os.O_RDONLY)
    with mmap.mmap(reader, 8192, prot=mmap.PROT_READ) as area:
        assert area[4096:4099] == b"shr"
    os.close(reader)


def test_23_a_watch_on_a_lower_file_survives_its_copy_up(world):
    world.start()
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(0o4000)
    # IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF
    assert libc.inotify_add_watch(fd, os.fsencode(world.mnt / "file"), 2 | 4 | 0x800 | 0x400) >= 0
    assert libc.inotify_add_watch(fd, os.fsencode(world.mnt / "dir"), 0x100 | 0x200 | 0xC0) >= 0

    def kinds():
        out = set()
        while select.select([fd], [], [], 0.3 if out else 5)[0]:
            data = os.read(fd, 4096)
            while data:
                mask, length = int.from_bytes(data[4:8], "little"), int.from_bytes(data[12:16], "little")
                out.add(mask & 0xFFFF)
                data = data[16 + length:]
        return out
    for _ in range(2):
        with open(world.mnt / "file", "a") as f:
            f.write("more")
        assert 2 in kinds()
    os.chmod(world.mnt / "file", 0o600)
    assert 4 in kinds()
    (world.mnt / "dir/new").write_text("")
    os.unlink(world.mnt / "dir/one")
    assert {0x100, 0x200} <= kinds()
    os.rename(world.mnt / "file", world.mnt / "elsewhere")
    assert 0x800 in kinds()
    os.unlink(world.mnt / "elsewhere")
    assert kinds() & {4, 0x400}
    os.close(fd)


def test_26_many_files_and_directories_cost_no_descriptors(world):
    for i in range(700):
        (world.lower / f"t{i}").mkdir()
        (world.lower / f"t{i}/f").write_text("x")
    world.start()
    for i in range(700):
        with open(world.mnt / f"t{i}/f", "a") as f:
            f.write("+")
    world.run("git", "init", "-q")
    world.run("git", "add", ".")
    assert world.run("git", "status", "--porcelain").count("\n") == 703
    held = len(os.listdir(f"/proc/{world.process.pid}/fd"))
    assert held < 1200, held  # two caches of 512 directories


def test_27_a_layer_inside_its_own_workspace_is_refused(world):
    inside = world.lower / "dir/layer"
    inside.mkdir()
    world.layer = inside
    with pytest.raises(RuntimeError, match="lies in the directory"):
        world.start()


def test_27_directories_keep_their_way_home(world):
    world.start()
    m = world.mnt
    os.chdir(m / "dir/sub")
    try:
        (m / "dir/sub/new").write_text("")  # copied up below our feet
        assert os.getcwd() == str(m / "dir/sub")
        os.rename(m / "dir", m / "renamed")
        assert os.getcwd() == str(m / "renamed/sub") and (pathlib.Path("two")).read_text() == "2"
        world.run("rm", "-rf", "renamed")
        assert fw.error_of(os.getcwd) == "ENOENT" and os.listdir(".") == []
        assert fw.error_of(open, "x", "w") == "ENOENT"
    finally:
        os.chdir("/")


def test_27_a_file_that_the_user_made_shorter_is_seen_shorter(world):
    (world.lower / "shrinks").write_bytes(b"x" * 100000)
    world.start()
    path = world.mnt / "shrinks"
    assert len(path.read_bytes()) == 100000
    os.truncate(world.lower / "shrinks", 10)
    time.sleep(1.2)
    assert os.stat(path).st_size == 10 and path.read_bytes() == b"x" * 10
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 10, prot=mmap.PROT_READ) as area:
        assert area[:] == b"x" * 10
    os.close(fd)
    with open(path, "ab") as f:
        f.write(b"end")
    assert path.read_bytes() == b"x" * 10 + b"end"

