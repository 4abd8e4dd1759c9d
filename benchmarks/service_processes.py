"""Programs beside the collector, each in a process of its own.

    python -m benchmarks.service_processes afternoon DATABASE_URL
    python -m benchmarks.service_processes pieces DATABASE_URL MESSAGES

`afternoon` is what a developer would write in an afternoon to collect messages: one row per message and a GROUP BY. It
is as durable as ours (a commit waits for the disk), and counts twice what is sent twice. `pieces` measures the memory
of a state larger than a piece: messages on 2^16 frames are stored and folded a million at a time, and the state is
saved to a file. At last it is compared with that of one pass over all of them, which takes the memory that the
collector must not take.
"""

import json
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import sstq
from sstq.service.database import pieces
from sstq.service.store import Store
from sstq.service.store import Upload as StoredUpload

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
    """What a client sends, as JSON."""

    campaign: str
    codes: list[int]


def create_app(url: str) -> FastAPI:
    """The application."""
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": 60})
        sa.event.listen(engine, "connect", _durable)
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
        query = sa.select(messages.c.code, sa.func.count().label("messages")).where(messages.c.campaign == campaign)
        with engine.connect() as connection:
            return {row.code: row.messages for row in connection.execute(query.group_by(messages.c.code))}

    return app


def _durable(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL").close()
    connection.execute("PRAGMA synchronous = FULL").close()


def serve_afternoon(url: str) -> None:
    """Serve until the end, after printing the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(create_app(url), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


STEP = 10**6
MECHANISM = sstq.FrameUnit(dim=20, epsilon=2.0, frames=1 << 16)


def body(step: int) -> bytes:
    """A million messages: every code occurs, so that random bytes are random messages."""
    return np.random.default_rng(step).bytes(STEP * MECHANISM.message_bits // 8)


def measure_pieces(url: str, messages: int) -> None:
    """Print what was measured as JSON."""
    store, begun = Store(url), time.perf_counter()
    store.create("many", MECHANISM, "{}")
    with tempfile.TemporaryDirectory(prefix="sstq-pieces-") as folder:
        for step in range(messages // STEP):
            store.receive([StoredUpload("many", step.to_bytes(16, "big"), STEP, body(step))])
            while store.fold("many"):
                pass
        path = Path(folder) / "state.npz"
        store.state("many").save(path)
        seconds = time.perf_counter() - begun
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        query = sa.select(sa.func.count(), sa.func.max(sa.func.length(pieces.c.sums)))
        count, largest = store.read(lambda connection: connection.execute(query).one())
        store.close()
        found, expected = MECHANISM.load_aggregator(path), MECHANISM.aggregator()
    for step in range(messages // STEP):
        expected.update(MECHANISM.messages_from_bytes(body(step), STEP))
    same = found.count == expected.count and np.array_equal(found.sums(), expected.sums())
    print(
        json.dumps(
            {
                "state": expected.sums().nbytes,
                "pieces": count,
                "largest": largest,
                "memory": memory,
                "seconds": seconds,
                "wrong": 0 if same else 1,
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "afternoon":
        serve_afternoon(sys.argv[2])
    else:
        measure_pieces(sys.argv[2], int(sys.argv[3]))
