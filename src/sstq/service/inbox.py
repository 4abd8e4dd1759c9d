"""Group commit: uploads that arrive while the disk is busy share the next transaction."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from sstq.service.receiving import Answer, Upload
from sstq.service.security import Problem
from sstq.service.store import Store

# Limits of one transaction, and of what may wait for it.
_BATCH_UPLOADS, _BATCH_BYTES = 2_000, 1 << 25
_QUEUE_UPLOADS, _QUEUE_BYTES = 20_000, 1 << 28


class Inbox:
    """A queue of uploads; all that wait are written to the store at once, by a thread of its own.

    Use it as an async context manager. On exit, everything submitted is written and answered.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Upload, asyncio.Future[Answer]]] = []
        self._uploads = self._bytes = 0  # not answered yet
        self._closing = False

    async def __aenter__(self) -> Self:
        self._arrived, self._thread = asyncio.Event(), ThreadPoolExecutor(1, "sstq-inbox")
        self._writing = asyncio.create_task(self._write_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        await self._writing
        self._thread.shutdown()

    def __len__(self) -> int:
        """How many uploads wait."""
        return len(self._waiting)

    async def submit(self, upload: Upload) -> Answer:
        """Wait until the upload is durable or refused; DatabaseUnavailable or a Problem if it is neither."""
        size = len(upload.body)
        if self._closing or self._uploads >= _QUEUE_UPLOADS or self._bytes + size > _QUEUE_BYTES:
            raise Problem(503, "Too many uploads are waiting to be stored; try again.", {"Retry-After": "1"})
        self._uploads += 1
        self._bytes += size
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._answered(size))
        self._waiting.append((upload, answer))
        self._arrived.set()
        return await asyncio.shield(answer)  # who disconnects does not take back what is being written

    def _answered(self, size: int) -> None:
        self._uploads -= 1
        self._bytes -= size

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or not self._closing:
            self._arrived.clear()
            if not self._waiting:
                await self._arrived.wait()
                continue
            count = size = 0
            while count < min(len(self._waiting), _BATCH_UPLOADS) and size < _BATCH_BYTES:
                size += len(self._waiting[count][0].body)
                count += 1
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            try:
                answers = await loop.run_in_executor(self._thread, self._store.receive, [upload for upload, _ in batch])
            except Exception as error:
                for _, future in batch:
                    future.set_exception(error)
                    future.exception()  # its client may have disconnected
            else:
                for (_, future), answer in zip(batch, answers, strict=True):
                    future.set_result(answer)
