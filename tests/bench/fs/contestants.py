"""Who is measured: the directory itself, the kernel's overlayfs, fuse-overlayfs, Cofferdam with and without passthrough."""
import pathlib
import shutil
import subprocess
import time

import fsproxy_world

# What a sandbox has by default: rules and recording are part of what is measured.
RULES = [("hide", ".env"), ("hide", ".env.*"), ("hide", "id_rsa"), ("hide", "id_ed25519"), ("hide", "*.ppk"),
         ("hide", ".netrc"), ("hide", ".git-credentials"), ("hide", ".pgpass"), ("readonly", ".git/hooks/**")]


class Native:
    name = "native"

    def __init__(self, top, inputs):
        self.top = pathlib.Path(top)
        self.top.mkdir(parents=True)
        self.view = self.top / "copy"
        # The copy's pages are written before anything is measured.
        subprocess.run(["cp", "-a", inputs.lower, self.view], check=True)
        subprocess.run(["sync", "-f", self.top], check=True)

    def close(self):
        """Nothing is deleted before the run is over: inodes that ext4 has just freed make all further creations slower."""


class KernelOverlay:
    name = "overlayfs"

    @staticmethod
    def missing():
        return None if "overlay" in pathlib.Path("/proc/filesystems").read_text() else "this kernel has no overlayfs"

    def __init__(self, top, inputs):
        self.top = pathlib.Path(top)
        for part in ("upper", "work", "view"):
            (self.top / part).mkdir(parents=True)
        self.view = self.top / "view"
        fsproxy_world.mount("overlay", self.view, "overlay", 0,
                            f"lowerdir={inputs.lower},upperdir={self.top}/upper,workdir={self.top}/work")

    def close(self):
        fsproxy_world.umount(self.view)


class FuseOverlayfs:
    name = "fuse-overlayfs"

    @staticmethod
    def missing():
        return None if shutil.which("fuse-overlayfs") else "fuse-overlayfs is not installed"

    def __init__(self, top, inputs):
        self.top = pathlib.Path(top)
        for part in ("upper", "work", "view"):
            (self.top / part).mkdir(parents=True)
        self.view = self.top / "view"
        self.process = subprocess.Popen(
            ["fuse-overlayfs", "-f", "-o", f"lowerdir={inputs.lower},upperdir={self.top}/upper,workdir={self.top}/work",
             self.view], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while not self.view.is_mount():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("fuse-overlayfs does not mount")
            time.sleep(0.01)

    def close(self):
        fsproxy_world.umount(self.view)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cofferdam:
    """What an ordinary user gets: every byte passes through fsproxy."""
    name = "cofferdam"
    passthrough = False

    def __init__(self, top, inputs):
        pathlib.Path(top).mkdir(parents=True)
        self.world = fsproxy_world.World(rules=RULES, parent=top, quota_bytes=1 << 36, quota_entries=1 << 22)
        self.world.lower = inputs.lower
        self.world.passthrough = self.passthrough
        self.world.start()
        self.view = self.world.mnt

    def close(self):
        self.world.stop()


class CofferdamPassthrough(Cofferdam):
    """With the helper that registers backing files, where this machine can have it."""
    name = "cofferdam, passthrough"
    passthrough = True


def all_of():
    """(those that can run here, {name: why not})."""
    out, missing = [Native], {}
    for kind in (KernelOverlay, FuseOverlayfs):
        why = kind.missing()
        if why:
            missing[kind.name] = why
        else:
            out.append(kind)
    out.append(Cofferdam)
    why = fsproxy_world.why_no_passthrough()
    if why:
        missing[CofferdamPassthrough.name] = why
    else:
        out.append(CofferdamPassthrough)
    return out, missing
