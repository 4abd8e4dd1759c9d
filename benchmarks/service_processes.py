"""What a developer would write in an afternoon to collect messages: one row per message and a GROUP BY.

    python -m benchmarks.service_processes DATABASE_URL

It is as durable as ours (a commit waits for the disk), and counts twice what is sent twice.
"""

import socket
import sys
from typing import Any

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


if __name__ == "__main__":
    serve_afternoon(sys.argv[1])
