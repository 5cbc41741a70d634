"""Extended attributes, which a sandbox gets when its manifest says `workspace.xattr: true`."""
import os

import pytest

import fsproxy_world as fw

USER = "user.note"


def supported(directory):
    try:
        os.setxattr(directory, USER, b"x")
        os.removexattr(directory, USER)
        return True
    except OSError:
        return False


@pytest.fixture
def world():
    with fw.World() as w:
        (w.lower / "dir").mkdir()
        (w.lower / "file").write_text("lower")
        (w.lower / "other").write_text("other")
        os.symlink("file", w.lower / "link")
        assert supported(w.lower), "the tests need a file system with user.* attributes"
        os.setxattr(w.lower / "file", USER, b"of lower")
        os.setxattr(w.lower / "dir", USER, b"of lower's directory")
        w.xattr = True
        yield w.start()


def test_without_the_key_there_are_none():
    with fw.World() as w:
        (w.lower / "file").write_text("lower")
        os.setxattr(w.lower / "file", USER, b"of lower")
        w.start()
        assert fw.error_of(os.getxattr, w.mnt / "file", USER) == "ENOTSUP"
        asked = w.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["by_operation"].get("getxattr", 0)
        for _ in range(5):
            assert fw.error_of(os.getxattr, w.mnt / "file", USER) == "ENOTSUP"
        assert w.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["mounts"][0]["by_operation"].get("getxattr", 0) == asked


@pytest.mark.parametrize("kind", ["plain directory", "view, new", "view, lower"])
def test_calls_answer_as_on_a_plain_directory(world, kind):
    top = {"plain directory": world.root, "view, new": world.mnt, "view, lower": world.mnt}[kind]
    path = top / ("other" if kind == "view, lower" else "new")
    if kind != "view, lower":
        path.write_text("")
    code = fw.error_of
    assert code(os.getxattr, path, USER) == "ENODATA" and os.listxattr(path) == []
    assert code(os.removexattr, path, USER) == "ENODATA"
    assert code(os.setxattr, path, USER, b"x", os.XATTR_REPLACE) == "ENODATA"
    os.setxattr(path, USER, b"one")
    assert code(os.setxattr, path, USER, b"x", os.XATTR_CREATE) == "EEXIST"
    assert os.getxattr(path, USER) == b"one"
    os.setxattr(path, USER, b"another, longer", os.XATTR_REPLACE)
    os.setxattr(path, "user.empty", b"")
    assert os.getxattr(path, "user.empty") == b"" and os.getxattr(path, USER) == b"another, longer"
    assert sorted(os.listxattr(path)) == ["user.empty", USER]
    assert code(os.setxattr, path, "user.", b"x") == "EINVAL"
    assert code(os.setxattr, path, "nothing.x", b"x") == "ENOTSUP"
    assert code(os.setxattr, path, "user.big", b"x" * 5000) == "ENOSPC"
    assert code(os.setxattr, path, "user.big", b"x" * 70000) in ("E2BIG", "ENOSPC")
    os.setxattr(path, "user.block", b"x" * 3000)
    assert code(os.setxattr, path, "user.block2", b"x" * 3000) == "ENOSPC"
    assert os.getxattr(path, "user.block") == b"x" * 3000
    os.removexattr(path, USER)
    assert sorted(os.listxattr(path)) == ["user.block", "user.empty"]
    fd = os.open(path, os.O_RDWR)
    os.unlink(path)
    os.setxattr(fd, USER, b"open")
    assert os.getxattr(fd, USER) == b"open"
    os.close(fd)


def test_links_and_fifos_have_none(world):
    for name in ("link", "fifo"):
        if name == "fifo":
            os.mkfifo(world.mnt / name)
        path = world.mnt / name
        assert fw.error_of(lambda p=path: os.setxattr(p, USER, b"x", follow_symlinks=False)) == "EPERM"
        assert fw.error_of(lambda p=path: os.getxattr(p, USER, follow_symlinks=False)) == "ENODATA"
        assert os.listxattr(path, follow_symlinks=False) == []


def test_those_of_lower_show_and_go_along_with_a_copy(world):
    m = world.mnt
    assert os.getxattr(m / "file", USER) == b"of lower" and os.getxattr(m / "dir", USER) == b"of lower's directory"
    with open(m / "file", "a") as file:
        file.write("+")
    (m / "dir/new").write_text("")
    assert os.getxattr(m / "file", USER) == b"of lower" and os.getxattr(m / "dir", USER) == b"of lower's directory"
    os.setxattr(m / "file", USER, b"mine")
    os.setxattr(m / "dir", "user.more", b"mine")
    os.rename(m / "dir", m / "moved")
    world.restart()
    assert os.getxattr(m / "file", USER) == b"mine"
    assert sorted(os.listxattr(m / "moved")) == ["user.more", USER]
    assert os.getxattr(world.lower / "file", USER) == b"of lower" and os.listxattr(world.lower / "dir") == [USER]


def test_a_change_copies_up_and_records_the_base(world):
    import fsproxy_records
    os.setxattr(world.mnt / "other", USER, b"mine")
    assert (world.layer / "upper/other").read_text() == "other"
    assert fsproxy_records.bases(world.layer)["other"]["content"] == b"other"
    assert fw.error_of(os.removexattr, world.mnt / "link", "user.not_there") == "ENODATA"
    assert not (world.layer / "upper/file").exists()


@pytest.mark.parametrize("name", ["user.overlay.opaque", "user.overlay.x", "user.cofferdam.owner", "user.overlay"])
def test_marks_are_nobodys(world, name):
    m = world.mnt
    os.mkdir(m / "made")
    mark = "trusted.overlay.opaque" if os.geteuid() == 0 else "user.overlay.opaque"
    assert mark in os.listxattr(world.layer / "upper/made")
    for target in (m / "made", m / "file", m / "dir"):
        assert fw.error_of(os.setxattr, target, name, b"y") == "EPERM"
        assert fw.error_of(os.removexattr, target, name) == "EPERM"
        assert fw.error_of(os.getxattr, target, name) == "ENODATA"
        assert not [n for n in os.listxattr(target) if "overlay" in n or "cofferdam" in n]
    for other in ("trusted.overlay.opaque", "security.capability", "security.ima", "system.posix_acl_access"):
        value = b"\1\0\0\2" + bytes(16)  # what the kernel lets pass as capabilities
        assert fw.error_of(os.setxattr, m / "file", other, value) in ("ENOTSUP", "EPERM")


def test_rules_hold(world):
    world.stop()
    world.rules = [("readonly", "file")]
    world.start()
    assert fw.error_of(os.setxattr, world.mnt / "file", USER, b"mine") in ("EACCES", "EROFS", "EPERM")
    assert fw.error_of(os.removexattr, world.mnt / "file", USER) in ("EACCES", "EROFS", "EPERM")
    assert os.getxattr(world.mnt / "file", USER) == b"of lower"


def test_they_count_in_the_quota():
    with fw.World(quota_bytes=128 << 10) as w:
        w.xattr = True
        w.start()
        used = lambda: w.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"]
        before, made = used(), 0
        with pytest.raises(OSError) as failure:
            for number in range(100):
                path = w.mnt / f"f{number}"
                path.write_text("")
                os.setxattr(path, USER, bytes([number]) * 3000)
                made += 1
        assert failure.value.errno in (28, 122) and 20 < made <= 32
        upper = sum(os.lstat(p).st_blocks * 512 for p in (w.layer / "upper").rglob("*"))
        assert used() - before == upper <= 128 << 10
        os.removexattr(w.mnt / "f0", USER)
        os.setxattr(w.mnt / "f0", USER, b"x" * 3000)


def test_tools_keep_them(world):
    fw.need("setfattr")
    world.run("sh", "-c", "setfattr -n user.a -v 1 other && cp --preserve=xattr other copy && getfattr -d copy")
    assert os.getxattr(world.mnt / "copy", "user.a") == b"1"
