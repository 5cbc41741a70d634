"""Runs many attempts of cofferdam-probe in one sandbox and gives back the outcome of each.

A Case is one attack with its control. An attack passes as a test when the probe says "blocked" (exit
10); a control passes when the probe says that the legitimate counterpart works (exit 0).
"""
import dataclasses
import os
import pathlib
import pwd
import shlex
import socket
import subprocess

BIN = pathlib.Path(os.environ["COFFERDAM_BIN"])
BLOCKED, WORKS = 10, 0


@dataclasses.dataclass
class Outcome:
    code: int
    text: str


@dataclasses.dataclass
class Project:
    """A workspace full of bait, and bait outside of it."""
    root: pathlib.Path          # holds everything below
    workspace: pathlib.Path
    outside: pathlib.Path       # a directory beside the workspace
    home: pathlib.Path
    sockets: list               # (listening socket, path)

    def close(self):
        for listener, path in self.sockets:
            listener.close()
            if path and os.path.exists(path):
                os.unlink(path)


def host_socket(path):
    listener = socket.socket(socket.AF_UNIX)
    if os.path.exists(path):
        os.unlink(path)
    listener.bind(str(path))
    os.chmod(path, 0o777)
    listener.listen(8)
    return listener


def make_project(root, probe, owner=None):
    root = pathlib.Path(root)
    workspace, outside, home = root / "project", root / "beside", root / "home"
    for directory in (workspace / "src", workspace / ".git" / "hooks", outside, home / ".ssh", home / ".aws"):
        directory.mkdir(parents=True)
    for name, text in {".env": "SECRET=1", ".env.example": "SECRET=", "src/main.c": "int main;", "id_rsa": "KEY",
                       ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n", "README": "readme"}.items():
        (workspace / name).write_text(text)
    (workspace / ".git" / "objects").mkdir()
    (workspace / ".git" / "refs").mkdir()
    (outside / "victim").write_text("outside")
    (home / ".ssh" / "id_ed25519").write_text("PRIVATE KEY")
    (home / ".aws" / "credentials").write_text("aws")
    foreign = workspace / "foreign_secret"
    foreign.write_text("of another user")
    (workspace / "probe").write_bytes(pathlib.Path(probe).read_bytes())
    (workspace / "probe").chmod(0o755)
    if owner:
        for path in [root, *root.rglob("*")]:
            os.lchown(path, owner.pw_uid, owner.pw_gid)
    os.chown(foreign, 12345, 12345)
    foreign.chmod(0o600)
    sockets = [(host_socket(path), path) for path in
               (workspace / "host.sock", "/usr/local/lib/cofferdam-escape-test.sock", outside / "host.sock")]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0cofferdam-escape-test")
    abstract.listen(1)
    sockets.append((abstract, None))
    return Project(root, workspace, outside, home, sockets)


@dataclasses.dataclass
class Runner:
    """One way to start a sandbox: engine, user, network namespace."""
    engine: str = "native"
    user: str = None            # an ordinary user's name, or None for root
    image: str = None
    netns: str = None

    def command(self, arguments, home):
        words = [str(BIN / "cofferdam"), *arguments]
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={home}", "LANG=C.UTF-8"]
        if os.environ.get("DOCKER_HOST"):
            environment.append("DOCKER_HOST=" + os.environ["DOCKER_HOST"])
        words = environment + words
        if self.user:
            words = ["runuser", "-u", self.user, "--"] + words
        if self.netns:
            # Not `ip netns exec`: it makes a mount namespace too, where a Docker daemon would not see our mounts.
            words = ["nsenter", f"--net=/run/netns/{self.netns}"] + words
        return words

    def run(self, project, argv, flags=(), timeout=120, **kwargs):
        engine = ["--engine", self.engine] if self.engine != "native" else []
        if self.image:
            engine += ["--image", self.image]
        words = self.command(["run", *engine, *flags, "--", *argv], project.home)
        return subprocess.run(words, cwd=project.workspace, timeout=timeout, stdin=subprocess.DEVNULL, **kwargs)

    def cofferdam(self, project, *arguments, timeout=60):
        return subprocess.run(self.command(list(arguments), project.home), cwd=project.workspace, timeout=timeout,
                              capture_output=True, stdin=subprocess.DEVNULL)


def run_battery(runner, project, attempts, flags=(), **kwargs):
    """attempts: {name: [probe arguments]}. One sandbox for all; {name: Outcome} comes back."""
    lines = ["#!/bin/sh", f"cd {shlex.quote(str(project.workspace))}"]
    for name, words in attempts.items():
        lines.append(f"echo {shlex.quote('@@ ' + name)}; ./probe {' '.join(shlex.quote(w) for w in words)}; echo \"@= $?\"")
    script = project.workspace / "battery.sh"
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    done = runner.run(project, ["/bin/sh", "./battery.sh"], flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                      **kwargs)
    outcomes, name, text = {}, None, []
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith("@@ "):
            name, text = line[3:], []
        elif line.startswith("@= ") and name:
            outcomes[name] = Outcome(int(line[3:]), " ".join(text))
        else:
            text.append(line)
    missing = set(attempts) - set(outcomes)
    assert not missing, f"not run: {missing}\nexit {done.returncode}\n{done.stderr.decode(errors='replace')}"
    return outcomes


def ordinary_user(name="cofferdam-test"):
    """An ordinary user, made where missing."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
        return pwd.getpwnam(name)
