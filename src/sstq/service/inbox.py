"""Group commit: uploads that arrive while the disk is busy share the next transaction."""

import asyncio
import threading
from collections import deque
from typing import Self

from sstq.service.store import Receipt, Refusal, Store, Upload

# What a transaction takes, and what may wait for it.
_BATCH_UPLOADS, _BATCH_BYTES = 2_000, 1 << 25
_QUEUE_UPLOADS, _QUEUE_BYTES = 20_000, 1 << 28

Answer = Receipt | Refusal


class InboxFull(Exception):  # noqa: N818
    """More uploads wait than this process holds; the client should try again later."""


class Inbox:
    """Where an event loop leaves uploads; one thread writes them to the store, as many at a time as are there.

    Use it as an async context manager. On leaving, everything that was submitted is written and answered.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Upload, asyncio.Future[Answer]]] = deque()
        self._bytes = 0
        self._closing = False
        self._thread = threading.Thread(target=self._write_all, name="sstq-inbox")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        await self._loop.run_in_executor(None, self._thread.join)

    def __len__(self) -> int:
        """How many uploads wait."""
        return len(self._waiting)

    async def submit(self, upload: Upload) -> Answer:
        """Wait until the upload is durable or refused; InboxFull or DatabaseUnavailable if it is neither."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        with self._changed:
            if self._closing:
                raise InboxFull("the service is shutting down")
            if len(self._waiting) >= _QUEUE_UPLOADS or self._bytes + len(upload.body) > _QUEUE_BYTES:
                raise InboxFull(f"{len(self._waiting)} uploads wait to be written")
            self._waiting.append((upload, answer))
            self._bytes += len(upload.body)
            self._changed.notify()
        return await answer

    def _write_all(self) -> None:
        while batch := self._next_batch():
            answers: list[Answer] | Exception
            try:
                answers = self._store.receive([upload for upload, _ in batch])
            except Exception as error:
                answers = error
            # Once for all of them: waking the loop costs more than an answer.
            self._loop.call_soon_threadsafe(_answer, [future for _, future in batch], answers)

    def _next_batch(self) -> list[tuple[Upload, asyncio.Future[Answer]]]:
        batch: list[tuple[Upload, asyncio.Future[Answer]]] = []
        taken = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            while self._waiting and len(batch) < _BATCH_UPLOADS and taken < _BATCH_BYTES:
                batch.append(self._waiting.popleft())
                taken += len(batch[-1][0].body)
            self._bytes -= taken
        return batch


def _answer(futures: list[asyncio.Future[Answer]], answers: list[Answer] | Exception) -> None:
    for number, future in enumerate(futures):
        if future.done():  # its client went away
            continue
        if isinstance(answers, Exception):
            future.set_exception(answers)
        else:
            future.set_result(answers[number])
