"""What is measured, in the order in which one round does it on every contestant. Seconds, by the wall clock."""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import time

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/release/bin")).resolve()
IO = BIN / "bench-fs-io"


class Place:
    """One contestant's view during one round."""

    def __init__(self, view, inputs, env):
        self.view, self.inputs, self.env = pathlib.Path(view), inputs, env

    def do(self, *words, cwd=None):
        done = subprocess.run([str(w) for w in words], cwd=cwd or self.view, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        if done.returncode not in (0, 1) or (done.returncode == 1 and words[0] != "grep"):
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.decode(errors='replace')[:2000]}")
        return done.stdout

    def timed(self, *words, cwd=None):
        begin = time.monotonic()
        self.do(*words, cwd=cwd)
        return time.monotonic() - begin

    def own(self, *words):
        """By the clock of bench-fs-io."""
        return int(self.do(IO, *words)) / 1e6

    @property
    def repository(self):
        return self.view / "repository"


def forget_inodes():
    """Names and attributes that the kernel remembers, so that a first walk is one; pages stay."""
    try:
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
    except OSError:
        pass


def walk_cold(place):
    if place.inputs.scale.forgets:
        forget_inodes()
    return place.own("walk", place.repository)


def walk_warm(place):
    # The others' first walks made the kernel forget what it knew of this one.
    place.own("walk", place.repository)
    return place.own("walk", place.repository)


def status_warm(place):
    place.do("git", "status", "--porcelain", cwd=place.repository)
    return place.timed("git", "status", "--porcelain", cwd=place.repository)


def grep_warm(place):
    place.do("grep", "-rlF", "no such words", "--exclude-dir=.git", ".", cwd=place.repository)
    return place.timed("grep", "-rlF", "no such words", "--exclude-dir=.git", ".", cwd=place.repository)


def status_read(place):
    return place.timed("git", "status", "--porcelain", cwd=place.repository)


def checkout(place):
    return place.timed("git", "checkout", "-q", "other", cwd=place.repository)


def untar(place):
    (place.view / "unpacked").mkdir()
    return place.timed("tar", "xf", place.inputs.archive, cwd=place.view / "unpacked")


def remove_created(place):
    return place.timed("rm", "-rf", "unpacked")


def remove_lower(place):
    return place.timed("rm", "-rf", "old")


def write_sequential(place):
    return place.own("write", place.view / "big", place.inputs.scale.mebibytes)


def read_warm(place):
    place.own("read", place.view / "big")
    return place.own("read", place.view / "big")


def random_4k(place):
    seconds = place.own("random", place.view / "big", place.inputs.scale.random)
    (place.view / "big").unlink()
    return seconds


def transactions(place, mode):
    path = place.view / f"{mode}.db"
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
        begin = time.monotonic()
        for number in range(place.inputs.scale.transactions):
            db.execute("INSERT INTO t (v) VALUES (?)", (f"value {number}" * 10,))
        seconds = time.monotonic() - begin
    db.close()
    return seconds


def compile_program(place):
    return place.timed("make", "-s", "-j2", cwd=place.view / "program")


def npm_ci(place):
    return place.timed("npm", "ci", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error",
                       cwd=place.view / "project")


# key, title, work, goal for an ordinary user, goal where passthrough is there (× native)
ALL = [
    ("walk_cold", "recursive stat, cold", walk_cold, 1.8, 1.8),
    ("walk_warm", "recursive stat, warm", walk_warm, 1.3, 1.3),
    ("status", "git status, warm", status_warm, 1.4, 1.4),
    ("grep", "grep -r, warm", grep_warm, 3.0, 2.7),
    ("status_read", "git status after reading everything", status_read, 1.5, 1.7),
    ("checkout", "git checkout", checkout, 0.9, 0.9),
    ("untar", "untar", untar, 7.0, 5.0),
    ("rm_created", "rm -rf, created", remove_created, 1.9, 1.6),
    ("rm_lower", "rm -rf, lower tree", remove_lower, 0.8, 0.7),
    ("write", "sequential write", write_sequential, 2.3, 1.1),
    ("read", "sequential read, warm", read_warm, 2.3, 1.1),
    ("random", "random 4k, 3 reads for 1 write", random_4k, 1.6, 1.1),
    ("sqlite_delete", "sqlite transactions, DELETE", lambda p: transactions(p, "DELETE"), 1.6, 1.3),
    ("sqlite_wal", "sqlite transactions, WAL", lambda p: transactions(p, "WAL"), 1.5, 1.3),
    ("compile", "compile, -j2", compile_program, 1.2, 1.15),
    ("npm", "npm ci, cache warm", npm_ci, 1.3, 1.15),
]


def usable(scale):
    """Without those whose program is not there: (rows, {title: why})."""
    rows, missing = [], {}
    needs = {"npm": "npm", "compile": "make", "status": "git", "status_read": "git", "checkout": "git"}
    for row in ALL:
        program = needs.get(row[0])
        if program and not shutil.which(program):
            missing[row[1]] = f"{program} is not installed"
        elif row[0] == "npm" and not scale.packages:
            missing[row[1]] = "not in this scale"
        else:
            rows.append(row)
    return rows, missing
