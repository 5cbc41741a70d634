"""The cases of the conformance tests: each call under each condition that has an answer of its own."""
import ctypes
import os
import resource
import signal
import socket
import stat

from fsproxy_conformance import AT_FDCWD, GUEST, NOBODY, OTHER, raw

KINDS = ["absent", "file", "text", "dir", "full", "link", "dirlink", "dangling", "loop", "fifo", "sock"]
THINGS = ["file", "dir", "link", "fifo", "sock"]
LONG = "n" * 255
O_PATH = 0o10000000
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


class Cases(list):
    def case(self, name):
        def keep(function):
            self.append((name, function))
            return function
        return keep


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def utimensat(path, access, modify, flags=0):
    times = (Timespec * 2)(Timespec(*access), Timespec(*modify))
    return raw("utimensat", AT_FDCWD, os.fsencode(path), times, flags)


def renameat2(a, b, flags):
    return raw("renameat2", AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), flags)


def path_calls(c, name, other="other"):
    """Every call that takes a path, at a name that somebody must refuse or must not."""
    p = c.p(name)
    return [
        ("open", lambda: os.close(os.open(p, os.O_RDONLY | os.O_NONBLOCK))),
        ("creat", lambda: os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644))),
        ("chmod", lambda: os.chmod(p, 0o600)), ("chown", lambda: os.chown(p, -1, -1)),
        ("lchown", lambda: os.lchown(p, -1, -1)), ("link from", lambda: os.link(p, c.p(other))),
        ("link to", lambda: os.link(c.p("there"), p)), ("mkdir", lambda: os.mkdir(p)),
        ("mkfifo", lambda: os.mkfifo(p)), ("mknod", lambda: os.mknod(p, stat.S_IFREG | 0o644)),
        ("rename from", lambda: os.rename(p, c.p(other))), ("rename to", lambda: os.rename(c.p("there2"), p)),
        ("rmdir", lambda: os.rmdir(p)), ("symlink", lambda: os.symlink("x", p)),
        ("truncate", lambda: os.truncate(p, 0)), ("unlink", lambda: os.unlink(p)),
        ("utimensat", lambda: os.utime(p)), ("stat", lambda: os.stat(p) and None),
        ("lstat", lambda: os.lstat(p) and None), ("readlink", lambda: os.readlink(p)),
        ("access", lambda: raw("access", os.fsencode(p), os.F_OK)), ("statvfs", lambda: os.statvfs(p) and None)]


def names():
    """Names that lead nowhere, or further than a name may."""
    cases = Cases()
    bad = {"below a file": "file/x", "below a missing one": "absent/x", "long": LONG, "longer": LONG + "n",
           "longer below": f"{LONG}n/x", "path of 4095": None, "path of 4096": None, "loop": "loop", "below a loop": "loop/x",
           "fifo below": "fifo/x", "with a slash": "file/", "dir with a slash": "dir/", "missing with a slash": "absent/",
           "dot": "dir/.", "dots": "dir/..", "link with a slash": "link/", "dirlink with a slash": "dirlink/",
           "dangling with a slash": "dangling/", "empty": ""}
    for what, name in bad.items():
        for index in range(22):
            @cases.case(f"name {what} {index}")
            def _(c, name=name, what=what, index=index):
                c.make("file", "file")
                c.make("dir", "dir")
                c.make("loop", "loop")
                c.make("fifo", "fifo")
                c.make("link", "link")
                c.make("dirlink", "dirlink")
                c.make("dangling", "dangling")
                c.make("there", "file")
                c.make("there2", "dir" if index % 2 else "file")
                yield
                if what.startswith("path of"):
                    room = int(what.split()[-1]) - len(c.base) - 1
                    name = ("./" * (room // 2 - 5)) + "file".rjust(room - 2 * (room // 2 - 5), "/")
                if what == "empty":
                    calls = [("open", lambda: os.open("", os.O_RDONLY)), ("unlink", lambda: os.unlink(""))]
                else:
                    calls = path_calls(c, name)
                if index < len(calls):
                    c.call(calls[index][1])
    for index, function in enumerate(["open", "chmod", "chown", "lchown", "link", "mkdir", "mkfifo", "mknod", "rename",
                                      "rmdir", "symlink", "truncate", "unlink", "access", "readlink"]):
        @cases.case(f"address {function}")
        def _(c, function=function):
            c.make("file", "file")
            yield
            nowhere = ctypes.c_void_p(8)
            good = os.fsencode(c.p("file"))
            second = {"link": good, "rename": good, "symlink": good, "readlink": ctypes.create_string_buffer(9)}.get(function, 0)
            c.call(raw, function, nowhere, second, 0)
            if function in ("link", "rename", "symlink"):
                c.call(raw, function, good, nowhere)
    return cases


def opening():
    cases = Cases()
    base = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
    extra = [0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_NOFOLLOW, os.O_DIRECTORY,
             os.O_CREAT | os.O_DIRECTORY, os.O_APPEND, os.O_CREAT | os.O_NOFOLLOW, O_PATH, O_PATH | os.O_NOFOLLOW,
             os.O_TMPFILE, os.O_NOATIME, os.O_DIRECT, os.O_SYNC | os.O_CREAT]
    for kind in KINDS:
        for access in base:
            for more in extra:
                @cases.case(f"open {kind} {access} {oct(more)}")
                def _(c, kind=kind, flags=access | more):
                    c.make("obj", kind)
                    yield
                    c.open("obj", flags | os.O_NONBLOCK, 0o4751 if flags & os.O_CREAT else 0o640)
    for who in ("owner", "member", "stranger"):
        for mode in (0o000, 0o100, 0o200, 0o400, 0o600, 0o060, 0o040, 0o020, 0o006, 0o004, 0o002, 0o700, 0o070, 0o007):
            for kind in ("text", "dir", "fifo"):
                @cases.case(f"open {kind} {oct(mode)} as {who}")
                def _(c, who=who, mode=mode, kind=kind):
                    c.make("obj", kind, mode, (NOBODY, NOBODY))
                    yield
                    with c.being(who):
                        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_NOATIME):
                            c.open("obj", flags | os.O_NONBLOCK)
                        for wanted in (os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK):
                            c.call(raw, "faccessat", AT_FDCWD, os.fsencode(c.p("obj")), wanted, 0x200)
                        if kind == "dir":
                            c.call(lambda: sorted(os.listdir(c.p("obj"))))
                            c.call(os.mkdir, c.p("obj/new"))
                            c.call(os.stat, c.p("obj/new"))
        for mode in (0o755, 0o777, 0o1777, 0o2777, 0o2775, 0o775, 0o555, 0o666, 0o733):
            for kind in ("absent", "file"):
                @cases.case(f"create {kind} in {oct(mode)} as {who}")
                def _(c, who=who, mode=mode, kind=kind):
                    c.make("d", "dir", None, (NOBODY, NOBODY))
                    c.make("d/obj", kind)
                    os.chmod(c.p("d"), mode)
                    yield
                    with c.being(who, 0o026):
                        c.open("d/obj", os.O_CREAT | os.O_WRONLY, 0o6777)
                        c.open("d/another", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o2771)
    for mask in (0, 0o022, 0o077, 0o151, 0o345, 0o501, 0o777):
        @cases.case(f"umask {oct(mask)}")
        def _(c, mask=mask):
            yield
            with c.being("root", mask):
                for mode in (0o755, 0o777, 0o1777, 0o6777, 0o151, 0):
                    c.open(f"f{mode}", os.O_CREAT | os.O_WRONLY, mode)
                    c.call(os.mkdir, c.p(f"d{mode}"), mode)
                    c.call(os.mkfifo, c.p(f"p{mode}"), mode)
                    c.call(os.mknod, c.p(f"s{mode}"), stat.S_IFSOCK | mode)
                    c.call(os.mknod, c.p(f"n{mode}"), mode)

    @cases.case("a running program")
    def _(c):
        with open("/bin/sleep", "rb") as f:
            program = f.read()
        with open(c.p("run"), "wb") as f:
            f.write(program)
        os.chmod(c.p("run"), 0o755)
        yield
        pid = os.posix_spawn(c.p("run"), ["run", "30"], {})
        # Not for reading with O_TRUNC: of that, FUSE asks who runs it only afterwards.
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
            c.open("run", flags)
        c.call(os.truncate, c.p("run"), 0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        fd = os.open(c.p("run"), os.O_WRONLY)
        try:
            c.call(os.posix_spawn, c.p("run"), ["run", "0"], {})
        finally:
            os.close(fd)

    @cases.case("fifo and socket")
    def _(c):
        c.make("fifo", "fifo")
        c.make("sock", "sock")
        yield
        c.open("fifo", os.O_WRONLY | os.O_NONBLOCK)
        c.open("sock", os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as s:
            here = os.getcwd()
            os.chdir(c.base)
            try:
                c.call(s.connect, "sock")
                c.call(s.bind, "fifo")
                c.call(s.bind, "bound")
                c.call(s.listen)
                with socket.socket(socket.AF_UNIX) as to:
                    c.call(to.connect, "bound")
            finally:
                os.chdir(here)

    @cases.case("limits of a size")
    def _(c):
        c.make("obj", "text")
        yield
        fd = os.open(c.p("obj"), os.O_RDWR)
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
        try:
            c.call(os.truncate, c.p("obj"), 1001)
            c.call(os.ftruncate, fd, 1001)
            c.call(os.ftruncate, fd, 1000)
            c.call(os.pwrite, fd, b"x" * 10, 995)
            c.call(os.pwrite, fd, b"x" * 10, 1000)
            c.call(os.posix_fallocate, fd, 0, 2000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            os.close(fd)
        for size in (-1, -(1 << 62)):
            c.call(os.truncate, c.p("obj"), size)
    return cases


def modes():
    cases = Cases()
    wanted = [0, 0o111, 0o644, 0o777, 0o1777, 0o2755, 0o2644, 0o4755, 0o6555, 0o7777]
    for kind in KINDS:
        for mode in wanted:
            @cases.case(f"chmod {kind} {oct(mode)}")
            def _(c, kind=kind, mode=mode):
                c.make("obj", kind)
                yield
                c.call(os.chmod, c.p("obj"), mode)
                c.call(os.lstat, c.p("obj"))
    for kind in ("file", "dir", "fifo", "sock", "link"):
        for who in ("owner", "member", "stranger"):
            for group in (NOBODY, OTHER, GUEST, 0):
                @cases.case(f"chmod {kind} of group {group} as {who}")
                def _(c, kind=kind, who=who, group=group):
                    c.make("obj", kind, 0o644, (NOBODY, group))
                    yield
                    with c.being(who):
                        for mode in (0o2755, 0o4755, 0o1755, 0o2644, 0o0640):
                            c.call(os.chmod, c.p("obj"), mode)
                            c.call(os.lstat, c.p("obj"))
                        fd = c.call(os.open, c.p("obj"), os.O_RDONLY | os.O_NONBLOCK)
                        if fd is not None:
                            c.results.pop()
                            c.call(os.fchmod, fd, 0o2711)
                            os.close(fd)
    for kind in THINGS + ["dangling"]:
        for who in ("root", "owner", "guest", "stranger"):
            for ids in ((-1, -1), (NOBODY, -1), (-1, NOBODY), (OTHER, -1), (-1, OTHER), (-1, GUEST), (NOBODY, GUEST), (0, 0),
                        (OTHER, OTHER), (123456, 234567)):
                for mode in (0o644, 0o6755) if kind != "dangling" else (0o777,):
                    @cases.case(f"chown {kind} {oct(mode)} to {ids} as {who}")
                    def _(c, kind=kind, who=who, ids=ids, mode=mode):
                        c.make("obj", kind, mode, (NOBODY, NOBODY))
                        yield
                        with c.being(who):
                            c.call(os.lchown, c.p("obj"), *ids)
                            c.call(os.lstat, c.p("obj"))
                            c.call(os.chown, c.p("obj"), *ids)
                            c.call(os.stat, c.p("obj"))
    for who in ("root", "owner", "member", "stranger"):
        # Without the right to execute, the kernel does not tell whose group the caller is in.
        for mode in (0o4777, 0o2777, 0o6777, 0o6711, 0o4722):
            for act in ("write", "truncate", "ftruncate", "open", "fallocate", "same"):
                @cases.case(f"{act} of {oct(mode)} as {who}")
                def _(c, who=who, mode=mode, act=act):
                    c.make("obj", "text", mode, (NOBODY, NOBODY))
                    yield
                    with c.being(who):
                        if act in ("truncate", "same"):
                            c.call(os.truncate, c.p("obj"), 5 if act == "truncate" else 10)
                        elif act == "open":
                            c.open("obj", os.O_WRONLY | os.O_TRUNC)
                        else:
                            fd = c.call(os.open, c.p("obj"), os.O_WRONLY)
                            c.results.pop()
                            if fd is not None:
                                if act == "write":
                                    c.call(os.write, fd, b"x")
                                elif act == "ftruncate":
                                    c.call(os.ftruncate, fd, 5)
                                else:
                                    c.call(os.posix_fallocate, fd, 0, 100)
                                os.close(fd)
                        c.call(os.lstat, c.p("obj"))
    return cases


def making():
    cases = Cases()
    calls = {"mkdir": lambda p: os.mkdir(p, 0o755), "mkfifo": lambda p: os.mkfifo(p, 0o755), "mksock": lambda p: os.mknod(p, stat.S_IFSOCK | 0o755),
             "mkreg": lambda p: os.mknod(p, 0o644), "symlink": lambda p: os.symlink("some/where", p)}
    for call, function in calls.items():
        for kind in KINDS:
            @cases.case(f"{call} over {kind}")
            def _(c, function=function, kind=kind):
                c.make("obj", kind)
                yield
                c.call(function, c.p("obj"))
        for who in ("owner", "member", "stranger"):
            for mode in (0o755, 0o777, 0o1777, 0o2777, 0o2770, 0o555, 0o666):
                @cases.case(f"{call} in {oct(mode)} as {who}")
                def _(c, function=function, who=who, mode=mode):
                    c.make("d", "dir", mode, (NOBODY, GUEST))
                    yield
                    with c.being(who):
                        c.call(function, c.p("d/new"))
    for length in (1, 59, 60, 255, 1000, 4094, 4095, 4096):
        @cases.case(f"symlink of {length}")
        def _(c, length=length):
            yield
            c.call(os.symlink, "t" * length, c.p("l"))
            c.call(os.readlink, c.p("l"))
    for kind in KINDS:
        for target in ("absent", "file", "dir", "link"):
            for follow in (0, 0x400):
                @cases.case(f"link {kind} over {target} {follow}")
                def _(c, kind=kind, target=target, follow=follow):
                    c.make("obj", kind)
                    c.make("to", target)
                    yield
                    c.call(raw, "linkat", AT_FDCWD, os.fsencode(c.p("obj")), AT_FDCWD, os.fsencode(c.p("to")), follow)
    for who in ("owner", "member", "stranger"):
        for source in (0o755, 0o777, 0o700):
            for target in (0o755, 0o777, 0o555):
                for mode in (0o644, 0o666, 0o4777):
                    @cases.case(f"link of {oct(mode)} from {oct(source)} to {oct(target)} as {who}")
                    def _(c, who=who, source=source, target=target, mode=mode):
                        c.make("a", "dir", None, (NOBODY, NOBODY))
                        c.make("a/f", "file", mode, (NOBODY, NOBODY))
                        os.chmod(c.p("a"), source)
                        c.make("b", "dir", target, (OTHER, OTHER))
                        yield
                        with c.being(who):
                            c.call(os.link, c.p("a/f"), c.p("b/f"))
    @cases.case("devices are the design's to refuse")
    def _(c):
        yield
        with c.being("stranger"):
            c.call(os.mknod, c.p("dev"), stat.S_IFCHR | 0o644, 0)

    @cases.case("unlinked and open")
    def _(c):
        c.make("obj", "text")
        yield
        fd = os.open(c.p("obj"), os.O_RDWR)
        os.link(c.p("obj"), c.p("second"))
        c.call(os.fstat, fd)
        os.unlink(c.p("obj"))
        c.call(os.fstat, fd)
        os.unlink(c.p("second"))
        c.call(os.fstat, fd)
        c.call(os.pwrite, fd, b"more", 10)
        c.call(os.fchmod, fd, 0o4600)
        c.call(os.fchown, fd, NOBODY, OTHER)
        c.call(os.fstat, fd)
        c.call(os.ftruncate, fd, 3)
        c.call(os.pread, fd, 100, 0)
        c.call(raw, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(c.p("again")), 0x400)
        os.close(fd)

    @cases.case("nameless")
    def _(c):
        yield
        with c.being("stranger"):
            pass
        fd = os.open(c.base, os.O_RDWR | os.O_TMPFILE, 0o640)
        c.call(os.fchown, fd, NOBODY, OTHER)
        c.call(os.fchmod, fd, 0o4711)
        c.call(os.fstat, fd)
        c.call(raw, "linkat", AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(c.p("named")), 0x400)
        c.call(os.fstat, fd)
        os.close(fd)
    return cases


def removing():
    cases = Cases()
    for call in ("unlink", "rmdir", "remove"):
        function = getattr(os, call)
        for kind in KINDS:
            @cases.case(f"{call} {kind}")
            def _(c, function=function, kind=kind):
                c.make("obj", kind)
                yield
                c.call(function, c.p("obj"))
    for kind in ("file", "dir", "link", "fifo"):
        for who in ("root", "owner", "stranger"):
            for mode in (0o755, 0o777, 0o1777, 0o1775, 0o333, 0o555):
                for above in (NOBODY, OTHER, 0):
                    for owner in (NOBODY, OTHER, 0):
                        @cases.case(f"remove {kind} of {owner} in {oct(mode)} of {above} as {who}")
                        def _(c, kind=kind, who=who, mode=mode, above=above, owner=owner):
                            c.make("d", "dir", None, (above, above))
                            c.make("d/obj", kind, None, (owner, owner))
                            c.make("free", "dir", 0o777)
                            os.chmod(c.p("d"), mode)
                            yield
                            with c.being(who):
                                c.call(os.rename, c.p("d/obj"), c.p("d/moved"))
                                c.call(os.rename, c.p("d/obj"), c.p("free/moved"))
                                c.call(os.rename, c.p("d/moved"), c.p("d/obj"))
                                c.call(os.rename, c.p("free/moved"), c.p("d/obj"))
                                c.call(os.rmdir if kind == "dir" else os.unlink, c.p("d/obj"))

    @cases.case("odd directories")
    def _(c):
        c.make("d", "dir")
        c.make("e", "dir")
        c.make("e/f", "dir")
        yield
        here = os.getcwd()
        os.chdir(c.base)
        for name in ("d/.", "d/..", "e/f/..", "e", ".", ".."):
            c.call(os.rmdir, name)
            c.call(os.rename, name, "elsewhere")
            c.call(os.rename, "d", name)
        if os.path.isdir(c.p("d")):
            os.chdir(c.p("d"))
        else:
            os.chdir(c.p("elsewhere"))
        fd = os.open(".", os.O_RDONLY)
        c.call(os.rmdir, os.path.join(c.base, os.path.basename(os.getcwd())))
        c.call(os.fstat, fd)
        c.call(os.mkdir, "new")
        c.call(lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY)))
        c.call(os.listdir, fd)
        c.call(os.fchmod, fd, 0o700)
        c.call(os.fstat, fd)
        c.call(lambda: len(os.getcwd()) > 0)
        os.close(fd)
        os.chdir(here)
    return cases


def moving():
    cases = Cases()
    for source in KINDS:
        for target in KINDS:
            for apart in (False, True):
                @cases.case(f"rename {source} over {target} {'apart' if apart else 'beside'}")
                def _(c, source=source, target=target, apart=apart):
                    if apart:
                        c.make("a", "dir")
                        c.make("b", "dir")
                    a, b = ("a/obj", "b/to") if apart else ("obj", "to")
                    c.make(a, source)
                    c.make(b, target)
                    yield
                    c.call(os.rename, c.p(a), c.p(b))
            for flags in (1, 2, 3, 4, 8):
                @cases.case(f"rename {source} over {target} with {flags}")
                def _(c, source=source, target=target, flags=flags):
                    c.make("obj", source)
                    c.make("to", target)
                    yield
                    if flags != 4:  # a whiteout is not for the workload to make
                        c.call(renameat2, c.p("obj"), c.p("to"), flags)

    @cases.case("rename into itself")
    def _(c):
        c.make("a", "dir")
        c.make("a/b", "dir")
        c.make("a/b/c", "dir")
        c.make("f", "file")
        os.link(c.p("f"), c.p("g"))
        yield
        for a, b in (("a", "a"), ("a", "a/b"), ("a", "a/b/c"), ("a", "a/b/new"), ("a/b", "a"), ("a/b/c", "a"), ("f", "f"), ("f", "g"),
                     ("g", "f"), ("f", "a/b"), ("a/b", "f")):
            c.call(os.rename, c.p(a), c.p(b))
            c.call(renameat2, c.p(a), c.p(b), 2)

    @cases.case("directories move their links")
    def _(c):
        for name in ("a", "b", "a/x", "a/x/y", "a/z", "b/w", "b/e"):
            c.make(name, "dir")
        yield
        c.call(os.rename, c.p("a/x"), c.p("b/x"))
        c.call(os.rename, c.p("a/z"), c.p("b/e"))
        c.call(os.mkdir, c.p("a/new"))
        c.call(os.rmdir, c.p("b/w"))
    for who in ("owner", "stranger"):
        for a_mode in (0o755, 0o777, 0o555, 0o1777):
            for b_mode in (0o755, 0o777, 0o555, 0o1777):
                for owner in (NOBODY, OTHER):
                    for kind in ("file", "dir"):
                        @cases.case(f"rename {kind} of {owner} from {oct(a_mode)} to {oct(b_mode)} as {who}")
                        def _(c, who=who, a_mode=a_mode, b_mode=b_mode, owner=owner, kind=kind):
                            c.make("a", "dir", None, (NOBODY, NOBODY))
                            c.make("b", "dir", None, (OTHER, OTHER))
                            c.make("a/obj", kind, None, (owner, owner))
                            c.make("b/to", kind, None, (NOBODY, NOBODY))
                            os.chmod(c.p("a"), a_mode)
                            os.chmod(c.p("b"), b_mode)
                            yield
                            with c.being(who):
                                c.call(os.rename, c.p("a/obj"), c.p("b/to"))
                                c.call(os.rename, c.p("a/obj"), c.p("b/new"))
    return cases


def sizes_and_times():
    cases = Cases()
    for kind in KINDS:
        for size in (-1, 0, 1, 10, 12345, 1 << 33):
            @cases.case(f"truncate {kind} to {size}")
            def _(c, kind=kind, size=size):
                c.make("obj", kind)
                yield
                c.call(os.truncate, c.p("obj"), size)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, O_PATH):
        for size in (-1, 0, 10, 12345):
            @cases.case(f"ftruncate to {size} of {flags}")
            def _(c, flags=flags, size=size):
                c.make("obj", "text")
                yield
                fd = os.open(c.p("obj"), flags)
                c.call(os.ftruncate, fd, size)
                os.close(fd)
        for at, length in ((0, 0), (-1, 10), (0, -1), (0, 100), (5, 20), (1 << 40, 4096), (1 << 62, 1 << 62)):
            @cases.case(f"fallocate {at} {length} of {flags}")
            def _(c, flags=flags, at=at, length=length):
                c.make("obj", "text")
                yield
                fd = os.open(c.p("obj"), flags)
                c.call(os.posix_fallocate, fd, at, length)
                os.close(fd)
    for kind in ("dir", "fifo"):
        @cases.case(f"fallocate of {kind}")
        def _(c, kind=kind):
            c.make("obj", kind)
            yield
            fd = os.open(c.p("obj"), (os.O_RDONLY if kind == "dir" else os.O_RDWR) | os.O_NONBLOCK)
            c.call(os.posix_fallocate, fd, 0, 10)
            c.call(os.ftruncate, fd, 10)
            os.close(fd)
    for who in ("owner", "member", "stranger"):
        for mode in (0o644, 0o444, 0o666, 0o222, 0o060, 0o000):
            @cases.case(f"truncate {oct(mode)} as {who}")
            def _(c, who=who, mode=mode):
                c.make("obj", "text", mode, (NOBODY, NOBODY))
                yield
                with c.being(who):
                    c.call(os.truncate, c.p("obj"), 3)
            for index, (access, modify) in enumerate((((0, UTIME_NOW), (0, UTIME_NOW)), ((0, UTIME_OMIT), (0, UTIME_OMIT)),
                                                      ((0, UTIME_NOW), (0, UTIME_OMIT)), ((5, 6), (7, 8)), ((5, 6), (0, UTIME_OMIT)))):
                @cases.case(f"times {index} {oct(mode)} as {who}")
                def _(c, who=who, mode=mode, access=access, modify=modify):
                    c.make("obj", "text", mode, (NOBODY, NOBODY))
                    yield
                    with c.being(who):
                        c.call(utimensat, c.p("obj"), access, modify)
    times = [(0, 0), (1, 999999999), (-1, 0), (-86400, 123456789), (-(1 << 31), 0), (1 << 31, 1), (1 << 32, 5), (4200000000, 999999999),
             (15032385535, 0), (1 << 35, 0), (-(1 << 33), 7), (0, 1000000000), (0, -1), (0, UTIME_NOW), (0, UTIME_OMIT)]
    for kind in THINGS + ["absent", "dangling", "loop"]:
        for index, when in enumerate(times):
            for flags in (0, 0x100):
                @cases.case(f"times {index} of {kind} {flags}")
                def _(c, kind=kind, when=when, flags=flags):
                    c.make("obj", kind)
                    yield
                    c.call(utimensat, c.p("obj"), when, (5, 6), flags)
                    c.call(utimensat, c.p("obj"), (0, UTIME_OMIT), when, flags)
                    for name in ("obj.to",) if kind == "link" and not flags else ("obj",):
                        if c.results[:2] == [0, 0] and abs(when[1]) < UTIME_OMIT and os.path.lexists(c.p(name)):
                            st = os.lstat(c.p(name))
                            told = st.st_mtime_ns, st.st_atime_ns
                            c.results.append([ns if abs(ns // 10**9 - when[0]) < 10 or ns // 10**9 == 5 or when[0] > 1 << 33 or when[0] < -1 << 31
                                              else "now" for ns in told])

    @cases.case("writes and their times")
    def _(c):
        c.make("obj", "text")
        yield
        fd = os.open(c.p("obj"), os.O_RDWR)
        c.call(os.pwrite, fd, b"", 0)
        c.call(os.pread, fd, 10, 0)
        c.call(os.lseek, fd, 100, os.SEEK_SET)
        os.close(fd)
    return cases


GROUPS = {"names": names, "opening": opening, "modes": modes, "making": making, "removing": removing, "moving": moving,
          "sizes_and_times": sizes_and_times}
