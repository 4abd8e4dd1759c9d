"""A collector behind each proxy under abuse: how many uploads of others per second remain, and how long /health takes.

The proxies are Caddy and nginx with the files of deploy/, where they are installed. Honest clients and attackers have
different addresses of the loopback interface, and the attackers share one. They are processes of low priority:
elsewhere they would not take the server's cores. Every figure is beside one without attackers, taken in turns; what
counts is the median of the ratios, and the best of the slowest answers of /health.
"""

import asyncio
import json
import math
import multiprocessing
import os
import secrets
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

import sstq
from benchmarks.harness import FULL, Result, benchmark, memory_of

SECONDS, TURNS = (15.0, 7) if FULL else (4.0, 7)
HONEST = [f"127.0.0.{number}" for number in range(20, 28)]  # a connection each
PROBE = "127.0.0.3"
ATTACKER = "127.0.0.9"
LARGE = 25_450
HUGE = 250_000
BATCH = 10_000

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Where = tuple[str, str]  # a proxy's URL and the certificate to trust


@benchmark
def abuse() -> Iterator[Result]:
    """Uploads of others and /health while strangers try to stop the service; memory of many large campaigns."""
    from tests.service.proxying import PROXIES, is_installed, proxied
    from tests.service.serving import serving

    limits: dict[str, Any] = {
        "behind_proxy": "127.0.0.1",
        "messages_per_second": 0,
        "fold_seconds": 1.0,
    }
    with tempfile.TemporaryDirectory(prefix="sstq-abuse-") as folder:
        for proxy in filter(is_installed, PROXIES):
            inside = Path(folder) / f"behind-{proxy}"
            inside.mkdir()
            with (
                serving(inside, **limits) as server,
                proxied(proxy, server.url.removeprefix("http://"), inside / proxy) as (
                    url,
                    chain,
                ),
            ):
                yield from _attacks(server, proxy, (url, str(chain)))
        with serving(Path(folder), messages_per_second=0, fold_seconds=1.0) as server:
            yield from _memory(server)


def _attacks(server: Any, proxy: str, where: Where) -> Iterator[Result]:
    small = sstq.FrameUnit(dim=16, epsilon=2.0)
    large = sstq.FrameUnit(dim=LARGE, epsilon=4.0)
    dense = sstq.PrivUnit(dim=500, epsilon=3.0)  # 2,000 bytes per message
    slow = sstq.FrameUnit(dim=LARGE, epsilon=4.0, frames=2048)
    huge = sstq.FrameUnit(dim=HUGE, epsilon=4.0)
    server.create("small", small)
    server.create("large", large, readers="public")
    server.create("huge", huge, readers="public")
    server.create("slow", slow)
    server.create("dense", dense)
    for name, mechanism in (("large", large), ("huge", huge), ("slow", slow)):
        assert (
            server.send(name, mechanism, _messages(mechanism, 2000), 2000).status_code
            == 200
        )
        server.wait(name, 2000)
    attacks = {
        f"8 readers of a CSV of {LARGE:,} rows": (_read, 8, {}),
        "13 half-sent uploads of 20 MB, with a sender's token": (
            _half_send,
            13,
            {
                "token": server.sender("dense"),
                "digest": dense.digest(),
                "bits": dense.message_bits,
            },
        ),
        "2,100 silent connections": (_stay_silent, 2100, {}),
        f"a sender of batches of {BATCH:,} to a campaign of 2,048 frames": (
            _send_batches,
            1,
            {
                "token": server.sender("slow", people=10**9),
                "digest": slow.digest(),
                "body": _messages(slow, BATCH),
            },
        ),
        f"200 readers that do not read an estimate of {HUGE:,} dimensions": (
            _leave_unread,
            200,
            {},
        ),
        "8 bodies of 4 MB without a token": (_post, 8, {}),
    }
    _honest(where, small, 1.0)
    for what, (attack, tasks, given) in attacks.items():
        # In turns, and the median of their ratios: a machine may be several times slower a minute later.
        turns = []
        health = covered = math.inf
        memory = 0.0
        for _ in range(TURNS):
            before = _honest(where, small)[0]
            with _attacking(where, attack, tasks, given):
                time.sleep(2.0)  # they have begun
                during, slowest, delay = _honest(where, small, server=server)
                memory = max(memory, _resident_bytes(server.process.pid))
            turns.append(during / before)
            health = min(health, slowest)
            covered = min(covered, delay)
        what = f"{proxy}: {what}"
        note = f"turns: {', '.join(f'{turn:.2f}' for turn in turns)}; in the last one {during:,.0f} uploads per second"
        yield Result(
            f"{what}: uploads of others",
            statistics.median(turns),
            "×",
            note,
            target=0.8,
        )
        yield Result(
            f"{what}: slowest /health", 1000 * health, "ms", target=100, at_most=True
        )
        yield Result(
            f"{what}: memory of the collector",
            memory / 2**20,
            "MiB",
            target=1024,
            at_most=True,
        )
        if "batches" in what:
            yield Result(
                f"{what}: until another campaign's estimate has a message",
                covered,
                "s",
                target=5,
                at_most=True,
            )


def _messages(mechanism: sstq.Mechanism, count: int) -> bytes:
    return mechanism.encode(
        np.random.default_rng().normal(0, 0.01, (count, mechanism.dim))
    ).to_bytes()


def _honest(
    where: Where,
    mechanism: sstq.Mechanism,
    seconds: float = SECONDS,
    server: Any = None,
) -> tuple[float, float, float]:
    """Send single messages; returns uploads per second, the slowest /health, and the delay of an estimate, in s."""
    body = _messages(mechanism, 1)
    digest = mechanism.digest()

    async def run() -> tuple[int, float]:
        ends = time.monotonic() + seconds
        done = 0
        slowest = 0.0

        async def send(source: str) -> None:
            nonlocal done
            reader, writer = await _connect(where, source)
            while time.monotonic() < ends:
                status = await _ask(
                    reader,
                    writer,
                    "POST",
                    "/v1/campaigns/small/messages",
                    _head(digest, 1),
                    body,
                )
                assert status == 200, status
                done += 1
            writer.close()

        async def probe() -> None:
            nonlocal slowest
            while time.monotonic() < ends:
                begun = time.monotonic()
                reader, writer = await _connect(where, PROBE)
                assert await _ask(reader, writer, "GET", "/health", {}, b"") == 200
                writer.close()
                slowest = max(slowest, time.monotonic() - begun)
                await asyncio.sleep(0.05)

        await asyncio.gather(probe(), *map(send, HONEST))
        return done, slowest

    done, slowest = asyncio.run(run())
    covered = 0.0
    if server is not None:
        begun = time.monotonic()
        wanted = server.status("small")["received"]
        server.wait("small", wanted)
        covered = time.monotonic() - begun
    return done / seconds, slowest, covered


def _head(digest: str, count: int, token: str | None = None) -> dict[str, str]:
    head = {
        "Content-Type": "application/octet-stream",
        "Idempotency-Key": secrets.token_hex(16),
        "SSTQ-Count": str(count),
        "SSTQ-Digest": digest,
    }
    return head | ({"Authorization": f"Bearer {token}"} if token else {})


async def _connect(where: Where, source: str) -> tuple[Reader, Writer]:
    parts = urlsplit(where[0])
    return await asyncio.open_connection(
        parts.hostname, parts.port, local_addr=(source, 0), ssl=_trusting(where[1])
    )


@cache
def _trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


def _request(method: str, path: str, headers: dict[str, str], size: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {size}"]
    return "\r\n".join(
        [*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    ).encode()


async def _ask(
    reader: Reader,
    writer: Writer,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
) -> int:
    writer.write(_request(method, path, headers, len(body)) + body)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
    await reader.readexactly(length)
    return int(head.split()[1])


# Attackers


@contextmanager
def _attacking(
    where: Where, attack: Callable[..., Any], tasks: int, given: dict[str, Any]
) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(
        target=_attack, args=(where, attack, tasks, given)
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _attack(
    where: Where,
    attack: Callable[..., Coroutine[Any, Any, None]],
    tasks: int,
    given: dict[str, Any],
) -> None:
    os.nice(19)

    async def again() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await attack(where, **given)
            await asyncio.sleep(0.01)

    async def run() -> None:
        await asyncio.gather(*(again() for _ in range(tasks)))

    asyncio.run(run())


async def _read(where: Where) -> None:
    reader, writer = await _connect(where, ATTACKER)
    while True:
        await _ask(
            reader, writer, "GET", "/v1/campaigns/large/estimate?format=csv", {}, b""
        )


async def _half_send(where: Where, token: str, digest: str, bits: int) -> None:
    count = BATCH
    size = -(-count * bits // 8)
    reader, writer = await _connect(where, ATTACKER)
    writer.write(
        _request(
            "POST", "/v1/campaigns/dense/messages", _head(digest, count, token), size
        )
        + bytes(size // 2)
    )
    await writer.drain()
    await reader.read(1000)
    writer.close()


async def _stay_silent(where: Where) -> None:
    parts = urlsplit(where[0])
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, local_addr=(ATTACKER, 0)
    )
    await reader.read(1000)
    writer.close()


async def _send_batches(where: Where, token: str, digest: str, body: bytes) -> None:
    reader, writer = await _connect(where, ATTACKER)
    while True:
        await _ask(
            reader,
            writer,
            "POST",
            "/v1/campaigns/slow/messages",
            _head(digest, BATCH, token),
            body,
        )


async def _leave_unread(where: Where) -> None:
    reader, writer = await _connect(where, ATTACKER)
    writer.write(_request("GET", "/v1/campaigns/huge/estimate", {}, 0))
    await writer.drain()
    await reader.read(1000)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(3600)


async def _post(where: Where) -> None:
    reader, writer = await _connect(where, ATTACKER)
    body = b'{"a":[' + b"{}," * 1_390_000 + b"{}]}"
    await _ask(
        reader,
        writer,
        "POST",
        "/v1/campaigns",
        {"Content-Type": "application/json"},
        body,
    )


# Memory


def _memory(server: Any) -> Iterator[Result]:
    """Ten large campaigns that are folded and estimated: the memory of the server and its processes."""
    mechanism = sstq.FrameUnit(dim=LARGE, epsilon=4.0, frames=2048)
    body = _messages(mechanism, BATCH)
    most = 0.0
    for number in range(10):
        server.create(f"large-{number}", mechanism)
        for _ in range(2):
            assert (
                server.send(f"large-{number}", mechanism, body, BATCH).status_code
                == 200
            )
    while True:
        most = max(most, _resident_bytes(server.process.pid))
        rows = json.loads(server.administer("GET", "/v1/campaigns").content)[
            "campaigns"
        ]
        if all(
            row["covered"] == 2 * BATCH
            for row in rows
            if row["name"].startswith("large-")
        ):
            break
        time.sleep(0.2)
    note = f"ten campaigns of {LARGE:,} dimensions and 2,048 frames, {2 * BATCH:,} messages each"
    yield Result(
        "memory of the collector and its processes",
        most / 2**20,
        "MiB",
        note,
        target=1024,
        at_most=True,
    )


def _resident_bytes(process: int) -> int:
    """The resident memory of a process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            children += (thread / "children").read_text().split()
    total = 0
    for own in {str(process), *children}:
        with suppress(OSError):
            total += memory_of(own)
    return total
