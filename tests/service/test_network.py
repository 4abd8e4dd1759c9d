"""What stands between clients and the collector: proxies, slow senders, and more uploads than it can hold."""

import socket
import sqlite3
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

import sstq

pytest.importorskip("fastapi")


from sstq.client import Client
from sstq.service import Settings
from sstq.service.app import _bound
from tests.patience import PATIENCE, until
from tests.service.proxying import certificate
from tests.service.serving import ADMINISTRATOR, Quiet, listening, packed, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
_SMALL_AND_HASTY = """
import json, sys
from sstq.service import Settings, inbox, run, security
inbox._QUEUE_UPLOADS = 2
security._BODY_SECONDS = 3  # far longer than honest requests take on a busy machine
run(Settings(**json.loads(sys.argv[1])), lambda url: print(url, flush=True))
"""


def test_a_client_refuses_a_certificate_of_nobody_it_knows(tmp_path, monkeypatch):
    """And believes it once its authority is named."""

    class Refusing(Quiet):
        def reply(self, _):
            self.answer(404, b"{}", {})

    chain, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    with listening(Refusing) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"{server.url.replace('http', 'https')}/steps"
        monkeypatch.setattr(
            "sstq.client.sending.time.sleep", lambda _: pytest.fail("it tries again")
        )
        with pytest.raises(
            ValueError,
            match=r"certificate of 127\.0\.0\.1.* cannot be verified.*set SSL_CERT_FILE",
        ):
            Client(url, most_epsilon=2.0, patience=300)
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        with pytest.raises(ValueError, match=r"refused the request \(404\)"):
            Client(url, most_epsilon=2.0, patience=300)


# The proxy


@pytest.mark.parametrize("host", ["192.0.2.9", "::", "192.0.2.1", "collect.example"])
def test_other_addresses_than_the_loopback_interface_need_a_proxy(host, tmp_path):
    database = f"sqlite:///{tmp_path}/c.sqlite3"
    with pytest.raises(
        ValueError, match="behind_proxy must be the addresses of a proxy with TLS"
    ):
        Settings(database, ADMINISTRATOR, host=host)
    assert (
        Settings(
            database, ADMINISTRATOR, host=host, behind_proxy="172.30.0.0/24, ::1"
        ).host
        == host
    )
    for wrong in ("*", "proxy", "172.30.0.0/33"):
        with pytest.raises(
            ValueError, match="behind_proxy must be addresses or networks such as"
        ):
            Settings(database, ADMINISTRATOR, host=host, behind_proxy=wrong)
    for own in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        assert Settings(database, ADMINISTRATOR, host=own).behind_proxy == ""


def test_a_unix_socket_serves_the_proxy_of_its_folder(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:  # by a killed process
        left.bind(str(path))
    limits = {"messages_per_second": 0.001, "burst": 1}
    with serving(tmp_path, unix=path, **limits) as server:
        assert server.url == f"unix:{path}"
        server.http.close()
        with httpx.Client(
            base_url="http://a",
            transport=httpx.HTTPTransport(uds=str(path)),
            timeout=PATIENCE,
        ) as http:
            server.http = http
            server.create("open", MECHANISM)
            addresses = ("198.51.100.1", "198.51.100.1", "198.51.100.2")
            answers = [
                server.send(
                    "open",
                    MECHANISM,
                    packed(MECHANISM, 1),
                    1,
                    headers={"X-Forwarded-For": address},
                )
                for address in addresses
            ]
        assert [answer.status_code for answer in answers] == [200, 429, 200]
        other = Settings(f"sqlite:///{tmp_path}/o.sqlite3", ADMINISTRATOR, unix=path)
        with pytest.raises(ValueError, match="is in use; pass another --unix"):
            _bound(other)


def test_an_address_that_cannot_be_listened_on_is_one_sentence(tmp_path):
    def bound(**where):
        return _bound(
            Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR, **where)
        )

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            ValueError,
            match=f"port {port} of 127.0.0.1 is in use; stop the other program, or pass",
        ):
            bound(port=port)
    with pytest.raises(
        ValueError, match=r"nothing can listen on port 80 of 192\.0\.2\.1"
    ):
        bound(host="192.0.2.1", port=80, behind_proxy="127.0.0.1")
    with pytest.raises(
        ValueError, match=r"port must be an integer in \[0, 65535\], got 99999"
    ):
        bound(port=99999)
    bound(port=0).close()


def test_only_named_proxies_say_whose_uploads_they_pass_on(tmp_path):
    with serving(
        tmp_path,
        behind_proxy="192.0.2.7, 127.0.0.1",
        messages_per_second=0.001,
        burst=1,
    ) as server:
        server.create("open", MECHANISM)
        server.http.close()

        def send(address):
            return server.send(
                "open",
                MECHANISM,
                packed(MECHANISM, 1),
                1,
                headers={"X-Forwarded-For": address},
            )

        # the second is nobody's proxy
        for proxy, last in (("127.0.0.1", 200), ("127.0.0.2", 429)):
            way = httpx.HTTPTransport(local_address=proxy)
            with httpx.Client(
                base_url=server.url, transport=way, timeout=PATIENCE
            ) as server.http:
                answers = [
                    send("198.51.100.1"),
                    send("198.51.100.1"),
                    send("198.51.100.2"),
                ]
            assert [answer.status_code for answer in answers] == [200, 429, last]
            assert 1 <= int(answers[1].headers["retry-after"]) <= 1000


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A collector that holds two uploads and waits for bodies for 3 s."""
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
    with (
        ThreadPoolExecutor(8) as threads,
        closing(sqlite3.connect(hasty.database, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")  # nothing can be written
        sent = [threads.submit(send, number) for number in range(8)]
        until(lambda: sum(answer.done() for answer in sent) >= 6)
        other.execute("ROLLBACK")
        answers = [answer.result() for answer in sent]
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [503] * 6
    for answer in answers:
        if answer.status_code == 503:
            assert (
                answer.json()["detail"]
                == "Too many uploads are waiting to be stored; try again."
            )
            assert answer.headers["retry-after"] == "1"
    assert hasty.status("open")["received"] == before + 10
    assert send(0).status_code == 200


def test_bodies_that_come_too_slowly_are_cut_off(hasty):
    before = hasty.status("open")["received"]
    token = hasty.sender("open")
    with hasty.connect() as line:
        head = "POST /v1/campaigns/open/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n"
        head += f"Content-Type: application/octet-stream\r\nAuthorization: Bearer {token}\r\n"
        head += f"Idempotency-Key: {'ab' * 16}\r\nSSTQ-Count: 5\r\n"
        line.sendall(f"{head}SSTQ-Digest: {MECHANISM.digest()}\r\n\r\nabc".encode())
        said = b""
        while part := line.recv(1000):  # until it closes
            said += part
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"The body of the request arrived too slowly." in said
    assert hasty.status("open")["received"] == before


@pytest.mark.parametrize("trailers", [b"a: b\r\n" * 10_000, b"T: " + b"x" * 60_000])
def test_a_body_without_a_size_is_refused_before_its_trailers(hasty, trailers):
    """They have no limit: 60 MB of them took a gigabyte."""
    before = hasty.status("open")["received"]
    with hasty.connect() as line:
        head = (
            "POST /v1/campaigns/open/messages HTTP/1.1\r\nHost: a\r\nSSTQ-Count: 1\r\n"
        )
        head += f"Content-Type: application/octet-stream\r\nIdempotency-Key: {'cd' * 16}\r\n"
        head += (
            f"SSTQ-Digest: {MECHANISM.digest()}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        line.sendall(head.encode() + b"2\r\n\0\0\r\n0\r\n")
        with pytest.raises(ConnectionError):
            line.sendall(trailers * 1000)  # 60 MB
    assert hasty.status("open")["received"] == before
    refused = hasty.http.post("/v1/campaigns", content=iter([b"{}"]))
    assert (refused.status_code, "Content-Length" in refused.json()["detail"]) == (
        411,
        True,
    )
