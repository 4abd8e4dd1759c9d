"""A collector behind Caddy and nginx, with the files of deploy/."""

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Client
from tests.patience import PATIENCE
from tests.service.proxying import PROXIES, is_installed, proxied
from tests.service.serving import ADMINISTRATOR, packed, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
# So that a test need not wait for as long as strangers may.
HASTY = {
    "caddy": {"read_header 10s": "read_header 1s"},
    "nginx": {"client_header_timeout 10s": "client_header_timeout 1s"},
}
# What a proxy answers for headers that are too large, and for a body without a size.
HEADERS = {"caddy": b" 431 ", "nginx": b" 400 "}
# (nginx counts it). The collector ends the connection, so Caddy says 502 if it is still sending.
CHUNKED = {"caddy": (411, 502), "nginx": (200,)}


@pytest.fixture(params=PROXIES, scope="module")
def proxy(request):
    if not is_installed(request.param):
        pytest.skip(
            f"NO PROXY: deploy/ is not tested with {request.param}; apt-get install caddy nginx-light"
        )
    return request.param


@pytest.fixture(scope="module")
def behind(proxy, tmp_path_factory):
    """The proxy's URL and certificate, and the collector behind it, which lets an address send one message."""
    folder = tmp_path_factory.mktemp("behind")
    limits = {"behind_proxy": "127.0.0.1", "messages_per_second": 0.001, "burst": 1}
    with (
        serving(folder, **limits) as server,
        proxied(
            proxy, server.url.removeprefix("http://"), folder / proxy, HASTY[proxy]
        ) as (url, chain),
    ):
        server.create("open", MECHANISM, readers="public", release_every=1)
        yield url, chain, server


@pytest.fixture
def http(behind):
    url, chain, _ = behind
    with httpx.Client(
        base_url=url,
        verify=ssl.create_default_context(cafile=str(chain)),
        timeout=PATIENCE,
    ) as client:
        yield client


def test_uploads_estimates_and_pages_pass(behind, http, monkeypatch):
    url, chain, server = behind
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    client = Client(f"{url}/open", most_epsilon=2.0, token=server.sender("open"))
    assert client.send(np.eye(6)) == 6
    server.wait("open", 6)
    answer = http.get("/v1/campaigns/open/estimate")
    assert answer.json()["count"] >= 6
    assert "max-age" in answer.headers["strict-transport-security"]
    assert (
        http.get(
            "/v1/campaigns/open/estimate",
            headers={"If-None-Match": answer.headers["etag"]},
        ).status_code
        == 304
    )
    assert "sstq collector" in http.get("/open").text
    assert (
        http.get(
            "/v1/campaigns", headers={"Authorization": f"Bearer {ADMINISTRATOR}"}
        ).status_code
        == 200
    )


def test_the_address_of_a_client_counts_and_not_what_it_says(behind, http, proxy):
    """Nobody gets another bucket by naming another address."""
    url, chain, server = behind

    def send(name, address):
        server.create(name, MECHANISM)
        server.http, before = source(address), server.http
        try:
            spoofed = {
                "X-Forwarded-For": f"198.51.100.{len(name)}",
                "Authorization": None,
            }
            return server.send(
                name, MECHANISM, packed(MECHANISM, 1), 1, headers=spoofed
            ).status_code
        finally:
            server.http.close()
            server.http = before

    def source(address):
        context = ssl.create_default_context(cafile=str(chain))
        way = httpx.HTTPTransport(verify=context, local_address=address)
        return httpx.Client(base_url=url, transport=way, timeout=PATIENCE)

    answers = [
        send(name, address)
        for name, address in (
            ("a", "127.0.0.5"),
            ("bb", "127.0.0.5"),
            ("ccc", "127.0.0.6"),
        )
    ]
    assert answers == [200, 429, 200]


def raw(behind):
    url, chain, _ = behind
    line = socket.create_connection(("127.0.0.1", httpx.URL(url).port), PATIENCE)
    return ssl.create_default_context(cafile=str(chain)).wrap_socket(
        line, server_hostname="127.0.0.1"
    )


def said(line):
    """All that is said until the end."""
    found = b""
    with suppress(ConnectionError, ssl.SSLError):
        while part := line.recv(1000):
            found += part
    return found


def test_headers_that_never_end_or_come_too_slowly_are_cut_off(behind, proxy):
    with raw(behind) as line, suppress(OSError):
        line.sendall(
            b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            + b"X: %s\r\n" % (b"1" * 7000) * 20
        )
        assert HEADERS[proxy] in said(line)
    with raw(behind) as line:
        line.sendall(b"GET /health HTTP/1.1\r\n")
        assert b" 200 " not in said(line)  # it ends


def test_trailers_without_end_do_not_reach_the_collector(behind):
    _, _, server = behind

    def memory():
        pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    before = memory()
    with raw(behind) as line, suppress(OSError):
        head = "POST /v1/campaigns/open/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
        head += f"Content-Type: application/octet-stream\r\nIdempotency-Key: {'cd' * 16}\r\nSSTQ-Count: 1\r\n"
        line.sendall(
            f"{head}SSTQ-Digest: {MECHANISM.digest()}\r\n\r\n2\r\n\0\0\r\n0\r\n".encode()
        )
        line.sendall(b"a: b\r\n" * 3_000_000)  # 18 MB take 300 MB without a proxy
    assert memory() < before + (64 << 20)


def test_bodies_without_a_size_or_beyond_all_limits_do_not_reach_the_collector(
    behind, http, proxy
):
    _, _, server = behind
    whole = {
        "Content-Type": "application/octet-stream",
        "Idempotency-Key": "ab" * 16,
        "SSTQ-Count": "1",
        "SSTQ-Digest": MECHANISM.digest(),
        "Authorization": f"Bearer {server.sender('open')}",
    }
    chunked = http.post(
        "/v1/campaigns/open/messages",
        content=iter([packed(MECHANISM, 1)]),
        headers=whole,
    )
    assert chunked.status_code in CHUNKED[proxy]
    before = server.status("open")["received"]
    large = http.post(
        "/v1/campaigns/open/messages", content=bytes(36 << 20), headers=whole
    )
    # by the proxy, or by the collector while the proxy still sends
    assert large.status_code in (413, 422, 502)
    assert server.status("open")["received"] == before
