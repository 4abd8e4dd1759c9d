"""Opening batches: decrypts envelopes in separate processes, because each takes 100 µs of a core."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator

from sstq.client.campaigns import Campaign
from sstq.client.sealing import envelope_info, open_envelopes
from sstq.service import bodies
from sstq.service.batches import DIGEST_BYTES, Batch, Opened, next_batch, parts_of, put, shuffled_claim
from sstq.service.node import Collector, Entry
from sstq.service.rounds import Rounds, Workers
from sstq.service.store import Store

__all__ = ["Opening", "open_all", "open_next"]

# Opening fewer takes less time than starting a worker.
_WORTH_A_WORKER = 5_000
_TASK_ENVELOPES = 1_000

logger = logging.getLogger("sstq.service")


def open_all(workers: Workers, secret: bytes, info: bytes, body: bytes, size: int) -> Iterator[bytes | None]:
    """Return the message of each envelope of this size, in order; None for an envelope that does not open."""
    step = size * _TASK_ENVELOPES
    tasks = [(secret, info, body[start : start + step], size) for start in range(0, len(body), step)]
    if len(body) < size * _WORTH_A_WORKER:
        for task in tasks:
            yield from _open(*task)
    else:
        for future in [workers.submit(_open, *task) for task in tasks]:
            yield from future.result()


def _open(secret: bytes, info: bytes, body: bytes, size: int) -> list[bytes | None]:
    return open_envelopes(secret, info, _cut(body, size))


def _cut(body: bytes, size: int) -> Iterable[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def open_next(
    store: Store,
    campaign: Campaign,
    secret_of: dict[str, bytes],
    workers: Workers,
    stopping: Callable[[], bool] = lambda: False,
) -> Batch | None:
    """Open one complete batch of a campaign and store its messages; returns the batch, or None if there is none.

    Args:
        store: the collector's store.
        campaign: a shuffled campaign.
        secret_of: its secret sealing keys, by crowd.
        workers: the processes that open envelopes.
        stopping: called for each envelope; True stops the work.

    Memory: about 150 bytes per message of the batch, plus one part of envelopes.
    """
    batch = next_batch(store, campaign.name)
    if batch is None:
        return None
    secret = secret_of.get(batch.crowd)
    info = envelope_info(bytes.fromhex(batch.crowd), batch.slot)
    size = campaign.envelope_bytes
    good: list[tuple[bytes, bytes]] = []
    foreign = malformed = 0
    for body in parts_of(store, batch):
        found = (
            open_all(workers, secret, info, body, size) if secret is not None else iter([None] * (len(body) // size))
        )
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
    if put(store, batch, Opened(good, foreign, malformed), campaign.mechanism) and (foreign or malformed):
        logger.warning("a batch of %s had %d foreign and %d malformed envelopes", campaign.name, foreign, malformed)
    return batch


class Opening(Rounds):
    """A thread of its own: a batch may take minutes, and folding goes on meanwhile."""

    work = "opening"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._collector = collector
        self._workers = Workers()

    def stop(self) -> None:
        """End at once; a batch that is being opened begins anew after the next start."""
        super().stop()
        self._workers.stop()

    def round(self) -> None:
        """Open a batch of each campaign that has one, until none has."""
        opened = [True]
        while any(opened):
            opened = [self.attempt(entry, self._open) for entry in self._collector.refresh() if entry.sealing_keys]

    def _open(self, entry: Entry) -> bool:
        collector = self._collector
        secrets = collector.sealing_secrets(entry)
        if secrets and not collector.takes_batches(entry):
            collector.forget_sealing_keys(entry)
        stopping = self._stopping.is_set
        if stopping() or not open_next(collector.store, entry.campaign, secrets, self._workers, stopping):
            return False
        shuffled_claim(collector.store, entry.campaign)  # remembered from here on: a page must not wait for it
        return True
