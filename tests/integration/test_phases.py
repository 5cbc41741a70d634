"""Phases: commands before the workload, each with its own network, variables and time, over one layer."""
import datetime
import json
import pathlib
import shutil
import subprocess

import pytest

import test_cli
from test_cli import make_world, message, open_fuse  # noqa: F401 (a fixture)
from test_manifest import SECRET, manifest
from test_presets import put

pytestmark = test_cli.pytestmark


@pytest.fixture(params=[0, test_cli.ORDINARY], ids=["root", "user"])
def world(request):
    made = make_world(request.param)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


REACH = """
import socket, sys
def reach(address):
    try:
        peer = socket.create_connection((address, 80), 10)
        peer.sendall(b"GET / HTTP/1.1\\r\\nHost: " + address.encode() + b"\\r\\n\\r\\n")
        return peer.recv(4096).decode(errors="replace")
    except OSError as error:
        return str(error)
for address in sys.argv[1:]:
    said = reach(address)
    print(address, "no_rule" if "no_rule" in said or "ip_literal" in said or "private_address" in said else "allowed")
"""


def test_each_phase_reaches_its_own_hosts_and_the_command_the_manifests(world):
    put(world.project / "reach.py", REACH)
    asked = manifest(world, """
network: {rules: ['http://10.9.8.1=10.9.8.1/32']}
phases:
  - {name: one, command: [python3, reach.py, 10.9.8.1, 10.9.8.2], network: {rules: ['http://10.9.8.2=10.9.8.2/32']}, env: {STEP: one}}
  - {name: two, command: [sh, -c, 'echo "step $STEP" > made; sleep 300 & setsid sleep 300 & python3 reach.py 10.9.8.1 10.9.8.2'], network: {}}
""")
    world.own()
    result = world.run("--manifest", asked, "--timeout", "90s", "--", "sh", "-c",
                       "cat made; python3 reach.py 10.9.8.1 10.9.8.2; ls /proc | grep -c '^[0-9]'", timeout=120)
    lines = result.stdout.decode().split("\n")
    assert lines[:4] == ["10.9.8.1 no_rule", "10.9.8.2 allowed", "10.9.8.1 no_rule", "10.9.8.2 no_rule"], message(result)
    assert lines[4:7] == ["step ", "10.9.8.1 allowed", "10.9.8.2 no_rule"], message(result)
    assert int(lines[7]) <= 5  # nothing of a phase is left
    events = [event for event in world.events() if event["event"] in ("phase_started", "phase_ended", "run_started")]
    assert [(event["event"], event.get("phase")) for event in events] == [
        ("phase_started", "one"), ("phase_ended", None), ("phase_started", "two"), ("phase_ended", None), ("run_started", None)]
    run = events[-1]["operation"]
    assert {event["parent"] for event in events if event["event"] == "phase_started"} == {run}
    assert world.sandboxes()[0]["state"] == "terminated"


def test_a_failed_phase_stops_or_warns_and_time_is_its_own(world):
    phase = "phases: [{name: install, command: [sh, -c, '%s'], timeout: %s, on_failure: %s}]\n"
    result = world.run("--manifest", manifest(world, phase % ("exit 7", "1m", "stop")), "--", "echo", "ran")
    assert result.returncode == 7 and b"ran" not in result.stdout
    assert "phase install failed with status 7; the command was not started" in message(result)
    result = world.run("--manifest", manifest(world, phase % ("exit 7", "1m", "warn")), "--", "echo", "ran")
    assert result.returncode == 0 and result.stdout == b"ran\n"
    assert "phase install failed with status 7; the manifest goes on" in message(result)
    result = world.run("--manifest", manifest(world, phase % ("sleep 300", "700ms", "stop")), "--", "echo", "ran")
    assert result.returncode == 124 and b"ran" not in result.stdout
    result = world.run("--manifest", manifest(world, phase % ("kill -9 $$", "1m", "stop")), "--", "echo", "ran")
    assert result.returncode == 137


def test_the_manifests_end_bounds_every_life(world):
    end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = manifest(world, f"expiry: '{end}'\nphases: [{{name: one, command: [sleep, '300'], on_failure: warn}}]\n")
    result = world.run("--manifest", asked, "--", "echo", "ran")
    assert result.returncode == 125 and result.stdout == b"" and "its manifest expired" in message(result), message(result)


def test_a_phases_rights_end_with_it_also_when_it_fails_or_is_killed(world):
    asked = manifest(world, """
phases:
  - {name: one, command: [sh, -c, 'echo > made; test ! -e slow || sleep 300; exit 7'], network: {rules: ['far.example.com']}}
""")
    result = world.run("--manifest", asked, "--", "true")
    assert result.returncode == 7, message(result)
    policy = json.loads((pathlib.Path(world.sandboxes()[0]["directory"]) / "egress.json").read_text())
    assert policy["rules"] == []
    assert world("exec", "last", "--", "true").returncode == 0
    put(world.project / "slow", "")
    world.own()
    with subprocess.Popen([test_cli.COFFERDAM, "run", "--manifest", str(asked), "--name", "cut", "--", "true"],
                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **world.arguments()) as process:
        def in_phase():
            found = [s for s in world.sandboxes() if s["name"] == "cut" and s["state"] == "running"]
            return found and (pathlib.Path(found[0]["directory"]) / "upper/made").exists()
        test_cli.wait_for(in_phase)
        for words in (("grant", "cut", "--allow", "a.example.com", "--for", "1m"), ("mode", "cut", "open")):
            refused = world(*words, "--reason", "x")
            assert refused.returncode == 125 and "is in a phase" in message(refused), message(refused)
        process.kill()
    test_cli.wait_for(lambda: [s for s in world.sandboxes() if s["name"] == "cut"][0]["orphan"])
    world("reap")
    again = world("exec", "cut", "--", "true")
    assert again.returncode == 125 and "in the middle of a phase" in message(again), message(again)


def test_a_preset_and_a_secret_for_a_phase_alone(world):
    put(world.root / "token", SECRET + "\n").chmod(0o600)
    put(world.home / ".gitconfig", '[url "https://10.9.8.7/"]\ninsteadOf = https://a.example/\n')
    asked = manifest(world, f"""
secrets: [{{name: S, from: {{file: {world.root}/token}}, commands: [printenv]}}, {{name: F, from: {{file: {world.root}/token}}, as: file, commands: [printenv]}}]
phases: [{{name: get, command: [printenv, S, GIT_CONFIG_VALUE_0], network: {{presets: [git]}}}}]
""")
    world.own()
    result = world.run("--manifest", asked, "--", "sh", "-c", "printenv S GIT_CONFIG_VALUE_0; ls /run/secrets 2>&1")
    assert result.stdout.decode().split("\n")[:2] == ["[redacted: the value of S]", "https://a.example/"], message(result)
    assert b"redacted" not in result.stdout.split(b"\n", 1)[1] and b"No such file" in result.stdout
    rules = [event for event in world.events() if event["event"] == "rule_added"]
    assert [rule["text"] for rule in rules] == ["tls://10.9.8.7:443=10.9.8.7/32"]
    plan = json.loads(world.run("--manifest", asked, "--dry-run", "--json", "--", "true").stdout)
    assert plan["egress_policy"]["rules"] == [] and plan["phases"][0]["name"] == "get"
    assert SECRET not in json.dumps(plan)


@pytest.mark.parametrize("text, why", [
    ("phases: [{command: [x]}]\n", "phases[].name: missing"),
    ("phases: [{name: a}]\n", "a has none"),
    ("phases: [{name: a, command: [x]}, {name: a, command: [y]}]\n", "given twice"),
    ("phases: [{name: a, command: [x], user: root}]\n", "unknown key"),
    ("phases: [{name: a, command: [x], network: {mode: open}}]\n", "unknown key"),
])
def test_what_is_wrong_with_phases_is_said(world, text, why):
    result = world("manifest", "check", manifest(world, text))
    assert result.returncode == 1 and why in message(result)
