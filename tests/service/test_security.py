"""What a security reviewer looks for: headers, tokens, limits, slow clients, and a log that knows nobody."""

import asyncio
import hmac
import json
import logging
import re
import sys
from unittest.mock import AsyncMock

import pytest

import sstq

pytest.importorskip("fastapi")

import httpx

from sstq.service import Settings, app, common_routes, create_app, security
from sstq.service.observing import PrivateFormatter
from sstq.service.security import (
    AddressLimits,
    BodyShares,
    Problem,
    is_token,
    network,
    token_hash,
)
from tests.patience import PATIENCE
from tests.service.serving import ADMINISTRATOR, packed, serving

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    real = hmac.compare_digest

    def compare(one, other):
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(security.hmac, "compare_digest", compare)
    assert is_token("secret", token_hash("secret"))
    assert not is_token("Secret", token_hash("secret"))
    assert not is_token(None, token_hash("secret"))
    assert not is_token("secret", None)
    # Of hashes, which have one length whatever the token is.
    assert [len(part) for pair in compared for part in pair] == [32] * 4


def test_an_address_has_a_bucket_and_neighbours_share_it():
    limits = AddressLimits(per_second=2, burst=3)
    assert [limits.take("10.0.0.1", now=100.0) for _ in range(3)] == [0, 0, 0]
    assert limits.take("10.0.0.1", now=100.0) == pytest.approx(0.5)
    assert limits.take("10.0.0.2", now=100.0) == 0
    assert limits.take("10.0.0.1", now=100.5) == 0
    assert [
        limits.take(network(f"2001:db8::{last}"), now=100.0) for last in range(3)
    ] == [0, 0, 0]
    assert limits.take(network("2001:db8::ffff"), now=100.0) > 0
    assert limits.take(network("2001:db8:0:1::1"), now=100.0) == 0


def test_units_are_counted_and_what_was_used_is_owed():
    limits = AddressLimits(per_second=2, burst=10)
    assert limits.take("10.0.0.1", 8, 100.0) == 0
    assert limits.take("10.0.0.1", 4, 100.0) == pytest.approx(1.0)
    # more than a bucket holds, from a full one
    assert limits.take("10.0.0.2", 20, 100.0) == 0
    assert limits.take("10.0.0.3", 30, owed=True) == 0
    assert limits.take("10.0.0.3") == pytest.approx(10.5, abs=1)


def test_addresses_in_memory_are_bounded_and_forgotten_once_their_bucket_is_full(
    monkeypatch,
):
    monkeypatch.setattr(AddressLimits, "_MOST_ADDRESSES", 10)
    limits = AddressLimits(per_second=2, burst=3)
    for number in range(100):
        limits.take(f"10.0.0.{number}", now=1.0)
    assert len(limits._full_at) <= 10
    limits.take("10.0.0.1", 3, now=100.0)
    limits.take("10.0.0.2", now=100.0)
    limits.forget(100.75)
    assert list(limits._full_at) == ["10.0.0.1"]


def test_a_running_collector_forgets_addresses(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "_LOOK_SECONDS", 0.01)
    forgotten = asyncio.Event()
    monkeypatch.setattr(AddressLimits, "forget", lambda _: forgotten.set())
    application = create_app(Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR))

    async def run():
        async with application.router.lifespan_context(application):
            await asyncio.wait_for(forgotten.wait(), PATIENCE)

    asyncio.run(run())


@pytest.mark.parametrize("form", ["text", "json"])
def test_errors_are_logged_without_what_they_say(form):
    try:
        raise ValueError("key 0123")
    except ValueError:
        record = logging.LogRecord(
            "a", logging.ERROR, "f", 1, "failed", (), sys.exc_info()
        )
    text = PrivateFormatter(form).format(record)
    assert "ValueError" in text
    assert "0123" not in text.replace('raise ValueError("key 0123")', "").replace(
        r"raise ValueError(\"key 0123\")", ""
    )
    assert not re.search(r"\d\d:\d\d", text)
    if form == "json":
        line = json.loads(text)
        assert (set(line), line["level"]) == (
            {"hour", "level", "message", "error"},
            "ERROR",
        )


@pytest.fixture(scope="module")
def server(server):
    server.create("page", MECHANISM, origins=["https://a.example"])
    server.create("pageless", MECHANISM)
    return server


@pytest.mark.slow
def test_every_answer_has_the_headers(server):
    for path in ("/health", "/v1/campaigns/page", "/nothing", "/metrics"):
        headers = server.http.get(path).headers
        assert {name: headers[name] for name in security.HEADERS} == security.HEADERS
        assert not {"server", "set-cookie"} & set(headers)
    assert "default-src 'none'" in security.CONTENT_POLICY
    assert "frame-ancestors 'none'" in security.CONTENT_POLICY
    assert "unsafe" not in security.CONTENT_POLICY


@pytest.mark.slow
def test_pages_of_allowed_origins_may_send_and_others_may_not(server):
    def ask(origin, name="page", method="OPTIONS", path="/messages"):
        asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return server.http.request(method, f"/v1/campaigns/{name}{path}", headers=asks)

    allowed = ask("https://a.example")
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (
        204,
        "https://a.example",
    )
    assert "access-control-allow-credentials" not in allowed.headers
    for refused in (
        ask("https://b.example"),
        ask("https://a.example", "pageless"),
        ask("null"),
    ):
        assert (
            refused.status_code,
            "access-control-allow-origin" in refused.headers,
        ) == (403, False)
    body = packed(MECHANISM, 1)
    statuses = [
        server.send("page", MECHANISM, body, 1, headers={"Origin": origin}).status_code
        for origin in ("https://a.example", "https://b.example", server.url, None)
    ]
    assert statuses == [200, 403, 200, 200]
    for method, path in [("OPTIONS", ""), ("DELETE", "")]:
        assert (
            "access-control-allow-origin"
            not in ask("https://a.example", method=method, path=path).headers
        )


@pytest.mark.slow
def test_a_body_without_a_length_is_refused_unread(server):
    before = server.status("page")["received"]
    with server.connect() as line:
        head = "POST /v1/campaigns/page/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        head += f"Content-Type: application/octet-stream\r\nIdempotency-Key: {'a' * 32}\r\nSSTQ-Count: 1\r\n"
        line.sendall((head + f"SSTQ-Digest: {MECHANISM.digest()}\r\n\r\n").encode())
        sent = 0
        try:
            for _ in range(1000):
                line.sendall(b"%x\r\n%s\r\n" % (100_000, bytes(100_000)))
                sent += 100_000
        except OSError:
            pass
    # of 100 million: what the drain and the buffers of both sides hold
    assert sent < 50_000_000
    assert server.status("page")["received"] == before


@pytest.mark.slow
def test_logs_hold_no_address_agent_key_or_token(tmp_path):
    with serving(tmp_path) as server:
        server.create("open", MECHANISM)
        server.http.headers["User-Agent"] = "agent-of-the-tests"
        assert (
            server.send(
                "open", MECHANISM, packed(MECHANISM), 5, key="3f" * 16
            ).status_code
            == 200
        )
        assert server.send("open", MECHANISM, b"", 5).status_code == 422
        with server.connect() as line:
            line.sendall(b"nonsense\r\n\r\n")
            line.recv(1000)
        log = server.log
        database = tmp_path / "collector.sqlite3"
    text = log.read_text()
    for secret in ("127.0.0.1", "agent-of-the-tests", "3f" * 16, ADMINISTRATOR):
        assert secret not in text
    assert not re.search(r"\d\d:\d\d", text)
    stored = database.read_bytes()
    for secret in (b"127.0.0.1", b"agent-of-the-tests", ADMINISTRATOR.encode()):
        assert secret not in stored


def body_of(shares, receive, address="10.0.0.1", size=None):
    headers = [] if size is None else [(b"content-length", b"%d" % size)]
    return security.RequestBody(
        shares, {"client": (address, 1), "headers": headers}, receive
    )


def test_bodies_that_never_end_take_the_share_of_their_address_and_no_more():
    shares = BodyShares()

    async def endless():
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    def half():
        parts = [bytes(1 << 20)]

        async def receive():
            if not parts:
                await asyncio.sleep(PATIENCE)
            return {"type": "http.request", "body": parts.pop(), "more_body": True}

        return receive

    async def run():
        with pytest.raises(
            Problem, match="Too much is arriving from this address"
        ) as caught:
            await body_of(shares, endless).read(1 << 30)
        assert caught.value.status_code == 429
        # Nothing more is read until the client has waited.
        receive = AsyncMock(return_value={"type": "http.disconnect"})
        reading = body_of(shares, receive)
        refusal = asyncio.create_task(reading.refuse(caught.value))
        await asyncio.sleep(security._WAIT_SECONDS / 5)
        assert not receive.called
        assert (await refusal).headers["connection"] == "close"
        # 60 MB of another address are on their way, and will stay so.
        waiting = [
            asyncio.create_task(body_of(shares, half(), "10.0.0.2").read(1 << 25))
            for _ in range(60)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        assert shares == {"10.0.0.2": 60 << 20, "": 60 << 20}

        async def whole():
            return {"type": "http.request", "body": bytes(1 << 24), "more_body": False}

        assert len(await body_of(shares, whole, "10.0.0.3").read(1 << 25)) == 1 << 24
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())
    assert shares == {"": 0}


def test_a_body_has_its_time_and_more_with_every_part(monkeypatch):
    monkeypatch.setattr(security, "_BODY_SECONDS", 0.2)
    monkeypatch.setattr(security, "_SLOWEST_BYTES_PER_SECOND", 1 / PATIENCE)
    arrived = [b"a", b"b", b"c"]
    pauses = [0.0, 0.3, 0.3]

    async def steady():
        await asyncio.sleep(pauses.pop(0))
        part = arrived.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(arrived)}

    async def never():
        await asyncio.sleep(PATIENCE)

    async def run():
        assert await body_of(BodyShares(), steady).read(10) == b"abc"
        with pytest.raises(Problem, match="arrived too slowly") as caught:
            await body_of(BodyShares(), never).read(10)
        assert caught.value.status_code == 408
        assert not asyncio.current_task().cancelling()
        # whoever stops the reader is not answered
        reading = asyncio.create_task(body_of(BodyShares(), never).read(10))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(run())


@pytest.mark.parametrize(("size", "waits"), [(4 << 20, True), (1000, False)])
def test_a_large_body_that_is_refused_waits(size, waits):
    """Whoever sends megabytes without a token again and again would keep the proxy busy."""

    async def run():
        receive = AsyncMock(return_value={"type": "http.disconnect"})
        refusal = asyncio.create_task(
            body_of(BodyShares(), receive, size=size).refuse(Problem(401, "No."))
        )
        await asyncio.sleep(security._WAIT_SECONDS / 5)
        assert receive.called != waits
        assert (await refusal).status_code == 401

    asyncio.run(run())


def test_a_mistake_of_the_collector_has_the_headers_and_says_nothing_more(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(common_routes, "check_health", lambda _: 1 / 0)
    application = create_app(Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR))

    async def ask():
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://collector"
        ) as client:
            return await client.get("/health")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["detail"]) == (
        500,
        "Internal error; the service's log has the details.",
    )
    assert answer.headers["content-security-policy"] == security.CONTENT_POLICY
    assert answer.headers["cache-control"] == "no-store"
