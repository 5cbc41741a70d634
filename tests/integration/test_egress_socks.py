"""SOCKS5 at the gate, by raw bytes and by curl. Each refusal has an allowed control."""
import contextlib
import json
import socket
import struct
import time

import pytest

from world import Gate, World, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6, OTHER4 = "93.184.216.34", "2606:2800:220::34", "93.184.216.35"
SITE, OTHER = "site.example.com", "other.example.com"
GREETING = b"\x05\x01\x00"


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add("shared.example.com", A=V4)
        made.dns.add("git.example.com", A="93.184.216.36")
        made.dns.add("dead.example.com", A="1.1.1.1")
        made.dns.add("private.example.com", A="10.0.0.5")
        made.dns.add("slow.example.com", A=V4)
        made.dns.behave("slow.example.com", "silent")
        made.site4, made.site6 = made.http(V4), made.http(V6)
        made.tls4 = made.https(V4, names=[SITE, "shared.example.com"])
        made.tls6 = made.https(V6, names=[SITE])
        made.other_tls = made.https(OTHER4, names=[OTHER, SITE])
        made.git = made.tcp("93.184.216.36", 22, b"SSH-2.0-test\r\n")
        made.metadata = made.http("169.254.169.254")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=[SITE, f"http://{SITE}", OTHER, "tcp://git.example.com:22", "http://dead.example.com",
                            "http://slow.example.com", "http://gone.example.com", "http://private.example.com"],
              deny=["bad.example.com"]) as made:
        yield made


def request(host, port, command=1):
    if isinstance(host, bytes):
        where = b"\x03" + bytes([len(host)]) + host
    elif ":" in host:
        where = b"\x04" + socket.inet_pton(socket.AF_INET6, host)
    elif host.replace(".", "").isdigit():
        where = b"\x01" + socket.inet_pton(socket.AF_INET, host)
    else:
        where = b"\x03" + bytes([len(host)]) + host.encode()
    return bytes([5, command, 0]) + where + struct.pack("!H", port)


def read_all(sock):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            data += piece
    return data


def exactly(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, data
        data += piece
    return data


def ask(gate, message, greeting=GREETING, end=True):
    """The method selection and everything after it."""
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(greeting)
        method = exactly(sock, 2)
        sock.sendall(message)
        if end:
            with contextlib.suppress(OSError):  # it may be over already
                sock.shutdown(socket.SHUT_WR)
        return method, read_all(sock)


def reply_of(gate, host, port):
    method, answer = ask(gate, request(host, port))
    assert method == b"\x05\x00" and answer[:1] == b"\x05" and len(answer) == 10, answer
    assert answer[2:] == b"\x00\x01" + bytes(6)  # no address in a reply
    return answer[1]


def body(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# --- what is allowed works

@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("proxy", ["socks5h://127.0.0.1:3128", "socks5h://[::1]:3128"])
def test_a_name_is_resolved_here(gate, scheme, proxy):
    assert body(gate.curl("-x", proxy, f"{scheme}://{SITE}/s?q"))["path"] == "/s?q"
    event = gate.wait_event(event="egress", via="socks", verdict="allow", host=SITE,
                            protocol="tls" if scheme == "https" else "http")
    assert event["bytes_down"] > 0 and event["address"] in (V4, V6)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_client_that_resolves_by_itself(gate, scheme):
    """socks5:// clients ask our DNS and then want the address: it stands for its name."""
    answer = body(gate.curl("-x", "socks5://127.0.0.1:3128", f"{scheme}://{SITE}/own"))
    assert answer["server"] == V4
    assert gate.wait_event(event="egress", via="socks", verdict="allow", host=SITE, address=V4)["rule"]


@pytest.mark.parametrize("address", [V4, V6])
def test_an_address_that_was_given_out_stands_for_its_name(gate, address):
    gate.ask(SITE, 28 if ":" in address else 1)
    get = f"GET /own HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n".encode()
    _, answer = ask(gate, request(address, 80) + get)
    assert answer.startswith(b"\x05\x00") and f'"server": "{address}"'.encode() in answer
    assert gate.wait_event(event="egress", via="socks", verdict="allow", host=SITE, address=address)


def test_raw_tcp_where_the_server_speaks_first(gate):
    for host in ("git.example.com", "93.184.216.36"):
        gate.ask("git.example.com")
        with gate.connect("127.0.0.1", 3128) as sock:
            sock.sendall(GREETING + request(host, 22))
            assert exactly(sock, 2 + 10 + 14) == b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6) + b"SSH-2.0-test\r\n"
            sock.sendall(b"last words")
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b"last words"
    assert gate.wait_event(event="egress", via="socks", host="git.example.com", protocol="tcp", verdict="allow")


def test_everything_in_one_segment_and_byte_by_byte(gate):
    get = f"GET /one HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n".encode()
    whole = GREETING + request(SITE, 80) + get
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(whole)
        answer = read_all(sock)
    assert answer.startswith(b"\x05\x00\x05\x00") and b'"path": "/one"' in answer
    with gate.connect("127.0.0.1", 3128) as sock:
        for byte in whole:
            sock.sendall(bytes([byte]))
        assert b'"path": "/one"' in read_all(sock)


def test_plain_http_inside_is_decided_per_request(gate, world):
    """Case 1: a tunnel to port 80 carries HTTP whose Host must be the one asked for."""
    before = len(world.site4.requests) + len(world.site6.requests)
    method, answer = ask(gate, request(SITE, 80) + f"GET /a HTTP/1.1\r\nHost: {SITE}\r\n\r\n"
                         "GET /b HTTP/1.1\r\nHost: evil.example.org\r\n\r\n".encode())
    text = answer[10:].decode()
    assert text.startswith("HTTP/1.1 200") and "HTTP/1.1 421" in text and "host_mismatch" in text
    assert len(world.site4.requests) + len(world.site6.requests) == before + 1
    assert gate.wait_event(event="egress", via="socks", reason="host_mismatch")


# --- what is not

@pytest.mark.parametrize("host,port,code,reason", [
    ("evil.example.org", 443, 2, "no_rule"), ("bad.example.com", 443, 2, "denied_by_rule"),
    (SITE, 22, 2, "port_not_allowed"), (SITE, 3306, 2, "port_not_allowed"), (SITE, 853, 2, "port_not_allowed"),
    ("169.254.169.254", 80, 2, "metadata_address"), (b"169.254.169.254", 80, 2, "metadata_address"),
    ("127.0.0.1", 3128, 2, "loopback_address"), (b"::1", 80, 2, "loopback_address"), ("::1", 80, 2, "loopback_address"),
    (b"localhost", 80, 2, "loopback_address"), ("::ffff:169.254.169.254", 80, 2, "metadata_address"),
    ("64:ff9b::a9fe:a9fe", 80, 2, "metadata_address"), ("8.8.4.4", 443, 2, "ip_literal"),
    ("2001:db8::1", 443, 2, "ip_literal"), (b"private.example.com", 80, 2, "private_address"),
    (b"0x7f.1", 80, 1, "name_invalid"), (b"127.1", 80, 1, "name_invalid"), (b"fe80::1%eth0", 80, 1, "name_invalid"),
    (b"a\r\nb.example.com", 80, 1, "name_invalid"), (b"a\x00b", 80, 1, "name_invalid"), (b"x" * 255, 80, 1, "name_invalid"),
    (SITE, 0, 1, "malformed"), (b"gone.example.com", 80, 4, "resolve_failed"),
    (b"dead.example.com", 80, 5, "connect_failed"), (b"slow.example.com", 80, 6, "resolve_timeout")])
def test_reply_codes(gate, world, host, port, code, reason):
    """Cases 133, 134, 135 and the codes of the catalogue."""
    questions, touched = len(world.dns.questions()), world.metadata.connections
    seen = len(gate.events(event="egress", via="socks"))
    assert reply_of(gate, host, port) == code
    gate.wait_events(seen + 1, event="egress", via="socks")
    events = gate.events(event="egress", via="socks")[seen:]
    assert [e["reason"] for e in events] == [reason]
    if code in (1, 2) and reason != "private_address":
        assert len(world.dns.questions()) == questions
    assert world.metadata.connections == touched


@pytest.mark.parametrize("message,code", [
    (request(SITE, 80, command=2), 7), (request(SITE, 0, command=3), 7), (request(SITE, 80, command=0xF0), 7),
    (request(SITE, 80, command=0), 7), (b"\x05\x01\x00\x02\x04abcd\x00\x50", 8), (b"\x05\x01\x00\x00\x00\x50", 8),
    (b"\x05\x01\x00\x03\x00\x00\x50", 1), (b"\x05\x01\x09" + request(SITE, 80)[3:], 1), (b"\x04\x01\x00\x50\x08\x08\x08\x08\x00", 1)])
def test_commands_and_address_types_that_are_refused(gate, message, code):
    """Case 135: BIND, UDP ASSOCIATE, Tor's resolve, unknown commands and address types."""
    method, answer = ask(gate, message)
    assert method == b"\x05\x00" and answer == bytes([5, code, 0, 1]) + bytes(6)
    assert body(gate.curl("-x", "socks5h://127.0.0.1:3128", f"http://{SITE}/"))


@pytest.mark.parametrize("greeting", [b"\x05\x01\x02", b"\x05\x00", b"\x05\x02\x01\x02", b"\x05\x03\x80\x81\xff"])
def test_no_acceptable_method(gate, greeting):
    """Case 136."""
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(greeting)
        assert read_all(sock) == b"\x05\xff"
    assert gate.wait_event(event="egress", via="socks", reason="unsupported")


@pytest.mark.parametrize("greeting", [b"\x04\x01\x00\x50\x01\x01\x01\x01\x00", b"\x04\x01\x00\x50\x00\x00\x00\x01\x00site.example.com\x00"])
def test_socks4_is_closed(gate, greeting):
    """Case 136: SOCKS4 and 4a."""
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(greeting)
        assert read_all(sock) == b""


def test_other_first_bytes_are_http_or_nothing(gate):
    """Case 138."""
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(b"\x06\x01\x00\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400 ")
    # SOCKS at the transparent port is no protocol that a rule names.
    gate.ask(SITE)
    with gate.connect(V4, 443) as sock:
        sock.sendall(GREETING)
        assert read_all(sock) == b""
    assert gate.wait_event(event="egress", via="transparent", reason="not_tls")


def test_the_name_inside_is_the_name_asked_for(gate, world):
    """Case 115 for SOCKS: allowed names, but another's certificate name."""
    result = gate.curl("-x", "socks5h://127.0.0.1:3128", "--connect-to", f"{SITE}:443:{OTHER}:443", f"https://{SITE}/")
    assert result.returncode != 0
    assert gate.wait_event(event="egress", via="socks", reason="sni_mismatch")["host"] == OTHER
    assert not world.other_tls.requests
    assert body(gate.curl("-x", "socks5h://127.0.0.1:3128", f"https://{OTHER}/"))["server"] == OTHER4


def test_what_is_not_tls_on_a_tls_port(gate):
    method, answer = ask(gate, request(SITE, 443) + b"SSH-2.0-x\r\n")
    assert answer[:2] in (b"", b"\x05\x00") and b"SSH" not in answer[10:]
    assert gate.wait_event(event="egress", via="socks", reason="not_tls")


def test_a_shared_address_is_chosen_by_what_is_said_inside(world):
    """Two allowed names on one address: SNI and Host choose, a third name does not pass."""
    rules = [SITE, f"http://{SITE}", "shared.example.com", "http://shared.example.com"]
    with Gate(world, rules=rules) as gate:
        gate.ask(SITE), gate.ask("shared.example.com")
        for name in (SITE, "shared.example.com"):
            for scheme, port in (("https", 443), ("http", 80)):
                assert body(gate.curl("-4", "-x", "socks5://127.0.0.1:3128", f"{scheme}://{name}/x"))["server"] == V4
                assert body(gate.curl("-p", "-x", gate.proxy, "--connect-to", f"{name}:{port}:{V4}:{port}",
                                      f"{scheme}://{name}/y"))["server"] == V4
        result = gate.curl("-k", "-x", "socks5h://127.0.0.1:3128", "--connect-to", f"evil.example.org:443:{V4}:443",
                           "https://evil.example.org/")
        assert result.returncode != 0
        assert gate.wait_event(event="egress", via="socks", reason="sni_mismatch")


def test_a_shared_address_whose_other_name_is_denied(world):
    """The one allowed name of the address may be said, the denied one not."""
    with Gate(world, rules=[SITE, "http://shared.example.com"]) as gate:
        gate.ask(SITE), gate.ask("shared.example.com")
        assert body(gate.curl("-4", "-x", "socks5://127.0.0.1:3128", f"https://{SITE}/x"))["server"] == V4
        result = gate.curl("-k", "-x", "socks5://127.0.0.1:3128", "https://shared.example.com/")
        assert result.returncode != 0
        assert gate.wait_event(event="egress", via="socks", verdict="deny", protocol="tls")["reason"] == "port_not_allowed"


def test_a_handshake_that_does_not_end(world):
    with Gate(world, rules=[SITE], options=["--deadline", "head=400"]) as gate:
        for begun in (b"\x05", b"\x05\x05\x00", GREETING + b"\x05\x01", GREETING + request(SITE, 443)[:-1]):
            with gate.connect("127.0.0.1", 3128) as sock:
                sock.sendall(begun)
                began = time.monotonic()
                assert read_all(sock) in (b"", b"\x05\x00")
                assert time.monotonic() - began < 8
        gate.wait_events(4, event="egress", via="socks", reason="deadline")
        assert len(gate.events(event="egress", via="socks", reason="deadline")) == 4
