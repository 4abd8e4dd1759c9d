"""A collector behind each proxy under abuse: how many uploads of others per second remain, and how long /health takes.

The proxies are Caddy and nginx with the files of deploy/, where they are installed. Honest clients and attackers have
different addresses of the loopback interface, and the attackers share one. They are processes of low priority:
elsewhere they would not take the server's cores. A turn measures with and without attackers, every other turn the other
way round: neither a drift of the machine nor what an attack leaves behind always falls on the same side. What counts is
the median of the turns. It takes ten minutes with both proxies.
"""

import asyncio
import json
import multiprocessing
import os
import secrets
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

import sstq
from benchmarks.harness import FULL, Result, benchmark, memory_of
from sstq.messages.batch import Messages

SECONDS, TURNS = (8.0, 9) if FULL else (2.0, 7)
BEGINNING = 1.0  # seconds from the start of an attack to its measurement, and from its end to the next one
HONEST = [f"127.0.0.{number}" for number in range(20, 28)]  # a connection each
PROBE = "127.0.0.3"
ATTACKER = "127.0.0.9"
LARGE = 25_450
HUGE = 250_000
BATCH = 10_000

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Where = tuple[str, str]  # a proxy's URL and the certificate to trust


class Attack(NamedTuple):
    """What so many tasks do again and again, with these arguments; what it may delay, if anything else."""

    what: str
    task: Callable[..., Coroutine[Any, Any, None]]
    tasks: int
    given: dict[str, Any]
    delays_estimates: bool = False


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
    server.create("small", small)
    attacks = _prepared(server)
    _honest(where, small, 1.0)
    for attack in attacks:
        what = f"{proxy}: {attack.what}"
        ratios = []
        health = []
        memory = 0.0
        for number in range(TURNS):
            rates = {}
            for attacked in (number % 2 == 0, number % 2 == 1):
                with _attacking(where, attack) if attacked else nullcontext():
                    time.sleep(BEGINNING)
                    rates[attacked], slowest = _honest(where, small)
                    if attacked:
                        health.append(1000 * slowest)
                        memory = max(memory, _resident_bytes(server.process.pid))
            ratios.append(rates[True] / rates[False])
        note = f"turns: {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}"
        note += f"; in the last one {rates[True]:,.0f} uploads per second"
        ratio = statistics.median(ratios)
        yield Result(f"{what}: uploads of others", ratio, "×", note, target=0.8)
        slowest = statistics.median(health)
        note = f"at most {max(health):.0f}"
        what_health = f"{what}: slowest /health"
        yield Result(what_health, slowest, "ms", note, target=100, at_most=True)
        what_memory = f"{what}: memory of the collector"
        mebibytes = memory / 2**20
        yield Result(what_memory, mebibytes, "MiB", target=1024, at_most=True)
        if attack.delays_estimates:
            with _attacking(where, attack):
                time.sleep(BEGINNING)
                _honest(where, small)
                delay = _delay(server)
            what += ": until another campaign's estimate has a message"
            yield Result(what, delay, "s", target=5, at_most=True)


def _prepared(server: Any) -> list[Attack]:
    """Create the campaigns that are attacked; returns the attacks."""
    large = sstq.FrameUnit(dim=LARGE, epsilon=4.0)
    dense = sstq.PrivUnit(dim=500, epsilon=3.0)  # 2,000 bytes per message
    slow = sstq.FrameUnit(dim=LARGE, epsilon=4.0, frames=2048)
    huge = sstq.FrameUnit(dim=HUGE, epsilon=4.0)
    server.create("large", large, readers="public")
    server.create("huge", huge, readers="public")
    server.create("slow", slow)
    server.create("dense", dense)
    for name, mechanism in (("large", large), ("huge", huge), ("slow", slow)):
        answer = server.send(name, mechanism, _messages(mechanism, 2000), 2000)
        assert answer.status_code == 200
        server.wait(name, 2000)
    half_sent = {
        "token": server.sender("dense"),
        "digest": dense.digest(),
        "bits": dense.message_bits,
    }
    batches = {
        "token": server.sender("slow", people=10**9),
        "digest": slow.digest(),
        "body": _messages(slow, BATCH),
    }
    return [
        Attack(f"8 readers of a CSV of {LARGE:,} rows", _read, 8, {}),
        Attack(
            "13 half-sent uploads of 20 MB, with a sender's token",
            _half_send,
            13,
            half_sent,
        ),
        Attack("2,100 silent connections", _stay_silent, 2100, {}),
        Attack(
            f"a sender of batches of {BATCH:,} to a campaign of 2,048 frames",
            _send_batches,
            1,
            batches,
            delays_estimates=True,
        ),
        Attack(
            f"200 readers that do not read an estimate of {HUGE:,} dimensions",
            _leave_unread,
            200,
            {},
        ),
        Attack("8 bodies of 4 MB without a token", _post, 8, {}),
    ]


def _messages(mechanism: sstq.Mechanism, count: int) -> bytes:
    """So many messages, of at most 100 people again and again."""
    people = min(count, 100)
    vectors = np.random.default_rng().normal(0, 0.001, (people, mechanism.dim))
    messages = mechanism.encode(vectors)
    return Messages.concatenate([messages] * (count // people)).to_bytes()


def _honest(
    where: Where, mechanism: sstq.Mechanism, seconds: float = SECONDS
) -> tuple[float, float]:
    """Send single messages; returns uploads per second and the slowest /health in seconds."""
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
    return done / seconds, slowest


def _delay(server: Any) -> float:
    """The seconds until the estimate of the small campaign has all messages that have been received."""
    begun = time.monotonic()
    server.wait("small", server.status("small")["received"])
    return time.monotonic() - begun


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
def _attacking(where: Where, attack: Attack) -> Iterator[None]:
    """Attack in another process while the block runs."""
    # It forks from a process that has imported everything, so that an attack begins at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.abuse"])
    process = context.Process(target=_attack, args=(where, attack))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _attack(where: Where, attack: Attack) -> None:
    os.nice(19)

    async def again() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await attack.task(where, **attack.given)
            await asyncio.sleep(0.01)

    async def run() -> None:
        await asyncio.gather(*(again() for _ in range(attack.tasks)))

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
