"""The kernel's overlayfs as the judge: the same operations on the same layers, and layers that either
of the two made, shown by the other. COFFERDAM_MODEL_SEEDS and COFFERDAM_MODEL_STEPS run more."""
import os
import stat
import subprocess

import pytest

import fsproxy_model
import fsproxy_world as fw

pytestmark = pytest.mark.skipif(not fw.fuse_available() or os.geteuid() != 0, reason="needs root and /dev/fuse")
SEEDS = int(os.environ.get("COFFERDAM_MODEL_SEEDS", "4"))
STEPS = int(os.environ.get("COFFERDAM_MODEL_STEPS", "1500"))


class WritableOverlay:
    """The kernel's overlayfs, writable, with a layer of its own over the world's lower."""

    def __init__(self, world, name, options=""):
        self.upper, self.work, self.target = (world.root / f"{name}-{part}" for part in ("upper", "work", "mnt"))
        for path in (self.upper, self.work, self.target):
            path.mkdir(exist_ok=True)
        self.data = f"lowerdir={world.lower},upperdir={self.upper},workdir={self.work}{options}"

    def __enter__(self):
        fw.mount("overlay", self.target, "overlay", 0, self.data)
        return self.target

    def __exit__(self, *_):
        fw.umount(self.target)


class Names(fsproxy_model.Model):
    """Without open files: the kernel's overlayfs does not show a reader what was written after a copy-up."""

    def do_open(self):
        self.do_stat()

    do_fwrite = do_fread = do_fstat = do_ftruncate = do_fchmod = do_fallocate = do_copyrange = do_fclose = do_open


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_answer_is_that_of_the_kernels_overlayfs(seed):
    os.umask(0o022)
    with fw.World() as world:
        fsproxy_model.populate(world.lower, seed)
        lower = fw.tree(world.lower, times=True)
        world.start()
        with WritableOverlay(world, "kernel", ",redirect_dir=on,index=on,metacopy=off") as kernel:
            model = Names([world.mnt, kernel], seed + 5000)
            for step in range(1, STEPS + 1):
                model.step()
                if step % 250 == 0:
                    assert fw.tree(world.mnt) == fw.tree(kernel), model.log[-40:]
                if step % 700 == 0:
                    world.restart()
            expected = fw.tree(kernel)
            assert fw.tree(world.mnt) == expected
        world.stop()
        with fw.KernelOverlay(world) as kernel:
            assert fw.tree(kernel) == expected
        assert fw.tree(world.lower, times=True) == lower


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_layer_that_the_kernel_made_is_shown_as_the_kernel_shows_it(seed):
    """Whiteouts and opaque marks that were not ours."""
    os.umask(0o022)
    with fw.World() as world:
        fsproxy_model.populate(world.lower, seed)
        overlay = WritableOverlay(world, "kernel", ",redirect_dir=off,index=off,metacopy=off")
        with overlay as kernel:
            model = Names([kernel], seed + 9000)
            model.do_link = model.do_stat  # it breaks links of lower without an index
            for _ in range(STEPS):
                model.step()
            expected = fw.tree(kernel)
        world.layer.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", overlay.upper, world.layer / "upper"], check=True)
        world.start()
        shown = fw.tree(world.mnt)
        # The link counts of lower files whose other names were copied up apart differ, and may.
        def without_links(tree):
            return {path: seen[:4] for path, seen in tree.items()}
        assert without_links(shown) == without_links(expected)
        # And it can go on from there.
        for path in sorted(shown, reverse=True):
            full = world.mnt / path
            (os.rmdir if stat.S_ISDIR(os.lstat(full).st_mode) else os.unlink)(full)
        world.restart()
        assert os.listdir(world.mnt) == []
