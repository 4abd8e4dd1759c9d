"""Opening batches: decrypts envelopes in separate processes, because each takes 100 µs of a core.

A worker receives a key, an `info` and envelopes, and returns messages. It lives as long as the process that
started it: when that process is killed, the pipe ends, and so does the worker.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from multiprocessing.connection import Connection

from sstq.client.campaigns import Campaign
from sstq.client.sealing import envelope_info, open_envelopes
from sstq.service import bodies
from sstq.service.batches import DIGEST_BYTES, Batch, Opened, next_batch, parts_of, put
from sstq.service.claims import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.node import Entry
from sstq.service.rounds import Rounds
from sstq.service.store import Store

__all__ = ["Openers", "Opening", "open_next"]

# Opening fewer takes less time than starting a worker.
_WORTH_A_WORKER = 5_000
_TASK_ENVELOPES = 1_000

logger = logging.getLogger("sstq.service")


class Openers:
    """Processes that open envelopes, started when many arrive for the first time."""

    def __init__(self, workers: int | None = None) -> None:
        self._wanted = workers or os.cpu_count() or 1
        self._workers: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def close(self) -> None:
        """Stop the workers."""
        for process, pipe in self._workers:
            pipe.close()
            process.join()
        self._workers = []

    def open(self, secret: bytes, info: bytes, body: bytes, size: int) -> Iterator[bytes | None]:
        """Return the message of each envelope of this size, in order; None for an envelope that does not open."""
        tasks = (body[start : start + size * _TASK_ENVELOPES] for start in range(0, len(body), size * _TASK_ENVELOPES))
        if len(body) < size * _WORTH_A_WORKER:
            for task in tasks:
                yield from open_envelopes(secret, info, _cut(task, size))
            return
        if not self._workers:
            self._workers = [_started() for _ in range(self._wanted)]
        try:
            yield from self._spread(secret, info, tasks, size)
        except (EOFError, OSError):
            # A worker died. The others may have answers in their pipes: start afresh.
            self._end()
            raise

    def _spread(self, secret: bytes, info: bytes, tasks: Iterator[bytes], size: int) -> Iterator[bytes | None]:
        """Give each worker one task at a time, and return the answers in the order of the tasks."""
        while some := list(islice(tasks, len(self._workers))):
            for task, (_, pipe) in zip(some, self._workers, strict=False):
                pipe.send((secret, info, task, size))
            for _, (_, pipe) in zip(some, self._workers, strict=False):
                yield from pipe.recv()

    def _end(self) -> None:
        for process, _ in self._workers:
            process.kill()
        self.close()


def _started() -> tuple[multiprocessing.process.BaseProcess, Connection]:
    # A new interpreter: a fork of a process with threads may hang, and would hold the pipes of the others open.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True, name="sstq-opener")
    process.start()
    theirs.close()
    return process, ours


def _work(pipe: Connection) -> None:
    os.nice(5)  # requests come first
    try:
        while True:
            secret, info, body, size = pipe.recv()
            pipe.send(open_envelopes(secret, info, _cut(body, size)))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _cut(body: bytes, size: int) -> Iterable[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def open_next(
    store: Store,
    campaign: Campaign,
    secret_of: dict[str, bytes],
    openers: Openers,
    stopping: Callable[[], bool] = lambda: False,
) -> Batch | None:
    """Open one complete batch of a campaign and store its messages; returns the batch, or None if there is none.

    Args:
        store: the collector's store.
        campaign: a shuffled campaign.
        secret_of: its secret sealing keys, by crowd.
        openers: the processes that open envelopes.
        stopping: called for each envelope; True stops the work.

    Memory: about 150 bytes per message of the batch, plus one part of envelopes.
    """
    batch = next_batch(store.database, campaign.name)
    if batch is None:
        return None
    secret = secret_of.get(batch.crowd)
    info = envelope_info(bytes.fromhex(batch.crowd), batch.slot)
    size = campaign.envelope_bytes
    good: list[tuple[bytes, bytes]] = []
    foreign = malformed = 0
    for body in parts_of(store.database, batch):
        found = openers.open(secret, info, body, size) if secret is not None else iter([None] * (len(body) // size))
        opened: list[tuple[bytes, bytes]] = []
        for envelope, message in zip(_cut(body, size), found, strict=True):
            if stopping():
                return None
            if message is None:
                foreign += 1
            else:
                opened.append((hashlib.sha256(envelope).digest()[:DIGEST_BYTES], message))
        _, wrong = bodies.checked(campaign.mechanism, [(1, message) for _, message in opened])
        malformed += len(wrong)
        good += [pair for place, pair in enumerate(opened) if place not in wrong]
    mechanism = campaign.mechanism
    if put(store.database, batch, Opened(good, foreign, malformed), mechanism) and (foreign or malformed):
        logger.warning("a batch of %s had %d foreign and %d malformed envelopes", campaign.name, foreign, malformed)
    return batch


class Opening(Rounds):
    """A thread of its own: a batch may take minutes, and folding goes on meanwhile."""

    work = "opening"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._collector = collector
        self._openers = Openers()

    def stop(self) -> None:
        """End at once; a batch that is being opened begins anew after the next start."""
        super().stop()
        self._openers.close()

    def round(self) -> None:
        """Open a batch of each campaign that has one, until none has."""
        opened = [True]
        while any(opened):
            opened = [self.attempt(entry, self._open) for entry in self._collector.refresh() if entry.sealing_keys]

    def _open(self, entry: Entry) -> bool:
        collector = self._collector
        secrets = collector.sealing_secrets(entry)
        if secrets and not collector.takes_batches(entry, datetime.now(UTC)):
            collector.forget_sealing_keys(entry)
        stopping = self._stopping.is_set
        if stopping() or not open_next(collector.store, entry.campaign, secrets, self._openers, stopping):
            return False
        shuffled_claim(collector.store, entry.campaign)  # remembered from here on: a page must not wait for it
        return True
