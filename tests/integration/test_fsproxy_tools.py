"""What people run in a workspace every day, over lower content and over a restart."""
import os
import sqlite3
import subprocess

import pytest

import fsproxy_world as fw
from fsproxy_world import need

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")


@pytest.fixture
def world():
    with fw.World() as w:
        yield w


@pytest.fixture
def repository(world):
    """A git repository with history in lower."""
    need("git")
    world.run("git", "init", "-q", "-b", "main", ".", cwd=world.lower)
    for i in range(40):
        directory = world.lower / f"src/p{i % 5}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{i}.txt").write_text(f"file {i}\n" * 20)
    world.run("git", "add", "-A", cwd=world.lower)
    world.run("git", "commit", "-qm", "first", cwd=world.lower)
    world.run("git", "checkout", "-qb", "topic", cwd=world.lower)
    (world.lower / "src/p0/f0.txt").write_text("topic\n")
    os.unlink(world.lower / "src/p1/f1.txt")
    world.run("git", "commit", "-qam", "topic", cwd=world.lower)
    world.run("git", "checkout", "-q", "main", cwd=world.lower)
    return world


def test_git_daily_work(repository):
    world = repository
    before = fw.tree(world.lower, times=True)
    world.start()
    git = lambda *a, **k: world.run("git", *a, **k)
    assert git("status", "--porcelain") == ""
    (world.mnt / "src/p2/f2.txt").write_text("changed\n")
    assert git("status", "--porcelain") == " M src/p2/f2.txt\n"
    git("commit", "-qam", "second")
    git("checkout", "-q", "topic")
    assert not (world.mnt / "src/p1/f1.txt").exists()
    git("rebase", "-q", "main")
    assert git("log", "--format=%s") == "topic\nsecond\nfirst\n"
    git("checkout", "-q", "main")
    assert (world.mnt / "src/p1/f1.txt").exists()
    git("merge", "-q", "topic")
    git("mv", "src/p3", "src/moved")
    git("commit", "-qm", "moved")
    git("stash", "list")
    git("gc", "-q", "--prune=now")
    git("fsck", "--strict")
    git("worktree", "add", "-q", "wt", "topic")
    assert (world.mnt / "wt/src/p0/f0.txt").read_text() == "topic\n"
    git("worktree", "remove", "wt")
    git("clone", "-q", ".", "copy")
    assert git("log", "--format=%s", "-1", cwd=world.mnt / "copy") == "moved\n"
    world.run("rm", "-rf", "copy")
    git("clean", "-qfdx")
    git("reset", "-q", "--hard", "HEAD~1")
    world.restart()
    assert git("status", "--porcelain") == ""
    git("fsck", "--strict")
    assert fw.tree(world.lower, times=True) == before


def test_first_status_hashes_nothing_again(repository):
    """st_ino and times are those of lower, so the index stays valid and is not written."""
    world = repository
    for path in world.lower.glob("src/*/*"):
        os.utime(path, (1e9, 1e9))  # older than the index: git trusts the times
    world.run("git", "update-index", "--refresh", cwd=world.lower)
    world.start()
    world.run("git", "--no-optional-locks", "status", "--porcelain")
    trace = world.root / "trace"
    need("strace")
    world.run("strace", "-f", "-e", "trace=openat", "-o", trace, "git", "--no-optional-locks", "status")
    assert ".git/index" in trace.read_text()
    assert "f0.txt" not in trace.read_text()


def test_tar_there_and_back(world):
    need("tar")
    source = world.root / "source"
    source.mkdir()
    for i in range(300):
        (source / f"d{i % 7}").mkdir(exist_ok=True)
        (source / f"d{i % 7}/f{i}").write_bytes(os.urandom(i * 13))
    os.symlink("d0/f0", source / "link")
    os.link(source / "d0/f0", source / "hard")
    os.chmod(source / "d1/f1", 0o755)
    os.mkfifo(source / "pipe")
    world.run("tar", "--format=posix", "-cf", world.root / "a.tar", ".", cwd=source)
    world.start()
    world.run("tar", "-xpf", world.root / "a.tar")
    assert fw.tree(world.mnt, times=True) == fw.tree(source, times=True)
    world.run("tar", "--format=posix", "-cf", world.root / "b.tar", ".")
    world.run("tar", "-df", world.root / "b.tar", cwd=source)
    world.run("cp", "-a", "d1", "d1-copy")
    world.run("diff", "-r", "d1", "d1-copy")
    world.run("rm", "-rf", "d1", "d2")
    world.restart()
    assert not (world.mnt / "d1").exists() and (world.mnt / "d1-copy/f1").exists()


def test_make_and_compilers(world):
    for tool in ("make", "gcc", "ar"):
        need(tool)
    lower = world.lower
    (lower / "Makefile").write_text(
        "CFLAGS=-O1 -g\nOBJ=$(patsubst %.c,build/%.o,$(wildcard *.c))\n"
        "all: prog\nbuild/%.o: %.c all.h | build\n\t$(CC) $(CFLAGS) -c $< -o $@\nbuild:\n\tmkdir -p build\n"
        "build/lib.a: $(OBJ)\n\t$(AR) rcs $@ $^\nprog: build/lib.a\n\t$(CC) -o $@ $(OBJ)\nclean:\n\trm -rf build prog\n")
    (lower / "all.h").write_text("".join(f"int f{i}(void);\n" for i in range(8)))
    for i in range(8):
        (lower / f"f{i}.c").write_text(f'#include "all.h"\nint f{i}(void) {{ return {i}; }}\n')
    (lower / "main.c").write_text('#include "all.h"\nint main(void) { return f0()+f1()+f7() == 8 ? 0 : 1; }\n')
    world.start()
    world.run("make", "-j2")
    world.run("./prog")
    assert "up to date" in world.run("make") or "Nothing to be done" in world.run("make")
    (world.mnt / "f3.c").write_text('#include "all.h"\nint f3(void) { return 33; }\n')
    out = world.run("make")
    assert "f3.c" in out and "f4.c" not in out
    world.run("make", "clean")
    world.run("make", "-j2")
    assert sorted(p.name for p in lower.iterdir()) == sorted(["Makefile", "all.h", "main.c"] + [f"f{i}.c" for i in range(8)])


@pytest.mark.parametrize("journal", ["delete", "wal", "truncate"])
def test_sqlite(world, journal):
    with sqlite3.connect(world.lower / "lower.db") as db:
        db.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(i, "x" * 100) for i in range(500)])
    world.start()
    for name in ("lower.db", "new.db"):
        path = world.mnt / name
        one, two = sqlite3.connect(path, timeout=5), sqlite3.connect(path, timeout=5)
        assert one.execute(f"PRAGMA journal_mode={journal}").fetchone()[0] == journal
        one.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER, b TEXT)")
        for i in range(100):
            (one if i % 2 else two).execute("INSERT INTO t VALUES (?, 'y')", (1000 + i,))
            (one if i % 2 else two).commit()
        assert two.execute("SELECT count(*) FROM t WHERE b='y'").fetchone()[0] == 100
        # A second process takes part in the locking.
        code = f"import sqlite3; d=sqlite3.connect({str(path)!r}); d.execute('DELETE FROM t WHERE a=1000'); d.commit()"
        world.run("/usr/bin/python3", "-c", code)
        assert one.execute("SELECT count(*) FROM t WHERE b='y'").fetchone()[0] == 99
        one.execute("VACUUM")
        one.close(), two.close()
    world.restart()
    for name in ("lower.db", "new.db"):
        db = sqlite3.connect(world.mnt / name)
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert db.execute("SELECT count(*) FROM t WHERE b='y'").fetchone()[0] == 99
        db.close()


def test_sqlite_survives_a_killed_service(world):
    world.start()
    path = world.mnt / "a.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=wal")
    db.execute("CREATE TABLE t (a)")
    db.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(1000)])
    db.commit()
    world.kill()
    try:
        db.close()
    except sqlite3.Error:
        pass
    world.start()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM t").fetchone()[0] == 1000
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()


def test_python_virtual_environment(world):
    world.start()
    done = subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "venv"], cwd=world.mnt,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    package = world.mnt / "venv/lib"
    site = next(package.glob("python3*/site-packages"))
    (site / "thing").mkdir()
    (site / "thing/__init__.py").write_text("answer = 42\n")
    assert world.run("venv/bin/python", "-c", "import thing; print(thing.answer)",
                     env={"PYTHONDONTWRITEBYTECODE": ""}) == "42\n"
    assert list(site.glob("thing/__pycache__/*.pyc"))
    world.run("venv/bin/python", "-m", "compileall", "-q", site)
    world.restart()
    assert world.run("venv/bin/python", "-c", "import thing; print(thing.answer)") == "42\n"


def test_npm_with_local_packages(world):
    need("npm")
    for name, dependency in (("inner", {}), ("outer", {"inner": "file:../inner.tgz"})):
        directory = world.lower / name
        directory.mkdir()
        (directory / "package.json").write_text(
            '{"name":"%s","version":"1.0.0","main":"index.js","bin":{"%s":"index.js"},"scripts":'
            '{"postinstall":"node -e \\"require(\'fs\').writeFileSync(\'ran\',\'yes\')\\""},"dependencies":%s}'
            % (name, name, str(dependency).replace("'", '"')))
        (directory / "index.js").write_text("#!/usr/bin/env node\nconsole.log('%s')\n" % name)
    (world.lower / "package.json").write_text('{"name":"app","version":"1.0.0","dependencies":{"inner":"file:inner.tgz"}}')
    world.start()
    npm = lambda *a, **k: world.run("npm", "--offline", "--no-audit", "--no-fund", "--cache", world.mnt / ".cache", *a, **k)
    npm("pack", cwd=world.mnt / "inner")
    os.rename(world.mnt / "inner/inner-1.0.0.tgz", world.mnt / "inner.tgz")
    npm("install")
    assert (world.mnt / "node_modules/inner/ran").read_text() == "yes"
    assert world.run("node", "-e", "require('inner')") == "inner\n"
    assert world.run("node_modules/.bin/inner") == "inner\n"
    npm("ci")
    npm("uninstall", "inner")
    assert not (world.mnt / "node_modules/inner").exists()
    assert not (world.lower / "node_modules").exists()


def test_editors_that_save_by_rename(world):
    (world.lower / "doc").write_text("v0\n")
    os.chmod(world.lower / "doc", 0o640)
    world.start()
    m = world.mnt
    for i in range(1, 6):  # vim with backupcopy=no
        os.rename(m / "doc", m / "doc~")
        fd = os.open(m / "doc", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        os.write(fd, f"v{i}\n".encode())
        os.fsync(fd)
        os.close(fd)
        os.unlink(m / "doc~")
        assert (m / "doc").read_text() == f"v{i}\n"
    for i in range(6, 9):  # temporary and rename over
        (m / ".doc.tmp").write_text(f"v{i}\n")
        os.rename(m / ".doc.tmp", m / "doc")
    world.run("sed", "-i", "s/v8/v9/", "doc")
    world.restart()
    assert (m / "doc").read_text() == "v9\n" and sorted(os.listdir(m)) == ["doc"]


def test_rsync_into_and_out_of(world):
    need("rsync")
    (world.lower / "a/b").mkdir(parents=True)
    for i in range(50):
        (world.lower / f"a/b/f{i}").write_text(f"{i}\n" * i)
    world.start()
    world.run("rsync", "-aH", "--delete", "a/", "copy/")
    world.run("rsync", "-aH", "--delete", "a/", "copy/")
    assert fw.tree(world.mnt / "a", times=True) == fw.tree(world.mnt / "copy", times=True)
    os.unlink(world.mnt / "a/b/f7")
    (world.mnt / "a/b/f8").write_text("other")
    world.run("rsync", "-aH", "--delete", "a/", "copy/")
    assert fw.tree(world.mnt / "a") == fw.tree(world.mnt / "copy")


def test_dpkg_builds_and_unpacks(world):
    need("dpkg-deb")
    package = world.lower / "pkg"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.com>\nDescription: x\n")
    (package / "usr/share").mkdir(parents=True)
    (package / "usr/share/thing").write_text("x")
    os.chmod(package, 0o755)
    world.start()
    world.run("dpkg-deb", "--build", "pkg", "thing.deb")
    world.run("dpkg-deb", "-x", "thing.deb", "out")
    assert (world.mnt / "out/usr/share/thing").read_text() == "x"


def test_watchers_inside_see_changes_made_inside(world):
    import ctypes
    import select
    (world.lower / "file").write_text("x")
    world.start()
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(0o4000)
    assert libc.inotify_add_watch(fd, os.fsencode(world.mnt / "file"), 2) >= 0  # IN_MODIFY
    with open(world.mnt / "file", "a") as f:
        f.write("more")
    assert select.select([fd], [], [], 5)[0] and os.read(fd, 1000)
    os.close(fd)
