"""Each attack of cases.py, with its control, on every way to start a sandbox (see conftest.py)."""
import json
import os
import subprocess

import pytest

import battery
import cases


def filled(words, project):
    return [w.format(ws=project.workspace, out=project.outside, home=project.home) for w in words]


def tree_of(directory):
    return {str(p): (p.lstat().st_mode, p.read_bytes() if p.is_file() and not p.is_symlink() else b"")
            for p in sorted(directory.rglob("*")) if not p.is_socket()}


@pytest.fixture(scope="session")
def outcomes(way, project):
    """All attacks and controls in one sandbox, with 20 stray descriptors and stdout in a file of the host."""
    attempts = {}
    for name, (attack, control) in cases.LOCAL.items():
        if control:
            attempts["control: " + name] = filled(control, project)
        attempts["attack: " + name] = filled(attack, project)
    stray = [os.open("/etc/shadow", os.O_RDONLY) for _ in range(20)]
    for fd in stray:
        os.set_inheritable(fd, True)
    before = tree_of(project.root)
    try:
        results = battery.run_battery(way, project, attempts, ["--name", "battery"], pass_fds=stray)
    finally:
        for fd in stray:
            os.close(fd)
    after = tree_of(project.root)
    script = str(project.workspace / "battery.sh")
    mine = (script, str(project.home / ".local"))  # the battery's own script; the state directory
    assert {k: v for k, v in after.items() if not k.startswith(mine)} == before, "something of the host was changed"
    return results


@pytest.mark.parametrize("name", cases.LOCAL)
def test_attack_is_stopped(name, outcomes):
    outcome = outcomes["attack: " + name]
    assert outcome.code == battery.BLOCKED, outcome.text


@pytest.mark.parametrize("name", [n for n, (_, control) in cases.LOCAL.items() if control])
def test_control_works(name, outcomes):
    outcome = outcomes["control: " + name]
    assert outcome.code == battery.WORKS, outcome.text


def test_a_redirected_stdout_is_not_reopened_nor_truncated(way, project):
    target = project.root / "captured"
    target.write_text("kept\n")
    with open(target, "a") as out:
        way.run(project, ["./probe", "reopen-stdout"], stdout=out, stderr=subprocess.DEVNULL)
    text = target.read_text()
    assert text.startswith("kept\nblocked"), text


def test_the_denied_file_acts_are_events_with_their_reason(way, project, outcomes):
    done = way.cofferdam(project, "log", "battery", "--json", "--files")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    reasons = {(e.get("reason"), os.path.basename(e.get("path", ""))) for e in events if e.get("verdict") == "deny"}
    assert ("hidden", ".env") in reasons
    assert any(reason == "outside" and path == ".ssh" for reason, path in reasons), reasons
    assert ("readonly", "post-commit") in reasons


def test_a_planted_bare_repository_does_not_go_home(way, project, outcomes):
    plant = ("mkdir -p nested/objects nested/refs && echo ref: refs/heads/x > nested/HEAD && "
             "printf '[core]\\nfsmonitor=touch /tmp/owned\\n' > nested/config && echo fine > fine.txt")
    done = way.run(project, ["/bin/sh", "-c", plant], ["--name", "planted"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    refused = way.cofferdam(project, "merge", "planted")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert not (project.workspace / "nested").exists()
    # The control: the honest file alone goes home.
    merged = way.cofferdam(project, "merge", "planted", "fine.txt")
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert (project.workspace / "fine.txt").read_text() == "fine\n"
