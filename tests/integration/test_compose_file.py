"""compose/egress.yaml by a real docker compose: the gate is the only way out of the stack's internal network."""
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

import docker_daemon
import world as world_module
from world import World

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/dev/bin"))
SITE, OTHER = "93.184.216.34", "93.184.216.35"

pytestmark = pytest.mark.skipif(world_module.missing() is not None, reason=str(world_module.missing()))


def compose_program():
    done = subprocess.run([ROOT / "tools/get_compose"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no docker compose v2: {done.stderr[-500:]}")
    return done.stdout.strip()


GET = """
import json, sys, urllib.error, urllib.request
opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if sys.argv[2] else []))
try:
    answer = opener.open(sys.argv[1], timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.headers["Cofferdam-Reason"], answer.read().decode()]))
"""


class Stack:
    def __init__(self, program, daemon, folder, environment):
        self.program, self.daemon, self.folder = program, daemon, folder
        self.environment = {**os.environ, "DOCKER_HOST": daemon.host, "DOCKER_BUILDKIT": "0", **environment}

    def compose(self, *words, check=True):
        return subprocess.run([self.program, "-f", self.folder / "compose/egress.yaml", *words], env=self.environment,
                              capture_output=True, text=True, timeout=180, check=check)

    def in_app(self, *argv):
        return self.compose("exec", "-T", "app", *argv, check=False)

    def get(self, url, direct=False):
        """(status, reason header, body) of a request that follows the proxy variables, or does not; else None."""
        done = self.in_app("python3", "-c", GET, url, "direct" if direct else "")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def events(self):
        done = self.compose("exec", "-T", "gate", "cat", "/var/lib/cofferdam/events.jsonl", check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]


def build_context(tmp_path):
    """What `docker compose build` needs of the tree, with the program that is under test."""
    shutil.copytree(ROOT / "compose", tmp_path / "compose")
    (tmp_path / "gate").mkdir()
    shutil.copy(BIN / "cofferdam-egressproxy", tmp_path / "gate/cofferdam-egressproxy")
    policy = json.loads((tmp_path / "compose/egress.json").read_text())
    policy["rules"] += [{"id": "compose:3", "rule": "http://inner.example.com", "source": "test"}]
    (tmp_path / "compose/egress.json").write_text(json.dumps(policy))
    return tmp_path


def gate_layer():
    programs = ("sh", "mkdir", "chown", "chmod", "cat", "id", "grep", "touch", str((BIN / "cofferdam-egressproxy").resolve()))
    return docker_daemon.make_program_layer(programs)


@pytest.fixture(scope="module", name="stack")
def make_stack(tmp_path_factory):
    program = compose_program()
    with World() as world, docker_daemon.daemon_in(world.outside, world_module.DNS4) as daemon:
        world.dns.add("example.com", A=SITE)
        world.dns.add("other.example.com", A=OTHER)
        world.dns.add("inner.example.com", A="10.0.0.5")
        site, other = world.http(SITE, 80), world.http(OTHER, 80)
        inner = world.http("10.0.0.5", 80)
        folder = build_context(tmp_path_factory.mktemp("stack"))
        base = daemon.import_image("cofferdam-test/base:1", gate_layer(), "ENV PATH=/usr/bin:/bin")
        app = daemon.import_image("cofferdam-test/app:1", docker_daemon.make_host_layer(), "ENV PATH=/usr/bin:/bin")
        stack = Stack(program, daemon, folder, {"BASE_IMAGE": base, "APP_IMAGE": app,
                                                "GATE_BIN": "gate/cofferdam-egressproxy"})
        stack.world, stack.site, stack.other, stack.inner = world, site, other, inner
        try:
            done = stack.compose("up", "--build", "--detach", "--wait", check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            yield stack
        finally:
            stack.compose("down", "--volumes", "--timeout", "2", check=False)


def test_allowed_host_is_reached_by_the_proxy_variables(stack):
    status, reason, body = stack.get("http://example.com/a")
    assert (status, reason) == (200, None)
    assert json.loads(body)["server"] == SITE


def test_host_without_a_rule_gets_a_reason_and_no_connection(stack):
    assert stack.get("http://other.example.com/")[:2] == [403, "no_rule"]
    assert stack.other.connections == 0
    stack.world.run_outside(["curl", "-s", f"http://{OTHER}/"])  # the server does answer
    assert stack.other.connections == 1


def test_allowed_name_with_a_private_address_is_refused(stack):
    assert stack.get("http://inner.example.com/")[:2] == [403, "private_address"]
    assert stack.inner.connections == 0
    stack.world.run_outside(["curl", "-s", "http://10.0.0.5/"])
    assert stack.inner.connections == 1


@pytest.mark.parametrize("host", [SITE, "example.com"])
def test_program_that_ignores_the_variables_reaches_nothing(stack, host):
    before = stack.site.connections
    assert stack.get(f"http://{host}/", direct=True) is None
    assert stack.site.connections == before
    assert stack.get("http://example.com/")[0] == 200


def test_every_decision_is_in_the_event_file(stack):
    stack.get("http://example.com/b")
    stack.get("http://another.example.com/")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        seen = {(e.get("host"), e.get("verdict"), e.get("reason")) for e in stack.events()}
        if {("example.com", "allow", "allowed"), ("another.example.com", "deny", "no_rule")} <= seen:
            return
        time.sleep(0.2)
    raise AssertionError(sorted(map(str, seen)))


def test_gate_runs_as_nobody_in_particular_with_nothing_to_write_to(stack):
    done = stack.compose("exec", "-T", "gate", "sh", "-c", "id -u; grep CapEff /proc/1/status; touch /x || echo refused")
    assert done.stdout.split()[0] == "64100"
    assert "0000000000000000" in done.stdout and "refused" in done.stdout
