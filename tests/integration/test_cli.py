"""The command line against real sandboxes: exit statuses, plans, state, summary, presets."""
import json
import os
import pathlib
import pty
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/dev/bin"))
COFFERDAM = BIN / "cofferdam"
ORDINARY = 54321  # a user that nobody else is

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes users and opens /dev/fuse: needs root")


class World:
    """One user's HOME, project and state directory."""

    def __init__(self, root, uid):
        self.root, self.uid = root, uid
        self.home = root / "home"
        self.project = self.home / "project"
        self.state = root / "state"
        self.bin = root / "programs"
        for directory in (self.project, self.state, self.bin):
            directory.mkdir(parents=True)
        (self.project / ".git" / "hooks").mkdir(parents=True)
        (self.project / "a.txt").write_text("one\n")
        (self.project / ".env").write_text("SECRET=s3cret\n")
        self.own()

    def own(self):
        for directory, _, files in os.walk(self.root):
            os.lchown(directory, self.uid, self.uid)
            for name in files:
                os.lchown(os.path.join(directory, name), self.uid, self.uid)

    def environment(self, **more):
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "XDG_STATE_HOME": str(self.state),
                "XDG_CONFIG_HOME": str(self.root / "config"), "LANG": "C.UTF-8", **more}

    def arguments(self, env=None, cwd=None):
        more = {} if self.uid == 0 else {"user": self.uid, "group": self.uid, "extra_groups": []}
        return dict(cwd=cwd or self.project, env=env or self.environment(), **more)

    def __call__(self, *words, env=None, cwd=None, timeout=60):
        return subprocess.run([COFFERDAM, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                              **self.arguments(env, cwd))

    def run(self, *words, **options):
        return self("run", *words, **options)

    def sandboxes(self):
        return json.loads(self("ps", "--json").stdout)["sandboxes"]

    def events(self, selector="last"):
        lines = self("log", selector, "--json").stdout.decode().splitlines()
        return [json.loads(line) for line in lines]


def make_world(uid):
    root = pathlib.Path(tempfile.mkdtemp(prefix="cofferdam-cli."))
    root.chmod(0o755)
    return World(root, uid)


@pytest.fixture(autouse=True)
def open_fuse():
    """Ordinary machines have /dev/fuse 0666; where it is closed it is opened for the duration."""
    before = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    yield
    os.chmod("/dev/fuse", before)


@pytest.fixture
def world():
    made = make_world(0)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


@pytest.fixture(params=[0, ORDINARY], ids=["root", "user"])
def any_world(request):
    made = make_world(request.param)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


def message(result):
    return result.stderr.decode(errors="replace")


# --- exit statuses


@pytest.mark.parametrize("command, status", [
    (["true"], 0),
    (["sh", "-c", "exit 7"], 7),
    (["no-such-program"], 127),
    (["./a.txt"], 126),
    (["sh", "-c", "kill -9 $$"], 137),
    (["sh", "-c", "kill -15 $$"], 143),
])
def test_status_is_the_workloads_own(any_world, command, status):
    assert any_world.run("--", *command).returncode == status


def test_a_timeout_is_124_and_ends_everything(world):
    begin = time.monotonic()
    result = world.run("--timeout", "700ms", "--", "sh", "-c", "sleep 300 & sleep 300")
    assert result.returncode == 124
    assert time.monotonic() - begin < 20
    assert world.sandboxes()[0]["exit_status"] == 124


@pytest.mark.parametrize("words", [
    ["run"],
    ["run", "--"],
    ["run", "--bogus", "--", "true"],
    ["run", "--allow", "*", "--", "true"],
    ["run", "--allow", "a..b", "--", "true"],
    ["run", "--hide", "", "--", "true"],
    ["run", "--manifest", "", "--", "true"],
    ["run", "--mode", "", "--", "true"],
    ["run", "--memory", "", "--", "true"],
    ["run", "--timeout=", "--", "true"],
    ["run", "--timeout", "10", "--", "true"],
    ["run", "--memory", "2GB", "--", "true"],
    ["run", "--pids", "0", "--", "true"],
    ["run", "--name", "../x", "--", "true"],
    ["run", "--env", "http_proxy=http://p", "--", "true"],
    ["run", "--env", "NO_SUCH_VARIABLE", "--", "true"],
    ["run", "--image", "busybox", "--", "true"],
    ["run", "--mode", "sideways", "--", "true"],
    ["run", "--manifest", "/no/such/file", "--", "true"],
])
def test_misuse_of_run_is_125_and_makes_nothing(world, words):
    result = world(*words)
    assert result.returncode == 125, message(result)
    assert message(result).startswith("cofferdam: ")
    assert world.sandboxes() == []


@pytest.mark.parametrize("words", [
    ["run", "--ask", "--", "true"],
    ["run", "--runtime", "runsc", "--", "true"],
    ["run", "--parent", "x", "--", "true"],
    ["serve"], ["preview", "last", "80"], ["approve", "last", "1"], ["compose", "up"],
])
def test_what_is_not_built_is_refused_in_so_many_words(world, words):
    result = world(*words)
    assert result.returncode == 125
    assert "not in this version" in message(result)
    assert message(result).startswith("cofferdam: ")


def test_misuse_of_other_commands_is_2(world):
    for words in (["ps", "--bogus"], ["log"], ["nonsense"], []):
        assert world(*words).returncode == 2, words


def test_help_and_version_are_0(world):
    help_text = world("--help")
    assert help_text.returncode == 0
    for name in ("run", "ps", "log", "why", "rm", "reap", "doctor", "manifest", "diff", "export", "merge", "exec",
                 "grant"):
        assert f"\n  {name} " in help_text.stdout.decode(), name
    assert world("version").stdout.startswith(b"cofferdam ")


# --- the plan


def test_dry_run_prints_the_plan_and_makes_nothing(any_world):
    result = any_world.run("--dry-run", "--allow", "a.example", "--hide", "x.key", "--", "true")
    assert result.returncode == 0, message(result)
    text = result.stdout.decode()
    for part in (f"workspace {any_world.project}", "x.key (cli)", "allow a.example (cli:1)", "pids 4096"):
        assert part in text, part
    assert any_world.sandboxes() == []


def test_dry_run_json_is_the_whole_plan_without_carried_values(world):
    result = world.run("--dry-run", "--json", "--env", "TOKEN=s3cret", "--", "true")
    plan = json.loads(result.stdout)
    assert plan["env"]["TOKEN"] is None
    assert "s3cret" not in result.stdout.decode()
    assert plan["egress_policy"]["rules"] == []
    assert {mount["name"] for mount in plan["fs_policy"]["mounts"]} >= {"workspace", "home"}
    assert plan["argv"] == ["true"]


def test_an_option_after_the_mark_is_the_workloads(world):
    result = world.run("--", "echo", "--dry-run", "--", "-d")
    assert result.stdout == b"--dry-run -- -d\n"


@pytest.mark.parametrize("name", ["home", "state", "root"])
def test_what_no_sandbox_may_work_on_is_refused(world, name):
    directory = {"home": world.home, "state": world.state, "root": pathlib.Path("/")}[name]
    for result in (world.run("--workspace", directory, "--", "true"), world.run("--", "true", cwd=directory)):
        assert result.returncode == 125
        assert "workspace" in message(result) or "state directory" in message(result)


# --- inside


def test_the_environment_is_ours(any_world):
    env = any_world.environment(AWS_SECRET_ACCESS_KEY="s", HTTPS_PROXY="http://p", LD_LIBRARY_PATH="/x", WANTED="w")
    result = any_world.run("--env", "WANTED", "--env", "SET=a=b", "--", "env", env=env)
    inside = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    assert set(inside) == {"PATH", "HOME", "USER", "LOGNAME", "LANG", "WANTED", "SET"}
    assert inside["WANTED"] == "w" and inside["SET"] == "a=b"
    assert inside["HOME"] == str(any_world.home)
    assert str(any_world.bin) not in inside["PATH"]


def test_what_it_writes_stays_in_its_layer_until_merged(any_world):
    result = any_world.run("--", "sh", "-c", "echo two > b.txt; echo more >> a.txt; echo x > ~/y; cat b.txt")
    assert result.returncode == 0, message(result)
    assert result.stdout == b"two\n"
    assert "2 changes" in message(result)
    assert (any_world.project / "a.txt").read_text() == "one\n"
    assert not (any_world.project / "b.txt").exists() and not (any_world.home / "y").exists()
    status = any_world("diff", "last", "--name-status").stdout.decode().split()
    assert set(status) == {"M", "a.txt", "A", "b.txt"}

    refused = any_world("rm", "last")
    assert refused.returncode == 125 and "unmerged" in message(refused)
    assert any_world("merge", "last").returncode == 0
    assert (any_world.project / "a.txt").read_text() == "one\nmore\n"
    assert (any_world.project / "b.txt").stat().st_uid == any_world.uid
    assert any_world("rm", "last").returncode == 0
    assert any_world.sandboxes() == []


def test_what_is_left_out_is_counted(world):
    (world.project / ".gitignore").write_text("out/\n")
    subprocess.run(["git", "init", "-q", world.project], check=True, env=world.environment())
    result = world.run("--", "sh", "-c", "mkdir out && touch out/a out/b new && mkfifo pipe")
    assert "1 change (and 3 ignored by your rules, 1 never taken home)" in message(result)


def test_rm_force_throws_changes_away(world):
    world.run("--", "touch", "new")
    assert world("rm", "--force", "last").returncode == 0
    assert world.sandboxes() == []


def test_denied_acts_are_events_and_in_the_summary(any_world):
    result = any_world.run("--hide", "*.key", "--", "sh", "-c", "cat .env; echo x > .git/hooks/pre-commit; exit 0")
    text = message(result)
    assert "lookup .env  hidden (default:.env)" in text
    assert ".git/hooks/pre-commit  readonly (default:.git/hooks/**)" in text
    reasons = {(e["reason"], e["path"]) for e in any_world.events() if e["event"] == "file"}
    assert ("hidden", ".env") in reasons and ("readonly", ".git/hooks/pre-commit") in reasons
    assert "s3cret" not in result.stdout.decode()
    why = any_world("why", ".env").stdout.decode()
    assert "does not exist inside, hide (default:.env)" in why and "lookup .env  hidden" in why
    why = any_world("why", "a.txt").stdout.decode()
    assert "copy on write" in why


def test_asking_for_a_secret_of_home_is_an_event_though_nothing_is_there(any_world):
    result = any_world.run("--", "sh", "-c", "cat ~/.ssh/id_ed25519; cat ~/.profile; exit 0")
    assert result.returncode == 0
    denied = {(e["reason"], e["path"]) for e in any_world.events() if e["event"] == "file"}
    assert denied == {("outside", ".ssh")}


def test_a_repository_is_made_where_there_was_none(any_world):
    shutil.rmtree(any_world.project / ".git")
    result = any_world.run("--", "git", "init", "-q", ".")
    assert result.returncode == 0, message(result)
    assert not (any_world.project / ".git").exists()


def test_root_works_on_another_users_project_as_that_user_would(world):
    for path in (world.project, world.project / "a.txt"):
        os.lchown(path, ORDINARY, ORDINARY)
    result = world.run("--workspace", str(world.project), "--", "sh", "-c", "echo two >> a.txt && cat a.txt")
    assert result.stdout == b"one\ntwo\n", message(result)
    assert (world.project / "a.txt").read_text() == "one\n"


def test_every_event_carries_what_the_contract_says(world):
    world.run("--allow", "a.example", "--", "true")
    events = world.events()
    record = world.sandboxes()[0]
    for event in events:
        assert event["sandbox"] == record["id"]
        assert event["manifest"] == record["manifest"]
        assert event["time"].endswith("Z") and event["operation"] and event["service"]
    names = [event["event"] for event in events]
    assert names[0] == "run_started" and names[-1] == "run_ended"
    rules = [event for event in events if event["event"] == "rule_added"]
    assert [(rule["rule_id"], rule["source"]) for rule in rules] == [("cli:1", "cli")]


def test_a_denied_name_says_how_to_allow_it(world):
    result = world.run("--", "getent", "hosts", "denied.example")
    assert result.returncode != 0
    assert "resolve denied.example  no_rule" in message(result)
    assert "to allow: cofferdam run --allow 'denied.example'" in message(result)
    why = world("why", "--host", "denied.example").stdout.decode()
    assert "denied.example:443: deny, no_rule" in why
    assert "resolve denied.example  no_rule" in why


def test_why_knows_what_a_rule_allows(world):
    world.run("--allow", "tcp://db.example:5432", "--", "true")
    assert "allow, allowed (cli:1)" in world("why", "--host", "db.example:5432").stdout.decode()
    assert "deny, port_not_allowed" in world("why", "--host", "db.example:22").stdout.decode()


def test_what_the_workload_names_is_printed_escaped(world):
    (world.project / ".env.\x1b[31m").write_text("x")
    result = world.run("--", "sh", "-c", "cat .env.*[31m \"$(printf '.env.\\033[31m')\"; touch \"$(printf 'n\\033]0;x\\007')\"")
    assert b"\x1b" not in result.stderr.replace(b"cat: '.env.'$'\\033'", b"").split(b"cofferdam:", 1)[1]
    for command in (["log", "last"], ["why", "last"], ["ps"], ["diff", "last", "--stat"]):
        assert b"\x1b" not in world(*command).stdout, command


def test_read_only_mode_changes_nothing(world):
    result = world.run("--mode", "read-only", "--", "sh", "-c", "cat a.txt; echo x > b.txt || echo refused; echo y > ~/z")
    assert result.returncode == 0, message(result)
    assert result.stdout == b"one\nrefused\n"
    assert "no changes" in message(result)


def test_rm_option_removes_only_what_has_no_changes(world):
    assert world.run("--rm", "--", "true").returncode == 0
    assert world.sandboxes() == []
    result = world.run("--rm", "--", "touch", "new")
    assert "kept" in message(result)
    assert len(world.sandboxes()) == 1


def test_merge_auto_takes_changes_home(world):
    result = world.run("--merge=auto", "--rm", "--", "touch", "new")
    assert result.returncode == 0, message(result)
    assert (world.project / "new").exists()
    assert world.sandboxes() == []


def test_merge_auto_with_a_conflict_is_1_unless_the_workload_failed(world):
    script = f"echo theirs > a.txt; while [ ! -e {world.project}/go ]; do sleep 0.1; done; exit $0"
    for own, expected in (("0", 1), ("5", 5)):
        (world.project / "go").unlink(missing_ok=True)
        (world.project / "a.txt").write_text("one\n")
        process = subprocess.Popen([COFFERDAM, "run", "--merge=auto", "--", "sh", "-c", script, own],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   **world.arguments())
        wait_for(lambda: any(e["event"] == "service_ready" for e in world.events()))
        time.sleep(1)
        (world.project / "a.txt").write_text("ours\n")
        (world.project / "go").write_text("")
        process.communicate(timeout=60)
        assert process.returncode == expected
        assert (world.project / "a.txt").read_text() == "ours\n"


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def test_json_gives_one_object_on_stderr_and_leaves_stdout_to_the_workload(world):
    result = world.run("--json", "--", "sh", "-c", "echo out; cat .env 2>/dev/null; touch new")
    assert result.stdout == b"out\n"
    summary = json.loads(result.stderr.decode().strip().splitlines()[-1])
    assert summary["exit_status"] == 0 and summary["changes"] == 1
    assert summary["denied"][0]["reason"] == "hidden"


def test_a_linked_worktree_brings_its_git_directory(world):
    main = world.home / "main"
    shutil.rmtree(world.project)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@e.example"]
    quiet = dict(check=True, capture_output=True, env=world.environment())
    subprocess.run([*git, "init", "-q", main], **quiet)
    subprocess.run([*git, "-C", main, "commit", "-q", "--allow-empty", "-m", "m"], **quiet)
    subprocess.run([*git, "-C", main, "worktree", "add", "-q", world.project], **quiet)
    result = world.run("--", "sh", "-c", "git log --format=%s && touch f && git add f && git status --short")
    assert result.stdout == b"m\nA  f\n", message(result)
    assert subprocess.run(["git", "-C", world.project, "status", "--short"], **quiet).stdout == b""


def test_a_hidden_file_that_git_tracks_is_told(world):
    quiet = dict(check=True, capture_output=True, env=world.environment())
    subprocess.run(["git", "init", "-q", world.project], **quiet)
    assert "tracked" not in message(world.run("--", "true"))
    subprocess.run(["git", "-C", world.project, "add", "-f", "a.txt", ".env"], **quiet)
    assert "the committed content can be read in .git: .env" in message(world.run("--", "true"))


@pytest.mark.parametrize("name", [".git/index", ".npmrc", "cofferdam.yaml"])
def test_a_file_of_the_repository_that_never_answers_stops_nothing(world, name):
    fake_npm(world, {"registry": "https://10.9.8.7/"})
    os.mkfifo(world.project / name)
    assert world.run("--preset", "npm", "--dry-run", "--", "true", timeout=30).returncode == 0


# --- state


def test_last_is_of_this_workspace(world):
    other = world.home / "other"
    other.mkdir()
    world.run("--name", "here", "--", "true")
    world.run("--name", "there", "--", "true", cwd=other)
    assert "here (" in world("why", "last").stdout.decode()
    assert "there (" in world("why", "last", cwd=other).stdout.decode()


def test_an_orphan_is_reaped_and_keeps_its_changes(any_world):
    process = subprocess.Popen([COFFERDAM, "run", "--", "sh", "-c", "echo kept > new; echo ready; sleep 300"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               **any_world.arguments())
    assert process.stdout.readline() == b"ready\n"
    assert any_world.sandboxes()[0]["orphan"] is False
    assert "running" in message(any_world("rm", "last"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_for(lambda: any_world.sandboxes()[0]["orphan"] is True)
    reaped = any_world("reap")
    assert reaped.returncode == 0 and b"reaped" in reaped.stdout, message(reaped)
    record = any_world.sandboxes()[0]
    assert record["state"] == "failed" and record["orphan"] is False
    assert "new" in any_world("diff", "last", "--name-status").stdout.decode()
    assert b"Nothing to reap" in any_world("reap").stdout


def test_the_next_run_reaps_by_itself(world):
    process = subprocess.Popen([COFFERDAM, "run", "--name", "lost", "--", "sleep", "300"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **world.arguments())
    wait_for(lambda: any(s["state"] == "running" for s in world.sandboxes()))
    state = json.loads((pathlib.Path(world.sandboxes()[0]["directory"]) / "state.json").read_text())
    groups = state["resources"].get("cgroups", [])
    assert groups and all(os.path.isdir(group) for group in groups)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: world.sandboxes()[0]["orphan"] is True)
    assert "reaped lost" in message(world.run("--", "true"))
    assert not any(os.path.exists(group) for group in groups)


def test_state_is_closed_to_others(any_world):
    any_world.run("--", "true")
    directory = pathlib.Path(any_world.sandboxes()[0]["directory"])
    for path in (directory, directory.parent, directory.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert json.loads((directory / "manifest.json").read_text())["version"] == 1


def test_log_follow_ends_with_the_sandbox(world):
    process = subprocess.Popen([COFFERDAM, "run", "--", "sleep", "2"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **world.arguments())
    wait_for(lambda: any(s["state"] == "running" for s in world.sandboxes()))
    followed = world("log", "last", "--follow", "--json").stdout.decode().splitlines()
    assert json.loads(followed[-1])["event"] == "run_ended"
    assert process.wait(timeout=30) == 0


# --- terminals


def on_terminal(world, answer, *words):
    """Runs a command with a terminal as all three; gives (status, everything it wrote)."""
    master, slave = pty.openpty()
    process = subprocess.Popen([COFFERDAM, *words], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                               **world.arguments(world.environment(TERM="xterm")))
    os.close(slave)
    written, answered = b"", False
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:  # EIO: nobody holds the other side any more
            break
        if not got:
            break
        written += got
        if not answered and b"[y/N]" in written:
            os.write(master, answer)
            answered = True
    os.close(master)
    return process.wait(timeout=30), written.decode(errors="replace")


@pytest.mark.parametrize("answer, merged", [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_on_a_terminal_run_asks_before_it_merges(world, answer, merged):
    status, written = on_terminal(world, answer, "run", "-i", "-t", "--", "sh", "-c", "test -t 0 && touch new")
    assert status == 0, written
    assert "merge 1 change now?" in written
    assert (world.project / "new").exists() is merged


@pytest.mark.parametrize("flags", [("--merge=ask",), ("-i", "-t")], ids=["plain", "terminal"])
def test_an_answer_to_the_workload_is_none_to_the_question_of_merging(world, flags):
    master, slave = pty.openpty()
    line = "touch new; printf 'Proceed? [y/N] '; sleep 2"
    process = subprocess.Popen([COFFERDAM, "run", *flags, "--", "sh", "-c", line], stdin=slave, stdout=slave,
                               stderr=slave, start_new_session=True, **world.arguments(world.environment(TERM="xterm")))
    os.close(slave)
    written, typed, refused = b"", False, False
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:  # EIO: nobody holds the other side any more
            break
        if not got:
            break
        written += got
        if not typed and b"Proceed?" in written:
            os.write(master, b"y\n")
            typed = True
        if not refused and b"merge 1 change now?" in written:
            os.write(master, b"n\n")  # the first thing that is typed after the question
            refused = True
    os.close(master)
    assert process.wait(timeout=30) == 0 and refused, written
    assert not (world.project / "new").exists(), written


def test_what_the_workload_left_on_the_terminal_hides_no_message(world):
    left = "\\033[8m\\033[?1049h\\033]0;title"
    status, written = on_terminal(world, b"", "run", "-t", "--", "printf", left)
    assert status == 0
    before, after = written.split("title", 1)[1].split("cofferdam: sandbox", 1)
    assert "\x1b\\" in before and "\x1b[!p" in before and "\x1b[0m" in before and "\x1b[?47l" in before, repr(before)
    assert "no changes" in after


def test_without_a_terminal_nothing_is_asked_and_nothing_merged(world):
    result = world.run("--merge=ask", "--", "touch", "new")
    assert result.returncode == 0 and "nothing was merged" in message(result)
    assert not (world.project / "new").exists()


# --- manifests


def test_manifest_errors_name_file_line_and_key(world):
    bad = world.root / "bad.yaml"
    bad.write_text("version: 1\nnetwork:\n  rulez: []\n")
    result = world("manifest", "check", bad)
    assert result.returncode == 1
    assert f"{bad}:3: network.rulez: unknown key" in message(result)
    assert world.run("--manifest", bad, "--", "true").returncode == 125


def test_manifest_digest_is_that_of_the_run(world):
    good = world.root / "good.yaml"
    good.write_text("version: 1\nprocess: {pids: 100}\n")
    digest = world("manifest", "digest", good).stdout.decode().strip()
    assert world.run("--manifest", good, "--", "true").returncode == 0
    assert world.sandboxes()[0]["manifest"] == digest
    shown = json.loads(world("manifest", "show", "last").stdout)
    assert shown["process"]["pids"] == 100
    assert shown == json.loads(world("manifest", "show", good).stdout)


def test_manifest_schema_is_the_published_file(world):
    published = pathlib.Path(__file__).resolve().parents[2] / "policies/schema/manifest.v1.json"
    assert world("manifest", "schema").stdout == published.read_bytes()


def test_a_workspaces_manifest_needs_trust(world):
    own = world.project / "cofferdam.yaml"
    own.write_text("version: 1\nname: own\n")
    assert "not trusted" in message(world.run("--", "true"))
    assert world.run("--manifest", own, "--", "true").returncode == 125
    assert world("manifest", "trust", own).returncode == 0
    world.run("--", "true")
    assert world.sandboxes()[0]["name"] == "own"
    own.write_text("version: 1\nname: changed\n")
    assert "not trusted" in message(world.run("--", "true"))


# --- presets


FAKE_NPM = """#!/bin/sh
{ pwd; ls -A; env; echo "$@"; } > "$HOME/asked"
cat <<'END'
%s
END
"""


def fake_npm(world, config):
    program = world.bin / "npm"
    program.write_text(FAKE_NPM % json.dumps(config))
    program.chmod(0o755)


def test_preset_npm_asks_the_users_npm_away_from_the_workspace(any_world):
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (any_world.root / "ca.pem").write_text(certificate + "-----BEGIN PRIVATE KEY-----\nK3Y\n-----END PRIVATE KEY-----\n")
    fake_npm(any_world, {"registry": "https://me:t0ken@10.9.8.7:4873/npm/", "cafile": str(any_world.root / "ca.pem"),
                         "//10.9.8.7/:_authToken": "t0ken"})
    (any_world.project / ".npmrc").write_text("registry=https://evil.example/\n")
    any_world.own()
    env = any_world.environment(npm_config_registry="https://evil.example/", NODE_OPTIONS="--require=/x.js",
                                AWS_SECRET_ACCESS_KEY="s")
    result = any_world.run("--preset", "npm", "--dry-run", "--json", "--", "true", env=env)
    assert result.returncode == 0, message(result)
    asked = (any_world.home / "asked").read_text()
    assert str(any_world.project) not in asked
    for leak in ("evil.example", "NODE_OPTIONS", "AWS_"):
        assert leak not in asked, leak
    assert asked.splitlines()[1] == "package.json" and "config ls --json" in asked
    plan = json.loads(result.stdout)
    assert [rule["rule"] for rule in plan["egress_policy"]["rules"]] == ["tls://10.9.8.7:4873=10.9.8.7/32"]
    assert plan["env"]["npm_config_registry"] == "https://10.9.8.7:4873/npm/"
    assert plan["files"] == {"/etc/cofferdam/npm-ca.pem": len(certificate)}
    assert "t0ken" not in result.stdout.decode()
    notes = [line["text"] for line in plan["lines"] if line["topic"] == "note"]
    assert notes == ["the repository's own .npmrc names evil.example; it is not allowed; to allow: --allow evil.example"]


def test_preset_npm_never_runs_the_workspaces_npm(world):
    marker = world.root / "ran"
    for directory in (world.project / "node_modules/.bin", world.project):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "npm").write_text(f"#!/bin/sh\ntouch {marker}\n")
        (directory / "npm").chmod(0o755)
    fake_npm(world, {"registry": "https://10.9.8.7/"})
    env = world.environment(PATH=f".:{world.project}/node_modules/.bin:{world.bin}:/usr/bin:/bin")
    result = world.run("--preset", "npm", "--dry-run", "--", "true", env=env)
    assert result.returncode == 0, message(result)
    assert not marker.exists()


def test_preset_npm_refuses_a_registry_at_an_address_that_cannot_be_opened(world):
    for url in ("https://127.0.0.1:4873/", "http://169.254.169.254/"):
        fake_npm(world, {"registry": url})
        result = world.run("--preset", "npm", "--dry-run", "--", "true")
        assert result.returncode == 125
        assert "no rule can open" in message(result)


def test_preset_files_and_variables_are_inside(world):
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (world.root / "ca.pem").write_text(certificate)
    fake_npm(world, {"registry": "https://10.9.8.7/", "cafile": str(world.root / "ca.pem")})
    result = world.run("--preset", "npm", "--", "sh", "-c", 'cat "$npm_config_cafile"; echo $npm_config_registry; '
                       'echo x > "$npm_config_cafile" || echo refused')
    assert result.stdout.decode() == certificate + "https://10.9.8.7/\nrefused\n", message(result)


def test_doctor_says_what_this_machine_can(any_world):
    result = any_world("doctor", "--json")
    report = json.loads(result.stdout)
    assert result.returncode == (0 if report["usable"] else 1)
    names = {check["name"]: check for check in report["checks"]}
    for name in ("kernel", "user namespaces", "FUSE", "nftables NAT", "seccomp", "bubblewrap"):
        assert names[name]["required"] is True
    for check in report["checks"]:
        assert check["state"] == "ok" or check["remedy"], check
    # Which way is in use is told, and an ordinary user has the copying one.
    capabilities = {one["name"]: one for one in report["capabilities"]}
    for name in ("workspace", "container", "runtime runsc", "network control", "environment filtering", "snapshot export",
                 "sandbox per tool", "limit memory", "cgroup delegation", "overlay whiteouts", "inotify",
                 "AppArmor and user namespaces"):
        assert capabilities[name]["detail"] and capabilities[name]["group"]
        assert capabilities[name]["state"] == "ok" or capabilities[name]["remedy"], name
    way = capabilities["FUSE passthrough"]
    assert way["required"] is False and way["detail"] in (
        "large and new files go past fsproxy", *(f"every byte passes through fsproxy ({why})" for why in (
            "needs root", "needs the first user namespace", "needs CAP_SYS_ADMIN", "needs Linux 6.9 or newer")))
