"""The gate's DNS, both sides: what it asks of servers that are slow, wrong or hostile, and what it answers inside."""
import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time

import pytest

from world import DNS4, Gate, World, in_namespace, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, V6, OTHER4 = "93.184.216.34", "2606:2800:220::34", "93.184.216.35"
SITE = "site.example.com"
A, AAAA, PTR = 1, 28, 12
# Servers of this file's own, in the internet.
ODD, SECOND = "9.9.9.11", "9.9.9.12"
ELSEWHERE = "9.9.9.13"


def wire_name(name):
    return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0"


def question_of(packet):
    """(id, the question's bytes, the name in lower case, the type)"""
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("latin-1").lower())
        at += packet[at] + 1
    return packet[:2], packet[12:at + 5], ".".join(labels), struct.unpack("!H", packet[at + 1:at + 3])[0]


def reply(packet, records=(), flags=0x8180, rcode=0, ident=None, question=None):
    """records: (owner, type, ttl, rdata)"""
    own_id, own_question, _, _ = question_of(packet)
    body = b"".join(wire_name(owner) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data
                    for owner, kind, ttl, data in records)
    return (ident or own_id) + struct.pack("!5H", flags | rcode, 1, len(records), 0, 0) + (question or own_question) + body


def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


class OddServer:
    """A DNS server whose every packet is the test's: udp(packet, send, peer), tcp(packet) → bytes or None."""

    def __init__(self, world, at, udp=None, tcp=None, raw_tcp=None, listen_tcp=True):
        self.world, self.at, self.packets = world, at, []
        self.udp_answer, self.tcp_answer, self.raw_tcp = udp, tcp, raw_tcp
        subprocess.run(["ip", "-n", world.internet, "addr", "add", f"{at}/32", "dev", "lo"], capture_output=True)
        self.udp = listen_in(world.internet, at, 53, socket.SOCK_DGRAM)
        threading.Thread(target=self._serve_udp, daemon=True).start()
        self.tcp = listen_in(world.internet, at, 53) if listen_tcp else None
        if self.tcp:
            threading.Thread(target=self._serve_tcp, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for sock in (self.udp, self.tcp):
            if sock:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()

    def names(self, transport=None):
        return [(question_of(p)[2], question_of(p)[3]) for t, p in self.packets if transport in (None, t)]

    def _serve_udp(self):
        with contextlib.suppress(OSError):
            while True:
                packet, peer = self.udp.recvfrom(4096)
                if not packet:  # the end
                    return
                self.packets.append(("udp", packet))
                if self.udp_answer:
                    self.udp_answer(packet, lambda data, peer=peer: self._send(data, peer), peer)

    def _send(self, data, peer):
        with contextlib.suppress(OSError):  # a late answer, after the end
            self.udp.sendto(data, peer)

    def _serve_tcp(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.tcp.accept()
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection):
        with connection, contextlib.suppress(OSError, struct.error):
            while True:
                size = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))[0]
                packet = connection.recv(size, socket.MSG_WAITALL)
                self.packets.append(("tcp", packet))
                if self.raw_tcp:
                    self.raw_tcp(connection, packet)
                    continue
                answer = self.tcp_answer(packet) if self.tcp_answer else None
                if answer:
                    connection.sendall(struct.pack("!H", len(answer)) + answer)


def answers_with(table):
    """udp= of a server that knows {(name, type): [address, …]}; other names exist and have nothing."""
    def answer(packet, send, _):
        _, _, name, kind = question_of(packet)
        send(reply(packet, [(name, kind, 60, address(a)) for a in table.get((name, kind), [])]))
    return answer


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4, AAAA=V6)
        made.site4 = made.http(V4)
        made.site6 = made.http(V6)
        made.other = made.http(OTHER4)
        made.tls4 = made.https(V4, names=[SITE])
        made.private = made.http("10.0.0.5")
        made.echo = made.tcp(V4, 2222, b"hello\n")
        yield made


RULES = [f"http://{SITE}", SITE, f"tcp://{SITE}:2222", "http://*.zone.example.com", "http://opened.example.com=10.0.0.0/8"]


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=RULES) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def stalled(gate):
    """A TCP question that never gets complete, begun before all other tests."""
    sock = gate.connect("127.0.0.1", 53, timeout=60)
    sock.sendall(b"\x00\x20half")
    yield sock, time.monotonic()
    sock.close()


def gate_on(world, *servers, rules=RULES, timeout_ms=3000, **policy):
    resolver = {"servers": list(servers), "timeout_ms": timeout_ms, **policy.pop("resolver", {})}
    return Gate(world, rules=rules, resolver=resolver, **policy)


def packet_for(name, kind=A, options=None, version=0, size=1232, flags=0x0100, ident=0x4242):
    """A question; with `options` (bytes) an OPT record."""
    opt = b""
    if options is not None:
        opt = b"\0" + struct.pack("!HHBBHH", 41, size, 0, version, 0, len(options)) + options
    return struct.pack("!6H", ident, flags, 1, 0, 0, 1 if opt else 0) + wire_name(name) + struct.pack("!HH", kind, 1) + opt


def extended_error(packet):
    """(code, text) of RFC 8914."""
    at = packet.find(struct.pack("!H", 15), 12)
    while at >= 0:
        size, = struct.unpack("!H", packet[at + 2:at + 4])
        if size == len(packet) - at - 4:
            return struct.unpack("!H", packet[at + 4:at + 6])[0], packet[at + 6:].decode()
        at = packet.find(struct.pack("!H", 15), at + 1)
    return None


def ttl_of(packet):
    """Of the first record behind the question."""
    _, question, _, _ = question_of(packet)
    at = 12 + len(question)
    at += 2 if packet[at] & 0xc0 else 1
    return struct.unpack("!I", packet[at + 4:at + 8])[0]


def get(gate, host, path="/"):
    return gate.curl("-x", gate.proxy, "-i", f"http://{host}{path}").stdout


# --- as a client of servers

def test_39_a_failed_connection_takes_the_next_checked_address_without_a_new_question(world):
    world.dns.add("two.zone.example.com", ttl=0, A=["1.1.1.1", V4])  # nobody listens on the first
    with gate_on(world, DNS4) as fresh:
        assert "200 OK" in get(fresh, "two.zone.example.com")
    assert sorted(world.dns.questions("two.zone.example.com")) == [
        ("two.zone.example.com", "A", "udp"), ("two.zone.example.com", "AAAA", "udp")]


def test_42_alias_chains_have_an_end(gate, world):
    for i in range(8):
        world.dns.add(f"c{i}.zone.example.com", CNAME=f"c{i + 1}.zone.example.com")
    world.dns.add("c8.zone.example.com", A=V4)
    assert gate.ask("c0.zone.example.com")[:2] == (0, [V4])
    world.dns.add("long.zone.example.com", CNAME="c0.zone.example.com")
    assert gate.ask("long.zone.example.com")[0] == 2
    world.dns.add("loop1.zone.example.com", CNAME="loop2.zone.example.com")
    world.dns.add("loop2.zone.example.com", CNAME="loop1.zone.example.com")
    assert gate.ask("loop1.zone.example.com")[0] == 2
    assert " 502 " in get(gate, "loop1.zone.example.com").split("\n")[0]
    # The chain is not matched against the rules; its end is judged.
    world.dns.add("cdn.zone.example.com", CNAME="edge.unlisted.example.net")
    world.dns.add("edge.unlisted.example.net", A=V4)
    assert gate.ask("cdn.zone.example.com")[:2] == (0, [V4])
    assert gate.wait_event(event="dns", host="cdn.zone.example.com")["aliases"] == ["edge.unlisted.example.net"]
    world.dns.add("inner.zone.example.com", CNAME="db.unlisted.example.net")
    world.dns.add("db.unlisted.example.net", A="10.0.0.5")
    assert gate.ask("inner.zone.example.com")[:2] == (0, [])
    assert "(private_address)" in get(gate, "inner.zone.example.com")


def test_42_an_alias_that_belongs_to_nobody_is_not_followed(world):
    def foreign(packet, send, _):
        _, _, name, kind = question_of(packet)
        send(reply(packet, [("other.example.net", 5, 60, wire_name("evil.example.net")),
                            ("evil.example.net", kind, 60, address(V4))] if kind == A else []))
    with OddServer(world, ODD, udp=foreign), gate_on(world, ODD) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [])


def test_46_one_family_that_is_silent_is_not_waited_for(world):
    def only_a(packet, send, _):
        _, _, name, kind = question_of(packet)
        if kind == A:
            send(reply(packet, [(name, A, 60, address(V4))]))
    with OddServer(world, ODD, udp=only_a), gate_on(world, ODD, timeout_ms=20000) as fresh:
        begun = time.monotonic()
        assert "200 OK" in get(fresh, SITE)
        assert time.monotonic() - begun < 10  # half a second is usual; the other family would take twenty


def test_46_a_late_family_is_used_when_the_early_one_leads_nowhere(world):
    def late(packet, send, _):
        _, _, name, kind = question_of(packet)
        if kind == A:
            send(reply(packet, [(name, A, 60, address("1.1.1.1"))]))  # refuses connections
        else:
            threading.Timer(0.7, send, [reply(packet, [(name, AAAA, 60, address(V6))])]).start()
    with OddServer(world, ODD, udp=late), gate_on(world, ODD) as fresh:
        answer = get(fresh, SITE)
        assert "200 OK" in answer and f'"server": "{V6}"' in answer


@pytest.mark.parametrize("ttl,least,most", [(0, 1, 1), (1, 1, 1), (200, 198, 200), (300, 298, 300), (301, 298, 300),
                                            (86401, 298, 300), (0x7fffffff, 298, 300), (0x80000000, 1, 1), (0xffffffff, 1, 1)])
def test_47_times_to_live_are_clamped(gate, world, ttl, least, most):
    name = f"ttl{ttl}.zone.example.com"
    world.dns.add(name, ttl=ttl, A=V4)
    assert least <= ttl_of(gate.ask(name)[2]) <= most


def test_47_an_answer_is_kept_for_its_time_and_no_longer(gate, world):
    world.dns.add("short.zone.example.com", ttl=1, A=V4)
    for _ in range(5):
        assert gate.ask("short.zone.example.com")[:2] == (0, [V4])
    first = len(world.dns.questions("short.zone.example.com"))
    assert first <= 2
    world.dns.add("short.zone.example.com", ttl=1, A=OTHER4)
    time.sleep(1.1)
    assert gate.ask("short.zone.example.com")[:2] == (0, [OTHER4])


def test_47_no_is_kept_for_five_seconds(gate, world):
    assert gate.ask("none.zone.example.com")[0] == 3
    rcode, _, packet = gate.ask("none.zone.example.com")
    assert rcode == 3 and ttl_of(packet) == 5
    assert len(world.dns.questions("none.zone.example.com")) == 1
    world.dns.add("none.zone.example.com", A=V4)
    end = time.monotonic() + 30
    while gate.ask("none.zone.example.com")[:2] != (0, [V4]):
        assert time.monotonic() < end
        time.sleep(0.5)


def test_48_of_many_addresses_all_are_judged_and_sixteen_kept(world):
    many = ["10.0.0.%d" % i for i in range(1, 120)] + ["93.184.217.%d" % i for i in range(1, 81)]
    def over_tcp(packet):
        _, _, name, kind = question_of(packet)
        return reply(packet, [(name, A, 60, address(a)) for a in many] if kind == A else [])
    def truncated(packet, send, _):
        send(reply(packet, flags=0x8380))
    with OddServer(world, ODD, udp=truncated, tcp=over_tcp), gate_on(world, ODD) as fresh:
        rcode, found, _ = fresh.ask(SITE)
        assert rcode == 0 and found == ["93.184.217.%d" % i for i in range(1, 17)]
        event = fresh.wait_event(event="dns", host=SITE)
        assert (len(event["dropped"]), event["dropped_more"]) == (16, 103)


def test_49_a_truncated_answer_is_asked_again_over_tcp_or_not_used(world):
    def truncated(packet, send, _):
        _, _, name, kind = question_of(packet)
        send(reply(packet, [(name, kind, 60, address(V4))] if kind == A else [], flags=0x8380))
    def whole(packet):
        _, _, name, kind = question_of(packet)
        return reply(packet, [(name, kind, 60, address(OTHER4))] if kind == A else [])
    with OddServer(world, ODD, udp=truncated, tcp=whole) as server, gate_on(world, ODD) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [OTHER4])
        assert (SITE, A) in server.names("tcp")
    with OddServer(world, SECOND, udp=truncated, listen_tcp=False), gate_on(world, SECOND) as fresh:
        assert fresh.ask(SITE)[:2] == (2, [])  # TCP is refused: the truncated part is not used
        answer = get(fresh, SITE)
        assert answer.startswith("HTTP/1.1 50") and "resolve_" in answer


def test_52_no_hosts_file_no_search_list_no_environment(world, monkeypatch):
    etc = pathlib.Path("/etc/netns") / world.outside
    before = (etc / "resolv.conf").read_text()
    aliases = world.directory / "aliases"
    aliases.write_text(f"site {OTHER4}\n")
    monkeypatch.setenv("HOSTALIASES", str(aliases))
    monkeypatch.setenv("LOCALDOMAIN", "zone.example.com")
    monkeypatch.setenv("RES_OPTIONS", "ndots:9")
    (etc / "hosts").write_text(f"{OTHER4} {SITE}\n10.0.0.5 opened.example.com\n127.0.0.1 mine.zone.example.com\n")
    (etc / "resolv.conf").write_text(f"search zone.example.com\noptions ndots:9\nnameserver {DNS4}\n")
    try:
        with Gate(world, rules=RULES, resolver={}) as fresh:
            asked = len(world.dns.questions())
            assert fresh.ask(SITE)[:2] == (0, [V4])
            assert world.dns.questions()[asked:] == [(SITE, "A", "udp")]
            assert fresh.ask("site")[0] == 3  # no search: a single label is refused
            assert len(world.dns.questions()) == asked + 1
        with Gate(world, rules=RULES, resolver={"hosts_file": True}) as fresh:
            asked = len(world.dns.questions())
            assert fresh.ask(SITE)[:2] == (0, [OTHER4])
            assert fresh.ask(SITE, AAAA)[:2] == (0, [])
            assert '"server": "10.0.0.5"' in get(fresh, "opened.example.com")
            assert "(loopback_address)" in get(fresh, "mine.zone.example.com")  # judged like any other
            assert fresh.ask("unlisted.example.com")[0] == 3
            assert len(world.dns.questions()) == asked
    finally:
        (etc / "resolv.conf").write_text(before)
        (etc / "hosts").unlink()


def test_53_54_special_names_are_refused_without_a_question(world):
    rules = ["http://*.corp.internal", "http://exact.corp.internal", "http://*.box.home.arpa", "http://*.dev.test",
             "http://*.printers.local", "http://*.ns.svc", f"http://{SITE}"]
    world.dns.add("exact.corp.internal", A=V4)
    with Gate(world, rules=rules) as fresh:
        asked = len(world.dns.questions())
        for name in ("localhost", "LOCALHOST", "localhost.", "foo.localhost", "a.corp.internal", "x.box.home.arpa",
                     "a.dev.test", "a.printers.local", "a.onion", "x.invalid", "1.0.0.10.in-addr.arpa", "a.ip6.arpa",
                     "intranet", "metadata", "instance-data", "instance-data.ec2.internal", "metadata.google.internal",
                     "metadata.platformequinix.com", "api.metadata.cloud.ibm.com", "metadata.tencentyun.com",
                     "rancher-metadata", "_api.internal", "kubernetes.default.svc", "db.ns.svc", "a.cluster.local",
                     "host.docker.internal", "gateway.docker.internal", "host.containers.internal", "host.lima.internal"):
            rcode, found, _ = fresh.ask(name)
            assert (rcode, found) == (3, []), name
            assert " 403 " in get(fresh, name.rstrip(".")).split("\n")[0], name
        assert len(world.dns.questions()) == asked
        assert fresh.ask("exact.corp.internal")[:2] == (0, [V4])  # listed exactly


def test_56_forged_replies_do_not_count(world):
    good = lambda packet: reply(packet, [(SITE, A, 60, address(V4))])
    evil = lambda packet, **how: reply(packet, [(SITE, A, 60, address(OTHER4))], **how)
    def forge(packet, send, peer):
        ident, question, _, kind = question_of(packet)
        if kind != A:
            return send(reply(packet))
        wrong = bytes([ident[0] ^ 0xff, ident[1]])
        send(evil(packet, ident=wrong))
        send(evil(packet, question=wire_name("other.example.com") + question[-4:]))
        send(evil(packet, question=question[:-4] + struct.pack("!HH", AAAA, 1)))
        with in_namespace(world.internet):
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other:  # another address and another port of the right address
            other.bind((ELSEWHERE, 53))
            other.sendto(evil(packet), peer)
        with in_namespace(world.internet):
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other:
            other.bind((ODD, 5353))
            other.sendto(evil(packet), peer)
        send(b"x")
        send(good(packet))
    subprocess.run(["ip", "-n", world.internet, "addr", "add", f"{ELSEWHERE}/32", "dev", "lo"], capture_output=True)
    with OddServer(world, ODD, udp=forge), gate_on(world, ODD) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [V4])


def test_56_a_question_that_comes_back_is_no_answer(world):
    def echo(packet, send, _):
        _, _, _, kind = question_of(packet)
        send(reply(packet, [(SITE, kind, 60, address(OTHER4))] if kind == A else [], flags=0x0180))
    def honest(packet):
        _, _, _, kind = question_of(packet)
        return reply(packet, [(SITE, A, 60, address(V4))] if kind == A else [])
    with OddServer(world, ODD, udp=echo, tcp=honest) as server, gate_on(world, ODD) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [V4])  # asked again, over TCP
        assert server.names("tcp")


def test_a_large_family_does_not_crowd_out_the_other(world):
    world.dns.add("crowd.zone.example.com", AAAA=[f"2606:2800:220::{i:x}" for i in range(0x200, 0x230)], A=V4)
    with Gate(world, rules=RULES) as fresh:
        assert f'"server": "{V4}"' in get(fresh, "crowd.zone.example.com")


@pytest.mark.parametrize("records", [
    lambda n: [(n, A, 60, b"\x01\x02\x03")], lambda n: [(n, A, 60, b"")], lambda n: [(n, 5, 60, b"\xc0\xff")],
    lambda n: [(n, 5, 60, wire_name("a b.example.com"))]])
def test_malformed_answers_are_failures(world, records):
    def odd(packet, send, _):
        send(reply(packet, records(SITE)))
    with OddServer(world, ODD, udp=odd), gate_on(world, ODD, timeout_ms=1000) as fresh:
        assert fresh.ask(SITE)[:2] == (2, [])


def test_58_a_server_that_drips_meets_the_deadline(world):
    def truncated(packet, send, _):
        send(reply(packet, flags=0x8380))
    def drip(connection, packet):
        _, _, name, kind = question_of(packet)
        answer = reply(packet, [(name, kind, 60, address(V4))])
        for byte in struct.pack("!H", len(answer)) + answer:
            connection.sendall(bytes([byte]))
            time.sleep(1)
    with OddServer(world, ODD, udp=truncated, raw_tcp=drip), gate_on(world, ODD, timeout_ms=1500) as fresh:
        begun = time.monotonic()
        rcode, _, packet = fresh.ask(SITE, edns=True, timeout=30)
        assert rcode == 2 and extended_error(packet) == (22, "resolve_timeout")
        assert time.monotonic() - begun < 15


def test_59_five_hundred_at_once_are_one_question_and_a_record_each(world):
    def slow(packet, send, _):
        _, _, name, kind = question_of(packet)
        threading.Timer(2.5, send, [reply(packet, [(name, kind, 60, address(V4))])]).start()
    with OddServer(world, ODD, udp=slow) as server, gate_on(world, ODD, timeout_ms=30000) as fresh:
        with in_namespace(fresh.namespace):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE: room for all answers at once
            sock.settimeout(20)
            sock.connect(("127.0.0.1", 53))
            for i in range(500):
                sock.send(packet_for(SITE, ident=i))
                if i % 25 == 24:
                    time.sleep(0.01)  # the gate's socket has room for some hundred
            answered = {struct.unpack("!H", sock.recv(4096)[:2])[0] for _ in range(500)}
        assert answered == set(range(500))
        assert server.names() == [(SITE, A)]
        assert fresh.stats()["dns_questions"] == 500


def test_failover_to_the_second_server_which_is_then_asked_first(world):
    with OddServer(world, ODD) as silent, \
            OddServer(world, SECOND, udp=answers_with({("a.zone.example.com", A): [V4], ("b.zone.example.com", A): [V4]})), \
            gate_on(world, ODD, SECOND) as fresh:
        assert fresh.ask("a.zone.example.com")[:2] == (0, [V4])
        assert silent.names() == [("a.zone.example.com", A)]
        assert fresh.ask("b.zone.example.com")[:2] == (0, [V4])
        assert silent.names() == [("a.zone.example.com", A)]  # it rests


@pytest.mark.parametrize("rcode", [2, 4, 5])
def test_failover_from_a_server_that_says_it_cannot(world, rcode):
    def cannot(packet, send, _):
        send(reply(packet, rcode=rcode))
    with OddServer(world, ODD, udp=cannot), OddServer(world, SECOND, udp=answers_with({(SITE, A): [V4]})), \
            gate_on(world, ODD, SECOND) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [V4])


def test_a_server_without_edns_is_asked_without_it(world):
    def old(packet, send, _):
        _, _, name, kind = question_of(packet)
        if struct.unpack("!H", packet[10:12])[0]:
            return send(reply(packet, rcode=1))
        send(reply(packet, [(name, kind, 60, address(V4))] if kind == A else []))
    with OddServer(world, ODD, udp=old) as server, gate_on(world, ODD) as fresh:
        assert fresh.ask(SITE)[:2] == (0, [V4])
        assert server.packets[0][1].find(b"\0" + struct.pack("!HH", 41, 1232)) > 0


def test_questions_are_bare_and_their_ids_and_ports_differ(world):
    ports, packets = set(), []
    def note(packet, send, peer):
        ports.add(peer[1])
        packets.append(packet)
        send(reply(packet))
    with OddServer(world, ODD, udp=note), gate_on(world, ODD) as fresh:
        ecs = struct.pack("!HHHBB", 8, 7, 1, 24, 0) + b"\x01\x02\x03"
        for i in range(20):
            fresh.ask(f"n{i}.zone.example.com", raw=packet_for(f"n{i}.zone.example.com", options=ecs + struct.pack("!HH", 10, 8) + b"cookie!!"))
    assert len({p[:2] for p in packets}) > 10 and len(ports) > 10
    for packet in packets:
        _, question, name, _ = question_of(packet)
        assert packet[12 + len(question):] == b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)  # an empty OPT
        assert struct.unpack("!4H", packet[4:12]) == (1, 0, 0, 1)


def test_an_install_goes_on_while_the_servers_are_out_of_order(world):
    world.dns.add("steady.zone.example.com", ttl=1, A=V4)
    with gate_on(world, DNS4, timeout_ms=500) as fresh:
        assert fresh.ask("steady.zone.example.com")[:2] == (0, [V4])
        world.dns.behave("steady.zone.example.com", "silent")
        time.sleep(1.1)
        result = fresh.curl("--resolve", f"steady.zone.example.com:80:{V4}", "http://steady.zone.example.com/")
        assert f'"server": "{V4}"' in result.stdout, result.stderr
        # An address that was not answered for it is none.
        result = fresh.curl("-i", "--resolve", f"steady.zone.example.com:80:{OTHER4}", "http://steady.zone.example.com/")
        assert "403" in result.stdout


def test_41_the_strict_judge_both_families_of_a_name(world):
    world.dns.add("torn.zone.example.com", A=V4, AAAA="fd00:7::7")
    world.dns.add("whole.zone.example.com", A=V4, AAAA=V6)
    world.dns.add("half.zone.example.com", A=V4)
    rules = RULES + ["tcp://*.zone.example.com:2222"]
    with Gate(world, rules=rules, mixed="refuse") as strict:
        for kind in (A, AAAA, A):
            rcode, found, packet = strict.ask("torn.zone.example.com", kind, edns=True)
            assert (rcode, found) == (0, []) and extended_error(packet) == (15, "mixed_answer")
        assert "(mixed_answer)" in get(strict, "torn.zone.example.com")
        assert strict.ask("whole.zone.example.com")[:2] == (0, [V4])
        assert strict.ask("whole.zone.example.com", AAAA)[:2] == (0, [V6])
        assert strict.ask("half.zone.example.com")[:2] == (0, [V4])
        assert strict.ask("half.zone.example.com", AAAA)[:2] == (0, [])
        with strict.connect(V4, 2222) as sock:
            assert sock.recv(100) == b"hello\n"
    with Gate(world, rules=rules) as usual:
        assert usual.ask("torn.zone.example.com")[:2] == (0, [V4])
        assert usual.ask("torn.zone.example.com", AAAA)[:2] == (0, [])


# --- as the server inside

def test_the_answer_echoes_the_question_to_the_letter(gate):
    for server in ("127.0.0.1", "::1"):
        mixed = "sItE.ExAmPlE.cOm"
        rcode, found, packet = gate.ask(mixed, server=server)
        assert (rcode, found) == (0, [V4])
        assert wire_name(mixed) in packet
        denied = gate.ask("EvIl.ExAmPlE.oRg", server=server)[2]
        assert wire_name("EvIl.ExAmPlE.oRg") in denied


def test_66_a_missing_family_has_a_soa(gate, world):
    world.dns.add("four.zone.example.com", A=V4)
    world.dns.add("six.zone.example.com", AAAA=V6)
    for name, kind in (("four.zone.example.com", AAAA), ("six.zone.example.com", A)):
        rcode, found, packet = gate.ask(name, kind)
        assert (rcode, found) == (0, []) and b"\x04gate\x07invalid" in packet


def test_68_odd_shapes(gate):
    question = wire_name(SITE) + struct.pack("!HH", A, 1)
    head = lambda flags=0x100, counts=(1, 0, 0, 0): struct.pack("!6H", 7, flags, *counts)
    opt = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)
    table = [(head(counts=(0, 0, 0, 0)), 1), (head(counts=(2, 0, 0, 0)) + question * 2, 1),
             (head(counts=(1, 1, 0, 0)) + question, 1), (head(counts=(1, 0, 1, 0)) + question, 1),
             (head(counts=(1, 0, 0, 2)) + question + opt * 2, 1), (head(counts=(1, 0, 0, 1)) + question, 1),
             (head() + b"\xc0\x0c" + struct.pack("!HH", A, 1), 1), (head() + b"\xc0\x00" + struct.pack("!HH", A, 1), 1),
             (head() + b"\x40abc\0" + struct.pack("!HH", A, 1), 1), (head() + b"\x3f" + b"a" * 10, 1),
             (head() + (b"\x3f" + b"a" * 63) * 4 + b"\0" + struct.pack("!HH", A, 1), 1),
             (head() + question[:-1], 1), (head() + b"\x05a\r\nbc\0" + struct.pack("!HH", A, 1), 1),
             (head() + b"\x03a.b\0" + struct.pack("!HH", A, 1), 1), (head() + b"\x02a\xff\0" + struct.pack("!HH", A, 1), 1)]
    table += [(head(flags=0x100 | opcode << 11) + question, 4) for opcode in range(1, 16)]
    table += [(head() + wire_name("version.bind") + struct.pack("!HH", 16, 3), 5),
              (head() + wire_name(SITE) + struct.pack("!HH", 252, 1), 5), (head() + wire_name(SITE) + struct.pack("!HH", 251, 1), 5),
              (head() + wire_name(SITE) + struct.pack("!HH", A, 254), 5)]
    for packet, rcode in table:
        for transport in ("udp", "tcp"):
            answer = gate.ask("x", raw=packet, transport=transport)
            assert answer[0] == rcode, packet
            assert b"bind" not in answer[2].replace(wire_name("version.bind"), b"")
    assert gate.ask(SITE)[:2] == (0, [V4])
    for packet in (head(flags=0x8100) + question, b"\0" * 11, b""):
        with pytest.raises(TimeoutError):
            gate.ask("x", raw=packet or None, timeout=0.5) if packet else gate.ask("x", raw=b"\0", timeout=0.5)


def test_69_edns(gate):
    answer = gate.ask(SITE, raw=packet_for(SITE, options=b""))[2]
    assert answer.endswith(b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0))  # ours, empty
    # Another version: BADVERS, whose upper bits are in the OPT record.
    rcode, found, answer = gate.ask(SITE, raw=packet_for(SITE, options=b"", version=1))
    assert rcode == 0 and found == [] and answer[-11:] == b"\0" + struct.pack("!HHBBHH", 41, 1232, 1, 0, 0, 0)
    # A cookie is not echoed, a client subnet and unknown options are ignored.
    options = struct.pack("!HH", 10, 8) + b"cookie!!" + struct.pack("!HHHBB", 8, 7, 1, 24, 0) + b"\1\2\3" + struct.pack("!HH", 65001, 2) + b"zz"
    rcode, found, answer = gate.ask(SITE, raw=packet_for(SITE, options=options))
    assert (rcode, found) == (0, [V4]) and b"cookie" not in answer and b"zz" not in answer
    assert gate.ask(SITE)[2].count(struct.pack("!HH", 41, 1232)) == 0  # none where none was sent


def test_69_sizes_are_honoured_and_past_them_the_answer_is_truncated(gate, world):
    for i in range(30):
        world.dns.add(f"name-number-{i}.zone.example.com", A="93.184.216.36")
        assert gate.ask(f"name-number-{i}.zone.example.com")[0] == 0
    reverse = "36.216.184.93.in-addr.arpa"
    whole = gate.ask(reverse, PTR, transport="tcp")
    assert len(whole[1]) == 30 and len(whole[2]) > 1232
    for options, size, limit in ((None, 0, 512), (b"", 100, 512), (b"", 600, 600), (b"", 1232, 1232), (b"", 65535, 1232)):
        rcode, found, packet = gate.ask(reverse, PTR, raw=packet_for(reverse, PTR, options=options, size=size))
        assert rcode == 0 and len(packet) <= limit and found == []
        assert packet[2] & 0x02  # TC: ask over TCP


def test_extended_errors_tell_denial_from_failure(gate, world):
    world.dns.behave("mute.zone.example.com", "silent")
    world.dns.behave("broken.zone.example.com", "servfail")
    assert extended_error(gate.ask("evil.example.org", edns=True)[2]) == (15, "no_rule")
    world.dns.add("inside.zone.example.com", A="10.0.0.5")
    rcode, found, packet = gate.ask("inside.zone.example.com", edns=True)
    assert (rcode, found) == (0, []) and extended_error(packet) == (15, "private_address")
    rcode, _, packet = gate.ask("mute.zone.example.com", edns=True)
    assert rcode == 2 and extended_error(packet) == (22, "resolve_timeout")
    rcode, _, packet = gate.ask("broken.zone.example.com", edns=True)
    assert rcode == 2 and extended_error(packet) == (23, "resolve_failed")
    assert b"10.0.0.5" not in packet and address("10.0.0.5") not in packet


def test_a_mapped_address_is_the_ipv4_address_and_no_answer_for_ipv6(gate, world):
    world.dns.add("mapped.zone.example.com", AAAA=["::ffff:10.0.0.5", "::ffff:93.184.216.34", V6])
    rcode, found, _ = gate.ask("mapped.zone.example.com", AAAA)
    assert (rcode, found) == (0, [V6])
    dropped = gate.wait_event(event="dns", host="mapped.zone.example.com")["dropped"]
    assert dropped == [{"address": "10.0.0.5", "reason": "private_address"}]


def test_tcp_answers_as_they_come_and_in_any_number(gate, world):
    for server, stuck in (("127.0.0.1", "stuck4.zone.example.com"), ("::1", "stuck6.zone.example.com")):
        world.dns.behave(stuck, "silent")
        with gate.connect(server, 53) as sock:
            packets = [packet_for(stuck, ident=1)]
            packets += [packet_for(SITE if i % 2 else "evil.example.org", ident=i) for i in range(2, 202)]
            data = b"".join(struct.pack("!H", len(p)) + p for p in packets)
            for i in range(0, len(data), 1000):
                sock.sendall(data[i:i + 1000])
            order = []
            for _ in range(201):
                size = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL))[0]
                order.append(struct.unpack("!H", sock.recv(size, socket.MSG_WAITALL)[:2])[0])
            assert order == [*range(2, 202), 1]  # the slow one holds up nobody


def test_tcp_answers_what_was_asked_before_a_half_close(gate):
    with gate.connect("127.0.0.1", 53) as sock:
        packet = packet_for("later.zone.example.com")
        sock.sendall(struct.pack("!H", len(packet)) + packet)
        sock.shutdown(socket.SHUT_WR)
        size = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL))[0]
        assert sock.recv(size, socket.MSG_WAITALL)[:2] == b"\x42\x42"
        assert sock.recv(1) == b""


def test_tcp_lengths_have_limits(gate):
    for data in (b"\0\0", b"\xff\xff" + b"a" * 5000, b"\x10\x01" + b"a" * 4097):
        with gate.connect("127.0.0.1", 53) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
                assert sock.recv(10) == b""
    assert gate.ask(SITE, transport="tcp")[:2] == (0, [V4])


def test_too_many_questions_that_wait_are_told_so(world):
    with OddServer(world, ODD) as server, gate_on(world, ODD, timeout_ms=4000) as fresh:
        with in_namespace(fresh.namespace):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            sock.settimeout(10)
            sock.connect(("127.0.0.1", 53))
            for i in range(700):
                sock.send(packet_for(f"n{i}.zone.example.com", ident=i, options=b""))
                if i % 50 == 49:
                    time.sleep(0.02)
            answer = sock.recv(4096)
            assert answer[3] & 0xf == 2 and extended_error(answer) == (0, "too_many_connections")
        assert len(server.names()) >= 100
        assert fresh.ask("evil.example.org")[0] == 3  # denials cost no place


def test_clients_that_vanish_leave_nothing_and_an_end_in_the_middle_is_clean(world):
    with OddServer(world, ODD), gate_on(world, ODD, timeout_ms=2000) as fresh:
        packets = b"".join(struct.pack("!H", len(p)) + p for p in
                           (packet_for(f"v{i}.zone.example.com", ident=i) for i in range(30)))
        for round in range(20):
            sock = fresh.connect("127.0.0.1", 53)
            sock.sendall(packets + (b"\x01" if round % 2 else b""))
            if round % 3 == 0:
                time.sleep(0.02)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()  # a reset
        end = time.monotonic() + 30
        while fresh.stats()["sessions"]:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert fresh.ask("evil.example.org", transport="tcp")[0] == 3
        with fresh.connect("127.0.0.1", 53) as waiting:
            waiting.sendall(packets)
            time.sleep(0.1)
            assert fresh.stop() == 0  # with questions and a connection under way
        assert fresh.stderr_file.read_text() == ""


def test_a_client_that_never_reads_its_answers_is_ended_and_costs_little(gate):
    packet = packet_for("evil.example.org", options=b"")
    data = (struct.pack("!H", len(packet)) + packet) * 2000
    with gate.connect("127.0.0.1", 53, timeout=1) as sock:
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < (64 << 20):
                sent += sock.send(data)
        assert sent < (64 << 20)  # it is not read on for ever
        assert gate.ask(SITE, transport="tcp")[:2] == (0, [V4])


# --- pins

def test_72_an_address_outlives_its_answer(gate, world):
    world.dns.add("turning.zone.example.com", ttl=1, A=V4)
    assert gate.ask("turning.zone.example.com")[:2] == (0, [V4])
    world.dns.add("turning.zone.example.com", ttl=1, A=OTHER4)
    time.sleep(1.2)
    # A client that kept the old address: a checked address of the new set is dialled.
    result = gate.curl("--resolve", f"turning.zone.example.com:80:{V4}", "http://turning.zone.example.com/")
    assert f'"server": "{OTHER4}"' in result.stdout, result.stderr


def test_72_raw_connections_keep_to_the_address_that_was_answered(gate, world):
    assert gate.ask(SITE)[:2] == (0, [V4])
    with gate.connect(V4, 2222) as sock:
        assert sock.recv(100) == b"hello\n"


def test_74_pins_are_each_sandboxs_own(gate, world):
    world.dns.add("mine.zone.example.com", A=OTHER4)
    assert gate.ask("mine.zone.example.com")[:2] == (0, [OTHER4])
    with Gate(world, rules=RULES) as second:
        result = second.curl("-i", "--resolve", f"mine.zone.example.com:80:{OTHER4}", "http://mine.zone.example.com/")
        assert "(ip_literal)" in result.stdout
        assert second.ask("35.216.184.93.in-addr.arpa", PTR)[0] == 3
    assert gate.ask("35.216.184.93.in-addr.arpa", PTR)[0] == 0


# --- the host itself

def test_146_names_that_lead_to_the_host(world):
    here = {"any.zone.example.com": ("A", "0.0.0.0", "loopback_address"), "any6.zone.example.com": ("AAAA", "::", "loopback_address"),
            "lo.zone.example.com": ("A", "127.0.0.1", "loopback_address"), "lo6.zone.example.com": ("AAAA", "::1", "loopback_address"),
            "me.zone.example.com": ("A", World.OUTSIDE, "host_address"), "me6.zone.example.com": ("AAAA", World.OUTSIDE6, "host_address"),
            "extra.zone.example.com": ("A", World.OUTSIDE_EXTRA, "host_address"),
            "broadcast.zone.example.com": ("A", "11.0.0.255", "host_address"),
            "anycast.zone.example.com": ("AAAA", "2a00:11::", "host_address"),
            "range.zone.example.com": ("A", "93.184.218.7", "host_address"),
            "range6.zone.example.com": ("AAAA", "2606:2801::7", "host_address")}
    for name, (kind, where, _) in here.items():
        world.dns.add(name, **{kind: where})
    # A router has the subnet's anycast address.
    forwarding = ["ip", "netns", "exec", world.outside, "sysctl", "-qw", "net.ipv6.conf.all.forwarding={}"]
    subprocess.run([w.format(1) for w in forwarding], check=True)
    # Whole ranges that the machine takes for itself.
    local = [["ip", "-n", world.outside, *family, "route", "{}", "local", prefix, "dev", "lo"]
             for family, prefix in ((["-4"], "93.184.218.0/24"), (["-6"], "2606:2801::/32"))]
    for words in local:
        subprocess.run([w.format("add") for w in words], check=True)
    try:
        with Gate(world, rules=RULES) as fresh:
            for name, (_, _, reason) in here.items():
                answer = get(fresh, name)
                assert answer.startswith("HTTP/1.1 403") and f"({reason})" in answer, (name, answer)
    finally:
        subprocess.run([w.format(0) for w in forwarding], check=True)
        for words in local:
            subprocess.run([w.format("del") for w in words], check=True)


def test_146_an_address_that_comes_and_goes_is_known_while_it_is_there(world):
    world.dns.add("late.zone.example.com", AAAA="2a00:11::99")
    device = f"vo{world.tag}"
    with Gate(world, rules=RULES) as fresh:
        word = lambda verb: subprocess.run(["ip", "-n", world.outside, "addr", verb, "2a00:11::99/64", "dev", device] +
                                           (["nodad"] if verb == "add" else []), check=True)
        reason = lambda: get(fresh, "late.zone.example.com").split("\n")[0]
        def wait_for(text):
            end = time.monotonic() + 20
            while text not in (found := reason()):
                assert time.monotonic() < end, found
                time.sleep(0.05)
        word("add")
        wait_for("(host_address)")
        word("del")
        wait_for("(connect_failed)")


# --- happy eyeballs

def test_140_an_address_that_is_silent_does_not_hold_up_the_next(world):
    world.dns.add("slow1.zone.example.com", AAAA="2606:2800:220::dead", A=["93.184.216.99", V4])
    with Gate(world, rules=RULES) as fresh:
        begun = time.monotonic()
        answer = get(fresh, "slow1.zone.example.com")
        assert f'"server": "{V4}"' in answer and time.monotonic() - begun < 5


def test_140_refused_addresses_are_not_even_in_the_race(world):
    before = world.private.connections
    world.dns.add("race.zone.example.com", A=["10.0.0.5", "93.184.216.99", "10.0.0.5", V4])
    with Gate(world, rules=RULES) as fresh:
        assert f'"server": "{V4}"' in get(fresh, "race.zone.example.com")
    assert world.private.connections == before


def test_140_the_race_has_an_end(world):
    world.dns.add("void.zone.example.com", A=["93.184.216.99", "93.184.216.98"])
    with Gate(world, rules=RULES) as fresh:
        begun = time.monotonic()
        answer = fresh.curl("-m", "40", "-x", fresh.proxy, "-i", "http://void.zone.example.com/").stdout
        assert answer.startswith("HTTP/1.1 504") and "(deadline)" in answer
        assert 8 < time.monotonic() - begun < 30


def test_141_a_family_without_a_route_costs_no_time(world):
    remove = ["ip", "-n", world.outside, "-6", "route", "{}", "default", "via", "2a00:11::1"]
    many = [f"2606:2800:220::{i:x}" for i in range(0x100, 0x110)]
    world.dns.add("both.zone.example.com", AAAA=many, A=V4)
    subprocess.run([w.format("del") for w in remove], check=True)
    try:
        with Gate(world, rules=RULES) as fresh:
            begun = time.monotonic()
            assert f'"server": "{V4}"' in get(fresh, "both.zone.example.com")
            assert time.monotonic() - begun < 2.5  # sixteen staggers would be four seconds
    finally:
        subprocess.run([w.format("add") for w in remove], check=True)


def test_tcp_that_is_silent_is_ended(stalled):
    sock, begun = stalled
    sock.settimeout(max(1, begun + 60 - time.monotonic()))
    with contextlib.suppress(ConnectionResetError):
        assert sock.recv(1) == b""
