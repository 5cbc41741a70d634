"""Identity: files with several names stay one file, numbers stay, link counts tell the truth."""
import os
import pathlib
import sqlite3

import pytest

import fsproxy_world as fw
from fsproxy_model import EXCHANGE, renameat2

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")


@pytest.fixture
def world():
    with fw.World(rules=[("readonly", "/kept/"), ("hide", ".env")]) as w:
        for directory in ("dir/sub", "kept"):
            (w.lower / directory).mkdir(parents=True)
        (w.lower / "a").write_text("one file")
        for name in ("b", "dir/c", "dir/sub/d"):
            os.link(w.lower / "a", w.lower / name)
        yield w


NAMES = ["a", "b", "dir/c", "dir/sub/d"]


def links(world, name):
    return os.stat(world.mnt / name).st_nlink


def index(world):
    return os.listdir(world.layer / "index")


def groups(world):
    db = sqlite3.connect(world.layer / "meta")
    out = [db.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("link_group", "link_name")]
    db.close()
    return out


def same(world, names, content):
    stats = [os.stat(world.mnt / n) for n in names]
    assert len({s.st_ino for s in stats}) == 1 and [(world.mnt / n).read_text() for n in names] == [content] * len(names)
    return stats[0].st_ino


@pytest.mark.parametrize("known", [NAMES, ["b"], ["dir/c", "a"]])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("change", ["write", "replace content", "append", "chmod"])
def test_all_names_change_together(world, known, restarted, change):
    world.start()
    number = os.stat(world.lower / "a").st_ino
    for name in known:
        assert os.stat(world.mnt / name).st_ino == number and links(world, name) == 4
    target = world.mnt / known[0]
    content = "one file"
    if change == "chmod":
        os.chmod(target, 0o600)
    elif change == "append":
        with open(target, "a") as f:
            f.write(" longer")
        content += " longer"
    elif change == "write":
        with open(target, "r+") as f:
            f.write("ONE")
        content = "ONE file"
    else:
        target.write_text("new")
        content = "new"
    if restarted:
        world.kill()
        world.start()
    assert same(world, NAMES, content) == number
    assert {links(world, n) for n in NAMES} == {4}
    assert {os.stat(world.mnt / n).st_mode & 0o777 for n in NAMES} == {0o600 if change == "chmod" else 0o644}
    # Every name lies in upper now, and nothing is left to remember.
    assert index(world) == [] and groups(world) == [0, 0]
    assert os.stat(world.layer / "upper/dir/c").st_nlink == 4
    world.stop()
    with fw.KernelOverlay(world) as kernel:
        assert fw.tree(kernel)["b"][4:] == (4,)


def test_an_open_file_and_its_other_names(world):
    world.start()
    m = world.mnt
    with open(m / "a", "rb", buffering=0) as a, open(m / "dir/c", "r+b", buffering=0) as c:
        c.write(b"ONE")
        assert a.read() == b"ONE file" and os.fstat(a.fileno()).st_nlink == 4
        os.unlink(m / "a")
        assert os.fstat(c.fileno()).st_nlink == 3 and os.fstat(a.fileno()).st_nlink == 3
        c.write(b"+")
    assert same(world, ["b", "dir/c", "dir/sub/d"], "ONE+file")


@pytest.mark.parametrize("passthrough", [True, False])
def test_names_of_a_large_file_with_readers(passthrough):
    """Large enough to be read past the service, where that can be had: readers keep what they opened."""
    content = b"0123456789abcdef" * 20000
    with fw.World() as world:
        world.passthrough = passthrough
        (world.lower / "one").write_bytes(content)
        for name in ("two", "three"):
            os.link(world.lower / "one", world.lower / name)
        number = os.stat(world.lower / "one").st_ino
        world.start()
        m = world.mnt
        readers = [open(m / name, "rb", buffering=0) for name in ("one", "two")]
        assert [r.read(16) for r in readers] == [content[:16]] * 2
        with open(m / "two", "r+b", buffering=0) as writer:
            writer.write(b"CHANGED")
            for name in ("one", "two", "three"):
                assert (m / name).read_bytes()[:16] == b"CHANGED789abcdef", name
                assert (os.stat(m / name).st_ino, os.stat(m / name).st_nlink) == (number, 3), name
            assert os.fstat(writer.fileno()).st_nlink == 3
        for reader in readers:
            reader.seek(0)
            assert reader.read()[16:] == content[16:]
            reader.close()
        os.unlink(m / "one")
        os.rename(m / "two", m / "four")
        for _ in range(2):
            assert (m / "three").read_bytes()[:7] == (m / "four").read_bytes()[:7] == b"CHANGED"
            assert os.path.samefile(m / "three", m / "four") and os.stat(m / "three").st_nlink == 2
            world.restart()
        assert index(world) == [] and groups(world) == [0, 0]


def test_counts_after_links_and_deletions(world):
    world.start()
    m = world.mnt
    os.unlink(m / "a")  # still in lower
    assert links(world, "b") == 3
    os.link(m / "b", m / "e")
    assert links(world, "b") == links(world, "e") == links(world, "dir/c") == 4
    world.restart()
    assert links(world, "dir/sub/d") == 4
    os.unlink(m / "b")
    os.unlink(m / "e")
    assert links(world, "dir/c") == 2
    os.rename(m / "dir/c", m / "moved")
    assert same(world, ["moved", "dir/sub/d"], "one file") and links(world, "moved") == 2
    os.unlink(m / "moved")
    assert links(world, "dir/sub/d") == 1
    world.restart()
    assert links(world, "dir/sub/d") == 1 and fw.tree(m)["dir/sub/d"][3] == b"one file"
    os.unlink(m / "dir/sub/d")
    assert index(world) == [] and groups(world) == [0, 0]


def test_content_outlives_the_name_that_it_was_written_by(world):
    world.start()
    (world.mnt / "a").write_text("written by a")
    os.unlink(world.mnt / "a")
    assert len(index(world)) == 1
    before = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"]
    world.kill()
    world.start()
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] == before
    assert same(world, ["b", "dir/sub/d", "dir/c"], "written by a") == os.stat(world.lower / "a").st_ino
    assert links(world, "b") == 3 and not (world.mnt / "a").exists()


def test_renames_between_names_of_one_file_do_nothing(world):
    world.start()
    m = world.mnt
    os.rename(m / "a", m / "b")  # rename(2): two names of one file
    assert sorted(os.listdir(m)) == ["a", "b", "dir", "kept"]
    (m / "other").write_text("other")
    renameat2(m / "other", m / "a", EXCHANGE)
    assert (m / "a").read_text() == "other" and same(world, ["other", "b", "dir/c"], "one file")
    assert links(world, "other") == 4
    os.rename(m / "dir", m / "moved")
    (m / "moved/c").write_text("moved")
    assert same(world, ["b", "moved/c", "moved/sub/d", "other"], "moved")
    world.restart()
    assert same(world, ["b", "moved/c", "moved/sub/d", "other"], "moved") and links(world, "b") == 4


def test_rules_hold_for_each_name_of_a_file(world):
    os.link(world.lower / "a", world.lower / "kept/a")
    os.link(world.lower / "a", world.lower / "dir/.env")
    world.start()
    m = world.mnt
    assert fw.error_of(open, m / "kept/a", "w") == "EACCES"
    (m / "a").write_text("changed")
    assert (m / "kept/a").read_text() == "one file" and (m / "dir/c").read_text() == "changed"
    assert fw.error_of(open, m / "dir/.env") == "ENOENT"
    assert fw.error_of(os.link, m / "kept/a", m / "out") == "EACCES"
    os.link(m / "b", m / "out")
    for _ in range(2):
        assert (m / "kept/a").read_text() == "one file" == (world.lower / "a").read_text()
        assert same(world, [*NAMES, "out"], "changed")
        world.restart()


def test_other_kinds_with_several_names(world):
    os.symlink("target", world.lower / "s1")
    os.link(world.lower / "s1", world.lower / "s2", follow_symlinks=False)
    os.mkfifo(world.lower / "p1")
    os.link(world.lower / "p1", world.lower / "p2")
    world.start()
    m = world.mnt
    os.chmod(m / "p1", 0o600)
    os.utime(m / "s2", ns=(5, 6), follow_symlinks=False)
    for _ in range(2):
        for one, two in (("p1", "p2"), ("s1", "s2")):
            a, b = os.lstat(m / one), os.lstat(m / two)
            assert (a.st_ino, a.st_nlink, a.st_mode, a.st_mtime_ns) == (b.st_ino, 2, b.st_mode, b.st_mtime_ns)
        assert os.readlink(m / "s1") == "target" and os.lstat(m / "s1").st_mtime_ns == 6
        world.restart()


def test_archives_and_copies_keep_hard_links(world):
    world.start()
    (world.mnt / "b").write_text("changed")
    world.run("tar", "-cf", "t.tar", *NAMES)
    assert world.run("tar", "-tvf", "t.tar").count(" link to ") == 3
    world.run("cp", "-a", "dir", "copy")
    assert os.path.samefile(world.mnt / "copy/c", world.mnt / "copy/sub/d")
    world.run("rm", "-r", "dir")
    assert links(world, "a") == 2
    assert int(world.run("du", "-b", "a", "b").split()[0]) == 7


def test_the_user_replaces_one_of_the_names(world):
    import time
    world.start()
    assert links(world, "a") == 4 and (world.mnt / "b").read_text() == "one file"
    (world.lower / "tmp").write_text("the user's")
    os.rename(world.lower / "tmp", world.lower / "b")
    time.sleep(1.2)
    assert (world.mnt / "b").read_text() == "the user's" and links(world, "b") == 1
    (world.mnt / "a").write_text("mine")
    assert same(world, ["a", "dir/c", "dir/sub/d"], "mine") and (world.mnt / "b").read_text() == "the user's"


@pytest.mark.parametrize("known", [["new", "late"], ["late", "new"], ["new"], ["late"]])
def test_the_user_gives_a_file_another_name_meanwhile(world, known):
    import time
    (world.lower / "new").write_text("new")
    world.start()
    assert links(world, "new") == 1
    os.link(world.lower / "new", world.lower / "late")
    time.sleep(1.2)
    for name in known:
        os.stat(world.mnt / name)
    with open(world.mnt / known[0], "a") as f:
        f.write("+")
    assert links(world, known[0]) == 2
    assert same(world, ["new", "late"], "new+") == os.stat(world.lower / "new").st_ino


def test_the_quota_counts_a_file_with_several_names_once(world):
    (world.lower / "big1").write_bytes(b"x" * (3 << 20))
    os.link(world.lower / "big1", world.lower / "big2")
    world.quota = {"bytes": 8 << 20, "entries": 1000}  # the copy and its base
    world.start()
    os.stat(world.mnt / "big2")
    with open(world.mnt / "big1", "r+b") as f:
        f.write(b"y")
    used = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]
    assert 6 << 20 <= used["bytes"] < 7 << 20
    os.unlink(world.mnt / "big1")
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] >= 6 << 20
    os.unlink(world.mnt / "big2")
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] < 4 << 20
    assert pathlib.Path(world.mnt / "a").read_text() == "one file"
