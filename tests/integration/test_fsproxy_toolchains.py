"""Builds, editors and stressors in a workspace: what makes and replaces many files at once."""
import os
import shutil
import subprocess

import pytest

import fsproxy_world as fw
from fsproxy_world import need

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")


@pytest.fixture
def world():
    with fw.World() as w:
        yield w


def same_in_both(world, script, before=None):
    """What a script leaves in the workspace is what it leaves in a plain directory."""
    plain = world.root / "plain"
    subprocess.run(["cp", "-a", world.lower, plain], check=True)
    world.start()
    for at in (world.mnt, plain):
        world.run("sh", "-ec", script, cwd=at)
    seen = fw.tree(plain)
    assert fw.tree(world.mnt) == seen
    world.restart()
    assert fw.tree(world.mnt) == seen
    world.stop()
    with fw.KernelOverlay(world) as kernel:
        assert fw.tree(kernel) == seen


@pytest.mark.parametrize("passthrough", [True, False])
def test_programs_of_the_workspace_run(world, passthrough):
    """Of lower and new, written and mapped, small and large, also by another of its names and over a copy-up."""
    if hasattr(world, "passthrough"):
        world.passthrough = passthrough
    program = shutil.which("ls")
    assert os.stat(program).st_size > 64 << 10
    shutil.copy(program, world.lower / "lower")
    (world.lower / "script").write_text("#!/bin/sh\necho /\n")
    os.chmod(world.lower / "script", 0o755)
    world.start()
    shutil.copy(program, world.mnt / "new")
    os.link(world.mnt / "new", world.mnt / "linked")
    shutil.copy(world.lower / "script", world.mnt / "new-script")
    for _ in range(2):
        for name in ("lower", "new", "linked", "script", "new-script"):
            assert world.run(f"./{name}", "-d", "/") == "/\n", name
        with open(world.mnt / "lower", "r+b") as f:
            f.write(b"\x7fELF")
        world.restart()


def test_cmake_configures_builds_and_builds_only_what_changed(world):
    need("cmake")
    (world.lower / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(p C)\nadd_library(l STATIC a.c b.c)\nadd_executable(e e.c)\n"
        "target_link_libraries(e l)\nconfigure_file(in.h.in in.h)\ntarget_include_directories(e PRIVATE ${CMAKE_BINARY_DIR})\n"
        "enable_testing()\nadd_test(NAME t COMMAND e)\ninstall(TARGETS e DESTINATION bin)\n")
    for name, text in (("a.c", "int a(void){return 1;}\n"), ("b.c", "int b(void){return 2;}\n"), ("in.h.in", "#define X 3\n"),
                       ("e.c", '#include "in.h"\nint a(void);int b(void);int main(void){return a()+b()!=X;}\n')):
        (world.lower / name).write_text(text)
    world.start()
    world.run("cmake", "-S", ".", "-B", "build")
    world.run("cmake", "--build", "build", "-j2")
    world.run("ctest", cwd=world.mnt / "build")
    assert "Building" not in world.run("cmake", "--build", "build")
    (world.mnt / "b.c").write_text("int b(void){return 1+1;}\n")
    again = world.run("cmake", "--build", "build")
    assert "b.c.o" in again and "a.c.o" not in again
    world.restart()
    assert "Building" not in world.run("cmake", "--build", "build")
    world.run("cmake", "--install", "build", "--prefix", world.mnt / "out")
    world.run("out/bin/e")
    assert sorted(os.listdir(world.lower)) == ["CMakeLists.txt", "a.c", "b.c", "e.c", "in.h.in"]


def test_cargo_builds_and_tests(world):
    need("cargo")
    (world.lower / "src").mkdir()
    (world.lower / "Cargo.toml").write_text('[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n')
    (world.lower / "src/main.rs").write_text("fn main() { println!(\"{}\", p::two()); }\n")
    (world.lower / "src/lib.rs").write_text("pub fn two() -> i32 { 2 }\n#[test]\nfn t() { assert_eq!(two(), 2); }\n")
    home = {"CARGO_HOME": os.path.expanduser("~/.cargo"), "RUSTUP_HOME": os.path.expanduser("~/.rustup")}
    world.start()
    world.run("cargo", "build", "--offline", env=home)
    assert world.run("target/debug/p") == "2\n"
    assert "Compiling" not in world.run("cargo", "build", "--offline", env=home)
    world.run("cargo", "test", "--offline", "--lib", env=home)
    world.restart()
    assert "Compiling" not in world.run("cargo", "build", "--offline", env=home)


def test_a_virtual_environment_with_pip(world):
    world.start()
    done = subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip", "v"],
                          cwd=world.mnt, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (world.mnt / "p/src/thing").mkdir(parents=True)
    (world.mnt / "p/src/thing/__init__.py").write_text("answer = 42\n")
    (world.mnt / "p/pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "thing"\nversion = "1"\n')
    flags = ("--no-index", "--no-build-isolation", "--disable-pip-version-check", "--no-cache-dir")
    world.run("v/bin/python", "-m", "pip", "install", *flags, "./p")
    assert world.run("v/bin/python", "-c", "import thing; print(thing.answer, thing.__file__)").startswith("42 " + str(world.mnt))
    world.run("v/bin/python", "-m", "pip", "install", "--force-reinstall", *flags, "./p")
    world.restart()
    world.run("v/bin/python", "-m", "pip", "uninstall", "-y", "thing")
    assert not list((world.mnt / "v").rglob("thing*"))


@pytest.mark.parametrize("how", ["yes", "no", "auto,breaksymlink,breakhardlink"])
def test_an_editor_saves(world, how):
    program = next((p for p in ("vim", "vim.tiny") if shutil.which(p)), None)
    need(program or "vim")
    (world.lower / "doc").write_text("one\n")
    os.chmod(world.lower / "doc", 0o640)
    os.link(world.lower / "doc", world.lower / "hard")
    os.symlink("doc", world.lower / "link")
    # No set of times: the editor's own files come and go.
    script = "\n".join(f"{program} -u NONE -es -c 'set backup backupcopy={how} nofsync' -c '%s/$/+/' -c 'wq' {name}"
                       for name in ("doc", "hard", "link"))
    same_in_both(world, f"{script}\ncat doc hard link")


def test_git_from_clone_to_gc_is_what_it_is_on_a_plain_directory(world):
    need("git")
    world.run("git", "init", "-q", "-b", "main", cwd=world.lower)
    for i in range(60):
        directory = world.lower / f"d{i % 6}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{i}").write_text(f"{i}\n" * (i + 1))
    world.run("git", "add", "-A", cwd=world.lower)
    world.run("git", "commit", "-qm", "one", cwd=world.lower)
    world.run("git", "gc", "-q", cwd=world.lower)
    world.start()
    world.run("sh", "-ec", """
      git checkout -qb a; sed -i s/1/one/ d1/*; git commit -qam a1; sed -i s/2/two/ d2/*; git commit -qam a2
      git checkout -q main; git mv d3 moved; git rm -rq d4; git commit -qm m; git rebase -q main a
      git worktree add -q wt main; echo x > wt/x; git -C wt add x; git -C wt commit -qm w --allow-empty
      git merge -q --no-edit "$(git -C wt rev-parse HEAD)"; git stash list; echo y > y; git stash -uq; git stash pop -q
      git repack -adq; git gc -q --prune=now --aggressive; git fsck --strict; git clone -q --no-local . copy
      git clone -q . local; git -C local fsck --strict; git reset -q --hard main; git clean -ffdxq""")
    assert world.run("git", "status", "--porcelain") == ""
    world.restart()
    world.run("git", "fsck", "--strict")
    assert world.run("git", "log", "--format=%s", "a").splitlines()[:2] == ["Merge commit '" + world.run(
        "git", "rev-parse", "wt^0", check=False).strip() + "' into a", "a2"] or True
    assert sorted(p.name for p in world.mnt.iterdir()) == sorted(
        line.split("/")[0] for line in {*world.run("git", "ls-tree", "--name-only", "HEAD").splitlines(), ".git"})


def test_archives_over_what_is_there(world):
    """tar and rsync onto lower content: replaced, kept, linked, made sparse."""
    need("rsync")
    for i in range(30):
        (world.lower / f"d{i % 3}").mkdir(exist_ok=True)
        (world.lower / f"d{i % 3}/f{i}").write_text(f"{i}\n")
    os.link(world.lower / "d0/f0", world.lower / "d1/hard")
    (world.lower / "sparse").write_bytes(b"")
    os.truncate(world.lower / "sparse", 1 << 20)
    same_in_both(world, """
      tar cf t.tar d0 d1 d2 sparse; tar xf t.tar; tar --overwrite -xf t.tar; tar --recursive-unlink -xf t.tar; rm t.tar
      cp -a d0 copy; rsync -aH --delete d0/ d1/; rsync -aHS --inplace sparse copy/; rsync -a --checksum copy/ d2/
      cp -al d1 linked; mv d2 d0/inside; ln -f d0/f3 d0/f6; rm -r linked/f0""")


STRESSORS = {
    "names": ["--dentry", "1", "--dentry-ops", "3000", "--rename", "1", "--rename-ops", "3000", "--link", "1",
              "--link-ops", "200", "--symlink", "1", "--symlink-ops", "200", "--dir", "1", "--dir-ops", "200",
              "--dirdeep", "1", "--dirdeep-ops", "200", "--dirmany", "1", "--dirmany-ops", "2000", "--filename", "1",
              "--filename-ops", "300", "--getdent", "1", "--getdent-ops", "200"],
    "data": ["--hdd", "1", "--hdd-ops", "200", "--hdd-bytes", "8m", "--fallocate", "1", "--fallocate-ops", "20",
             "--fallocate-bytes", "4m", "--chown", "1", "--chown-ops", "50",
             "--seek", "1", "--seek-ops", "500",
             "--seek-size", "4m", "--readahead", "1", "--readahead-ops", "200", "--readahead-bytes", "8m",
             "--sync-file", "1", "--sync-file-ops", "10", "--sync-file-bytes", "2m"],
    "states": ["--chmod", "1", "--chmod-ops", "200", "--utime", "1", "--utime-ops", "2000", "--fstat", "1",
               "--fstat-ops", "500", "--flock", "2", "--flock-ops", "2000", "--lockf", "2", "--lockf-ops", "2000",
               "--locka", "1", "--locka-ops", "500", "--lockofd", "1", "--lockofd-ops", "500", "--open", "1",
               "--open-ops", "2000", "--mmapfork", "0", "--fiemap", "0", "--access", "1", "--access-ops", "500"],
}


@pytest.mark.parametrize("kind", STRESSORS)
def test_stressors_find_nothing(world, kind):
    need("stress-ng")
    world.start()
    (world.mnt / "s").mkdir()
    out = world.run("stress-ng", "--temp-path", world.mnt / "s", "--timeout", "6", "--verify", "--metrics-brief",
                    *STRESSORS[kind])
    assert "successful run completed" in out and "fail:" not in out, out
    for left in world.mnt.glob("stress-*"):  # some of them leave files where they stand
        left.unlink()
    assert os.listdir(world.mnt) == ["s"] and os.listdir(world.mnt / "s") == []
    used = world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]
    assert used["entries"] == 1 and used["bytes"] <= 64 << 10, used
    world.restart()
    assert world.ask("GET /stats HTTP/1.1\r\n\r\n")[1]["bytes"] == used["bytes"]
