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


@pytest.mark.parametrize("path", ["../x", "/", ".", "src/**", "a*/b", "./src"])
def test_include_refuses_what_it_would_not_mean(world, path):
    result = world.run("--manifest", manifest(world, f"workspace: {{include: ['{path}']}}\n"), "--", "true")
    assert result.returncode == 125 and "workspace.include" in message(result)
