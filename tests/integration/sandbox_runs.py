"""Starting `cofferdam run` as root or as an ordinary user, and looking for what it left behind."""
import contextlib
import dataclasses
import json
import os
import pathlib
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/dev/bin"))
ORDINARY_USER = "cofferdam-test"
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def ordinary_user():
    try:
        return pwd.getpwnam(ORDINARY_USER)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", ORDINARY_USER], check=True)
        return pwd.getpwnam(ORDINARY_USER)


@contextlib.contextmanager
def fuse_for_everybody():
    """Debian and Ubuntu give /dev/fuse to everybody; this machine may not."""
    before = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    try:
        yield
    finally:
        os.chmod("/dev/fuse", before)


def programs_for(user):
    """The directory of the programs; a copy where the user cannot reach the build directory."""
    if user is None:
        return BIN, None
    probe = subprocess.run(["runuser", "-u", user, "--", "test", "-x", str(BIN / "cofferdam")], check=False)
    if probe.returncode == 0:
        return BIN, None
    copy = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-bin-"))
    copy.chmod(0o755)
    for program in BIN.glob("cofferdam*"):
        shutil.copy2(program, copy / program.name)
    return copy, copy


def process_table():
    """pid → (parent, state, command line)."""
    table = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        table[int(entry.name)] = (int(fields[1]), fields[0], command)
    return table


def descendants(pid):
    table = process_table()
    found, pending = set(), [pid]
    while pending:
        parent = pending.pop()
        for child, (its_parent, _, _) in table.items():
            if its_parent == parent and child not in found:
                found.add(child)
                pending.append(child)
    return found


def lives(pid):
    entry = process_table().get(pid)
    return entry is not None and entry[1] not in "ZX"


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    return condition()


def mentions(pid, mark):
    """Whether a process carries `mark` in its command line or environment."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in pathlib.Path(f"/proc/{pid}/{name}").read_bytes():
                return True
    return False


@dataclasses.dataclass
class Traces:
    """What a running sandbox is made of. `mark` is in the environment of each of its programs."""
    pids: set
    namespaces: set
    sandbox: str
    mark: str

    def left(self):
        """What of it is still there, as text lines."""
        ours = {pid for pid, (_, state, _) in process_table().items()
                if state not in "ZX" and (pid in self.pids or mentions(pid, self.mark))}
        found = [f"process {pid}: {process_table().get(pid)}" for pid in ours]
        # The kernel gives the number of a namespace that is gone to the next one: only holders count.
        # lsns fails when a process goes away under it, and still lists the others.
        listing = subprocess.run(["lsns", "-n", "-o", "NS,PID"], capture_output=True, text=True, check=False).stdout
        for inode, holder in (line.split() for line in listing.splitlines()):
            if inode in self.namespaces and int(holder) in ours:
                found.append(f"namespace {inode}")
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        found += [f"mount {line}" for line in mounts.splitlines()
                  if self.sandbox in line or any(f"[{inode}]" in line for inode in self.namespaces)]
        for top in ("/tmp", "/run", "/run/cofferdam", "/var/tmp", "/dev/shm"):
            if os.path.isdir(top):
                found += [f"{top}/{name}" for name in os.listdir(top) if self.sandbox in name]
        return found

    def cgroups_left(self):
        return [str(path) for path in pathlib.Path("/sys/fs/cgroup").rglob(f"cofferdam-{self.sandbox}")]


class Running:
    """A `cofferdam run` in the background."""

    def __init__(self, runner, argv, flags=(), **kwargs):
        self.runner = runner
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        self._before = set(runner.layers())
        self.process = subprocess.Popen(runner.command(argv, flags), cwd=runner.workspace, **kwargs)
        self.out = self.err = b""
        runner.running.append(self)

    @property
    def supervisor(self):
        """The pid of cofferdam itself (runuser stands before it)."""
        if self.runner.user is None:
            return self.process.pid
        table = process_table()
        for pid in descendants(self.process.pid) | {self.process.pid}:
            if table.get(pid, (0, "", ""))[2].startswith(str(self.runner.programs / "cofferdam") + " run"):
                return pid
        return None

    def service(self, name):
        table = process_table()
        for pid in descendants(self.supervisor):
            if f"/cofferdam-{name} " in table.get(pid, (0, "", ""))[2]:
                return pid
        return None

    def wait_for_file(self, name="ready"):
        """Until the workload has made a file in its workspace: it lies in the layer."""
        found = wait_until(lambda: self.layer() and (self.layer() / "upper" / name).exists(), 20)
        assert found, f"the workload did not start: {self.finish(kill=True)}"

    def layer(self):
        """The state directory of this run, once it is there."""
        new = set(self.runner.layers()) - self._before
        return new.pop() if new else None

    def traces(self):
        own = {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
        pids = descendants(self.supervisor)
        namespaces = set()
        for pid in pids:
            for name in NAMESPACES:
                with contextlib.suppress(OSError):
                    namespaces.add(os.readlink(f"/proc/{pid}/ns/{name}"))
        inodes = {text.split("[")[1].rstrip("]") for text in namespaces - own}
        assert pids and inodes
        return Traces(pids, inodes, self.layer().name, str(self.runner.root))

    def signal(self, number):
        os.kill(self.supervisor, number)

    def finish(self, timeout=30, kill=False):
        if kill and self.supervisor:
            os.kill(self.supervisor, signal.SIGKILL)
        self.out, self.err = self.process.communicate(timeout=timeout)
        return self.process.returncode, (self.err or b"").decode(errors="replace")


class Runner:
    """One way to start sandboxes: engine, user. Owns a directory with HOME and a workspace."""

    def __init__(self, user=None, engine_flags=()):
        self.user = user
        self.running = []
        self.engine_flags = list(engine_flags)
        self.programs, self._copy = programs_for(user)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-it-"))
        self.root.chmod(0o755)
        self.home = self.root / "home"
        self.workspace = self.home / "project"
        self.workspace.mkdir(parents=True)
        (self.workspace / "README").write_text("a project\n")
        if user:
            for path in (self.root, *self.root.rglob("*")):
                shutil.chown(path, user, pwd.getpwnam(user).pw_gid)

    def stop_all(self):
        """What a test that failed left running."""
        for started in self.running:
            if started.process.poll() is None and started.supervisor:
                os.kill(started.supervisor, signal.SIGKILL)
            for stream in (started.process.stdout, started.process.stderr):
                if stream:
                    stream.close()
            started.process.wait(timeout=20)
        self.running.clear()

    def close(self):
        self.stop_all()
        for directory in (self.root, self._copy):
            if directory:
                shutil.rmtree(directory, ignore_errors=True)

    def command(self, argv, flags=()):
        words = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={self.home}", "LANG=C.UTF-8", "TERM=xterm"]
        for name in ("DOCKER_HOST", "COFFERDAM_LOG"):
            if os.environ.get(name):
                words.append(f"{name}={os.environ[name]}")
        words += [str(self.programs / "cofferdam"), "run", *self.engine_flags, *flags, "--", *argv]
        return ["runuser", "-u", self.user, "--", *words] if self.user else words

    def run(self, argv, flags=(), timeout=60, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(self.command(argv, flags), cwd=self.workspace, timeout=timeout, capture_output=True,
                              check=False, **kwargs)

    def shell(self, line, flags=(), **kwargs):
        return self.run(["sh", "-c", line], flags, **kwargs)

    def python(self, code, flags=(), **kwargs):
        return self.run(["python3", "-c", code], flags, **kwargs)

    def start(self, line, flags=(), **kwargs):
        return Running(self, ["sh", "-c", line], flags, **kwargs)

    def cofferdam(self, *words):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home)}
        command = [str(self.programs / "cofferdam"), *words]
        if self.user:
            command = ["runuser", "-u", self.user, "--", "env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command]
        return subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, check=False, timeout=60)

    def layers(self):
        """The state directories of all sandboxes."""
        top = self.home / ".local/state/cofferdam/sandboxes"
        return [path for path in top.glob("*") if not path.name.startswith(".")] if top.is_dir() else []

    def layer(self):
        """The state directory of the newest sandbox."""
        found = self.layers()
        return max(found, key=lambda path: (path / "manifest.json").stat().st_mtime_ns) if found else None

    def events(self):
        return [json.loads(line) for line in (self.layer() / "events.jsonl").read_text().splitlines()]


def skip_unless_root():
    if os.geteuid() != 0:
        pytest.skip("needs root to switch users, and to see every namespace")
