"""What the workloads work on: a repository, an archive, a program in C, packages. The same bytes in every run."""
import io
import json
import pathlib
import random
import subprocess
import tarfile

GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "n@example.org", "GIT_COMMITTER_NAME": "n",
       "GIT_COMMITTER_EMAIL": "n@example.org", "GIT_AUTHOR_DATE": "@1700000000 +0000",
       "GIT_COMMITTER_DATE": "@1700000000 +0000"}
WORDS = [f"word{n:03}" for n in range(400)]


def text(dice, size):
    out = []
    while size > 0:
        line = " ".join(dice.choice(WORDS) for _ in range(9)) + "\n"
        out.append(line)
        size -= len(line)
    return "".join(out)


def sizes(dice):
    """Of source files: most are small, a few are not."""
    return int(min(60_000, max(60, dice.lognormvariate(7.6, 1.1))))


def git(directory, *words, env):
    subprocess.run(["git", "-c", "gc.auto=0", "-c", "core.fsmonitor=false", *words], cwd=directory, check=True, env=env,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_repository(top, files, differing, env):
    """lower/: branches main and other, which differ in `differing` files; main is checked out."""
    dice = random.Random(1)
    names = []
    for number in range(files):
        name = f"src{number // 1500}/part{number // 90}/file{number}.txt"
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(dice, sizes(dice)))
        names.append(name)
    git(top, "init", "-q", "-b", "main", env=env)
    git(top, "add", ".", env=env)
    git(top, "commit", "-q", "-m", "main", env=env)
    git(top, "checkout", "-q", "-b", "other", env=env)
    for name in dice.sample(names, differing):
        with open(top / name, "a", encoding="ascii") as file:
            file.write("one more line\n")
    git(top, "commit", "-q", "-a", "-m", "other", env=env)
    git(top, "checkout", "-q", "main", env=env)


def make_tree(top, files):
    dice = random.Random(2)
    for number in range(files):
        path = top / f"d{number // 70}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(dice, sizes(dice)))


def make_archive(path, entries):
    dice = random.Random(3)
    with tarfile.open(path, "w") as archive:
        made, directory = 0, ""
        while made < entries:
            if made % 15 == 0:
                directory = f"tree/a{made // 1500}/b{made // 15}"
                info = tarfile.TarInfo(directory)
                info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, 1700000000
                archive.addfile(info)
            else:
                info = tarfile.TarInfo(f"{directory}/f{made}.js")
                data = text(dice, sizes(dice)).encode()
                info.size, info.mode, info.mtime = len(data), 0o644, 1700000000
                archive.addfile(info, io.BytesIO(data))
            made += 1


def make_program(top, units):
    """`units` files of C that share headers, and a Makefile."""
    top.mkdir(parents=True)
    (top / "all.h").write_text("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" +
                               "".join(f'#include "h{n}.h"\n' for n in range(20)))
    for n in range(20):
        (top / f"h{n}.h").write_text(f"static inline int h{n}(int x) {{ return x * {n} + 1; }}\n")
    for n in range(units):
        body = "".join(f"int f{n}_{i}(int x) {{ return h{i % 20}(x) + {i}; }}\n" for i in range(30))
        (top / f"u{n}.c").write_text('#include "all.h"\n' + body)
    (top / "Makefile").write_text(
        "objects := $(patsubst %.c,%.o,$(wildcard *.c))\nall: lib.a\nlib.a: $(objects)\n\tar rcs $@ $^\n"
        "%.o: %.c\n\tgcc -O0 -g -c -o $@ $<\nclean:\n\trm -f *.o lib.a\n")


def make_packages(top, count, files, env):
    """A project whose `npm ci` unpacks `count` local packages; no registry takes part."""
    dice = random.Random(4)
    (top / "packages").mkdir(parents=True)
    wanted = {}
    for number in range(count):
        name = f"pack{number}"
        with tarfile.open(top / "packages" / f"{name}.tgz", "w:gz", compresslevel=1) as archive:
            parts = {"package/package.json": json.dumps({"name": name, "version": "1.0.0", "main": "lib/f0.js"})}
            for n in range(files):
                parts[f"package/lib/f{n}.js"] = text(dice, sizes(dice) // 2)
            for path, content in parts.items():
                data = content.encode()
                info = tarfile.TarInfo(path)
                info.size, info.mode, info.mtime = len(data), 0o644, 1700000000
                archive.addfile(info, io.BytesIO(data))
        wanted[name] = f"file:packages/{name}.tgz"
    (top / "package.json").write_text(json.dumps({"name": "project", "version": "1.0.0", "dependencies": wanted}))
    subprocess.run(["npm", "install", "--offline", "--package-lock-only", "--no-audit", "--no-fund", "--loglevel=error"],
                   cwd=top, env=env, check=True, stdout=subprocess.DEVNULL)


class Inputs:
    """Everything below one directory, made once; `lower` is what the contestants show."""

    def __init__(self, top, scale, env):
        self.top, self.scale = pathlib.Path(top), scale
        self.lower = self.top / "lower"
        self.archive = self.top / "archive.tar"
        self.lower.mkdir(parents=True)
        repository = self.lower / "repository"
        repository.mkdir()
        make_repository(repository, scale.files, scale.differing, env)
        make_tree(self.lower / "old", scale.old)
        make_archive(self.archive, scale.entries)
        make_program(self.lower / "program", scale.units)
        if scale.packages:
            make_packages(self.lower / "project", scale.packages, scale.package_files, env)
