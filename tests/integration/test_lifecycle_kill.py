"""kill -9 of supervisors at random points and before every step: what dies leaves nothing behind after `reap`, and
what lives beside it in other instances goes on.

COFFERDAM_KILL_ROUNDS sets the number of rounds (10).
"""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

pytest.register_assert_rewrite("lifecycle_cases", "engine_cases", "sandbox_runs")

import docker_daemon
from engine_cases import text
from lifecycle_cases import cofferdam, command, execute, start_detached
from sandbox_runs import ORDINARY_USER, Runner, descendants, fuse_for_everybody, mentions, ordinary_user, \
    process_table, skip_unless_root, wait_until

ROUNDS = int(os.environ.get("COFFERDAM_KILL_ROUNDS", "10"))


@contextlib.contextmanager
def instances(way):
    """Three runners that share nothing but the machine, and the daemon (or None)."""
    skip_unless_root()
    with contextlib.ExitStack() as stack:
        daemon, flags, user = None, [], None
        if way == "docker":
            daemon = stack.enter_context(docker_daemon.daemon())
            flags = ["--engine", "docker", "--image", daemon.host_image()]
        elif way == "ordinary":
            ordinary_user()
            user = ORDINARY_USER
            stack.enter_context(fuse_for_everybody())
        runners = [Runner(user=user, engine_flags=flags) for _ in range(3)]
        try:
            yield runners, daemon
        finally:
            for runner in runners:
                for path in runner.layers():
                    if json.loads((path / "state.json").read_text())["state"] not in ("terminated", "failed"):
                        cofferdam(runner, "stop", "--force", path.name)
                runner.close()


@pytest.fixture(scope="module", params=["root", "ordinary", "docker"])
def three(request):
    with instances(request.param) as made:
        yield made


def left_of(runner, keep, daemon):
    """What is there of an instance beside the sandbox `keep`, as text lines."""
    mark = str(runner.root)
    state = json.loads((runner.home / ".local/state/cofferdam/sandboxes" / keep / "state.json").read_text())
    kept = {state["supervisor_pid"]} | descendants(state["supervisor_pid"])
    if daemon:
        for container in daemon.containers(keep):
            pid = int(daemon.docker("inspect", "--format", "{{.State.Pid}}", container).stdout)
            kept |= {pid} | descendants(pid)
    found = [f"process {pid}: {line}" for pid, (_, status, line) in process_table().items()
             if status not in "ZX" and pid not in kept and mentions(pid, mark)]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    for layer in runner.layers():
        if layer.name == keep:
            continue
        found += [f"mount {line}" for line in mounts.splitlines() if layer.name in line]
        # Groups of others come and go meanwhile, which Path.rglob() does not bear.
        found += [f"cgroup {at}/{layer.name}" for at, names, _ in os.walk("/sys/fs/cgroup")
                  if f"cofferdam-{layer.name}" in names]
        if os.path.exists(f"/run/cofferdam/{layer.name}"):
            found.append(f"directory /run/cofferdam/{layer.name}")
        if daemon:
            found += [f"container {name}" for name in daemon.containers(layer.name)]
    return found


def start(runner, **more):
    words = runner.command(["sh", "-c", "echo x > made; sleep 30"])
    if more:
        at = words.index(str(runner.programs / "cofferdam"))
        words[at:at] = [f"{key}={value}" for key, value in more.items()]
    return subprocess.Popen(words, cwd=runner.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def supervisor_of(runner, process):
    name = str(runner.programs / "cofferdam") + " run"
    table = process_table()
    return next((p for p in {process.pid} | descendants(process.pid)
                 if table.get(p, (0, "", ""))[2].startswith(name)), None)


def kill(runner, process):
    pid = supervisor_of(runner, process)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=30)


def clean_after_reap(runner, live, daemon):
    reaped = cofferdam(runner, "reap")
    assert reaped.returncode == 0, text(reaped)
    assert wait_until(lambda: not left_of(runner, live, daemon), 10), left_of(runner, live, daemon)
    states = [json.loads((p / "state.json").read_text())["state"] for p in runner.layers() if p.name != live]
    assert set(states) <= {"terminated", "failed"}, states


def test_kills_at_random_points_leave_nothing_and_harm_nobody(three):
    runners, daemon = three
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    live = [start_detached(runner) for runner in runners]
    for number in range(ROUNDS):
        victim = chance.randrange(3)
        runner = runners[victim]
        process = start(runner)
        time.sleep(chance.random() * (1.5 if daemon else 0.6))
        kill(runner, process)
        try:
            clean_after_reap(runner, live[victim], daemon)
            # Another instance's reap has nothing to do with it either.
            other = runners[(victim + 1) % 3]
            assert cofferdam(other, "reap").stdout.strip() == b"Nothing to reap."
            for each, sandbox in zip(runners, live):
                done = execute(each, sandbox, "true")
                assert done.returncode == 0, text(done)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}, round {number}: {fault}") from fault
    for each, sandbox in zip(runners, live):
        assert cofferdam(each, "stop", sandbox).returncode == 0


@pytest.mark.parametrize("fault", ["fail", "kill", "undo"])
def test_a_fault_at_every_step_leaves_nothing(three, fault):
    runners, daemon = three
    runner = runners[0]
    live = start_detached(runner)
    for step in range(20):
        words = runner.command(["sh", "-c", "exit 7"])
        at = words.index(str(runner.programs / "cofferdam"))
        words[at:at + 1] = [f"COFFERDAM_FAULT={fault}:{step}", str(runner.programs / "cofferdam-faulty")]
        done = subprocess.run(words, cwd=runner.workspace, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              check=False)
        if done.returncode == 7:
            break
        if fault == "fail":
            assert done.returncode == 125 and b"asked to fail" in done.stderr, text(done)
            assert wait_until(lambda: not left_of(runner, live, daemon), 5), (step, left_of(runner, live, daemon))
        clean_after_reap(runner, live, daemon)
    assert 5 < step < 20, "the walk did not reach every step"
    assert execute(runner, live, "true").returncode == 0
    assert cofferdam(runner, "stop", live).returncode == 0
