"""A daemon that makes other containers than it was asked for, and says that they are as asked.

It stands between the program under test and the real daemon, on a Unix socket of its own: requests to create a
workload container are changed on their way, and what was asked for is put into every later description of it.
"""
import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import threading


def read_head(stream):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    return head


def read_body(stream, head):
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    if found:
        return stream.read(int(found.group(1)))
    if re.search(rb"(?im)^transfer-encoding: *chunked", head):
        body = b""
        while True:
            size = int(stream.readline().split(b";")[0], 16)
            body += stream.read(size)
            stream.readline()
            if size == 0:
                return body
    return b""


def with_body(head, body):
    lines = [line for line in head.rstrip(b"\r\n").split(b"\r\n")
             if not re.match(rb"(?i)(content-length|transfer-encoding|connection):", line)]
    lines += [b"Content-Length: %d" % len(body), b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Liar:
    def __init__(self, real, change, tells_the_truth):
        self.real, self.change, self.tells_the_truth = real, change, tells_the_truth
        self.asked = {}  # container id → the request before the change

    def serve(self, peer):
        with contextlib.suppress(OSError, ValueError), peer:
            stream = peer.makefile("rb")
            head = read_head(stream)
            if head is None:
                return
            body = read_body(stream, head)
            asked = None
            if b"POST" in head.split(b"\r\n")[0] and b"/containers/create" in head.split(b"\r\n")[0]:
                asked = json.loads(body)
                changed = json.loads(body)
                if changed["Labels"].get("dev.cofferdam.role") == "workload":
                    self.change(changed)
                body = json.dumps(changed).encode()
            with socket.socket(socket.AF_UNIX) as upstream:
                upstream.connect(self.real)
                upstream.sendall(with_body(head, body))
                answer_stream = upstream.makefile("rb")
                answer_head = read_head(answer_stream)
                answer = read_body(answer_stream, answer_head)
            if asked is not None and answer.startswith(b"{"):
                created = json.loads(answer).get("Id")
                if created:
                    self.asked[created] = asked
            peer.sendall(with_body(answer_head, self.lie(head, answer)))

    def lie(self, head, answer):
        found = re.search(rb"GET [^ ]*/containers/([^/ ]+)/json ", head)
        if self.tells_the_truth or not found or not answer.startswith(b"{"):
            return answer
        described = json.loads(answer)
        asked = self.asked.get(described.get("Id"))
        if asked is None:
            return answer
        described["HostConfig"] = asked["HostConfig"]
        described["Config"].update({key: value for key, value in asked.items() if key != "HostConfig"})
        wanted = {mount["Target"] for mount in asked["HostConfig"]["Mounts"]}
        described["Mounts"] = [mount for mount in described["Mounts"] if mount["Destination"] in wanted]
        described["NetworkSettings"]["Networks"] = {}
        return json.dumps(described).encode()


@contextlib.contextmanager
def daemon(host, change, tells_the_truth=True):
    """The value of DOCKER_HOST for the detour."""
    directory = tempfile.mkdtemp(prefix="cofferdam-liar-", dir="/tmp")
    path = os.path.join(directory, "docker.sock")
    liar = Liar(host.removeprefix("unix://"), change, tells_the_truth)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)

    def accept():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=liar.serve, args=(peer,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"unix://{path}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        shutil.rmtree(directory, ignore_errors=True)
