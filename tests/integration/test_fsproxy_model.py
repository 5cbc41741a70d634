"""The workspace against a plain directory, by random operations with checkpoints, restarts and kills, and against
the kernel's overlayfs over the layers that come out of it. COFFERDAM_MODEL_SEEDS and
COFFERDAM_MODEL_STEPS run more."""
import hashlib
import os
import stat
import subprocess

import pytest

import fsproxy_model
import fsproxy_records
import fsproxy_world as fw

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")
SEEDS = int(os.environ.get("COFFERDAM_MODEL_SEEDS", "6"))
STEPS = int(os.environ.get("COFFERDAM_MODEL_STEPS", "2500"))


def changed_paths(lower, view):
    before, after = fw.tree(lower), fw.tree(view)
    return {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}


def check_records(world, view):
    """Every difference has a base row, and each known base is what lower really has."""
    rows = fsproxy_records.bases(world.layer)

    def above(path):
        while "/" in path:
            path = path.rsplit("/", 1)[0]
            yield path

    # Below what was no directory before, and below what hides lower, nothing new needs a row.
    new = {path for path, rest in rows.items() if rest["kind"] != 2}
    uppers = [str(world.layer / "upper"), *world.frozen_layers()]
    missing = [path for path in changed_paths(world.lower, view) - rows.keys() if not any(
        p in new or any(os.path.isdir(f"{upper}/{p}") and "trusted.overlay.opaque" in os.listxattr(f"{upper}/{p}")
                        for upper in uppers)
        for p in above(path))]
    assert not missing, missing
    really_there = fw.tree(world.lower).keys()  # a path through a link is no path of lower
    kinds = {stat.S_IFREG: 1, stat.S_IFDIR: 2, stat.S_IFLNK: 3}
    for path, row in rows.items():
        full = world.lower / path
        kind = row["kind"]
        if row["state"] != 0:
            continue
        if path not in really_there:
            assert kind == 0, path
            continue
        st = os.lstat(full)
        assert (kind, row["mode"], row["mtime_ns"]) == (kinds.get(stat.S_IFMT(st.st_mode), 4), st.st_mode & 0o7777, st.st_mtime_ns), path
        if kind in (1, 3):
            content = full.read_bytes() if kind == 1 else os.fsencode(os.readlink(full))
            assert hashlib.sha256(content).digest() == row["sha256"] and row["size"] == st.st_size, path
            assert row["stored"] and row["content"] == content, path


@pytest.mark.parametrize("seed", range(SEEDS))
def test_behaves_as_a_plain_directory(seed):
    os.umask(0o022)
    with fw.World() as world:
        fsproxy_model.populate(world.lower, seed)
        plain = world.root / "plain"
        subprocess.run(["cp", "-a", world.lower, plain], check=True)
        lower_before = fw.tree(world.lower, times=True)
        world.passthrough = seed % 2 == 0
        world.start()
        model = fsproxy_model.Model([world.mnt, plain], seed + 1000)
        for step in range(1, STEPS + 1):
            model.step()
            if step % 300 == 0:
                assert fw.tree(world.mnt) == fw.tree(plain), model.log[-40:]
            chance = model.random.random()
            if chance < 1 / 400:
                model.close_all()
                world.kill() if chance < 1 / 800 else world.stop()
                world.start()
            elif chance < 1 / 150 and len(world.frozen_layers()) < 12:
                # A file that is written past the service would be waited for.
                if world.passthrough:
                    model.close_all()
                status, said = world.ask("POST /checkpoint HTTP/1.1\r\n\r\n")
                assert status.split()[1] == "200", said
            if step % 1000 == 0:
                del model.log[:-50]
        model.close_all()
        expected = fw.tree(plain)
        assert fw.tree(world.mnt) == expected
        assert world.stop() == 0, world.diagnostics
        assert world.staged() == []
        with fw.KernelOverlay(world) as kernel:
            # With frozen layers, names in index/ stay that only fsproxy does not count.
            def without_links(seen):
                return {path: entry[:4] for path, entry in seen.items()}
            assert without_links(fw.tree(kernel)) == without_links(expected)
        assert fw.tree(world.lower, times=True) == lower_before
        check_records(world, plain)
