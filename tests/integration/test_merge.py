"""Real sandboxes, then diff, export and merge: what comes home, what does not, and what is never lost."""
import contextlib
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess

import pytest

from sandbox_runs import (ORDINARY_USER, Runner, descendants, fuse_for_everybody, ordinary_user, process_table,
                          skip_unless_root, wait_until)

FOLDED = [".GIT", "git~1", ".git ", ".g\u200cit", ".git::$INDEX_ALLOCATION"]


def tree(top):
    """Everything below a directory but .git: path → (kind, mode, content)."""
    found = {}
    for directory, names, files in os.walk(top):
        if ".git" in names:
            names.remove(".git")
        for name in names + files:
            path = pathlib.Path(directory, name)
            info = path.lstat()
            if path.is_symlink():
                found[str(path.relative_to(top))] = ("link", 0, os.readlink(path))
            elif path.is_dir():
                found[str(path.relative_to(top))] = ("directory", info.st_mode & 0o7777, b"")
            else:
                found[str(path.relative_to(top))] = ("file", info.st_mode & 0o7777, path.read_bytes())
    return found


class Project:
    """A git repository in a user's HOME, and the sandboxes that run on it."""

    def __init__(self, runner):
        self.runner, self.top = runner, runner.workspace
        self.write("a.txt", "one\n")
        self.write("config.txt", "read me\n")
        self.write("dir/x", "x\n")
        self.write("dir/sub/y", "y\n")
        self.write("image.bin", b"\0\1\2" * 100)
        self.write(".gitignore", "node_modules/\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "start")

    def git(self, *words, cwd=None):
        command = ["git", *words]
        if self.runner.user:
            command = ["runuser", "-u", self.runner.user, "--", *command]
        done = subprocess.run(command, cwd=cwd or self.top, capture_output=True, check=False,
                              env={"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(self.runner.home)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, name, content, mode=None):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if mode is not None:
            path.chmod(mode)
        self.own()

    def own(self):
        if self.runner.user:
            user = ordinary_user()
            for path in (self.top, *self.top.rglob("*")):
                os.lchown(path, user.pw_uid, user.pw_gid)

    def sandbox(self, line, flags=(), **kwargs):
        done = self.runner.shell(line, flags, **kwargs)
        assert done.returncode == 0, done.stderr.decode()
        return done

    def __call__(self, *words, expect=0):
        done = self.runner.cofferdam(*words)
        assert done.returncode == expect, (done.stdout + done.stderr).decode()
        return done.stdout.decode()


@pytest.fixture(params=["root", "user"])
def project(request):
    skip_unless_root()
    with contextlib.ExitStack() as stack:
        if request.param == "user":
            ordinary_user()
            stack.enter_context(fuse_for_everybody())
        runner = Runner(ORDINARY_USER if request.param == "user" else None)
        stack.callback(runner.close)
        yield Project(runner)


def test_ignored_content_is_taken_as_a_whole_on_either_side_of_a_checkpoint(project):
    project.write(".gitignore", "node_modules/\nmore/\nboth/\n")
    project.sandbox("mkdir -p node_modules/d both; for i in 1 2 3; do echo $i > node_modules/d/$i; done; echo 1 > both/1")
    project("exec", "last", "--", "sh", "-c", "mkdir more; echo m > more/m; echo 2 > both/2")
    told = project("merge", "last", "--ignored")
    assert "node_modules (5 objects" in told and "more (2 objects" in told and "both/2" in told, told
    for path in ("node_modules/d/3", "more/m", "both/1", "both/2"):
        assert (project.top / path).exists(), path
    project("undo", "last")
    assert not (project.top / "node_modules").exists() and not (project.top / "both").exists()


def test_what_a_sandbox_made_comes_home_once_and_exactly(project):
    project.sandbox("""set -e
        echo two >> a.txt; chmod 755 a.txt; printf '\\0bin' > image.bin; rm -r dir; mkdir -p new/deep
        printf 'no newline' > new/deep/f; ln -s ../a.txt new/l; mkdir -m 700 empty
        mkdir -p node_modules/left; echo 1 > node_modules/left/index.js
        git add -A; git -c user.name=n -c user.email=e@example.org commit -q -m inside""")
    before = tree(project.top)
    names = project("diff", "last", "--name-status")
    assert set(names.split("\n")) == {"M\ta.txt", "D\tdir", "D\tdir/sub", "D\tdir/sub/y", "D\tdir/x", "M\timage.bin",
                                      "A\tnew", "A\tnew/deep", "A\tnew/deep/f", "A\tnew/l", "A\tempty", ""}
    assert tree(project.top) == before
    report = json.loads(project("diff", "last", "--json"))
    assert [row["path"] for row in report["ignored"]] == ["node_modules"]
    assert report["ignored_entries"] == 3
    assert [(row["path"], row["reason"]) for row in report["omitted"]] == [(".git", "git_directory")]
    project("rm", "last", expect=125)
    head = project.git("rev-parse", "HEAD")

    assert "merged 11 changes" in project("merge", "last")
    after = tree(project.top)
    assert after["a.txt"] == ("file", 0o755, b"one\ntwo\n")
    assert after["image.bin"][2] == b"\0bin"
    assert after["new/deep/f"][2] == b"no newline"
    assert after["new/l"] == ("link", 0, "../a.txt")
    assert after["empty"] == ("directory", 0o700, b"")
    assert not any(path.startswith(("dir", "node_modules", ".cofferdam")) for path in after)
    assert project.git("rev-parse", "HEAD") == head
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in project.top.rglob("*")}
    assert len(owners) == 1, owners

    assert "nothing to do" in project("merge", "last")
    assert tree(project.top) == after
    project("rm", "last")


def test_an_export_applies_with_stock_git_on_a_clean_copy(project):
    project.git("clone", "-q", ".", str(project.runner.home / "clean"))
    project.sandbox("""set -e
        echo two >> a.txt; printf '\\0other' > image.bin; rm -r dir; printf 'x\\r\\ny' > 'odd "name"'
        chmod 755 config.txt; ln -s a.txt l; printf 'b\\377d' > "$(printf 'n\\377me\\n')" """)
    patch = project.runner.home / "out.patch"
    project("export", "last", "-o", str(patch))
    manifest = json.loads((project.runner.home / "out.patch.json").read_text())
    assert {row["in_patch"] for row in manifest["changes"]} <= {"whole", "implied"}
    assert project.runner.cofferdam("export", "last").stdout == patch.read_bytes()
    project.git("apply", "--binary", str(patch), cwd=project.runner.home / "clean")
    project("merge", "last")
    assert tree(project.runner.home / "clean") == tree(project.top)


CONFLICTS = {
    "lost update": ("cat a.txt; echo theirs >> a.txt", lambda p: p.write("a.txt", "one\nours\n"), "a.txt"),
    "blind overwrite": ("echo theirs > a.txt", lambda p: p.write("a.txt", "one\nours\n"), "a.txt"),
    "both created": ("echo theirs > new", lambda p: p.write("new", "ours\n"), "new"),
    "deleted by the sandbox": ("rm a.txt", lambda p: p.write("a.txt", "one\nours\n"), "a.txt"),
    "deleted by the user": ("echo theirs > a.txt", lambda p: (p.top / "a.txt").unlink(), "a.txt"),
    "directory removed, name added": ("rm -r dir", lambda p: p.write("dir/sub/mine", "ours\n"), "dir/sub"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_conflict_writes_nothing(project, case):
    theirs, ours, path = CONFLICTS[case]
    project.sandbox(theirs + "; echo fine > unrelated")
    ours(project)
    before = tree(project.top)
    out = project("merge", "last", expect=1)
    assert path in out and "nothing was written" in out
    assert tree(project.top) == before
    # The rest comes home when the user decides the conflict, or names the rest.
    project("merge", "last", "unrelated")
    assert (project.top / "unrelated").read_text() == "fine\n"


def test_an_edit_while_the_sandbox_runs_is_never_overwritten(project):
    started = project.runner.start("cat a.txt > /dev/null; touch ready; while [ ! -e go ]; do sleep 0.1; done; echo theirs > a.txt")
    started.wait_for_file("ready")
    project.write("a.txt", "ours, meanwhile\n")
    project.write("go", "")
    status, err = started.finish()
    assert status == 0, err
    project("merge", "last", "a.txt", expect=1)
    assert (project.top / "a.txt").read_text() == "ours, meanwhile\n"
    project("merge", "last", "--take", "theirs", "a.txt", "a.txt")
    assert (project.top / "a.txt").read_text() == "theirs\n"


def test_stale_reads_are_listed_and_conflict_only_when_asked(project):
    project.sandbox("cat config.txt > copy.txt")
    project.write("config.txt", "something else\n")
    out = project("merge", "last", "--strict-reads", expect=1)
    assert "config.txt" in out
    assert not (project.top / "copy.txt").exists()
    assert "config.txt" in project("merge", "last")
    assert (project.top / "copy.txt").read_text() == "read me\n"


def test_a_planted_bare_repository_is_refused_and_the_honest_part_can_come(project):
    project.sandbox("""echo honest > honest.txt; git init -q --bare planted
        printf '[core]\\n fsmonitor = touch /tmp/cofferdam-owned\\n' >> planted/config""")
    before = tree(project.top)
    assert "refused" in project("merge", "last", expect=1)
    assert tree(project.top) == before
    project("merge", "last", "--take", "theirs", "planted", "--allow-risky", "planted", expect=1)
    project("merge", "last", "--take", "ours", "planted")
    assert (project.top / "honest.txt").exists()
    assert not (project.top / "planted").exists()
    project("rm", "last")


@pytest.mark.parametrize("name", FOLDED)
def test_no_spelling_of_a_git_directory_comes_home(project, name):
    project.sandbox(f"mkdir -p 'dir/{name}/hooks' && echo evil > 'dir/{name}/config'; echo ok > dir/ok")
    assert "left out" in project("merge", "last")
    assert (project.top / "dir/ok").exists()
    assert not (project.top / "dir" / name).exists()


def test_nothing_is_written_through_a_link_in_the_place_of_a_directory(project):
    project.sandbox("echo theirs > dir/new; echo theirs > dir/x")
    elsewhere = project.runner.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_text("x\n")
    shutil.rmtree(project.top / "dir")
    (project.top / "dir").symlink_to(elsewhere)
    project.own()
    project("merge", "last", expect=1)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["x"]
    assert (elsewhere / "x").read_text() == "x\n"


def test_links_that_lead_out_and_files_that_run_want_an_allowance(project):
    project.sandbox("ln -s /etc/passwd out; echo 'evil' > .envrc; echo fine > ok")
    out = project("diff", "last")
    assert out.startswith("! ") and ".envrc" in out
    project("merge", "last", expect=1)
    project("merge", "last", "--allow-risky", ".envrc", "--take", "ours", "out")
    assert (project.top / ".envrc").exists() and (project.top / "ok").exists()
    assert not os.path.lexists(project.top / "out")


def test_what_a_sandbox_prints_into_names_and_files_is_escaped(project):
    project.sandbox("printf '\\033]0;owned\\007\\n' > a.txt; : > \"$(printf 'x\\033[2J')\"")
    for words in (["diff", "last"], ["diff", "last", "--stat"], ["diff", "last", "--name-status"], ["merge", "last", "--dry-run"],
                  ["merge", "last"]):
        assert "\033" not in project(*words), words


def test_on_a_terminal_a_diff_has_colours_and_the_users_own_pager_and_no_other(project):
    owned, seen = project.runner.home / "owned", project.runner.home / "seen"
    project.git("config", "core.pager", f"touch {owned}; cat")
    project.git("config", "pager.diff", f"touch {owned}; cat")
    project.sandbox("echo two >> a.txt; git config core.pager 'touch owned' || true")

    def on_a_terminal(**environment):
        ours, theirs = pty.openpty()
        words = [f"PATH={os.environ['PATH']}", f"HOME={project.runner.home}", "TERM=xterm"]
        words += [f"{key}={value}" for key, value in environment.items()]
        words = ["env", "-i", *words, str(project.runner.programs / "cofferdam"), "diff", "last"]
        words = ["runuser", "-u", project.runner.user, "--", *words] if project.runner.user else words
        done = subprocess.Popen(words, cwd=project.top, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        out = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                out += piece
        os.close(ours)
        assert done.wait(timeout=60) == 0
        return out

    assert b"\033[32m+two" in on_a_terminal(PAGER="")
    assert b"\033[" not in on_a_terminal(PAGER="cat", NO_COLOR="1")
    out = on_a_terminal(PAGER=f"tee {seen}")
    assert b"+two" in out and "+two" in seen.read_text()
    on_a_terminal(PAGER="true")
    assert not owned.exists() and not (project.top / "owned").exists()
    assert "\033" not in project("diff", "last")


def test_ctrl_c_ends_a_diff_whose_pager_was_quit(project):
    project.sandbox("echo two >> a.txt")
    ours, theirs = pty.openpty()
    # The pager stops the diff at its very beginning, and is gone.
    words = ["env", "-i", f"PATH={os.environ['PATH']}", f"HOME={project.runner.home}", "TERM=xterm", "PAGER=kill -STOP $PPID",
             str(project.runner.programs / "cofferdam"), "diff", "last", "--stat"]
    words = ["runuser", "-u", project.runner.user, "--", *words] if project.runner.user else words
    diff = subprocess.Popen(words, cwd=project.top, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)

    def stopped():
        table = process_table()
        for pid in descendants(diff.pid) | {diff.pid}:
            if table.get(pid, (0, "", ""))[1] == "T" and "cofferdam diff" in table[pid][2] and "runuser" not in table[pid][2]:
                children = [state for parent, state, _ in table.values() if parent == pid]
                return pid if children in ([], ["Z"]) else None
        return None

    try:
        pid = wait_until(stopped, 30)
        assert pid
        os.kill(pid, signal.SIGINT)
        for each in {diff.pid, pid}:
            os.kill(each, signal.SIGCONT)
        assert diff.wait(timeout=60) != 0
    finally:
        for pid in descendants(diff.pid) | {diff.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        diff.wait(timeout=20)
        os.close(ours)
        os.close(theirs)


def test_a_renamed_file_is_one_section_of_a_patch_that_applies(project):
    project.write("long.txt", "".join(f"line {n}\n" for n in range(50)))
    project.git("add", ".")
    project.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "more")
    project.git("clone", "-q", ".", str(project.runner.home / "clean"))
    project.sandbox("mv long.txt moved.txt; echo more >> moved.txt; mv dir renamed")
    assert "R0" in project("diff", "last", "--name-status")
    patch = project.runner.home / "out.patch"
    project("export", "last", "-o", str(patch))
    assert "rename from long.txt\nrename to moved.txt" in patch.read_text()
    project.git("apply", "--binary", str(patch), cwd=project.runner.home / "clean")
    project("merge", "last")
    assert tree(project.runner.home / "clean") == tree(project.top)


def test_before_it_asks_for_a_merge_a_run_names_what_is_risky_with_its_reason(project):
    runner = project.runner
    ours, theirs = pty.openpty()
    words = runner.command(["sh", "-c", "echo evil > .envrc; echo '{}' > package.json; echo ok > ok"], ["--merge=ask"])
    run = subprocess.Popen(words, cwd=project.top, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            out += piece
            if b"[y/N]" in out and not out.endswith(b"\n"):
                os.write(ours, b"n\n")
    os.close(ours)
    assert run.wait(timeout=60) == 0
    text = out.decode(errors="replace")
    assert text.index("! .envrc: direnv runs it") < text.index("! package.json: ") < text.index("[y/N]"), text
    assert not (project.top / "ok").exists()


def test_a_hundred_megabytes_of_binary_come_back_byte_for_byte():
    skip_unless_root()
    runner = Runner()
    try:
        project = Project(runner)
        project.git("clone", "-q", ".", str(runner.home / "clean"))
        project.sandbox("head -c 104857600 /dev/urandom > big.bin")
        patch = runner.home / "out.patch"
        project("export", "last", "-o", str(patch))
        project.git("apply", "--binary", str(patch), cwd=runner.home / "clean")
        project("merge", "last")
        assert subprocess.run(["cmp", runner.home / "clean/big.bin", project.top / "big.bin"], check=False).returncode == 0
        assert (project.top / "big.bin").stat().st_size == 104857600
    finally:
        runner.close()


def test_merge_auto_takes_home_and_keeps_the_exit_status(project):
    done = project.runner.shell("echo two >> a.txt; exit 3", ["--merge=auto"])
    assert done.returncode == 3, done.stderr
    assert (project.top / "a.txt").read_text() == "one\ntwo\n"
    project("rm", "last")


def test_a_running_sandbox_can_be_looked_at_but_not_merged(project):
    started = project.runner.start("echo two >> a.txt; touch ready; sleep 60")
    started.wait_for_file("ready")
    assert "a.txt" in project("diff", "last", "--name-status")
    project("merge", "last", expect=125)
    started.finish(kill=True)


@pytest.mark.parametrize("words", [["diff"], ["merge"], ["merge", "--commits"], ["export", "-o", "away.patch"]], ids=" ".join)
def test_a_repository_with_sha256_names_is_refused_with_what_to_do_instead(project, words):
    shutil.rmtree(project.top / ".git")
    project.git("init", "-q", "--object-format=sha256")
    project.sandbox("echo made > made.txt")
    before = tree(project.top)
    done = project.runner.cofferdam(words[0], "last", *(str(project.runner.home / w) if w == "away.patch" else w for w in words[1:]))
    said = done.stderr.decode()
    assert done.returncode == 125, said
    assert "names its objects by SHA-256, which is not supported" in said and "fast-export" in said
    assert "extension" not in said
    assert tree(project.top) == before


def test_misuse_of_merge_is_2_and_writes_nothing(project):
    project.sandbox("echo two >> a.txt")
    project("merge", "last", "--commits", "a.txt", expect=2)
    project("merge", "last", "../outside", expect=2)
    project("merge", "last", "--take", "mine", "a.txt", expect=2)
    assert (project.top / "a.txt").read_text() == "one\n"
