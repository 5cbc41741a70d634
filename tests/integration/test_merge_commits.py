"""Commits made inside come home: under refs/cofferdam/, as a fast-forward, or not at all, with the reason."""
import hashlib
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time

import pytest

from sandbox_runs import Runner, skip_unless_root, wait_until
from test_merge_recovery import merge_and_kill
from test_merge import Project, project, tree  # noqa: F401  (the fixture)

ME = "git -c user.name='Ada Inside' -c user.email=ada@inside.example"
# Writes git objects by hand, as no git would: `put(type, content)` gives the name.
FORGE = r'''
import hashlib, os, pathlib, zlib
def put(kind, content, name=None):
    raw = kind.encode() + b" %d\0" % len(content) + content
    name = name or hashlib.sha1(raw).hexdigest()
    path = pathlib.Path(".git/objects", name[:2], name[2:])
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(zlib.compress(raw))
    return name
def entry(mode, name, oid):
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid)
def commit(tree, *parents, who=b"n <e@example.org> 1 +0000"):
    return put("commit", b"tree " + tree.encode() + b"\n" + b"".join(b"parent " + p.encode() + b"\n" for p in parents)
               + b"author " + who + b"\ncommitter " + who + b"\n\nforged\n")
def head():
    return os.popen("git rev-parse HEAD").read().strip()
def branch(name, oid):
    path = pathlib.Path(".git/refs/heads", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(oid + "\n")
blob = put("blob", b"forged\n")
'''


def commits(project, expect=0):
    return project("merge", "last", "--commits", expect=expect)


def reference(project, branch):
    return f"refs/cofferdam/{project.runner.layer().name}/{branch}"


def forge(project, code):
    project.sandbox("cat > /tmp/forge.py <<'EOF'\n" + FORGE + code + "\nEOF\npython3 /tmp/forge.py && rm -f /tmp/forge.py")


def clean(project):
    assert project.git("status", "--porcelain") == b""
    project.git("fsck", "--strict", "--no-dangling")


def test_commits_come_home_as_they_are_and_the_branch_is_fast_forwarded(project):
    before = project.git("rev-parse", "HEAD").strip()
    project.sandbox(f"""set -e
        echo two >> a.txt; {ME} commit -qam 'first inside'
        mkdir new; printf '\\0bin' > new/b; chmod 755 new/b; rm dir/x; ln -s a.txt l; git add -A; {ME} commit -qm 'second'
        echo dirty >> config.txt""")
    plan = project("merge", "last", "--commits", "--dry-run")
    assert "would fast-forward" in plan and "2 commits" in plan
    assert project.git("rev-parse", "HEAD").strip() == before
    assert project.git("for-each-ref", "refs/cofferdam") == b""
    assert not list((project.top / ".git/objects/pack").iterdir())

    text = commits(project)
    assert "by 2 commits" in text and "merged" in text
    log = project.git("log", "--format=%an|%ae|%s", "HEAD").decode().splitlines()
    assert log[:2] == ["Ada Inside|ada@inside.example|second", "Ada Inside|ada@inside.example|first inside"]
    assert project.git("rev-parse", "HEAD~2").strip() == before
    branch = project.git("symbolic-ref", "--short", "HEAD").decode().strip()
    assert project.git("rev-parse", reference(project, branch)) == project.git("rev-parse", "HEAD")
    assert project.git("status", "--porcelain").decode() == " M config.txt\n"
    assert (project.top / "config.txt").read_text() == "read me\ndirty\n"
    project.git("fsck", "--strict", "--no-dangling")
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in project.top.rglob("*")}
    assert len(owners) == 1, owners
    assert "nothing to do" in commits(project)

    assert f"branch {branch}" in project("undo", "last")
    assert project.git("rev-parse", "HEAD").strip() == before
    clean(project)
    commits(project)
    assert project.git("log", "-1", "--format=%s") == b"second\n"
    project("rm", "last")


def test_without_the_option_only_files_come_home(project):
    before = project.git("rev-parse", "HEAD")
    project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    project("merge", "last")
    assert project.git("rev-parse", "HEAD") == before
    assert project.git("for-each-ref", "refs/cofferdam") == b""
    assert project.git("status", "--porcelain") == b" M a.txt\n"
    # They still can be had afterwards: the files are there, and the branch follows.
    commits(project)
    clean(project)
    project("undo", "last")
    assert project.git("rev-parse", "HEAD") == before
    assert project.git("status", "--porcelain") == b" M a.txt\n"


def test_packed_objects_deltas_and_packed_references_are_read(project):
    text = "".join(f"line {n}\n" for n in range(3000))
    project.write("long.txt", text)
    project.git("add", ".")
    project.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "long")
    project.sandbox(f"""set -e
        for n in 1 2 3 4 5; do echo more $n >> long.txt; {ME} commit -qam "change $n"; done
        git branch other HEAD~2; git gc -q --prune=now; git pack-refs --all
        test -z "$(find .git/objects -path '*/[0-9a-f][0-9a-f]/*' -type f)" """)
    text = commits(project)
    assert "by 5 commits" in text
    assert project.git("rev-parse", reference(project, "other")) == project.git("rev-parse", "HEAD~2")
    clean(project)


def test_other_branches_come_home_under_their_reference_only(project):
    before = project.git("for-each-ref", "refs/heads")
    project.sandbox(f"git checkout -qb topic/one; echo t > t; git add t; {ME} commit -qm topic; git checkout -q -")
    text = commits(project)
    assert "topic/one: 1 commit" in text
    assert project.git("show", reference(project, "topic/one") + ":t") == b"t\n"
    assert project.git("for-each-ref", "refs/heads") == before
    clean(project)


def test_a_sandbox_on_another_branch_is_not_fast_forwarded_and_loses_nothing(project):
    before = tree(project.top)
    project.sandbox(f"git checkout -qb topic; echo t > t; git add t; {ME} commit -qm topic")
    text = commits(project, expect=1)
    assert "no fast-forward: inside, HEAD is topic" in text and "nothing was written" in text
    assert project.git("log", "-1", "--format=%s", reference(project, "topic")) == b"topic\n"
    assert tree(project.top) == before
    project("merge", "last")
    assert (project.top / "t").read_text() == "t\n"


def test_a_detached_head_comes_home_too(project):
    project.sandbox(f"git checkout -q --detach; echo t > t; git add t; {ME} commit -qm alone")
    commits(project, expect=1)
    assert project.git("log", "-1", "--format=%s", reference(project, "HEAD")) == b"alone\n"


def test_a_branch_that_went_on_here_is_no_fast_forward(project):
    project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    project.write("dir/x", "mine\n")
    project.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qam", "mine")
    before, head = tree(project.top), project.git("rev-parse", "HEAD")
    assert "has commits that the sandbox's has not" in commits(project, expect=1)
    assert tree(project.top) == before and project.git("rev-parse", "HEAD") == head
    branch = project.git("symbolic-ref", "--short", "HEAD").decode().strip()
    assert project.git("log", "-1", "--format=%s", reference(project, branch)) == b"inside\n"


def test_what_is_staged_here_is_never_lost(project):
    project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    project.write("a.txt", "staged\n")
    project.git("add", "a.txt")
    project.write("a.txt", "one\n")
    assert "a.txt: you have staged another version" in commits(project, expect=1)
    assert project.git("show", ":a.txt") == b"staged\n"
    project.git("reset", "-q")
    (project.top / ".git/index.lock").touch()
    done = project.runner.cofferdam("merge", "last", "--commits")
    assert done.returncode == 125 and b"another git command" in done.stderr + done.stdout
    assert (project.top / "a.txt").read_text() == "one\n"
    (project.top / ".git/index.lock").unlink()
    project.git("update-ref", "HEAD", "HEAD")
    project.write("config.txt", "staged too\n")
    project.git("add", "config.txt")
    commits(project)
    assert project.git("status", "--porcelain") == b"M  config.txt\n"


def test_undo_is_refused_once_the_branch_went_on(project):
    project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    commits(project)
    project.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", "mine")
    head = project.git("rev-parse", "HEAD")
    assert "it was moved since" in project("undo", "last", expect=1)
    assert project.git("rev-parse", "HEAD") == head
    assert (project.top / "a.txt").read_text() == "one\ntwo\n"


def test_risky_files_in_commits_need_their_allowance_though_the_workspace_has_them_not(project):
    project.sandbox(f"""set -e
        mkdir -p .github/workflows; echo 'on: push' > .github/workflows/evil.yml; git add -A; {ME} commit -qm evil
        rm -r .github""")
    head = project.git("rev-parse", "HEAD")
    text = commits(project, expect=1)
    assert ".github/workflows/evil.yml" in text and "--allow-risky" in text
    assert project.git("rev-parse", "HEAD") == head
    project("merge", "last", "--commits", "--allow-risky", ".github")
    assert project.git("rev-parse", "HEAD") != head


def test_a_linked_worktree_takes_commits_home():
    with_worktree = pathlib.Path
    skip_unless_root()
    runner = Runner()
    try:
        project = Project(runner)
        linked = runner.home / "linked"
        project.git("worktree", "add", "-q", str(linked), "-b", "side")
        runner.workspace = linked
        assert with_worktree(linked / ".git").is_file()
        done = runner.shell(f"echo two >> a.txt; {ME} commit -qam inside && git log -1 --format=%s")
        assert done.stdout == b"inside\n", done.stderr
        text = project("merge", "last", "--commits")
        assert "by 1 commit" in text
        assert project.git("log", "-1", "--format=%s", "side") == b"inside\n"
        assert project.git("status", "--porcelain", cwd=linked) == b""
        project.git("fsck", "--strict", "--no-dangling")
        project("undo", "last")
        assert project.git("log", "-1", "--format=%s", "side") == b"start\n"
        assert project.git("status", "--porcelain", cwd=linked) == b""
    finally:
        runner.close()


def test_a_shallow_clone_takes_commits_home_and_a_shallow_history_of_the_sandbox_does_not_come(project):
    for n in range(3):
        project.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", f"c{n}")
    clone = project.runner.home / "shallow"
    project.git("clone", "-q", "--depth", "1", f"file://{project.top}", str(clone))
    project.runner.workspace = clone
    project.sandbox(f"""set -e
        echo two >> a.txt; {ME} commit -qam inside
        git init -q other; cd other; git fetch -q --depth 1 ..; cd ..; rm -rf other""")
    assert "by 1 commit" in project("merge", "last", "--commits")
    assert project.git("log", "-1", "--format=%s", cwd=clone) == b"inside\n"
    project.git("fsck", "--strict", "--no-dangling", cwd=clone)
    # A history of its own that was cut: its parents are nowhere.
    forge(project, 'branch("cut", commit(put("tree", entry("100644", b"f", blob)), "12" * 20))\n'
                   'pathlib.Path(".git/shallow").open("a").write(head() + "\\n")')
    text = project("merge", "last", "--commits")
    assert "cut: refused: commit " + "12" * 20 in text and "shallow" in text


def test_a_workspace_without_git_says_so_and_merges_its_files(project):
    plain = project.runner.home / "plain"
    project.git("init", "-q", str(project.runner.home / "elsewhere"))
    project.runner.workspace = plain
    plain.mkdir()
    project.top = plain
    (plain / "a.txt").write_text("one\n")
    project.own()
    project.sandbox(f"git init -q .; echo two >> a.txt; git add a.txt; {ME} commit -qm inside")
    text = commits(project)
    assert "not the top of a git repository" in text
    assert (plain / "a.txt").read_text() == "one\ntwo\n"
    assert not (plain / ".git").exists()


HOSTILE = {
    "dot git": ('branch("evil", commit(put("tree", entry("100644", b".GIT", blob))))', "takes for .git"),
    "a stream of it": ('branch("evil", commit(put("tree", entry("100644", b".git::$INDEX_ALLOCATION", blob))))',
                       "takes for .git"),
    "below": ('branch("evil", commit(put("tree", entry("40000", b"a", put("tree", entry("40000", b"git~1", '
              'put("tree", entry("100644", b"config", blob))))))))', "takes for .git"),
    "dots": ('branch("evil", commit(put("tree", entry("40000", b"..", put("tree", entry("100644", b"f", blob))))))',
             'the name ".."'),
    "a slash": ('branch("evil", commit(put("tree", entry("100644", b"../../outside", blob))))', "a name with a slash"),
    "a submodule": ('branch("evil", commit(put("tree", entry("160000", b"sub", "34" * 20))))', "is a submodule"),
    "gitmodules": ('branch("evil", commit(put("tree", entry("120000", b".gitmodules", blob))))', ".gitmodules"),
    "a repository": ('branch("evil", commit(put("tree", entry("100644", b"HEAD", blob) + entry("40000", b"objects", '
                     'put("tree", entry("100644", b"f", blob))) + entry("40000", b"refs", put("tree", '
                     'entry("100644", b"f", blob))))))', "take for a repository"),
    "order": ('branch("evil", commit(put("tree", entry("100644", b"b", blob) + entry("100644", b"a", blob))))', "out of order"),
    "twice": ('branch("evil", commit(put("tree", entry("100644", b"a", blob) + entry("100644", b"a.b", blob) + '
              'entry("40000", b"a", put("tree", entry("100644", b"f", blob))))))', "stands twice"),
    "mode": ('branch("evil", commit(put("tree", entry("100777", b"a", blob))))', "unknown mode"),
    "another content": ('put("blob", b"other", "ab" * 20); branch("evil", commit(put("tree", '
                        'entry("100644", b"f", "ab" * 20))))', "its content is another one"),
    "missing": ('branch("evil", commit(put("tree", entry("100644", b"f", "cd" * 20))))', "neither in your repository"),
    "no blob": ('branch("evil", commit(put("tree", entry("100644", b"f", put("tree", b"")))))', "it is no blob"),
    "identity": ('branch("evil", commit(put("tree", entry("100644", b"f", blob)), who=b"n <e> x"))', "author"),
    "a bomb": ('path = pathlib.Path(".git/objects/ee"); path.mkdir(exist_ok=True); (path / ("ee" * 19)).write_bytes('
               'zlib.compress(b"blob 99999999999\\0" + bytes(1 << 24))); branch("evil", commit(put("tree", '
               'entry("100644", b"f", "ee" * 20))))', "too large"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_history_stays_in_the_sandbox(what, one_project):
    code, reason = HOSTILE[what]
    before = tree(one_project.top)
    # An honest branch beside it comes home all the same.
    forge(one_project, code + '\nbranch("good", commit(put("tree", entry("100644", b"fine", blob)), head()))')
    text = one_project("merge", "last", "--commits")
    assert "evil: refused: " in text and reason in text, text
    assert "good: 1 commit" in text
    assert one_project.git("for-each-ref", reference(one_project, "evil")) == b""
    assert one_project.git("show", reference(one_project, "good") + ":fine") == b"forged\n"
    one_project.git("fsck", "--strict", "--no-dangling")
    assert tree(one_project.top) == before


def test_what_does_not_come_home_leaves_nothing_and_is_no_better_the_second_time(one_project):
    forge(one_project, r'''
inner = put("tree", entry("100644", b"f", blob))
evil = commit(put("tree", entry("40000", b"a", inner) + entry("160000", b"sub", "34" * 20)), head())
branch("evil", evil)
branch("good", commit(put("tree", entry("100644", b"fine", blob)), head()))
pathlib.Path("evil-id").write_text(evil)
''')
    evil = (one_project.runner.layer() / "upper/evil-id").read_text()
    for _ in range(2):
        text = one_project("merge", "last", "--commits")
        assert "evil: refused: " in text and "is a submodule" in text, text
        assert one_project.git("for-each-ref", reference(one_project, "evil")) == b""
        found = subprocess.run(["git", "cat-file", "-e", evil], cwd=one_project.top, capture_output=True, check=False)
        assert found.returncode != 0, "the commit is here"
    assert one_project.git("show", reference(one_project, "good") + ":fine") == b"forged\n"
    packs = sorted(path.suffix for path in (one_project.top / ".git/objects/pack").iterdir())
    assert packs == [".idx", ".pack"], packs
    one_project.git("fsck", "--strict", "--no-dangling")


def test_commits_that_are_here_without_a_reference_get_it(one_project):
    one_project.sandbox(f"git checkout -qb other; echo two >> a.txt; {ME} commit -qam inside; git checkout -q -; git rev-parse other > .git/said")
    said = (one_project.runner.layer() / "upper/.git/said").read_text().strip()
    assert "other: 1 commit" in one_project("merge", "last", "--commits")
    # As a kill between the two leaves it; git would throw the commit away one day.
    one_project.git("update-ref", "-d", reference(one_project, "other"))
    assert "other: " in one_project("merge", "last", "--commits")
    assert one_project.git("rev-parse", reference(one_project, "other")).decode().strip() == said
    one_project.git("branch", "mine", said)
    one_project.git("update-ref", "-d", reference(one_project, "other"))
    assert "no commits that are not here" in one_project("merge", "last", "--commits"), "a branch here leads to it"


def test_a_branch_whose_name_is_taken_as_a_directory_is_refused_every_time(one_project):
    forge(one_project, r'''
good = commit(put("tree", entry("100644", b"fine", blob)), head())
branch("a", good)
pathlib.Path(".git/packed-refs").write_text("%s refs/heads/a/b\n" % good)
''')
    for _ in range(2):
        text = one_project("merge", "last", "--commits")
        assert "a/b: refused: " + reference(one_project, "a") + " stands where its directory would be" in text, text
        assert str(one_project.top) not in text
    assert one_project.git("show", reference(one_project, "a") + ":fine") == b"forged\n"


def test_hostile_names_of_branches_and_files_that_are_none(one_project):
    forge(one_project, r'''
good = commit(put("tree", entry("100644", b"fine", blob)), head())
branch("good", good)
for name in ("-delete", "a..b", "x.lock", "@{1}", "\033[31mred"):
    branch(name, good)
os.symlink("/etc/passwd", ".git/refs/heads/link")
os.mkfifo(".git/refs/heads/pipe")
pathlib.Path(".git/refs/heads/garbage").write_bytes(os.urandom(4000))
pathlib.Path(".git/refs/heads/symbolic").write_text("ref: refs/heads/../../config\n")
pathlib.Path(".git/packed-refs").write_text("# pack-refs with: peeled\n%s refs/heads/packed\n%s refs/heads/../up\n" % (good, good))
pathlib.Path(".git/objects/pack").mkdir(exist_ok=True)
pathlib.Path(".git/objects/pack/pack-x.idx").write_bytes(os.urandom(5000))
pathlib.Path(".git/objects/pack/pack-x.pack").write_bytes(os.urandom(5000))
pathlib.Path(".git/objects/info/alternates").write_text("/etc\n")
pathlib.Path(".git/config").open("a").write('[core]\n\tfsmonitor = "touch /tmp/ran-by-git"\n\thooksPath = .\n')
''')
    done = one_project.runner.cofferdam("merge", "last", "--commits")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "\033[" not in text and "red: refused" in text
    names = one_project.git("for-each-ref", "--format=%(refname)", "refs/cofferdam").decode().splitlines()
    assert {name.rsplit("/", 1)[1] for name in names} == {"good", "packed"}
    assert not pathlib.Path("/tmp/ran-by-git").exists()
    one_project.git("fsck", "--strict", "--no-dangling")


def test_a_reader_that_is_missing_is_named(one_project, tmp_path):
    one_project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    program = tmp_path / "cofferdam"
    program.write_bytes((one_project.runner.programs / "cofferdam").read_bytes())
    program.chmod(0o755)
    done = subprocess.run([program, "merge", "last", "--commits"], cwd=one_project.top, capture_output=True, check=False,
                          env={"PATH": "/usr/bin", "HOME": str(one_project.runner.home)})
    assert done.returncode != 0 and b"cofferdam-reader" in done.stderr
    assert (one_project.top / "a.txt").read_text() == "one\n"


def test_what_a_merge_says_is_also_said_as_json(one_project):
    one_project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    report = json.loads(one_project("merge", "last", "--commits", "--dry-run", "--json"))
    assert report["dry_run"] is True and report["written"] is False
    assert [(row["path"], row["outcome"]) for row in report["changes"]] == [("a.txt", "taken")]
    assert report["commits"]["fast_forward"]["commits"] == 1
    (one_project.top / "a.txt").write_text("mine\n")
    report = json.loads(one_project("merge", "last", "--json", expect=1))
    assert [(row["path"], row["outcome"]) for row in report["changes"]] == [("a.txt", "conflict")]
    assert report["changes"][0]["why"]


def test_tags_notes_and_stashes_stay_inside_and_are_listed(one_project):
    one_project.sandbox(f"git tag v1; {ME} notes add -m note HEAD; echo x >> a.txt; {ME} stash -q; echo two >> config.txt;"
                        f" {ME} commit -qam inside")
    text = commits(one_project)
    for name in ("refs/tags/v1", "refs/notes/commits", "refs/stash"):
        assert f"left out: {name}: only branches come home (reference)" in text
    assert "1 commit" in text
    assert one_project.git("for-each-ref", "--format=%(refname)", "refs/tags", "refs/notes", "refs/stash") == b""
    report = json.loads(one_project("merge", "last", "--commits", "--json"))
    assert [row["reference"] for row in report["commits"]["left_out"]] == ["refs/notes/commits", "refs/stash", "refs/tags/v1"]


def test_no_more_commits_are_counted_than_people_have_use_for(one_project):
    one_project.sandbox("""branch=$(git symbolic-ref HEAD); (i=0; while [ $i -lt 10010 ]; do
        printf 'commit %s\\ncommitter n <e@example.org> %s +0000\\ndata 1\\nc\\n' $branch $((1000000000 + i))
        [ $i -gt 0 ] || printf 'from %s^0\\n' $branch
        i=$((i + 1)); done) | git fast-import --quiet""")
    text = commits(one_project)
    assert "at least 10000 commits" in text
    assert one_project.git("rev-list", "--count", "HEAD") == b"10011\n"


def test_a_merge_of_commits_that_is_killed_is_before_or_after(one_project):
    project = one_project
    project.sandbox(f"for n in $(seq 40); do echo $n > f$n; done; echo two >> a.txt; git add -A; {ME} commit -qm inside")
    before = (project.git("rev-parse", "HEAD"), tree(project.top), b"")
    started = time.monotonic()
    project("merge", "last", "--commits")
    whole = time.monotonic() - started
    now = lambda: (project.git("rev-parse", "HEAD"), tree(project.top), project.git("status", "--porcelain"))  # noqa: E731
    after = now()
    assert after[2] == b"" and after[0] != before[0]
    project("undo", "last")
    assert now() == before
    for part in range(1, 13):
        merge_and_kill(project, whole * (0.3 + 0.06 * part), "--commits")
        project("ps")
        assert now() in (before, after)
        assert not list((project.top / ".git").glob("cofferdam-index-*")) and not (project.top / ".git/index.lock").exists()
        if now() == after:
            project("undo", "last")
        assert now() == before
    project("merge", "last", "--commits")
    assert now() == after


def test_the_lock_of_a_merge_that_was_cut_short_is_its_own_and_goes(one_project):
    project = one_project
    project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    left = project.top / ".git/cofferdam-index-left"
    left.mkdir()
    (left / "lock").write_text("half an index")
    os.link(left / "lock", project.top / ".git/index.lock")
    project("merge", "last", "--commits")
    assert not left.exists() and not (project.top / ".git/index.lock").exists()
    clean(project)


def test_a_branch_here_whose_name_is_no_text_is_fast_forwarded_and_taken_back(one_project):
    git = ["git", "-C", one_project.top, "checkout", "-q", "-b", b"caf\xe9"]
    one_project.own()
    subprocess.run(git, check=True)
    one_project.own()
    before = one_project.git("rev-parse", "HEAD")
    one_project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside")
    assert "fast-forward of caf\\xe9 by 1 commit" in commits(one_project)
    assert one_project.git("rev-parse", "HEAD") != before
    one_project("undo", "last")
    assert one_project.git("rev-parse", "HEAD") == before and one_project.git("symbolic-ref", "HEAD") == b"refs/heads/caf\xe9\n"
    clean(one_project)


@pytest.mark.parametrize("said", ("", "its own", "another"))
def test_the_lock_of_a_reference_that_a_killed_merge_left_goes(said, one_project):
    one_project.sandbox(f"echo two >> a.txt; {ME} commit -qam inside; git rev-parse HEAD > .git/said")
    tip = (one_project.runner.layer() / "upper/.git/said").read_text().strip()
    before = one_project.git("rev-parse", "HEAD").decode().strip()
    branch = one_project.git("symbolic-ref", "HEAD").decode().strip()
    text = {"": "", "its own": tip + "\n", "another": before + "\n"}[said]
    lock = one_project.top / ".git" / (branch + ".lock")
    lock.write_text(text)
    if said == "another":
        done = one_project.runner.cofferdam("merge", "last", "--commits")
        assert done.returncode == 125 and lock.read_text() == text
        assert one_project.git("rev-parse", "HEAD").decode().strip() == before
        assert (one_project.top / "a.txt").read_text() == "one\n"
        lock.unlink()
    commits(one_project)
    assert not lock.exists() and one_project.git("rev-parse", "HEAD").decode().strip() == tip
    clean(one_project)


def test_the_reader_is_caged_and_ends_over_nonsense(one_project):
    program = one_project.runner.programs / "cofferdam-reader"

    def start():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader = subprocess.Popen([program.resolve()], pass_fds=[3], preexec_fn=lambda: os.dup2(theirs.fileno(), 3))
        theirs.close()
        return reader, ours

    reader, ours = start()
    status = lambda: dict(line.split(":\t", 1) for line in pathlib.Path(  # noqa: E731
        f"/proc/{reader.pid}/status").read_text().splitlines() if ":\t" in line)
    assert wait_until(lambda: status()["Seccomp"] == "2")
    found = status()
    assert found["NoNewPrivs"] == "1" and found["Uid"].split() == ["65534"] * 4
    assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    ours.close()
    assert reader.wait(timeout=20) == 1
    for nonsense in (b"?", b"P", b"I", b"R", b"H" + os.urandom(4000), b"\xff" * 100_000):
        reader, ours = start()
        answers = []
        ours.settimeout(20)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            ours.send(nonsense)
            ours.send(b"G")
            while answer := ours.recv(200_000):
                answers.append(answer)
        ours.close()
        # It says so, or it is gone before it was asked; it is never killed.
        assert all(answer[:1] in (b"f", b"e", b"x") for answer in answers), (nonsense[:5], answers)
        assert reader.wait(timeout=20) in (0, 1), nonsense[:5]


@pytest.fixture
def one_project():
    skip_unless_root()
    runner = Runner()
    yield Project(runner)
    runner.close()
