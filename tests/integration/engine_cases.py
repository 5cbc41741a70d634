"""What every engine must do: exit codes, stdio, signals, death of each part, nothing left behind.

A test class inherits EngineCases and has a fixture `runner`.
"""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from sandbox_runs import lives, wait_until

SLEEP = "touch ready; while :; do sleep 0.2; done"


def text(done):
    return f"exit {done.returncode}\n{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}"


class EngineCases:
    @pytest.fixture(autouse=True)
    def nothing_runs_on(self, runner):
        yield
        runner.stop_all()

    # --- how it ends

    @pytest.mark.parametrize("argv, status", [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["no-such-program"], 127),
        (["/no/such/program"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
    ])
    def test_exit_status_is_the_workloads(self, runner, argv, status):
        done = runner.run(argv)
        assert done.returncode == status, text(done)

    def test_time_limit_ends_it_with_124(self, runner):
        begin = time.monotonic()
        done = runner.shell("sleep 60", ["--timeout", "700ms"])
        assert done.returncode == 124, text(done)
        assert time.monotonic() - begin < 20
        assert [e for e in runner.events() if e["event"] == "limit" and e["limit"] == "timeout"]

    def test_background_processes_end_with_the_command(self, runner):
        begin = time.monotonic()
        done = runner.shell("sleep 300 & echo started")
        assert done.returncode == 0 and done.stdout == b"started\n", text(done)
        assert time.monotonic() - begin < 20

    # --- stdin, stdout, stderr

    def test_stdin_is_empty_without_i(self, runner):
        done = subprocess.run(runner.command(["cat"]), cwd=runner.workspace, input=b"secret", capture_output=True,
                              timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, b""), text(done)

    def test_stdin_arrives_whole_with_i(self, runner):
        data = os.urandom(3 << 20)
        done = subprocess.run(runner.command(["cat"], ["-i"]), cwd=runner.workspace, input=data, capture_output=True,
                              timeout=120, check=False)
        assert done.returncode == 0 and done.stdout == data, f"{len(done.stdout)} of {len(data)} bytes"

    def test_large_output_is_not_lost(self, runner):
        done = runner.shell("head -c 20000000 /dev/zero; echo end; echo err >&2", timeout=120)
        assert done.returncode == 0
        assert len(done.stdout) == 20000004 and done.stdout.endswith(b"end\n")
        assert b"err\n" in done.stderr

    def test_slow_reader_loses_nothing(self, runner):
        started = runner.start("seq 1 300000")
        time.sleep(3)
        started.finish(timeout=60)
        assert started.out == b"".join(b"%d\n" % i for i in range(1, 300001))

    def test_closed_stdout_ends_the_writer(self, runner):
        started = runner.start("yes")
        assert started.process.stdout.read(2) == b"y\n"
        started.process.stdout.close()
        assert wait_until(lambda: started.process.poll() is not None, 30), "still running"

    def test_stdout_cannot_be_reopened_as_the_users_file(self, runner, tmp_path):
        target = tmp_path / "out"
        with open(target, "wb") as out:
            out.write(b"before\n")
            out.flush()
            subprocess.run(runner.command(["sh", "-c", "echo one; : > /proc/self/fd/1; echo two"]),
                           cwd=runner.workspace, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                           timeout=60, check=False)
        assert target.read_bytes().startswith(b"before\none\n")

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_closed_standard_descriptors_lead_nowhere_else(self, runner, closed):
        command = runner.command(["sh", "-c", "echo forged-line; echo forged-line >&2; touch ran"], ["-i"])
        subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', *command], cwd=runner.workspace, timeout=60,
                       capture_output=True, check=False)
        state = [path for path in runner.layer().iterdir() if path.is_file() and not path.name.startswith("meta")]
        assert runner.layer().joinpath("events.jsonl") in state
        for path in state:
            assert not path.read_bytes().startswith(b"forged-line"), path
            assert b"\nforged-line" not in path.read_bytes(), path
        assert runner.events()

    def test_terminal_with_t(self, runner):
        done = subprocess.run(["script", "-qec", " ".join(
            f"'{word}'" for word in runner.command(["sh", "-c", "tty && test -t 0 && test -t 2 && echo is-a-tty; exit 4"],
                                                   ["-i", "-t"])), "/dev/null"],
                              cwd=runner.workspace, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
        assert b"/dev/pts/" in done.stdout and b"is-a-tty" in done.stdout, text(done)
        assert done.returncode == 4

    def test_descriptors_are_zero_to_two(self, runner):
        extra = [os.open("/etc/hostname", os.O_RDONLY) for _ in range(20)]
        try:
            for fd in extra:
                os.set_inheritable(fd, True)
            done = runner.run(["python3", "-c", "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd')))"],
                              pass_fds=extra)
        finally:
            for fd in extra:
                os.close(fd)
        assert done.stdout.strip() == b"[0, 1, 2, 3]", text(done)  # 3 is the listing itself

    # --- being stopped

    def test_first_interrupt_is_forwarded(self, runner):
        started = runner.start("trap 'echo seen; exit 7' INT; " + SLEEP)
        started.wait_for_file()
        started.signal(signal.SIGINT)
        status, err = started.finish()
        assert (status, started.out) == (7, b"seen\n"), err

    def test_interrupt_from_the_terminal_reaches_only_the_workload(self, runner):
        if runner.user:
            pytest.skip("runuser stands in the process group")
        started = runner.start("trap 'echo seen; exit 7' INT; " + SLEEP, start_new_session=True)
        started.wait_for_file()
        os.killpg(started.supervisor, signal.SIGINT)  # what the terminal does
        status, err = started.finish()
        assert (status, started.out) == (7, b"seen\n"), err
        assert all(e["expected"] for e in runner.events() if e["event"] == "service_ended")

    def test_second_interrupt_stops(self, runner):
        started = runner.start("trap '' INT TERM; " + SLEEP)
        started.wait_for_file()
        traces = started.traces()
        started.signal(signal.SIGINT)
        time.sleep(0.5)
        assert started.process.poll() is None
        started.signal(signal.SIGINT)
        started.signal(signal.SIGINT)
        status, err = started.finish()
        assert status == 130, err
        assert traces.left() == [] and traces.cgroups_left() == []

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_termination_stops_after_the_workloads_own_handler(self, runner, number):
        started = runner.start("trap 'echo bye; exit 0' TERM; " + SLEEP)
        started.wait_for_file()
        traces = started.traces()
        started.signal(number)
        status, err = started.finish()
        assert (status, started.out) == (128 + number, b"bye\n"), err
        assert traces.left() == [] and traces.cgroups_left() == []

    def test_stop_does_not_wait_for_a_reader(self, runner):
        started = runner.start("touch ready; yes")
        started.wait_for_file()
        time.sleep(0.5)
        begin = time.monotonic()
        started.signal(signal.SIGTERM)
        assert wait_until(lambda: started.process.poll() is not None, 20), "blocked by a full pipe"
        assert time.monotonic() - begin < 20

    def test_nothing_is_left_after_a_run(self, runner):
        started = runner.start("touch ready; sleep 1; exit 5", ["--pids", "100"])
        started.wait_for_file()
        traces = started.traces()
        assert traces.left()  # the control: it can be seen
        assert traces.cgroups_left() or runner.user
        status, err = started.finish()
        assert status == 5, err
        assert traces.left() == [] and traces.cgroups_left() == []

    # --- death of a part

    @pytest.mark.parametrize("service", ["fsproxy", "egressproxy"])
    def test_death_of_a_service_ends_the_run_with_125(self, runner, service):
        started = runner.start("echo kept > kept; " + SLEEP)
        started.wait_for_file()
        traces = started.traces()
        os.kill(started.service(service), signal.SIGKILL)
        status, err = started.finish()
        assert status == 125, err
        assert f"cofferdam-{service}" in err and "export" in err
        assert traces.left() == [] and traces.cgroups_left() == []
        ended = [e for e in runner.events() if e["event"] == "service_ended" and not e["expected"]]
        assert [e["name"] for e in ended] == [service]
        patch = runner.cofferdam("export", "last")
        assert patch.returncode == 0 and b"+kept" in patch.stdout, text(patch)

    def test_stopped_fsproxy_does_not_hang_the_stop(self, runner):
        started = runner.start("touch ready; while :; do cat README >/dev/null; ls >/dev/null; done")
        started.wait_for_file()
        traces = started.traces()
        os.kill(started.service("fsproxy"), signal.SIGSTOP)
        time.sleep(0.5)
        begin = time.monotonic()
        started.signal(signal.SIGTERM)
        status, err = started.finish()
        assert status == 143, err
        assert time.monotonic() - begin < 20
        assert traces.left() == [] and traces.cgroups_left() == []

    def test_death_of_the_supervisor_ends_everything(self, runner):
        started = runner.start(SLEEP)
        started.wait_for_file()
        traces = started.traces()
        os.kill(started.supervisor, signal.SIGKILL)
        started.process.wait(timeout=20)
        assert wait_until(lambda: not traces.left(), 10), traces.left()
        reaped = runner.cofferdam("reap")
        assert reaped.returncode == 0, text(reaped)
        assert traces.cgroups_left() == []

    def test_death_of_the_supervisor_ends_everything_with_fsproxy_stopped(self, runner):
        started = runner.start("touch ready; while :; do cat README >/dev/null; done")
        started.wait_for_file()
        traces = started.traces()
        os.kill(started.service("fsproxy"), signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(started.supervisor, signal.SIGKILL)
        started.process.wait(timeout=20)
        assert wait_until(lambda: not any(lives(pid) for pid in traces.pids), 10), traces.left()
        reaped = runner.cofferdam("reap")
        assert reaped.returncode == 0, text(reaped)
        assert traces.cgroups_left() == []

    # --- what the workload is and sees

    def test_workload_has_no_right(self, runner):
        done = runner.shell("cat /proc/self/status")
        status = dict(line.split(":", 1) for line in done.stdout.decode().splitlines() if ":" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name], 16) == 0, name
        assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"

    def test_kernel_uid_is_never_root(self, runner):
        started = runner.start(SLEEP)
        started.wait_for_file()
        inside = {os.readlink(f"/proc/{pid}/ns/pid"): pid for pid in descendants_inside(started)}
        assert inside
        for pid in inside.values():
            uids = pathlib.Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split("\n")[0].split()
            assert "0" not in uids
        started.signal(signal.SIGTERM)
        started.finish()

    @pytest.mark.parametrize("code, blocked", [
        ("open('/proc/1/mem','rb')", "PermissionError"),
        ("open('/proc/1/environ','rb').read()", "PermissionError"),
        ("os.readlink('/proc/1/fd/3')", "PermissionError"),
        ("open('/proc/1/fd/3')", "PermissionError"),
        ("os.readlink('/proc/1/exe')", "PermissionError"),
        ("check(libc.ptrace(16,1,0,0))", "PermissionError"),
        ("check(libc.syscall(438,libc.syscall(434,1,0),3,0))", "PermissionError"),
    ])
    def test_process_one_cannot_be_attached(self, runner, code, blocked):
        done = runner.python(ATTEMPT + f"attempt(lambda: {code})")
        assert done.stdout.decode().strip() == blocked, text(done)

    def test_a_debugger_works_inside(self, runner):
        done = runner.python(ATTEMPT + "import subprocess\nchild = subprocess.Popen(['sleep','5'])\n"
                             "attempt(lambda: check(libc.ptrace(16,child.pid,0,0)))\nchild.kill()")
        assert done.stdout.decode().strip() == "ok", text(done)

    def test_proc_is_masked(self, runner):
        done = runner.python("""
import os
print("writable", [p for d, _, f in os.walk("/proc/sys") for p in (os.path.join(d, n) for n in f) if os.access(p, os.W_OK)])
for path in ("/proc/sysrq-trigger", "/proc/kcore", "/proc/keys", "/proc/timer_list"):
    try:
        print(path, len(open(path, "rb").read(100)))
    except OSError as fault:
        print(path, 0)
for path in ("/proc/irq", "/proc/bus"):
    print(path, len(os.listdir(path)) if os.path.isdir(path) else 0)
print(open("/proc/self/status").readline().split()[0])
""")
        lines = done.stdout.decode().splitlines()
        assert lines[0] == "writable []", text(done)
        assert all(line.endswith(" 0") for line in lines[1:7]), text(done)
        assert lines[7] == "Name:", text(done)

    def test_system_is_read_only_and_tmp_is_not(self, runner):
        done = runner.shell("for p in / /usr /etc /dev /run; do touch $p/x 2>/dev/null && echo wrote $p; done; "
                            "cp /bin/true /tmp/t && /tmp/t && touch /dev/shm/x && echo ok; df -k --output=size /tmp /dev/shm")
        lines = done.stdout.decode().split()
        assert lines[0] == "ok", text(done)
        assert lines[-2:] == ["1048576", "65536"], text(done)

    def test_names_and_own_servers_work(self, runner):
        done = runner.python("""
import socket
assert socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
assert {a[4][0] for a in socket.getaddrinfo("localhost", 80)} <= {"127.0.0.1", "::1"}
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.9")):
    for port in (80, 8080):
        server = socket.create_server((address, port), family=family)
        client = socket.create_connection((address, port), 5)
        peer, _ = server.accept()
        client.sendall(b"x")
        assert peer.recv(1) == b"x"
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 9))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"y", ("127.0.0.1", 9))
udp.settimeout(5)
assert udp.recv(1) == b"y"
print(open("/etc/resolv.conf").read())
""")
        assert done.returncode == 0, text(done)
        assert done.stdout.split() == [b"nameserver", b"127.0.0.1"]

    @pytest.mark.parametrize("code", [
        "udp(socket.AF_INET, '192.0.2.1', 123)",
        "udp(socket.AF_INET6, '2001:db8::1', 123)",
        "udp(socket.AF_INET, '255.255.255.255', 9)",
        "udp(socket.AF_INET, '224.0.0.251', 5353)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
    ])
    def test_nothing_but_tcp_and_dns_leaves(self, runner, code):
        done = runner.python(f"""
import socket
def udp(family, address, port):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.connect((address, port))
    s.send(b"x")
    s.send(b"x")
try:
    {code}
    print("out")
except OSError as fault:
    print("blocked")
""")
        assert done.stdout == b"blocked\n", text(done)

    @pytest.mark.parametrize("call", ["mount", "unshare", "keyctl", "bpf", "perf_event_open"])
    def test_a_refused_call_is_an_event(self, runner, call):
        number = {"mount": 165, "unshare": 272, "keyctl": 250, "bpf": 321, "perf_event_open": 298}[call]
        argument = "0x10000000" if call == "unshare" else "0"
        if os.uname().machine != "x86_64":
            pytest.skip("the numbers are x86_64's")
        done = runner.python(ATTEMPT + f"attempt(lambda: check(libc.syscall({number},{argument},0,0,0,0)))")
        assert done.stdout == b"PermissionError\n", text(done)
        assert [e for e in runner.events() if e["event"] == "syscall" and e["syscall"] == call
                and e["verdict"] == "deny" and e["reason"] == "syscall" and e["service"] == "engine"]

    def test_limit_of_processes_holds(self, runner):
        done = runner.python("""
import os, signal
children = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except BlockingIOError:
    pass
print(len(children) < 60)
""", ["--pids", "50"])
        assert done.stdout == b"True\n", text(done)


ATTEMPT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def attempt(act):
    try:
        act()
        print("ok")
    except OSError as fault:
        print(type(fault).__name__)
"""


def descendants_inside(started):
    """Processes of the workload: those of another pid namespace."""
    from sandbox_runs import descendants
    own = os.readlink("/proc/self/ns/pid")
    return [pid for pid in descendants(started.supervisor) if os.path.exists(f"/proc/{pid}/ns/pid")
            and os.readlink(f"/proc/{pid}/ns/pid") != own]
