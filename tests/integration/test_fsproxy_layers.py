"""Checkpoints of a running workspace: all mounts in one step, nothing torn, nothing frozen changes."""
import json
import mmap
import os
import pathlib
import random
import subprocess
import threading
import time

import pytest

from fsproxy_world import World, error_of, fuse_available, tree, why_no_passthrough

NO_PASSTHROUGH = why_no_passthrough()
pytestmark = pytest.mark.skipif(not fuse_available(), reason="this machine gives no /dev/fuse")


def checkpoint(world, name="", expect=200):
    body = json.dumps({"name": name}) if name else ""
    with_length = f"Content-Length: {len(body)}\r\n" if body else ""
    status, answer = world.ask(f"POST /checkpoint HTTP/1.1\r\nHost: x\r\n{with_length}\r\n{body}")
    assert status.split()[1] == str(expect), (status, answer)
    return answer


def frozen(world, number, layer=None):
    root = pathlib.Path(layer or world.layer) / "layers" / str(number) / "upper"
    return tree(root)


def numbers(root):
    return {str(p.relative_to(root)): p.lstat().st_ino for p in sorted(pathlib.Path(root).rglob("*"))}


@pytest.fixture
def world():
    with World() as w:
        (w.lower / "dir/sub").mkdir(parents=True)
        for name in ("file", "dir/one", "dir/sub/two"):
            (w.lower / name).write_text(name)
        time.sleep(0.05)
        yield w.start()


def test_what_is_seen_is_the_same_before_and_after(world):
    (world.mnt / "dir/new").write_text("new")
    (world.mnt / "dir/one").unlink()
    (world.mnt / "file").write_text("changed")
    os.link(world.mnt / "dir/new", world.mnt / "linked")
    before, names = tree(world.mnt, times=True), numbers(world.mnt)
    answer = checkpoint(world, "first")
    assert (answer["name"], answer["layer"], answer["parent"]) == ("first", 1, 0)
    assert tree(world.mnt, times=True) == before
    assert numbers(world.mnt) == names
    assert os.listdir(world.layer / "upper") == []
    world.restart()
    assert tree(world.mnt, times=True) == before
    assert numbers(world.mnt) == names
    event = [e for e in world.events() if e["event"] == "checkpoint"][-1]
    assert event["verdict"] == "allow" and event["checkpoint.id"] == answer["id"]


def test_all_mounts_are_frozen_with_the_same_checkpoint():
    with World(extra=[("home", False, True), ("data", True, False)]) as w:
        w.start()
        (w.mnt / "a").write_text("a")
        (w.root / "home-mnt/b").write_text("b")
        checkpoint(w, "both")
        (w.mnt / "a").write_text("A")
        (w.root / "home-mnt/b").write_text("B")
        assert frozen(w, 1)["a"][3] == b"a"
        assert frozen(w, 1, w.root / "home-layer")["b"][3] == b"b"


def test_what_was_open_for_writing_goes_on_in_the_new_layer():
    # Past the service, a checkpoint waits for the writer; see below.
    with World() as w:
        w.passthrough = False
        w.start()
        with open(w.mnt / "log", "wb", buffering=0) as out:
            out.write(b"before ")
            checkpoint(w)
            out.write(b"after")
            assert (w.mnt / "log").read_bytes() == b"before after"
            assert os.fstat(out.fileno()).st_size == 12
        assert frozen(w, 1)["log"][3] == b"before "
        w.restart()
        assert (w.mnt / "log").read_bytes() == b"before after"


def test_what_was_written_through_a_mapping_is_in_the_checkpoint():
    with World() as w:
        w.passthrough = False
        w.start()
        path = w.mnt / "mapped"
        path.write_bytes(b"." * 8192)
        with open(path, "r+b") as file:
            with mmap.mmap(file.fileno(), 8192) as memory:
                memory[0:6] = b"before"
                checkpoint(w)
                memory[0:5] = b"after"
                memory.flush()
        assert frozen(w, 1)["mapped"][3][:6] == b"before"
        assert path.read_bytes()[:6] == b"aftere"


@pytest.mark.skipif(NO_PASSTHROUGH is not None, reason=f"{NO_PASSTHROUGH}")
def test_a_file_that_is_written_past_the_service_is_waited_for(world):
    with open(world.mnt / "big", "wb") as out:
        out.write(b"x" * (1 << 20))
        out.flush()
        answer = checkpoint(world, expect=409)
        assert "workspace:big" in answer["error"]
        assert not (world.layer / "layers/1").exists()
        threading.Timer(0.3, out.close).start()
        checkpoint(world)
    assert len(frozen(world, 1)["big"][3]) == 1 << 20
    # Readers of the frozen file go on reading it; the writer gets a copy.
    with open(world.mnt / "big", "rb") as reader:
        assert reader.read(1) == b"x"
        with open(world.mnt / "big", "r+b") as writer:
            writer.write(b"yy")
        assert (world.mnt / "big").read_bytes()[:3] == b"yyx"
    assert frozen(world, 1)["big"][3][:3] == b"xxx"


def test_workers_go_on_while_checkpoints_are_taken(world):
    stop = threading.Event()
    failures = []

    def work(number):
        mine = world.mnt / f"w{number}"
        rng = random.Random(number)
        try:
            mine.mkdir()
            turn = 0
            while not stop.is_set():
                turn += 1
                path = mine / f"f{rng.randrange(20)}"
                text = f"{number} {turn} " * 50
                (mine / "tmp").write_text(text)
                os.rename(mine / "tmp", path)
                if path.read_text() != text:
                    failures.append(path)
                if turn % 5 == 0:
                    path.unlink()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    kept = {}
    for number in range(1, 9):
        time.sleep(0.1)
        # Writers of new files come and go all the time.
        checkpoint(world, f"c{number}")
        kept[number] = frozen(world, number)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    for number, seen in kept.items():
        assert frozen(world, number) == seen
        # Nothing in a checkpoint is half written.
        for name, entry in seen.items():
            if "/f" in name and len(entry) > 3:
                words = entry[3].decode().split()
                assert words == words[:2] * 50, name
    now = tree(world.mnt)
    world.restart()
    assert tree(world.mnt) == now


def test_killed_at_any_moment_the_layers_are_whole(world):
    rng = random.Random(7)
    for turn in range(6):
        (world.mnt / f"t{turn}").write_text(str(turn))
        os.sync()
        asked = subprocess.Popen(["/usr/bin/python3", "-c", "import socket,sys\ns=socket.socket(socket.AF_UNIX)\n"
                                  "s.connect(sys.argv[1])\ns.sendall(b'POST /checkpoint HTTP/1.1\\r\\n\\r\\n')\ns.recv(100)",
                                  f"/proc/{os.getpid()}/fd/{world.root_fd}/control"], stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.12)
        world.kill()
        asked.wait()
        world.start()
        for known in range(turn + 1):
            assert (world.mnt / f"t{known}").read_text() == str(known)


@pytest.mark.parametrize("body, error", [("[]", "not a JSON object"), ('{"x": 1}', "unknown key x"), ("{", "not a JSON object")])
def test_a_request_that_is_none_is_refused(world, body, error):
    status, answer = world.ask(f"POST /checkpoint HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    assert status.split()[1] == "400" and error in answer["error"]
    assert world.ask("POST /checkpoint HTTP/1.1\r\nContent-Length: 99999\r\n\r\n")[0].split()[1] == "413"


def test_a_mount_that_cannot_be_written_has_no_checkpoints():
    with World(writable=False, record=False) as w:
        w.start()
        assert "nothing here can be written" in checkpoint(w, expect=500)["error"]


def test_a_directory_of_a_frozen_layer_can_be_moved_and_deleted(world):
    (world.mnt / "made/deep/er").mkdir(parents=True)
    (world.mnt / "made/deep/er/f").write_text("f")
    checkpoint(world)
    os.rename(world.mnt / "made/deep", world.mnt / "moved")
    checkpoint(world)
    assert (world.mnt / "moved/er/f").read_text() == "f"
    assert error_of(os.rmdir, world.mnt / "moved") == "ENOTEMPTY"
    world.run("rm", "-r", world.mnt / "moved", world.mnt / "made", world.mnt / "dir")
    checkpoint(world)
    world.restart()
    assert sorted(os.listdir(world.mnt)) == ["file"]
