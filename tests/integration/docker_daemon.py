"""A Docker daemon for tests: the machine's own where one answers, else one of our own, ended afterwards.

    with docker_daemon.daemon() as daemon:
        ...  # DOCKER_HOST is set; daemon.busybox_image and daemon.host_image() are local images
"""
import contextlib
import dataclasses
import io
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

import pytest

BUSYBOX_APPLETS = ("sh", "ls", "cat", "id", "mount", "ip", "sleep", "stat", "grep", "env", "ps", "hostname", "true", "touch",
                   "echo", "mkdir", "rm", "cp", "mv", "ln", "wc", "head", "seq", "kill", "test", "printf", "tty")
# What the shared engine cases run inside.
HOST_PROGRAMS = ("sh", "bash", "env", "cat", "ls", "cp", "mv", "rm", "mkdir", "touch", "true", "false", "sleep", "head", "seq",
                 "yes", "tty", "df", "id", "wc", "stat", "ln", "chmod", "grep", "uname", "unshare", "python3",
                 "readlink", "date")


@dataclasses.dataclass
class Daemon:
    host: str                    # the value of DOCKER_HOST
    own: bool                    # started here
    process: subprocess.Popen = None
    busybox_image: str = ""
    images: list = dataclasses.field(default_factory=list)

    def docker(self, *words, **kwargs):
        kwargs.setdefault("check", True)
        return subprocess.run(["docker", "--host", self.host, *words], capture_output=True, timeout=120, **kwargs)

    def import_image(self, name, layer, *changes):
        options = [word for change in changes for word in ("--change", change)]
        self.docker("import", *options, "-", name, input=layer)
        self.images.append(name)
        return name

    def host_image(self):
        """A few dynamically linked programs of this machine, Python among them."""
        name = f"cofferdam-test/host-{os.getpid()}:1"
        if name in self.images:
            return name
        return self.import_image(name, make_host_layer(), "ENV PATH=/usr/bin:/bin", "ENV FROM_IMAGE=yes",
                                 "ENV http_proxy=http://192.0.2.9:1", "VOLUME /data", "USER 5:5",
                                 "HEALTHCHECK --interval=1s CMD touch /data/health")

    def containers(self, sandbox):
        done = self.docker("ps", "--all", "--no-trunc", "--quiet", "--filter", f"label=dev.cofferdam.sandbox={sandbox}")
        return done.stdout.decode().split()


def make_busybox_layer():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add("/usr/bin/busybox", "bin/busybox")
        for applet in BUSYBOX_APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        add_passwd(tar)
    return buffer.getvalue()


def add_passwd(tar):
    text = b"root:x:0:0:root:/root:/bin/sh\n"
    entry = tarfile.TarInfo("etc/passwd")
    entry.size, entry.mode = len(text), 0o644
    tar.addfile(entry, io.BytesIO(text))


def libraries_of(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return {word for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")}


def make_host_layer():
    files = set()
    links = []
    for name in HOST_PROGRAMS:
        found = "/usr/bin/python3" if name == "python3" else shutil.which(name, path="/usr/bin:/bin")
        real = os.path.realpath(found)
        files |= {real} | libraries_of(real)
        if real != f"/usr/bin/{name}":
            links.append((f"usr/bin/{name}", real))
    python = os.path.realpath("/usr/bin/python3")
    library = pathlib.Path("/usr/lib") / os.path.basename(python)
    for module in (library / "lib-dynload").glob("*.so"):
        files |= libraries_of(str(module))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files):
            real = os.path.realpath(path)
            tar.add(real, real.lstrip("/"), recursive=False)
            if real != os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)):
                links.append((os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)).lstrip("/"), real))
        for name, target in dict(links).items():
            add_link(tar, name, target)
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                add_link(tar, name, f"usr/{name}")
        tar.add(str(library), str(library).lstrip("/"), filter=without_bulk)
        add_passwd(tar)
    return buffer.getvalue()


def make_program_layer(programs):
    """Named programs of this machine (or their paths), by the shell's name below /usr/bin, with their libraries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        added = set()
        for name in programs:
            real = os.path.realpath(shutil.which(name, path="/usr/bin:/bin") or name)
            for path in sorted({f"/usr/bin/{os.path.basename(name)}": real, **{p: p for p in libraries_of(real)}}.items()):
                if path[0] not in added:
                    added.add(path[0])
                    tar.add(os.path.realpath(path[1]), os.path.join(os.path.realpath(os.path.dirname(path[0])),
                                                                    os.path.basename(path[0])).lstrip("/"), recursive=False)
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                add_link(tar, name, f"usr/{name}")
        add_passwd(tar)
    return buffer.getvalue()


def add_link(tar, name, target):
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar.addfile(link)


def without_bulk(entry):
    name = os.path.basename(entry.name)
    return None if name in ("test", "idlelib", "tkinter", "ensurepip", "lib2to3") or name.startswith("config-") else entry


def answers(host):
    words = ["docker", *(["--host", host] if host else []), "info"]
    try:
        return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def mounts_below(directory):
    points = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((p for p in points if p == directory or p.startswith(directory + "/")), key=len, reverse=True)


WITHOUT_NETWORKS = ("--bridge=none", "--iptables=false", "--ip6tables=false")


def start_daemon(directory, prefix=(), options=WITHOUT_NETWORKS):
    """`prefix` starts it elsewhere: a network namespace of the test's is its whole world then."""
    socket = f"{directory}/docker.sock"
    with open(f"{directory}/log", "wb") as log:
        process = subprocess.Popen(
            [*prefix, "dockerd", "--host", f"unix://{socket}", "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec",
             "--pidfile", f"{directory}/pid", *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if os.path.exists(socket) and answers(f"unix://{socket}"):
            return process, f"unix://{socket}"
        time.sleep(0.3)
    stop(process, directory)
    said = pathlib.Path(f"{directory}/log").read_text(errors="replace")[-2000:]
    pytest.skip(f"no Docker daemon answers and none can be started here: {said}")


def stop(process, directory):
    """Ends the daemon by its own pid, and unmounts what it left."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for point in mounts_below(directory):
        subprocess.run(["umount", "--lazy", point], check=False)


@contextlib.contextmanager
def daemon_in(namespace, dns):
    """A daemon of our own whose bridges and rules are in that network namespace, and nowhere else; `dns` is what it
    forwards names to."""
    if not shutil.which("dockerd"):
        pytest.skip("no dockerd")
    directory = tempfile.mkdtemp(prefix="cofferdam-dockerd-", dir="/var/tmp")
    process, host = start_daemon(directory, ["nsenter", f"--net=/run/netns/{namespace}"], ["--ip6tables=false", "--dns", dns])
    try:
        yield Daemon(host=host, own=True, process=process)
    finally:
        stop(process, directory)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def daemon():
    if os.geteuid() != 0:
        pytest.skip("the docker engine needs root")
    if not shutil.which("docker"):
        pytest.skip("no docker command")
    before = os.environ.get("DOCKER_HOST")
    directory = None
    if answers(None):
        made = Daemon(host=before or "unix:///var/run/docker.sock", own=False)
    else:
        if not shutil.which("dockerd"):
            pytest.skip("no Docker daemon answers, and there is no dockerd to start one")
        directory = tempfile.mkdtemp(prefix="cofferdam-dockerd-", dir="/var/tmp")
        process, host = start_daemon(directory)
        made = Daemon(host=host, own=True, process=process)
    try:
        os.environ["DOCKER_HOST"] = made.host
        made.busybox_image = made.import_image(f"cofferdam-test/busybox-{os.getpid()}:1", make_busybox_layer(),
                                               "ENV PATH=/bin")
        yield made
    finally:
        for image in made.images:
            made.docker("image", "rm", "--force", image, check=False)
        if before is None:
            os.environ.pop("DOCKER_HOST", None)
        else:
            os.environ["DOCKER_HOST"] = before
        if made.own:
            stop(made.process, directory)
            shutil.rmtree(directory, ignore_errors=True)
