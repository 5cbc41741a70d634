"""Engine docker, as root, by the cases of every engine and by its own."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

import docker_daemon
import engine_cases
import sandbox_runs
from engine_cases import SLEEP, EngineCases, text
from sandbox_runs import NAMESPACES, Runner, Running, Traces, descendants, wait_until


class DockerRunning(Running):
    """The workload's processes are not below the supervisor: they are found by the sandbox's containers."""

    def container_pids(self):
        daemon = self.runner.daemon
        found = set()
        for container in daemon.containers(self.layer().name):
            done = daemon.docker("inspect", "--format", "{{.State.Pid}}", container, check=False)
            pid = int(done.stdout or 0)
            if pid:
                found |= {pid} | descendants(pid)
        return found

    def traces(self):
        base = Traces(descendants(self.supervisor), set(), self.layer().name, str(self.runner.root))
        own = {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
        for pid in self.container_pids():
            base.pids.add(pid)
            for name in NAMESPACES:
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/ns/{name}")
                    if link not in own:
                        base.namespaces.add(link.split("[")[1].rstrip("]"))
        assert base.pids and base.namespaces
        return DockerTraces(base, self.runner.daemon)


class DockerTraces:
    def __init__(self, base, daemon):
        self.base, self.daemon = base, daemon
        self.pids, self.sandbox = base.pids, base.sandbox
        self.containers = daemon.containers(base.sandbox)

    def left(self):
        return self.base.left() + [f"container {name}" for name in self.daemon.containers(self.sandbox)]

    def cgroups_left(self):
        return [str(path) for name in self.containers for path in pathlib.Path("/sys/fs/cgroup").rglob(f"*{name}*")]

    def alive(self):
        return {pid for pid in self.pids if sandbox_runs.lives(pid)}


class DockerRunner(Runner):
    def __init__(self, daemon, image):
        super().__init__(engine_flags=["--engine", "docker", "--image", image])
        self.daemon = daemon
        self.image = image

    def start(self, line, flags=(), **kwargs):
        return DockerRunning(self, ["sh", "-c", line], flags, **kwargs)


@pytest.fixture(scope="module")
def daemon():
    with docker_daemon.daemon() as made:
        yield made


@pytest.fixture(scope="module")
def runner(daemon):
    made = DockerRunner(daemon, daemon.host_image())
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_left(daemon, runner):
    yield
    runner.stop_all()
    runner.cofferdam("reap")
    left = wait_until(lambda: not daemon.docker("ps", "--all", "--quiet", "--filter",
                                                "label=dev.cofferdam.sandbox").stdout, 10)
    assert left, "containers of a test are left"
    assert "/run/cofferdam/" not in pathlib.Path("/proc/self/mountinfo").read_text()


@pytest.fixture(autouse=True)
def find_workloads_by_container(monkeypatch):
    monkeypatch.setattr(engine_cases, "descendants_inside", lambda started: sorted(started.container_pids()))


class TestDockerEngine(EngineCases):
    def test_death_of_the_supervisor_ends_everything(self, runner, daemon):
        started = runner.start(SLEEP)
        started.wait_for_file()
        traces = started.traces()
        pause = daemon.docker("inspect", "--format", "{{.State.Pid}}", f"cofferdam-{traces.sandbox}-pause")
        os.kill(started.supervisor, signal.SIGKILL)
        started.process.wait(timeout=20)
        # Everything but the pause container, which does nothing and holds nothing, ends at once.
        assert wait_until(lambda: traces.alive() <= {int(pause.stdout)}, 10), traces.left()
        reaped = runner.cofferdam("reap")
        assert reaped.returncode == 0, text(reaped)
        assert b"containers" in reaped.stdout and b"mounts" in reaped.stdout, text(reaped)
        assert wait_until(lambda: not traces.left(), 10), traces.left()
        again = runner.cofferdam("reap")
        assert again.stdout.strip() == b"Nothing to reap.", text(again)

    def test_death_of_the_supervisor_ends_everything_with_fsproxy_stopped(self, runner, daemon):
        started = runner.start("touch ready; while :; do cat README >/dev/null; done")
        started.wait_for_file()
        traces = started.traces()
        os.kill(started.service("fsproxy"), signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(started.supervisor, signal.SIGKILL)
        started.process.wait(timeout=20)
        reaped = runner.cofferdam("reap")
        assert reaped.returncode == 0, text(reaped)
        assert wait_until(lambda: not traces.left(), 15), traces.left()

    def test_system_is_read_only_and_tmp_is_not(self, runner):
        done = runner.shell("for p in / /usr /etc /dev; do touch $p/x 2>/dev/null && echo wrote $p; done; "
                            "cp /bin/true /tmp/t && /tmp/t && touch /dev/shm/x /run/x /var/tmp/x /data/x && echo ok; "
                            "df -k --output=size /tmp /dev/shm /run /data")
        lines = done.stdout.decode().split()
        assert lines[0] == "ok", text(done)
        assert lines[-4:] == ["1048576", "65536", "16384", "1048576"], text(done)

    # --- docker's own

    @pytest.mark.parametrize("delay", [0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3])
    def test_death_of_the_supervisor_during_the_start_leaves_what_reap_finds(self, runner, daemon, delay):
        started = runner.start(SLEEP)
        time.sleep(delay)
        os.kill(started.supervisor, signal.SIGKILL)
        started.process.wait(timeout=20)
        layer = started.layer()
        deadline = time.monotonic() + 15
        while True:
            # The daemon may still carry out what it was asked for last.
            reaped = runner.cofferdam("reap")
            assert reaped.returncode == 0, text(reaped)
            if layer is None or time.monotonic() > deadline:
                break
            time.sleep(1)
            if not daemon.containers(layer.name):
                break
        if layer:
            assert not daemon.containers(layer.name)
            assert layer.name not in pathlib.Path("/proc/self/mountinfo").read_text()
            assert not (pathlib.Path("/run/cofferdam") / layer.name).exists()

    def test_workspace_is_copy_on_write_and_the_repository_is_not_touched(self, runner):
        before = (runner.workspace / "README").read_bytes()
        done = runner.shell("pwd; cat README; echo changed > README; echo new > made; rm -f README; stat -c %u . made")
        assert done.returncode == 0, text(done)
        assert done.stdout.split()[:3] == [str(runner.workspace).encode(), b"a", b"project"]
        owner = {int(word) for word in done.stdout.split()[3:]}
        assert len(owner) == 1 and owner.pop() >= 65536
        assert (runner.workspace / "README").read_bytes() == before
        assert not (runner.workspace / "made").exists()
        stat = runner.cofferdam("diff", "last", "--name-status").stdout
        assert b"made" in stat and b"README" in stat

    def test_the_images_variables_are_kept_but_no_proxy_and_not_its_user(self, runner):
        done = runner.shell("env; id -u")
        lines = done.stdout.decode().split()
        assert "FROM_IMAGE=yes" in lines and "PATH=/usr/bin:/bin" in lines and f"HOME={runner.home}" in lines, lines
        assert not [line for line in lines if "proxy" in line.lower() or "HOSTNAME" in line], lines
        assert int(lines[-1]) >= 65536

    def test_the_images_health_check_is_not_run(self, runner):
        done = runner.shell("sleep 2.5; ls /data")
        assert done.stdout == b"", text(done)

    def test_no_volume_is_made(self, runner, daemon):
        before = daemon.docker("volume", "ls", "--quiet").stdout
        started = runner.start(SLEEP)
        started.wait_for_file()
        during = daemon.docker("volume", "ls", "--quiet").stdout
        started.signal(signal.SIGTERM)
        started.finish()
        assert before == during == daemon.docker("volume", "ls", "--quiet").stdout

    def test_no_user_of_the_host_gets_into_the_mounts(self, runner):
        started = runner.start(SLEEP)
        started.wait_for_file()
        top = pathlib.Path("/run/cofferdam") / runner.layer().name
        assert (top / "mounts/workspace/README").exists()
        tried = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "cat", str(top / "mounts/workspace/README")],
                               capture_output=True, check=False)
        started.signal(signal.SIGTERM)
        started.finish()
        assert tried.returncode != 0 and tried.stdout == b"", text(tried)

    def test_gate_is_the_only_way_out(self, runner):
        started = runner.start(SLEEP)
        started.wait_for_file()
        pid = sorted(started.container_pids())[0]
        interfaces = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-o", "link", "show", "up"],
                                    capture_output=True, text=True, check=True).stdout.splitlines()
        routes = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "route", "show", "table", "local", "default"],
                                capture_output=True, text=True, check=True).stdout
        listening = subprocess.run(["nsenter", "-t", str(pid), "-n", "ss", "-Hltnu"], capture_output=True, text=True,
                                   check=False).stdout
        started.signal(signal.SIGTERM)
        started.finish()
        assert len(interfaces) == 1 and " lo:" in interfaces[0], interfaces
        assert "dev lo" in routes and "198.18.255.254" in routes, routes
        assert {line.split()[4] for line in listening.splitlines()} <= {
            f"{address}:{port}" for address in ("127.0.0.1", "[::1]") for port in (53, 3128, 3129)}, listening
        denied = runner.python("""
import socket
s = socket.create_connection(("127.0.0.1", 3128), 5)
s.sendall(b"GET http://denied.example/ HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n")
print(s.recv(4096).split(b"\\r\\n")[0].decode())
""")
        assert denied.stdout.startswith(b"HTTP/1.1 403"), text(denied)
        assert [e for e in runner.events() if e["event"] == "egress" and e["reason"] == "no_rule"]

    def test_memory_is_limited(self, runner):
        done = runner.python("b = bytearray(400 << 20); print(len(b))", ["--memory", "100MiB"])
        assert done.returncode == 137 and done.stdout == b"", text(done)
        assert [e for e in runner.events() if e["event"] == "limit" and e["limit"] == "memory"]

    def test_an_image_that_is_not_here_is_never_pulled(self, runner):
        other = DockerRunner(runner.daemon, "cofferdam-test/not-here:1")
        try:
            done = other.run(["true"])
        finally:
            other.close()
        assert done.returncode == 125 and b"docker pull" in done.stderr, text(done)

    def test_no_daemon_is_told_with_the_remedy(self, runner, monkeypatch):
        for host in ("unix:///nonexistent/docker.sock", "tcp://192.0.2.1:2375"):
            monkeypatch.setenv("DOCKER_HOST", host)
            done = runner.run(["true"])
            assert done.returncode == 125 and b"Remedy" in done.stderr and b"DOCKER_HOST" in done.stderr, text(done)

    def test_what_the_engine_makes_of_the_container_is_refused_when_it_differs(self, runner, daemon):
        """A runtime that weakens the container: the daemon's answers are changed on their way."""
        import docker_liar
        doctored = {
            "a capability": lambda body: body["HostConfig"].update(CapAdd=["NET_ADMIN"]),
            "a network": lambda body: body["HostConfig"].update(NetworkMode="none"),
            "a writable root": lambda body: body["HostConfig"].update(ReadonlyRootfs=False),
            "another user": lambda body: body.update(User="4321:4321"),
            "a mount": lambda body: body["HostConfig"]["Mounts"].append(
                {"Type": "bind", "Source": "/etc", "Target": "/mnt", "ReadOnly": True}),
            "no seccomp": lambda body: body["HostConfig"].update(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
            "no masks": lambda body: body["HostConfig"].update(MaskedPaths=[]),
            "the host's pids": lambda body: body["HostConfig"].update(PidMode="host"),
        }
        for name, change in doctored.items():
            with docker_liar.daemon(daemon.host, change, tells_the_truth=False) as host:
                done = run_with(runner, host, ["sh", "-c", "echo ran"])
            assert done.returncode == 125 and done.stdout == b"", f"{name}: {text(done)}"
            assert b"not what was planned" in done.stderr or b"ended before" in done.stderr, f"{name}: {text(done)}"

    def test_the_control_runs_through_the_same_detour(self, runner, daemon):
        import docker_liar
        with docker_liar.daemon(daemon.host, lambda body: None) as host:
            done = run_with(runner, host, ["sh", "-c", "echo ran"])
        assert (done.returncode, done.stdout) == (0, b"ran\n"), text(done)


def run_with(runner, host, argv):
    before = os.environ["DOCKER_HOST"]
    os.environ["DOCKER_HOST"] = host
    try:
        return runner.run(argv)
    finally:
        os.environ["DOCKER_HOST"] = before
