"""What a workload that wants out would try between the lines of the policy: modes, budgets, ends. Each has a control."""
import contextlib
import json
import os
import signal
import socket
import ssl
import threading
import time

import pytest

from world import Gate, World, in_namespace, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, OTHER4 = "93.184.216.34", "93.184.216.35"
SITE, OTHER = "site.example.com", "other.example.com"
RST = (ConnectionResetError, BrokenPipeError)


class Silent:
    """A server that takes everything and never ends its side."""

    def __init__(self, namespace, address, port):
        self._sock = listen_in(namespace, address, port)
        self._held = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._sock.accept()
                self._held.append(connection)


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4)
        made.dns.add(OTHER, A=OTHER4)
        made.site = made.http(V4)
        made.tls = made.https(V4, names=[SITE])
        made.both = made.http(V4, 8080)
        made.raw = made.tcp(V4, 2222)
        made.silent = Silent(made.internet, V4, 4000)
        yield made


def metrics(gate):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(gate.control_path)
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: control\r\n\r\n")
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer.decode()


def tunnel(gate, target):
    sock = gate.connect("127.0.0.1", 3128)
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(1)
        assert piece, head
        head += piece
    assert head.startswith(b"HTTP/1.1 200 "), head
    return sock


def read_all(sock):
    got = b""
    with contextlib.suppress(*RST):
        while piece := sock.recv(65536):
            got += piece
    return got


def hello(world, sock, name):
    context = ssl.create_default_context(cafile=world.ca_file)
    with context.wrap_socket(sock, server_hostname=name) as tls:
        tls.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        return read_all(tls)


def with_rules(world, rules, **policy):
    gate = Gate(world, **policy)
    gate.policy["rules"] = rules
    return gate


def test_a_reason_of_the_upstream_proxy_is_counted_like_every_other(world):
    with Gate(world, rules=[f"http://{SITE}"], upstream_proxy={"url": "http://10.0.0.5:9"}) as gate:
        for _ in range(3):
            answer = gate.curl("-o", "/dev/null", "-w", "%{http_code}", "-x", gate.proxy, f"http://{SITE}/")
            assert answer.stdout == "502"
        line = 'decisions_total{verdict="error",reason="upstream_proxy_failed",protocol="http"} 3'
        assert line in metrics(gate)
        assert gate.stop() == 0


def test_the_end_of_the_service_records_tunnels_whose_workload_has_ended_its_side(world):
    with Gate(world, rules=[f"tcp://{SITE}:4000"]) as gate:
        half = tunnel(gate, f"{SITE}:4000")
        half.sendall(b"hello")
        half.shutdown(socket.SHUT_WR)
        gone = tunnel(gate, f"{SITE}:4000")
        gone.sendall(b"bye")
        gone.close()
        open_ = tunnel(gate, f"{SITE}:4000")
        open_.sendall(b"still there")
        end = time.monotonic() + 10
        while gate.stats()["bytes_up"] < 19 and time.monotonic() < end:
            time.sleep(0.05)
        assert gate.stop() == 0
        assert sorted(e["bytes_up"] for e in gate.events(event="egress")) == [3, 5, 11]


def test_what_follows_urgent_bytes_goes_on(world):
    with Gate(world, rules=[f"tcp://{SITE}:2222"]) as gate:
        sock = tunnel(gate, f"{SITE}:2222")
        sock.settimeout(20)
        sock.sendall(b"first\n")
        got = b""
        while b"first\n" not in got:
            got += sock.recv(65536)
        # All of it is there before the gate looks.
        os.kill(gate.process.pid, signal.SIGSTOP)
        try:
            sock.sendall(b"abc")
            sock.send(b"!", socket.MSG_OOB)
            sock.sendall(b"def\n")
            time.sleep(0.1)
        finally:
            os.kill(gate.process.pid, signal.SIGCONT)
        got = b""
        while b"def\n" not in got:
            got += sock.recv(65536)
        assert got == b"abcdef\n"
        sock.close()
        assert gate.stop() == 0


def test_a_service_that_ends_while_names_are_resolved_ends_in_order(world):
    world.dns.behave("silent.example.com", "silent")
    with Gate(world, rules=["silent.example.com"]) as gate:
        socks = [gate.connect("127.0.0.1", 3128) for _ in range(8)]
        for sock in socks:
            sock.sendall(b"CONNECT silent.example.com:443 HTTP/1.1\r\nHost: silent.example.com\r\n\r\n")
        end = time.monotonic() + 10
        while gate.stats()["dns_questions_sent"] < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.2)
        assert gate.stop() == 0
        assert sum(e.get("count", 1) for e in gate.events(event="egress")) == 8


BUDGETED = [{"id": "t", "rule": f"tls://{SITE}:2222"},
            {"id": "raw", "rule": f"tcp://{SITE}:2222", "budgets": {"bytes_up": 10}},
            {"id": "t8", "rule": f"tls://{SITE}:8080"},
            {"id": "h8", "rule": f"http://{SITE}:8080", "budgets": {"bytes_down": 20, "connections": 1}}]


def test_a_tunnel_is_charged_to_the_rule_of_what_is_said_in_it(world):
    with with_rules(world, BUDGETED) as gate:
        raw = tunnel(gate, f"{SITE}:2222")
        assert raw.recv(6, socket.MSG_WAITALL) == b"hello\n"
        with contextlib.suppress(*RST):
            raw.sendall(b"q" * 5000)
        assert read_all(raw) in (b"q" * 10, b"")
        event = gate.wait_event(event="egress", protocol="tcp")
        assert (event["rule"], event["bytes_up"], event["reason"]) == ("raw", 10, "quota_exceeded")
        http = tunnel(gate, f"{SITE}:8080")
        http.sendall(f"GET / HTTP/1.1\r\nHost: {SITE}:8080\r\n\r\n".encode())
        assert b" 200 " not in read_all(http)
        event = gate.wait_event(event="egress", protocol="http")
        assert (event["rule"], event["bytes_down"], event["reason"]) == ("h8", 20, "quota_exceeded")


MODES = ["monitor", "open"]


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_enforced_public_addresses_pass_and_the_floor_does_not(world, mode):
    with Gate(world, mode=mode) as gate:
        assert json.loads(gate.curl(f"http://{V4}/").stdout)["server"] == V4
        raw = gate.connect(V4, 2222)
        assert raw.recv(6, socket.MSG_WAITALL) == b"hello\n"
        raw.close()
        assert gate.wait_event(event="egress", port=2222, verdict="allow")["bytes_down"] == 6
        for address in ("169.254.169.254", "10.0.0.5", "192.168.7.7"):
            gate.curl("-o", "/dev/null", f"http://{address}/")
            event = gate.wait_event(event="egress", host=address)
            assert event["verdict"] == "deny", event
            assert not gate.events(event="egress", host=address, verdict="allow")


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_enforced_a_name_may_be_said_at_an_address_that_was_not_asked_for_here(world, mode):
    # --resolve is what a program with a resolver of its own does; the name is what is decided and dialled.
    with Gate(world, mode=mode, deny=[OTHER]) as gate:
        pinned = ["--resolve", f"{SITE}:443:{V4}", "--resolve", f"{SITE}:80:{V4}"]
        for scheme in ("https", "http"):
            answer = gate.curl(*pinned, f"{scheme}://{SITE}/")
            assert answer.returncode == 0 and SITE in answer.stdout, answer
            assert gate.wait_event(event="egress", host=SITE)["verdict"] == "allow"
        for scheme, port in (("https", 443), ("http", 80)):
            answer = gate.curl("--resolve", f"{OTHER}:{port}:{V4}", f"{scheme}://{OTHER}/")
            assert answer.returncode != 0 or "denied_by_rule" in answer.stdout, answer
            assert gate.wait_event(event="egress", host=OTHER)["reason"] == "denied_by_rule"


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_enforced_a_client_may_resolve_first_and_then_ask_for_the_address(world, mode):
    with Gate(world, mode=mode) as gate:
        assert gate.ask(SITE)[1] == [V4]
        assert b" 200 " in hello(world, tunnel(gate, f"{V4}:443"), SITE)
        assert gate.wait_event(event="egress", via="connect")["host"] == SITE
        raw = tunnel(gate, f"{V4}:2222")
        assert raw.recv(6, socket.MSG_WAITALL) == b"hello\n"


def test_enforced_the_same_is_refused(world):
    with Gate(world, rules=[f"http://{OTHER}"]) as gate:
        assert gate.ask(OTHER)[1] == [OTHER4]
        refused = gate.curl(f"http://{V4}/").stdout
        assert json.loads(refused)["reason"] == "ip_literal"
        refused = gate.curl("--resolve", f"{SITE}:80:{OTHER4}", f"http://{SITE}/").stdout
        assert json.loads(refused)["reason"] == "host_mismatch"
