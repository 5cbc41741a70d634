"""What a manifest says of the workload's programs: limits of each, who it is, what may be executed, what the kernel is
asked; tools; and the checkpoint before a command. Each attack has a control that must succeed."""
import json
import os
import pty
import select
import subprocess
import time

import pytest

pytest.register_assert_rewrite("lifecycle_cases", "engine_cases", "sandbox_runs")

import docker_daemon
from engine_cases import text
from lifecycle_cases import cofferdam, command, events, execute, record, start_detached
from sandbox_runs import ORDINARY_USER, Runner, fuse_for_everybody, ordinary_user, skip_unless_root


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


def flags(runner, keys):
    """--manifest with a file that holds these keys."""
    path = runner.root / f"manifest-{abs(hash(keys))}.yaml"
    path.write_text("version: 1\n" + keys)
    path.chmod(0o644)
    return ["--manifest", str(path)]


# --- limits of each program

def test_open_files_are_limited_for_each_program(runner):
    line = ("import os\nheld = []\ntry:\n  while len(held) < 200: held.append(os.open('/dev/null', 0))\n"
            "except OSError as fault: print(len(held) < 40, fault.errno)\nelse: print('all')")
    assert runner.python(line, flags(runner, "process: {open_files: 40}\n")).stdout == b"True 24\n"
    assert runner.python(line, flags(runner, "process: {open_files: 400}\n")).stdout == b"all\n"


def test_the_limit_of_open_files_cannot_be_lifted_inside(runner):
    line = "import resource\ntry: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\nexcept ValueError: print('held')"
    assert runner.python(line, flags(runner, "process: {open_files: 40}\n")).stdout == b"held\n"
    assert runner.python(line.replace("80, 80", "20, 20") + "\nprint('lowered')",
                         flags(runner, "process: {open_files: 40}\n")).stdout == b"lowered\n"


@pytest.mark.parametrize("place", ["big", "$HOME/big", "/tmp/big", "/dev/shm/big"])
def test_a_file_does_not_grow_past_the_limit(runner, place):
    limit = flags(runner, "process: {file_size: 1MiB}\n")
    grown = runner.shell(f"head -c 1048577 /dev/zero > {place}; echo $?; stat -c %s {place}; rm {place}", limit)
    status, size = grown.stdout.split()
    assert status != b"0" and int(size) <= 1 << 20, text(grown)
    sparse = runner.shell(f"truncate -s 2M {place}; echo $?; rm -f {place}", limit)
    assert sparse.stdout != b"0\n", text(sparse)
    fits = runner.shell(f"head -c 1048576 /dev/zero > {place}; echo $?; rm {place}", limit)
    assert fits.stdout == b"0\n", text(fits)


def test_output_is_cut_with_a_mark_and_the_workload_does_not_wait(runner):
    limit = flags(runner, "process: {output: 64KiB}\n")
    flood = runner.shell("yes 0123456789 | head -c 30000000; echo ended > ended; exit 3", limit, timeout=50)
    assert flood.returncode == 3, text(flood)
    assert b"limit of output" in flood.stdout and len(flood.stdout) < 70000
    assert (runner.layer() / "upper/ended").read_text() == "ended\n"
    told = [e for e in runner.events() if e["event"] == "limit"]
    assert [(e["limit"], e["value"]) for e in told] == [("output", 65536)]
    fits = runner.shell("yes 0123456789 | head -c 60000", limit)
    assert len(fits.stdout) == 60000 and b"limit of output" not in fits.stdout


def test_limits_hold_for_phases_and_further_commands_too(runner):
    keys = ("process: {open_files: 50, output: 4KiB}\nphases: [{name: first, command: [sh, -c, 'ulimit -n > of-phase']}]\n")
    identity = start_detached(runner, flags=flags(runner, keys))
    try:
        assert execute(runner, identity, "cat", "of-phase").stdout == b"50\n"
        assert execute(runner, identity, "sh", "-c", "ulimit -n").stdout == b"50\n"
        flood = execute(runner, identity, "sh", "-c", "yes | head -c 200000")
        assert b"limit of output" in flood.stdout and len(flood.stdout) < 5000
    finally:
        assert cofferdam(runner, "stop", identity).returncode == 0
    assert execute(runner, identity, "sh", "-c", "ulimit -n").stdout == b"50\n"  # again, over the same layers


# --- what may be executed

ONLY = "process: {executables: [/bin/sh, /bin/cat, /bin/ls, /bin/mkdir, /bin/mv, /bin/rm, /bin/cp, /bin/chmod, /bin/touch]}\n"


def test_only_named_programs_are_executed(runner):
    only = flags(runner, ONLY)
    control = runner.shell("cat README; ls > /dev/null; echo $?", only)
    assert control.stdout == b"a project\n0\n", text(control)
    for attack in ("/usr/bin/id", "/usr/bin/env true", "cp /usr/bin/id ./cat; ./cat", "cp /usr/bin/id /tmp/cat; /tmp/cat",
                   "cp /usr/bin/id ~/ls; ~/ls", "cp /bin/ls here; ./here"):
        done = runner.shell(f"{attack}; echo status=$?", only)
        assert done.stdout == b"status=126\n", (attack, text(done))
    assert runner.run(["id"], only).returncode == 126
    assert runner.run(["id"]).returncode == 0


def test_files_move_between_directories_as_ever_where_programs_are_named(runner):
    done = runner.shell("mkdir -p a b && touch a/f && mv a/f b/f && ls b && rm -r a b", flags(runner, ONLY))
    assert (done.returncode, done.stdout) == (0, b"f\n"), text(done)


def test_executables_hold_for_further_commands(runner):
    identity = start_detached(runner, flags=flags(runner, ONLY))
    try:
        assert execute(runner, identity, "cat", "README").returncode == 0
        assert execute(runner, identity, "id").returncode == 126
    finally:
        assert cofferdam(runner, "stop", identity).returncode == 0
    assert execute(runner, identity, "id").returncode == 126


@pytest.mark.parametrize("keys, why", [
    ("process: {executables: [/tmp/x]}\n", "can be written inside"),
    ("process: {executables: [/]}\n", "is everything"),
    ("process: {executables: [/var]}\n", "/var holds /var/tmp"),
    ("process: {executables: [/usr/bin/there-is-no-such]}\n", "/usr/bin/there-is-no-such"),
    ("process: {capabilities: [SETUID]}\n", "neither engine"),
    ("process: {capabilities: [SYS_ADMIN]}\n", "not one of"),
    ("process: {user: nobody}\n", "not one of"),
    ("process: {seccomp: none}\n", "not one of"),
    ("process: {open_files: 0}\n", "above 0"),
])
def test_what_cannot_be_is_refused_with_the_reason(runner, keys, why):
    done = runner.shell("echo ran", flags(runner, keys))
    assert done.returncode == 125 and why in done.stderr.decode() and done.stdout == b"", text(done)


# --- who the workload is, and what it asks of the kernel

def test_root_is_a_name_without_rights(runner):
    as_root = flags(runner, "process: {user: root}\n")
    done = runner.shell("id -u; id -un; echo $USER; touch made; stat -c %u made; grep -c '^CapEff:.0*$' /proc/self/status", as_root)
    if runner.way == "docker":
        assert done.returncode == 125 and b"root of this machine" in done.stderr, text(done)
        return
    assert done.stdout == b"0\nroot\nroot\n0\n1\n", text(done)
    owner = os.stat(runner.layer() / "upper/made").st_uid
    assert owner == os.stat(runner.workspace / "README").st_uid
    for attack in ("mount -t tmpfs x /mnt", "chown 1 made", "echo x > /etc/passwd", "cat /etc/shadow", "chroot / true"):
        attacked = runner.shell(f"touch made; {attack} 2>/dev/null && echo passed; exit 0", as_root)
        assert attacked.stdout == b"", (attack, text(attacked))


def test_the_strict_profile_refuses_what_debuggers_call(runner):
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print(libc.ptrace(0, 0, 0, 0), os.strerror(ctypes.get_errno()))")
    strict = runner.python(code, flags(runner, "process: {seccomp: strict}\n"))
    assert strict.stdout == b"-1 Operation not permitted\n", text(strict)
    assert [e["syscall"] for e in runner.events() if e["event"] == "syscall"] == ["ptrace"]
    usual = runner.python(code)
    assert usual.stdout.startswith(b"0 "), text(usual)


def test_every_right_is_shown_with_where_it_came_from(runner):
    keys = "process: {open_files: 9, file_size: 1MiB, output: 1MiB, user: root, seccomp: strict, executables: [/usr/bin]}\n"
    path = flags(runner, keys)[1]
    shown = cofferdam(runner, "manifest", "show", "--effective", path).stdout.decode()
    for key in ("open_files", "file_size", "output", "user", "seccomp", "executables"):
        line = next(line for line in shown.splitlines() if f"process.{key}" in line)
        assert path in line, line


# --- tools

TOOLS = ("tools:\n  - {name: issues, server: tracker, version: '2'}\n  - {name: deploy, approval: ask}\n"
         "  - {name: wipe, approval: deny}\n")


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_a_tool_is_called_when_it_is_declared(runner, ended):
    identity = start_detached(runner, flags=flags(runner, TOOLS))
    try:
        if ended:
            assert cofferdam(runner, "stop", identity).returncode == 0
        done = execute(runner, identity, "sh", "-c", "echo called", flags=["--tool", "issues"])
        assert done.stdout == b"called\n", text(done)
        started = [e for e in events(runner, identity) if e["event"] == "exec_started"][-1]
        assert (started["tool.name"], started["tool.server"], started["tool.version"]) == ("issues", "tracker", "2")
        assert started["tool.digest"].startswith("sha256:") and started["tool.approval"] == "auto"
        for tool, reason in (("other", "tool_not_declared"), ("wipe", "tool_denied"), ("deploy", "approval_required")):
            refused = execute(runner, identity, "sh", "-c", "echo called", flags=["--tool", tool])
            assert refused.returncode == 125 and refused.stdout == b"", text(refused)
            told = [e for e in events(runner, identity) if e["event"] == "tool_refused"][-1]
            assert (told["tool.name"], told["verdict"], told["reason"]) == (tool, "deny", reason)
        unnamed = execute(runner, identity, "sh", "-c", "echo called", flags=["--tool", ""])
        assert unnamed.returncode == 125 and unnamed.stdout == b"", text(unnamed)
        started = [e for e in events(runner, identity) if e["event"] == "exec_started"]
        assert len(started) == 1, "what was refused was never started"
    finally:
        cofferdam(runner, "stop", identity)


@pytest.mark.parametrize("answer, status", [(b"y\n", 0), (b"n\n", 125)])
def test_a_tool_that_wants_approval_asks_whoever_is_at_the_terminal(runner, answer, status):
    identity = start_detached(runner, flags=flags(runner, TOOLS))
    try:
        master, slave = pty.openpty()
        with subprocess.Popen(command(runner, ["exec", "--tool", "deploy", identity, "--", "true"]), cwd=runner.workspace,
                              stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
            os.close(slave)
            seen, deadline = b"", time.monotonic() + 20
            while b"[y/N]" not in seen and time.monotonic() < deadline:
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)
            assert b"let tool deploy run true" in seen, seen
            os.write(master, answer)
            assert process.wait(timeout=30) == status
        os.close(master)
        approved = [e for e in events(runner, identity) if e["event"] == "exec_started" and "approval.id" in e]
        assert len(approved) == (1 if status == 0 else 0)
        if approved:
            assert "uid" in approved[0]["who"]
    finally:
        cofferdam(runner, "stop", identity)


# --- the state before a command

def checkpoints(runner, identity):
    return [e for e in events(runner, identity) if e["event"] == "checkpoint"]


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_what_a_command_destroys_can_be_had_back(runner, ended):
    identity = start_detached(runner)
    try:
        assert execute(runner, identity, "sh", "-c", "echo precious > p; mkdir d; echo x > d/f").returncode == 0
        if ended:
            assert cofferdam(runner, "stop", identity).returncode == 0
        assert execute(runner, identity, "sh", "-c", "rm -r p d README; echo other > p").returncode == 0
        if not ended:
            assert cofferdam(runner, "stop", identity).returncode == 0
        kept = checkpoints(runner, identity)
        assert [e["name"] for e in kept] == ["auto.exec", "auto.exec"] and all(e["verdict"] == "allow" for e in kept)
        started = [e for e in events(runner, identity) if e["event"] == "exec_started"]
        assert [e["checkpoint.id"] for e in started] == [e["checkpoint.id"] for e in kept]
        assert cofferdam(runner, "rollback", identity, kept[1]["checkpoint.id"]).returncode == 0
        back = execute(runner, identity, "sh", "-c", "cat p d/f README")
        assert back.stdout == b"precious\nx\na project\n", text(back)
        all_of_them = events(runner, identity)
        run = next(e for e in all_of_them if e["event"] == "run_started")["operation"]
        assert {e["parent"] for e in all_of_them if e["event"] == "exec_started"} == {run}
    finally:
        cofferdam(runner, "stop", identity)


def test_where_nothing_changed_no_further_checkpoint_is_made(runner):
    identity = start_detached(runner)
    try:
        for _ in range(3):
            assert execute(runner, identity, "true").returncode == 0
        assert execute(runner, identity, "touch", "new", flags=["--no-checkpoint"]).returncode == 0
        assert len(checkpoints(runner, identity)) == 1
        started = [e["checkpoint.id"] for e in events(runner, identity) if e["event"] == "exec_started"]
        assert len(set(started[:3])) == 1 and started[0] and started[3] is None
    finally:
        cofferdam(runner, "stop", identity)


def test_there_are_never_more_than_sixteen_and_they_are_folded(runner):
    if runner.way == "docker":  # the layers are the same: each round costs a second there
        identity, rounds = start_detached(runner), 17
    else:
        identity, rounds = start_detached(runner), 19
    try:
        for number in range(rounds):
            assert execute(runner, identity, "sh", "-c", f"echo {number} > f; touch g{number}").returncode == 0
        made = checkpoints(runner, identity)
        assert len([e for e in made if e["verdict"] == "allow"]) == 16
        assert "16 automatic checkpoints" in made[-1]["message"]
        assert cofferdam(runner, "stop", identity).returncode == 0
        assert execute(runner, identity, "true").returncode == 0
        folded = [e for e in events(runner, identity) if e["event"] == "squash"]
        assert [e["layers"] for e in folded] == [16]
        done = execute(runner, identity, "sh", "-c", "cat f; ls | grep -c ^g")
        assert done.stdout.split() == [str(rounds - 1).encode(), str(rounds).encode()], text(done)
    finally:
        cofferdam(runner, "stop", identity)


def test_a_merge_is_recorded_and_keeps_the_state_before_it(runner):
    done = runner.shell("echo merged > merged-file")
    assert done.returncode == 0, text(done)
    identity = runner.layer().name
    assert cofferdam(runner, "merge", "--dry-run", identity).returncode == 0
    assert not [e for e in events(runner, identity) if e["event"] == "merge_started"]
    assert cofferdam(runner, "merge", identity).returncode == 0
    assert (runner.workspace / "merged-file").read_text() == "merged\n"
    all_of_them = events(runner, identity)
    run = next(e for e in all_of_them if e["event"] == "run_started")
    started = next(e for e in all_of_them if e["event"] == "merge_started")
    ended = next(e for e in all_of_them if e["event"] == "merge_ended")
    kept = next(e for e in all_of_them if e["event"] == "checkpoint")
    assert kept["name"] == "auto.merge" and started["checkpoint.id"] == kept["checkpoint.id"]
    assert started["parent"] == run["operation"] != started["operation"] == ended["operation"]
    assert (ended["exit_status"], ended["written"], ended["taken"], ended["bytes"]) == (0, True, 1, 7)
    assert "sandbox.profile" in started and ended["duration_ms"] >= 0
    assert cofferdam(runner, "undo", identity).returncode == 0
    assert not (runner.workspace / "merged-file").exists()
    assert [e["exit_status"] for e in events(runner, identity) if e["event"] == "undo_ended"] == [0]


def test_the_end_of_a_run_tells_its_bytes(runner):
    done = runner.shell("printf 12345; printf 678 >&2")
    ended = [e for e in runner.events() if e["event"] == "run_ended"][-1]
    assert (ended["output_bytes"], ended["bytes_up"], ended["bytes_down"]) == (8, 0, 0), text(done)


def test_names_of_automatic_checkpoints_are_not_for_people(runner):
    runner.shell("touch x")
    refused = cofferdam(runner, "checkpoint", "last", "auto.exec")
    assert refused.returncode == 125 and b"automatic" in refused.stderr


# --- top

def test_top_tells_what_each_sandbox_does(runner):
    identity = start_detached(runner, ["sh", "-c", "head -c 100000 /dev/zero > f; nslookup denied.example || "
                                       "python3 -c 'import socket; socket.getaddrinfo(\"denied.example\", 443)'; sleep 1000"])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            listed = json.loads(cofferdam(runner, "top", "--json").stdout)["sandboxes"]
            mine = next(s for s in listed if s["id"] == identity)
            if mine["denied"] and mine["upper_bytes"] and mine["upper_bytes"] >= 100000:
                break
            time.sleep(0.2)
        assert mine["state"] == "running" and mine["connections"] == 0 and "denied.example" in mine["last_denied"]
        assert mine["upper_bytes_limit"] == 10 << 30
        table = cofferdam(runner, "top").stdout.decode()
        assert "\x1b" not in table and "denied.example" in table and identity[:16] in table
    finally:
        assert cofferdam(runner, "stop", identity).returncode == 0
    assert identity not in cofferdam(runner, "top", "--json").stdout.decode()
    ended = json.loads(cofferdam(runner, "top", "--all", "--json").stdout)["sandboxes"]
    assert next(s for s in ended if s["id"] == identity)["upper_bytes"] >= 100000


# --- how long a sandbox lives

def test_a_lifetime_bounds_all_lives_together(runner):
    identity = start_detached(runner, flags=flags(runner, "lifetime: {max: 12s}\n"))
    try:
        assert execute(runner, identity, "true").returncode == 0
        assert cofferdam(runner, "stop", identity).returncode == 0
        assert execute(runner, identity, "sh", "-c", "sleep 60").returncode == 124, "the second life ends with the first's time"
        refused = execute(runner, identity, "true")
        assert refused.returncode == 125 and b"lifetime" in refused.stderr, text(refused)
    finally:
        cofferdam(runner, "stop", identity)


def test_an_idle_sandbox_is_stopped_and_a_busy_one_is_not(runner):
    keys = flags(runner, "lifetime: {idle: 1500ms}\n")
    idle = start_detached(runner, flags=keys)
    busy = start_detached(runner, ["sleep", "1000"], flags=keys)
    try:
        deadline = time.monotonic() + 30
        while record(runner, idle)["state"] != "terminated" and time.monotonic() < deadline:
            time.sleep(0.2)
        assert record(runner, idle)["state"] == "terminated"
        assert [e["limit"] for e in events(runner, idle) if e["event"] == "limit"] == ["idle"]
        assert record(runner, busy)["state"] == "running"
    finally:
        cofferdam(runner, "stop", busy)


def test_prune_leaves_what_is_to_be_kept(runner):
    kept = runner.run(["true"], flags(runner, "lifetime: {keep: 1h}\n"))
    assert kept.returncode == 0, text(kept)
    identity = runner.layer().name
    assert runner.run(["true"]).returncode == 0
    other = runner.layer().name
    removed = json.loads(cofferdam(runner, "prune", "--json").stdout)["removed"]
    assert other in removed and identity not in removed
    assert identity in json.loads(cofferdam(runner, "prune", "--force", "--json").stdout)["removed"]


# --- who may ask the services

ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b"GET /stats HTTP/1.1\\r\\nHost: c\\r\\n\\r\\n"); print(s.recv(4096).split(b"\\r\\n")[0].decode())
"""


@pytest.mark.parametrize("name", ["fs-control", "control"])
def test_a_service_answers_its_owner_alone(runner, name):
    if runner.way == "ordinary":
        return  # root may ask whom it wants
    ordinary_user()
    identity = start_detached(runner)
    try:
        place = runner.home / ".local/state/cofferdam/sandboxes" / identity
        for path in (place, *list(place.parents)[:4]):  # were the directories ever open
            path.chmod(0o711)
        (place / name).chmod(0o666)
        def answer(*before):
            return subprocess.run([*before, "/usr/bin/python3", "-c", ASK, str(place / name)], capture_output=True, check=False,
                                  cwd="/", timeout=20).stdout.decode()
        assert answer().startswith("HTTP/1.1 200")
        # It closes without having read what was asked, so that its 403 may not arrive.
        assert answer("runuser", "-u", ORDINARY_USER, "--") in ("", "HTTP/1.1 403 Forbidden\n")
    finally:
        assert cofferdam(runner, "stop", identity).returncode == 0
