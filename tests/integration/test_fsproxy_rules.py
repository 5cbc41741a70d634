"""Rules, quotas, records and the rights of the service. Each refusal has a control that must succeed."""
import ctypes
import json
import os
import pathlib
import signal
import socket
import sqlite3
import stat
import subprocess
import time

import pytest

import fsproxy_records
import fsproxy_world as fw
from fsproxy_model import EXCHANGE, renameat2

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")
RULES = [("hide", ".env"), ("hide", ".env.*"), ("writable", ".env.example"), ("hide", "/conf/secret/"),
         ("readonly", ".git/hooks/**"), ("outside", "/.ssh"), ("readonly", "vendor/"), ("writable", "vendor/cache/")]


@pytest.fixture
def world():
    with fw.World(rules=RULES) as w:
        lower = w.lower
        for directory in ("conf/secret", ".git/hooks", ".ssh", "vendor/cache", "src", "only-hidden"):
            (lower / directory).mkdir(parents=True)
        for path in (".env", "src/.env", ".env.local", ".env.example", "conf/secret/key", "conf/open", ".git/config",
                     ".git/hooks/pre-commit", ".ssh/id", "vendor/lib", "vendor/cache/x", "src/main", "only-hidden/.env"):
            (lower / path).write_text("lower " + path)
        yield w.start()


def reasons(world):
    return [(e["act"], e["path"], e["reason"], e["rule"]) for e in world.events() if e["event"] == "file"]


@pytest.mark.parametrize("path", [".env", "src/.env", ".env.local", "conf/secret", "conf/secret/key", ".ssh", ".ssh/id"])
def test_hidden_names_do_not_exist(world, path):
    full = world.mnt / path
    for call in (os.stat, os.lstat, open, os.unlink, os.rmdir, os.readlink, lambda p: os.chmod(p, 0o600),
                 lambda p: os.rename(p, world.mnt / "out"), lambda p: os.link(p, world.mnt / "out"), os.listdir,
                 lambda p: os.truncate(p, 0)):
        assert fw.error_of(call, full) == "ENOENT"
    assert full.name not in os.listdir(full.parent) if full.parent.exists() else True
    assert any(r[2] in ("hidden", "outside") for r in reasons(world))
    assert (world.lower / path).exists()


@pytest.mark.parametrize("path", [".env", "src/.env", ".env.x", "src/.env.y", "conf/secret", ".ssh"])
def test_hidden_names_cannot_be_made(world, path):
    full = world.mnt / path
    (world.mnt / "have").write_text("x")
    (world.mnt / "havedir").mkdir()
    calls = {"mkdir": lambda: os.mkdir(full), "rename": lambda: os.rename(world.mnt / "havedir", full)}
    if path != "conf/secret":  # that rule is for directories
        calls |= {"create": lambda: open(full, "w"), "symlink": lambda: os.symlink("x", full),
                  "link": lambda: os.link(world.mnt / "have", full), "mknod": lambda: os.mkfifo(full)}
    for act, call in calls.items():
        assert fw.error_of(call) == "EACCES", act
        assert any(r[0] == act and r[1] == path for r in reasons(world)), act
    assert fw.error_of(renameat2, world.mnt / "have", full, EXCHANGE) in ("ENOENT", "EACCES")
    # The control.
    os.rename(world.mnt / "have", full.parent / "visible")


def test_exceptions_are_visible_and_writable(world):
    assert (world.mnt / ".env.example").read_text() == "lower .env.example"
    (world.mnt / ".env.example").write_text("changed")
    (world.mnt / "src/.env.example").write_text("new")
    assert [r for r in reasons(world) if r[1].endswith("example")] == []


def test_directories_with_hidden_entries_are_not_empty(world):
    assert os.listdir(world.mnt / "only-hidden") == []
    assert fw.error_of(os.rmdir, world.mnt / "only-hidden") == "ENOTEMPTY"
    (world.mnt / "dir").mkdir()
    assert fw.error_of(os.rename, world.mnt / "dir", world.mnt / "only-hidden") == "ENOTEMPTY"
    os.rmdir(world.mnt / "dir")


@pytest.mark.parametrize("source", ["conf", "only-hidden", "src", ".git", "vendor"])
def test_moving_a_parent_exposes_nothing(world, source):
    assert fw.error_of(os.rename, world.mnt / source, world.mnt / "moved") == "EACCES"
    (world.mnt / "other").mkdir()
    assert fw.error_of(renameat2, world.mnt / source, world.mnt / "other", EXCHANGE) == "EACCES"
    assert not (world.mnt / "moved").exists() and os.listdir(world.mnt / "other") == []
    assert "rename" in [r[0] for r in reasons(world)]
    os.rename(world.mnt / "other", world.mnt / "moved")


def test_nothing_can_be_planted_by_moving_a_parent(world):
    m = world.mnt
    (m / "fake/hooks").mkdir(parents=True)
    (m / "fake/hooks/post-checkout").write_text("#!/bin/sh\n")
    (m / "fake/config").write_text("")
    os.unlink(m / ".git/config")
    assert fw.error_of(os.rename, m / "fake/hooks", m / ".git/hooks") in ("EACCES", "ENOTEMPTY")
    assert fw.error_of(renameat2, m / "fake/hooks", m / ".git/hooks", EXCHANGE) == "EACCES"
    assert fw.error_of(renameat2, m / "fake", m / ".git", EXCHANGE) == "EACCES"
    assert os.listdir(m / ".git/hooks") == ["pre-commit"]
    with fw.World(rules=RULES) as bare:
        bare.start()
        (bare.mnt / "fake/hooks").mkdir(parents=True)
        (bare.mnt / "fake/hooks/post-checkout").write_text("#!/bin/sh\n")
        assert fw.error_of(os.rename, bare.mnt / "fake", bare.mnt / ".git") == "EACCES"
        os.rename(bare.mnt / "fake", bare.mnt / "fine")


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "vendor/lib"])
def test_read_only_paths_refuse_every_change(world, path):
    full, m = world.mnt / path, world.mnt
    content = full.read_text()
    (m / "mine").write_text("mine")
    calls = {"open": lambda: open(full, "w"), "append": lambda: open(full, "a"), "unlink": lambda: os.unlink(full),
             "chmod": lambda: os.chmod(full, 0o777), "utime": lambda: os.utime(full), "rename": lambda: os.rename(full, m / "out"),
             "over": lambda: os.rename(m / "mine", full), "link from": lambda: os.link(full, m / "out"),
             "truncate": lambda: os.truncate(full, 0), "exchange": lambda: renameat2(m / "mine", full, EXCHANGE),
             "create": lambda: open(full.parent / "new", "w"), "mkdir": lambda: os.mkdir(full.parent / "newdir"),
             "symlink": lambda: os.symlink("x", full.parent / "news"), "link to": lambda: os.link(m / "mine", full.parent / "newl")}
    for what, call in calls.items():
        before = len(reasons(world))
        assert fw.error_of(call) == "EACCES", what
        assert len(reasons(world)) > before and reasons(world)[-1][2] == "readonly", what
    assert full.read_text() == content == (world.lower / path).read_text()
    fd = os.open(full, os.O_RDONLY)
    assert fw.error_of(open, f"/proc/self/fd/{fd}", "w") == "EACCES"
    assert fw.error_of(os.fchmod, fd, 0o777) == "EACCES"
    os.close(fd)
    # The controls.
    (m / "vendor/cache/x").write_text("writable again")
    (m / ".git/config").write_text("[core]\n")


def test_tricks_with_names_reach_nothing(world):
    m = os.fspath(world.mnt)
    os.mkdir(f"{m}/sub")
    for path in ("sub/../.env", "./.env", "src/./.env", "src//.env", ".git/../.env", f"../{os.path.basename(m)}/.env"):
        assert fw.error_of(open, f"{m}/{path}") == "ENOENT", path
    os.symlink(".env", f"{m}/l1")
    os.symlink(f"{m}/src/.env", f"{m}/l2")
    os.symlink("conf", f"{m}/l3")
    for path in ("l1", "l2", "l3/secret/key"):
        assert fw.error_of(open, f"{m}/{path}") == "ENOENT", path
    fd = os.open(f"{m}/conf", os.O_RDONLY)
    assert fw.error_of(os.open, "secret", os.O_RDONLY, dir_fd=fd) == "ENOENT"
    assert fw.error_of(os.open, "../.env", os.O_RDONLY, dir_fd=fd) == "ENOENT"
    assert os.listdir(fd) == ["open"]
    os.close(fd)
    # Links out of the workspace are the workload's own to follow; our service follows none.
    os.symlink("/etc/passwd", f"{m}/out")
    assert os.readlink(f"{m}/out") == "/etc/passwd" and stat.S_ISLNK(os.lstat(f"{m}/out").st_mode)


def test_equal_refusals_are_folded(world):
    for _ in range(1000):
        assert fw.error_of(open, world.mnt / "src/.env", "w") == "EACCES"
    assert len(reasons(world)) <= 210


# --- quotas

def test_bytes_are_bounded_and_come_back():
    with fw.World(quota_bytes=8 << 20) as world:
        world.start()
        big = world.mnt / "big"
        written = 0
        with pytest.raises(OSError) as failure, open(big, "wb", buffering=0) as f:
            while written < 64 << 20:
                written += f.write(b"x" * 65536)
        assert failure.value.errno == 28 and 7 << 20 <= written <= 8 << 20
        assert [e["reason"] for e in world.events()] == ["quota_exceeded"]
        held = sum(p.stat().st_blocks * 512 for p in (world.layer / "upper").rglob("*"))
        assert held <= 8 << 20
        # What is there can still be written over, and deleting gives room.
        with open(big, "r+b", buffering=0) as f:
            f.write(b"y" * 100)
        st = os.statvfs(world.mnt)
        assert st.f_blocks * st.f_frsize == 8 << 20 and st.f_bavail * st.f_frsize < 1 << 20
        os.unlink(big)
        (world.mnt / "again").write_bytes(b"z" * (7 << 20))
        os.unlink(world.mnt / "again")
        world.restart()
        assert os.statvfs(world.mnt).f_bavail * 4096 == 8 << 20


def test_open_unlinked_sparse_and_mapped_bytes_count():
    import mmap
    with fw.World(quota_bytes=8 << 20) as world:
        world.start()
        f = open(world.mnt / "gone", "wb", buffering=0)
        os.unlink(world.mnt / "gone")
        f.write(b"x" * (6 << 20))
        assert fw.error_of((world.mnt / "second").write_bytes, b"x" * (4 << 20)) == "ENOSPC"
        f.close()
        os.unlink(world.mnt / "second")
        os.truncate_target = world.mnt / "sparse"
        with open(os.truncate_target, "wb") as s:
            s.truncate(1 << 40)
        with open(os.truncate_target, "r+b") as s:
            assert fw.error_of(os.posix_fallocate, s.fileno(), 0, 1 << 30) == "ENOSPC"
            with mmap.mmap(s.fileno(), 32 << 20) as area:
                for at in range(0, 32 << 20, 4096):
                    area[at] = 1
                try:
                    area.flush()
                except OSError:
                    pass
        assert os.stat(os.truncate_target).st_blocks * 512 <= 8 << 20
        del os.truncate_target


def test_copy_up_is_charged():
    with fw.World(quota_bytes=4 << 20) as world:
        (world.lower / "big").write_bytes(b"x" * (6 << 20))
        world.start()
        assert fw.error_of(open, world.mnt / "big", "r+b") == "ENOSPC"
        (world.mnt / "big").write_bytes(b"small")  # truncation copies nothing
        assert (world.mnt / "big").read_bytes() == b"small"


def test_entries_are_bounded():
    with fw.World(quota_entries=20) as world:
        world.start()
        made = 0
        with pytest.raises(OSError) as failure:
            for i in range(100):
                (world.mnt / f"f{i}").touch()
                made += 1
        assert failure.value.errno == 28 and made == 20
        assert fw.error_of(os.mkdir, world.mnt / "d") == "ENOSPC"
        assert fw.error_of(os.symlink, "x", world.mnt / "s") == "ENOSPC"
        assert fw.error_of(os.link, world.mnt / "f1", world.mnt / "l") == "ENOSPC"
        os.unlink(world.mnt / "f0")
        os.mkdir(world.mnt / "d")
        world.restart()
        assert fw.error_of(os.mkdir, world.mnt / "e") == "ENOSPC"


# --- records

def rows(world, table):
    return fsproxy_records.records(world.layer)[table]


@pytest.fixture
def plain():
    with fw.World() as w:
        for name in ("read", "write", "both", "gone", "kept"):
            (w.lower / name).write_text(name)
        (w.lower / "dir/sub").mkdir(parents=True)
        (w.lower / "dir/sub/x").write_text("x")
        os.symlink("read", w.lower / "link")
        time.sleep(0.02)
        yield w.start()


def test_reads_are_recorded_with_their_version(plain):
    (plain.mnt / "read").read_text()
    os.readlink(plain.mnt / "link")
    with open(plain.mnt / "dir/sub/x") as f:
        f.read()
    os.stat(plain.mnt / "kept")
    time.sleep(0.6)
    seen = rows(plain, "read")
    assert sorted(seen) == ["dir/sub/x", "link", "read"]
    st = os.stat(plain.lower / "read")
    assert (seen["read"]["size"], seen["read"]["mtime_ns"], seen["read"]["ctime_ns"], seen["read"]["inode"]) == (
        4, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)


def test_bases_are_written_before_the_act_returns(plain):
    m = plain.mnt
    (m / "write").write_text("changed")
    plain_rows = rows(plain, "base")
    assert plain_rows["write"]["state"] == 0 and plain_rows["write"]["kind"] == 1
    assert plain_rows["write"]["content"] == b"write" and plain_rows["write"]["stored"] == 1
    os.unlink(m / "gone")
    os.rename(m / "dir", m / "moved")
    (m / "new").write_text("")
    plain.process.send_signal(signal.SIGKILL)
    seen = rows(plain, "base")
    assert set(seen) >= {"write", "gone", "dir", "dir/sub", "dir/sub/x", "moved", "new"}
    assert seen["new"]["kind"] == 0 and seen["moved"]["kind"] == 0 and seen["dir/sub/x"]["kind"] == 1
    assert "moved/sub/x" not in seen  # the base of "moved" is nothing, and so is that of all below
    assert "kept" not in seen and all(r["state"] == 0 for r in seen.values())


def test_an_edit_after_the_start_that_was_not_read_is_an_unknown_base(plain):
    time.sleep(0.05)
    (plain.lower / "write").write_text("the user's edit")
    (plain.mnt / "write").write_text("overwritten blindly")
    (plain.lower / "both").write_text("edit")
    time.sleep(1.1)
    (plain.mnt / "both").read_text()
    with open(plain.mnt / "both", "a") as f:
        f.write("+")
    seen = rows(plain, "base")
    assert seen["write"]["state"] == 1
    assert seen["both"]["state"] == 0 and seen["both"]["size"] == 4


def test_an_edit_between_read_and_write_is_an_unknown_base(plain):
    (plain.mnt / "both").read_text()
    time.sleep(0.05)
    (plain.lower / "both").write_text("edited by the user")
    (plain.mnt / "both").write_text("lost update")
    row = rows(plain, "base")["both"]
    assert row["state"] == 1 and row["size"] == 4


def test_large_bases_are_hashed_only():
    import hashlib
    with fw.World() as world:
        content = os.urandom((4 << 20) + 1)
        (world.lower / "large").write_bytes(content)
        time.sleep(0.02)
        world.start()
        os.chmod(world.mnt / "large", 0o600)
        row = rows(world, "base")["large"]
        assert row["sha256"] == hashlib.sha256(content).digest() and row["stored"] == 0
        assert row["content"] == b""


# --- the service itself

def status_of(pid, key):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return line.split()[1]
    return None


def test_the_cage_is_closed(world):
    pid = world.process.pid
    for task in os.listdir(f"/proc/{pid}/task"):
        assert status_of(f"{pid}/task/{task}", "Seccomp") == "2"
        assert status_of(f"{pid}/task/{task}", "NoNewPrivs") == "1"
        kept = int(status_of(f"{pid}/task/{task}", "CapEff"), 16)
        assert kept & ~(1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 21) == 0, hex(kept)
        assert status_of(f"{pid}/task/{task}", "CapPrm") == status_of(f"{pid}/task/{task}", "CapEff")
    assert os.stat(f"/proc/{pid}/mem").st_uid == 0
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert [line.split()[4] for line in limits.splitlines() if line.startswith("Max core")] == ["0"]


def test_what_does_not_fit_ends_the_start(world):
    world.stop()
    for change, text in (({"extra": 1}, "unknown key extra"), ({"version": 2}, "version 2"),
                         ({"quota": {"bytes": -1, "entries": 1}}, "number"), ({"mounts": []}, "mounts")):
        policy = world.policy() | change
        world.policy_text = json.dumps(policy)
        original, world.policy = world.policy, lambda p=policy: p
        with pytest.raises(RuntimeError, match=text):
            world.start()
        world.policy = original
    # A descriptor that is no mounted /dev/fuse.
    read, write = os.pipe()
    done = subprocess.run([fw.FSPROXY, "--policy", world.root / "fs.json", "--events-fd", str(write), "--ready-fd",
                           str(write), "--liveness-fd", str(read), "--mount", "workspace=2"], pass_fds=(read, write),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "no descriptor" in done.stderr
    os.close(read), os.close(write)


def test_an_unknown_meta_format_ends_the_start(world):
    (world.mnt / "x").write_text("")
    world.stop()
    db = sqlite3.connect(world.layer / "meta")
    db.execute("UPDATE layer SET value = 99 WHERE key = 'format'")
    db.commit()
    db.close()
    with pytest.raises(RuntimeError, match="format 99"):
        world.start()


def test_several_mounts_share_one_quota_and_nothing_else():
    with fw.World(quota_bytes=4 << 20, extra=[("home", False, True), ("opt", True, False)]) as world:
        (world.root / "opt-lower/tool").write_text("tool")
        world.start()
        home, opt = world.root / "home-mnt", world.root / "opt-mnt"
        (home / "cache").write_bytes(b"x" * (3 << 20))
        assert fw.error_of((world.mnt / "big").write_bytes, b"x" * (2 << 20)) == "ENOSPC"
        assert (opt / "tool").read_text() == "tool" and fw.error_of((opt / "tool").write_text, "x") == "EROFS"
        assert os.listdir(world.mnt) == ["big"] and os.listdir(home) == ["cache"]
        assert fw.error_of(os.rename, home / "cache", world.mnt / "cache") == "EXDEV"
        line, stats = world.ask("GET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line == "HTTP/1.1 200 OK" and stats["bytes_limit"] == 4 << 20 and stats["bytes"] > 3 << 20
        assert [m["name"] for m in stats["mounts"]] == ["workspace", "home", "opt"]
        assert world.stop() == 0


def test_the_control_socket_answers_and_survives_nonsense(world):
    assert world.ask("GET /health HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", {"status": "ok"})
    assert world.ask("GET /other HTTP/1.1\r\n\r\n")[0] == "HTTP/1.1 404 Not Found"
    for nonsense in (b"", b"\0" * 9000, b"GET /health"):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.fspath(world.control))
            s.send(nonsense)
    assert world.ask("GET /health HTTP/1.1\r\n\r\n")[1] == {"status": "ok"}
    assert (world.mnt / "src/main").read_text() == "lower src/main"


def test_records_are_bounded_too():
    with fw.World(quota_entries=5) as world:
        world.start()
        made = 0
        with pytest.raises(OSError) as failure:
            for i in range(1000):
                (world.mnt / f"f{i}").touch()
                os.unlink(world.mnt / f"f{i}")
                made += 1
        assert failure.value.errno == 122 and 5 <= made <= 40
        assert world.events()[-1]["reason"] == "quota_exceeded"


ORDINARY = 54321


def test_as_an_ordinary_user():
    """The service runs as a user without any right; the mount lies in the user's own user namespace."""
    with fw.World(rules=RULES) as world:
        lower = world.lower
        (lower / "dir").mkdir()
        (lower / "dir/file").write_text("lower")
        (lower / "gone").write_text("gone")
        (lower / ".env").write_text("secret")
        (lower / "locked").mkdir()
        (lower / "locked/file").write_text("in a directory that its owner made read only")
        subprocess.run(["chown", "-R", f"{ORDINARY}:{ORDINARY}", world.root], check=True)
        os.chmod(lower / "locked", 0o555)
        node = world.root / "fuse"
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(node, 0o666)
        binary = world.root / "cofferdam-fsproxy"
        binary.write_bytes(fw.FSPROXY.read_bytes())
        os.chmod(binary, 0o755)
        policy = world.policy()
        policy["owner"] = {"uids": [ORDINARY], "gids": [ORDINARY], "shown_uid": 0, "shown_gid": 0, "other_uid": 65534,
                           "other_gid": 65534}
        (world.root / "fs.json").write_text(json.dumps(policy))
        os.chmod(world.root / "fs.json", 0o644)
        events = os.open(world.root / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                workload_of_ordinary_user(world, theirs, node)
            finally:
                os._exit(1)
        theirs.close()
        message, fds, _, _ = socket.recv_fds(ours, 100, 1)
        assert message == b"mounted", message
        ready_r, ready_w = os.pipe()
        live_r, live_w = os.pipe()
        service = subprocess.Popen(
            [binary, "--policy", world.root / "fs.json", "--events-fd", str(events), "--ready-fd", str(ready_w),
             "--liveness-fd", str(live_r), "--mount", f"workspace={fds[0]}"], pass_fds=(events, ready_w, live_r, fds[0]),
            user=ORDINARY, group=ORDINARY, extra_groups=[], stderr=subprocess.PIPE, text=True)
        for fd in (ready_w, live_r, fds[0], events):
            os.close(fd)
        try:
            assert os.read(ready_r, 1000) == b"ready\n"
            ours.send(b"go")
            result = ours.recv(60000).decode()
            assert result == "fine", result
            assert int(status_of(service.pid, "CapEff"), 16) == 0
        finally:
            os.close(live_w)
            os.close(ready_r)
            code = service.wait(timeout=10)
            ours.close()
            os.waitpid(pid, 0)
        assert code == 0, service.stderr.read()
        service.stderr.close()
        assert [e["reason"] for e in world.events()] == ["hidden"]
        upper = world.layer / "upper"
        assert {os.lstat(p).st_uid for p in upper.rglob("*")} == {ORDINARY}
        white = os.lstat(upper / "gone")
        assert stat.S_ISCHR(white.st_mode) and white.st_rdev == 0
        assert os.getxattr(upper / "moved", "user.overlay.opaque") == b"y"
        assert stat.S_IMODE(os.stat(upper / "locked").st_mode) == 0o555


def workload_of_ordinary_user(world, channel, node):
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 1)  # dumpable again after the change of ids, so that /proc/self is ours
    if libc.unshare(0x10000000 | 0x00020000) != 0:
        channel.send(b"no user namespace: " + os.strerror(ctypes.get_errno()).encode())
        os._exit(1)
    pathlib.Path("/proc/self/setgroups").write_text("deny")
    pathlib.Path("/proc/self/uid_map").write_text(f"0 {ORDINARY} 1")
    pathlib.Path("/proc/self/gid_map").write_text(f"0 {ORDINARY} 1")
    fuse = os.open(node, os.O_RDWR)
    fw.mount("cofferdam", world.mnt, "fuse", fw.MS_NOSUID | fw.MS_NODEV,
             f"fd={fuse},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other")
    socket.send_fds(channel, [b"mounted"], [fuse])
    os.close(fuse)
    channel.recv(10)
    try:
        m = world.mnt
        assert os.stat(m / "dir/file").st_uid == 0
        (m / "dir/file").write_text("changed")
        (m / "new").mkdir()
        (m / "new/file").write_text("x")
        os.unlink(m / "gone")
        os.rename(m / "dir", m / "moved")
        assert (m / "moved/file").read_text() == "changed"
        os.chown(m / "new", 0, 0)
        assert fw.error_of(os.chown, m / "new", 0, 1) in ("EPERM", "EINVAL")
        assert fw.error_of(open, m / ".env") == "ENOENT"
        (m / "locked/file").write_text("writable file in a locked directory")
        assert sorted(os.listdir(m)) == ["locked", "moved", "new"]
        os.chmod(m / "new", 0)
        os.chmod(m / "new", 0o700)
        os.symlink("x", m / "new/link")
        os.link(m / "new/file", m / "new/hard")
        channel.send(b"fine")
    except BaseException:
        import traceback
        channel.send(traceback.format_exc().encode())
    os._exit(0)
