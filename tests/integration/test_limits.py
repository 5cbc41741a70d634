"""Limits that hold: bombs and floods are held where the manifest says, and the message names the limit."""
import json
import os
import subprocess
import time

import pytest

pytest.register_assert_rewrite("lifecycle_cases", "engine_cases", "sandbox_runs")

import docker_daemon
from engine_cases import text
from lifecycle_cases import cofferdam, events, record, start_detached
from sandbox_runs import ORDINARY_USER, Runner, fuse_for_everybody, ordinary_user, process_table, skip_unless_root, \
    wait_until

MANIFEST = """version: 1
workspace:
  quota: {bytes: 4MiB, entries: 200}
filesystem:
  tmp: {size: 4MiB}
  shm: {size: 2MiB}
"""


@pytest.fixture(scope="module", params=["root", "ordinary", "docker"])
def runner(request):
    skip_unless_root()
    if request.param == "docker":
        with docker_daemon.daemon() as daemon:
            made = Runner(engine_flags=["--engine", "docker", "--image", daemon.host_image()])
            made.way = request.param
            yield made
            made.close()
        return
    user = None
    if request.param == "ordinary":
        ordinary_user()
        user = ORDINARY_USER
    with fuse_for_everybody():
        made = Runner(user=user)
        made.way = request.param
        yield made
        made.close()


@pytest.fixture
def small(runner):
    path = runner.root / "small.yaml"
    path.write_text(MANIFEST)
    return ["--manifest", str(path)]


def sleepers(mark):
    return [pid for pid, (_, state, line) in process_table().items() if state not in "ZX" and mark in line]


def test_fork_bomb_is_held_and_named(runner):
    done = runner.python("""
import os, signal
count = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            signal.pause()
        count += 1
except BlockingIOError:
    print("held", count < 60)
""", ["--pids", "50"])
    assert done.stdout == b"held True\n", text(done)
    if runner.way != "ordinary":  # RLIMIT_NPROC tells nobody
        assert b"limit hit: pids" in done.stderr, text(done)


def test_thousands_of_short_lived_processes_end(runner):
    done = runner.shell("i=0; while [ $i -lt 1500 ]; do true & i=$((i+1)); [ $((i % 20)) -eq 0 ] && wait; done; wait; echo end",
                        ["--pids", "60"])
    assert done.stdout == b"end\n", text(done)


def test_memory_bomb_is_held_and_named(runner):
    code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    done = runner.python(code, ["--memory", "64MiB"])
    if runner.way == "ordinary" and done.returncode == 125:
        assert b"memory" in done.stderr and b"delegated" in done.stderr, text(done)  # refused, with the remedy
        return
    assert done.returncode in (1, 137), text(done)
    assert b"MemoryError" in done.stderr or b"limit hit: memory" in done.stderr, text(done)


@pytest.mark.parametrize("place, megabytes", [("big", 4), ("$HOME/big", 4), ("/tmp/big", 4), ("/dev/shm/big", 2)])
def test_disk_bomb_is_held(runner, small, place, megabytes):
    done = runner.shell(f"head -c 20000000 /dev/zero > {place}; echo status=$?; stat -c %s {place}", small)
    lines = done.stdout.decode().split()
    assert lines[0] != "status=0" and int(lines[1]) <= megabytes << 20, text(done)
    assert b"No space left" in done.stderr or b"quota" in done.stderr.lower(), text(done)
    if not place.startswith("/"):
        named = [e for e in runner.events() if e.get("reason") == "quota_exceeded"]
        assert named, "nothing says that the quota was reached"


def test_inode_bomb_is_held_and_named(runner, small):
    done = runner.python("""
import os
try:
    for i in range(2000):
        open(f"f{i}", "w").close()
    print("made all")
except OSError as fault:
    print("held", i <= 200)
""", small)
    assert done.stdout == b"held True\n", text(done)
    assert [e for e in runner.events() if e.get("reason") == "quota_exceeded"]


def test_descriptor_exhaustion_is_the_workloads_own(runner):
    done = runner.python("""
import os
held = []
try:
    while len(held) < 3000000:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as fault:
    print("held", fault.errno == 24)
for fd in held: os.close(fd)
print(open("README").read().strip())
""", timeout=120)
    assert done.stdout == b"held True\na project\n", text(done)


@pytest.mark.parametrize("line", [
    "sleep 3391",
    "trap '' TERM HUP INT; while :; do sleep 3391 & wait; done",
    "python3 -c 'import os,time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\ntime.sleep(3391)' & sleep 3391",
])
def test_nothing_outlives_the_deadline(runner, line):
    manifest = runner.root / "grace.yaml"
    manifest.write_text("version: 1\nprocess: {timeout: 700ms, grace: 500ms}\n")
    begin = time.monotonic()
    done = runner.shell(line, ["--manifest", str(manifest)])
    assert done.returncode == 124 and b"limit hit: timeout" in done.stderr, text(done)
    assert time.monotonic() - begin < 30
    assert not sleepers("3391")


def test_output_flood_is_cut_with_a_mark_and_blocks_nobody(runner):
    """Of a detached sandbox, whose output is a file on the user's disk."""
    identity = start_detached(runner, ["sh", "-c", "head -c 40000000 /dev/zero; echo done > finished; sleep 100"])
    layer = runner.home / ".local/state/cofferdam/sandboxes" / identity
    try:
        assert wait_until(lambda: (layer / "upper/finished").exists(), 60), "the workload was blocked"
        assert wait_until(lambda: b"limit of output" in (layer / "output").read_bytes()[-200:], 20)
        assert (layer / "output").stat().st_size < (17 << 20)
        assert [e for e in events(runner, identity) if e["event"] == "limit" and e["limit"] == "output"]
    finally:
        cofferdam(runner, "stop", "--force", identity)
    assert record(runner, identity)["state"] == "terminated"


def test_a_zip_bomb_meets_the_quota(runner, small):
    done = runner.python("""
import io, zipfile
data = io.BytesIO()
with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
    for i in range(8):
        archive.writestr(f"zeros{i}", bytes(2 << 20))
try:
    zipfile.ZipFile(data).extractall(".")
    print("all")
except OSError as fault:
    print("held", fault.errno in (28, 122))
""", small)
    assert done.stdout == b"held True\n", text(done)
