"""Real programs as clients of the gate: each does a day's work with what a rule allows, and is told where it is refused."""
import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
import time
import zipfile

import pytest

from world import Gate, World, listen_in, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

V4, GIT4, FILES4 = "93.184.216.34", "93.184.216.36", "93.184.216.35"
SITE, GIT, REGISTRY, INDEX, PACKAGES, CRATES, DENIED = (
    "site.example.com", "git.example.com", "registry.example.com", "index.example.com", "apt.example.com", "crates.example.com",
    "denied.example.com")
PROXY = "http://127.0.0.1:3128"


class Files:
    """A web server of `routes`: path → bytes, or a function of the request's handler."""

    def __init__(self, world, address, port, routes, names=None):
        self.routes = routes
        context = world._certificate(names) if names else None
        self._sock = listen_in(world.internet, address, port)
        threading.Thread(target=self._accept, args=(context,), daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _accept(self, context):
        while True:
            try:
                connection, peer = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, peer, context), daemon=True).start()

    def _serve(self, connection, peer, context):
        files = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, timeout = "HTTP/1.1", 30

            def log_message(self, *words):
                pass

            def reply(self, status, body, **fields):
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_GET(self):
                path = self.path.split("?")[0].replace("/./", "/")
                found = files.routes.get(path) or next((r for p, r in files.routes.items() if p.endswith("/*") and path.startswith(p[:-1])), None)
                if callable(found):
                    found(self)
                else:
                    self.reply(404 if found is None else 200, found or b"no\n")
            do_POST = do_HEAD = do_GET

        with contextlib.suppress(OSError, ssl.SSLError, ConnectionError):
            if context:
                connection = context.wrap_socket(connection, server_side=True)
            Handler(connection, peer, None)
        with contextlib.suppress(OSError):
            connection.close()


def git(*words, **options):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
    return subprocess.run(["git", *map(str, words)], check=True, capture_output=True, env=env, **options)


def git_backend(root):
    """git's own smart HTTP server, for one request."""
    def serve(handler):
        size = int(handler.headers.get("Content-Length") or 0)
        if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while count := int(handler.rfile.readline().split(b";")[0], 16):
                body += handler.rfile.read(count)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            body = handler.rfile.read(size)
        path, _, query = handler.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
               "REQUEST_METHOD": handler.command, "CONTENT_TYPE": handler.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
               "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""), "REMOTE_USER": "a", "REMOTE_ADDR": "1.1.1.1",
               "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "safe.directory",
               "GIT_CONFIG_VALUE_0": "*", "GIT_CONFIG_KEY_1": "http.receivepack", "GIT_CONFIG_VALUE_1": "true"}
        out = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(fields.pop("Status", "200").split()[0])
        handler.reply(status, content, **{k.replace("-", "_"): v for k, v in fields.items()})
    return serve


def npm_package():
    """(metadata, tarball) of a package of one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in (("package/package.json", json.dumps({"name": "leaf", "version": "1.2.3", "main": "i.js"}).encode()),
                           ("package/i.js", b"module.exports = 'leaf works'\n")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = packed.getvalue()
    version = {"name": "leaf", "version": "1.2.3", "main": "i.js",
               "dist": {"tarball": f"https://{REGISTRY}/leaf/-/leaf-1.2.3.tgz", "shasum": hashlib.sha1(data).hexdigest()}}
    return json.dumps({"name": "leaf", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}).encode(), data


def wheel():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("leaf.py", "word = 'leaf works'\n")
        archive.writestr("leaf-1.2.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: leaf\nVersion: 1.2.3\n")
        archive.writestr("leaf-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("leaf-1.2.3.dist-info/RECORD", "leaf.py,,\nleaf-1.2.3.dist-info/METADATA,,\nleaf-1.2.3.dist-info/WHEEL,,\nleaf-1.2.3.dist-info/RECORD,,\n")
    return packed.getvalue()


def crate():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in (("leaf-1.2.3/Cargo.toml", b'[package]\nname = "leaf"\nversion = "1.2.3"\n'), ("leaf-1.2.3/src/lib.rs", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def deb(directory):
    """(Packages, {path: bytes}) of ten small packages: apt pipelines them."""
    index, files = "", {}
    for i in range(10):
        root = directory / f"leaf{i}"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(f"Package: leaf{i}\nVersion: 1.2.3\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: leaf\n")
        (root / "usr/share/leaf").mkdir(parents=True)
        (root / "usr/share/leaf" / f"word{i}").write_text("leaf works\n")
        made = directory / f"leaf{i}_1.2.3_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, made], check=True, capture_output=True)
        data = made.read_bytes()
        files[f"/{made.name}"] = data
        index += (root / "DEBIAN/control").read_text() + f"Filename: ./{made.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    return index.encode(), files


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("internet")
    directory.chmod(0o755)
    with World() as made:
        for name, address in ((SITE, V4), (GIT, GIT4), (REGISTRY, FILES4), (INDEX, FILES4), (PACKAGES, FILES4), (CRATES, FILES4), (DENIED, V4)):
            made.dns.add(name, A=address)
        made.site, made.tls = made.http(V4), made.https(V4, names=[SITE, DENIED])
        metadata, tarball = npm_package()
        built = wheel()
        packed = crate()
        index, debs = deb(directory)
        link = f'<a href="/files/leaf-1.2.3-py3-none-any.whl#sha256={hashlib.sha256(built).hexdigest()}">leaf</a>'.encode()
        line = json.dumps({"name": "leaf", "vers": "1.2.3", "deps": [], "cksum": hashlib.sha256(packed).hexdigest(), "features": {}, "yanked": False})
        page = lambda handler: handler.reply(200, b"<!DOCTYPE html><html><body>" + link + b"</body></html>", Content_Type="text/html")
        routes = {"/leaf": metadata, "/leaf/-/leaf-1.2.3.tgz": tarball, "/simple/leaf/": page,
                  "/files/leaf-1.2.3-py3-none-any.whl": built, "/index/config.json": json.dumps({"dl": f"https://{CRATES}/dl"}).encode(),
                  "/index/le/af/leaf": line.encode(), "/dl/leaf/1.2.3/download": packed}
        made._own(Files(made, FILES4, 443, routes, names=[REGISTRY, INDEX, CRATES]))
        made._own(Files(made, FILES4, 80, {"/Packages": index, "/Packages.gz": gzip.compress(index), **debs}))
        made.repositories = directory / "git"
        made.repositories.mkdir()
        made.repository = made.repositories / "project.git"
        git("init", "-q", "--bare", "-b", "main", made.repository)
        work = directory / "work"
        git("clone", "-q", made.repository, work)
        (work / "large").write_bytes(os.urandom(1 << 20))
        (work / "README").write_text("hello\n")
        git("-C", work, "add", ".")
        git("-C", work, "commit", "-qm", "one")
        git("-C", work, "push", "-q", "origin", "HEAD:main")
        made._own(Files(made, GIT4, 443, {"/*": git_backend(made.repositories)}, names=[GIT]))
        yield made


@pytest.fixture(scope="module")
def gate(world):
    rules = [SITE, f"http://{SITE}", GIT, f"tcp://{GIT}:22", REGISTRY, INDEX, CRATES, f"http://{PACKAGES}"]
    with Gate(world, rules=rules) as made:
        yield made


@pytest.fixture
def run(world, gate, tmp_path):
    """Runs a client in the sandbox's place, with a HOME of its own and the world's CA."""
    def call(*argv, env=None, check=True, **options):
        own = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "SSL_CERT_FILE": str(world.ca_file),
               "REQUESTS_CA_BUNDLE": str(world.ca_file), "NODE_EXTRA_CA_CERTS": str(world.ca_file), "GIT_SSL_CAINFO": str(world.ca_file),
               "GIT_TERMINAL_PROMPT": "0", "CARGO_HTTP_CAINFO": str(world.ca_file), **(env or {})}
        result = gate.run(argv, env=own, cwd=tmp_path, timeout=100, **options)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result
    return call


PROXIES = {"transparent": {}, "proxy": {"http_proxy": PROXY, "https_proxy": PROXY}}
WAYS = pytest.mark.parametrize("way", PROXIES)
SCHEMES = pytest.mark.parametrize("scheme", ["http", "https"])


@SCHEMES
@pytest.mark.parametrize("words", [[], ["-x", PROXY], ["-p", "-x", PROXY], ["-x", "socks5h://127.0.0.1:3128"], ["-x", "socks5://127.0.0.1:3128"]])
def test_curl(run, world, scheme, words):
    answer = json.loads(run("curl", "-sS", "--cacert", world.ca_file, *words, "-d", "x" * 5000, f"{scheme}://{SITE}/curl").stdout)
    assert answer["path"] == "/curl" and len(answer["body"]) == 5000
    denied = run("curl", "-sS", "-v", "--cacert", world.ca_file, *words, f"{scheme}://{DENIED}/", check=False)
    assert denied.returncode != 0 or "no_rule" in denied.stdout


@WAYS
@SCHEMES
def test_wget(run, world, way, scheme):
    result = run("wget", "-q", "-O", "-", "--ca-certificate", world.ca_file, f"{scheme}://{SITE}/wget", env=PROXIES[way])
    assert json.loads(result.stdout)["path"] == "/wget"
    assert run("wget", "-q", "-t", "1", "-O", "-", f"{scheme}://{DENIED}/", env=PROXIES[way], check=False).returncode != 0
    big = run("wget", "-q", "-O", "big", "--ca-certificate", world.ca_file, f"{scheme}://{SITE}/big", env=PROXIES[way])
    assert big.returncode == 0


@WAYS
@SCHEMES
def test_python_urllib_and_requests(run, way, scheme):
    program = f"""
import json, requests, urllib.request, urllib.error
url = '{scheme}://{SITE}/py'
assert json.load(urllib.request.urlopen(url))['path'] == '/py'
with requests.Session() as session:
    for i in range(3):
        assert session.post(url, data=b'x' * 100000).json()['body'] == 'x' * 100000
    assert session.get(url, stream=True).raw.read(1) == b'{{'
try:
    answer = requests.get('{scheme}://{DENIED}/')
    assert answer.status_code == 403 and answer.headers['Cofferdam-Reason'] == 'no_rule', answer.text
except requests.exceptions.RequestException as error:
    assert {way == "transparent"} or 'no_rule' in str(error), error
print('fine')
"""
    assert run("/usr/bin/python3", "-c", program, env=PROXIES[way]).stdout == "fine\n"


@SCHEMES
def test_node_fetch(run, scheme):
    program = f"""
(async () => {{
  for (let i = 0; i < 3; i++) {{
    const answer = await (await fetch('{scheme}://{SITE}/node', {{method: 'POST', body: 'y'.repeat(70000)}})).json()
    if (answer.path !== '/node' || answer.body.length !== 70000) throw new Error(JSON.stringify(answer))
  }}
  let told = 'refused'
  try {{ told = String((await fetch('{scheme}://{DENIED}/')).status) }} catch (error) {{}}
  console.log(told)
  process.exit(0)
}})()"""
    assert run("node", "-e", program).stdout == "refused\n"  # its name does not exist


def test_node_over_connect(run):
    """Legit client 1: a CONNECT even for http://, and keep-alive inside the tunnel."""
    program = f"""
const http = require('http')
const ask = http.request({{host: '127.0.0.1', port: 3128, method: 'CONNECT', path: '{SITE}:80', headers: {{Host: '{SITE}:80'}}}})
ask.on('connect', (answer, socket) => {{
  let got = ''
  socket.on('data', piece => {{
    got += piece
    if ((got.match(/"path": "\\/n"/g) || []).length === 2) {{ console.log(answer.statusCode); process.exit(0) }}
  }})
  for (let i = 0; i < 2; i++) socket.write('GET /n HTTP/1.1\\r\\nHost: {SITE}\\r\\n\\r\\n')
}})
ask.end()"""
    assert run("node", "-e", program).stdout == "200\n"


@WAYS
def test_openssl(run, world, way):
    words = ["-proxy", "127.0.0.1:3128"] if way == "proxy" else []
    options = {"input": f"GET /o HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n"}
    result = run("openssl", "s_client", "-quiet", "-verify_return_error", "-CAfile", world.ca_file, "-connect", f"{SITE}:443", "-servername",
                 SITE, *words, check=False, **options)  # the server says no last word of TLS, which it does not like
    assert '"path": "/o"' in result.stdout and "verify return:1" in result.stderr
    other = run("openssl", "s_client", "-quiet", "-connect", f"{SITE}:443", "-servername", DENIED, *words, check=False, **options)
    assert other.returncode != 0 and "path" not in other.stdout


@WAYS
def test_git_over_https(run, world, gate, way, tmp_path):
    env = PROXIES[way]
    run("git", "clone", "-q", f"https://{GIT}/project.git", "copy", env=env)
    copy = tmp_path / "copy"
    assert (copy / "README").read_text() == "hello\n" and (copy / "large").stat().st_size == 1 << 20
    (copy / way).write_bytes(os.urandom(3 << 20))  # past http.postBuffer: chunked, after a probe
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-C", copy]
    run("git", *who, "add", ".", env=env)
    run("git", *who, "commit", "-qm", way, env=env)
    run("git", *who, "push", "-q", "origin", "HEAD:main", env=env)
    assert way in git("-C", world.repository, "-c", "safe.directory=*", "ls-tree", "--name-only", "main").stdout.decode().split()
    denied = run("git", "ls-remote", f"https://{DENIED}/project.git", env=env, check=False)
    assert denied.returncode != 0


@pytest.fixture(scope="module")
def sshd(world, tmp_path_factory):
    """A server of OpenSSH in the world's internet that lets one key in; git lives behind it."""
    directory = tmp_path_factory.mktemp("sshd")
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    shutil.copy(directory / "key.pub", directory / "authorized")
    (directory / "config").write_text(
        f"ListenAddress {GIT4}:22\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/authorized\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nPidFile {directory}/pid\n")
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(["ip", "netns", "exec", world.internet, "/usr/sbin/sshd", "-D", "-e", "-f", directory / "config"], stderr=log)
    try:
        end = time.monotonic() + 20
        while b"listening" not in (directory / "log").read_bytes() and time.monotonic() < end:
            assert process.poll() is None, (directory / "log").read_text()
            time.sleep(0.05)
        yield directory / "key"
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.mark.parametrize("way", ["transparent", "proxy", "socks"])
def test_git_over_ssh(run, world, sshd, gate, way, tmp_path):
    """A raw `tcp` rule: the server speaks first, on each way in."""
    options = f"-i {sshd} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes -F /dev/null"
    if way != "transparent":
        connector = tmp_path / "connect"
        connector.write_text(CONNECTOR)
        options += f" -o 'ProxyCommand=/usr/bin/python3 {connector} {way} %h %p'"
    run("git", "clone", "-q", f"ssh://root@{GIT}{world.repository}", "over-ssh", env={"GIT_SSH_COMMAND": f"ssh {options}"})
    assert (tmp_path / "over-ssh/README").read_text() == "hello\n"
    event = gate.wait_event(event="egress", host=GIT, port=22, protocol="tcp", verdict="allow",
                            via={"transparent": "transparent", "proxy": "connect", "socks": "socks"}[way])
    assert event["bytes_down"] > 1 << 20


CONNECTOR = """
import socket, struct, sys, threading
way, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
sock = socket.create_connection(('127.0.0.1', 3128))
if way == 'proxy':
    sock.sendall(f'CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n'.encode())
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'):
        head += sock.recv(1)
    assert b' 200 ' in head, head
else:
    sock.sendall(b'\\x05\\x01\\x00\\x05\\x01\\x00\\x03' + bytes([len(host)]) + host.encode() + struct.pack('!H', port))
    answer = b''
    while len(answer) < 12:
        answer += sock.recv(12 - len(answer))
    assert answer[:4] == b'\\x05\\x00\\x05\\x00', answer
def up():
    while data := sys.stdin.buffer.raw.read(65536):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := sock.recv(65536):
    sys.stdout.buffer.raw.write(data)
"""


@WAYS
def test_npm(run, gate, world, way, tmp_path):
    env = {**PROXIES[way], "npm_config_registry": f"https://{REGISTRY}/", "npm_config_cafile": str(world.ca_file), "npm_config_update_notifier": "false",
           "npm_config_audit": "false", "npm_config_fund": "false", "npm_config_fetch_retries": "0"}
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1.0.0", "private": true}')
    run("npm", "install", "leaf", env=env)
    assert run("node", "-p", "require('leaf')").stdout == "leaf works\n"
    denied = run("npm", "view", "leaf", "--registry", f"https://{DENIED}/", env=env, check=False)
    assert denied.returncode != 0
    if way == "proxy":
        # npm shows nothing but the status line of a refused CONNECT: the reason stands in it.
        assert "403" in denied.stderr


@WAYS
def test_pip(run, gate, world, way, tmp_path):
    words = ["/usr/bin/python3", "-m", "pip", "--disable-pip-version-check", "--isolated", "--no-cache-dir", "--cert", world.ca_file, "--retries", "0", "-vv"]
    proxy = ["--proxy", PROXY] if way == "proxy" else []
    run(*words, "install", *proxy, "-q", "--target", "site", "--index-url", f"https://{INDEX}/simple", "leaf")
    assert run("/usr/bin/python3", "-c", "import leaf; print(leaf.word)", env={"PYTHONPATH": str(tmp_path / "site")}).stdout == "leaf works\n"
    denied = run(*words, "download", *proxy, "--index-url", f"https://{DENIED}/simple", "leaf", check=False)
    assert denied.returncode != 0
    if way == "proxy":
        assert "403" in denied.stdout + denied.stderr


@WAYS
def test_apt(run, world, way, tmp_path):
    """Legit clients 5 and 18: absolute-form and pipelining on one connection."""
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] http://{PACKAGES} ./\n")
    (tmp_path / "status").touch()
    options = [f"Dir::State={tmp_path}/state", f"Dir::State::status={tmp_path}/status", f"Dir::Cache={tmp_path}/cache", f"Dir::Etc={tmp_path}/etc",
               f"Dir::Etc::SourceList={tmp_path}/sources.list", f"Dir::Etc::SourceParts={tmp_path}/none", "APT::Sandbox::User=root",
               "Acquire::Retries=0", "Acquire::Languages=none", "Acquire::http::Pipeline-Depth=10", f"Dir::Etc::Parts={tmp_path}/none"]
    if way == "proxy":
        options.append(f"Acquire::http::Proxy={PROXY}/")
    words = ["apt-get", *(w for o in options for w in ("-o", o))]
    run(*words, "update")
    run(*words, "download", *(f"leaf{i}" for i in range(10)))
    assert len(list(tmp_path.glob("leaf*.deb"))) == 10
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] http://{DENIED} ./\n")
    denied = run(*words, "update", check=False)
    assert "Failed to fetch" in denied.stderr, denied.stdout + denied.stderr


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
@WAYS
def test_cargo(run, gate, way, tmp_path):
    """Legit client 14."""
    home = pathlib.Path(shutil.which("cargo")).resolve().parent
    real = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True).stdout.strip() if shutil.which("rustup") else ""
    program = real or shutil.which("cargo")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").touch()
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nleaf = {version = "1", registry = "own"}\n')
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/config.toml").write_text(f'[registries.own]\nindex = "sparse+https://{CRATES}/index/"\n')
    run(program, "fetch", env={**PROXIES[way], "CARGO_HOME": str(tmp_path / "cargo"), "RUSTC": str(pathlib.Path(program).parent / "rustc"),
                              "PATH": f"{pathlib.Path(program).parent}:{home}:/usr/bin:/bin"})
    assert list((tmp_path / "cargo/registry/cache").glob("*/leaf-1.2.3.crate"))
