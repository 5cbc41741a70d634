"""How hosts are spelled at the gate: one canonical form, everything else malformed, and nothing asked or dialled for it."""
import contextlib
import json
import re
import socket
import struct

import pytest

from world import BIN, Gate, World, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, OTHER4 = "93.184.216.34", "93.184.216.35"
SITE = "site.example.com"
LABEL63 = "a" * 63
NAME253 = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 49, "example.com"])
UMLAUT = "b\u00fccher.example.com"
RULES = [f"http://{SITE}", SITE, "http://*.wild.example.com", "http://my_bucket.example.com", "http://" + UMLAUT,
         f"http://{NAME253}", f"http://{LABEL63}.example.com", "http://-dash-.example.com", "http://xn--a.example.com",
         f"http://{SITE}:8443", "http://apple.com", "http://*.both.example.com"]
DENY = ["bad.wild.example.com", "*.worse.wild.example.com", "http://half.both.example.com:80"]


@pytest.fixture(scope="module")
def world():
    assert len(NAME253) == 253
    with World() as made:
        for name in (SITE, "a.wild.example.com", "b.a.wild.example.com", "my_bucket.example.com", "xn--bcher-kva.example.com",
                     NAME253, f"{LABEL63}.example.com", "-dash-.example.com", "xn--a.example.com", "ok.both.example.com",
                     "half.both.example.com", "bad.wild.example.com", "x.worse.wild.example.com"):
            made.dns.add(name, A=V4)
        made.site = made.http(V4)
        made.site8443 = made.http(V4, 8443)
        made.metadata = made.http("169.254.169.254")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=RULES, deny=DENY) as made:
        assert made.ask(SITE)[:2] == (0, [V4])  # pinned, for connections that are redirected
        yield made


def talk(gate, data, address="127.0.0.1", port=3128):
    answer = b""
    with contextlib.suppress(ConnectionError), gate.connect(address, port, timeout=15) as sock:
        sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        while piece := sock.recv(65536):
            answer += piece
    return answer.decode("latin-1")


def encoded(text):
    return text if isinstance(text, bytes) else text.encode("utf-8")


def connect(gate, authority, host=None):
    authority = encoded(authority)
    return talk(gate, b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + (host or authority) + b"\r\n\r\n")


def absolute(gate, host):
    host = encoded(host)
    return talk(gate, b"GET http://" + host + b"/ HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")


def transparent(gate, host):
    return talk(gate, b"GET / HTTP/1.1\r\nHost: " + encoded(host) + b"\r\nConnection: close\r\n\r\n", V4, 80)


def status(answer):
    found = re.match(r"HTTP/1\.1 (\d+)", answer)
    return int(found.group(1)) if found else 0


def reason(answer):
    found = re.search(r"^Cofferdam-Reason: (\w+)", answer, re.M)
    return found.group(1) if found else None


MALFORMED = [
    # 1, 2, 4: other spellings of IPv4
    "127.1", "127.0.1", "0", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.0.0.01", "0177.0.0.1",
    "256.1.1.1", "1.2.3.4.5", "1.2.3", "1..2.3", "0xA9FEA9FE", "169.254.43518", "0251.0376.0251.0376", "site.0x7f", "a.1",
    "127.0.0.1.", "4294967296",
    # 5: bytes that are not ASCII
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460", "127\u30020\u30020\u30021", "\uff45xample.com", UMLAUT, b"\x80", b"\xff.com",
    # 11: dots
    "example.com..", ".example.com", "a..b.com", ".", "..",
    # 12: brackets
    "[example.com]", "[127.0.0.1]", "[[::1]]", "[::1", "::1]", "[]",
    # 13: no brackets
    "::1", "2001:db8::1",
    # 14: zones
    "[fe80::1%25eth0]", "[::ffff:1.2.3.4%x.allowed.com]", "fe80::1%eth0", "[::1%0]",
    # 17: percent encoding
    "exa%6dple.com", "%31%32%37.0.0.1", "example.com%2eevil.net",
    # 18, 19: user information and the ends of an authority
    f"{SITE}@evil.example.org", f"user@{SITE}", f"evil.example.org#@{SITE}", f"evil.example.org\\@{SITE}",
    f"{SITE}:80@evil.example.org",
    # 21: controls
    b"exam\x01ple.com", b"exam\x7fple.com", b"exam\tple.com", b"site\x00.example.com",
    # 24: sizes
    "a" * 64 + ".example.com", "x" + NAME253, ".".join(["a" * 50] * 6),
    # 29: wildcards on the wire
    "*.wild.example.com", "*",
    # 32
    f"evil.com:443.{SITE}"]


@pytest.mark.parametrize("host", MALFORMED, ids=lambda h: repr(h)[:40])
def test_what_is_not_canonical_is_malformed_everywhere(gate, world, host):
    before = (len(world.dns.questions()), world.site.connections, world.metadata.connections)
    denied = len([e for e in gate.events(event="egress") if e["verdict"] == "deny"])
    answers = [connect(gate, encoded(host) + b":443"), absolute(gate, host), transparent(gate, host)]
    for answer in answers:
        assert 400 <= status(answer) <= 421, answer
        assert status(answer) in (400, 421), answer
        assert reason(answer) in ("name_invalid", "malformed", "host_mismatch")
    assert status(answers[0]) == 400 and status(answers[1]) == 400
    assert before == (len(world.dns.questions()), world.site.connections, world.metadata.connections)
    assert len([e for e in gate.events(event="egress") if e["verdict"] == "deny"]) >= denied + 1


@pytest.mark.parametrize("authority", [
    SITE, f"{SITE}:", f"{SITE}:0", f"{SITE}:65536", f"{SITE}:+443", f"{SITE}:-1", f"{SITE}:0443", f"{SITE}:4294967376",
    f"{SITE}:https", f"{SITE}:0x1bb", f"{SITE}:443:443", f":443", "", "[::1]", "[::1]443", f"http://{SITE}:443", f"{SITE}:443/"])
def test_33_34_ports_have_one_spelling(gate, world, authority):
    before = len(world.dns.questions())
    answer = talk(gate, f"CONNECT {authority} HTTP/1.1\r\nHost: {SITE}\r\n\r\n".encode())
    assert status(answer) == 400, answer
    assert len(world.dns.questions()) == before


def test_33_an_empty_port_of_an_absolute_target_is_the_default(gate):
    answer = talk(gate, f"GET http://{SITE}:/ HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n".encode())
    assert status(answer) in (200, 400)  # RFC 9110 4.2.1 lets it be either; never another port
    if status(answer) == 200:
        assert '"port": 80' in answer


@pytest.mark.parametrize("host,canonical", [
    (SITE.upper(), SITE), (SITE + ".", SITE), ("SiTe.ExAmPlE.CoM.", SITE), ("my_bucket.example.com",) * 2,
    (NAME253,) * 2, (NAME253 + ".", NAME253), (f"{LABEL63}.example.com",) * 2, ("-dash-.example.com",) * 2,
    ("XN--BCHER-KVA.example.com", "xn--bcher-kva.example.com"), ("xn--a.example.com",) * 2], ids=lambda h: h[:30])
def test_7_to_10_23_to_25_canonical_names_are_one_name(gate, world, host, canonical):
    answer = absolute(gate, host)
    assert status(answer) == 200, answer
    sent = json.loads(answer.split("\r\n\r\n", 1)[1])["headers"]["host"]
    assert sent == canonical
    assert gate.wait_event(event="egress", verdict="allow", host=canonical)
    assert gate.ask(host)[:2] == (0, [V4])
    assert gate.wait_event(event="dns", verdict="allow", host=canonical)
    assert {name for name, _, _ in world.dns.questions() if name.rstrip(".") == canonical} == {canonical}


@pytest.mark.parametrize("host,expected", [
    ("xn--pple-43d.com", "no_rule"), ("xn--b.example.com", "no_rule"), ("intranet", "no_rule"), ("localhost", "loopback_address"),
    ("metadata", "metadata_address"), ("wild.example.com", "no_rule"), ("evilwild.example.com", "no_rule"),
    ("a.wild.example.com.evil.net", "no_rule"), (f"x.{SITE}", "no_rule"), (f"evil-{SITE}", "no_rule"),
    ("bad.wild.example.com", "denied_by_rule"), ("BAD.wild.example.com.", "denied_by_rule"),
    ("x.worse.wild.example.com", "denied_by_rule"), ("half.both.example.com", "denied_by_rule"), ("-.example.com", "no_rule"),
    ("1.2.3.example", "no_rule")])
def test_26_to_31_names_that_are_refused(gate, world, host, expected):
    before = len(world.dns.questions())
    answer = absolute(gate, host)
    assert status(answer) == 403 and reason(answer) == expected
    assert reason(connect(gate, f"{host}:80")) == expected
    if expected != "denied_by_rule" or "both" not in host:
        assert gate.ask(host)[:2] == (3, [])
    assert len(world.dns.questions()) == before


@pytest.mark.parametrize("host", ["a.wild.example.com", "b.a.wild.example.com", "A.WILD.example.com", "ok.both.example.com"])
def test_27_a_wildcard_matches_by_labels(gate, host):
    assert status(absolute(gate, host)) == 200


def test_30_a_wildcard_is_no_address(world):
    with Gate(world, rules=["http://*.wild.example.com"]) as fresh:
        assert reason(absolute(fresh, V4)) == "ip_literal"


def test_35_a_port_needs_its_own_rule(gate):
    assert status(absolute(gate, f"{SITE}:8443")) == 200
    for port in (22, 25, 53, 853, 3306, 8080, 81):
        answer = connect(gate, f"{SITE}:{port}")
        assert status(answer) == 403 and reason(answer) == "port_not_allowed"
    assert reason(connect(gate, "a.wild.example.com:8443")) == "port_not_allowed"


def test_36_no_rules_allow_nothing(world):
    with Gate(world, rules=[]) as closed:
        before = len(world.dns.questions())
        assert reason(absolute(closed, SITE)) == "no_rule"
        assert closed.ask(SITE)[:2] == (3, [])
        assert len(world.dns.questions()) == before


@pytest.mark.parametrize("rule", ["*", "*.com", "*.co.uk", "*.github.io", "*.s3.amazonaws.com", "*.cloudfront.net", "*.k12.tr",
                                  "ex*mple.com", "*example.com", "a.*.com", "**", "*.127.0.0.1", "\uff45xample.com",
                                  "\u24601.example", "https://a.example", "a.example:https", "a.example=10.0.0.1/8"])
def test_29_a_rule_that_is_too_wide_or_unclear_ends_the_start(world, tmp_path, rule):
    with pytest.raises(RuntimeError) as failure:
        with Gate(world, rules=[rule]):
            pass
    assert "r:1" in str(failure.value)  # which rule
    # A person is told the file and the line.
    manifest = tmp_path / "m.yaml"
    manifest.write_text(json.dumps({"version": 1})[1:-1].replace('"', "") + f"\nnetwork:\n  rules:\n    - a.example\n    - '{rule}'\n")
    result = world.run_outside([BIN / "cofferdam", "manifest", "check", manifest])
    assert result.returncode != 0 and f"{manifest}:5:" in result.stderr, result.stderr


@pytest.mark.parametrize("packet_name,rcode", [
    (b"\x04si\rte\x07example\x03com\0", 1), (b"\x04si te\x07example\x03com\0", 1), (b"\x05si\xc3\xbcte\x07example\x03com\0", 1),
    (b"\x03127\x010\x010\x011\0", 3), (b"\x010\0", 3), (b"\x0a0x7f000001\0", 3), (b"\0", 3)])
def test_21_names_in_questions_obey_the_same_rules(gate, world, packet_name, rcode):
    before = len(world.dns.questions())
    raw = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + packet_name + struct.pack("!HH", 1, 1)
    assert gate.ask("x", raw=raw)[0] == rcode
    assert len(world.dns.questions()) == before
