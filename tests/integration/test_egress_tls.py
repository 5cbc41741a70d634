"""TLS at the gate: what a ClientHello may be and how it may arrive (docs/egress-cases.md, section 3.5)."""
import contextlib
import socket
import ssl
import struct
import time

import pytest

from world import Gate, World, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6, OTHER4, GIT4 = "93.184.216.34", "2606:2800:220::34", "93.184.216.35", "93.184.216.36"
SITE, OTHER = "site.example.com", "other.example.com"
LITERAL = "1.1.1.1"


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add("git.example.com", A=GIT4)
        made.tls4, made.tls6 = made.https(V4, names=[SITE]), made.https(V6, names=[SITE])
        made.other_tls = made.https(OTHER4, names=[OTHER, SITE])
        made.literal = made.https(LITERAL, names=[LITERAL])
        made.raw = made.tcp(GIT4, 443, b"")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    rules = [SITE, OTHER, LITERAL, "tcp://git.example.com:443", f"http://{SITE}"]
    with Gate(world, rules=rules, options=["--deadline", "hello=900", "--deadline", "first_byte=900"]) as made:
        yield made


def extension(kind, data):
    return struct.pack("!HH", kind, len(data)) + data


def server_name(name, kind=0):
    entry = bytes([kind]) + struct.pack("!H", len(name)) + name
    return extension(0, struct.pack("!H", len(entry)) + entry)


def message(extensions, body=None):
    """A ClientHello as a handshake message."""
    hello = body if body is not None else (b"\x03\x03" + b"r" * 32 + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" +
                                           struct.pack("!H", len(extensions)) + extensions)
    return b"\x01" + struct.pack("!I", len(hello))[1:] + hello


def records(handshake, size=16000):
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(handshake[i:i + size])) + handshake[i:i + size]
                    for i in range(0, len(handshake), size))


def real_hello(name):
    """What OpenSSL would send, and the means to go on with its answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


WAYS = ["transparent", "connect", "socks"]


@contextlib.contextmanager
def way_in(gate, way, host=SITE, address=V4, port=443):
    """A connection on which the next bytes are what is said inside."""
    if way == "transparent":
        gate.ask(host)
        with gate.connect(address, port) as sock:
            yield sock
        return
    with gate.connect("127.0.0.1", 3128) as sock:
        if way == "connect":
            sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                answer += sock.recv(1)
            assert answer.startswith(b"HTTP/1.1 200 ")
        else:
            sock.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + struct.pack("!H", port))
            answer = b""
            while len(answer) < 12:
                answer += sock.recv(12 - len(answer))
            assert answer[:4] == b"\x05\x00\x05\x00"
        yield sock


def said(sock):
    """Everything until the end, also when that is a reset."""
    data = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while piece := sock.recv(65536):
            data += piece
    return data


def refused(gate, world, way, hello, reason, **where):
    """Closed without a byte, recorded once, and no server has seen a request."""
    before = len(gate.events(event="egress", verdict="deny"))
    with way_in(gate, way, **where) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(hello)
        assert said(sock) == b""
    gate.wait_events(before + 1, event="egress", verdict="deny")
    new = gate.events(event="egress", verdict="deny")[before:]
    assert [(e["reason"], e["verdict"], e["via"]) for e in new] == [(reason, "deny", way)]
    assert not world.other_tls.requests
    return new[0]


def answered(gate, way, pieces, pause=0, **where):
    """The server itself answers the handshake."""
    with way_in(gate, way, **where) as sock:
        for piece in pieces:
            sock.sendall(piece)
            if pause:
                time.sleep(pause)
        sock.settimeout(15)
        return sock.recv(1) in (b"\x16", b"\x15")


@pytest.mark.parametrize("way", WAYS)
def test_the_name_inside_is_the_one_decided(gate, world, way):
    """Case 115: allowed names both, but not on this connection."""
    refused(gate, world, way, records(message(server_name(OTHER.encode()))), "sni_mismatch")
    refused(gate, world, way, records(message(server_name(b"evil.example.org"))), "sni_mismatch")
    for name in (SITE, SITE.upper(), SITE + "."):
        assert answered(gate, way, [records(message(server_name(name.encode()) + extension(43, b"\x02\x03\x04")))])
    assert answered(gate, way, [real_hello(SITE)])


@pytest.mark.parametrize("way", WAYS)
def test_a_hello_without_a_name(gate, world, way):
    """Case 116: only `tcp` rules take it for a name; there is no milder TLS rule."""
    refused(gate, world, way, records(message(extension(10, b"\0\x02\0\x1d"))), "sni_missing")
    refused(gate, world, way, records(message(b"", body=b"\x03\x03" + b"r" * 32 + b"\0\0\x02\x13\x01\x01\0")), "sni_missing")


@pytest.mark.parametrize("way", WAYS)
def test_a_listed_literal_is_reached_without_a_name(gate, way):
    """Case 116: RFC 6066 forbids an address as a server name."""
    result = gate.curl("-k", *({"transparent": [], "connect": ["-x", gate.proxy], "socks": ["-x", "socks5h://127.0.0.1:3128"]}[way]),
                       f"https://{LITERAL}/")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", [b"", b"a..b", b"a b", b"site.example.com\0.evil.example.org", b"127.0.0.1", b"::1", b"0x7f.1", b"caf\xc3\xa9.example.com",
                                  b"*.example.com", b"site.example.com:443", b"x" * 300])
def test_server_names_that_are_no_names(gate, world, name):
    """Cases 1, 21, 24 for SNI: closed without a byte."""
    event = refused(gate, world, "transparent", records(message(server_name(name))), "name_invalid" if name else "malformed")
    assert event["host"] == SITE and event["protocol"] == "tls"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", [1, 7, 300])
def test_a_hello_in_many_segments(gate, way, step):
    """Case 119 and legit client 25."""
    hello = real_hello(SITE)
    assert answered(gate, way, [hello[i:i + step] for i in range(0, len(hello), step)])


@pytest.mark.parametrize("way", WAYS)
def test_a_hello_in_many_records(gate, way):
    """Case 119: each record its own segment too, and all in one."""
    handshake = real_hello(SITE)[5:]
    small = records(handshake, 30)
    assert answered(gate, way, [small[i:i + 35] for i in range(0, len(small), 35)])
    assert answered(gate, way, [records(handshake, 1)])


def test_a_post_quantum_hello(gate, world):
    """Case 119: a key share of 1,200 bytes makes it longer than a segment; the name comes last."""
    hello = message(extension(51, struct.pack("!H", 1220) + b"\x11\xec" + struct.pack("!H", 1216) + b"k" * 1216) + server_name(SITE.encode()))
    assert len(hello) > 1200
    for size in (16000, 500):
        data = records(hello, size)
        assert answered(gate, "transparent", [data[i:i + 536] for i in range(0, len(data), 536)])
    other = message(extension(51, struct.pack("!H", 1220) + b"\x11\xec" + struct.pack("!H", 1216) + b"k" * 1216) + server_name(OTHER.encode()))
    refused(gate, world, "transparent", records(other, 500), "sni_mismatch")


NOT_TLS = [b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + b"s" * 37, b"\x80\x1c\x01\x00\x02" + b"\0" * 25, b"SSH-2.0-OpenSSH_9.2\r\n",
           b"GET / HTTP/1.1\r\nHost: site.example.com\r\n\r\n", b"\x00" * 64, b"\xff" * 64, b"\x17\x03\x03\x00\x05hello",
           b"\x15\x03\x03\x00\x02\x01\x00", b"\x16\x02\x00\x00\x05\x01\x00\x00\x01\x00", b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
           b"\x16\xfe\xff\x00\x00", b"\n\n\n\n", b"\x05\x01\x00"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", NOT_TLS)
def test_what_is_not_tls_on_a_tls_port(gate, world, way, data):
    """Case 121: SSLv2 hellos, plain HTTP, an SSH banner, other records, garbage."""
    if way == "transparent" and data.startswith(b"GET"):
        with way_in(gate, way) as sock:
            sock.sendall(data)
            assert b"Cofferdam-Reason: not_tls" in said(sock)  # HTTP clients are told in words
        return
    refused(gate, world, way, data, "not_tls")


@pytest.mark.parametrize("data", [
    records(message(server_name(b"site.example.com") + server_name(b"other.example.com"))), records(message(b"\0\0\0\xff")), records(message(b"xyz")),
    records(message(server_name(b"site.example.com"))) [:-1] + b"", records(message(server_name(b"site.example.com")) + b"\x01"),
    records(message(extension(0, b""))), records(message(extension(0, b"\0\x05\0\0\x01"))), records(message(server_name(b"site.example.com", kind=1))),
    b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + b"x" * 100, records(message(server_name(b"site.example.com"))[:20]) + b"\x15\x03\x01\x00\x02\x01\x00"])
def test_broken_hellos(gate, world, data):
    """Case 121: half a hello, two names, lengths that lie, longer than 16 KiB, another record in the middle."""
    for way in ("transparent", "connect"):
        with way_in(gate, way) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            assert said(sock) == b""
    assert gate.wait_event(event="egress", verdict="deny")["reason"] in ("malformed", "not_tls")
    assert answered(gate, "transparent", [real_hello(SITE)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begun", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", None])
def test_a_hello_that_does_not_end(gate, world, way, begun):
    """Case 119: one deadline for the whole, whatever drips in."""
    begun = real_hello(SITE)[:-1] if begun is None else begun
    began = time.monotonic()
    with way_in(gate, way) as sock:
        sock.sendall(begun)
        assert said(sock) == b""
    assert time.monotonic() - began < 9


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_said(gate, way):
    with way_in(gate, way) as sock:
        assert said(sock) == b""


def test_an_encrypted_hello_is_judged_by_its_outer_name(gate, world):
    """Case 118: real or greased cannot be told apart; the outer name must be the one decided, and the event says so."""
    ech = extension(0xfe0d, b"\0\0\x01\0\x01\x2a\0\x20" + b"e" * 32 + b"\0\x80" + b"p" * 128)
    assert answered(gate, "transparent", [records(message(ech + server_name(SITE.encode())))])
    assert gate.wait_event(event="egress", verdict="allow", encrypted_hello=True)["host"] == SITE
    event = refused(gate, world, "transparent", records(message(ech + server_name(b"public.cdn.example"))), "sni_mismatch")
    assert event["encrypted_hello"] is True
    # Without keys there is no real one: our DNS has no HTTPS records.
    assert gate.ask(SITE, 65)[:2] == (0, [])


@pytest.mark.parametrize("way", WAYS)
def test_raw_rules_ask_for_no_tls(gate, world, way):
    """A `tcp` rule on 443 takes anything, and gives it to that server only."""
    with way_in(gate, way, host="git.example.com", address=GIT4) as sock:
        sock.sendall(b"\x00\x01binary\xff")
        sock.shutdown(socket.SHUT_WR)
        assert said(sock) == b"\x00\x01binary\xff"
    assert gate.wait_event(event="egress", host="git.example.com", via=way, protocol="tcp", verdict="allow")


@pytest.mark.parametrize("way", WAYS)
def test_half_close_passes_both_ways(gate, world, way):
    """Each end may have its last word after the other's (legit client 34): nothing is left behind."""
    host = "git.example.com"
    with way_in(gate, way, host=host, address=GIT4) as sock:
        sock.sendall(b"x" * 100000)
        sock.shutdown(socket.SHUT_WR)
        assert said(sock) == b"x" * 100000
    end = time.monotonic() + 10
    while gate.stats()["sessions"] and time.monotonic() < end:
        time.sleep(0.05)
    assert gate.stats()["sessions"] == 0
