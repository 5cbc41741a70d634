"""Presets besides npm, and templates: against configurations of made-up clients, at example names."""
import json
import os
import shutil

import pytest

import test_cli
from test_cli import make_world, message, open_fuse  # noqa: F401 (a fixture)

pytestmark = test_cli.pytestmark


@pytest.fixture
def world():
    made = make_world(0)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


def plan_of(world, preset, env=None):
    result = world.run("--preset", preset, "--dry-run", "--json", "--", "true", env=env)
    assert result.returncode == 0, message(result)
    return json.loads(result.stdout)


def rules_of(plan):
    return [rule["rule"] for rule in plan["egress_policy"]["rules"]]


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def program(world, name, text):
    put(world.bin / name, text).chmod(0o755)


@pytest.mark.parametrize("preset", ["npm", "git"])
def test_a_configuration_that_is_a_link_into_the_workspace_is_refused(world, preset):
    name, text = {"npm": (".npmrc", "registry=http://evil.example/\n"),
                  "git": (".gitconfig", '[url "https://evil.example/"]\n\tinsteadOf = https://git.example/\n')}[preset]
    if shutil.which(preset) is None:
        pytest.fail(f"{preset} is not installed")
    put(world.project / name, text)
    os.symlink(world.project / name, world.home / name)
    result = world.run("--preset", preset, "--dry-run", "--", "true")
    assert result.returncode == 125 and "lies in the workspace" in message(result), message(result)


def test_pip_by_the_users_own_file_and_never_the_workspaces(world):
    program(world, "python3", "#!/bin/sh\n{ pwd; ls -A; env; } > \"$HOME/asked\"\necho https://d.example/simple f.example\n")
    put(world.root / "config/pip/pip.conf", "[global]\nindex-url = https://me:t0ken@10.9.8.7/simple\n")
    put(world.project / "pip.conf", "[global]\nindex-url = https://evil.example/simple\n")
    put(world.project / "requirements.txt", "-i https://evil.example/simple\nx\n")
    plan = plan_of(world, "pip", world.environment(PYTHONPATH="/x", AWS_SECRET="s"))
    assert rules_of(plan) == ["tls://10.9.8.7:443=10.9.8.7/32"]
    assert plan["env"]["PIP_INDEX_URL"] == "https://10.9.8.7/simple"
    asked = (world.home / "asked").read_text()
    assert str(world.project) not in asked and "PYTHONPATH" not in asked and "AWS_" not in asked
    notes = [line["text"] for line in plan["lines"] if line["topic"] == "note"]
    assert any("requirements.txt names evil.example; it is not allowed" in note for note in notes)
    # A file in the workspace is no configuration of the user's, even where a variable points at it.
    env = world.environment(PIP_CONFIG_FILE=str(world.project / "pip.conf"))
    result = world.run("--preset", "pip", "--dry-run", "--", "true", env=env)
    assert result.returncode == 125 and "lies in the workspace" in message(result)
    # Nor is a link to it.
    os.symlink(world.project / "pip.conf", world.root / "linked.conf")
    env = world.environment(PIP_CONFIG_FILE=str(world.root / "linked.conf"))
    assert world.run("--preset", "pip", "--dry-run", "--", "true", env=env).returncode == 125


def test_pip_without_an_index_is_what_pip_says_and_else_refused(world):
    env = world.environment(PIP_CONFIG_FILE="/dev/null")
    program(world, "python3", "#!/bin/sh\necho http://10.9.8.7/simple 10.9.8.6\n")
    assert rules_of(plan_of(world, "pip", env)) == ["http://10.9.8.7:80=10.9.8.7/32", "tls://10.9.8.6:443=10.9.8.6/32"]
    program(world, "python3", "#!/bin/sh\nexit 1\n")
    result = world.run("--preset", "pip", "--dry-run", "--", "true", env=env)
    assert result.returncode == 125 and "pip config set" in message(result)


def test_cargo_carries_its_registry_inside(world):
    put(world.home / ".cargo/config.toml", '[source.crates-io]\nreplace-with = "m"\n'
        '[source.m]\nregistry = "sparse+https://10.9.8.7/index/"\n[registry]\ntoken = "t0ken"\n')
    put(world.project / ".cargo/config.toml", '[registries.x]\nindex = "https://evil.example/"\n')
    plan = plan_of(world, "cargo")
    assert rules_of(plan) == ["tls://10.9.8.7:443=10.9.8.7/32"]
    assert any("evil.example" in line["text"] for line in plan["lines"] if line["topic"] == "note")
    result = world.run("--preset", "cargo", "--", "sh", "-c", "cat /.cargo/config.toml; echo x > /.cargo/config.toml || echo refused")
    assert result.stdout.decode() == ('[source.crates-io]\nreplace-with = "m"\n[source.m]\n'
                                      'registry = "sparse+https://10.9.8.7/index/"\nrefused\n'), message(result)
    (world.home / ".cargo/config.toml").unlink()
    result = world.run("--preset", "cargo", "--dry-run", "--", "true")
    assert result.returncode == 125 and "replace-with" in message(result)


def test_go_is_read_and_never_run(world):
    marker = world.root / "ran"
    program(world, "go-1/bin/go", f"#!/bin/sh\ntouch {marker}\n")
    put(world.bin / "go-1/go.env", "GOPROXY=https://10.9.8.7,direct\nGOSUMDB=10.9.8.6\n")
    os.symlink(world.bin / "go-1/bin/go", world.bin / "go")
    assert rules_of(plan_of(world, "go")) == ["tls://10.9.8.7:443=10.9.8.7/32", "tls://10.9.8.6:443=10.9.8.6/32"]
    put(world.root / "config/go/env", "GOPROXY=https://10.9.8.5\nGOSUMDB=off\n")
    plan = plan_of(world, "go")
    assert rules_of(plan) == ["tls://10.9.8.5:443=10.9.8.5/32"]
    assert plan["env"]["GOPROXY"] == "https://10.9.8.5/"
    assert not marker.exists()


def test_git_takes_the_users_rewrites_and_never_the_repositorys(world):
    put(world.project / ".git/config", '[remote "origin"]\nurl = https://evil.example/\n'
        '[url "https://evil.example/"]\ninsteadOf = https://a.example/\n')
    result = world.run("--preset", "git", "--dry-run", "--", "true")
    assert result.returncode == 125 and "insteadOf" in message(result)
    put(world.home / ".gitconfig", '[url "https://me:t0ken@10.9.8.7/"]\ninsteadOf = https://a.example/\n')
    plan = plan_of(world, "git")
    assert rules_of(plan) == ["tls://10.9.8.7:443=10.9.8.7/32"]
    assert "t0ken" not in json.dumps(plan) and "evil" not in json.dumps(plan["egress_policy"])
    result = world.run("--preset", "git", "--", "git", "config", "--get-regexp", "^url")
    assert result.stdout.decode() == "url.https://10.9.8.7/.insteadof https://a.example/\n", message(result)


TEMPLATES = {
    "install": {"limits": {"timeout_ms": 3_600_000}, "CI": None},
    "test": {"limits": {"pids": 8192}, "CI": "true"},
    "agent": {"limits": {"grace_ms": 10_000}, "CI": None},
    "build": {"limits": {"tmp": 4 << 30, "pids": 16384}, "CI": None},
    "locked-down": {"limits": {"tmp": 256 << 20, "tmp_exec": False, "pids": 256}, "CI": None},
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_what_its_file_says(world, name):
    wanted = TEMPLATES[name]
    by_name = world.run("--manifest", name, "--dry-run", "--json", "--", "true")
    assert by_name.returncode == 0, message(by_name)
    plan = json.loads(by_name.stdout)
    for key, value in wanted["limits"].items():
        assert plan["limits"][key] == value, key
    assert plan["env"].get("CI") == wanted["CI"]
    assert plan["egress_policy"]["rules"] == []
    manifest = put(world.root / "m.yaml", f"version: 1\ntemplate: {name}\nnetwork: {{rules: [a.example]}}\n")
    by_key = json.loads(world.run("--manifest", str(manifest), "--dry-run", "--json", "--", "true").stdout)
    assert rules_of(by_key) == ["a.example"]
    assert by_key["limits"] == plan["limits"]
    assert world.run("--manifest", name, "--", "cat", "a.txt").stdout == b"one\n"


def test_locked_down_writes_nothing_and_runs_nothing_from_tmp(world):
    result = world.run("--manifest", "locked-down", "--", "sh", "-c",
                       "echo x > a.txt || echo no-write; cp /bin/true /tmp/t && /tmp/t || echo no-exec; env | grep -c ^LANG")
    assert result.stdout.decode().split() == ["no-write", "no-exec", "0"], message(result)


def test_a_file_with_a_templates_name_is_named_with_its_directory(world):
    put(world.project / "install", "version: 1\nnetwork: {rules: [evil.example]}\n")
    result = world.run("--manifest", "install", "--dry-run", "--json", "--", "true")
    assert rules_of(json.loads(result.stdout)) == []
    result = world.run("--manifest", "./install", "--dry-run", "--", "true")
    assert result.returncode == 125 and "not trusted" in message(result)
