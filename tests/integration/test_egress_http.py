"""HTTP at the gate: the catalogue's cases about heads, framing, deadlines and hostile servers (docs/egress-cases.md).

Every refusal has an allowed control in the same test or table; what must not arrive is counted at the server.
"""
import contextlib
import json
import os
import re
import socket
import threading
import time

import pytest

from world import Gate, World, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6, OTHER4, RAW4 = "93.184.216.34", "2606:2800:220::34", "93.184.216.35", "93.184.216.36"
SITE, OTHER, RAW = "site.example.com", "other.example.com", "raw.example.com"
RULES = [f"http://{SITE}", f"http://{SITE}:8080", SITE, f"http://{OTHER}", f"http://{RAW}", f"http://{RAW}:8081", "http://a.big.example.com",
         "http://gone.example.com", "http://my_bucket.example.com", "http://xn--bcher-kva.example.com",
         f"http://{'l' * 63}.example.com", "*.wild.example.com"]


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add(RAW, A=RAW4)
        for name in ("my_bucket.example.com", "xn--bcher-kva.example.com", "l" * 63 + ".example.com", "a.wild.example.com"):
            made.dns.add(name, A=V4)
        made.site4, made.site6, made.other = made.http(V4), made.http(V6), made.http(OTHER4)
        made.site8080 = made.http(V4, 8080)
        made.tls4 = made.https(V4, names=[SITE, "a.wild.example.com"])
        made.raw = made._own(Scripted(made, RAW4, 80))
        made.raw2 = made._own(Scripted(made, RAW4, 8081))
        made.metadata = made.http("169.254.169.254")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=RULES, deny=["bad.wild.example.com"]) as made:
        yield made


SHORT = {"head": 700, "keep_alive": 1500, "response": 700, "body": 700, "upload": 700, "write": 700, "first_byte": 700,
         "hello": 700}


@pytest.fixture(scope="module")
def hurried(world):
    """A gate whose waits are short; what they guard against is the same."""
    words = [w for name, value in SHORT.items() for w in ("--deadline", f"{name}={value}")]
    with Gate(world, rules=RULES, options=words) as made:
        yield made


class Scripted:
    """A server whose conversation a test writes: `handler(sock, head)` after each request's head."""

    def __init__(self, world, address, port):
        self.handler, self.heads, self.bodies = None, [], []
        self._sock = listen_in(world.internet, address, port)
        self._stopped = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._stopped = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _accept(self):
        while not self._stopped:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with sock, contextlib.suppress(OSError, StopIteration):
            sock.settimeout(20)
            while head := read_head(sock):
                self.heads.append(head.decode("latin-1"))
                if self.handler(sock, head) is None:
                    return

    def says(self, answer):
        """Answers once with these bytes and closes."""
        def handler(sock, head):
            sock.sendall(answer)
        self.handler, self.heads, self.bodies = handler, [], []


def read_head(sock):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        if not piece:
            return b""
        head += piece
    return head


def talk(gate, data, port=3128, address="127.0.0.1", end=True, timeout=20):
    """Sends bytes, ends its side, and reads to the end."""
    answer = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        with gate.connect(address, port) as sock:
            sock.settimeout(timeout)
            sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
            if end:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                answer += piece
    return answer.decode("latin-1")


def ask_on(sock, path):
    """One exchange on a connection that is kept."""
    sock.sendall(get(SITE, path).encode())
    text = b""
    while f'"{path}"'.encode() not in text or not text.endswith(b"}"):
        piece = sock.recv(65536)
        assert piece, text
        text += piece


def get(host, path="/", extra="", method="GET", body=""):
    return f"{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n{body}"


def refusal(answer):
    """(status, reason) of a well-formed refusal."""
    head, _, text = answer.partition("\r\n\r\n")
    status = int(re.match(r"HTTP/1\.1 (\d+) ", head).group(1))
    reason = re.search(r"^Cofferdam-Reason: (\w+)\r?$", head, re.M).group(1)
    parsed = json.loads(text)
    assert set(parsed) == {"error", "reason", "rule", "host", "port", "hint", "retryable"} and parsed["reason"] == reason
    assert f"({reason})" in head.split("\r\n")[0]
    assert int(re.search(r"^Content-Length: (\d+)", head, re.M).group(1)) == len(text)
    assert status != 407
    # A client that tries again is told that it may, by status and header; a denial is final.
    assert ("Retry-After: " in head) == (status in (429, 503, 504))
    assert not (parsed["retryable"] and status == 403)
    return status, reason


def seen(world):
    return [len(s.requests) for s in (world.site4, world.site6, world.site8080, world.other)]


def refused(gate, world, request, status, reason):
    """Refused: nothing resolved, nothing sent, one decision recorded."""
    before, questions = seen(world), len(world.dns.questions())
    told = lambda: [e for e in gate.events(event="egress") if e["verdict"] != "allow"]  # an earlier test's may still come
    events = len(told())
    assert refusal(talk(gate, request)) == (status, reason), request
    assert seen(world) == before and len(world.dns.questions()) == questions
    end = time.monotonic() + 10
    while len(told()) == events and time.monotonic() < end:
        time.sleep(0.01)
    assert [e["reason"] for e in told()[events:]] == [reason]


def ok(gate, request=None):
    answer = talk(gate, request or get(SITE, extra="Connection: close\r\n"))
    assert answer.startswith("HTTP/1.1 200 "), answer
    return answer


def raw(gate, world, answer, request=None):
    world.raw.says(answer)
    return talk(gate, request or get(RAW, extra="Connection: close\r\n"))


# --- 3.1 spelling of hosts and authorities

BAD_HOSTS = [
    ("1", "127.1"), ("1", "127.0.1"), ("1", "0"), ("1", "2130706433"), ("1", "0x7f000001"), ("1", "0x7f.1"), ("1", "017700000001"),
    ("1", "127.0.0.01"), ("2", "0177.0.0.1"), ("4", "256.1.1.1"), ("4", "1.2.3.4.5"), ("4", "1.2.3"), ("4", "1..2.3"),
    ("11", f"{SITE}.."), ("11", f".{SITE}"), ("11", "a..b.com"), ("11", "."), ("12", "[example.com]"), ("12", "[127.0.0.1]"),
    ("12", "[[::1]]"), ("12", "[::1"), ("12", "::1]"), ("13", "2001:db8::1"), ("14", "[fe80::1%25eth0]"),
    ("14", f"[::ffff:1.2.3.4%x.{SITE}]"), ("14", "fe80::1%eth0"), ("17", "site%2eexample.com"), ("17", "%31%32%37.0.0.1"),
    ("17", f"{SITE}%2eevil.net"), ("18", f"{SITE}@evil.example.org"), ("18", f"{SITE}:80@evil.example.org"), ("18", f"evil.example.org\\@{SITE}"),
    ("19", f"user@{SITE}"), ("24", "l" * 64 + ".example.com"), ("24", ".".join(["a" * 63] * 3 + ["b" * 62])),
    ("32", f"evil.example.org:80.{SITE}"),
]


@pytest.mark.parametrize("case,host", BAD_HOSTS)
def test_a_host_that_is_not_canonical_is_malformed(gate, world, case, host):
    """Cases 1, 2, 4, 11–14, 17–19, 21, 24, 32: nothing is resolved."""
    refused(gate, world, f"CONNECT {host}:80 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n", 400, "name_invalid")
    refused(gate, world, f"GET http://{host}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed")
    gate.ask(SITE)
    before = seen(world)
    answer = talk(gate, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", 80, V4)
    assert refusal(answer)[0] in (400, 421) and seen(world) == before


@pytest.mark.parametrize("host", ["\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1", "127\xe3\x80\x820\xe3\x80\x820\xe3\x80\x821", "\xef\xbd\x85xample.com",
                                  "caf\xe9.example.com", "a\x7fb.example.com"])
def test_raw_non_ascii_is_malformed_before_anything_maps_it(gate, world, host):
    """Case 5."""
    refused(gate, world, f"CONNECT {host}:80 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n", 400, "malformed")
    refused(gate, world, f"GET http://{host}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed")
    answer = talk(gate, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {host}\r\n\r\n")
    assert refusal(answer)[1] in ("malformed", "name_invalid")


@pytest.mark.parametrize("request_text", [
    f"GET http://evil.example.org#@{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", f"GET http://{SITE}/a b HTTP/1.1\r\nHost: {SITE}\r\n\r\n",
    f"GET http://{SITE}/\x01 HTTP/1.1\r\nHost: {SITE}\r\n\r\n", f"GET http://{SITE}/\xe9 HTTP/1.1\r\nHost: {SITE}\r\n\r\n",
    f"GET http://{SITE}/#frag HTTP/1.1\r\nHost: {SITE}\r\n\r\n", f"GET http:// HTTP/1.1\r\nHost: {SITE}\r\n\r\n",
    f"GET http:///x HTTP/1.1\r\nHost: {SITE}\r\n\r\n"])
def test_a_target_with_what_no_target_has_is_malformed(gate, world, request_text):
    """Cases 18, 21, 88."""
    refused(gate, world, request_text, 400, "malformed")


@pytest.mark.parametrize("host", [SITE.upper(), f"{SITE}.", "Site.Example.Com."])
def test_case_and_the_last_dot_are_folded_everywhere(gate, world, host):
    """Cases 9, 10: rule, Host, event and cache see one name."""
    answer = ok(gate, f"GET http://{host}/fold HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert json.loads(answer.partition("\r\n\r\n")[2])["headers"]["host"] == SITE
    assert gate.wait_event(event="egress", path="/fold", host=SITE)
    assert gate.curl("-x", gate.proxy, "--connect-to", f"{SITE}:443:{host}:443", f"https://{SITE}/").returncode == 0


@pytest.mark.parametrize("host", ["my_bucket.example.com", "xn--bcher-kva.example.com", "l" * 63 + ".example.com"])
def test_names_that_clients_really_use_pass(gate, host):
    """Cases 7, 23, 24: an underscore, a punycode label as it is, a label of 63 bytes."""
    ok(gate, get(host, extra="Connection: close\r\n"))


@pytest.mark.parametrize("host", ["xn--pple-43d.example.com", "xn--a.example.com", "-dash.example.com", "dash-.example.com", "intranet",
                                  "evil" + SITE, f"{SITE}.evil.net", "wild.example.com", "evilwild.example.com"])
def test_names_that_are_not_listed_are_denied_unresolved(gate, world, host):
    """Cases 7, 8, 25–28: homographs, broken punycode, single labels, lookalikes of a pattern."""
    refused(gate, world, get(host), 403, "no_rule")


def test_a_wildcard_means_the_names_below_it(gate, world):
    """Case 27, and 31: deny beats allow."""
    assert gate.curl("https://a.wild.example.com/").returncode == 0
    refused(gate, world, "CONNECT bad.wild.example.com:443 HTTP/1.1\r\nHost: bad.wild.example.com:443\r\n\r\n", 403, "denied_by_rule")


@pytest.mark.parametrize("host,reason", [
    ("[::ffff:169.254.169.254]", "metadata_address"), ("[::169.254.169.254]", "metadata_address"), ("[64:ff9b::a9fe:a9fe]", "metadata_address"),
    ("[2002:a9fe:a9fe::]", "metadata_address"), ("[0:0:0:0:0:0:0:1]", "loopback_address"), ("[::0001]", "loopback_address"),
    ("[0000::1]", "loopback_address"), ("[FD00:EC2::254]", "metadata_address"), ("127.0.0.1", "loopback_address"), ("8.8.4.4", "ip_literal"),
    ("localhost", "loopback_address"), ("metadata.google.internal", "metadata_address")])
def test_literals_are_judged_by_their_bytes(gate, world, host, reason):
    """Cases 15, 16, 26, 30."""
    refused(gate, world, get(host), 403, reason)
    assert world.metadata.connections == 0


@pytest.mark.parametrize("port", ["", "0", "65536", "+443", "-1", "0443", "4294967376", "https", "443x", "0x1bb"])
def test_other_spellings_of_a_port_are_malformed(gate, world, port):
    """Cases 33, 34."""
    refused(gate, world, f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "name_invalid")
    if port:
        refused(gate, world, f"GET http://{SITE}:{port}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed")


def test_no_port_and_an_empty_port(gate, world):
    """Cases 33, 34: an empty port is the default one in a URI, and nothing in CONNECT."""
    refused(gate, world, f"CONNECT {SITE} HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "name_invalid")
    ok(gate, f"GET http://{SITE}:/ HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("port", [22, 25, 53, 853, 3306, 8443])
def test_ports_without_a_rule(gate, world, port):
    """Case 35."""
    refused(gate, world, f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n", 403, "port_not_allowed")
    refused(gate, world, get(f"{SITE}:{port}"), 403, "port_not_allowed")


# --- 3.4 heads

def requests_with(*cases):
    return [pytest.param(*c, id=f"{c[0]}-{i}") for i, c in enumerate(cases)]


@pytest.mark.parametrize("case,request_text,status,reason", requests_with(
    (75, f"GET http://{SITE}/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", 421, "host_mismatch"),
    (75, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}:8080\r\n\r\n", 421, "host_mismatch"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nHost: {OTHER}\r\n\r\n", 400, "malformed"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\n\r\n", 400, "malformed"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost:\r\n\r\n", 400, "malformed"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE},{OTHER}\r\n\r\n", 400, "name_invalid"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE} {OTHER}\r\n\r\n", 400, "name_invalid"),
    (76, f"GET http://{SITE}/ HTTP/1.1\r\nHost: {SITE}/x\r\n\r\n", 400, "name_invalid"),
    (77, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {OTHER}:443\r\n\r\n", 421, "host_mismatch"),
    (77, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n", 421, "host_mismatch"),
    (79, f"GET https://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (79, f"OPTIONS * HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (79, f"GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (80, f"GET ftp://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (80, "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed"),
    (80, f"GET gopher://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (80, "GET urn:x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed"),
    (80, f"GET ws://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\n\r\n", 400, "malformed"),
    (81, get(SITE, "/", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "POST", "0\r\n\r\n"), 400, "malformed"),
    (82, get(SITE, "/", "Content-Length: 3\r\nTransfer-Encoding: gzip\r\n", "POST", "abc"), 400, "malformed"),
    (82, get(SITE, "/", "Transfer-Encoding: gzip\r\n", "POST"), 501, "unsupported"),
    (82, get(SITE, "/", "Transfer-Encoding: xchunked\r\n", "POST"), 501, "unsupported"),
    (82, get(SITE, "/", "Transfer-Encoding: chunked, identity\r\n", "POST"), 501, "unsupported"),
    (82, get(SITE, "/", "Transfer-Encoding: identity\r\n", "POST"), 501, "unsupported"),
    (82, get(SITE, "/", "Transfer-Encoding: chunked, chunked\r\n", "POST"), 501, "unsupported"),
    (82, get(SITE, "/", "Transfer-Encoding: \x0bchunked\r\n", "POST"), 400, "malformed"),
    (82, get(SITE, "/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "POST"), 400, "malformed"),
    (83, f"POST http://{SITE}/ HTTP/1.0\r\nHost: {SITE}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "malformed"),
    *[(84, get(SITE, "/", f"Content-Length: {v}\r\n", "POST", "12345"), 400, "malformed")
      for v in ("5\r\nContent-Length: 5", "5, 5", "+5", "-1", "0x5", "5 5", "05", "", "9223372036854775808")],
    (85, get(SITE, "/", "X: a\r\n b\r\n"), 400, "malformed"),
    (85, get(SITE, "/", "X: a\r\n\tb\r\n"), 400, "malformed"),
    (86, f"GET http://{SITE}/ HTTP/1.1\nHost: {SITE}\n\n", 400, "malformed"),
    (86, get(SITE, "/", "X: a\rb\r\n"), 400, "malformed"),
    (86, get(SITE, "/", "X: a\0b\r\n"), 400, "malformed"),
    (86, get(SITE, "/", "X : a\r\n"), 400, "malformed"),
    (86, f"GET http://{SITE}/ HTTP/1.1\r\n Host: {SITE}\r\n\r\n", 400, "malformed"),
    (86, get(SITE, "/", ": a\r\n"), 400, "malformed"),
    (86, get(SITE, "/", "", "G(T"), 400, "malformed"),
    (94, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\nContent-Length: 3\r\n\r\nabc", 400, "malformed"),
    (94, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "malformed"),
    (100, get(SITE, "/", "Expect: 200-maybe\r\n"), 417, "unsupported"),
    *[(101, get(SITE, "/", f"Connection: close, {name}\r\n"), 400, "malformed")
      for name in ("Host", "Content-Length", "Authorization", "transfer-encoding", "Cookie", "Via")],
    (105, get(SITE, "/", f"X: {'a' * 33000}\r\n"), 431, "malformed"),
    (105, get(SITE, "/", "".join(f"X-{i}: a\r\n" for i in range(101))), 431, "malformed"),
    (105, get(SITE, "/" + "a" * 8200), 414, "malformed"),
    (105, "GET /" + "a" * 40000, 414, "malformed"),
    (110, get(SITE, "/", "", "TRACE"), 405, "method_not_allowed"), (110, get(SITE, "/", "", "TRACK"), 405, "method_not_allowed"),
    (110, get(SITE, "/", "", "DEBUG"), 405, "method_not_allowed"),
    ("version", f"GET http://{SITE}/ HTTP/2.0\r\nHost: {SITE}\r\n\r\n", 505, "unsupported"),
    ("preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unsupported")))
def test_requests_that_are_refused(gate, world, case, request_text, status, reason):
    refused(gate, world, request_text, status, reason)


@pytest.mark.parametrize("size", ["+5", "0x5", "", "12345678901234567", " 5", "5 ;x", "5 ", "g", "-1"])
def test_other_spellings_of_a_chunk_size(gate, world, size):
    """Case 89: the server is not given half a request as a whole one."""
    whole = []
    def handler(sock, head):
        body = b""
        while piece := sock.recv(4096):
            body += piece
        whole.append(body)
    world.raw.handler = handler
    answer = talk(gate, get(RAW, "/", "Transfer-Encoding: chunked\r\n", "POST", f"3\r\nabc\r\n{size}\r\nhello\r\n0\r\n\r\n"))
    assert refusal(answer) == (400, "malformed")
    assert not any(b"0\r\n\r\n" in body for body in whole)


@pytest.mark.parametrize("case,request_text", requests_with(
    (77, f"CONNECT {SITE}:80 HTTP/1.1\r\nHost: {SITE}\r\n\r\n"),
    (77, f"CONNECT {SITE}:80 HTTP/1.0\r\n\r\n"),
    (80, f"GET HTTP://{SITE}/ HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n"),
    (82, get(SITE, "/", "Connection: close\r\nTransfer-Encoding:  Chunked \r\n", "POST", "0\r\n\r\n")),
    (94, get(SITE, "/", "Connection: close\r\nContent-Length: 3\r\n", "GET", "abc")),
    (94, get(SITE, "/", "Connection: close\r\nContent-Length: 3\r\n", "DELETE", "abc")),
    (110, get(SITE, "/", "Connection: close\r\n", "PROPFIND"))))
def test_requests_that_real_clients_send(gate, case, request_text):
    assert talk(gate, request_text).startswith("HTTP/1.1 200 ")


def test_the_answer_to_connect_has_no_length(gate):
    """Case 96."""
    answer = talk(gate, f"CONNECT {SITE}:80 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n" +
                  f"GET /in HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 ")


def test_a_tunnel_with_plain_http_is_decided_as_http(gate, world):
    """Legit client 1 (undici), cases 75 and 77 inside: each request, by its own Host."""
    before = seen(world)
    inner = "".join(f"GET /t{i} HTTP/1.1\r\nHost: {h}\r\n\r\n" for i, h in enumerate([SITE, SITE, OTHER]))
    answer = talk(gate, f"CONNECT {SITE}:80 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n" + inner)
    assert re.findall(r"HTTP/1\.1 (\d+) ", answer) == ["200", "200", "200", "421"]
    assert sum(seen(world)) == sum(before) + 2
    inside = talk(gate, f"CONNECT {SITE}:80 HTTP/1.1\r\nHost: {SITE}:80\r\n\r\nCONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}\r\n\r\n")
    assert "HTTP/1.1 405 " in inside
    # The connection that CONNECT dialled is the one that is used.
    connections = {r["connection"] for r in (world.site4.requests + world.site6.requests) if r["path"] in ("/t0", "/t1")}
    assert len(connections) == 1


def test_pipelining(gate, world):
    """Cases 92, 93 and legit clients 3, 18: in order, each its own decision, each host its own server."""
    hosts = [SITE, OTHER, "denied.example.com", SITE]
    answer = talk(gate, "".join(get(h, f"/p{i}") for i, h in enumerate(hosts)))
    assert re.findall(r"HTTP/1\.1 (\d+) ", answer) == ["200", "200", "403", "200"]
    assert re.findall(r'"path": "(/p\d)"', answer) == ["/p0", "/p1", "/p3"]
    assert [r["path"] for r in world.other.requests if r["path"].startswith("/p")] == ["/p1"]
    ten = talk(gate, "".join(get(SITE, f"/q{i}") for i in range(10)))
    assert re.findall(r'"path": "/q(\d)"', ten) == [str(i) for i in range(10)]
    with gate.connect("127.0.0.1", 3128) as sock:
        for i in range(3):  # one after the other on the same connection
            ask_on(sock, f"/k{i}")


def test_a_websocket(gate, world):
    """Case 97: denied before anything is dialled; relayed with half-close; a 101 that nobody asked for is not."""
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    refused(gate, world, get("evil.example.org", "/upgrade", upgrade), 403, "no_rule")
    answer = talk(gate, get(SITE, "/upgrade", upgrade) + "ping")
    assert answer.startswith("HTTP/1.1 101 ") and answer.endswith("\r\n\r\nping")
    gate.ask(SITE)
    answer = talk(gate, f"GET /upgrade HTTP/1.1\r\nHost: {SITE}\r\n{upgrade}\r\nping", 80, V4)
    assert answer.startswith("HTTP/1.1 101 ") and answer.endswith("ping")
    event = gate.wait_event(event="egress", path="/upgrade", via="transparent", verdict="allow")
    assert event["bytes_up"] > 4 and event["bytes_down"] > 4
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nsecret"
    assert refusal(raw(gate, world, switch % b"websocket"))[0] == 502
    assert refusal(raw(gate, world, switch % b"h2c", get(RAW, "/", upgrade)))[0] == 502
    assert raw(gate, world, switch % b"websocket", get(RAW, "/", upgrade)).endswith("secret")


def test_expect_continue(gate, world):
    """Case 100 and legit client 36."""
    def patient(sock, head):  # 100, then the body, then the answer
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        world.raw.bodies.append(sock.recv(5, socket.MSG_WAITALL))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    world.raw.handler, world.raw.bodies = patient, []
    head = get(RAW, "/", "Expect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n", "POST")
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(head.encode())
        assert read_head(sock).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"hello")
        assert read_head(sock).startswith(b"HTTP/1.1 200 ") and sock.recv(10) == b"ok"
    assert world.raw.bodies == [b"hello"]
    # A silent server: nothing is said for it, and the body passes when the client sends it anyway.
    def silent(sock, head):
        world.raw.bodies.append(sock.recv(5, socket.MSG_WAITALL))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    world.raw.handler = silent
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(head.encode())
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(20)
        sock.sendall(b"hello")
        assert read_head(sock).startswith(b"HTTP/1.1 200 ")
    # Denied: at once, without a 100, although the body never comes.
    answer = talk(gate, get("evil.example.org", "/", "Expect: 100-continue\r\nContent-Length: 1000000\r\n", "POST"), end=False)
    assert refusal(answer) == (403, "no_rule") and "100 Continue" not in answer


def test_informational_responses_are_relayed(gate, world):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n" * 3
    answer = raw(gate, world, hints + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert answer.count("HTTP/1.1 103 ") == 3 and answer.count("Link: </s.css>") == 3 and answer.endswith("ok")
    assert "103" not in raw(gate, world, hints + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                            f"GET http://{RAW}/ HTTP/1.0\r\n\r\n")
    # Without an end they are no answer.
    endless = b"HTTP/1.1 102 Processing\r\n\r\n" * 100
    assert raw(gate, world, endless).count("HTTP/1.1 102") <= 33


def test_hop_by_hop_fields_stay_here(gate, world):
    """Cases 101, 102."""
    world.raw.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Down\r\nX-Down: 1\r\nKeep-Alive: timeout=5\r\n"
                   b"Proxy-Authenticate: Basic\r\nTrailer: X\r\nX-End: 1\r\n\r\nok")
    answer = talk(gate, get(RAW, "/", "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: X-Mine, close\r\n"
                            "X-Mine: 1\r\nTE: trailers\r\nTrailer: X\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nX-Kept: 1\r\nAuthorization: Bearer t\r\n"))
    sent, got = world.raw.heads[-1].lower(), answer.partition("\r\n\r\n")[0].lower()
    for name in ("proxy-authorization", "proxy-connection", "x-mine", "te:", "trailer", "keep-alive", "upgrade", "c2vjcmv0"):
        assert name not in sent, sent
    assert "x-kept: 1" in sent and "authorization: bearer t" in sent
    for name in ("x-down", "keep-alive", "proxy-authenticate", "trailer"):
        assert name not in got, got
    assert "x-end: 1" in got
    # An upgrade carries them no further.
    world.raw.says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    talk(gate, get(RAW, "/", "Proxy-Authorization: Basic c2VjcmV0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"))
    assert "c2VjcmV0" not in world.raw.heads[-1] and "Upgrade: websocket" in world.raw.heads[-1]


def test_what_is_not_ours_is_left_alone(gate, world):
    """Case 114 and legit client 32: ranges, codings and bodies pass as they are."""
    packed = os.urandom(3000)
    world.raw.says(b"HTTP/1.1 206 Partial Content\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-2999/9000\r\nContent-Length: 3000\r\n\r\n" + packed)
    answer = talk(gate, get(RAW, "/a%2Fb/../c;p=1?q=%20", "Range: bytes=0-2999\r\nAccept-Encoding: gzip, br\r\nConnection: close\r\n"))
    assert answer.encode("latin-1").endswith(b"\r\n\r\n" + packed) and "Content-Range: bytes 0-2999/9000" in answer
    head = world.raw.heads[-1]
    assert head.startswith("GET /a%2Fb/../c;p=1?q=%20 HTTP/1.1\r\n")  # case 112: the bytes of the path are the client's
    assert "Range: bytes=0-2999\r\n" in head and "Accept-Encoding: gzip, br\r\n" in head


def test_trailers_are_dropped(gate, world):
    """Case 91, both ways: a trailer never becomes a field."""
    def handler(sock, head):
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += sock.recv(4096)
        world.raw.bodies.append(body)
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;ext=1\r\nok\r\n0\r\nSet-Cookie: evil\r\n\r\n")
    world.raw.handler, world.raw.bodies = handler, []
    answer = talk(gate, get(RAW, "/", "Connection: close\r\nTransfer-Encoding: chunked\r\n", "POST",
                            "3;x=y\r\nabc\r\n0\r\nAuthorization: evil\r\nX: y\r\n\r\n"))
    assert world.raw.bodies == [b"3\r\nabc\r\n0\r\n\r\n"]
    assert answer.endswith("2\r\nok\r\n0\r\n\r\n") and "evil" not in answer
    long = "X: " + "y" * 9000
    answer = talk(gate, get(RAW, "/", "Transfer-Encoding: chunked\r\n", "POST", f"0\r\n{long}\r\n\r\n"))
    assert refusal(answer) == (400, "malformed")


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nab",
    b"HTTP/1.1 099 X\r\n\r\n", b"HTTP/1.1 1000 X\r\n\r\n", b"HTTP/1.1 600 X\r\n\r\n", b"HTTP/1.1 2x0 X\r\n\r\n", b"HTTP/1.1 200\r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n", b"ICY 200 OK\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"<html>no head at all</html>\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 O\x01K\r\n\r\n", b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 101 + b"\r\n", b"\r\n\r\n", b"\x00" * 100])
def test_hostile_answers_are_not_passed_on(gate, world, answer):
    """Case 103: 502, not a crash and not the server's bytes."""
    got = raw(gate, world, answer)
    assert refusal(got) == (502, "malformed")
    ok(gate)
    assert gate.wait_event(event="egress", host=RAW, reason="malformed")["verdict"] == "error"


@pytest.mark.parametrize("answer,body,length", [
    (b"HTTP/1.1 204 No Content\r\n\r\n", "", None), (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "", None),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", "", "5"), (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", "0")])
def test_answers_without_a_body_keep_the_connection(gate, world, answer, body, length):
    """Case 103: the next answer is the next request's."""
    def handler(sock, head):
        sock.sendall(answer)
        return True
    world.raw.handler = handler
    got = talk(gate, get(RAW, "/1") + get(RAW, "/2"))
    heads = [h for h in got.split("\r\n\r\n") if h]
    assert len(heads) == 2 and len({h.split(" ")[1] for h in heads}) == 1
    assert (re.search(r"^Content-Length: (\d+)", heads[0], re.M) or [None, None])[1] == length


def test_head_tells_a_length_without_a_body(gate, world):
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")
        return True
    world.raw.handler = handler
    got = talk(gate, get(RAW, "/1", method="HEAD") + get(RAW, "/2", method="HEAD"))
    assert got.count("HTTP/1.1 200 ") == 2 and got.count("Content-Length: 9000") == 2


def test_bytes_behind_an_answer_belong_to_nobody(gate, world):
    """Response smuggling: what a server says without being asked is never the next answer."""
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        return True
    world.raw.handler = handler
    assert "evil" not in talk(gate, get(RAW, "/1") + get(RAW, "/2") + get(RAW, "/3"))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
                                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n"])
def test_half_a_body_never_ends_cleanly(gate, world, answer):
    world.raw.says(answer)
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(get(RAW).encode())
        got = b""
        with pytest.raises(ConnectionResetError):
            while True:
                piece = sock.recv(4096)
                assert piece, got
                got += piece
    assert b"\r\n0\r\n\r\n" not in got


def test_the_same_gate_twice_is_a_loop(gate, world):
    """Case 109."""
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nVia: 1.1 other\r\n\r\nok")
    world.raw.handler = handler
    answer = talk(gate, get(RAW, "/", "Via: 1.0 first (x)\r\nConnection: close\r\n"))
    via = re.findall(r"^Via: (.*)\r$", world.raw.heads[-1], re.M)
    assert via[0] == "1.0 first (x)" and re.fullmatch(r"1\.1 cofferdam-[0-9a-f]{16}", via[1])
    assert "Via: 1.1 other" in answer and f"Via: {via[1]}" in answer
    refused(gate, world, get(SITE, "/", f"Via: {via[0]}, {via[1]}\r\n"), 508, "loop")
    refused(gate, world, f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\nVia: {via[1]}\r\n\r\n", 508, "loop")
    ok(gate, get(SITE, "/", "Via: 1.1 cofferdam-0000000000000000\r\nConnection: close\r\n"))


def test_a_redirect_is_the_clients_next_request(gate, world):
    """Case 111."""
    result = gate.curl("-L", "-i", "-x", gate.proxy, f"http://{SITE}/redirect", "--max-redirs", "1")
    assert world.metadata.requests == []
    assert "Location: http://169.254.169.254/" in result.stdout
    refused(gate, world, get("169.254.169.254", "/latest/"), 403, "metadata_address")


def test_events_are_written_without_secrets(gate):
    talk(gate, get("evil.example.org", "/p?token=hunter2", "Authorization: Bearer hunter2\r\nCookie: hunter2\r\n"))
    talk(gate, get(SITE, "/p?token=hunter2", "Authorization: Bearer hunter2\r\nConnection: close\r\n"))
    assert "hunter2" not in gate.events_file.read_text()
    assert gate.wait_event(event="egress", host=SITE, path="/p")


# --- deadlines: the same code as with the values of the release, only shorter waits

def timed(function):
    began = time.monotonic()
    answer = function()
    return answer, time.monotonic() - began


def drip(gate, first, piece, pause=0.1, most=15):
    """Sends `first`, then `piece` again and again until the gate has had enough."""
    answer = b""
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(first)
        end = time.monotonic() + most
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < end:
                sock.settimeout(pause)
                try:
                    got = sock.recv(65536)
                    answer += got
                    if not got:
                        break
                except TimeoutError:
                    sock.sendall(piece)
    return answer.decode("latin-1"), time.monotonic() - (end - most)


def test_a_head_that_drips(hurried):
    """Case 106: the whole head has one deadline, whatever comes meanwhile."""
    answer, took = drip(hurried, f"GET http://{SITE}/ HTTP/1.1\r\n".encode(), b"x: y\r\n")
    assert refusal(answer) == (408, "deadline") and took < 10
    assert hurried.wait_event(event="egress", reason="deadline", via="http")
    ok(hurried)


def test_a_body_that_drips(hurried, world):
    """Case 106: a byte now and then is not enough, the server does not get a whole request."""
    world.raw.handler = lambda sock, head: [None for _ in iter(lambda: sock.recv(4096), b"")] and None
    answer, took = drip(hurried, get(RAW, "/", "Content-Length: 100000\r\n", "POST").encode(), b"x")
    assert refusal(answer) == (408, "deadline") and took < 10
    assert hurried.wait_event(event="egress", host=RAW, reason="deadline")
    ok(hurried)


def test_a_steady_upload_may_take_longer_than_its_deadline(hurried, world):
    def handler(sock, head):
        left = 40 * 2000
        while left:
            left -= len(sock.recv(min(left, 65536)))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    world.raw.handler = handler
    with hurried.connect("127.0.0.1", 3128) as sock:
        sock.sendall(get(RAW, "/", f"Content-Length: {40 * 2000}\r\n", "POST").encode())
        for _ in range(40):  # 20,000 bytes a second for 4 s
            sock.sendall(b"x" * 2000)
            time.sleep(0.1)
        assert read_head(sock).startswith(b"HTTP/1.1 200 ")


def test_a_server_that_says_nothing(hurried, world):
    """504, and retryable."""
    world.raw.handler = lambda sock, head: sock.recv(1)  # until the gate gives up
    answer, took = timed(lambda: talk(hurried, get(RAW)))
    assert refusal(answer) == (504, "deadline") and took < 10
    assert json.loads(answer.partition("\r\n\r\n")[2])["retryable"] is True


def test_a_server_that_stops_in_its_answer(hurried, world):
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        sock.recv(1)  # until the gate gives up
    world.raw.handler = handler
    answer, took = timed(lambda: talk(hurried, get(RAW)))
    assert answer.endswith("half") and took < 10
    assert hurried.wait_event(event="egress", host=RAW, verdict="allow")


def test_a_client_that_never_reads(hurried, world):
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            sock.sendall(b"x" * 65536)
    world.raw.handler = handler
    with hurried.connect("127.0.0.1", 3128) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(get(RAW).encode())
        assert sessions_end(hurried, 10)


def test_a_server_that_never_reads(hurried, world):
    over = threading.Event()
    world.raw.handler = lambda sock, head: over.wait(60)
    with hurried.connect("127.0.0.1", 3128) as sock:
        sock.sendall(get(RAW, "/", "Content-Length: 1000000000\r\n", "POST").encode())
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b"x" * 65536)
    try:
        assert sessions_end(hurried, 10)
    finally:
        over.set()


def test_connections_that_wait_for_their_next_request(hurried):
    with hurried.connect("127.0.0.1", 3128) as sock:
        sock.sendall(get(SITE).encode())
        time.sleep(0.2)
        _, took = timed(lambda: [None for _ in iter(lambda: sock.recv(65536), b"")])
        assert took < 12
    with hurried.connect("127.0.0.1", 3128) as sock:  # and one that never asks anything
        assert timed(lambda: sock.recv(1))[0] == b""


def test_a_tunnel_in_which_nothing_is_said(hurried):
    with hurried.connect("127.0.0.1", 3128) as sock:
        sock.sendall(f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\n\r\n".encode())
        assert read_head(sock).startswith(b"HTTP/1.1 200 ")
        assert timed(lambda: sock.recv(1))[0] == b""


def sessions_end(gate, within):
    deadline = time.monotonic() + within
    while gate.stats()["sessions"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return gate.stats()["sessions"] == 0


# --- large bodies: past the borders of 32 bits with COFFERDAM_LARGE_MIB=5000

LARGE = int(os.environ.get("COFFERDAM_LARGE_MIB", "512")) << 20


def rss_kib(gate):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{gate.process.pid}/status").read()).group(1))


@pytest.mark.parametrize("framing", ["length", "chunked", "until-close"])
def test_large_bodies_stream_in_bounded_memory(gate, world, framing):
    """Legit client 37: memory does not follow what streams through."""
    size, piece = LARGE, b"\xa5" * (1 << 20)
    def handler(sock, head):
        if framing == "length":
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        elif framing == "chunked":
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        else:
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(size // len(piece)):
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if framing == "chunked" else piece)
        if framing == "chunked":
            sock.sendall(b"0\r\n\r\n")
    world.raw.handler = handler
    before = rss_kib(gate)
    result = gate.run(["curl", "-sS", "-m", "300", "-x", gate.proxy, "-o", "/dev/null", "-w", "%{size_download}", f"http://{RAW}/"])
    assert result.stdout == str(size), result.stderr
    assert rss_kib(gate) - before < 8192
    event = gate.wait_event(event="egress", host=RAW, verdict="allow")
    assert event["bytes_down"] >= size


def test_a_large_upload_streams_in_bounded_memory(gate, world, tmp_path):
    size = LARGE
    got = []
    def handler(sock, head):
        count = 0
        while count < size:
            count += len(sock.recv(1 << 20))
        got.append(count)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    world.raw.handler = handler
    upload = tmp_path / "up"
    with open(upload, "wb") as file:
        file.truncate(size)
    before = rss_kib(gate)
    result = gate.run(["curl", "-sS", "-m", "300", "-x", gate.proxy, "-T", upload, f"http://{RAW}/"])
    assert result.stdout == "ok" and got == [size], result.stderr
    assert rss_kib(gate) - before < 8192


# --- life of connections

def test_server_sent_events_arrive_as_they_are_sent(gate, world):
    """Legit client 33."""
    go = threading.Event()
    def handler(sock, head):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        sock.sendall(b"9\r\ndata: 1\n\n\r\n")
        go.wait(20)
        sock.sendall(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
    world.raw.handler = handler
    with gate.connect("127.0.0.1", 3128) as sock:
        sock.sendall(get(RAW).encode())
        read_head(sock)
        assert b"data: 1" in sock.recv(4096)  # while the server waits
        go.set()
        rest = b""
        while b"data: 2" not in rest:
            rest += sock.recv(4096)


def test_an_exchange_in_progress_at_the_end_is_recorded(world):
    """In each phase: asking, answering, uploading."""
    def halfway(sock, head):
        if b"/answering" in head:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        over.wait(60)
    over = threading.Event()
    world.raw.handler = halfway
    with Gate(world, rules=RULES) as gate:
        socks = []
        for path, method, extra in (("/silent", "GET", ""), ("/answering", "GET", ""), ("/uploading", "POST", "Content-Length: 99\r\n")):
            sock = gate.connect("127.0.0.1", 3128)
            sock.sendall(get(RAW, path, extra, method).encode())
            socks.append(sock)
        deadline = time.monotonic() + 10
        while sum(p in h for h in world.raw.heads for p in ("/silent", "/answering", "/uploading")) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert gate.stop() == 0
        over.set()
        events = {e["path"]: e for e in gate.events(event="egress", host=RAW)}
        assert set(events) == {"/silent", "/answering", "/uploading"}
        assert all(e["verdict"] == "allow" and e["bytes_up"] > 0 for e in events.values())
        for sock in socks:
            sock.close()


def test_half_open_connections_are_limited(world):
    """Case 150: those that have not said what they want; the others go on."""
    with Gate(world, rules=RULES, wrap=["prlimit", "--nofile=800:800"]) as gate:
        with gate.connect("127.0.0.1", 3128) as working:
            ask_on(working, "/w0")
            idle = [gate.connect("127.0.0.1", 3128) for _ in range(220)]
            answer = b""  # of one of the first that found no place; of many more the last ones are only reset
            while piece := idle[190].recv(4096):
                answer += piece
            assert refusal(answer.decode()) == (503, "too_many_connections")
            assert gate.wait_event(event="egress", reason="too_many_connections")["retryable"] is True
            ask_on(working, "/w1")
            assert gate.stats("/health")["status"] == "ok"
            for sock in idle:
                sock.close()
        deadline = time.monotonic() + 10
        while not talk(gate, get(SITE, extra="Connection: close\r\n")).startswith("HTTP/1.1 200") and time.monotonic() < deadline:
            time.sleep(0.1)
        ok(gate)


def test_descriptors_run_out(world):
    """Case 149: no spinning, no death, an answer; and afterwards all is well."""
    with Gate(world, rules=RULES, wrap=["prlimit", "--nofile=300:300"]) as gate:
        held = []
        for i in range(320):
            with contextlib.suppress(OSError):  # it may be turned away at once
                held.append(gate.connect("127.0.0.1", 3128))
                held[-1].sendall(get(SITE, f"/{i}").encode())
        time.sleep(0.5)
        assert gate.stats("/health")["status"] == "ok"
        before = cpu_seconds(gate)
        time.sleep(2)
        assert cpu_seconds(gate) - before < 0.5
        assert gate.process.poll() is None
        for sock in held:
            sock.close()
        assert sessions_end(gate, 10)
        ok(gate)


def cpu_seconds(gate):
    fields = open(f"/proc/{gate.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_gate_itself_is_no_destination(gate):
    """Case 155: nothing steered it there."""
    for port in (3129,):
        assert talk(gate, get(SITE), port) == ""
    assert gate.wait_event(event="egress", via="transparent", reason="loop")


def test_host_chooses_among_the_names_of_the_address(gate, world):
    """Case 156."""
    for name in (SITE, "my_bucket.example.com"):
        gate.ask(name)
    for name in (SITE, "my_bucket.example.com"):
        assert talk(gate, f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n", 80, V4).startswith("HTTP/1.1 200 ")
    gate.ask(OTHER)
    assert refusal(talk(gate, f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n", 80, V4)) == (421, "host_mismatch")
    assert refusal(talk(gate, "GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", 80, V4)) == (421, "host_mismatch")


def test_a_port_other_than_80_is_kept(gate, world):
    """Legit client 30: the port is the original destination's, whatever Host says."""
    gate.ask(SITE)
    answer = talk(gate, f"GET / HTTP/1.1\r\nHost: {SITE}:8080\r\nConnection: close\r\n\r\n", 8080, V4)
    assert '"port": 8080' in answer
    answer = talk(gate, f"GET / HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n", 8080, V4)
    assert '"port": 8080' in answer
    assert refusal(talk(gate, f"GET / HTTP/1.1\r\nHost: {SITE}:80\r\n\r\n", 8080, V4)) == (421, "host_mismatch")


def test_refusals_keep_the_connection_where_that_is_safe(gate):
    """Legit clients 3 and 6: a denial is an answer, not a broken connection."""
    answer = talk(gate, get("evil.example.org") + get(SITE, "/after"))
    assert re.findall(r"HTTP/1\.1 (\d+) ", answer) == ["403", "200"]
    answer = talk(gate, get("evil.example.org", method="HEAD") + get(SITE, "/after"))
    assert re.findall(r"HTTP/1\.1 (\d+) ", answer) == ["403", "200"]
    # A body that nobody wants is not read as the next request.
    answer = talk(gate, get("evil.example.org", "/", "Content-Length: 60\r\n", "POST", get(SITE, "/smuggled")))
    assert answer.count("HTTP/1.1 ") == 1
