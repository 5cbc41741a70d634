"""The test world: an internet of our own, in network namespaces (root only).

    with World() as world:
        world.dns.add("site.example.com", A="93.184.216.34", AAAA="2606:2800:220::34")
        site = world.http("93.184.216.34", 80)
        world.run_outside(["curl", "http://site.example.com/"])     # as the machine itself
        with Gate(world, rules=["http://site.example.com"]) as gate:
            gate.run(["curl", "http://site.example.com/"])          # as a workload behind a gate
            gate.events()                                           # what egressproxy recorded

Two namespaces joined by a veth: *outside*, where egressproxy or a whole `cofferdam run` works, and *internet*,
whose `lo` holds public-looking addresses (ADDRESSES) and some that must never be reached (FORBIDDEN), so that a
test can see that nothing came. Nothing of it touches the machine's own network. Names are unique; everything is
removed at the end, also when a test fails.

World
    outside, internet      names for `ip netns exec`
    run_outside(argv, …)   subprocess.run in *outside*; /etc/resolv.conf there names world.dns
    popen_outside(argv, …) the same, running on
    dns                    a Dns: answers are set by the test, every question is logged
    other_dns              a second Dns at OTHER_DNS that nobody should ever ask
    http(address, port)    an HttpServer; https(address, port, names) the same with a certificate of world.ca_file
    tcp(address, port, greeting)   a TcpServer that speaks first, then echoes
    OUTSIDE, OUTSIDE_EXTRA the addresses of *outside* itself (to prove `host_address`)

Dns
    add(name, A=…, AAAA=…, CNAME=…, ttl=60)   each a text or a list; replaces what was there for the types given
    script(name, type, [[addresses], …])      one answer per question, the last for ever
    behave(name, "silent" | "servfail" | "truncate" | "nxdomain")   truncate: TC over UDP, whole over TCP
    questions(name=None)                      [(name, type, "udp" | "tcp"), …] so far

HttpServer
    requests   [{"method", "path", "headers", "body", "connection"}, …];  connections   accepted so far
    GET /… answers JSON {"server": address, "port": …, "method": …, "path": …, "headers": …, "body": …}; special paths:
    /chunked, /until-close, /big (8 MiB), /upgrade (101, then echo), /reject (417 before the body), /bad-response

Gate(world, rules, deny=[], options=[], **policy)
    a third namespace like a sandbox's, with the nft rules of DESIGN section 1, its listening sockets handed to
    cofferdam-egressproxy in *outside* by --gate-fd. run(argv) runs a client in it; events(**match) reads the event file;
    `options` are more words for its command line (--deadline), `wrap` is what starts it (prlimit); url(…) is not needed: no proxy variable is set. `proxy` is the address of the explicit port.
"""
import contextlib
import ctypes
import http.server
import json
import os
import pathlib
import secrets
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

DNS4, DNS6 = "9.9.9.9", "2620:fe::9"
OTHER_DNS = "8.8.8.8"
ADDRESSES = ["93.184.216.34", "93.184.216.35", "93.184.216.36", DNS4, OTHER_DNS, "1.1.1.1",
             "2606:2800:220::34", "2606:2800:220::35", DNS6, "2001:4860:4860::8888"]
FORBIDDEN = ["10.0.0.5", "169.254.169.254", "100.100.100.200", "192.168.7.7", "fd00:ec2::254", "fd00:7::7"]
OUTSIDE, OUTSIDE_EXTRA = "11.0.0.2", "11.0.0.77"
OUTSIDE6, OUTSIDE6_EXTRA = "2a00:11::2", "2a00:11::77"
SERVICE_UID = 64123

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/dev/bin"))


def missing():
    """Why the world cannot be made here; None when it can."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    for program in ("ip", "nft", "openssl", "curl"):
        if not shutil.which(program):
            return f"needs {program}"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True)
    return None if probe.returncode == 0 else "cannot make network namespaces here"


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def in_namespace(name):
    """Sockets that are made in here belong to the namespace; the thread comes back afterwards."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if _libc.setns(other, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        if _libc.setns(own, CLONE_NEWNET) != 0:
            os._exit(3)  # the wrong namespace is no place to go on in
        os.close(own)
        os.close(other)


def listen_in(namespace, address, port, kind=socket.SOCK_STREAM):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with in_namespace(namespace):
        sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((address, port))
    if kind == socket.SOCK_STREAM:
        sock.listen(256)
    return sock


def _daemon(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


class Dns:
    """An authoritative-looking resolver. Unknown names do not exist."""
    TYPES = {"A": 1, "CNAME": 5, "TXT": 16, "AAAA": 28, "HTTPS": 65}

    def __init__(self, namespace, addresses):
        self._lock = threading.Lock()
        self._records, self._scripts, self._behaviours, self._log = {}, {}, {}, []
        self._sockets = []
        for address in addresses:
            udp = listen_in(namespace, address, 53, socket.SOCK_DGRAM)
            tcp = listen_in(namespace, address, 53)
            self._sockets += [udp, tcp]
            _daemon(self._serve_udp, udp)
            _daemon(self._serve_tcp, tcp)

    def close(self):
        for sock in self._sockets:
            sock.close()

    def add(self, name, ttl=60, **types):
        with self._lock:
            for kind, data in types.items():
                values = [data] if isinstance(data, str) else list(data)
                self._records[(name.lower(), kind)] = (ttl, values)
                self._scripts.pop((name.lower(), kind), None)

    def script(self, name, kind, answers, ttl=0):
        with self._lock:
            self._scripts[(name.lower(), kind)] = (ttl, [list(a) for a in answers])

    def behave(self, name, behaviour):
        with self._lock:
            self._behaviours[name.lower()] = behaviour

    def questions(self, name=None):
        with self._lock:
            return [q for q in self._log if name is None or q[0] == name.lower()]

    def _lookup(self, name, kind):
        """(exists, [(owner, kind, ttl, data)]), aliases followed."""
        out, seen = [], set()
        while name not in seen:
            seen.add(name)
            script = self._scripts.get((name, kind))
            if script:
                answers = script[1]
                values = answers.pop(0) if len(answers) > 1 else answers[0]
                return True, out + [(name, kind, script[0], v) for v in values]
            if (name, kind) in self._records:
                ttl, values = self._records[(name, kind)]
                return True, out + [(name, kind, ttl, v) for v in values]
            alias = self._records.get((name, "CNAME"))
            if not alias:
                exists = any(n == name for n, _ in list(self._records) + list(self._scripts))
                return exists or bool(out), out
            out.append((name, "CNAME", alias[0], alias[1][0]))
            name = alias[1][0].lower()
        return True, out

    @staticmethod
    def _wire_name(name):
        return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0"

    def _answer(self, packet, transport):
        ident, flags, _, _, _, _ = struct.unpack("!6H", packet[:12])
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode("latin-1"))
            at += packet[at] + 1
        qtype = struct.unpack("!H", packet[at + 1:at + 3])[0]
        question = packet[12:at + 5]
        name = ".".join(labels).lower()
        kind = next((k for k, v in self.TYPES.items() if v == qtype), f"TYPE{qtype}")
        with self._lock:
            self._log.append((name, kind, transport))
            behaviour = self._behaviours.get(name)
            exists, records = (True, []) if behaviour else self._lookup(name, kind)
            if behaviour == "truncate" and transport == "tcp":
                exists, records = self._lookup(name, kind)
        if behaviour == "silent":
            return None
        rcode = {"servfail": 2, "nxdomain": 3}.get(behaviour, 0 if exists else 3)
        truncated = 0x0200 if behaviour == "truncate" and transport == "udp" else 0
        body = b""
        for owner, rkind, ttl, data in records:
            rdata = self._wire_name(data) if rkind == "CNAME" else socket.inet_pton(
                socket.AF_INET6 if rkind == "AAAA" else socket.AF_INET, data)
            body += self._wire_name(owner) + struct.pack("!HHIH", self.TYPES[rkind], 1, ttl, len(rdata)) + rdata
        head = struct.pack("!6H", ident, 0x8180 | truncated | rcode, 1, len(records), 0, 0)
        return head + question + body

    def _serve_udp(self, sock):
        while True:
            try:
                packet, peer = sock.recvfrom(4096)
                answer = self._answer(packet, "udp")
                if answer:
                    sock.sendto(answer, peer)
            except OSError:
                return
            except Exception:  # a malformed question is not ours to judge
                continue

    def _serve_tcp(self, sock):
        while True:
            try:
                connection, _ = sock.accept()
            except OSError:
                return
            _daemon(self._serve_tcp_one, connection)

    def _serve_tcp_one(self, connection):
        with connection, contextlib.suppress(Exception):
            while True:
                size = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))[0]
                answer = self._answer(connection.recv(size, socket.MSG_WAITALL), "tcp")
                if answer:
                    connection.sendall(struct.pack("!H", len(answer)) + answer)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *args):
        pass

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _note(self, body):
        self.server.owner.requests.append({
            "method": self.command, "path": self.path, "body": body, "connection": self.client_address,
            "headers": {k.lower(): v for k, v in self.headers.items()},
            "raw_headers": [(k, v) for k, v in self.headers.items()]})

    def handle_expect_100(self):
        if self.path == "/reject":
            self._note(b"")
            self.send_response(417)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            return False
        return super().handle_expect_100()

    def _serve(self):
        if self.path == "/upgrade":
            self._note(b"")
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            while data := self.connection.recv(4096):
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = self._body()
        self._note(body)
        if self.path == "/bad-response":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc")
            self.close_connection = True
            return
        if self.path == "/big":
            payload = b"\xa5" * (8 << 20)
        else:
            payload = json.dumps({
                "server": self.server.owner.address, "port": self.server.owner.port, "method": self.command,
                "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()},
                "body": body.decode("latin-1")}).encode()
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Trailer", "X-Trail")
            self.end_headers()
            for i in range(0, len(payload), 50):
                piece = payload[i:i + 50]
                self.wfile.write(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\nX-Trail: yes\r\n\r\n")
            return
        if self.path == "/until-close":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + payload)
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        if self.path == "/redirect":
            self.send_header("Location", "http://169.254.169.254/")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PROPFIND = _serve


class HttpServer:
    def __init__(self, namespace, address, port, context=None):
        self.address, self.port = address, port
        self.requests, self.connections = [], 0
        self._context = context
        self._sock = listen_in(namespace, address, port)
        _daemon(self._accept)

    def close(self):
        self._sock.close()

    def _accept(self):
        while True:
            try:
                connection, peer = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            _daemon(self._serve, connection, peer)

    def _serve(self, connection, peer):
        class Server:  # what BaseHTTPRequestHandler wants of one
            owner = self
        with contextlib.suppress(OSError, ssl.SSLError, ValueError, ConnectionError):
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            _Handler(connection, peer, Server)
        with contextlib.suppress(OSError):
            connection.close()


class TcpServer:
    """Says its greeting first, then sends back what it gets."""

    def __init__(self, namespace, address, port, greeting=b"hello\n"):
        self.connections, self.received = 0, b""
        self._greeting = greeting
        self._sock = listen_in(namespace, address, port)
        _daemon(self._accept)

    def close(self):
        self._sock.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            _daemon(self._serve, connection)

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._greeting)
            while data := connection.recv(65536):
                self.received += data
                connection.sendall(data)


class World:
    OUTSIDE, OUTSIDE_EXTRA = OUTSIDE, OUTSIDE_EXTRA
    OUTSIDE6, OUTSIDE6_EXTRA = OUTSIDE6, OUTSIDE6_EXTRA

    def __init__(self):
        self._stack = contextlib.ExitStack()
        tag = secrets.token_hex(3)
        self.tag, self.outside, self.internet = tag, f"cfd-out-{tag}", f"cfd-net-{tag}"

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self._stack.close()

    def add_namespace(self, name, nameserver):
        """A namespace that is removed with the world, and its /etc/resolv.conf for `ip netns exec`."""
        _ip("netns", "add", name)
        self._stack.callback(lambda: subprocess.run(["ip", "netns", "del", name], capture_output=True))
        etc = pathlib.Path("/etc/netns") / name
        etc.mkdir(parents=True)
        self._stack.callback(lambda: shutil.rmtree(etc, ignore_errors=True))
        (etc / "resolv.conf").write_text(f"nameserver {nameserver}\noptions timeout:3 attempts:1\n")
        _ip("-n", name, "link", "set", "lo", "up")

    def _build(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-world-"))
        self.directory.chmod(0o755)
        self._stack.callback(lambda: shutil.rmtree(self.directory, ignore_errors=True))
        self.add_namespace(self.outside, DNS4)
        self.add_namespace(self.internet, DNS4)
        out, net = f"vo{self.tag}", f"vi{self.tag}"
        _ip("-n", self.outside, "link", "add", out, "type", "veth", "peer", "name", net, "netns", self.internet)
        for address in (f"{OUTSIDE}/24", f"{OUTSIDE_EXTRA}/24", f"{OUTSIDE6}/64", f"{OUTSIDE6_EXTRA}/64"):
            self._address(self.outside, address, out)
        for address in ("11.0.0.1/24", "2a00:11::1/64"):
            self._address(self.internet, address, net)
        for address in ADDRESSES + FORBIDDEN:
            self._address(self.internet, f"{address}/{128 if ':' in address else 32}", "lo")
        _ip("-n", self.outside, "link", "set", out, "up")
        _ip("-n", self.internet, "link", "set", net, "up")
        _ip("-n", self.outside, "route", "add", "default", "via", "11.0.0.1")
        _ip("-n", self.outside, "-6", "route", "add", "default", "via", "2a00:11::1")
        self.dns = self._own(Dns(self.internet, [DNS4, DNS6]))
        self.other_dns = self._own(Dns(self.internet, [OTHER_DNS]))
        self._warm_up()
        self._make_ca()

    def _warm_up(self):
        """The first neighbour discovery on a new link takes a second or two: it is done before a test measures."""
        for address in (DNS4, DNS6):
            with in_namespace(self.outside):
                sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            with sock:
                sock.settimeout(10)
                sock.connect((address, 53))

    @staticmethod
    def _address(namespace, address, device):
        extra = ["nodad"] if ":" in address else []
        _ip("-n", namespace, "addr", "add", address, "dev", device, *extra)

    def _own(self, thing):
        self._stack.callback(thing.close)
        return thing

    def _make_ca(self):
        self.ca_file = self.directory / "ca.pem"
        self._ca_key = self.directory / "ca.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", self._ca_key, "-out", self.ca_file, "-days", "2", "-subj", "/CN=test world"],
                       check=True, capture_output=True)

    def _certificate(self, names):
        stem = self.directory / secrets.token_hex(4)
        key, request, cert, ext = (stem.with_suffix(s) for s in (".key", ".csr", ".crt", ".ext"))
        kinds = [("IP:" if n.replace(".", "").isdigit() or ":" in n else "DNS:") + n for n in names]
        ext.write_text("subjectAltName=" + ",".join(kinds) + "\n")
        run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True)
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request,
            "-subj", "/CN=server")
        run("x509", "-req", "-in", request, "-CA", self.ca_file, "-CAkey", self._ca_key, "-CAcreateserial", "-days",
            "2", "-extfile", ext, "-out", cert)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        return context

    def http(self, address, port=80):
        return self._own(HttpServer(self.internet, address, port))

    def https(self, address, port=443, names=()):
        return self._own(HttpServer(self.internet, address, port, self._certificate(list(names))))

    def tcp(self, address, port, greeting=b"hello\n"):
        return self._own(TcpServer(self.internet, address, port, greeting))

    def run_outside(self, argv, **options):
        options.setdefault("capture_output", True)
        options.setdefault("text", True)
        options.setdefault("timeout", 120)
        return subprocess.run(["ip", "netns", "exec", self.outside, *map(str, argv)], **options)

    def popen_outside(self, argv, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.outside, *map(str, argv)], **options)


NFT = """
table inet gate {{
  set own4 {{ type ipv4_addr; flags interval; elements = {{ 127.0.0.0/8, 198.18.255.254 }} }}
  set own6 {{ type ipv6_addr; flags interval; elements = {{ ::1, fd53:c0ff::fe }} }}
  chain steer {{ type nat hook output priority -150;
    meta l4proto {{ tcp, udp }} th dport 53 redirect to :53
    ip daddr @own4 return
    ip6 daddr @own6 return
    meta l4proto tcp redirect to :3129
  }}
  chain guard {{ type filter hook output priority 0; policy drop;
    ct state established,related accept
    ip daddr @own4 accept
    ip6 daddr @own6 accept
    reject with icmpx admin-prohibited
  }}
}}
"""


class Gate:
    """One egressproxy with the gate of a sandbox."""

    PORTS = [(53, socket.SOCK_DGRAM), (53, socket.SOCK_STREAM), (3128, socket.SOCK_STREAM), (3129, socket.SOCK_STREAM)]

    def __init__(self, world, rules=(), deny=(), listen=(), options=(), wrap=(), **policy):
        self.world, self.listen, self.options, self.wrap = world, list(listen), list(options), list(wrap)
        self.namespace = f"cfd-in-{secrets.token_hex(3)}"
        self.policy = {
            "version": 1, "sandbox": "test", "operation": "op", "manifest": "sha256:0", "mode": "enforce",
            "rules": [{"id": f"r:{i}", "rule": r, "source": "test"} for i, r in enumerate(rules, 1)],
            "deny": [{"id": f"d:{i}", "rule": r} for i, r in enumerate(deny, 1)],
            "resolver": {"servers": [DNS4], "timeout_ms": 3000}, **policy}
        self.proxy = "http://127.0.0.1:3128"
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self.stop()
        self._stack.close()

    def _namespace(self):
        name = self.namespace
        etc = pathlib.Path("/etc/netns") / name
        _ip("netns", "add", name)
        self._stack.callback(lambda: subprocess.run(["ip", "netns", "del", name], capture_output=True))
        etc.mkdir(parents=True)
        self._stack.callback(lambda: shutil.rmtree(etc, ignore_errors=True))
        (etc / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:4 attempts:1\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", "198.18.255.254/32", "dev", "lo")
        _ip("-n", name, "addr", "add", "fd53:c0ff::fe/128", "dev", "lo", "nodad")
        _ip("-n", name, "route", "add", "local", "default", "dev", "lo", "src", "198.18.255.254")
        _ip("-n", name, "-6", "route", "add", "local", "default", "dev", "lo", "src", "fd53:c0ff::fe")
        subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=NFT.format(), text=True, check=True,
                       capture_output=True)

    def gate_sockets(self):
        return [listen_in(self.namespace, address, port, kind)
                for address in ("127.0.0.1", "::1") for port, kind in self.PORTS]

    def _start(self):
        self._namespace()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-gate-"))
        self._stack.callback(lambda: shutil.rmtree(self.directory, ignore_errors=True))
        policy_file = self.directory / "egress.json"
        policy_file.write_text(json.dumps(self.policy))
        self.events_file = self.directory / "events.jsonl"
        events = os.open(self.events_file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        ready_read, ready_write = os.pipe()
        liveness_read, self._liveness = os.pipe()
        control = socket.socket(socket.AF_UNIX)
        self.control_path = str(self.directory / "control")
        control.bind(self.control_path)
        control.listen()
        fds = [events, ready_write, liveness_read, control.fileno()]
        argv = [BIN / "cofferdam-egressproxy", "--policy", policy_file, "--events-fd", events, "--ready-fd", ready_write,
                "--liveness-fd", liveness_read, "--control-fd", control.fileno(), "--uid", SERVICE_UID, "--gid",
                SERVICE_UID, *self.options]
        sockets = [] if self.listen else self.gate_sockets()
        for sock in sockets:
            argv += ["--gate-fd", sock.fileno()]
            fds.append(sock.fileno())
        for at in self.listen:
            argv += ["--listen", at]
        self.stderr_file = self.directory / "stderr"
        with open(self.stderr_file, "wb") as stderr:
            self.process = self.world.popen_outside([*self.wrap, *argv], pass_fds=fds, stderr=stderr, stdin=subprocess.DEVNULL)
        self._stack.callback(self.process.kill)
        for fd in (events, ready_write, liveness_read):
            os.close(fd)
        control.close()
        for sock in sockets:
            sock.close()
        word = b""
        while piece := os.read(ready_read, 4096):
            word += piece
        os.close(ready_read)
        if word != b"ready\n":
            raise RuntimeError(f"egressproxy: {word!r} {self.stderr_file.read_text()!r}")

    def stop(self):
        """Ends it like a supervisor that is gone; gives its exit status."""
        if self._liveness >= 0:
            os.close(self._liveness)
            self._liveness = -1
        status = self.process.wait(timeout=10)
        said = self.stderr_file.read_text(errors="replace")
        assert "Sanitizer" not in said, said  # whatever the exit status was
        return status

    def run(self, argv, **options):
        options.setdefault("capture_output", True)
        options.setdefault("text", True)
        options.setdefault("timeout", 60)
        return subprocess.run(["ip", "netns", "exec", self.namespace, *map(str, argv)], **options)

    def curl(self, *words, **options):
        """curl with the world's CA, 20 s at most."""
        return self.run(["curl", "-sS", "-m", "20", "--cacert", self.world.ca_file, *words], **options)

    def connect(self, address, port, timeout=10):
        """A plain socket from inside."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with in_namespace(self.namespace):
            sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        sock.connect((address, port))
        return sock

    def ask(self, name, kind=1, transport="udp", server="127.0.0.1", edns=False, qclass=1, raw=None, timeout=8):
        """Asks a DNS question from inside; gives (rcode, [records' data as text], the packet)."""
        labels = b"".join(bytes([len(l)]) + l.encode("latin-1") for l in name.split(".") if l) + b"\0"
        packet = raw or (struct.pack("!6H", 0x4242, 0x0100, 1, 0, 0, 1 if edns else 0) + labels +
                         struct.pack("!HH", kind, qclass) +
                         (b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if edns else b""))
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with in_namespace(self.namespace):
            sock = socket.socket(family, socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM)
        with sock:
            sock.settimeout(timeout)
            sock.connect((server, 53))
            if transport == "udp":
                sock.send(packet)
                answer = sock.recv(65535)
            else:
                sock.sendall(struct.pack("!H", len(packet)) + packet)
                size = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL))[0]
                answer = sock.recv(size, socket.MSG_WAITALL)
        _, flags, questions, count, _, _ = struct.unpack("!6H", answer[:12])
        at, data = 12, []
        for _ in range(questions):
            while answer[at]:
                at += answer[at] + 1
            at += 5
        for _ in range(count):
            at += 2  # a pointer
            rtype, _, _, size = struct.unpack("!HHIH", answer[at:at + 10])
            rdata = answer[at + 10:at + 10 + size]
            at += 10 + size
            if rtype in (1, 28):
                data.append(socket.inet_ntop(socket.AF_INET if rtype == 1 else socket.AF_INET6, rdata))
            else:
                data.append(rdata)
        return flags & 0xf, data, answer

    def events(self, **match):
        """The events so far that have these fields."""
        lines = self.events_file.read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [e for e in found if all(e.get(k) == v for k, v in match.items())]

    def wait_event(self, timeout=10, **match):
        """The last event with these fields, waited for."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = self.events(**match)
            if found:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(f"no event {match}; there are: {self.events()}")

    def wait_events(self, count, timeout=10, **match):
        """Until there are that many events with these fields; none more is waited for."""
        match = match or {"event": "egress"}
        end = time.monotonic() + timeout
        while len(self.events(**match)) < count and time.monotonic() < end:
            time.sleep(0.01)

    def stats(self, path="/stats"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self.control_path)
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: control\r\n\r\n".encode())
            answer = b""
            while piece := sock.recv(65536):
                answer += piece
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])
