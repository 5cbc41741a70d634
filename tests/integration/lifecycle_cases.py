"""Detached sandboxes, further commands, stop, prune: what every engine must do.

A test class inherits LifecycleCases and has a fixture `runner`.
"""
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import threading
import time

import pytest

from engine_cases import text
from sandbox_runs import descendants, process_table, wait_until


def start_detached(runner, argv=(), flags=()):
    """`run -d`; the id of the sandbox."""
    words = runner.command(list(argv), ["-d", *flags])
    if not argv:
        words = words[:-1]  # no "--"
    done = subprocess.run(words, cwd=runner.workspace, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                          check=False)
    assert done.returncode == 0, text(done)
    identity = done.stdout.decode().strip()
    assert len(identity) == 16, text(done)
    return identity


def record(runner, identity):
    return json.loads((runner.home / ".local/state/cofferdam/sandboxes" / identity / "state.json").read_text())


def events(runner, identity):
    path = runner.home / ".local/state/cofferdam/sandboxes" / identity / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def command(runner, words):
    """A command of ours as the runner's user, as words for subprocess."""
    full = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={runner.home}", "TERM=xterm"]
    if os.environ.get("DOCKER_HOST"):
        full.append("DOCKER_HOST=" + os.environ["DOCKER_HOST"])
    full += [str(runner.programs / "cofferdam"), *words]
    return ["runuser", "-u", runner.user, "--", *full] if runner.user else full


def cofferdam(runner, *words, timeout=60, **kwargs):
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command(runner, words), cwd=runner.workspace, capture_output=True, check=False,
                          timeout=timeout, **kwargs)


def execute(runner, identity, *argv, flags=(), **kwargs):
    return cofferdam(runner, "exec", *flags, identity, "--", *argv, **kwargs)


class LifecycleCases:
    @pytest.fixture(autouse=True)
    def all_end(self, runner):
        yield
        for path in runner.layers():
            state = json.loads((path / "state.json").read_text())
            if state["state"] not in ("terminated", "failed"):
                cofferdam(runner, "stop", "--force", state["id"])
        runner.stop_all()

    @pytest.fixture
    def sandbox(self, runner):
        return start_detached(runner)

    # --- detached, stopped

    def test_a_detached_sandbox_runs_until_it_is_stopped(self, runner):
        identity = start_detached(runner, ["sh", "-c", "echo out; echo err >&2; echo made > made; exit 3"])
        layer = runner.home / ".local/state/cofferdam/sandboxes" / identity
        assert wait_until(lambda: [e for e in events(runner, identity) if e["event"] == "command_ended"])
        assert record(runner, identity)["state"] == "running"
        assert set((layer / "output").read_text().split()) == {"out", "err"}
        shown = cofferdam(runner, "log", "--output", identity)
        assert set(shown.stdout.split()) == {b"out", b"err"}, text(shown)
        supervisor = record(runner, identity)["supervisor_pid"]
        inside = descendants(supervisor)
        assert len(inside) >= 3
        done = cofferdam(runner, "stop", identity)
        assert done.returncode == 0 and done.stdout.startswith(b"stopped"), text(done)
        ended = record(runner, identity)
        assert (ended["state"], ended["exit_status"]) == ("terminated", 3)
        table = process_table()
        assert not [pid for pid in inside | {supervisor} if table.get(pid, (0, "Z", ""))[1] not in "ZX"]
        diff = cofferdam(runner, "diff", identity, "--name-status")
        assert b"made" in diff.stdout, text(diff)

    def test_a_detached_command_that_cannot_start_is_told(self, runner):
        done = subprocess.run(runner.command([], ["-d", "--workspace", "/no/such"])[:-1], cwd=runner.workspace,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        assert done.returncode == 125 and done.stdout == b"" and b"cofferdam: " in done.stderr, text(done)

    def test_stop_ends_a_command_that_ignores_it(self, runner):
        identity = start_detached(runner, ["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 0.2; done"])
        begin = time.monotonic()
        done = cofferdam(runner, "stop", "--force", identity)
        assert done.returncode == 0, text(done)
        assert time.monotonic() - begin < 20
        assert record(runner, identity)["state"] == "terminated"

    def test_many_stop_at_once(self, runner):
        all_of_them = [start_detached(runner, ["sh", "-c", "trap 'sleep 2; exit' TERM; while :; do sleep 0.1; done"])
                       for _ in range(4)]
        time.sleep(0.5)
        begin = time.monotonic()
        done = cofferdam(runner, "stop", *all_of_them)
        took = time.monotonic() - begin
        assert done.returncode == 0 and done.stdout.count(b"stopped") == 4, text(done)
        assert {record(runner, i)["state"] for i in all_of_them} == {"terminated"}
        assert took < 7, f"one after the other: {took}"

    def test_stop_of_a_foreground_run(self, runner):
        started = runner.start("touch ready; while :; do sleep 0.2; done")
        started.wait_for_file()
        done = cofferdam(runner, "stop", "last")
        assert done.returncode == 0, text(done)
        status, err = started.finish()
        assert status == 143, err

    def test_stop_of_one_that_has_ended_is_no_error(self, runner, sandbox):
        assert cofferdam(runner, "stop", sandbox).returncode == 0
        again = cofferdam(runner, "stop", sandbox)
        assert again.returncode == 0 and b"had ended" in again.stdout, text(again)

    def test_stop_cleans_up_after_a_dead_supervisor(self, runner, sandbox):
        os.kill(record(runner, sandbox)["supervisor_pid"], signal.SIGKILL)
        done = cofferdam(runner, "stop", sandbox)
        assert done.returncode == 0, text(done)
        assert record(runner, sandbox)["state"] == "failed"
        assert record(runner, sandbox)["resources"] == {}

    def test_time_limit_ends_a_detached_sandbox(self, runner):
        identity = start_detached(runner, ["sleep", "100"], ["--timeout", "1s"])
        assert wait_until(lambda: record(runner, identity)["state"] == "terminated", 20)
        assert record(runner, identity)["exit_status"] == 124

    # --- further commands

    @pytest.mark.parametrize("argv, status", [
        (["true"], 0), (["sh", "-c", "exit 7"], 7), (["no-such-program"], 127), (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 137)])
    def test_exit_status_of_a_further_command(self, runner, sandbox, argv, status):
        done = execute(runner, sandbox, *argv)
        assert done.returncode == status, text(done)

    def test_a_further_command_is_confined_like_the_first(self, runner, sandbox):
        done = execute(runner, sandbox, "sh", "-c", "cat /proc/self/status; ls -l /proc/self/fd; id -u")
        status = dict(line.split(":", 1) for line in done.stdout.decode().splitlines() if ":\t" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name], 16) == 0, name
        assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
        numbers = sorted(int(line.split(" -> ")[0].split()[-1]) for line in done.stdout.decode().splitlines()
                         if " -> " in line)
        assert numbers == [0, 1, 2, 3], text(done)  # 3 is ls's own
        own = execute(runner, sandbox, "sh", "-c", "readlink /proc/1/ns/pid /proc/self/ns/net; ls /proc/self/ns")
        assert own.returncode in (0, 1), text(own)

    def test_commands_share_namespaces_and_layers(self, runner, sandbox):
        first = execute(runner, sandbox, "sh", "-c", "echo one > shared; readlink /proc/self/ns/net /proc/self/ns/pid")
        second = execute(runner, sandbox, "sh", "-c", "cat shared; readlink /proc/self/ns/net /proc/self/ns/pid")
        assert second.stdout == b"one\n" + first.stdout and len(first.stdout) > 20, text(second)
        assert not (runner.workspace / "shared").exists()

    def test_stdin_of_a_further_command(self, runner, sandbox):
        data = os.urandom(1 << 20)
        done = subprocess.run(command(runner, ["exec", "-i", sandbox, "--", "cat"]), cwd=runner.workspace, input=data,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == 0 and done.stdout == data, done.stderr
        without = subprocess.run(command(runner, ["exec", sandbox, "--", "cat"]), cwd=runner.workspace, input=data,
                                 capture_output=True, timeout=60, check=False)
        assert (without.returncode, without.stdout) == (0, b""), without.stderr

    def test_output_of_a_further_command_is_not_lost(self, runner, sandbox):
        done = execute(runner, sandbox, "sh", "-c", "head -c 3000000 /dev/zero; echo end; echo err >&2; sleep 100 &")
        assert done.returncode == 0 and len(done.stdout) == 3000004 and b"err\n" in done.stderr

    def test_terminals_of_further_commands(self, runner, sandbox):
        for _ in range(2):
            master, slave = pty.openpty()
            process = subprocess.Popen(command(runner, ["exec", "-it", sandbox, "--", "sh", "-c",
                                                        "test -t 0 && test -t 1 && read line && echo got=$line=$(tty)"]),
                                       cwd=runner.workspace, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
            os.close(slave)
            time.sleep(0.5)
            os.write(master, b"typed\n")
            assert process.wait(30) == 0, process.stderr.read()
            process.stderr.close()
            seen = b""
            while b"got=typed=/dev/pts/" not in seen and select.select([master], [], [], 10)[0]:
                seen += os.read(master, 4096)
            assert b"got=typed=/dev/pts/" in seen, seen
            os.close(master)

    def test_time_limit_of_a_further_command(self, runner, sandbox):
        done = execute(runner, sandbox, "sleep", "100", flags=["--timeout", "500ms"])
        assert done.returncode == 124 and b"time limit" in done.stderr, text(done)
        assert record(runner, sandbox)["state"] == "running"
        assert execute(runner, sandbox, "true").returncode == 0

    def test_a_further_command_whose_caller_dies_ends(self, runner, sandbox):
        process = subprocess.Popen(command(runner, ["exec", sandbox, "--", "sh", "-c", "touch ready; exec sleep 3317"]),
                                   cwd=runner.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        layer = runner.home / ".local/state/cofferdam/sandboxes" / sandbox
        assert wait_until(lambda: (layer / "upper/ready").exists(), 20)

        def sleeps():
            return [p for p, (_, state, line) in process_table().items() if line == "sleep 3317" and state != "Z"]
        assert sleeps()
        for pid in {process.pid} | descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert wait_until(lambda: not sleeps(), 15)
        assert execute(runner, sandbox, "true").returncode == 0

    def test_interrupt_reaches_a_further_command(self, runner, sandbox):
        process = subprocess.Popen(command(runner, ["exec", sandbox, "--", "sh", "-c",
                                                    "trap 'echo int; exit 9' INT; touch ready; while :; do sleep 0.1; done"]),
                                   cwd=runner.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        layer = runner.home / ".local/state/cofferdam/sandboxes" / sandbox
        assert wait_until(lambda: (layer / "upper/ready").exists(), 20)
        pid = next(p for p in {process.pid} | descendants(process.pid)
                   if process_table()[p][2].startswith(str(runner.programs / "cofferdam")))
        os.kill(pid, signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (9, b"int\n")

    def test_each_further_command_is_an_operation(self, runner, sandbox):
        execute(runner, sandbox, "sh", "-c", "exit 5")
        execute(runner, sandbox, "true")
        all_of_them = events(runner, sandbox)
        run = next(e for e in all_of_them if e["event"] == "run_started")
        started = [e for e in all_of_them if e["event"] == "exec_started"]
        ended = {e["operation"]: e for e in all_of_them if e["event"] == "exec_ended"}
        assert len({e["operation"] for e in started} | {run["operation"]}) == 3
        assert all(e["parent"] == run["operation"] and e["manifest"] == run["manifest"] for e in started)
        assert [ended[e["operation"]]["exit_status"] for e in started] == [5, 0]
        assert all("sandbox.profile" in e and "network.mode" in e for e in [run, *started])

    def test_stop_ends_further_commands(self, runner, sandbox):
        process = subprocess.Popen(command(runner, ["exec", sandbox, "--", "sh", "-c", "touch ready; sleep 100"]),
                                   cwd=runner.workspace, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        layer = runner.home / ".local/state/cofferdam/sandboxes" / sandbox
        assert wait_until(lambda: (layer / "upper/ready").exists(), 20)
        begin = time.monotonic()
        assert cofferdam(runner, "stop", sandbox).returncode == 0
        assert time.monotonic() - begin < 15
        _, err = process.communicate(timeout=20)
        assert process.returncode == 143 and b"stopped" in err, err

    # --- ended sandboxes

    def test_a_command_in_an_ended_sandbox_finds_its_layers(self, runner):
        done = runner.shell("echo one > made; echo two > ~/in-home; rm README", ["--env", "ONCE=secret-value"])
        assert done.returncode == 0, text(done)
        identity = runner.layer().name
        again = execute(runner, identity, "sh", "-c", "cat made ~/in-home; test ! -e README && echo ONCE=$ONCE; echo three >> made")
        assert again.returncode == 0 and again.stdout == b"one\ntwo\nONCE=\n", text(again)
        assert b"ONCE" in again.stderr  # told that it is not kept
        assert record(runner, identity)["state"] == "terminated"
        patch = cofferdam(runner, "export", identity)
        assert b"+one\n+three\n" in patch.stdout and b"deleted file" in patch.stdout, text(patch)
        assert "secret-value" not in "".join(p.read_text(errors="replace") for p in runner.layer().glob("*.json*"))

    def test_rights_of_an_ended_sandbox_are_those_that_it_had(self, runner):
        (runner.workspace / ".env").write_text("SECRET=1\n")
        (runner.workspace / "kept").write_text("x\n")
        runner.shell("true", ["--hide", "kept", "--pids", "77"])
        identity = runner.layer().name
        again = execute(runner, identity, "sh", "-c", "cat .env kept; id; cat /proc/self/status")
        assert b"SECRET" not in again.stdout and b"CapEff:\t0000000000000000" in again.stdout, text(again)
        assert again.stderr.count(b"No such file") == 2, text(again)
        (runner.workspace / ".env").unlink()

    def test_nothing_starts_again_after_its_manifest_has_expired(self, runner):
        ends = time.time() + 8
        manifest = runner.root / "expires.yaml"
        manifest.write_text("version: 1\nexpiry: '" + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends)) + "'\n")
        done = runner.shell("true", ["--manifest", str(manifest)])
        assert done.returncode == 0, text(done)
        identity = runner.layer().name
        time.sleep(max(0, ends - time.time()) + 0.1)
        again = execute(runner, identity, "true")
        assert again.returncode == 125 and b"expired" in again.stderr, text(again)

    def test_commands_at_once_in_an_ended_sandbox_do_not_race(self, runner):
        runner.shell("echo base > made")
        identity = runner.layer().name
        results = []
        threads = [threading.Thread(target=lambda: results.append(execute(runner, identity, "sh", "-c", "cat made; sleep 0.5")))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One of them supervises; when it ends, whoever still runs in it is ended with it (137) or begins anew.
        assert {r.returncode for r in results} <= {0, 137}, [text(r) for r in results]
        assert [r for r in results if r.returncode == 0 and r.stdout == b"base\n"]
        assert record(runner, identity)["state"] == "terminated"

    # --- prune and rm

    def test_prune_keeps_what_is_unmerged_or_young_or_runs(self, runner, sandbox):
        runner.shell("echo x > changed")
        changed = runner.layer().name
        runner.shell("true")
        unchanged = runner.layer().name
        young = cofferdam(runner, "prune", "--older", "1h")
        assert young.returncode == 0 and unchanged in [p.name for p in runner.layers()], text(young)
        done = cofferdam(runner, "prune", "--json")
        answer = json.loads(done.stdout)
        assert unchanged in answer["removed"] and changed in [k["id"] for k in answer["kept"]], text(done)
        assert {changed, sandbox} <= {p.name for p in runner.layers()}
        forced = cofferdam(runner, "prune", "--force")
        assert forced.returncode == 0, text(forced)
        assert [p.name for p in runner.layers()] == [sandbox]

    def test_rm_of_a_running_sandbox_needs_force(self, runner, sandbox):
        refused = cofferdam(runner, "rm", sandbox)
        assert refused.returncode != 0 and b"cofferdam stop" in refused.stderr, text(refused)
        done = cofferdam(runner, "rm", "--force", sandbox)
        assert done.returncode == 0, text(done)
        assert sandbox not in [p.name for p in runner.layers()]
