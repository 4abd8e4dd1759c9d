"""Background work: folding uploads, renewing estimates, releasing them to readers, and deleting old keys.

Campaigns whose estimate takes seconds have a thread of their own, and a process that computes: the others do not wait.
"""

from __future__ import annotations

import logging
import time
from functools import lru_cache

from sstq.client.campaigns import Campaign
from sstq.mechanisms import FrameUnit, Mechanism
from sstq.service import results
from sstq.service.collector import Collector
from sstq.service.node import Entry
from sstq.service.rounds import Rounds
from sstq.service.store import Store
from sstq.service.workers import Workers

__all__ = ["Background", "SlowBackground"]

# While messages arrive, an estimate that took one second is renewed after this many seconds, but at the latest after
# the maximum: most of the time is for folding, but a page should not show numbers that are minutes old.
_ESTIMATE_PAUSE, _LONGEST_PAUSE = 5.0, 30.0
# An estimate from more rows than this, in all frames together, takes more than about half a second; one of more
# coordinates takes as long to write as JSON.
_QUICK_ROWS, _QUICK_DIM = 1 << 22, 1 << 13

logger = logging.getLogger("sstq.service")


class Background(Rounds):
    """A thread that folds and estimates the campaigns that take little time."""

    work = "folding"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._collector = collector
        self._estimate_due: dict[str, float] = {}

    def _run(self) -> None:
        try:
            _warm_up()
        except Exception:
            logger.exception("the kernels cannot be loaded")
        finally:
            self._collector.ready.set()
        super()._run()

    def _has(self, entry: Entry) -> bool:
        return not _is_slow(entry.campaign.mechanism)

    def round(self) -> None:
        """Fold waiting uploads, renew and release the estimates that changed, and delete expired keys."""
        self._renew_all()
        self.purge()

    def _renew_all(self) -> None:
        store = self._collector.store
        entries = {entry.campaign.name: entry for entry in self._collector.refresh() if self._has(entry)}
        if not entries:
            return
        # Uploads that arrive meanwhile wait for the next round: folding many costs little more than folding a few.
        arriving = {name: count for name, count in store.waiting().items() if name in entries}
        left = dict(arriving)
        while left and not self._stopping.is_set():
            for name in list(left):  # one step of each at a time
                folded = [0]
                self.attempt(entries[name], lambda entry, folded=folded: self._fold(entry, folded))  # type: ignore[misc]
                left[name] -= folded[0]
                if left[name] <= 0 or not folded[0]:  # another process may have taken the rest
                    del left[name]
        for name in store.outdated():
            if name in entries and (name not in arriving or time.monotonic() >= self._estimate_due.get(name, 0.0)):
                self.attempt(entries[name], self._estimate)
        self._release(entries)

    def _fold(self, entry: Entry, folded: list[int]) -> None:
        folded[0] = self._collector.store.fold(entry.campaign.name, self._collector.clock.hour())

    def _estimate(self, entry: Entry) -> None:
        if self._stopping.is_set():
            return
        begun = time.monotonic()
        self._refresh(entry)
        ended = time.monotonic()
        self._estimate_due[entry.campaign.name] = ended + min(_ESTIMATE_PAUSE * (ended - begun), _LONGEST_PAUSE)

    def _refresh(self, entry: Entry) -> None:
        results.refresh(self._collector.store, entry.campaign, entry.policy.release_every)

    def _release(self, entries: dict[str, Entry]) -> None:
        """Release the last estimates of campaigns that are closed and counted."""
        store, now = self._collector.store, self._collector.clock.now()
        held = results.unreleased(store)
        ended = [
            name
            for name in held & set(entries)
            if entries[name].stored.closed or entries[name].campaign.status(now) == "closed"
        ]
        if ended:
            unfinished = {*store.waiting(), *store.outdated()}
            for name in ended:
                if name not in unfinished:
                    results.release_last(store, name)


class SlowBackground(Background):
    """A thread for the campaigns that take long; its estimates are computed by another process."""

    work = "slow-folding"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._workers = Workers(1)

    def _run(self) -> None:
        self._collector.ready.wait()
        Rounds._run(self)

    def stop(self) -> None:
        """Stop at once: an estimate that is being computed is computed again after the next start."""
        self._stopping.set()
        self._workers.kill()
        super().stop()

    def round(self) -> None:
        """Fold, renew and release."""
        self._renew_all()

    def _has(self, entry: Entry) -> bool:
        return _is_slow(entry.campaign.mechanism)

    def _refresh(self, entry: Entry) -> None:
        url = self._collector.store.database.url.render_as_string(hide_password=False)
        list(self._workers.map(_refreshed, iter([(url, entry.campaign.to_json(), entry.policy.release_every)])))


def _refreshed(url: str, campaign: str, release_every: int) -> None:
    """Renew an estimate in this process."""
    store = Store(url)
    try:
        results.refresh(store, Campaign.from_json(campaign), release_every)
    finally:
        store.close()


@lru_cache(maxsize=1024)
def _is_slow(mechanism: Mechanism) -> bool:
    return mechanism.dim > _QUICK_DIM or mechanism.aggregator().numbers > _QUICK_ROWS


def _warm_up() -> None:
    """Load the kernels that check, add and estimate; `sstq serve` compiles all that are missing at the first of them.

    So no later upload or estimate waits for a compiler.
    """
    mechanism = FrameUnit(dim=2, epsilon=1.0)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.messages_from_bytes(bytes(-(-mechanism.message_bits // 8)), 1))
    aggregator.mean()
