"""The same calls on a plain directory and on a workspace: what each returned, and what became of every object.

A case is a generator: it makes objects, yields, and then calls. All cases of a batch are set up first, so that one
pause serves them all: afterwards every time that a call changes is another one than before it.
"""
import contextlib
import ctypes
import errno
import os
import socket
import stat
import time

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOBODY, OTHER, GUEST = 65534, 65533, 65532  # ids that own things, ids that own none of them, a group
WHO = {
    "root": (0, 0, []),
    "owner": (NOBODY, NOBODY, []),
    "member": (OTHER, OTHER, [NOBODY]),
    "stranger": (OTHER, OTHER, []),
    "guest": (NOBODY, NOBODY, [GUEST]),
}


def raw(function, *arguments):
    """A call of the C library; its result, or its errno as an error."""
    value = getattr(LIBC, function)(*arguments)
    if value == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return value


class Side:
    """One case on one side. Paths are relative to its own directory."""

    def __init__(self, base):
        self.base, self.results = base, []
        self.loose = False
        self.strange = False  # belongs to somebody whom the policy does not name

    def p(self, name):
        return f"{self.base}/{name}" if name != "." else self.base

    # --- making
    def make(self, name, kind, mode=None, owner=None):
        path = self.p(name)
        if kind in ("file", "text"):
            with open(path, "wb") as f:
                f.write(b"" if kind == "file" else b"0123456789")
        elif kind in ("dir", "full"):
            os.mkdir(path)
            if kind == "full":
                with open(f"{path}/in", "wb"):
                    pass
        elif kind == "link":
            with open(f"{path}.to", "wb"):
                pass
            os.symlink(f"{name.rsplit('/', 1)[-1]}.to", path)
        elif kind == "dirlink":
            os.mkdir(f"{path}.to")
            os.symlink(f"{name.rsplit('/', 1)[-1]}.to", path)
        elif kind == "dangling":
            os.symlink("nowhere", path)
        elif kind == "loop":
            os.symlink(name.rsplit("/", 1)[-1], path)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "sock":
            os.mknod(path, stat.S_IFSOCK | 0o755)
        elif kind != "absent":
            raise ValueError(kind)
        if kind == "absent":
            return
        if owner is not None:
            os.lchown(path, *owner)
            self.strange = self.strange or not {*owner} <= {0, NOBODY}
        if mode is not None and kind not in ("link", "dirlink", "dangling", "loop"):
            os.chmod(path, mode)

    # --- calling
    @contextlib.contextmanager
    def being(self, who, umask=0o022):
        uid, gid, groups = WHO[who]
        old = os.umask(umask)
        if who != "root":
            os.setgroups(groups)
            os.setegid(gid)
            os.seteuid(uid)
        try:
            yield
        finally:
            if who != "root":
                os.seteuid(0)
                os.setegid(0)
                os.setgroups([])
            os.umask(old)

    def call(self, function, *arguments, **named):
        try:
            value = function(*arguments, **named)
            if isinstance(value, os.stat_result):
                links = "any" if self.loose and stat.S_ISDIR(value.st_mode) else value.st_nlink
                value = (value.st_mode, value.st_uid, value.st_gid, links)
            self.results.append(value)
            return value
        except OSError as error:
            self.results.append(errno.errorcode.get(error.errno, error.errno))
            return None

    def open(self, name, flags, mode=0o666):
        """Opens and closes; what came of it."""
        def act():
            fd = os.open(self.p(name), flags, mode)
            os.close(fd)
            return "opened"
        self.call(act)

    # --- looking
    def look(self):
        out = {}
        stack = ["."]
        while stack:
            name = stack.pop()
            path = self.p(name)
            out[name] = os.lstat(path)
            if stat.S_ISDIR(out[name].st_mode):
                stack += [entry if name == "." else f"{name}/{entry}" for entry in sorted(os.listdir(path))]
        return out


def describe(before, after, loose):
    """What became of every object, told the same way on both sides. `loose`: what lower decides is left out."""
    named = {(st.st_dev, st.st_ino): name for name, st in sorted(before.items(), reverse=True)}
    out = {}
    for name, st in after.items():
        is_dir = stat.S_ISDIR(st.st_mode)
        seen = [oct(st.st_mode), st.st_uid, st.st_gid]
        if not (loose and is_dir):
            seen.append(f"links {st.st_nlink}")
        if not is_dir:
            seen.append(f"size {st.st_size}")
        was = before.get(named.get((st.st_dev, st.st_ino), ""))
        if was is None:
            seen.append("new")
        else:
            changed = ["was " + named[(st.st_dev, st.st_ino)]]
            if was.st_mtime_ns != st.st_mtime_ns:
                changed.append("mtime")
            if was.st_ctime_ns != st.st_ctime_ns and not loose:
                changed.append("ctime")
            seen += changed
        out[name] = seen
    return out


class Batch:
    """Cases: (name, generator function). Placement: where their objects lie, `upper`, `lower` or `merged`."""

    def __init__(self, cases):
        self.cases = [(f"{i}-{name}"[:60].replace("/", "_"), name, make) for i, (name, make) in enumerate(cases)]

    def directories(self, root):
        for directory, _, _ in self.cases:
            os.mkdir(f"{root}/{directory}")

    def set_up(self, root):
        """Makes the objects; the sides, ready for the calls."""
        sides = []
        for directory, name, make in self.cases:
            side = Side(f"{root}/{directory}")
            steps = make(side)
            next(steps)
            sides.append((name, side, steps))
        return sides

    @staticmethod
    def act(sides, root, loose=False):
        time.sleep(0.02)
        out = {}
        for name, side, steps in sides:
            side.loose = loose
            side.base = f"{root}/{side.base.rsplit('/', 1)[-1]}"
            before = side.look()
            for _ in steps:
                pass
            after = side.look()
            out[name] = (side.results, describe(before, after, loose), side.strange)
        return out


def differences(want, got, strangers=True):
    """`strangers`: what lower shows of owners that the policy does not name can be compared, too."""
    return {name: {"plain": want[name], "workspace": got[name]} for name in want
            if want[name] != got[name] and (strangers or not want[name][2])}
