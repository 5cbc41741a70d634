"""Engine native, as root and as an ordinary user, by the same cases."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

pytest.register_assert_rewrite("engine_cases", "sandbox_runs")

from engine_cases import SLEEP, EngineCases, descendants_inside, text
from sandbox_runs import ORDINARY_USER, Runner, fuse_for_everybody, ordinary_user, skip_unless_root


@pytest.fixture(scope="class", params=["root", "ordinary"])
def runner(request):
    skip_unless_root()
    if request.param == "root":
        made = Runner()
        yield made
        made.close()
        return
    ordinary_user()
    with fuse_for_everybody():
        made = Runner(user=ORDINARY_USER)
        yield made
        made.close()


class TestNativeEngine(EngineCases):
    def test_nothing_appears_among_the_hosts_mounts(self, runner):
        started = runner.start(SLEEP)
        started.wait_for_file()
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            assert runner.layer().name not in mounts.read()
        started.signal(15)
        started.finish()

    def test_ruleset_is_loaded_in_its_network_namespace(self, runner):
        if subprocess.run(["which", "nft"], capture_output=True, check=False).returncode != 0:
            pytest.skip("nft is not installed")
        started = runner.start(SLEEP)
        started.wait_for_file()
        pid = descendants_inside(started)[0]
        rules = subprocess.run(["nsenter", "-t", str(pid), "-n", "nft", "list", "ruleset"], capture_output=True,
                               text=True, check=True).stdout
        routes = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "route", "show", "table", "local", "default"],
                                capture_output=True, text=True, check=True).stdout
        started.signal(15)
        started.finish()
        # nft calls -150 of an output chain "mangle".
        assert "output priority mangle; policy accept" in rules and "priority filter; policy drop" in rules, rules
        assert "redirect to :53" in rules and "redirect to :3129" in rules, rules
        assert "reject with icmpx" in rules and "admin-prohibited" in rules, rules
        assert "dev lo" in routes and "198.18.255.254" in routes, routes

    def test_no_new_namespace_inside(self, runner):
        done = runner.shell("unshare -Ur true; unshare -n true; echo done")
        assert done.stdout == b"done\n" and done.stderr.count(b"unshare failed") == 2, text(done)

    @pytest.mark.parametrize("command, expected", [
        (["python3", "-c", "import multiprocessing as m; print(sum(m.Pool(2).map(abs, [-1, -2])))"], b"3\n"),
        (["sh", "-c", "cd /tmp && echo 'int main(){return 0;}' > a.c && cc a.c -o a && ./a && echo ran"], b"ran\n"),
        (["sh", "-c", "git init -q g && cd g && git -c user.name=a -c user.email=a@b.invalid commit -q --allow-empty -m x && "
          "git log --format=%s"], b"x\n"),
        (["node", "-e", "new (require('worker_threads').Worker)('console.log(6*7)', {eval: true})"], b"42\n"),
        (["sh", "-c", "cd /tmp && echo 'class A{public static void main(String[] a){System.out.println(1);}}' > A.java && "
          "java A.java"], b"1\n"),
        (["gdb", "-batch", "-ex", "break main", "-ex", "run", "-ex", "print 6*7", "/bin/true"], b"42"),
    ])
    def test_everyday_programs_work(self, runner, command, expected):
        program = {"sh": "java" if "java" in command[-1] else "git" if "git" in command[-1] else "cc"}.get(command[0], command[0])
        if subprocess.run(["which", program], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"{program} is not installed")
        done = runner.run(command, timeout=120)
        assert expected in done.stdout, text(done)
        assert not [e for e in runner.events() if e["event"] == "syscall"], runner.events()

    def test_memory_is_limited_or_refused(self, runner):
        done = runner.python("b = bytearray(400 << 20); print(len(b))", ["--memory", "100MiB"])
        if done.returncode == 125:
            assert b"memory" in done.stderr, text(done)
            assert runner.user is not None, text(done)
        else:
            assert done.returncode == 137 and done.stdout == b"", text(done)
            assert [e for e in runner.events() if e["event"] == "limit" and e["limit"] == "memory"]

    def test_host_sockets_below_usr_are_masked(self, runner):
        if os.geteuid() != 0:
            pytest.skip("needs root to write below /usr")
        path = "/usr/local/lib/cofferdam-engine-test.sock"
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
            os.chmod(path, 0o777)
            listener.listen(1)
            done = runner.python(f"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect({path!r})
    print("connected")
except OSError as fault:
    print("blocked")
own = socket.socket(socket.AF_UNIX)
own.bind("/tmp/own"); own.listen(1)
socket.socket(socket.AF_UNIX).connect("/tmp/own")
print("own")
""")
        finally:
            listener.close()
            os.unlink(path)
        assert done.stdout == b"blocked\nown\n", text(done)

    def test_host_sockets_and_fifos_made_below_usr_later_lead_nowhere(self, runner):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-it-", dir="/usr/local/lib"))
        listener = socket.socket(socket.AF_UNIX)
        try:
            directory.chmod(0o755)
            started = runner.start(f"""touch ready; read go; python3 -c '
import os, socket
try:
    socket.socket(socket.AF_UNIX).connect("{directory}/socket")
    print("connected")
except OSError as fault:
    print(fault.strerror)
try:
    os.write(os.open("{directory}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"out")
    print("written")
except OSError as fault:
    print(fault.strerror)
'""", ["-i"], stdin=subprocess.PIPE)
            started.wait_for_file()
            listener.bind(str(directory / "socket"))
            listener.listen(1)
            os.mkfifo(directory / "fifo")
            for name in ("socket", "fifo"):
                (directory / name).chmod(0o777)
            reader = os.open(directory / "fifo", os.O_RDONLY | os.O_NONBLOCK)
            try:
                # The control: on the host both lead somewhere.
                with socket.socket(socket.AF_UNIX) as control:
                    control.connect(str(directory / "socket"))
                os.close(os.open(directory / "fifo", os.O_WRONLY | os.O_NONBLOCK))
                out, err = started.process.communicate(b"go\n", timeout=60)
                assert out == b"Connection refused\nNo such device or address\n", (out, err)
            finally:
                os.close(reader)
        finally:
            listener.close()
            shutil.rmtree(directory)
