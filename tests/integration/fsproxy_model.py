"""Random file operations, applied to the workspace and to a plain directory: every errno and every
tree must be the same."""
import ctypes
import errno
import os
import random
import stat

LIBC = ctypes.CDLL(None, use_errno=True)
NAMES = ["a", "b", "c", "d", "e", "long" * 20, "sp ace", "new\nline", "\udcff\udcfe", ".x"]
NOREPLACE, EXCHANGE = 1, 2


def renameat2(source, target, flags):
    if LIBC.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Model:
    """Runs the same operation below each of several roots and compares what comes back."""

    def __init__(self, roots, seed, depth=3):
        self.roots, self.random, self.depth = [os.fspath(r) for r in roots], random.Random(seed), depth
        self.open_files = []  # per entry: one descriptor per root
        self.log = []

    def path(self):
        """Mostly something that exists, by walking the last root; else any name, anywhere."""
        if self.random.random() < 0.2:
            return "/".join(self.random.choice(NAMES) for _ in range(self.random.randint(1, self.depth)))
        at, parts = self.roots[-1], []
        while len(parts) < self.depth:
            try:
                names = sorted(os.listdir(at))
            except OSError:
                break
            if not names or self.random.random() < 0.25:
                break
            parts.append(self.random.choice(names))
            at = f"{at}/{parts[-1]}"
            if os.path.islink(at):
                break
        if not parts or (self.random.random() < 0.3 and len(parts) < self.depth):
            parts.append(self.random.choice(NAMES))
        return "/".join(parts)

    def both(self, what, call):
        results = []
        for index, root in enumerate(self.roots):
            try:
                results.append(("ok", call(index, root)))
            except OSError as error:
                results.append(("errno", errno.errorcode.get(error.errno, error.errno)))
        self.log.append(f"{what} -> {results}")
        assert all(r == results[0] for r in results), "\n".join(self.log[-40:])
        return results[0]

    def step(self):
        operation = self.random.choice(
            ["write", "write", "append", "read", "mkdir", "mkdir", "rmdir", "unlink", "unlink", "rename", "rename",
             "exchange", "noreplace", "link", "symlink", "readlink", "chmod", "utime", "truncate", "list", "list",
             "stat", "stat", "open", "fwrite", "fread", "fclose", "fifo", "excl", "fallocate", "copyrange", "fstat",
             "ftruncate", "fchmod"])
        getattr(self, "do_" + operation)()

    # --- operations on names
    def do_write(self):
        p, data = self.path(), bytes(self.random.randbytes(self.random.choice([0, 1, 100, 5000])))
        self.both(f"write {p!r} {len(data)}", lambda i, r: self.put(f"{r}/{p}", data, os.O_TRUNC))

    def do_append(self):
        p, data = self.path(), b"+" * self.random.randint(1, 50)
        self.both(f"append {p!r}", lambda i, r: self.put(f"{r}/{p}", data, os.O_APPEND))

    def do_excl(self):
        p = self.path()
        self.both(f"excl {p!r}", lambda i, r: self.put(f"{r}/{p}", b"x", os.O_EXCL))

    @staticmethod
    def put(path, data, flags):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | flags, 0o644)
        try:
            return os.write(fd, data)
        finally:
            os.close(fd)

    def do_read(self):
        p = self.path()

        def call(_, root):
            fd = os.open(f"{root}/{p}", os.O_RDONLY | os.O_NONBLOCK)
            try:
                return os.read(fd, 1 << 16)
            finally:
                os.close(fd)
        self.both(f"read {p!r}", call)

    def do_mkdir(self):
        p, mode = self.path(), self.random.choice([0o755, 0o700])
        self.both(f"mkdir {p!r}", lambda i, r: os.mkdir(f"{r}/{p}", mode))

    def do_rmdir(self):
        p = self.path()
        self.both(f"rmdir {p!r}", lambda i, r: os.rmdir(f"{r}/{p}"))

    def do_unlink(self):
        p = self.path()
        self.both(f"unlink {p!r}", lambda i, r: os.unlink(f"{r}/{p}"))

    def do_rename(self):
        p, q = self.path(), self.path()
        self.both(f"rename {p!r} {q!r}", lambda i, r: os.rename(f"{r}/{p}", f"{r}/{q}"))

    def do_exchange(self):
        p, q = self.path(), self.path()
        self.both(f"exchange {p!r} {q!r}", lambda i, r: renameat2(f"{r}/{p}", f"{r}/{q}", EXCHANGE))

    def do_noreplace(self):
        p, q = self.path(), self.path()
        self.both(f"noreplace {p!r} {q!r}", lambda i, r: renameat2(f"{r}/{p}", f"{r}/{q}", NOREPLACE))

    def do_link(self):
        p, q = self.path(), self.path()
        self.both(f"link {p!r} {q!r}", lambda i, r: os.link(f"{r}/{p}", f"{r}/{q}", follow_symlinks=False))

    def do_symlink(self):
        p, target = self.path(), self.path()
        self.both(f"symlink {p!r}", lambda i, r: os.symlink(target, f"{r}/{p}"))

    def do_readlink(self):
        p = self.path()
        self.both(f"readlink {p!r}", lambda i, r: os.readlink(f"{r}/{p}"))

    def do_fifo(self):
        p = self.path()
        self.both(f"mkfifo {p!r}", lambda i, r: os.mkfifo(f"{r}/{p}", 0o600))

    def do_chmod(self):
        p, mode = self.path(), self.random.choice([0o644, 0o600, 0o755, 0o4755, 0o1777, 0o2755])
        self.both(f"chmod {p!r} {mode:o}", lambda i, r: os.chmod(f"{r}/{p}", mode))

    def do_utime(self):
        p, when = self.path(), self.random.randrange(10**18)
        self.both(f"utime {p!r}", lambda i, r: os.utime(f"{r}/{p}", ns=(when, when + 1), follow_symlinks=False))

    def do_truncate(self):
        p, size = self.path(), self.random.choice([0, 1, 4096, 10000])

        def call(_, root):
            # opening a FIFO for writing without a reader has its own errno: leave those out
            if stat.S_ISFIFO(os.stat(f"{root}/{p}").st_mode):
                return None
            return os.truncate(f"{root}/{p}", size)
        self.both(f"truncate {p!r} {size}", call)

    def do_list(self):
        p = self.random.choice(["", self.path()])
        self.both(f"list {p!r}", lambda i, r: sorted(
            (e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in os.scandir(f"{r}/{p}")))

    @staticmethod
    def seen(st):
        size = st.st_size if not stat.S_ISDIR(st.st_mode) else None
        links = st.st_nlink if not stat.S_ISDIR(st.st_mode) else None
        return st.st_mode, size, links, st.st_uid, st.st_gid

    def do_stat(self):
        p = self.path()
        self.both(f"stat {p!r}", lambda i, r: self.seen(os.lstat(f"{r}/{p}")))

    # --- open files, which outlive their names
    def do_open(self):
        if len(self.open_files) > 8:
            return self.do_fclose()
        p, flags = self.path(), self.random.choice([os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
        fds = {}

        def call(index, root):
            # A FIFO would be another kind of file.
            try:
                if not stat.S_ISREG(os.stat(f"{root}/{p}").st_mode):
                    return "special"
            except FileNotFoundError:
                pass
            fds[index] = os.open(f"{root}/{p}", flags | os.O_NONBLOCK, 0o644)
        self.both(f"open {p!r} {flags}", call)
        if len(fds) == len(self.roots):
            self.open_files.append(fds)

    def with_open(self, what, call):
        if self.open_files:
            number = self.random.randrange(len(self.open_files))
            fds = self.open_files[number]
            self.both(f"{what} on open file {number}", lambda i, r: call(fds[i]))

    def do_fwrite(self):
        data, at = self.random.randbytes(self.random.choice([1, 1000])), self.random.randrange(9000)
        self.with_open(f"fwrite {at}", lambda fd: os.pwrite(fd, data, at))

    def do_fread(self):
        self.with_open("fread", lambda fd: os.pread(fd, 1 << 16, 0))

    def do_fstat(self):
        self.with_open("fstat", lambda fd: self.seen(os.fstat(fd)))

    def do_ftruncate(self):
        size = self.random.choice([0, 7, 5000])
        self.with_open("ftruncate", lambda fd: os.ftruncate(fd, size))

    def do_fchmod(self):
        mode = self.random.choice([0o644, 0o640])
        self.with_open("fchmod", lambda fd: os.fchmod(fd, mode))

    def do_fallocate(self):
        self.with_open("fallocate", lambda fd: os.posix_fallocate(fd, 0, 6000))

    def do_copyrange(self):
        if len(self.open_files) < 2:
            return
        one, two = self.random.sample(range(len(self.open_files)), 2)
        self.both(f"copy_file_range {one} {two}", lambda i, r: os.copy_file_range(
            self.open_files[one][i], self.open_files[two][i], 300, 0, 10))

    def do_fclose(self):
        if self.open_files:
            for fd in self.open_files.pop(self.random.randrange(len(self.open_files))).values():
                os.close(fd)

    def close_all(self):
        while self.open_files:
            self.do_fclose()


def populate(root, seed, steps=250):
    """A tree to start from, made by the same operations."""
    model = Model([root], seed)
    for _ in range(steps):
        model.step()
    model.close_all()
