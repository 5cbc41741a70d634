"""A way out through the user's own proxy: what it is asked for, what it never learns, what stays checked here."""
import contextlib
import json
import pathlib
import re
import socket
import subprocess
import threading
import time

import pytest

from world import BIN, DNS4, Gate, World, in_namespace, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6, OTHER4 = "93.184.216.34", "2606:2800:220::34", "93.184.216.35"
SITE, OTHER = "site.example.com", "other.example.com"
PROXY = "10.0.0.5"  # private: only the user's choice makes it reachable
USER, PASSWORD = "wanda", "gr3en-c0fferdam"
BASIC = "Basic d2FuZGE6Z3IzZW4tYzBmZmVyZGFt"
URL = f"http://{USER}:{PASSWORD}@{PROXY}:3128"
RULES = [f"http://{SITE}", SITE, f"http://{OTHER}", f"tcp://git.example.com:22", "http://private.example.com",
         "http://opened.example.com=10.0.0.0/8", "http://proxy-name.example.com", "http://*.wild.example.com",
         f"http://{V4}", "http://both.example.com"]


class Proxy:
    """A CONNECT proxy in the internet. `behaviour` may be an answer to give instead, or a function of the connection."""

    def __init__(self, world, address=PROXY, port=3128, namespace=None):
        self.world, self.heads, self.behaviour, self.names = world, [], None, {}
        self.namespace = world.internet
        self._sock = listen_in(namespace or world.internet, address, port)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._sock.close()

    def targets(self):
        return [head.split(" ")[1] for head in self.heads]

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._sock.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(4096)
                if not piece:
                    return
                head += piece
            self.heads.append(head.decode("latin-1"))
            behaviour = self.behaviour
            if callable(behaviour):
                return behaviour(connection)
            if behaviour:
                connection.sendall(behaviour)
                return
            host, _, port = self.targets()[-1].rpartition(":")
            host = self.names.get(host, host.strip("[]"))
            with in_namespace(self.namespace):
                upstream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            with upstream:
                upstream.settimeout(10)
                try:
                    upstream.connect((host, int(port)))
                except OSError:
                    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                    return
                upstream.settimeout(None)
                if int(port) == 22:  # what the server says first comes in one piece with the answer
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 p\r\n\r\n" + upstream.recv(4096))
                else:
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=self._copy, args=(upstream, connection), daemon=True)
                back.start()
                self._copy(connection, upstream)
                back.join()

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add("both.example.com", A=[V4, "10.0.0.9"])
        made.dns.add("git.example.com", A="93.184.216.36")
        made.dns.add("private.example.com", A="10.0.0.5")
        made.dns.add("opened.example.com", A=PROXY)
        made.dns.add("proxy-name.example.com", A=PROXY)
        made.dns.add("proxy.corp.example.com", A=PROXY)
        made.dns.add("evil-proxy.example.com", A=["127.0.0.1", World.OUTSIDE])
        made.site4 = made.http(V4)
        made.site6 = made.http(V6)
        made.tls4 = made.https(V4, names=[SITE])
        made.tls6 = made.https(V6, names=[SITE])
        made.other = made.http(OTHER4)
        made.git = made.tcp("93.184.216.36", 22, b"SSH-2.0-test\r\n")
        made.proxy = Proxy(made)
        yield made
        made.proxy.close()


@pytest.fixture(autouse=True)
def ordinary_proxy(world):
    world.proxy.behaviour = None
    world.proxy.heads.clear()
    yield


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=RULES, deny=["bad.wild.example.com"], upstream_proxy={"url": URL}) as made:
        yield made


@pytest.fixture(scope="module")
def by_name(world):
    world.proxy.names = {SITE: V4, OTHER: OTHER4, "git.example.com": "93.184.216.36", "a.wild.example.com": V4}
    with Gate(world, rules=RULES, deny=["bad.wild.example.com"], upstream_proxy={"url": URL, "connect": "name"},
              accept_missing=["address_check"]) as made:
        yield made


def get(gate, host, path="/"):
    return gate.curl("-x", gate.proxy, "-i", f"http://{host}{path}").stdout


def body(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# --- connect: address

def test_every_way_out_goes_through_the_proxy_to_a_checked_address(gate, world):
    assert body(gate.curl("-4", f"http://{SITE}/p"))["path"] == "/p"
    assert body(gate.curl("-4", f"https://{SITE}/t"))["path"] == "/t"
    assert body(gate.curl("-x", gate.proxy, f"http://{OTHER}/a"))["server"] == OTHER4
    assert body(gate.curl("-x", gate.proxy, f"https://{SITE}/c"))["path"] == "/c"
    assert body(gate.curl("-6", f"https://{SITE}/six"))["server"] == V6
    targets = world.proxy.targets()
    assert {f"{V4}:80", f"{V4}:443", f"{OTHER4}:80", f"[{V6}]:443"} <= set(targets)
    assert all(SITE not in head and OTHER not in head for head in world.proxy.heads)  # addresses, no names
    event = gate.wait_event(event="egress", verdict="allow", host=OTHER)
    assert event["address"] == OTHER4 and event["bytes_down"] > 0


def test_a_server_that_speaks_first_is_heard_from_its_first_byte(gate):
    gate.ask("git.example.com")
    with gate.connect("93.184.216.36", 22) as sock:
        assert sock.recv(100) == b"SSH-2.0-test\r\n"
        sock.sendall(b"x" * 5000)
        got = b""
        while len(got) < 5000:
            got += sock.recv(65536)
        assert got == b"x" * 5000


def test_large_bodies_pass(gate):
    assert gate.curl("-4", f"https://{SITE}/big", text=False).stdout == b"\xa5" * (8 << 20)


def test_the_address_check_is_still_ours(gate, world):
    answer = get(gate, "private.example.com")
    assert answer.startswith("HTTP/1.1 403") and "(private_address)" in answer
    assert "(no_rule)" in get(gate, "evil.example.org")
    assert "(denied_by_rule)" in get(gate, "bad.wild.example.com")
    assert world.proxy.heads == []
    assert "200 OK" in get(gate, "both.example.com")
    assert world.proxy.targets() == [f"{V4}:80"]  # the private one was never asked for


def test_the_exemption_is_for_the_proxy_and_for_nobody_else(gate, world):
    for authority, reason in ((f"{PROXY}:3128", "ip_literal"), ("proxy-name.example.com:3128", "port_not_allowed")):
        with gate.connect("127.0.0.1", 3128) as sock:
            sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            assert f"({reason})".encode() in sock.recv(4096)
    assert "(private_address)" in get(gate, "proxy-name.example.com")
    assert gate.ask("proxy-name.example.com")[:2] == (0, [])
    assert world.proxy.heads == []
    # A rule that opens the range asks the proxy for it, like for any address.
    assert "502" in get(gate, "opened.example.com").split("\n")[0]
    assert world.proxy.targets() == [f"{PROXY}:80"]


def test_the_password_goes_to_the_proxy_alone(gate, world):
    seen = len(world.site4.requests)
    assert "200 OK" in get(gate, SITE, "/secret")
    assert all(f"Proxy-Authorization: {BASIC}\r\n" in head for head in world.proxy.heads)
    for request in (world.site4.requests + world.site6.requests)[seen:]:
        assert "proxy-authorization" not in request["headers"]
    world.proxy.behaviour = b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n"
    shown = get(gate, SITE) + gate.run(["sh", "-c", "cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '"]).stdout
    shown += gate.events_file.read_text() + gate.stderr_file.read_text() + json.dumps(gate.stats())
    shown += "".join(pathlib.Path(f"/proc/{gate.process.pid}/{f}").read_text() for f in ("cmdline", "environ", "status"))
    for secret in (PASSWORD, BASIC.split()[1], USER + ":"):
        assert secret not in shown


@pytest.mark.parametrize("answer,reason,retryable", [
    (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "upstream_proxy_refused", False),
    (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nno way", "upstream_proxy_refused", False),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "upstream_proxy_failed", True),
    (b"HTTP/1.1 503 Busy\r\n\r\n", "upstream_proxy_failed", True),
    (b"nonsense\r\n\r\n", "upstream_proxy_failed", True), (b"HTTP/1.1 200 OK\r\n", "upstream_proxy_failed", True),
    (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40000, "upstream_proxy_failed", True)])
def test_what_the_proxy_says_is_502_with_its_reason(gate, world, answer, reason, retryable):
    world.proxy.behaviour = answer
    for request in (f"GET http://{OTHER}/ HTTP/1.1\r\nHost: {OTHER}\r\nConnection: close\r\n\r\n",
                    f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\n\r\n"):
        with gate.connect("127.0.0.1", 3128, timeout=30) as sock:
            sock.sendall(request.encode())
            got = b""
            with contextlib.suppress(ConnectionError):
                while piece := sock.recv(65536):
                    got += piece
        assert got.startswith(b"HTTP/1.1 502 ") and f"Cofferdam-Reason: {reason}\r\n".encode() in got, got
        assert json.loads(got.split(b"\r\n\r\n", 1)[1])["retryable"] is retryable
        assert b"nonsense" not in got and b"no way" not in got and b"yyyy" not in got


def test_a_password_that_is_not_taken_is_not_tried_again_and_again(gate, world):
    world.dns.add("many.wild.example.com", A=[V4, OTHER4, "93.184.216.36"], AAAA=V6)
    world.proxy.behaviour = b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"
    assert "(upstream_proxy_refused)" in get(gate, "many.wild.example.com")
    assert len(world.proxy.heads) == 1
    world.proxy.behaviour = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    assert "(upstream_proxy_failed)" in get(gate, "many.wild.example.com")
    assert len(world.proxy.heads) == 5


def test_a_proxy_that_is_not_there(world):
    with Gate(world, rules=RULES, upstream_proxy={"url": f"http://{PROXY}:3999"}) as lost:
        answer = get(lost, SITE)
        assert answer.startswith("HTTP/1.1 502") and "(upstream_proxy_failed)" in answer
        assert lost.curl(f"https://{SITE}/").returncode != 0  # never directly
    assert world.proxy.heads == []


def test_a_next_address_is_asked_for_when_the_first_fails(gate, world):
    world.dns.add("late.wild.example.com", A=["1.1.1.1", V4])  # nobody listens on the first
    assert f'"server": "{V4}"' in get(gate, "late.wild.example.com")
    assert world.proxy.targets() == ["1.1.1.1:80", f"{V4}:80"]


def test_a_proxy_by_name_is_resolved_here_and_never_this_machine(world):
    with Gate(world, rules=RULES, upstream_proxy={"url": "http://proxy.corp.example.com:3128"}) as named:
        assert "200 OK" in get(named, SITE)
        assert "Proxy-Authorization" not in world.proxy.heads[-1]
    with Proxy(world, "127.0.0.1", namespace=world.outside) as here:
        with Gate(world, rules=RULES, upstream_proxy={"url": "http://evil-proxy.example.com:3128"}) as named:
            assert "(upstream_proxy_failed)" in get(named, SITE)
            assert here.heads == []
        # The user may write it as an address: the proxies of some companies run on the desk.
        with Gate(world, rules=RULES, upstream_proxy={"url": "http://127.0.0.1:3128"}) as local:
            assert "200 OK" in get(local, SITE)
            assert here.heads
            with local.connect("127.0.0.1", 3128) as sock:
                sock.sendall(b"CONNECT 127.0.0.1:3128 HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n")
                assert b"(loopback_address)" in sock.recv(4096)


# --- connect: name

def test_by_name_the_proxy_resolves_and_nothing_is_asked_here(by_name, world):
    asked = len(world.dns.questions())
    rcode, found, _ = by_name.ask(SITE)
    assert rcode == 0 and len(found) == 1 and found[0].startswith("198.18.")
    assert by_name.ask(SITE)[1] == found
    assert by_name.ask(SITE, 28)[:2] == (0, [])
    assert by_name.ask("unlisted.example.org")[:2] == (3, [])
    assert body(by_name.curl(f"http://{SITE}/n"))["path"] == "/n"
    assert body(by_name.curl(f"https://{SITE}/s"))["path"] == "/s"
    assert body(by_name.curl("-x", by_name.proxy, f"http://{OTHER}/a"))["server"] == OTHER4
    assert body(by_name.curl("-x", by_name.proxy, f"https://{SITE}/c"))["path"] == "/c"
    assert set(world.proxy.targets()) == {f"{SITE}:80", f"{SITE}:443", f"{OTHER}:80"}
    assert len(world.dns.questions()) == asked
    assert by_name.ask(f"{found[0].split('.')[3]}.{found[0].split('.')[2]}.18.198.in-addr.arpa", 12)[0] == 0


def test_by_name_raw_tcp_goes_to_the_name(by_name, world):
    stand_in = by_name.ask("git.example.com")[1][0]
    with by_name.connect(stand_in, 22) as sock:
        assert sock.recv(100) == b"SSH-2.0-test\r\n"
    assert world.proxy.targets() == ["git.example.com:22"]


def test_by_name_decides_names_as_ever(by_name, world):
    for host, reason in (("evil.example.org", "no_rule"), ("bad.wild.example.com", "denied_by_rule"), ("localhost", "loopback_address"),
                         ("169.254.169.254", "metadata_address"), (PROXY, "ip_literal"), ("198.18.0.77", "ip_literal")):
        answer = get(by_name, host)
        assert answer.startswith("HTTP/1.1 403") and f"({reason})" in answer, (host, answer)
    # An address that stands for no name, and a name that the stand-in was not given for.
    with by_name.connect("198.18.77.77", 80) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode())
        assert b"(ip_literal)" in sock.recv(4096)
    stand_in = by_name.ask(SITE)[1][0]
    result = by_name.curl("-i", "--resolve", f"{OTHER}:80:{stand_in}", f"http://{OTHER}/")
    assert "(host_mismatch)" in result.stdout
    assert world.proxy.heads == []
    # A listed literal is checked here and sent as it is.
    assert body(by_name.curl("-x", by_name.proxy, f"http://{V4}/lit"))["path"] == "/lit"
    assert world.proxy.targets() == [f"{V4}:80"]


@pytest.mark.parametrize("policy,text", [
    ({"upstream_proxy": {"url": URL, "connect": "name"}}, "accept_missing: [address_check]"),
    ({"upstream_proxy": {"url": f"https://{USER}:{PASSWORD}@{PROXY}:3128"}}, "not in this version"),
    ({"upstream_proxy": {"url": f"http://{USER}:{PASSWORD}@169.254.169.254:80"}}, "metadata_address"),
    ({"upstream_proxy": {"url": f"http://{USER}:{PASSWORD}@localhost:80"}}, "127.0.0.1"),
    ({"upstream_proxy": {"url": f"http://{USER}:{PASSWORD}@{PROXY}"}}, "port"),
    ({"upstream_proxy": {"url": URL, "direct": True}}, "unknown key")])
def test_what_cannot_be_done_ends_the_start_without_telling_the_password(world, policy, text):
    with pytest.raises(RuntimeError) as failure:
        with Gate(world, rules=RULES, **policy):
            pass
    assert text in str(failure.value) and PASSWORD not in str(failure.value)


# --- from the manifest to a workload

@pytest.fixture(scope="module")
def manifest(world, tmp_path_factory):
    def write(text):
        file = tmp_path_factory.mktemp("manifest") / "m.yaml"
        file.write_text("version: 1\nnetwork:\n" + text)
        file.chmod(0o600)
        return file
    return write


def cofferdam(world, tmp_path, *words):
    env = {"HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XDG_STATE_HOME": str(tmp_path / "state")}
    return world.run_outside([BIN / "cofferdam", *words], env=env, cwd=tmp_path)


def test_a_run_goes_through_the_proxy_and_the_password_stays_outside(world, tmp_path, manifest):
    project = tmp_path / "project"
    project.mkdir()
    file = manifest(f"  rules: ['http://{OTHER}']\n  resolver: {{servers: ['{DNS4}']}}\n  upstream_proxy: {{url: '{URL}'}}\n")
    plan = cofferdam(world, tmp_path, "run", "--dry-run", "--json", "--manifest", file, "--workspace", project, "--", "true")
    assert plan.returncode == 0, plan.stderr
    assert f"http://{PROXY}:3128" in plan.stdout
    script = f"curl -sS -m 20 http://{OTHER}/run; cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '; grep -r 'gr[3]en-c0fferdam' /etc /run /tmp . 2>/dev/null"
    result = cofferdam(world, tmp_path, "run", "--manifest", file, "--workspace", project, "--", "sh", "-c", script)
    assert f'"server": "{OTHER4}"' in result.stdout, result.stderr
    assert world.proxy.targets() == [f"{OTHER4}:80"] and BASIC in world.proxy.heads[0]
    shown = cofferdam(world, tmp_path, "manifest", "show", file)
    log = cofferdam(world, tmp_path, "log", "last", "--json")
    assert log.returncode == 0 and OTHER in log.stdout
    for text in (plan.stdout, plan.stderr, result.stdout, result.stderr, shown.stdout, log.stdout):
        assert PASSWORD not in text and BASIC.split()[1] not in text
    # What the state directory holds of it is for the owner alone.
    holding = [p for p in (tmp_path / "state").rglob("*") if p.is_file() and PASSWORD.encode() in p.read_bytes()]
    assert [p.name for p in holding] == ["egress.json"] and all(p.stat().st_mode & 0o077 == 0 for p in holding)


def test_a_manifest_that_lets_the_proxy_resolve_must_say_so_twice(world, tmp_path, manifest):
    project = tmp_path / "project"
    project.mkdir()
    text = f"  rules: ['http://{OTHER}']\n  upstream_proxy: {{url: '{URL}', connect: name}}\n"
    refused = cofferdam(world, tmp_path, "run", "--manifest", manifest(text), "--workspace", project, "--", "true")
    assert refused.returncode == 125 and "accept_missing: [address_check]" in refused.stderr
    assert PASSWORD not in refused.stderr
    world.proxy.names = {OTHER: OTHER4}
    accepted = manifest(text + "accept_missing: [address_check]\n")
    result = cofferdam(world, tmp_path, "run", "--manifest", accepted, "--workspace", project, "--", "curl", "-sS", "-m", "20",
                       f"http://{OTHER}/named")
    assert f'"server": "{OTHER4}"' in result.stdout, result.stderr
    assert world.proxy.targets() == [f"{OTHER}:80"]


def test_a_manifest_in_the_workspace_holds_no_password(world, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    own = project / "cofferdam.yaml"
    own.write_text(f"version: 1\nnetwork:\n  rules: ['http://{OTHER}']\n  upstream_proxy: {{url: '{URL}'}}\n")
    assert cofferdam(world, tmp_path, "manifest", "trust", own).returncode == 0
    for words in ((), ("--manifest", own)):
        result = cofferdam(world, tmp_path, "run", *words, "--workspace", project, "--", "true")
        assert result.returncode == 125 and "password" in result.stderr and PASSWORD not in result.stderr
    own.write_text(own.read_text().replace(f"{USER}:{PASSWORD}@", ""))
    assert cofferdam(world, tmp_path, "manifest", "trust", own).returncode == 0
    assert cofferdam(world, tmp_path, "run", "--workspace", project, "--", "true").returncode == 0


@pytest.mark.parametrize("text,why", [
    ("  upstream_proxy: {connect: address}\n", "url"), ("  upstream_proxy: {url: 'https://p.example:1'}\n", "not in this version"),
    ("  upstream_proxy: {url: 'http://p.example:1', connect: both}\n", "address, name"), ("  nat64: ['64:ff9b::/64']\n", "NAT64"),
    ("  nat64: ['10.0.0.0/8']\n", "NAT64"), ("  resolver: {hosts_file: maybe}\n", "true or false")])
def test_a_manifest_says_file_line_and_key_of_what_is_wrong(world, tmp_path, manifest, text, why):
    file = manifest("  rules: []\n" + text)
    result = cofferdam(world, tmp_path, "manifest", "check", file)
    assert result.returncode != 0 and why in result.stderr, result.stderr
    assert str(file) in result.stderr
