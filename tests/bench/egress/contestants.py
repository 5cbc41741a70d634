"""The proxies that are measured, each started with a configuration of its own in the world's *outside*.

Every one decides by a list of names, writes a log line (or event) per connection, and is one process that is ended
by its pid. Where a program is missing, `missing` says so and it is left out of the rounds, not of the table.
"""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from world import Gate, in_namespace

SITE, SERVER = "site.example.com", "93.184.216.34"
BULK = "bulk.example.com"
DENIED = "denied.example.net"
FAST_DNS = "1.1.1.1"
REPLY_PORT, HTTP_PORT, SOURCE_PORT, SINK_PORT = 443, 80, 9001, 9002
RULES = [SITE, f"http://{SITE}", f"tcp://{BULK}:{SOURCE_PORT}", f"tcp://{BULK}:{SINK_PORT}"]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def private_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(("Private_Clean", "Private_Dirty")))


def wait_for_listener(namespace, address, port, process, name):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode}")
        with in_namespace(namespace):
            probe = socket.socket()
        with probe, contextlib.suppress(OSError):
            probe.settimeout(1)
            probe.connect((address, port))
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not listen")


class Contestant:
    """One measured thing. `ways` maps a kind of load to the words that lead it there."""
    name = ""
    package = None  # of Debian; None: not a peer
    missing = None

    def __init__(self, world):
        self.world, self.namespace, self.pid = world, world.outside, None

    def cpu(self):
        return cpu_seconds(self.pid) if self.pid else 0.0

    def private(self):
        return private_bytes(self.pid)

    def close(self):
        pass

    def ways(self, kind):
        """The words for bench-egress-load, or None where this cannot do it."""
        raise NotImplementedError


class Direct(Contestant):
    name = "direct"

    def ways(self, kind):
        port = {"tunnels": REPLY_PORT, "hold": REPLY_PORT, "gets": HTTP_PORT, "down": SOURCE_PORT, "up": SINK_PORT}.get(kind)
        if port is None:
            return None
        return {"to": f"{SERVER}:{port}", "via": "plain", "form": "origin", "host": SITE}


def proxy_ways(kind, at):
    if kind in ("tunnels", "hold"):
        return {"to": at, "host": SITE, "port": REPLY_PORT}
    if kind == "gets":
        return {"to": at, "host": SITE}
    if kind == "denials":
        return {"to": at, "host": DENIED, "port": REPLY_PORT}
    if kind in ("down", "up"):
        return {"to": at, "host": BULK, "port": SOURCE_PORT if kind == "down" else SINK_PORT}
    return None


class Cofferdam(Contestant):
    """The explicit port, listening beside the peers."""
    name = "cofferdam"

    def __init__(self, world, rules=()):
        super().__init__(world)
        self.gate = self._gate(list(rules) + RULES)
        self.gate.__enter__()
        self.pid = self.gate.process.pid

    def _gate(self, rules):
        return Gate(self.world, rules, listen=["explicit=127.0.0.1:3128", "dns=127.0.0.1:53"],
                    resolver={"servers": [FAST_DNS], "timeout_ms": 3000})

    def ways(self, kind):
        if kind == "dns":
            return {"to": "127.0.0.1:53"}
        return proxy_ways(kind, "127.0.0.1:3128")

    def close(self):
        self.gate.__exit__(None, None, None)


class Transparent(Cofferdam):
    """A sandbox's gate: the load runs inside, where every connection is redirected."""
    name = "cofferdam, transparent"

    def _gate(self, rules):
        return Gate(self.world, rules, resolver={"servers": [FAST_DNS], "timeout_ms": 3000})

    def __init__(self, world, rules=()):
        super().__init__(world, rules)
        self.namespace = self.gate.namespace
        settle_namespace(self.namespace)
        for name in (SITE, BULK):
            if self.gate.ask(name)[1] != [SERVER]:
                raise RuntimeError(f"{name} is not answered at the gate")

    def ways(self, kind):
        return Direct.ways(self, kind)


class Peer(Contestant):
    PORT = 0

    def __init__(self, world):
        super().__init__(world)
        program = shutil.which(self.package, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if not program:
            self.missing = f"{self.package} is not installed"
            return
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"bench-{self.package}-"))
        self.directory.chmod(0o777)
        self.program = program
        self.log = open(self.directory / "output", "wb")
        config = self.directory / "config"
        config.write_text(self.config())
        self.process = world.popen_outside([program, *self.words(config)], stdout=self.log, stderr=self.log,
                                           stdin=subprocess.DEVNULL)
        self.pid = self.process.pid
        try:
            wait_for_listener(world.outside, "127.0.0.1", self.PORT, self.process, self.package)
        except RuntimeError as error:
            self.missing = f"{error}: {(self.directory / 'output').read_text()[-300:]}"
            self.close()

    def close(self):
        if self.pid:
            self.process.terminate()  # squid takes its shared memory along only so
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.pid = None
            self.log.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def ways(self, kind):
        return proxy_ways(kind, f"127.0.0.1:{self.PORT}")

    def version(self):
        found = subprocess.run(["dpkg-query", "-W", "-f=${Version}", self.package], capture_output=True, text=True)
        return found.stdout or "unknown version"


class Squid(Peer):
    name, package, PORT = "squid", "squid", 3130

    def words(self, config):
        return ["-N", "-f", config]

    def config(self):
        here = self.directory
        return f"""
http_port 127.0.0.1:{self.PORT}
pid_filename {here}/pid
access_log stdio:{here}/access.log
cache_log {here}/cache.log
coredump_dir {here}
cache deny all
cache_mem 8 MB
pinger_enable off
dns_nameservers {FAST_DNS}
max_filedescriptors 20000
shutdown_lifetime 0 seconds
acl ours dstdomain {SITE} {BULK}
acl tunnels port {REPLY_PORT} {SOURCE_PORT} {SINK_PORT}
http_access deny CONNECT !tunnels
http_access allow ours
http_access deny all
"""


class Tinyproxy(Peer):
    name, package, PORT = "tinyproxy", "tinyproxy", 3131

    def words(self, config):
        return ["-d", "-c", config]

    def config(self):
        (self.directory / "filter").write_text("".join(f"^{n}$\n".replace(".", r"\.") for n in (SITE, BULK)))
        return f"""
User nobody
Group nogroup
Port {self.PORT}
Listen 127.0.0.1
Timeout 600
LogFile "{self.directory}/log"
LogLevel Connect
MaxClients 10000
Filter "{self.directory}/filter"
FilterDefaultDeny Yes
ConnectPort {REPLY_PORT}
ConnectPort {SOURCE_PORT}
ConnectPort {SINK_PORT}
"""


class Haproxy(Peer):
    """A raw TCP relay to one server: no names, no decision. What is left is the ceiling."""
    name, package, PORT = "haproxy", "haproxy", 4443
    THREADS = 1

    def words(self, config):
        return ["-db", "-f", config]

    def config(self):
        listeners = "".join(f"listen p{port}\n  bind 127.0.0.1:{at}\n  server s {SERVER}:{port}\n"
                            for at, port in ((4443, REPLY_PORT), (4901, SOURCE_PORT), (4902, SINK_PORT)))
        return f"""
global
  maxconn 9500
  nbthread {self.THREADS}
  log stdout format raw local0
defaults
  mode tcp
  log global
  option tcplog
  timeout connect 5s
  timeout client 600s
  timeout server 600s
{listeners}
listen web
  mode http
  option httplog
  bind 127.0.0.1:4080
  server s {SERVER}:{HTTP_PORT}
"""

    def ways(self, kind):
        port = {"tunnels": 4443, "hold": 4443, "gets": 4080, "down": 4901, "up": 4902}.get(kind)
        if port is None:
            return None
        return {"to": f"127.0.0.1:{port}", "via": "plain", "form": "origin", "host": SITE}


PEERS = [Squid, Tinyproxy, Haproxy]


def settle_namespace(namespace):
    """Ports and tracked connections that do not run out however many connections a run makes."""
    settings = ["net.ipv4.ip_local_port_range=1024 65535", "net.ipv4.tcp_tw_reuse=1", "net.ipv4.tcp_max_tw_buckets=262144",
                "net.core.somaxconn=4096", "net.netfilter.nf_conntrack_tcp_timeout_time_wait=1",
                "net.netfilter.nf_conntrack_tcp_timeout_close=1"]
    for setting in settings:
        subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-q", "-e", "-w", setting], capture_output=True)
