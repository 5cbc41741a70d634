"""One running cofferdam-fsproxy over a lower directory and a layer, for the tests of the workspace.

Mounts /dev/fuse itself and hands the descriptor over, as the engines do. Everything that it starts
or mounts ends with the object, also when a test fails.
"""
import ctypes
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/release/bin"))
FSPROXY = BIN / "cofferdam-fsproxy"
LIBC = ctypes.CDLL(None, use_errno=True)
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2


def mount(source, target, fstype, flags, data):
    if LIBC.mount(source.encode(), os.fsencode(target), fstype.encode(), flags, data.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {fstype}: {os.strerror(code)}", str(target))


def umount(target):
    LIBC.umount2(os.fsencode(target), MNT_DETACH)


def version_lines():
    """What the service says of itself: its version, libfuse's, whether it can have passthrough here."""
    done = subprocess.run([FSPROXY, "--version"], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def why_no_passthrough():
    """Why files cannot go past fsproxy here; None where they can."""
    said = version_lines()["passthrough:"]
    return None if said == "yes" else f"passthrough {said}"


def fuse_available():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
        return True
    except OSError:
        return False


def need(tool):
    """Skips the test where the machine has not got the tool."""
    import pytest  # benchmarks use this module, and have no tests to skip
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


class World:
    """A directory with lower/, layer/ and a mount point; `mnt` is the merged view."""

    def __init__(self, rules=(), writable=True, record=True, quota_bytes=1 << 34, quota_entries=1 << 20,
                 lower=True, parent=None, extra=()):
        # extra: further mounts of the same service, (name, has_lower, writable)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fsproxy-", dir=parent or "/var/tmp"))
        self.lower = self.root / "lower"
        self.layer = self.root / "layer"
        self.mnt = self.root / "mnt"
        for path in (self.lower, self.layer, self.mnt):
            path.mkdir()
        self.has_lower = lower
        self.rules, self.writable, self.record = list(rules), writable, record
        self.quota = {"bytes": quota_bytes, "entries": quota_entries}
        self.extra = list(extra)
        for name, _, _ in self.extra:
            for part in ("lower", "layer", "mnt"):
                (self.root / f"{name}-{part}").mkdir()
        self.limits = None  # descriptors that the service may have
        self.xattr = False  # extended attributes
        self.passthrough = True  # where this machine can have it
        self.process = None
        self.liveness = None
        self.mounted = []
        # Through a descriptor: the path of a socket has 107 bytes at most.
        self.root_fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
        self.control = pathlib.Path(f"/proc/self/fd/{self.root_fd}/control")

    # --- life
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        os.close(self.root_fd)
        # Trees deeper than what Python's own rmtree recurses.
        subprocess.run(["rm", "-rf", self.root], check=False)

    def policy(self):
        uid, gid = os.geteuid(), os.getegid()
        return {
            "version": 1, "sandbox": "0123456789abcdef", "operation": "op", "manifest": "sha256:00",
            "owner": {"uids": [uid], "gids": [gid], "shown_uid": uid, "shown_gid": gid,
                      "other_uid": 65534, "other_gid": 65534},
            "quota": self.quota,
            "mounts": [{
                "name": "workspace", "path": str(self.mnt),
                "lower": str(self.lower) if self.has_lower else None,
                "layer": str(self.layer) if self.writable else None,
                "writable": self.writable, "record": self.record, "xattr": self.xattr,
                "rules": [{"id": f"r{i}", "action": a, "pattern": p}
                          for i, (a, p) in enumerate(self.rules)]}] + [{
                "name": name, "path": f"{self.root}/{name}-mnt", "lower": f"{self.root}/{name}-lower" if lower else None,
                "layer": f"{self.root}/{name}-layer" if writable else None, "writable": writable, "record": False, "xattr": False,
                "rules": []} for name, lower, writable in self.extra]}

    def mount_fuse(self, target):
        fuse = os.open("/dev/fuse", os.O_RDWR)
        mount("cofferdam", target, "fuse", MS_NOSUID | MS_NODEV,
              f"fd={fuse},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},"
              "default_permissions,allow_other")
        self.mounted.append(target)
        return fuse

    def start(self):
        # What can fail comes before the mounts: nobody could end what nobody serves.
        self.control.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(self.control))
        listener.listen(8)
        mounts = {"workspace": self.mount_fuse(self.mnt)}
        for name, _, _ in self.extra:
            mounts[name] = self.mount_fuse(self.root / f"{name}-mnt")
        (self.root / "fs.json").write_text(json.dumps(self.policy()))
        events = os.open(self.root / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        ready_r, ready_w = os.pipe()
        live_r, self.liveness = os.pipe()
        arguments = [str(FSPROXY), "--policy", str(self.root / "fs.json"), "--events-fd", str(events), "--ready-fd",
                     str(ready_w), "--liveness-fd", str(live_r), "--control-fd", str(listener.fileno())]
        if not self.passthrough:
            arguments += ["--passthrough", "off"]
        for name, fuse in mounts.items():
            arguments += ["--mount", f"{name}={fuse}"]
        passed = [events, ready_w, live_r, *mounts.values()]
        if self.limits is not None:
            arguments = ["prlimit", f"--nofile={self.limits}:{self.limits}", *arguments]
        self.process = subprocess.Popen(arguments, pass_fds=[*passed, listener.fileno()], stderr=subprocess.PIPE)
        for fd in passed:
            os.close(fd)
        listener.close()
        with os.fdopen(ready_r, "rb") as ready:
            line = ready.read()
        if line != b"ready\n":
            self.process.kill()
            text = line.decode() + self.process.stderr.read().decode()
            self.stop()
            raise RuntimeError(text)
        return self

    def stop(self):
        """Ends the service by closing the liveness pipe; returns its exit status."""
        status = None
        if self.liveness is not None:
            os.close(self.liveness)
            self.liveness = None
        if self.process is not None:
            try:
                status = self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                status = self.process.wait()
            self.diagnostics = self.process.stderr.read().decode()
            self.process.stderr.close()
            self.process = None
        while self.mounted:
            umount(self.mounted.pop())
        # What a sanitizer found says so in its summary, whatever the exit status was.
        said = getattr(self, "diagnostics", "")
        assert "Sanitizer" not in said, said
        return status

    def ask(self, request):
        """The answer of the control socket: (status line, JSON)."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(os.fspath(self.control))
            s.sendall(request.encode())
            text = b""
            while piece := s.recv(65536):
                text += piece
        head, _, body = text.partition(b"\r\n\r\n")
        return head.split(b"\r\n")[0].decode(), json.loads(body)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.stop()

    def restart(self):
        self.stop()
        return self.start()

    # --- looking
    def staged(self):
        """What lies in work/, but for the inode that all whiteouts are names of."""
        return sorted(set(os.listdir(self.layer / "work")) - {"whiteout"})

    def frozen_layers(self):
        """The directories of the frozen layers that upper stands on, the newest first."""
        db = sqlite3.connect(self.layer / "meta")
        try:
            parents = dict(db.execute("SELECT layer, parent FROM checkpoint"))
            at = dict(db.execute("SELECT key, value FROM layer"))["parent"]
        except (sqlite3.OperationalError, KeyError):
            return []
        finally:
            db.close()
        out = []
        while at:
            out.append(f"{self.layer}/layers/{at}/upper")
            at = parents[at]
        return out

    def events(self):
        path = self.root / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def run(self, *argv, cwd=None, check=True, env=None, **more):
        full = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@example.com",
                    GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@example.com", HOME=str(self.root / "home"),
                    LC_ALL="C", **(env or {}))
        (self.root / "home").mkdir(exist_ok=True)
        done = subprocess.run([str(a) for a in argv], cwd=cwd or self.mnt, env=full, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, **more)
        if check and done.returncode != 0:
            raise AssertionError(f"{argv} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout


def error_of(call, *args, **kwargs):
    """The errno of a call that must fail, as a name; None when it does not."""
    try:
        call(*args, **kwargs)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def tree(root, times=False):
    """Everything below root: path -> what a program can see of it."""
    out = {}
    stack = [pathlib.Path(root)]
    while stack:
        directory = stack.pop()
        for entry in os.scandir(directory):
            path = pathlib.Path(entry.path)
            st = entry.stat(follow_symlinks=False)
            seen = [st.st_mode, st.st_uid, st.st_gid]
            if entry.is_symlink():
                seen.append(os.readlink(path))
            elif entry.is_file(follow_symlinks=False):
                seen += [path.read_bytes(), st.st_nlink]
                if times:
                    seen.append(st.st_mtime_ns)
            elif entry.is_dir(follow_symlinks=False):
                stack.append(path)
            out[str(path.relative_to(root))] = tuple(seen)
    return out


class KernelOverlay:
    """The kernel's own overlayfs over the layers of a stopped world, read only: what it shows must be
    what fsproxy showed."""

    def __init__(self, world):
        self.world, self.target = world, world.root / "kernel"

    def __enter__(self):
        self.target.mkdir(exist_ok=True)
        layers = [f"{self.world.layer}/upper", *self.world.frozen_layers(), str(self.world.lower)]
        mount("overlay", self.target, "overlay", 1, "lowerdir=" + ":".join(layers))
        return self.target

    def __exit__(self, *_):
        umount(self.target)
