"""A real server process for tests: `sstq serve` on a free port of the loopback interface, a database in a folder."""

import json
import random
import secrets
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np

from tests.patience import PATIENCE, until
from tests.service.nursery import Forked, fork

ADMINISTRATOR = "administrator-of-the-tests"


class Server:
    """A running collector."""

    def __init__(self, url: str, process: Forked, log: Path) -> None:
        self.url = url
        self.process = process
        self.log = log
        self.senders: dict[str, str] = {}
        # The context of the standard library, which believes in SSL_CERT_FILE as our own client does.
        # A connection is used again for less time than the server keeps it: otherwise it could close it meanwhile.
        kept = httpx.Limits(keepalive_expiry=2.0)
        self.http = httpx.Client(
            base_url=url,
            timeout=PATIENCE,
            verify=ssl.create_default_context(),
            limits=kept,
        )

    def kill(self):
        """Kill it with SIGKILL, and wait until its port is free."""
        self.process.kill()
        self.process.wait()

    def connect(self, source=""):
        """A connection of one's own to it, from an address of the loopback interface."""
        address = (self.http.base_url.host, self.http.base_url.port)
        return socket.create_connection(address, PATIENCE, source_address=(source, 0))

    def administer(self, method, path, token=ADMINISTRATOR, **options):
        return self.http.request(
            method, path, headers={"Authorization": f"Bearer {token}"}, **options
        )

    def create(self, name, mechanism, **terms):
        """Create a campaign; returns its shared tokens."""
        content = {"name": name, "mechanism": json.loads(mechanism.to_json()), **terms}
        self.senders.pop(name, None)
        answer = self.administer("POST", "/v1/campaigns", json=content)
        assert answer.status_code == 201, answer.text
        if "send_token" in answer.json():
            self.senders[name] = answer.json()["send_token"]
        return answer.json()

    def send(self, name, mechanism, body, count, *, key=None, token=None, headers=None):
        """Send an upload; `headers` are changed or, with None, left out.

        A batch to a campaign that is open to everybody has a sender's token.
        """
        if token is None and (count > 1 or name in self.senders):
            token = self.sender(name)
        whole = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": key or secrets.token_hex(16),
            "SSTQ-Count": str(count),
            "SSTQ-Digest": mechanism.digest(),
            "Authorization": token and f"Bearer {token}",
        } | (headers or {})
        whole = {header: value for header, value in whole.items() if value is not None}
        return self.http.post(
            f"/v1/campaigns/{name}/messages", content=body, headers=whole
        )

    def sender(self, name, people=10**6):
        """A token for batches to a campaign; None where there are none."""
        if name not in self.senders:
            made = self.administer(
                "POST", f"/v1/campaigns/{name}/senders", json={"people": people}
            )
            if made.status_code != 201:
                return None
            self.senders[name] = made.json()["send_token"]
        return self.senders[name]

    def status(self, name):
        return self.administer("GET", f"/v1/campaigns/{name}/status").json()

    def wait(self, name, messages, field="covered"):
        """Return when so many messages are counted."""
        until(lambda: self.status(name)[field] >= messages)

    def estimate(self, name, messages):
        """The estimate, once it covers so many messages."""

        def covering():
            found = self.administer("GET", f"/v1/campaigns/{name}/estimate").json()
            return found if found["count"] >= messages else None

        return until(covering)


@contextmanager
def serving(folder, program=None, environment=None, command="serve", **settings):
    """`sstq serve` or `sstq shuffler` with these settings in a process of its own, or a program that takes JSON."""
    role = "collector" if command == "serve" else command
    chosen = {
        "database": f"sqlite:///{folder}/{role}.sqlite3",
        "administrator_token": ADMINISTRATOR,
        # A shuffler signs campaigns that name its address, so it must know its port.
        "port": 0 if command == "serve" else free_port(),
        "fold_seconds": 0.1,
    } | settings
    if program is None:
        arguments = [command, "--folder", str(folder)]
        environment = {
            f"SSTQ_{name.upper()}": str(value) for name, value in chosen.items()
        } | (environment or {})
    else:
        arguments = [json.dumps(chosen)]
    log = Path(folder) / f"{role}.log"
    process = fork(arguments, log, environment or {}, program)
    server = None
    try:
        url = process.stdout.readline().split()[-1:]  # “address  http://…”
        assert url, log.read_text()
        server = Server(url[0], process, log)
        yield server
    finally:
        if server is not None:
            server.http.close()
        process.terminate()
        process.wait()
        process.stdout.close()


class Quiet(BaseHTTPRequestHandler):
    """For servers of the test's own process: `reply` answers a request with this body, and nothing is logged."""

    def do_GET(self):
        self.reply(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_POST(self):
        self.do_GET()

    def answer(self, status, content, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextmanager
def listening(handler, **state):
    """A server of the test's own process, with this state as its attributes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        vars(server).update(state, url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def repeating(count, start):
    """Threads that call what `start` returns again and again while the block runs; no call may fail."""
    enough = threading.Event()
    problems = []

    def work():
        try:
            step = start()
            while not enough.is_set():
                step()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    assert not problems, problems


def free_port():
    """A port of the loopback interface that nobody listens on, below those that outgoing connections take.

    A client that tries again and again to reach a killed server could take its port otherwise.
    """
    for port in random.sample(range(20_000, 32_768), 100):
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def packed(mechanism, count=5, seed=0):
    """The bytes of so many messages."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, mechanism.dim))
    X *= mechanism.clip / np.linalg.norm(X, axis=1, keepdims=True)
    return mechanism.encode(X, seed).to_bytes()
