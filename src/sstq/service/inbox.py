"""Group commit: uploads that arrive while the disk is busy share the next transaction.

A transaction is small, and in it campaigns take turns, one upload each. A campaign that stored much leaves the next
transactions to the others, if these have something to store: so they keep most of the disk's time.
"""

import asyncio
from collections import Counter, deque
from typing import Self

from sstq.service.receiving import Answer, Upload
from sstq.service.security import Problem
from sstq.service.store import Store

# Limits of one transaction, and of what may wait for it.
_BATCH_UPLOADS = 2_000
_BATCH_BYTES = 1 << 20
_QUEUE_UPLOADS = 20_000
_QUEUE_BYTES = 1 << 28
# A campaign leaves out one transaction per so many bytes of its last one, and at most so many.
_REST_BYTES = 1 << 13
_MOST_RESTS = 64

_Waiting = tuple[Upload, asyncio.Future[Answer]]


class Inbox:
    """Queues of uploads, one per campaign; what waits is written to the store together, within limits.

    Use it as an async context manager. On exit, everything submitted is written and answered.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, deque[_Waiting]] = {}  # by campaign
        self._number = 0  # of the transaction
        # the numbers until which campaigns leave transactions to others
        self._resting: dict[str, int] = {}
        # not answered yet
        self._uploads = 0
        self._bytes = 0
        self._closing = False

    async def __aenter__(self) -> Self:
        self._arrived = asyncio.Event()
        self._writing = asyncio.create_task(self._write_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        await self._writing

    def __len__(self) -> int:
        """How many uploads are not answered yet."""
        return self._uploads

    async def submit(self, upload: Upload) -> Answer:
        """Wait until the upload is durable or refused; DatabaseUnavailable or a Problem if it is neither."""
        size = len(upload.body)
        if (
            self._closing
            or self._uploads >= _QUEUE_UPLOADS
            or self._bytes + size > _QUEUE_BYTES
        ):
            raise Problem(
                503,
                "Too many uploads are waiting to be stored; try again.",
                {"Retry-After": "1"},
            )
        self._uploads += 1
        self._bytes += size
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(upload.campaign, deque()).append((upload, answer))
        self._arrived.set()
        return await answer

    def _take(self) -> list[_Waiting]:
        """Take what the next transaction stores; something waits."""
        # Nobody rests while nobody else has something to store.
        self._number = max(
            self._number + 1, min(self._resting.get(name, 0) for name in self._waiting)
        )
        self._resting = {
            name: until for name, until in self._resting.items() if until > self._number
        }
        turns = deque(name for name in self._waiting if name not in self._resting)
        taken: list[_Waiting] = []
        sizes: Counter[str] = Counter()
        left = _BATCH_BYTES
        while turns and len(taken) < _BATCH_UPLOADS and left > 0:
            name = turns.popleft()
            queue = self._waiting.pop(name)
            taken.append(queue.popleft())
            size = len(taken[-1][0].body)
            sizes[name] += size
            left -= size
            if queue:
                turns.append(name)
                # after all others, also in the next transaction
                self._waiting[name] = queue
        for name, size in sizes.items():
            self._resting[name] = (
                self._number + 1 + min(size // _REST_BYTES, _MOST_RESTS)
            )
        return taken

    async def _write_all(self) -> None:
        while self._waiting or not self._closing:
            self._arrived.clear()
            if not self._waiting:
                await self._arrived.wait()
                continue
            batch = self._take()
            answers: list[Answer | Exception]
            try:
                answers = [
                    *await asyncio.wrap_future(
                        self._store.receiving([upload for upload, _ in batch])
                    )
                ]
            except Exception as error:
                answers = [error] * len(batch)
            for (upload, future), answer in zip(batch, answers, strict=True):
                self._uploads -= 1
                self._bytes -= len(upload.body)
                if future.cancelled():  # who disconnects takes nothing back
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
