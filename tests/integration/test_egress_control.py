"""Budgets, live policy, the control socket, the event log: what changes while a gate runs. Each refusal has a control."""
import contextlib
import copy
import datetime
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from world import SERVICE_UID, Gate, World, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, OTHER4, TCP4 = "93.184.216.34", "93.184.216.35", "93.184.216.36"
SITE, OTHER, RAW = "site.example.com", "other.example.com", "raw.example.com"
RULES = [f"http://{SITE}", f"http://{OTHER}", f"tcp://{RAW}:9000", SITE, "*.wild.example.com"]
RST = (ConnectionResetError, BrokenPipeError)


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add(RAW, A=TCP4)
        for i in range(20):
            made.dns.add(f"n{i}.wild.example.com", A=V4)
        made.site = made.http(V4)
        made.site_tls = made.https(V4, names=[SITE])
        made.other = made.http(OTHER4)
        made.raw = made.tcp(TCP4, 9000, b"hello\n")
        yield made


def gate_with(world, rules=RULES, budgets=None, **policy):
    """A gate whose rules have budgets: {rule text: {…}}; "sandbox" is the whole sandbox's."""
    budgets = budgets or {}
    gate = Gate(world, rules=rules, **policy)
    for rule in gate.policy["rules"]:
        if rule["rule"] in budgets:
            rule["budgets"] = budgets[rule["rule"]]
    if "sandbox" in budgets:
        gate.policy["budgets"] = budgets["sandbox"]
    return gate


def ask(gate, method="GET", path="/stats", body=None, raw=None, timeout=10):
    """(status, headers and body as text) of the control socket."""
    data = raw
    if data is None:
        data = f"{method} {path} HTTP/1.1\r\nHost: control\r\n".encode()
        if body is not None:
            data += f"Content-Length: {len(body)}\r\n".encode()
        data += b"\r\n" + (body or b"")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout)
        sock.connect(gate.control_path)
        with contextlib.suppress(*RST):
            sock.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                answer += piece
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, text.decode()


def put(gate, policy):
    body = policy if isinstance(policy, bytes) else json.dumps(policy).encode()
    status, text = ask(gate, "PUT", "/policy", body)
    return status, json.loads(text)


def without(gate, *texts):
    policy = copy.deepcopy(gate.policy)
    policy["rules"] = [r for r in policy["rules"] if r["rule"] not in texts]
    return policy


def wait_for(what, timeout=15):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    assert what()


def pin(gate, name):
    """The workload resolves it, as it would before it connects."""
    return gate.ask(name)[1][0]


def tunnel(gate, target, timeout=10):
    sock = gate.connect("127.0.0.1", 3128, timeout)
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(1)
        assert piece, head
        head += piece
    return sock, head


def raw_tunnel(gate):
    sock, head = tunnel(gate, f"{RAW}:9000")
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert sock.recv(6, socket.MSG_WAITALL) == b"hello\n"
    return sock


def read_all(sock):
    """(bytes, whether it ended with a reset)."""
    got = b""
    try:
        while piece := sock.recv(65536):
            got += piece
    except RST:
        return got, True
    return got, False


def http(gate, request, timeout=15):
    got, reset = b"", False
    with gate.connect("127.0.0.1", 3128, timeout) as sock:
        with contextlib.suppress(*RST):
            sock.sendall(request if isinstance(request, bytes) else request.encode())
        got, reset = read_all(sock)
    return got, reset


def get(host, path="/", extra=""):
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{extra}\r\n"


# --- case 144: bytes are counted, and the cut is at the exact byte

def test_case_144_a_length_over_the_rest_is_refused_before_a_byte_is_sent(world):
    with gate_with(world, budgets={f"http://{SITE}": {"bytes_up": 1000}}) as gate:
        before = len(world.site.requests)
        answer, _ = http(gate, f"POST http://{SITE}/up HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 2000\r\n\r\n" +
                         "x" * 2000)
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
        assert b"Cofferdam-Reason: quota_exceeded\r\n" in answer
        assert len(world.site.requests) == before
        event = gate.wait_event(event="egress", reason="quota_exceeded")
        assert (event["verdict"], event["rule"], event["bytes_up"]) == ("deny", "r:1", 0)
        answer, _ = http(gate, f"POST http://{SITE}/up HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 200\r\n"
                               "Connection: close\r\n\r\n" + "x" * 200)
        assert answer.startswith(b"HTTP/1.1 200 "), "the control: what fits is served"


def test_case_144_a_chunked_upload_is_cut_and_told(world):
    with gate_with(world, budgets={f"http://{SITE}": {"bytes_up": 5000}}) as gate:
        chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
        before = len(world.site.requests)
        answer, _ = http(gate, f"POST http://{SITE}/up HTTP/1.1\r\nHost: {SITE}\r\nTransfer-Encoding: chunked\r\n\r\n"
                         .encode() + chunk * 20 + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ") and b"quota_exceeded" in answer, answer[:200]
        event = gate.wait_event(event="egress", reason="quota_exceeded")
        assert event["bytes_up"] == 5000
        assert len(world.site.requests) == before, "the server never saw a whole request"
        # Nothing is left: the next one is refused at once.
        answer, _ = http(gate, get(SITE))
        assert answer.startswith(b"HTTP/1.1 403 ") and b"quota_exceeded" in answer


@pytest.mark.parametrize("path", ["/big", "/chunked"])
def test_case_144_a_download_is_cut_at_the_byte_and_not_as_an_orderly_end(world, path):
    limit = 300 if path == "/chunked" else 3_000_000
    with gate_with(world, budgets={f"http://{SITE}": {"bytes_down": limit}}) as gate:
        answer, reset = http(gate, get(SITE, path))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert reset, "an end that looks like one would be taken for the whole"
        assert not answer.endswith(b"0\r\n\r\n")
        event = gate.wait_event(event="egress", reason="quota_exceeded", verdict="deny")
        assert event["bytes_down"] == limit
        if path == "/big":
            head, _, body = answer.partition(b"\r\n\r\n")
            assert abs(len(body) - limit) < 1000, "all that was paid for arrived"


def test_case_144_a_raw_tunnel_is_cut_at_the_byte_both_ways(world):
    with gate_with(world, budgets={f"tcp://{RAW}:9000": {"bytes_up": 1000}}) as gate:
        with raw_tunnel(gate) as sock:
            sock.sendall(b"a" * 990)
            assert sock.recv(990, socket.MSG_WAITALL) == b"a" * 990
            sock.sendall(b"b" * 500)
            got, reset = read_all(sock)
            assert reset and set(got) <= {ord("b")}
        event = gate.wait_event(event="egress", reason="quota_exceeded", host=RAW)
        assert event["bytes_up"] == 1000
    with gate_with(world, budgets={f"tcp://{RAW}:9000": {"bytes_down": 106}}) as gate:
        with raw_tunnel(gate) as sock:
            sock.sendall(b"c" * 5000)
            got, reset = read_all(sock)
            assert (got, reset) == (b"c" * 100, True)


def test_a_budget_of_the_sandbox_holds_for_all_rules_together(world):
    with gate_with(world, budgets={"sandbox": {"bytes_down": 2000}}) as gate:
        for host in (SITE, OTHER) * 10:
            answer, _ = http(gate, get(host))
            if b"quota_exceeded" in answer or not answer.endswith(b"}"):
                break
        assert gate.wait_event(event="egress", reason="quota_exceeded")
        assert gate.stats()["bytes_down"] == 2000
        assert http(gate, get(OTHER))[0].startswith(b"HTTP/1.1 403 ")


# --- rates and numbers

def test_too_many_connections_of_a_rule_at_once(world):
    with gate_with(world, budgets={f"tcp://{RAW}:9000": {"connections": 2}}) as gate:
        with raw_tunnel(gate), raw_tunnel(gate) as second:
            sock, head = tunnel(gate, f"{RAW}:9000")
            with sock:
                assert head.startswith(b"HTTP/1.1 503 "), head
                assert b"Retry-After: " in head and b"too_many_connections" in head
            event = gate.wait_event(event="egress", reason="too_many_connections", host=RAW)
            assert event["retryable"] is True and event["rule"] == "r:3"
            assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 "), "another rule has its own"
            second.close()
            wait_for(lambda: gate.stats()["connections"] == 1)
            raw_tunnel(gate).close()


# Case 150.
def test_case_150_too_many_half_open_connections_of_a_sandbox(world):
    with gate_with(world, budgets={"sandbox": {"connections": 5}}) as gate:
        idle = [gate.connect("127.0.0.1", 3128) for _ in range(5)]
        wait_for(lambda: gate.stats()["sessions"] == 5)
        answer, _ = http(gate, get(SITE))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: " in answer and b"too_many_connections" in answer
        address = V4
        with contextlib.suppress(ConnectionResetError):  # it may come as early as that
            with gate.connect(address, 443) as sock:
                assert read_all(sock) == (b"", True), "what does not speak HTTP is reset"
        assert gate.stats()["sessions"] == 5 and gate.stats()["refused_sessions"] >= 2
        for sock in idle:
            sock.close()
        wait_for(lambda: gate.stats()["sessions"] == 0)
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")


def test_new_connections_per_second(world):
    with gate_with(world, budgets={f"http://{SITE}": {"connections_per_second": 1}}) as gate:
        answers = [http(gate, get(SITE))[0] for _ in range(6)]
        assert answers[0].startswith(b"HTTP/1.1 200 ")
        limited = [a for a in answers if a.startswith(b"HTTP/1.1 429 ")]
        assert limited and all(b"Retry-After: 1\r\n" in a and b"rate_limited" in a for a in limited)
        assert gate.wait_event(event="egress", reason="rate_limited")["retryable"] is True
        wait_for(lambda: http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 "))


def test_case_62_names_below_a_wildcard_per_minute(world):
    with gate_with(world, budgets={"*.wild.example.com": {"names_per_minute": 5}}) as gate:
        for i in range(5):
            assert gate.ask(f"n{i}.wild.example.com")[0] == 0
        asked = len(world.dns.questions("n6.wild.example.com"))
        assert gate.ask("n6.wild.example.com")[0] == 2, "SERVFAIL: not an answer that is kept"
        assert gate.wait_event(event="dns", reason="rate_limited", host="n6.wild.example.com")["verdict"] == "deny"
        answer, _ = http(gate, "CONNECT n7.wild.example.com:443 HTTP/1.1\r\nHost: n7.wild.example.com:443\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 429 "), "no way round through the proxy"
        assert len(world.dns.questions("n6.wild.example.com")) == asked
        assert not world.dns.questions("n7.wild.example.com")
        assert gate.ask("n3.wild.example.com")[0] == 0, "what was asked before is answered"
        assert gate.ask(SITE)[0] == 0, "a name that a rule spells out is not counted"


# --- live policy

def test_case_142_a_tunnel_that_a_new_policy_does_not_allow_is_closed(world):
    with gate_with(world) as gate:
        with raw_tunnel(gate) as revoked, raw_tunnel(gate) as second:
            policy = without(gate, f"tcp://{RAW}:9000")
            assert put(gate, policy) == (200, {"revision": 2, "connections_ended": 2})
            for sock in (revoked, second):
                assert read_all(sock) == (b"", True)
        event = gate.wait_event(event="egress", reason="policy_revoked", host=RAW)
        assert (event["verdict"], event["rule"], event["bytes_down"]) == ("deny", "r:3", 6)
        assert gate.wait_event(event="policy_replaced")["revision"] == 2
        sock, head = tunnel(gate, f"{RAW}:9000")
        sock.close()
        assert head.startswith(b"HTTP/1.1 403 ") and b"no_rule" in head
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")
        assert put(gate, gate.policy)[0] == 200
        raw_tunnel(gate).close()


def test_case_142_a_deny_rule_and_a_closed_range_end_tunnels_too(world):
    with gate_with(world) as gate, raw_tunnel(gate) as sock:
        assert put(gate, {**gate.policy, "deny": [{"id": "d", "rule": TCP4}]})[1]["connections_ended"] == 1
        assert read_all(sock) == (b"", True)


def test_case_142_a_tunnel_that_is_still_allowed_goes_on_under_its_new_rule(world):
    with gate_with(world) as gate, raw_tunnel(gate) as sock:
        policy = without(gate, f"tcp://{RAW}:9000")
        policy["rules"].insert(0, {"id": "new", "rule": f"tcp://{RAW}:9000", "budgets": {"bytes_up": 10}})
        assert put(gate, policy)[1]["connections_ended"] == 0
        sock.sendall(b"12345")
        assert sock.recv(5, socket.MSG_WAITALL) == b"12345"
        (connection,) = json.loads(ask(gate, path="/connections")[1])["connections"]
        assert connection["rule"] == "new"
        sock.sendall(b"123456")
        got, reset = read_all(sock)
        assert reset and len(got) <= 5


def test_case_142_tls_is_closed_when_only_another_protocol_is_left(world):
    with gate_with(world) as gate:
        pin(gate, SITE)
        client = subprocess.Popen(
            ["ip", "netns", "exec", gate.namespace, "openssl", "s_client", "-quiet", "-connect", f"{V4}:443",
             "-servername", SITE], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: any(c["protocol"] == "tls" for c in
                                 json.loads(ask(gate, path="/connections")[1])["connections"]))
            policy = without(gate, SITE)
            policy["rules"].append({"id": "raw", "rule": f"tcp://{SITE}:443"})
            assert put(gate, policy)[1]["connections_ended"] == 1
            client.wait(timeout=10)
        finally:
            client.kill()
            client.wait()
            client.stdin.close()


def test_case_142_http_is_decided_anew_for_each_request(world):
    with gate_with(world) as gate, gate.connect("127.0.0.1", 3128) as sock:
        keep = f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode()
        sock.sendall(keep)
        answer = b""
        while not answer.endswith(b"}"):
            answer += sock.recv(65536)
        assert put(gate, without(gate, f"http://{SITE}"))[0] == 200
        sock.sendall(keep)
        assert sock.recv(65536).startswith(b"HTTP/1.1 403 ")


BAD = {
    "no JSON": b"{",
    "another version": {"version": 2},
    "an unknown key": {"rulez": []},
    "a rule that does not parse": {"rules": [{"id": "a", "rule": "*"}]},
    "an id twice": {"rules": [{"id": "a", "rule": SITE}, {"id": "a", "rule": OTHER}]},
    "another sandbox": {"sandbox": "other"},
    "another resolver": {"resolver": {"servers": ["1.1.1.1"]}},
    "a budget of nothing": {"budgets": {"bytes_up": 0}},
    "an end that is no time": {"rules": [{"id": "a", "rule": SITE, "expires": "tomorrow"}]},
}


@pytest.mark.parametrize("what", BAD)
def test_case_37_a_bad_policy_leaves_the_old_one(world, what):
    with gate_with(world) as gate, raw_tunnel(gate) as sock:
        bad = BAD[what] if isinstance(BAD[what], bytes) else {**gate.policy, **BAD[what]}
        status, body = put(gate, bad)
        assert status == 400 and body["error"], body
        sock.sendall(b"still")
        assert sock.recv(5, socket.MSG_WAITALL) == b"still"
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")
        assert gate.stats()["policy"]["revision"] == 1


def test_a_rule_with_an_end_ends_by_itself_with_what_it_allowed(world):
    with gate_with(world, rules=[f"http://{SITE}"]) as gate:
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=4)
        grant = {"id": "grant:1", "rule": f"tcp://{RAW}:9000", "expires": end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        policy = {**gate.policy, "rules": gate.policy["rules"] + [grant]}
        assert put(gate, policy)[0] == 200
        with raw_tunnel(gate) as sock:
            assert read_all(sock) == (b"", True)
        assert datetime.datetime.now(datetime.timezone.utc) >= end
        assert gate.wait_event(event="egress", reason="policy_revoked")["rule"] == "grant:1"
        assert gate.wait_event(event="rule_expired", rule_id="grant:1")["connections_ended"] == 1
        sock, head = tunnel(gate, f"{RAW}:9000")
        sock.close()
        assert head.startswith(b"HTTP/1.1 403 ")
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")
        # A policy that comes with a rule whose time is over does not bring it back.
        assert put(gate, policy)[0] == 200
        sock, head = tunnel(gate, f"{RAW}:9000")
        sock.close()
        assert head.startswith(b"HTTP/1.1 403 ")


# --- the control socket

def test_connections_are_listed_and_can_be_ended_one_by_one(world):
    with gate_with(world) as gate, raw_tunnel(gate) as first, raw_tunnel(gate) as second:
        first.sendall(b"12345")
        first.recv(5, socket.MSG_WAITALL)
        listed = json.loads(ask(gate, path="/connections")[1])["connections"]
        assert len(listed) == 2 and listed[0]["id"] < listed[1]["id"]
        assert {k: listed[0][k] for k in ("protocol", "host", "port", "address", "rule", "bytes_up", "bytes_down")} == {
            "protocol": "tcp", "host": RAW, "port": 9000, "address": TCP4, "rule": "r:3", "bytes_up": 5,
            "bytes_down": 11}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", listed[0]["since"])
        assert ask(gate, "DELETE", f"/connections/{listed[0]['id']}")[0] == 200
        assert read_all(first) == (b"", True)
        second.sendall(b"x")
        assert second.recv(1) == b"x"
        for bad in (listed[0]["id"], "", "x", "1x", "-1", "99999999999999999999"):
            assert ask(gate, "DELETE", f"/connections/{bad}")[0] == 404


SAMPLE = re.compile(r'^[a-z_]+(\{[a-z_]+="(?:[^"\\]|\\.)*"(,[a-z_]+="(?:[^"\\]|\\.)*")*\})? \d+$')


def test_metrics_are_prometheus_text(world):
    with gate_with(world, budgets={"sandbox": {"bytes_up": 10**6}, f"http://{SITE}": {"bytes_down": 10**6}}) as gate:
        http(gate, get(SITE))
        http(gate, get("denied.example.net"))
        gate.ask("denied.example.net")
        with raw_tunnel(gate):
            status, text = ask(gate, path="/metrics")
        assert status == 200
        values, declared = {}, set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in declared and kind in ("counter", "gauge")
                declared.add(name)
            elif not line.startswith("# HELP "):
                assert SAMPLE.match(line), line
                name, value = line.rsplit(" ", 1)
                assert name.split("{")[0] in declared and name not in values
                values[name] = int(value)
        p = "cofferdam_egress_"
        assert values[p + 'decisions_total{verdict="allow",reason="allowed",protocol="http"}'] == 1
        assert values[p + 'decisions_total{verdict="deny",reason="no_rule",protocol="http"}'] == 1
        assert values[p + 'decisions_total{verdict="deny",reason="no_rule",protocol="dns"}'] == 1
        assert values[p + "connections"] == 1
        assert 0 < values[p + 'budget_bytes_left{rule="",direction="up"}'] < 10**6
        assert 0 < values[p + 'budget_bytes_left{rule="r:1",direction="down"}'] < 10**6
        assert values[p + "events_lost_total"] == 0 and values[p + "events_written_total"] > 0
        assert values[p + 'bytes_total{direction="down"}'] > 0


MALFORMED = [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /stats HTTP/1.1\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n",
             b"GET /stats HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
             b"PUT /policy HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             b"PUT /policy HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
             b"GET /stats HTTP/1.1\r\nHost: a\r\n" + b"A: " + b"b" * 40000 + b"\r\n\r\n",
             b"GET /stats HTTP/1.1\r\nHost: a\r\n\r\nmore"]


def test_the_control_socket_refuses_what_is_malformed_and_lives_on(world):
    with gate_with(world) as gate:
        for raw in MALFORMED:
            status, _ = ask(gate, raw=raw)
            assert status in (400, 411, 413), (raw[:60], status)
        for method, path, want in (("POST", "/stats", 405), ("GET", "/policy", 405), ("GET", "/nothing", 404),
                                   ("GET", "/connections/1", 405), ("DELETE", "/stats", 405)):
            assert ask(gate, method, path)[0] == want
        assert ask(gate, path="/health")[0] == 200


def test_the_control_socket_is_its_owners_alone(world):
    with gate_with(world) as gate:
        os.chmod(gate.directory, 0o755)
        os.chmod(gate.control_path, 0o777)
        program = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
                   "print(s.recv(4096).decode())\n")
        for uid in (65534, SERVICE_UID):
            result = subprocess.run(["/usr/bin/python3", "-c", program, gate.control_path], capture_output=True,
                                    text=True, user=uid, timeout=20)
            assert result.stdout.startswith("HTTP/1.1 403 "), result
            assert "sessions" not in result.stdout
        assert ask(gate)[0] == 200


def test_slow_clients_of_the_control_socket_stall_nobody(world):
    with gate_with(world) as gate, contextlib.ExitStack() as stack:
        for _ in range(10):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(gate.control_path)
            sock.sendall(b"PUT /policy HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{")
        started = time.monotonic()
        assert ask(gate)[0] == 200
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - started < 5


# Case 149: the floor for the control socket.
class FewDescriptors:
    """The world, but what is started in it has few descriptors."""

    def __init__(self, world, count):
        self._world, self._count = world, count

    def __getattr__(self, name):
        return getattr(self._world, name)

    def popen_outside(self, argv, **options):
        return self._world.popen_outside(["prlimit", f"--nofile={self._count}:{self._count}", *argv], **options)


def test_case_149_the_control_socket_answers_when_descriptors_are_exhausted(world):
    with gate_with(FewDescriptors(world, 64)) as gate, contextlib.ExitStack() as stack:
        pid = service_pid(gate)
        for _ in range(60):
            stack.enter_context(gate.connect("127.0.0.1", 3128))
        wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) >= 62)
        for _ in range(5):
            assert ask(gate)[0] == 200
        for _ in range(3):
            answer, _ = http(gate, get(SITE), timeout=60)
            assert answer.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in answer
        # The addresses of the machine are read again when they change, now too.
        wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) == 64)
        for act in ("add", "del"):
            subprocess.run(["ip", "-n", world.outside, "addr", act, "198.51.100.99/32", "dev", "lo"], check=True)
        assert ask(gate)[0] == 200
        before = cpu_seconds(pid)
        time.sleep(1)
        assert cpu_seconds(pid) - before < 0.5, "the accept loop does not spin"
        stack.close()
        wait_for(lambda: http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 "))


def service_pid(gate):
    """egressproxy itself: `ip netns exec` replaces itself with it."""
    assert "egressproxy" in open(f"/proc/{gate.process.pid}/cmdline").read()
    return gate.process.pid


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- case 152: the record

def test_case_152_a_full_record_refuses_new_connections_and_says_so(world):
    with gate_with(world) as gate:
        assert http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 ")
        limit = 256 << 20
        size = gate.events_file.stat().st_size
        os.truncate(gate.events_file, limit - 4096 - 50)
        http(gate, get("denied.example.net"))  # the event that no longer fits
        answer, _ = http(gate, get(SITE))
        assert answer.startswith(b"HTTP/1.1 403 ") and b"quota_exceeded" in answer
        assert ask(gate, path="/health")[0] == 503
        stats = gate.stats()
        assert stats["events_lost"] >= 1
        with open(gate.events_file, "rb") as events:
            events.seek(limit - 4096 - 50)
            last = json.loads(events.read().strip(b"\0\n").splitlines()[-1])
        assert last["event"] == "record_full"
        assert gate.events_file.stat().st_size <= limit
        os.truncate(gate.events_file, size)  # as an operator may make room
        wait_for(lambda: http(gate, get(SITE))[0].startswith(b"HTTP/1.1 200 "))
        assert gate.wait_event(event="events_lost")["count"] >= 1
        assert ask(gate, path="/health")[0] == 200


# --- case 153: order

def test_case_153_nothing_is_answered_before_the_policy_is_loaded(world):
    """A start whose policy does not parse never serves; what waited at the gate is reset, not let through."""
    gate = gate_with(world)
    gate.policy["rules"].append({"id": "x", "rule": "*"})
    with pytest.raises(RuntimeError, match="error: .*rule"):
        gate.__enter__()


def test_case_153_a_crash_leaves_no_network(world):
    with gate_with(world) as gate, raw_tunnel(gate) as sock:
        pin(gate, SITE)
        os.kill(service_pid(gate), signal.SIGKILL)
        assert read_all(sock)[0] == b""
        gate.process.wait(timeout=10)
        with pytest.raises(OSError):
            gate.connect(V4, 80, timeout=5)
        assert gate.curl("-m", "5", f"http://{V4}/").returncode != 0
