"""A collector's background thread for batches: opens them, and deletes keys that have expired."""

from __future__ import annotations

from datetime import UTC, datetime

from sstq.service.claims import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.node import Entry
from sstq.service.opening import Openers, open_next
from sstq.service.rounds import Rounds

__all__ = ["Opening"]


class Opening(Rounds):
    """A separate thread, because a batch may take minutes and folding must go on meanwhile."""

    work = "opening"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._collector = collector
        self._openers = Openers()

    def stop(self) -> None:
        """Stop at once; a batch that is being opened is opened again after the next start."""
        super().stop()
        self._openers.close()

    def round(self) -> None:
        """Open one batch per campaign in turn until none is left."""
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
        shuffled_claim(collector.store, entry.campaign)  # cached from here on, so that no page waits for it
        return True
