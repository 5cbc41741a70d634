"""Many mixed clients at once, a part of them cut off at random: nothing leaks, and every connection is in the events.

As it stands a bounded run; COFFERDAM_LOAD_CLIENTS=2000 COFFERDAM_LOAD_SECONDS=60 is the whole one."""
import asyncio
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import time

import pytest

from test_egress_control import V4, OTHER4, TCP4, SITE, OTHER, RAW, cpu_seconds, gate_with, service_pid, wait_for
from world import World, in_namespace, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

CLIENTS = int(os.environ.get("COFFERDAM_LOAD_CLIENTS", "300"))
SECONDS = float(os.environ.get("COFFERDAM_LOAD_SECONDS", "15"))
RULES = [f"http://{SITE}", f"http://{OTHER}", SITE, f"tcp://{RAW}:9000", "*.wild.example.com"]


class Servers:
    """HTTP, TLS and raw servers in the internet namespace, in a process of their own."""

    PROGRAM = r"""
import asyncio, ssl, sys
async def http(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            await reader.readexactly(size)
            body = b"x" * (100000 if b"/big" in head else 100)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, OSError):
        pass
    finally:
        writer.close()
async def echo(reader, writer):
    try:
        writer.write(b"hello\n")
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, OSError):
        pass
    finally:
        writer.close()
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    for address, port, serve, tls in (("93.184.216.34", 80, http, None), ("93.184.216.35", 80, http, None),
                                      ("93.184.216.34", 443, http, context), ("93.184.216.36", 9000, echo, None)):
        await asyncio.start_server(serve, address, port, ssl=tls, backlog=4096)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""

    def __init__(self, world):
        key, cert = world.directory / "load.key", world.directory / "load.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={SITE}"], check=True,
                       capture_output=True)
        self.process = subprocess.Popen(["ip", "netns", "exec", world.internet, "/usr/bin/python3", "-c", self.PROGRAM,
                                         cert, key], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def world():
    with World() as made:
        made.dns.add(SITE, A=V4)
        made.dns.add(OTHER, A=OTHER4)
        made.dns.add(RAW, A=TCP4)
        servers = Servers(made)
        try:
            yield made
        finally:
            servers.close()


class Load:
    """Clients of the gate; `sent` counts what each kind began and was accepted for."""

    def __init__(self, gate, seed):
        self.gate, self.random = gate, random.Random(seed)
        self.done, self.wrong, self.resets = {}, [], 0
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    async def connect(self, address, port, tls=None):
        with in_namespace(self.gate.namespace):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
            return await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=SITE if tls else None)
        except BaseException:
            sock.close()
            raise

    def break_off(self, writer):
        """A reset, as of a client that was killed."""
        self.resets += 1
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def read_answer(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(next(l for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")).split(b":")[1])
        await reader.readexactly(size)
        return head.split(b" ")[1]

    async def http(self, reader, writer, proxy):
        for _ in range(self.random.randint(1, 4)):
            host = self.random.choice((SITE, OTHER))
            denied = proxy and self.random.random() < 0.2
            target = f"http://{'denied.example.net' if denied else host}/" if proxy else "/"
            if not proxy:
                host = SITE
            shown = "denied.example.net" if denied else host
            path = self.random.choice(("", "big"))
            writer.write(f"GET {target}{path} HTTP/1.1\r\nHost: {shown}\r\n\r\n".encode())
            if self.random.random() < 0.15:
                return self.break_off(writer)
            status = await self.read_answer(reader)
            if status != (b"403" if denied else b"200"):
                self.wrong.append(("http", status))

    async def explicit(self):
        reader, writer = await self.connect("127.0.0.1", 3128)
        return reader, writer, self.http(reader, writer, True)

    async def transparent(self):
        reader, writer = await self.connect(V4, 80)
        return reader, writer, self.http(reader, writer, False)

    async def https(self):
        reader, writer = await self.connect(V4, 443, self.tls)
        return reader, writer, self.http(reader, writer, False)

    async def tunnel(self):
        reader, writer = await self.connect("127.0.0.1", 3128)

        async def talk():
            writer.write(f"CONNECT {RAW}:9000 HTTP/1.1\r\nHost: {RAW}:9000\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(6)
            for _ in range(self.random.randint(1, 5)):
                data = b"z" * self.random.randint(1, 50000)
                writer.write(data)
                if self.random.random() < 0.15:
                    return self.break_off(writer)
                if await reader.readexactly(len(data)) != data:
                    self.wrong.append(("tunnel", "other bytes"))
        return reader, writer, talk()

    async def denied(self):
        reader, writer = await self.connect("127.0.0.1", 3128)

        async def talk():
            writer.write(b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net:443\r\n\r\n")
            status = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            if status != b"403":
                self.wrong.append(("denied", status))
        return reader, writer, talk()

    async def garbage(self):
        reader, writer = await self.connect("127.0.0.1", 3128)

        async def talk():
            writer.write(self.random.randbytes(self.random.randint(1, 300)) + b"\r\n\r\n")
            self.break_off(writer)
        return reader, writer, talk()

    async def client(self, until):
        while time.monotonic() < until:
            kind = self.random.choice((self.explicit, self.explicit, self.transparent, self.https, self.tunnel,
                                       self.tunnel, self.denied, self.garbage))
            writer = None
            try:
                async with asyncio.timeout(60):
                    reader, writer, talk = await kind()
                    await talk
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            except (OSError, EOFError, ssl.SSLError, TimeoutError) as error:
                self.wrong.append((kind.__name__, repr(error)))
                if len(self.wrong) > 50:
                    return
            finally:
                if writer:
                    writer.transport.abort() if self.random.random() < 0.3 else writer.close()
            await asyncio.sleep(self.random.random() * 0.05)

    async def run(self, clients, seconds):
        until = time.monotonic() + seconds
        await asyncio.gather(*(self.client(until) for _ in range(clients)))


def resident_kib(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def recorded(gate):
    """(records of connections and requests, bytes up, bytes down), folded ones too."""
    count, up, down = 0, 0, 0
    for line in gate.events_file.read_text().splitlines():
        event, times = json.loads(line), 1
        if event["event"] == "suppressed" and event["of"] == "egress":
            times, event = event["count"], json.loads(event["fields"])
        elif event["event"] != "egress":
            continue
        count += times
        up += event["bytes_up"]
        down += event["bytes_down"]
    return count, up, down


def test_load_leaks_nothing_and_everything_is_recorded(world):
    with gate_with(world, RULES, budgets={"sandbox": {"connections": 10000}}) as gate:
        pid = service_pid(gate)
        gate.ask(SITE)
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        asyncio.run(Load(gate, 1).run(min(CLIENTS, 300), min(SECONDS, 5)))  # buffers and tables come to their size
        wait_for(lambda: gate.stats()["sessions"] == 0, 30)
        warm = resident_kib(pid)
        load = Load(gate, 2)
        cpu = cpu_seconds(pid)
        asyncio.run(load.run(CLIENTS, SECONDS))
        assert not load.wrong, load.wrong[:20]
        assert load.resets > 0 and all(load.done.get(k) for k in ("explicit", "transparent", "https", "tunnel"))
        # At the end nothing of it is left.
        wait_for(lambda: gate.stats()["sessions"] == 0, 30)
        wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= descriptors, 30)
        stats = gate.stats()
        assert stats["connections"] == 0 and stats["sandbox"]["connections"] == 0
        grown = resident_kib(pid) - warm
        print(f"load: {load.done}, {load.resets} resets, rss {warm} KiB +{grown}, "
              f"cpu {cpu_seconds(pid) - cpu:.1f} s, {stats}")
        if "COFFERDAM_LOAD_NO_RSS" not in os.environ:  # sanitizers keep freed memory
            assert grown < 16384 + CLIENTS * 16, f"{grown} KiB more than after the first run"
        gate.stop()
        # Every decision is an event (folded or not), and every byte that was counted is in one.
        count, up, down = recorded(gate)
        decided = stats["allowed"] + stats["denied"] + stats["failed"] - stats["dns_questions"]
        assert (count, up, down) == (decided, stats["bytes_up"], stats["bytes_down"])
        assert stats["events_lost"] == 0
        assert count >= sum(load.done.values()) - load.done.get("garbage", 0) - load.resets
