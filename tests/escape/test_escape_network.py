"""Attacks on the way out, by whole sandboxes, against an internet of our own (tests/integration/world.py).

The servers that must not be reached are there and answer: the same probe run outside proves it.
"""
import socket
import subprocess
import threading

import pytest

import battery
import cases
import world as test_world

IP4, IP6, HOST = "93.184.216.34", "2606:2800:220::34", test_world.OUTSIDE
pytestmark = pytest.mark.skipif(test_world.missing() is not None, reason=str(test_world.missing()))


def echo_canary(namespace, address):
    sock = test_world.listen_in(namespace, address, 9999, socket.SOCK_DGRAM)

    def serve():
        while True:
            try:
                _, peer = sock.recvfrom(2048)
                sock.sendto(b"CANARY", peer)
            except OSError:
                return
    threading.Thread(target=serve, daemon=True).start()
    return sock


@pytest.fixture(scope="session")
def internet():
    with test_world.World() as world:
        for address in (IP4, IP6, "169.254.169.254", "10.0.0.5"):
            world.http(address, 80)
        own = test_world.HttpServer(world.outside, HOST, 80)
        echoes = [echo_canary(world.internet, address) for address in (IP4, IP6, "8.8.8.8")]
        world.dns.add("allowed.example", A=IP4)
        world.dns.add("allowed6.example", AAAA=IP6)
        world.dns.add("denied.example", A=IP4)
        world.dns.add("to-metadata.example", A="169.254.169.254")
        world.dns.script("rebind.example", "A", [[IP4], ["10.0.0.5"]])
        yield world
        own.close()
        for sock in echoes:
            sock.close()


@pytest.fixture(scope="session")
def outcomes(way, project, internet):
    way.netns = internet.outside
    internet.dns.script("rebind.example", "A", [[IP4], ["10.0.0.5"]])
    attempts = {}
    for name, (attack, control) in cases.NETWORK.items():
        fill = [w.format(ip4=IP4, ip6=IP6, host=HOST) for w in attack]
        if control:
            attempts["control: " + name] = [w.format(ip4=IP4, ip6=IP6) for w in control]
        attempts["attack: " + name] = fill
    manifest = project.root / "network.yaml"
    manifest.write_text(f"version: 1\nnetwork:\n  resolver: {{servers: ['{test_world.DNS4}']}}\n")
    manifest.chmod(0o644)
    flags = ["--name", "network-battery", "--manifest", str(manifest)]
    for host in ("allowed.example", "allowed6.example", "to-metadata.example", "rebind.example"):
        flags += ["--allow", f"http://{host}"]
    before = len(internet.dns.questions("denied.example"))
    results = battery.run_battery(way, project, attempts, flags)
    way.netns = None
    assert len(internet.dns.questions("denied.example")) == before, "a denied name was asked upstream"
    return results


@pytest.mark.parametrize("name", cases.NETWORK)
def test_attack_is_stopped(name, outcomes):
    outcome = outcomes["attack: " + name]
    assert outcome.code == battery.BLOCKED, outcome.text


@pytest.mark.parametrize("name", [n for n, (_, control) in cases.NETWORK.items() if control])
def test_control_works(name, outcomes):
    outcome = outcomes["control: " + name]
    assert outcome.code == battery.WORKS, outcome.text


@pytest.mark.parametrize("words", [["tcp", IP4, "80"], ["tcp", IP6, "80"], ["tcp", "169.254.169.254", "80"], ["tcp", "10.0.0.5", "80"],
                                   ["tcp", HOST, "80"], ["udp", IP4, "9999"], ["udp", IP6, "9999"], ["udp", "8.8.8.8", "9999"]])
def test_what_must_not_be_reached_answers_outside(internet, words):
    done = subprocess.run(["ip", "netns", "exec", internet.outside, battery.BIN / "cofferdam-probe", *words],
                          capture_output=True, timeout=30)
    assert done.returncode == battery.WORKS, done.stdout
