"""`cofferdam verify` on each engine: every attack held, every control works; and it says so when one is not."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

pytest.register_assert_rewrite("lifecycle_cases", "engine_cases", "sandbox_runs")

import docker_daemon
import test_habits
from engine_cases import text
from lifecycle_cases import cofferdam, command
from sandbox_runs import BIN, ORDINARY_USER, Runner, descendants, fuse_for_everybody, ordinary_user, process_table, \
    skip_unless_root, wait_until


@pytest.fixture(scope="module", params=["root", "ordinary", "docker"])
def way(request):
    skip_unless_root()
    if request.param == "docker":
        with docker_daemon.daemon() as daemon:
            made = Runner()
            yield made, ["--engine", "docker", "--image", daemon.busybox_image]
            made.close()
        return
    user = None
    if request.param == "ordinary":
        ordinary_user()
        user = ORDINARY_USER
    with fuse_for_everybody():
        made = Runner(user=user)
        yield made, []
        made.close()


def test_every_attack_is_stopped_and_every_control_works(way):
    runner, flags = way
    done = cofferdam(runner, "verify", "--json", *flags, timeout=300)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["held"], [f for f in answer["findings"] if f["verdict"] not in ("held", "not tried")]
    assert answer["attacks"] >= 40 and answer["not_tried"] <= 2, answer
    assert {f["area"] for f in answer["findings"]} == {"files", "processes", "network", "kernel", "secrets", "lifecycle"}
    schema = json.loads((test_habits.SCHEMAS / "verify.json").read_text())
    assert test_habits.faults(answer, schema) == []
    events = {f["attack"]: f["event"] for f in answer["findings"]}
    assert events["read a hidden file"] == "fsproxy hidden"
    assert events["mount"].startswith("engine syscall mount")
    assert events["change the system"] == "kernel"
    assert runner.layers() == [], "it left sandboxes in the user's own state"


def test_the_table_is_for_people(way):
    runner, flags = way
    done = cofferdam(runner, "verify", *flags, timeout=300)
    assert done.returncode == 0, text(done)
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("AREA") and "0 broken, 0 whose control failed" in lines[-1], text(done)


def test_a_boundary_that_is_open_is_told():
    """The user's manifest makes a hidden file visible: verify says that this attack passes."""
    skip_unless_root()
    runner = Runner()
    try:
        manifest = runner.root / "open.yaml"
        manifest.write_text("version: 1\nworkspace:\n  writable: ['.git/hooks/**']\n")
        done = cofferdam(runner, "verify", "--json", "--manifest", str(manifest), timeout=300)
        answer = json.loads(done.stdout)
        assert done.returncode == 1 and not answer["held"], text(done)
        assert [f["attack"] for f in answer["findings"] if f["verdict"] == "BROKEN"] == ["plant a git hook"]
    finally:
        runner.close()


def test_a_sandbox_that_cannot_be_made_is_no_success():
    skip_unless_root()
    runner = Runner()
    try:
        done = cofferdam(runner, "verify", "--manifest", "/no/such/manifest")
        assert done.returncode == 125 and done.stderr.startswith(b"cofferdam: "), text(done)
    finally:
        runner.close()


def test_what_a_killed_verify_left_is_reaped(way):
    runner, flags = way
    marks = runner.home / ".local/state/cofferdam/verify"
    words = command(runner, ["verify", "--json", *flags])
    with subprocess.Popen(words, cwd=runner.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        def runs():
            return [path for mark in marks.glob("*") for path in
                    pathlib.Path(mark.read_text().strip()).glob("state/cofferdam/sandboxes/*/state.json")
                    if '"running"' in path.read_text()]
        assert wait_until(runs, 60)
        [mark] = marks.glob("*")
        place = pathlib.Path(mark.read_text().strip())
        assert b"removed" not in cofferdam(runner, "reap").stdout and place.exists(), "it is at work"
        victim = next(p for p in {process.pid} | descendants(process.pid)
                      if process_table()[p][2].startswith(f"{runner.programs}/cofferdam verify"))
        os.kill(victim, signal.SIGKILL)
        process.wait(timeout=20)
    done = cofferdam(runner, "reap")
    for _ in range(20):  # what dies with it may take a moment
        if not place.exists():
            break
        time.sleep(0.5)
        done = cofferdam(runner, "reap")
    assert done.returncode == 0 and not place.exists() and not list(marks.glob("*")), text(done)
    assert not [entry for entry in process_table().values() if place.name in entry[2] and entry[1] not in "ZX"]
