"""Monitor mode, learning a manifest from it, and grants: over a gate, and over whole runs in the test world."""
import json
import re
import signal
import socket
import subprocess

import pytest

from world import BIN, DNS4, Gate, World, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, OTHER4, TCP4 = "93.184.216.34", "93.184.216.35", "93.184.216.36"
SITE, OTHER = "site.example.com", "other.example.com"


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add("raw.example.com", A=TCP4)
        made.dns.add("private.example.com", A="10.0.0.5")
        made.dns.add("opened.example.com", A="10.0.0.5")
        made.dns.add("mixed.example.com", A=["10.0.0.5", V4])
        made.dns.add("meta.example.com", A="169.254.169.254")
        made.dns.add("self.example.com", A=World.OUTSIDE_EXTRA)
        made.dns.add("host.corp.internal", A=V4)
        for name in "abc":
            made.dns.add(f"{name}.cdn.example.com", A=V4)
        made.site, made.other = made.http(V4), made.http(OTHER4)
        made.tls = made.https(V4, names=[SITE] + [f"{n}.cdn.example.com" for n in "abc"])
        made.raw = made.tcp(TCP4, 9000, b"hello\n")
        made.private, made.metadata = made.http("10.0.0.5"), made.http("169.254.169.254")
        yield made


@pytest.fixture(scope="module")
def gate(world):
    with Gate(world, rules=[f"http://{SITE}", "http://opened.example.com=10.0.0.0/8"],
              deny=["bad.example.com", "other.example.com:8080"], mode="monitor") as made:
        yield made


# --- the gate

def test_what_a_rule_allows_is_allowed_by_it(gate):
    assert gate.curl(f"http://{SITE}/").returncode == 0
    event = gate.wait_event(event="egress", host=SITE, protocol="http")
    assert (event["verdict"], event["reason"], event["rule"]) == ("allow", "allowed", "r:1")
    assert "monitor" not in event


@pytest.mark.parametrize("url, protocol, host, reason", [
    (f"http://{OTHER}/", "http", OTHER, "no_rule"),
    (f"https://{SITE}/", "tls", SITE, "port_not_allowed"),
    ("https://a.cdn.example.com/", "tls", "a.cdn.example.com", "no_rule"),
])
def test_what_no_rule_allows_passes_and_the_event_says_what_would_have_been(gate, url, protocol, host, reason):
    for how in ((), ("-x", gate.proxy)):
        result = gate.curl(*how, url)
        assert result.returncode == 0, result.stderr
    event = gate.wait_event(event="egress", host=host, protocol=protocol, verdict="allow")
    assert (event["reason"], event["rule"], event["monitor"], event["retryable"]) == (
        reason, "mode:monitor", True, False)
    if reason == "no_rule":
        assert gate.wait_event(event="dns", host=host, verdict="allow")["monitor"] is True


def test_raw_tcp_passes_too(gate):
    assert gate.ask("raw.example.com")[1] == [TCP4]
    with gate.connect(TCP4, 9000) as sock:
        assert sock.recv(6, socket.MSG_WAITALL) == b"hello\n"
    event = gate.wait_event(event="egress", host="raw.example.com", protocol="tcp")
    assert event["monitor"] is True and event["port"] == 9000


def test_a_public_literal_passes_as_one(gate):
    assert gate.curl("-x", gate.proxy, f"http://{OTHER4}/").returncode == 0
    assert gate.wait_event(event="egress", host=OTHER4, verdict="allow")["reason"] in ("ip_literal", "no_rule")


@pytest.mark.parametrize("host, reason", [
    ("private.example.com", "private_address"), ("meta.example.com", "metadata_address"),
    ("self.example.com", "host_address"), ("bad.example.com", "denied_by_rule"), ("localhost", "loopback_address"),
    ("169.254.169.254", "metadata_address"), ("10.0.0.5", "ip_literal"), ("127.0.0.1", "loopback_address"),
    (World.OUTSIDE_EXTRA, "host_address"), ("host.corp.internal", None),
])
def test_what_is_not_public_or_denied_never_passes(gate, world, host, reason):
    before = len(world.private.requests), len(world.metadata.requests), len(world.site.requests)
    result = gate.curl("-x", gate.proxy, "-o", "/dev/null", "-w", "%{http_code}", f"http://{host}/")
    assert result.stdout in ("403", "400"), (result.stdout, result.stderr)
    event = gate.wait_event(event="egress", host=host, verdict="deny")
    if reason:
        assert event["reason"] == reason
    assert "monitor" not in event
    assert before == (len(world.private.requests), len(world.metadata.requests), len(world.site.requests))


def test_a_mixed_answer_loses_its_private_part(gate):
    assert gate.ask("mixed.example.com")[1] == [V4]


def test_a_range_that_a_rule_opens_is_open(gate):
    assert gate.curl("http://opened.example.com/").returncode == 0
    assert gate.wait_event(event="egress", host="opened.example.com")["rule"] == "r:2"


def test_a_deny_rule_with_a_port_still_denies(gate):
    result = gate.curl("-x", gate.proxy, "-o", "/dev/null", "-w", "%{http_code}", f"http://{OTHER}:8080/")
    assert result.stdout == "403"


# --- whole runs

class Runs:
    """`cofferdam` in the world's outside, with a state directory of its own."""

    def __init__(self, world, directory):
        self.world, self.directory = world, directory
        self.project = directory / "project"
        self.project.mkdir()

    def _arguments(self):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "XDG_STATE_HOME": str(self.directory / "state"),
               "XDG_CONFIG_HOME": str(self.directory / "config")}
        return {"env": env, "cwd": self.project}

    def __call__(self, *words):
        return self.world.run_outside([BIN / "cofferdam", *words], **self._arguments())

    def start(self, *words):
        return self.world.popen_outside([BIN / "cofferdam", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **self._arguments())

    def manifest(self, network, name="manifest.yaml"):
        file = self.directory / name
        file.write_text("version: 1\nnetwork:\n" + network)
        return file

    def events(self, selector="last"):
        return [json.loads(line) for line in self("log", selector, "--json").stdout.splitlines()]


@pytest.fixture
def runs(world, tmp_path):
    return Runs(world, tmp_path)


RESOLVER = f"  resolver: {{servers: ['{DNS4}']}}\n"


def test_learn_makes_the_smallest_rules_and_they_suffice(runs):
    monitor = runs.manifest("  mode: monitor\n" + RESOLVER)
    fetch = f"curl -sSf -m 20 http://{OTHER}/ && for n in a b c; do curl -sSkf -m 20 https://$n.cdn.example.com/; done; " \
            "curl -sS -m 20 http://private.example.com/; true"
    result = runs("run", "--manifest", monitor, "--name", "watched", "--", "sh", "-c", fetch)
    assert result.returncode == 0, result.stderr
    assert "NOTHING IS ENFORCED BY NAME" in result.stderr
    assert result.stdout.count('"server"') == 4
    assert next(e for e in runs.events() if e["event"] == "run_started")["network.mode"] == "monitor"

    learned = runs("manifest", "learn", "watched")
    assert learned.returncode == 0, learned.stderr
    assert learned.stdout == ("# What was reached, learned from a record: read it before you trust it.\nversion: 1\n"
                              "network:\n  mode: enforce\n  rules:\n"
                              "    - 'a.cdn.example.com'\n    - 'b.cdn.example.com'\n    - 'c.cdn.example.com'\n"
                              "    - 'http://other.example.com'\n")
    assert "--wildcards" in learned.stderr
    assert runs("manifest", "learn", "watched").stdout == learned.stdout
    wide = runs("manifest", "learn", "--wildcards", "watched")
    assert "    - '*.cdn.example.com'\n" in wide.stdout and "a.cdn" not in wide.stdout

    # Into a manifest that is there, from a further run, keeping what it says.
    mine = runs.manifest("  # ours\n  rules:\n    - http://site.example.com  # the site\n" + RESOLVER, "mine.yaml")
    merged = runs("manifest", "learn", "watched", "--manifest", mine)
    assert merged.returncode == 0, merged.stderr
    assert merged.stdout.startswith("version: 1\nnetwork:\n  # ours\n  rules:\n    - http://site.example.com  # the site\n"
                                    "    - 'a.cdn.example.com'\n")
    assert "+ http://other.example.com" in merged.stderr
    enforcing = runs.directory / "enforcing.yaml"
    enforcing.write_text(merged.stdout)
    assert runs("manifest", "learn", "watched", "--manifest", enforcing).stdout == merged.stdout
    result = runs("run", "--manifest", enforcing, "--", "sh", "-c", fetch)
    assert result.returncode == 0 and result.stdout.count('"server"') == 4, result.stderr
    assert "NOTHING IS ENFORCED" not in result.stderr
    result = runs("run", "--manifest", enforcing, "--", "curl", "-sSf", "-m", "20", "https://site.example.com/")
    assert result.returncode != 0, "what was not reached is not allowed"


def test_budgets_of_a_manifest_reach_the_gate(runs):
    manifest = runs.manifest(f"  rules:\n    - {{rule: 'http://{SITE}', budgets: {{bytes_down: 1MiB}}}}\n"
                             f"  budgets: {{connections: 50}}\n{RESOLVER}")
    dry = runs("run", "--dry-run", "--manifest", manifest, "--", "true")
    assert "at most bytes_down 1048576" in dry.stdout + dry.stderr
    result = runs("run", "--manifest", manifest, "--", "curl", "-sS", "-m", "20", "-o", "/dev/null", f"http://{SITE}/big")
    assert result.returncode not in (0, 125), result.stderr
    event = next(e for e in runs.events() if e.get("reason") == "quota_exceeded")
    assert event["bytes_down"] == 1 << 20
    for bad in ("{bytes_up: 0}", "{bytes: 5}", "{connections: many}", "5"):
        wrong = runs.manifest(f"  budgets: {bad}\n", "wrong.yaml")
        result = runs("manifest", "check", wrong)
        assert result.returncode == 1 and "wrong.yaml:3" in result.stderr, result.stderr


def test_a_grant_opens_what_it_says_for_its_time_and_no_longer(runs):
    manifest = runs.manifest(RESOLVER)
    script = f"""
        try() {{ curl -s -x http://127.0.0.1:3128 -m 20 -o /dev/null -w '%{{http_code}}' http://{SITE}/; }}
        echo before $(try)
        for i in $(seq 300); do [ "$(try)" = 200 ] && break; sleep 0.1; done
        echo during $(try)
        for i in $(seq 300); do [ "$(try)" = 403 ] && break; sleep 0.1; done
        echo after $(try)
    """
    run = runs.start("run", "--manifest", manifest, "--name", "granted", "--", "sh", "-c", script)
    try:
        assert run.stdout.readline() == "before 403\n", run.stderr.read()
        early = json.loads(runs("ps", "--json").stdout)["sandboxes"][0]
        assert early["grants"] == []
        given = runs("grant", "granted", "--allow", f"http://{SITE}", "--for", "6s", "--reason", "a test", "--json")
        assert given.returncode == 0, given.stderr
        grant = json.loads(given.stdout)
        assert grant["id"] == "grant:1" and grant["active"] is True and grant["why"] == "a test"
        assert json.loads(runs("ps", "--json").stdout)["sandboxes"][0]["grants"] == [grant]
        assert "granted http://site.example.com until" in runs("ps").stdout
        shown = json.loads(runs("manifest", "show", "granted").stdout)
        assert shown["grants"][0]["rule"] == f"http://{SITE}"
        assert run.stdout.readline() == "during 200\n"
        assert run.stdout.readline() == "after 403\n"
        assert run.wait(timeout=60) == 0
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
            run.wait(timeout=30)
        run.stdout.close()
        run.stderr.close()
    events = runs.events("granted")
    recorded = next(e for e in events if e["event"] == "grant")
    assert recorded["who"].startswith("root") and recorded["why"] == "a test" and recorded["expires"] == grant["expires"]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", recorded["manifest"]) and recorded["manifest"] != early["manifest"]
    assert recorded["previous_manifest"] == early["manifest"]
    allowed = next(e for e in events if e["event"] == "egress" and e["verdict"] == "allow")
    assert allowed["rule"] == "grant:1" and allowed["manifest"] == recorded["manifest"]
    assert any(e["event"] == "rule_expired" for e in events)
    late = runs("grant", "granted", "--allow", SITE, "--for", "1m", "--reason", "late")
    assert late.returncode == 125 and "does not run" in late.stderr
    assert json.loads(runs("manifest", "show", "granted").stdout)["grants"][0]["active"] is False


@pytest.mark.parametrize("words, why", [
    (("--allow", "*", "--for", "1m", "--reason", "x"), "'*' allows everything"),
    (("--allow", SITE, "--for", "soon", "--reason", "x"), "must be a duration"),
    (("--allow", SITE, "--for", "1m", "--reason", ""), "--reason"),
    (("--allow", SITE, "--for", "1m", "--reason", "a\nb"), "--reason"),
    (("--allow", SITE, "--for", "1m", "--reason", "x"), "no"),
])
def test_a_grant_that_says_too_little_is_refused(runs, words, why):
    result = runs("grant", "nobody", *words)
    assert result.returncode != 0 and why in result.stderr, result.stderr
