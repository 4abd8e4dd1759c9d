"""A collector without HTTP, as a process of its own: uploads come through a Unix socket and are folded all the time.

    python -m tests.service.collecting DATABASE_URL SOCKET

A line is a campaign, a key, a number of messages and a body, the last two in hexadecimal; the answer is a line.
"""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import sqlalchemy as sa

from sstq.service.database import DatabaseUnavailable
from sstq.service.inbox import Inbox
from sstq.service.store import Store, Upload


@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def pause(connection, cursor, statement, parameters, context, many) -> None:
    """Stay in transactions that have changed something, so that most kills fall into the middle of one."""
    if statement.startswith(("DELETE", "INSERT INTO receipts")):
        time.sleep(0.01)


def fold_all_the_time(store: Store) -> None:
    while True:
        with suppress(DatabaseUnavailable):
            for campaign in store.campaigns():
                store.fold(campaign.name)
        time.sleep(0.002)


async def serve(url: str, address: str) -> None:
    store = Store(url)
    async with Inbox(store) as inbox:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := (await reader.readline()).split():
                name, key, count, body = (part.decode() for part in line)
                try:
                    found = await inbox.submit(Upload(name, bytes.fromhex(key), int(count), bytes.fromhex(body)))
                    writer.write(f"{found!r}\n".encode())
                except DatabaseUnavailable:
                    writer.write(b"unavailable\n")
            writer.close()

        for campaign in store.campaigns():  # its compiled functions are loaded: killed processes live shortly
            one = campaign.mechanism.messages_from_bytes(bytes(-(-campaign.mechanism.message_bits // 8)), 1)
            campaign.mechanism.aggregator().update(one)
        server = await asyncio.start_unix_server(answer, address)
        threading.Thread(target=fold_all_the_time, args=(store,), daemon=True).start()
        print("ready", flush=True)  # noqa: T201
        await server.serve_forever()


def send_until_acknowledged(address: str, uploads: Iterable[Upload], stopping: threading.Event) -> list[Upload]:
    """What a client does: each upload with the same key until it has a receipt. Returns those that have one."""
    done, connection = [], None
    for upload in uploads:
        line = f"{upload.campaign} {upload.key.hex()} {upload.count} {upload.body.hex()}\n".encode()
        while not stopping.is_set():
            try:
                if connection is None:
                    connection = socket.socket(socket.AF_UNIX)
                    connection.settimeout(30)
                    connection.connect(address)
                connection.sendall(line)
                if connection.recv(1000) == f"Receipt(count={upload.count})\n".encode():
                    done.append(upload)
                    break
            except OSError:
                if connection is not None:
                    connection.close()
                connection = None
            time.sleep(0.01)
    if connection is not None:
        connection.close()
    return done


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
