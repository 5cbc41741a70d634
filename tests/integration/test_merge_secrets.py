"""Secrets on their way out, and artifacts: what is shown, what is stored, what needs a word of the user."""
import contextlib
import json
import os
import pty
import subprocess
import tarfile

import pytest

from sandbox_runs import Runner, skip_unless_root
from test_merge import Project, tree

# Not written as one text, so that nobody takes this file for a leak.
GITHUB = "ghp" + "_" + "0123456789abcdefghijABCDEFGHIJ012345"
VALUE = "correct horse battery staple"
MANIFEST = """version: 1
env:
  set: {DEPLOY_TOKEN: 'correct horse battery staple', PLAIN: 'nothing to hide here'}
artifacts:
  - paths: ['/dist/**', '*.log']
    owner: platform team
    classification: internal
    retention: 30d
  - paths: ['/nothing/*.here']
"""


@pytest.fixture(name="project")
def make_project():
    skip_unless_root()
    runner = Runner()
    (runner.home / "m.yaml").write_text(MANIFEST)
    yield Project(runner)
    runner.close()


def manifest(project):
    return ["--manifest", str(project.runner.home / "m.yaml")]


def test_a_change_that_brings_a_secret_along_is_shown_redacted_and_needs_its_allowance(project):
    project.sandbox(f"echo 'key = {GITHUB}' > config.txt; printf '%s' {VALUE!r} | base64 > b; echo fine > ok; "
                    f"mkdir d; echo x > d/{GITHUB}", manifest(project))
    shown = project("diff", "last")
    assert GITHUB not in shown and "[redacted: a GitHub token]" in shown
    assert "[redacted: the value of DEPLOY_TOKEN]" in shown
    assert "! config.txt: it holds a GitHub token (merge wants --allow-risky)" in shown
    assert GITHUB not in project("diff", "last", "--name-status") + project("diff", "last", "--stat")
    text = project("merge", "last", expect=1)
    assert "config.txt: it holds a GitHub token; --allow-risky takes it home" in text
    assert not (project.top / "ok").exists()
    project("merge", "last", "ok")
    project("merge", "last", "--allow-risky", "config.txt", "--allow-risky", "b", "--allow-risky", "d")
    assert (project.top / "config.txt").read_text() == f"key = {GITHUB}\n"


def test_a_known_secret_in_base64_that_is_broken_into_lines_is_found(project):
    project.sandbox(f"(printf 'some text before it, so that it is long: '; printf '%s' {VALUE!r}; echo ', and after it') "
                    f"| base64 -w 20 > wrapped; printf '%s%s' 'x: ' {VALUE!r} | xxd -p -c 10 > hex; echo fine > ok", manifest(project))
    text = project("merge", "last", expect=1)
    assert "wrapped: it holds the value of DEPLOY_TOKEN" in text and "hex: it holds the value of DEPLOY_TOKEN" in text
    assert "A ok" in text and "ok: it holds" not in text
    assert project("diff", "last", "wrapped").count("[redacted: the value of DEPLOY_TOKEN]") == 1


def test_a_secret_that_cannot_be_looked_for_any_more_is_named(project):
    key = project.runner.root / "key"
    key.write_text(VALUE)
    key.chmod(0o600)
    (project.runner.home / "m.yaml").write_text(
        "version: 1\nsecrets:\n  - {name: DEPLOY, from: {file: %s}, commands: [sh]}\n" % key)
    project.sandbox(f"printf '%s' {VALUE!r} > leak", manifest(project))
    there = [project.runner.cofferdam(*words).stderr for words in (["diff", "last"], ["merge", "last", "--dry-run"])]
    assert not [said for said in there if b"not looked for" in said]
    key.unlink()
    for words in (["diff", "last"], ["export", "last", "-o", str(project.runner.root / "p")], ["merge", "last", "--dry-run"], ["merge", "last"]):
        assert b"secret DEPLOY is not looked for" in project.runner.cofferdam(*words).stderr, words


def test_names_are_shown_escaped_and_without_their_secrets_by_every_command(project):
    project.sandbox(f"""python3 -c '
import os
open(b"k-" + b"{GITHUB}", "w"); os.mkdir(b"d\\x1b[31m"); open(b"d\\x1b[31m/\\xff\\n\\xe2\\x80\\xaex", "w")
os.mkfifo(b"fifo-" + b"{GITHUB}")'""")
    allowed = ["--allow-risky", f"k-{GITHUB}"]
    patch = project.runner.home / "p"
    said = [project("merge", "last", expect=1), project("merge", "last", "--dry-run", *allowed), project("diff", "last", "--stat"),
            project("diff", "last", "--name-status")]
    exported = project.runner.cofferdam("export", "last", "-o", str(patch))
    said.append(exported.stderr.decode())
    assert GITHUB.encode() in patch.read_bytes()
    rows = {}
    for words in (["diff", "last", "--json"], ["merge", "last", "--json", *allowed]):
        text = project(*words)
        assert GITHUB not in text
        for row in json.loads(text)["changes"]:
            rows[row.get("path_hex", row["path"])] = row["path"]
    assert rows[b"d\x1b[31m/\xff\n\xe2\x80\xaex".hex()] == "d\x1b[31m/\ufffd\n\u202ex"
    said.append(project("undo", "last"))
    for text in said:
        assert GITHUB not in text and "\x1b" not in text and "\u202e" not in text, text
    assert "k-[redacted: a GitHub token]" in said[0]
    assert "\\xff\\n\\u{202e}x" in said[1].lower().replace("\\x0a", "\\n"), said[1]


def test_ignored_content_that_comes_home_as_a_whole_is_searched_too(project):
    project.sandbox(f"mkdir -p node_modules/p; echo 1 > node_modules/p/i.js; echo 'token={GITHUB}' > node_modules/p/.npmrc")
    text = project("merge", "last", "--ignored", expect=1)
    assert "it holds a GitHub token (node_modules/p/.npmrc)" in text and not (project.top / "node_modules").exists()
    project("merge", "last", "--ignored", "--allow-risky", "node_modules")
    assert (project.top / "node_modules/p/.npmrc").exists()


def test_the_stored_patch_stays_as_it_is_and_says_so(project):
    project.git("clone", "-q", ".", str(project.runner.home / "clean"))
    project.sandbox(f"echo 'key = {GITHUB}' > config.txt")
    patch = project.runner.home / "out.patch"
    done = project.runner.cofferdam("export", "last", "-o", str(patch))
    assert done.returncode == 0 and b"config.txt: a GitHub token" in done.stderr
    assert GITHUB in patch.read_text()
    row = json.loads((project.runner.home / "out.patch.json").read_text())["changes"][0]
    assert row["secret"] == "a GitHub token" and row["risk"]["level"] == "needs_allowance"
    project.git("apply", "--binary", str(patch), cwd=project.runner.home / "clean")
    assert (project.runner.home / "clean/config.txt").read_text() == f"key = {GITHUB}\n"


def test_a_patch_never_goes_to_a_terminal(project):
    project.sandbox("echo two >> a.txt")
    ours, theirs = pty.openpty()
    done = subprocess.run([project.runner.programs / "cofferdam", "export", "last"], cwd=project.top, stdin=subprocess.DEVNULL,
                          stdout=theirs, stderr=subprocess.PIPE, check=False, timeout=60,
                          env={"PATH": os.environ["PATH"], "HOME": str(project.runner.home)})
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and b"not for a terminal" in done.stderr


def test_a_secret_that_was_there_before_is_no_news(project):
    project.write("config.txt", f"key = {GITHUB}\n")
    project.sandbox("echo another line >> config.txt")
    assert GITHUB not in project("diff", "last")
    project("merge", "last")
    assert (project.top / "config.txt").read_text() == f"key = {GITHUB}\nanother line\n"


def test_a_commit_with_a_secret_needs_its_allowance_although_the_file_is_gone(project):
    me = "git -c user.name=n -c user.email=e@example.org"
    project.sandbox(f"echo {GITHUB} > leak; git add leak; {me} commit -qm leak; rm leak")
    # The commit comes home under its reference; the branch does not move, however often one asks.
    for _ in range(3):
        text = project("merge", "last", "--commits", expect=1)
        assert "leak: it holds a GitHub token" in text and GITHUB not in text
    project("merge", "last", "--commits", "--allow-risky", "leak")
    assert project.git("log", "-1", "--format=%s") == b"leak\n"


def test_a_secret_in_the_history_needs_its_allowance_although_no_file_holds_it_any_more(project):
    me = "git -c user.name=n -c user.email=e@example.org"
    project.sandbox(f"set -e; mkdir d; echo {GITHUB} > d/leak; git add d; {me} commit -qm one; git rm -q d/leak; {me} commit -qm two; "
                    f"echo two >> a.txt; {me} commit -qam 'see {GITHUB}'; git rev-parse HEAD > .git/said")
    said = (project.runner.layer() / "upper/.git/said").read_text().strip()
    head = project.git("rev-parse", "HEAD")
    for _ in range(2):
        text = project("merge", "last", "--commits", expect=1)
        assert "d/leak  (look at it: one of the commits holds a GitHub token)" in text and GITHUB not in text
        assert f"{said}  (look at it: the message of this commit holds a GitHub token)" in text
    project("merge", "last", "--commits", "--allow-risky", "d", expect=1)
    assert project.git("rev-parse", "HEAD") == head
    project("merge", "last", "--commits", "--allow-risky", "d", "--allow-risky", said)
    assert project.git("rev-parse", "HEAD").decode().strip() == said


def test_what_a_workload_prints_goes_through_without_the_values_that_it_was_given(project):
    line = (f"printf 'a %s b\\n' \"$DEPLOY_TOKEN\"; printf 'correct horse' >&2; sleep 0.01; printf ' battery staple\\n' >&2; "
            f"echo \"$PLAIN\"; echo {GITHUB}; printf 'correct horse '")
    done = project.sandbox(line, manifest(project))
    assert done.stdout == (b"a [redacted: the value of DEPLOY_TOKEN] b\nnothing to hide here\n" + GITHUB.encode()
                           + b"\ncorrect horse ")
    assert done.stderr.startswith(b"[redacted: the value of DEPLOY_TOKEN]\n"), done.stderr
    # Bytes of all kinds pass a pipe as they are.
    done = project.sandbox("head -c 3000000 /dev/zero | tr '\\0' 'c'; python3 -c 'import sys; "
                           "sys.stdout.buffer.write(bytes(range(256)) * 4000)'", manifest(project))
    assert done.stdout == b"c" * 3000000 + bytes(range(256)) * 4000


def test_on_a_terminal_tokens_of_known_forms_are_redacted_and_a_prompt_is_not_kept_waiting(project):
    words = project.runner.command(["sh", "-c", f"echo {GITHUB}; printf 'ghp'; sleep 600"], ["-t"])
    ours, theirs = pty.openpty()
    run = subprocess.Popen(words, cwd=project.top, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while not out.endswith(b"ghp"):
            out += os.read(ours, 4096)
        assert b"[redacted: a GitHub token]" in out and GITHUB.encode() not in out
    finally:
        run.terminate()
        with contextlib.suppress(OSError):
            while os.read(ours, 4096):
                pass
        os.close(ours)
        run.wait(timeout=60)


def test_artifacts_are_a_tar_that_is_safe_to_unpack_beside_what_is_said_of_them(project, tmp_path):
    project.write(".gitignore", "dist/\n*.log\n")
    project.sandbox(f"""set -e
        mkdir -p dist/sub; printf 'wheel' > dist/a.whl; printf '#!/bin/sh\\n' > dist/sub/run; chmod 4755 dist/sub/run
        ln -s a.whl dist/ok; ln -s ../../../etc/passwd dist/evil; ln -s /etc/passwd dist/worse; mkfifo dist/pipe
        echo {GITHUB} > build.log; printf x > dist/{'n' * 150}; printf y > "$(printf 'dist/n\\377me')"
        echo changed >> a.txt; echo s > dist/.env 2>/dev/null || true""", manifest(project))
    tar, again = tmp_path / "out.tar", tmp_path / "again.tar"
    project("export", "last", "--artifacts", str(tar))
    project("export", "last", "--artifacts", str(again))
    assert tar.read_bytes() == again.read_bytes()
    report = json.loads((tmp_path / "out.tar.json").read_text())
    rows = {row["path"]: row for row in report["artifacts"]}
    assert set(rows) == {"build.log", "dist/a.whl", "dist/sub/run", "dist/ok", "dist/" + "n" * 150, "dist/n\ufffdme"}
    assert rows["dist/a.whl"] == {
        "path": "dist/a.whl", "kind": "file", "size": 5, "mode": "0644", "owner": "platform team", "classification": "internal",
        "retention_ms": 30 * 86400 * 1000, "sha256": subprocess.run(
            ["sha256sum"], input=b"wheel", capture_output=True, check=True).stdout.decode().split()[0]}
    assert rows["build.log"]["secrets"] == ["a GitHub token"]
    assert {row["path"]: row["reason"] for row in report["omitted"]} == {
        "dist/evil": "link_out", "dist/worse": "link_out", "dist/pipe": "special_file"}
    assert report["without_a_match"] == ["/nothing/*.here"]
    with tarfile.open(tar, errors="surrogateescape") as archive:
        members = archive.getmembers()
        for member in members:
            assert member.isfile() or member.isdir() or member.issym()
            assert not member.name.startswith("/") and ".." not in member.name.split("/")
            assert (member.uid, member.gid, member.mtime, member.uname) == (0, 0, 0, "")
            assert member.mode in (0o644, 0o755, 0o777)
        archive.extractall(tmp_path / "there")
    # Stock tar reads the same.
    (tmp_path / "here").mkdir()
    subprocess.run(["tar", "-xf", tar, "-C", tmp_path / "here"], check=True)
    assert tree(tmp_path / "here") == tree(tmp_path / "there")
    assert (tmp_path / "here/dist/sub/run").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(tmp_path / "here/dist/ok") == "a.whl"
    assert (tmp_path / "here/dist" / ("n" * 150)).read_text() == "x"


def test_without_artifacts_in_the_manifest_there_is_nothing_to_export(project, tmp_path):
    project.sandbox("echo two >> a.txt")
    done = project.runner.cofferdam("export", "last", "--artifacts", str(tmp_path / "x.tar"))
    assert done.returncode == 125 and b"names no artifacts" in done.stderr
    assert not list(tmp_path.iterdir())
