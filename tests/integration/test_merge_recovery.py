"""Merges that are killed, taken back, and merged by lines: real sandboxes, the real program."""
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time

from sandbox_runs import descendants, process_table
from test_merge import project, tree  # noqa: F401 (the fixture)

MANY = "for d in $(seq 20); do mkdir -p many/$d; for f in $(seq 25); do echo $d.$f > many/$d/$f; done; done; "


def state_of(project):
    """The directories of this user's sandboxes, newest last."""
    top = project.runner.home / ".local/state/cofferdam/sandboxes"
    return sorted((path for path in top.iterdir() if not path.name.startswith(".")), key=lambda p: p.stat().st_mtime)


def merge_and_kill(project, seconds, *options):
    """SIGKILL for the program itself, not for the wrapper that changes the user."""
    runner = project.runner
    words = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={runner.home}",
             str(runner.programs / "cofferdam"), "merge", "last", *options]
    words = ["runuser", "-u", runner.user, "--", *words] if runner.user else words
    merging = subprocess.Popen(words, cwd=runner.workspace, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    for pid in descendants(merging.pid) | {merging.pid}:
        if "cofferdam merge last" in process_table().get(pid, (0, "", ""))[2] and pid != merging.pid or not runner.user:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    merging.wait(timeout=60)


def test_a_merge_that_is_killed_is_entirely_before_or_entirely_after_at_the_next_command(project):
    project.sandbox(MANY + "echo two >> a.txt; rm -r dir; chmod 755 config.txt; ln -s a.txt l; mkdir -m 750 empty")
    before = tree(project.top)
    started = time.monotonic()
    project("merge", "last")
    whole = time.monotonic() - started
    after = tree(project.top)
    project("undo", "last")
    assert tree(project.top) == before
    for part in range(1, 11):
        merge_and_kill(project, whole * part / 10)
        project("ps")
        now = tree(project.top)
        assert now in (before, after), sorted(set(now) ^ set(after))[:10]
        if now == after:
            project("undo", "last")
        assert tree(project.top) == before
    assert "merged" in project("merge", "last")
    assert tree(project.top) == after
    assert not (state_of(project)[-1] / "merges/active").exists()


def test_undo_gives_the_tree_back_and_refuses_over_an_edit(project):
    project.sandbox("echo two >> a.txt; rm -r dir; mkdir -p n/m; echo n > n/m/f; chmod 700 n; ln -sf a.txt config.txt")
    before = tree(project.top)
    assert "nothing to undo" in project("undo", "last", expect=1)
    project("merge", "last")
    after = tree(project.top)
    project.write("n/m/mine", "mine\n")
    project.write("a.txt", "one\ntwo\nthree\n")
    edited = tree(project.top)
    out = project("undo", "last", expect=1)
    assert "a.txt: its content changed" in out and "n/m/mine" in out
    assert tree(project.top) == edited
    (project.top / "n/m/mine").unlink()
    project.write("a.txt", "one\ntwo\n")
    assert tree(project.top) == after
    assert "undone" in project("undo", "last")
    assert tree(project.top) == before
    assert "nothing to undo" in project("undo", "last", expect=1)
    project("merge", "last")
    assert tree(project.top) == after


def test_lines_that_do_not_overlap_are_merged_and_overlaps_get_markers_when_asked(project):
    project.write("text", "".join(f"{n}\n" for n in range(20)))
    project.sandbox("sed -i 's/^3$/three/' text; sed -i 's/^one/theirs/' a.txt")
    project.write("text", (project.top / "text").read_text().replace("15\n", "fifteen\n"))
    project.write("a.txt", "ours\n")
    before = tree(project.top)
    out = project("merge", "last", expect=1)
    assert "same lines" in out and "merged by lines" in out
    assert tree(project.top) == before
    assert "text: merged by lines" in project("merge", "last", "--dry-run", "text")
    project("merge", "last", "text")
    text = (project.top / "text").read_text()
    assert "three\n" in text and "fifteen\n" in text
    project("merge", "last", "--take", "markers", "a.txt")
    assert (project.top / "a.txt").read_text() == \
        "<<<<<<< workspace\nours\n||||||| base\none\n=======\ntheirs\n>>>>>>> sandbox\n"
    project("rm", "last")


def test_a_writer_that_saves_in_a_loop_never_loses_its_newest_save(project):
    project.sandbox(MANY + "echo theirs > config.txt")
    stop = threading.Event()
    saved = []

    def save():
        number = 0
        while not stop.is_set():
            number += 1
            text = f"save {number}\n"
            (project.top / "config.txt.part").write_text(text)
            os.rename(project.top / "config.txt.part", project.top / "config.txt")
            saved.append(text)

    writer = threading.Thread(target=save)
    writer.start()
    try:
        for _ in range(5):
            # The decision sees an edit, or the exchange brings one out: either way nothing is written.
            done = project.runner.cofferdam("merge", "last", "--take", "theirs", "config.txt")
            assert done.returncode in (0, 125), done.stderr
            if done.returncode == 0:
                break
    finally:
        stop.set()
        writer.join()
    assert (project.top / "config.txt").read_text() == saved[-1] or done.returncode == 0
    assert not any(name.startswith(".cofferdam") for name in os.listdir(project.top))


def test_ignored_content_comes_home_in_bulk_when_asked_and_goes_again_with_undo(project):
    project.sandbox("""set -e
        echo two >> a.txt; mkdir -p node_modules/left/lib node_modules/.bin
        echo 1 > node_modules/left/lib/index.js; echo '#!/bin/sh' > node_modules/left/run; chmod 755 node_modules/left/run
        ln -s ../left/run node_modules/.bin/run; touch -d 2020-01-01 node_modules/left/lib/index.js""")
    before = tree(project.top)
    assert "ignored by your rules: node_modules (7 objects" in project("merge", "last", "--dry-run")
    out = project("merge", "last", "--ignored", "--dry-run", "node_modules")
    assert "node_modules (7 objects" in out and "would merge 1 change" in out
    assert tree(project.top) == before
    made = (project.runner.layer() / "upper/node_modules/left").stat()
    project("merge", "last", "--ignored", "node_modules")
    after = tree(project.top)
    assert set(after) - set(before) == {"node_modules", "node_modules/left", "node_modules/left/lib", "node_modules/.bin",
                                        "node_modules/left/lib/index.js", "node_modules/left/run", "node_modules/.bin/run"}
    assert after["a.txt"] == before["a.txt"]
    assert int((project.top / "node_modules/left/lib/index.js").stat().st_mtime) == 1577836800
    assert len({(path.lstat().st_uid, path.lstat().st_gid) for path in project.top.rglob("*")}) == 1
    # Undo is refused over an edit below it, and else takes it away as a whole.
    project.write("node_modules/left/mine", "mine\n")
    assert "node_modules" in project("undo", "last", expect=1)
    (project.top / "node_modules/left/mine").unlink()
    os.utime(project.top / "node_modules/left", ns=(made.st_atime_ns, made.st_mtime_ns))
    project("undo", "last")
    assert tree(project.top) == before


def test_a_workspace_that_is_a_mount_of_its_own_is_merged_into_and_given_back(project):
    subprocess.run(["mount", "--bind", project.top, project.top], check=True)
    try:
        project.sandbox("echo two >> a.txt; rm -r dir; mkdir -p n/m; echo n > n/m/f; ln -sf a.txt config.txt")
        before = tree(project.top)
        project("merge", "last")
        after = tree(project.top)
        assert after["a.txt"][2] == b"one\ntwo\n" and "dir" not in after and "n/m/f" in after
        project("undo", "last")
        assert tree(project.top) == before
    finally:
        subprocess.run(["umount", project.top], check=True)


def test_another_merge_into_the_same_workspace_waits_its_turn(project):
    project.sandbox("echo two >> a.txt")
    descriptor = os.open(project.top, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert b"another merge" in project.runner.cofferdam("merge", "last").stderr
        assert (project.top / "a.txt").read_text() == "one\n"
    finally:
        os.close(descriptor)
    project("merge", "last")


def test_rm_keeps_what_a_merge_that_is_not_at_its_end_took_out(project):
    project.sandbox("echo two >> a.txt")
    project("merge", "last")
    directory = state_of(project)[-1]
    # A journal that nobody can read: no command may decide over it, not even by force.
    os.rename(directory / "merges/1", directory / "merges/active")
    (directory / "merges/active/phase").write_text("\033]0;owned\007 no phase")
    for words in (["rm", "last"], ["rm", "--force", "last"], ["merge", "last"], ["undo", "last"]):
        done = project.runner.cofferdam(*words)
        assert done.returncode == 125, words
        assert b"was cut short" in done.stderr and b"\033" not in done.stderr + done.stdout, done.stderr
    assert (directory / "merges/active/objects").is_dir()
    assert (project.top / "a.txt").read_text() == "one\ntwo\n"


def test_a_file_that_cannot_be_read_is_left_out_by_itself(project):
    project.sandbox("mkdir -p node_modules/p; echo 1 > node_modules/p/a; echo 2 > node_modules/p/b; chmod 000 node_modules/p/b")
    text = project("merge", "last", "--ignored")
    assert (project.top / "node_modules/p/a").read_text() == "1\n"
    if project.runner.user:
        assert "left out: node_modules/p/b: open: Permission denied (unreadable)" in text
        assert not (project.top / "node_modules/p/b").exists()
    else:
        assert (project.top / "node_modules/p/b").read_text() == "2\n"
