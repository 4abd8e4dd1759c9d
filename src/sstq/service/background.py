"""Background work, in one thread per process: folding uploads, renewing estimates and deleting old keys."""

from __future__ import annotations

import logging
import time

from sstq.mechanisms import FrameUnit
from sstq.service import results
from sstq.service.collector import Collector
from sstq.service.node import Entry
from sstq.service.rounds import Rounds

__all__ = ["Background"]

# While messages arrive, an estimate that took one second is renewed after this many seconds, but at the latest after
# the maximum: most of the time is for folding, but a page should not show numbers that are minutes old.
_ESTIMATE_PAUSE, _LONGEST_PAUSE = 5.0, 30.0

logger = logging.getLogger("sstq.service")


class Background(Rounds):
    """A thread that folds and estimates."""

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

    def round(self) -> None:
        """Fold waiting uploads, renew the estimates that changed, and delete expired keys.

        An error in one campaign does not hold up the others.
        """
        for entry in self._collector.refresh():
            self.attempt(entry, self._renew)
        self.purge()

    def _renew(self, entry: Entry) -> None:
        self._estimate(entry, arriving=self._fold(entry.campaign.name))

    def _fold(self, name: str) -> bool:
        """Fold waiting uploads; returns whether there were any."""
        # Uploads that arrive meanwhile wait for the next round: folding many costs little more than folding a few.
        left = waiting = self._collector.store.waiting(name)
        while left > 0 and not self._stopping.is_set():
            folded = self._collector.store.fold(name)
            left = left - folded if folded else 0  # another process took the rest
        return waiting > 0

    def _estimate(self, entry: Entry, *, arriving: bool) -> None:
        name, begun = entry.campaign.name, time.monotonic()
        if self._stopping.is_set() or (arriving and begun < self._estimate_due.get(name, 0.0)):
            return
        if results.refresh(self._collector.store, entry.campaign):
            ended = time.monotonic()
            self._estimate_due[name] = ended + min(_ESTIMATE_PAUSE * (ended - begun), _LONGEST_PAUSE)


def _warm_up() -> None:
    """Load the kernels that check, add and estimate; `sstq serve` compiles all that are missing at the first of them.

    So no later upload or estimate waits for a compiler.
    """
    mechanism = FrameUnit(dim=2, epsilon=1.0)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.messages_from_bytes(bytes(-(-mechanism.message_bits // 8)), 1))
    aggregator.mean()
