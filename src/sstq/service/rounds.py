"""Background threads that work in rounds; several processes may do so on one database."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from sstq.service.database import DatabaseUnavailable
from sstq.service.node import Entry, Node
from sstq.service.store import UnknownCampaign

__all__ = ["Rounds"]

_PURGE_SECONDS = 3600.0

logger = logging.getLogger("sstq.service")


class Rounds(ABC):
    """A thread that starts a round every `fold_seconds`. A failed round is logged, and the next one starts afresh.

    Attributes:
        work: the name of the work, for logs.
    """

    work: str

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sstq-{self.work}")
        self._purge_due = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step; the rest is done after the next start."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        ended = begun = time.monotonic()
        while not self._stopping.wait(max(0.0, self._node.settings.fold_seconds - (ended - begun))):
            begun = time.monotonic()
            try:
                self.round()
            except DatabaseUnavailable as error:
                self._node.metrics.rounds.labels("failed").inc()
                logger.warning("%s", error)
            except Exception:
                # A defect, but nothing acknowledged is lost.
                self._node.metrics.rounds.labels("failed").inc()
                logger.exception("a round of %s failed", self.work)
            else:
                self._node.metrics.rounds.labels("done").inc()
            ended = time.monotonic()

    def attempt(self, entry: Entry, step: Callable[[Entry], object]) -> bool:
        """Run one step for a campaign; returns whether it did anything. An error does not hold up other campaigns."""
        try:
            return bool(step(entry))
        except UnknownCampaign:  # deleted meanwhile
            return False
        except DatabaseUnavailable:
            raise
        except Exception:
            self._node.metrics.rounds.labels("failed").inc()
            logger.exception("%s failed for the campaign %s", self.work, entry.campaign.name)
            return False

    def purge(self) -> None:
        """Forget keys whose time is over, now and then."""
        if time.monotonic() >= self._purge_due:
            self._node.purge()
            self._purge_due = time.monotonic() + _PURGE_SECONDS

    @abstractmethod
    def round(self) -> None:
        """Run one round."""
