"""What a manifest says of secrets, mounts and the workspace's files is what holds in a real sandbox."""
import json
import os
import shutil
import subprocess

import pytest

import test_cli
from test_cli import make_world, message, open_fuse  # noqa: F401 (a fixture)
from test_presets import put

pytestmark = test_cli.pytestmark
SECRET = "correct-horse-battery"


@pytest.fixture
def world():
    made = make_world(0)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


def manifest(world, text, name="m.yaml"):
    return str(put(world.root / name, "version: 1\n" + text))


def test_a_secret_is_for_its_commands_and_is_kept_nowhere(world):
    put(world.root / "token", SECRET + "\n").chmod(0o600)
    asked = manifest(world, f"secrets: [{{name: DEPLOY, from: {{file: {world.root}/token}}, commands: [sh]}},\n"
                     "  {name: FROM_ENV, from: {env: MY_OWN}, commands: [sh]}]\n")
    env = world.environment(MY_OWN="another-long-secret")
    result = world.run("--manifest", asked, "--", "sh", "-c", "echo $DEPLOY $FROM_ENV | tee kept; env | grep -c MY_OWN", env=env)
    assert result.stdout.decode().split("\n")[:2] == ["[redacted: the value of DEPLOY] [redacted: the value of FROM_ENV]", "0"]
    layer = next(iter((world.state / "cofferdam/sandboxes").glob("*")))
    kept = [path for path in layer.rglob("*") if path.is_file() and path.parent.name != "upper"
            and (SECRET.encode() in path.read_bytes() or b"another-long" in path.read_bytes())]
    assert kept == [], kept
    assert (layer / "upper/kept").read_text() == f"{SECRET} another-long-secret\n"  # it was there, inside
    given = [event for event in world.events() if event["event"] == "secret_given"]
    assert [(event["name"], event["as"]) for event in given] == [("DEPLOY", "variable"), ("FROM_ENV", "variable")]
    # Another command gets nothing, and the plan says so; its source need not even be there.
    other = world.run("--manifest", asked, "--", "env")
    assert other.returncode == 0 and b"DEPLOY" not in other.stdout and SECRET.encode() not in other.stdout
    plan = world.run("--manifest", asked, "--dry-run", "--json", "--", "sh", env=env).stdout.decode()
    assert SECRET not in plan and "another-long" not in plan
    assert "./sh" not in plan and world.run("--manifest", asked, "--", "./sh", env=env).returncode == 127


def test_a_secret_as_a_file(world):
    put(world.root / "token", SECRET + "\n").chmod(0o600)
    asked = manifest(world, f"secrets: [{{name: DEPLOY, from: {{file: {world.root}/token}}, as: file, commands: [sh]}}]\n")
    result = world.run("--manifest", asked, "--", "sh", "-c",
                       "wc -c < /run/secrets/DEPLOY; echo x > /run/secrets/DEPLOY || echo refused; env | grep -c DEPLOY")
    assert result.stdout.decode().split() == [str(len(SECRET)), "refused", "0"], message(result)
    assert world.run("--manifest", asked, "--", "ls", "/run/secrets").returncode != 0


def test_a_secret_is_refused_where_it_would_leak_or_fails(world):
    put(world.project / "token", SECRET).chmod(0o600)
    put(world.root / "open", SECRET).chmod(0o666)
    put(world.root / "short", "1234567\n").chmod(0o600)
    for source, why in ((f"file: {world.project}/token", "lies in the workspace"), (f"file: {world.root}/open", "chmod go-w"),
                        (f"file: {world.root}/short", "fewer than 8 bytes"), ("env: NOBODY_HAS_IT", "no variable"),
                        ("command: [sh, -c, 'echo 12345678']", "only your own manifest")):
        result = world.run("--manifest", manifest(world, f"secrets: [{{name: S, from: {{{source}}}, commands: [true]}}]\n"), "--", "true")
        assert result.returncode == 125 and why in message(result), (source, message(result))


def test_a_command_tells_a_secret_only_in_the_users_own_manifest(world):
    own = world.root / "config/cofferdam/manifest.yaml"
    put(own, f"version: 1\nsecrets: [{{name: S, from: {{command: [echo, {SECRET}]}}, commands: [printenv]}}]\n").chmod(0o600)
    result = world.run("--", "printenv", "S")
    assert result.stdout.decode() == "[redacted: the value of S]\n", message(result)
    put(own, "version: 1\nsecrets: [{name: S, from: {command: ['false']}, commands: [printenv]}]\n")
    result = world.run("--", "printenv", "S")
    assert result.returncode == 125 and "secret S: false ended with status 1" in message(result)


def test_a_mount_is_read_only_or_copy_on_write_and_its_original_is_never_touched(world):
    put(world.root / "data/a.txt", "a\n")
    put(world.root / "data/private.key", "k\n")
    put(world.root / "more/b.txt", "b\n")
    asked = manifest(world, f"mounts: [{{source: {world.root}/data, mode: cow, hide: ['*.key'], classification: internal}},\n"
                     f"  {{source: {world.root}/more, target: /srv/more, mode: ro}}]\n")
    line = ("cat $D/a.txt; echo new > $D/a.txt; cat $D/a.txt; cat $D/private.key || echo hidden; "
            "echo x > /srv/more/b.txt || echo refused; cat /srv/more/b.txt")
    result = world.run("--manifest", asked, "--env", f"D={world.root}/data", "--", "sh", "-c", line)
    assert result.stdout.decode().split() == ["a", "new", "hidden", "refused", "b"], message(result)
    assert (world.root / "data/a.txt").read_text() == "a\n"
    assert "no changes" in message(result)
    mounts = {event["path"]: event for event in world.events() if event["event"] == "mount_added"}
    assert mounts[f"{world.root}/data"]["classification"] == "internal" and mounts["/srv/more"]["mode"] == "read-only"


def test_a_mount_follows_a_link_and_crosses_file_systems_only_when_told(world):
    put(world.root / "data/a.txt", "a\n")
    (world.root / "data/other").mkdir()
    os.symlink(world.root / "data", world.root / "link")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", world.root / "data/other"], check=True)
    try:
        put(world.root / "data/other/b.txt", "b\n")
        look = ["--", "sh", "-c", "cat /srv/d/a.txt /srv/d/other/b.txt"]
        text = f"mounts: [{{source: {world.root}/link, target: /srv/d%s}}]\n"
        refused = world.run("--manifest", manifest(world, text % ""), *look)
        assert refused.returncode == 125 and "follow_symlink" in message(refused)
        result = world.run("--manifest", manifest(world, text % ", follow_symlink: true"), *look)
        assert result.stdout == b"a\n", message(result)
        result = world.run("--manifest", manifest(world, text % ", follow_symlink: true, recursive: true"), *look)
        assert result.stdout == b"a\nb\n", message(result)
    finally:
        subprocess.run(["umount", world.root / "data/other"], check=True)


def test_include_leaves_only_what_is_named(world):
    for name in ("src/a.py", "src/deep/b.py", "src/deep/.env", "docs/x.md", "docs/x.txt", "docs/sub/y.md", "tools/one/t.sh", "tools/two/u.sh"):
        put(world.project / name, "x\n")
    asked = manifest(world, "workspace: {include: [src, 'docs/*.md', tools/one/t.sh]}\n")
    result = world.run("--manifest", asked, "--", "sh", "-c",
                       "find . -type f | sort; echo n > src/new.py; echo n > other || echo refused; cat a.txt || echo hidden")
    assert result.stdout.decode().split() == ["./docs/x.md", "./src/a.py", "./src/deep/b.py", "./tools/one/t.sh", "refused", "hidden"]
    assert json.loads(world("diff", "last", "--json").stdout)["changes"][0]["path"] == "src/new.py"


def test_a_mount_that_would_show_what_is_hidden_is_refused(world):
    put(world.project / "secret/k", SECRET).chmod(0o600)
    put(world.root / "data/x", "x\n")
    put(world.root / "data/token", SECRET).chmod(0o600)
    for text, why in (
            (f"mounts: [{{source: {world.root}/data, recursive: true, hide: [/other/x]}}]\n", "cannot stand beside `recursive: true`"),
            ("mounts: [{source: /proc, target: /srv/p}]\n", "nothing of /proc can be a source"),
            ("mounts: [{source: /sys/kernel, target: /srv/p}]\n", "nothing of /sys can be a source"),
            (f"workspace: {{hide: [/secret/k]}}\nmounts: [{{source: {world.project}/secret, target: /srv/s}}]\n", "hidden by its place"),
            (f"mounts: [{{source: {world.root}/data, target: /srv/d}}]\n"
             f"secrets: [{{name: S, from: {{file: {world.root}/data/token}}, commands: [true]}}]\n", "lies in a mount")):
        result = world.run("--manifest", manifest(world, text), "--", "true")
        assert result.returncode == 125 and why in message(result), (text, message(result))
    # By name it holds wherever the file lies.
    asked = manifest(world, f"workspace: {{hide: [k]}}\nmounts: [{{source: {world.project}/secret, target: /srv/s}}]\n")
    result = world.run("--manifest", asked, "--", "sh", "-c", "ls /srv/s | wc -l; cat /srv/s/k")
    assert result.stdout == b"0\n" and result.returncode != 0, message(result)


def test_nothing_lifts_what_include_leaves_out(world):
    put(world.project / "src/a", "a\n")
    put(world.project / ".env.example", "x\n")
    world.own()
    asked = manifest(world, "workspace: {include: [src]}\n")
    result = world.run("--manifest", asked, "--", "sh", "-c", "cat src/a; cat .env.example; echo new > .env.template")
    assert result.stdout == b"a\n" and result.returncode != 0, message(result)
    both = world.run("--manifest", manifest(world, "workspace: {include: [src], writable: [secret]}\n"), "--", "true")
    assert both.returncode == 125 and "cannot stand beside workspace.include" in message(both), message(both)


def test_a_source_that_became_a_link_is_not_followed(world):
    put(world.root / "pub/x", "shown\n")
    put(world.root / "priv/x", "not shown\n")
    world.own()
    asked = manifest(world, f"mounts: [{{source: {world.root}/pub, mode: cow}}]\n")
    result = world.run("--manifest", asked, "--", "cat", f"{world.root}/pub/x")
    assert result.stdout == b"shown\n", message(result)
    os.rename(world.root / "pub", world.root / "pub2")
    os.symlink("priv", world.root / "pub")
    again = world("exec", "last", "--", "cat", f"{world.root}/pub/x")
    assert again.returncode == 125 and "has become a link" in message(again), message(again)
    assert b"not shown" not in again.stdout


@pytest.mark.parametrize("path", ["../x", "/", ".", "src/**", "a*/b", "./src"])
def test_include_refuses_what_it_would_not_mean(world, path):
    result = world.run("--manifest", manifest(world, f"workspace: {{include: ['{path}']}}\n"), "--", "true")
    assert result.returncode == 125 and "workspace.include" in message(result)


# --- narrowing, rights, identity


def test_every_right_says_where_it_came_from_and_the_users_file_bounds_a_manifest(world):
    put(world.root / "config/cofferdam/manifest.yaml",
        "version: 1\nnetwork: {rules: [a.example], deny: [x.example]}\nprocess: {pids: 100}\n").chmod(0o600)
    asked = manifest(world, "template: test\nnetwork: {rules: [a.example, b.example]}\ntools: [{name: search, actions: [read]}]\n"
                     "tenant: one\ntask: T-1\n")
    result = world.run("--manifest", asked, "--allow", "c.example", "--dry-run", "--json", "--", "true")
    plan = json.loads(result.stdout)
    # What is typed on the line is the user's own word.
    assert [rule["rule"] for rule in plan["egress_policy"]["rules"]] == ["a.example", "c.example"]
    assert plan["limits"]["pids"] == 100
    notes = [line["text"] for line in plan["lines"] if line["topic"] == "note"]
    assert any("network.rules: b.example is not permitted" in note for note in notes), notes
    assert world.run("--manifest", asked, "--", "true").returncode == 0
    rights = json.loads(world("manifest", "show", "last", "--effective", "--json").stdout)["rights"]
    found = {(right["key"], right["value"]): right["from"] for right in rights}
    assert found["network.rules", "a.example"] == asked
    assert found["process.pids", "100"].endswith("config/cofferdam/manifest.yaml")
    assert found["network.deny", "x.example"].endswith("config/cofferdam/manifest.yaml")
    assert found["env.set.CI", "true"] == "template:test"
    assert found["tenant", "one"] == asked
    assert found["workspace.hide", ".env"] == "default"
    assert all(right["from"] for right in rights)
    text = world("manifest", "show", "last", "--effective").stdout.decode()
    assert any(line.split() == ["env.set.CI", "true", "template:test"] for line in text.splitlines())


def under_organisation(world, *words):
    """In a mount namespace of its own: nobody else on this machine sees the file."""
    line = 'mount --bind "$0" /etc/cofferdam && shift 0 && exec "$@"'
    return subprocess.run(["unshare", "-m", "sh", "-c", line, world.root / "org", test_cli.COFFERDAM, *words],
                          capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=60, **world.arguments())


def test_an_organisations_later_file_bounds_what_has_ended(world):
    os.makedirs("/etc/cofferdam", exist_ok=True)
    try:
        assert world.run("--allow", "a.corp.example", "--allow", "b.example", "--", "true").returncode == 0
        for text, told in (("network: {rules: ['*.corp.example']}\n", "b.example is not permitted"),
                           ("process: {pids: 100}\n", "process.pids is at most 100"),
                           ("workspace: {hide: ['*.pem']}\n", "*.pem"), ("engine: docker\n", "engine")):
            put(world.root / "org/manifest.yaml", "version: 1\n" + text)
            refused = under_organisation(world, "exec", "last", "--", "echo", "ran")
            assert refused.returncode == 125 and told in message(refused) and refused.stdout == b"", (text, message(refused))
        put(world.root / "org/manifest.yaml", "version: 1\nnetwork: {rules: ['*.corp.example', b.example]}\nprocess: {pids: 9999}\n")
        done = under_organisation(world, "exec", "last", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (0, b"ran\n"), message(done)
    finally:
        if not os.listdir("/etc/cofferdam"):
            os.rmdir("/etc/cofferdam")


def test_the_organisations_file_bounds_the_command_line_too(world):
    put(world.root / "org/manifest.yaml", "version: 1\nmode: workspace\nnetwork: {rules: ['*.corp.example']}\nprocess: {timeout: 1h}\n")
    os.makedirs("/etc/cofferdam", exist_ok=True)
    def inside(*words):
        return under_organisation(world, *words)
    try:
        result = inside("run", "--allow", "git.corp.example", "--allow", "evil.example", "--mode", "open", "--dry-run", "--json", "--", "true")
        plan = json.loads(result.stdout)
        assert [rule["rule"] for rule in plan["egress_policy"]["rules"]] == ["*.corp.example", "git.corp.example"]
        assert plan["egress_policy"]["mode"] == "enforce" and plan["limits"]["timeout_ms"] == 3_600_000
        notes = [line["text"] for line in plan["lines"] if line["topic"] == "note"]
        assert any("evil.example is not permitted" in note for note in notes)
        assert world.run("--", "true").returncode == 0
        for words in (["mode", "last", "open", "--reason", "x"], ["grant", "last", "--allow", "evil.example", "--for", "1m", "--reason", "x"]):
            refused = inside(*words)
            assert refused.returncode == 125 and "permit" in message(refused), words
    finally:
        if not os.listdir("/etc/cofferdam"):
            os.rmdir("/etc/cofferdam")


def test_two_manifests_compared(world):
    a = manifest(world, "network: {rules: [a.example]}\n", "a.yaml")
    b = manifest(world, "network: {rules: [b.example]}\nmode: open\n", "b.yaml")
    lines = world("manifest", "show", a, "--diff", b).stdout.decode().splitlines()
    assert sorted(lines) == sorted(["- network.rules a.example", "+ network.rules b.example", "- mode workspace", "+ mode open"])
    assert "- process.pids 8192" in world("manifest", "show", "test", "--diff", a).stdout.decode()


def test_an_expired_manifest_starts_nothing_and_a_living_one_bounds_the_time(world):
    result = world.run("--manifest", manifest(world, "expiry: 2020-01-01T00:00:00Z\n"), "--", "true")
    assert result.returncode == 125 and "expired at 2020-01-01" in message(result)
    plan = json.loads(world.run("--manifest", manifest(world, "expiry: 2199-01-01T00:00:00Z\n"), "--dry-run", "--json", "--", "true").stdout)
    assert plan["limits"]["timeout_ms"] > 0


@pytest.mark.parametrize("text, why", [
    ("tools: [{actions: [x]}]\n", "tools[].name: missing"),
    ("tools: [{name: a}, {name: a}]\n", "given twice"),
    ("tools: [{name: a, credential: NONE}]\n", "no secret is named NONE"),
    ("tools: [{name: a, approval: maybe}]\n", "not one of"),
    ("tenant: ''\n", "tenant"),
    ("expiry: tomorrow\n", "must be a time"),
])
def test_what_is_wrong_with_tools_and_identity_is_said(world, text, why):
    result = world("manifest", "check", manifest(world, text))
    assert result.returncode == 1 and why in message(result)


# --- modes


def events_of(world, kinds):
    return [event for event in world.events() if event["event"] in kinds]


def replayed(world):
    mode = ""
    for event in world.events():
        mode = {"run_started": event.get("sandbox.profile"), "mode_switched": event.get("to"),
                "mode_switch_failed": event.get("from")}.get(event["event"], mode)
    return mode


def test_open_reaches_names_but_never_what_is_not_public(world):
    result = world.run("--mode", "open", "--", "python3", "-c", """
import socket
for host, port in (("169.254.169.254", 80), ("10.1.2.3", 80), ("127.0.0.1", 1)):
    try:
        peer = socket.create_connection((host, port), 5)
        peer.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % host.encode())
        print(host, peer.recv(12).decode())
    except OSError as error:
        print(host, type(error).__name__)
""")
    assert result.returncode == 0, message(result)
    denied = {(event.get("host"), event["reason"]) for event in world.events() if event.get("verdict") == "deny"}
    assert ("169.254.169.254", "metadata_address") in denied and ("10.1.2.3", "private_address") in denied, denied
    assert b"10.1.2.3 HTTP/1.1 403" in result.stdout
    assert replayed(world) == "open"


def test_a_switch_is_an_event_and_the_log_replayed_gives_the_mode(world):
    child = subprocess.Popen([test_cli.COFFERDAM, "run", "--name", "m", "--", "sh", "-c", "touch ready; while [ ! -e stop ]; do sleep 0.1; done"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **world.arguments())
    try:
        deadline = test_cli.time.monotonic() + 30
        while test_cli.time.monotonic() < deadline and not list((world.state / "cofferdam/sandboxes").glob("*/upper/ready")):
            test_cli.time.sleep(0.1)
        layer = next(iter((world.state / "cofferdam/sandboxes").glob("*")))
        assert json.loads((layer / "egress.json").read_text())["mode"] == "enforce"
        result = world("mode", "m", "open", "--reason", "needs the net")
        assert result.returncode == 0, message(result)
        policy = json.loads((layer / "egress.json").read_text())
        assert policy["mode"] == "open"
        again = world("mode", "m", "open", "--reason", "again")
        assert again.returncode == 125 and "already" in message(again)
        files = world("mode", "m", "read-only", "--reason", "no")
        assert files.returncode == 125 and "cofferdam stop" in message(files)
        assert replayed(world) == "open"
        assert world("mode", "m", "workspace", "--reason", "done", "--json").returncode == 0
        switches = json.loads(world("manifest", "show", "m").stdout)["mode_switches"]
        assert [(one["from"], one["to"], one["why"]) for one in switches] == [
            ("workspace", "open", "needs the net"), ("open", "workspace", "done")]
        assert replayed(world) == switches[-1]["to"] == "workspace"
        assert all(event["who"] for event in events_of(world, {"mode_switched"}))
    finally:
        child.terminate()
        child.wait(timeout=30)
    # One that has ended: its files too.
    assert world("mode", "m", "read-only", "--reason", "review").returncode == 0
    assert replayed(world) == "read-only"
    write = ("exec", "m", "--", "sh", "-c", "cat ready && echo x > made || echo refused")
    assert world(*write).stdout == b"refused\n"
    assert world("mode", "m", "workspace", "--reason", "go on").returncode == 0
    assert world(*write).stdout == b"", "what it wrote before is there, and it can write again"
    assert world("mode", "m", "wide", "--reason", "x").returncode == 2
    assert world("mode", "m", "open").returncode == 2
