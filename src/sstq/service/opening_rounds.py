"""What a collector does with batches beside the requests: it opens them, and forgets keys whose time is over."""

from __future__ import annotations

from datetime import UTC, datetime

from sstq.service.claims import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.node import Entry
from sstq.service.opening import Openers, open_next
from sstq.service.rounds import Rounds

__all__ = ["Opening"]


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
