"""What stands between clients and the collector: TLS, proxies, slow senders, and more uploads than it can hold."""

import asyncio
import datetime
import ipaddress
import sqlite3
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from unittest.mock import Mock

import httpx
import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from uvicorn.server import ServerState

from sstq.client import Client
from sstq.service import protocol
from sstq.service.protocol import HEADER_SECONDS
from tests.patience import PATIENCE, until
from tests.service.serving import packed, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
_SMALL_AND_HASTY = """
import json, sys
from sstq.service import Settings, inbox, protocol, run, security
inbox._QUEUE_UPLOADS = 2
protocol.HEADER_SECONDS = security._BODY_SECONDS = 3  # far longer than honest requests take on a busy machine
run(Settings(**json.loads(sys.argv[1])), lambda url: print(url, flush=True))
"""


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "collector of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(hours=1))
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = builder.add_extension(host, critical=False).sign(key, hashes.SHA256())
    chain, secret = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return chain, secret


def test_tls_with_an_authority_of_ones_own(tmp_path, certificate, monkeypatch):
    chain, secret = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    with serving(tmp_path, certificate=chain, private_key=secret) as server:
        assert server.url.startswith("https://127.0.0.1:")
        server.create("steps", MECHANISM)
        assert Client(f"{server.url}/steps", most_epsilon=2.0, token=server.sender("steps")).send(np.eye(6)) == 6
        assert server.status("steps")["received"] == 6
        assert "max-age" in server.http.get("/health").headers["strict-transport-security"]
        monkeypatch.delenv("SSL_CERT_FILE")
        refused = r"certificate of 127\.0\.0\.1.* cannot be verified.*set SSL_CERT_FILE"
        with monkeypatch.context() as patched:
            patched.setattr("sstq.client.sending.time.sleep", lambda _: pytest.fail("it tries again"))
            with pytest.raises(ValueError, match=refused):
                Client(f"{server.url}/steps", most_epsilon=2.0, patience=300)


def test_silent_connections_of_tls_count_before_their_handshake(tmp_path, certificate, monkeypatch):
    program = """
import json, sys
from sstq.service import Settings, protocol, run
protocol.CONNECTIONS_PER_ADDRESS, protocol.HANDSHAKE_SECONDS, protocol.DROP_SECONDS = 3, 600.0, 0.1
run(Settings(**json.loads(sys.argv[1])), lambda url: print(url, flush=True))
"""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    files = {"certificate": str(certificate[0]), "private_key": str(certificate[1])}
    with serving(tmp_path, program=program, **files) as server, ExitStack() as lines:

        def connect():
            return lines.enter_context(server.connect("127.0.0.9"))

        silent = [connect() for _ in range(3)]
        with suppress(ConnectionError):
            assert connect().recv(1) == b""  # one too many
        assert server.http.get("/health").status_code == 200  # from another address
        silent.pop().close()
        context = ssl.create_default_context()

        def greeted():
            with suppress(OSError):  # until the server has noticed the end of the silent one
                return context.wrap_socket(connect(), server_hostname="127.0.0.1")

        with until(greeted) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 200 ")


def test_only_named_proxies_say_whose_uploads_they_pass_on(tmp_path):
    with serving(tmp_path, proxies="192.0.2.7, 127.0.0.1", messages_per_second=0.001, burst=1) as server:
        server.create("open", MECHANISM)
        server.http.close()

        def send(address):
            return server.send("open", MECHANISM, packed(MECHANISM, 1), 1, headers={"X-Forwarded-For": address})

        for proxy, last in (("127.0.0.1", 200), ("127.0.0.2", 429)):  # the second is nobody's proxy
            way = httpx.HTTPTransport(local_address=proxy)
            with httpx.Client(base_url=server.url, transport=way, timeout=PATIENCE) as server.http:
                answers = [send("198.51.100.1"), send("198.51.100.1"), send("198.51.100.2")]
            assert [answer.status_code for answer in answers] == [200, 429, last]
            assert 1 <= int(answers[1].headers["retry-after"]) <= 1000


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A collector that holds two uploads and waits for headers and bodies for 3 s."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, program=_SMALL_AND_HASTY, messages_per_second=0) as running:
        running.create("open", MECHANISM)
        running.database = folder / "collector.sqlite3"
        yield running


def test_more_uploads_than_it_holds_are_told_to_come_again(hasty):
    def send(_):
        return hasty.send("open", MECHANISM, packed(MECHANISM), 5)

    assert send(0).status_code == 200  # all that it needs is loaded
    before = hasty.status("open")["received"]
    with ThreadPoolExecutor(8) as threads, sqlite3.connect(hasty.database, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # nothing can be written
        sent = [threads.submit(send, number) for number in range(8)]
        until(lambda: sum(answer.done() for answer in sent) >= 6)
        other.execute("ROLLBACK")
        answers = [answer.result() for answer in sent]
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [503] * 6
    for answer in answers:
        if answer.status_code == 503:
            assert answer.json()["detail"] == "Too many uploads are waiting to be stored; try again."
            assert answer.headers["retry-after"] == "1"
    assert hasty.status("open")["received"] == before + 10
    assert send(0).status_code == 200


def test_a_client_that_does_not_read_its_answer_is_dropped(monkeypatch):
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.01)

    async def connection():
        config = uvicorn.Config(FastAPI(), log_config=None, ws="none")
        config.load()
        made, dropped = protocol.guarded_protocol("")(config, ServerState(), {}), asyncio.Event()
        transport = Mock(asyncio.Transport)
        transport.abort.side_effect = dropped.set
        made.connection_made(transport)
        return made, dropped

    async def run():
        slow, dropped = await connection()
        slow.pause_writing()
        await asyncio.wait_for(dropped.wait(), PATIENCE)
        reading, kept = await connection()
        reading.pause_writing()
        reading.resume_writing()
        await asyncio.sleep(0.05)
        assert not kept.is_set()

    asyncio.run(run())


def test_headers_and_bodies_that_come_too_slowly_are_cut_off(hasty):
    before, token = hasty.status("open")["received"], hasty.sender("open")
    with hasty.connect() as silent, hasty.connect() as line:
        silent.sendall(b"GET /health HTTP/1.1\r\n")
        head = "POST /v1/campaigns/open/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n"
        head += f"Content-Type: application/octet-stream\r\nAuthorization: Bearer {token}\r\n"
        head += f"Idempotency-Key: {'ab' * 16}\r\nSSTQ-Count: 5\r\n"
        line.sendall(f"{head}SSTQ-Digest: {MECHANISM.digest()}\r\n\r\nabc".encode())
        said = b""
        while part := line.recv(1000):  # until it closes
            said += part
        with suppress(ConnectionError):
            assert silent.recv(1000) == b""
    assert HEADER_SECONDS <= 10  # for other collectors
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"The body of the request arrived too slowly." in said
    assert hasty.status("open")["received"] == before
