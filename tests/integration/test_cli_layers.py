"""checkpoint, rollback, fork and squash on the command line, of sandboxes that run and that have ended."""
import json
import os
import subprocess
import time

import pytest

from test_cli import COFFERDAM, ORDINARY, make_world, open_fuse  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes users and opens /dev/fuse: needs root")


@pytest.fixture(params=[0, ORDINARY], ids=["root", "ordinary"])
def world(request):
    made = make_world(request.param)
    yield made
    subprocess.run(["rm", "-rf", made.root], check=False)


def ran(world, script):
    done = world.run("--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr.decode()
    return world.sandboxes()[0]["id"]


def asked(world, *words, status=0):
    done = world(*words)
    assert done.returncode == status, (words, done.stdout.decode(), done.stderr.decode())
    return (done.stdout if status == 0 else done.stderr).decode()


def changes(world, sandbox="last"):
    return asked(world, "diff", sandbox)


def directory(world, sandbox):
    return world.state / "cofferdam/sandboxes" / sandbox


def test_a_checkpoint_of_a_running_sandbox_and_the_way_back(world):
    script = ("echo one > a.txt; echo h > ~/.profile-of-mine; mkdir d; echo d > d/f; touch ready\n"
              "while [ ! -e go ]; do sleep 0.05; done\n"
              "echo two > a.txt; rm -r d; echo more > more; echo H > ~/.profile-of-mine")
    with subprocess.Popen([COFFERDAM, "run", "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, **world.arguments()) as running:
        try:
            sandbox = None
            for _ in range(600):
                found = world.sandboxes()
                if found and (directory(world, found[0]["id"]) / "upper/ready").exists():
                    sandbox = found[0]["id"]
                    break
                time.sleep(0.1)
            assert sandbox, running.stderr
            before = changes(world, sandbox)
            answer = json.loads(asked(world, "checkpoint", sandbox, "first", "--json"))
            assert answer["name"] == "first"
            assert changes(world, sandbox) == before
            assert "is running" in asked(world, "rollback", sandbox, "first", status=125)
            assert "is running" in asked(world, "squash", sandbox, status=125)
            (world.project / "go").write_text("")
            assert running.wait(60) == 0, running.stderr.read()
        finally:
            running.kill()
    after = changes(world, sandbox)
    assert "+two" in after and "+more" in after and "d/f" not in after
    asked(world, "checkpoint", sandbox, "second")
    assert changes(world, sandbox) == after
    asked(world, "rollback", sandbox, "first")
    assert changes(world, sandbox) == before
    home = directory(world, sandbox) / "home"
    assert os.listdir(home / "upper") == [] and os.listdir(home / "layers") == ["1"]
    kinds = [e["event"] for e in world.events(sandbox)]
    assert kinds.count("checkpoint") == 2 and "rollback" in kinds
    assert "no checkpoint second; it has first" in asked(world, "rollback", sandbox, "second", status=125)


def test_folded_checkpoints_make_the_same_patch(world):
    sandbox = ran(world, "mkdir d; echo 1 > d/one; echo x > a.txt; ln a.txt linked; ln -s a.txt l")
    asked(world, "checkpoint", sandbox)
    patch = asked(world, "export", sandbox)
    asked(world, "checkpoint", sandbox, "named")
    assert asked(world, "export", sandbox) == patch
    assert "2 checkpoints" in asked(world, "squash", sandbox)
    assert asked(world, "export", sandbox) == patch
    assert len(os.listdir(directory(world, sandbox) / "layers")) == 1
    assert "nothing to fold" in asked(world, "squash", sandbox)
    asked(world, "merge", sandbox)
    assert (world.project / "a.txt").read_text() == "x\n" and (world.project / "d/one").read_text() == "1\n"
    assert os.readlink(world.project / "l") == "a.txt"


@pytest.mark.parametrize("first", ["origin", "fork"])
def test_a_fork_and_its_origin_live_and_go_on_their_own(world, first):
    origin = ran(world, "echo x > a.txt; echo new > new")
    asked(world, "checkpoint", origin)
    patch = asked(world, "export", origin)
    fork = json.loads(asked(world, "fork", origin, "--name", "second", "--json"))["sandbox"]
    assert asked(world, "export", "second") == patch
    assert "was forked from" in asked(world, "squash", origin, status=125)
    again = json.loads(asked(world, "fork", "second", "--json"))["sandbox"]
    gone, stays = (origin, fork) if first == "origin" else (fork, origin)
    assert "unmerged changes" in asked(world, "rm", gone, status=125)
    asked(world, "rm", "--force", gone)
    for sandbox in (stays, again):
        assert asked(world, "export", sandbox) == patch
    asked(world, "merge", again)
    assert (world.project / "a.txt").read_text() == "x\n"
    asked(world, "rm", "--force", stays)
    asked(world, "rm", "--force", again)
    lent = world.state / "cofferdam/lent"
    assert [name for name in os.listdir(lent) if name != ".lock"] == []


def test_a_fork_has_none_of_the_grants(world):
    asked(world, "run", "-d", "--name", "origin")
    asked(world, "grant", "origin", "--allow", "files.example.com", "--for", "10m", "--reason", "a look")
    origin = world.sandboxes()[0]["id"]

    def rules(sandbox):
        return json.loads((directory(world, sandbox) / "egress.json").read_text())["rules"]
    assert any(rule.get("source") == "grant" for rule in rules(origin))
    asked(world, "stop", "origin")
    fork = json.loads(asked(world, "fork", "origin", "--json"))["sandbox"]
    assert not any(rule.get("source") == "grant" for rule in rules(fork))
    for sandbox in (fork, origin):
        asked(world, "rm", "--force", sandbox)


def test_what_a_fork_changed_is_not_merged_because_its_origin_was(world):
    origin = ran(world, "echo new > a.txt; echo n > n")
    asked(world, "merge", origin)
    fork = json.loads(asked(world, "fork", origin, "--json"))["sandbox"]
    asked(world, "undo", origin)
    assert "n" in asked(world, "diff", fork, "--name-status")
    assert "unmerged changes" in asked(world, "rm", fork, status=125)
    asked(world, "merge", fork)
    assert (world.project / "a.txt").read_text() == "new\n" and (world.project / "n").read_text() == "n\n"


def test_nothing_is_done_while_a_rollback_cannot_be_finished(world):
    sandbox = ran(world, "echo 1 > f1")
    asked(world, "checkpoint", sandbox, "c0")
    asked(world, "exec", sandbox, "--", "sh", "-c", "echo 2 > f2")
    # The workspace is there already when it fails.
    subprocess.run(["chattr", "+i", directory(world, sandbox) / "home/layers"], check=True)
    try:
        asked(world, "rollback", sandbox, "c0", status=125)
        for words in (("exec", sandbox, "--", "true"), ("merge", sandbox), ("checkpoint", sandbox), ("squash", sandbox)):
            assert "would undo what is done now" in asked(world, *words, status=125), words
    finally:
        subprocess.run(["chattr", "-i", directory(world, sandbox) / "home/layers"], check=True)
    assert "f1" in changes(world, sandbox) and "f2" not in changes(world, sandbox)
    asked(world, "exec", sandbox, "--", "test", "-e", "f1")


def test_a_rollback_that_could_not_begin_stands_in_nobodys_way(world):
    sandbox = ran(world, "echo 1 > f1")
    asked(world, "checkpoint", sandbox, "c0")
    asked(world, "exec", sandbox, "--", "sh", "-c", "echo 2 > f2")
    subprocess.run(["chattr", "+i", directory(world, sandbox) / "layers"], check=True)
    try:
        asked(world, "rollback", sandbox, "c0", status=125)
    finally:
        subprocess.run(["chattr", "-i", directory(world, sandbox) / "layers"], check=True)
    assert not (directory(world, sandbox) / "rollback").exists()
    asked(world, "exec", sandbox, "--", "test", "-e", "f2")
    assert "f2" in changes(world, sandbox)


def test_a_rollback_that_was_cut_short_is_finished(world):
    sandbox = ran(world, "echo 1 > one; echo h > ~/h")
    answer = json.loads(asked(world, "checkpoint", sandbox, "--json"))
    patch = asked(world, "export", sandbox)
    (directory(world, sandbox) / "upper/two").write_text("2\n")
    (directory(world, sandbox) / "home/upper/h").write_text("H\n")
    # What a kill right after the intent leaves.
    (directory(world, sandbox) / "rollback").write_text(answer["checkpoint"] + "\n")
    done = world("ps")
    assert b"is finished now" in done.stderr
    assert asked(world, "export", sandbox) == patch
    assert os.listdir(directory(world, sandbox) / "home/upper") == []
    assert b"rollback" not in world("ps").stderr


def test_what_cannot_be_done_says_why(world):
    sandbox = ran(world, "echo 1 > one")
    assert "has no checkpoint" in asked(world, "rollback", sandbox, status=125)
    assert "not a name of a checkpoint" in asked(world, "checkpoint", sandbox, "Not This", status=125)
    assert "not a sandbox name" in asked(world, "fork", sandbox, "--name", "Not This", status=125)
    assert "no sandbox" in asked(world, "checkpoint", "nobody", status=125)
    assert len(world.sandboxes()) == 1
