"""What goes on beside the requests: folding, estimates, and forgetting keys, in one thread per process."""

from __future__ import annotations

import logging
import threading
import time

from sstq.service import results
from sstq.service.collector import Collector, Entry
from sstq.service.database import DatabaseUnavailable

__all__ = ["Background"]

# After an estimate that took a second the next one waits so many seconds: most of the time is for folding.
_ESTIMATE_PAUSE = 5.0
_PURGE_SECONDS = 3600.0

logger = logging.getLogger("sstq.service")


class Background:
    """A thread that does a round every `fold_seconds`; several processes may do the same on one database."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sstq-background")
        self._estimate_due: dict[str, float] = {}
        self._purge_due = 0.0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is being done; what is left is folded after the next start."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._collector.settings.fold_seconds):
            try:
                self.round()
            except DatabaseUnavailable as error:
                self._collector.metrics.folds["failed"] += 1
                logger.warning("%s", error)
            except Exception:
                # A campaign deleted meanwhile, or a defect: the next round begins anew, and no upload is lost.
                self._collector.metrics.folds["failed"] += 1
                logger.exception("a round of folding failed")
            else:
                self._collector.metrics.folds["done"] += 1

    def round(self) -> None:
        """Fold what waits, renew the estimates of what changed, and forget keys after their time."""
        for entry in self._collector.refresh():
            while not self._stopping.is_set() and self._collector.store.fold(entry.campaign.name):
                pass
            self._estimate(entry)
        if time.monotonic() >= self._purge_due:
            self._collector.store.purge(self._collector.settings.grace_hours)
            self._purge_due = time.monotonic() + _PURGE_SECONDS

    def _estimate(self, entry: Entry) -> None:
        name, begun = entry.campaign.name, time.monotonic()
        if self._stopping.is_set() or begun < self._estimate_due.get(name, 0.0):
            return
        if results.refresh(self._collector.store, entry.campaign):
            ended = time.monotonic()
            self._estimate_due[name] = ended + _ESTIMATE_PAUSE * (ended - begun)
