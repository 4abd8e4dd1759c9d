"""Group commit: uploads that arrive while the disk is busy share the next transaction."""

import asyncio
import threading
from queue import SimpleQueue
from typing import Self

from sstq.service.health import Health
from sstq.service.receiving import Answer, Upload
from sstq.service.store import Store

# Limits of one transaction, and of what may wait for it.
_BATCH_UPLOADS, _BATCH_BYTES = 2_000, 1 << 25
_QUEUE_UPLOADS, _QUEUE_BYTES = 20_000, 1 << 28

_Waiting = tuple[Upload, asyncio.Future[Answer]]


class InboxFull(Exception):  # noqa: N818
    """Too many uploads are waiting in this process; the client should try again later."""


class Inbox:
    """A queue of uploads from the event loop; one thread writes all that wait to the store at once.

    Use it as an async context manager. On exit, everything submitted is written and answered.
    """

    def __init__(self, store: Store, health: Health) -> None:
        self._store, self._health = store, health
        self._arrived: list[_Waiting] = []
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        # Uploads and bytes not answered yet; only the event loop changes these.
        self._uploads = self._bytes = 0
        self._closing = False
        self._thread = threading.Thread(target=self._write_all, name="sstq-inbox")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._hand_over()
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def __len__(self) -> int:
        """How many uploads wait."""
        return self._queue.qsize()

    async def submit(self, upload: Upload) -> Answer:
        """Wait until the upload is durable or refused; InboxFull or DatabaseUnavailable if it is neither."""
        size = len(upload.body)
        if self._closing:
            raise InboxFull("the service is shutting down")
        if self._uploads >= _QUEUE_UPLOADS or self._bytes + size > _QUEUE_BYTES:
            raise InboxFull(f"{self._uploads} uploads are not written yet")
        self._uploads += 1
        self._bytes += size
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if not self._arrived:
            self._loop.call_soon(self._hand_over)
        self._arrived.append((upload, answer))
        return await answer

    def _hand_over(self) -> None:
        """Give the thread all that arrived in this turn of the loop: it would begin with the first of them alone."""
        arrived, self._arrived = self._arrived, []
        for waiting in arrived:
            self._queue.put(waiting)

    def _write_all(self) -> None:
        while batch := self._next_batch():
            answers: list[Answer] | Exception
            try:
                answers = self._store.receive([upload for upload, _ in batch])
            except Exception as error:
                answers = error
            self._health.saw(stored=not isinstance(answers, Exception))
            # One call for all of them: waking the loop costs more than an answer.
            self._loop.call_soon_threadsafe(self._answer, batch, answers)

    def _next_batch(self) -> list[_Waiting]:
        """Wait for uploads and return them; empty when the inbox is closed."""
        batch: list[_Waiting] = []
        size = 0
        while (found := self._queue.get()) is not None:
            batch.append(found)
            size += len(found[0].body)
            if self._queue.empty() or len(batch) == _BATCH_UPLOADS or size >= _BATCH_BYTES:
                return batch
        self._queue.put(None)  # for the next call: there may be a last batch first
        return batch

    def _answer(self, batch: list[_Waiting], answers: list[Answer] | Exception) -> None:
        for number, (upload, future) in enumerate(batch):
            self._uploads -= 1
            self._bytes -= len(upload.body)
            if future.done():  # its client disconnected
                continue
            if isinstance(answers, Exception):
                future.set_exception(answers)
            else:
                future.set_result(answers[number])
