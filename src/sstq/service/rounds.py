"""Background work: threads that work in rounds, and processes for what would hold up the requests.

Several servers may do so on one database.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from sstq.service.database import DatabaseUnavailable
from sstq.service.node import Entry, Node
from sstq.service.store import UnknownCampaign

_PURGE_SECONDS = 3600.0

logger = logging.getLogger("sstq.service")


class Rounds(threading.Thread, ABC):
    """A thread that starts a round every `fold_seconds`. A failed round is logged, and the next one starts afresh.

    Attributes:
        work: the name of the work, for logs.
    """

    work: str

    def __init__(self, node: Node) -> None:
        super().__init__(name=f"sstq-{self.work}")
        self._node = node
        self._stopping = threading.Event()
        self._purge_due = 0.0

    def stop(self) -> None:
        """Stop after the current step; the rest is done after the next start."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Run rounds until it is stopped."""
        ended = begun = time.monotonic()
        while not self._stopping.wait(max(0.0, self._node.settings.fold_seconds - (ended - begun))):
            begun = time.monotonic()
            done = "failed"
            try:
                self.round()
                done = "done"
            except DatabaseUnavailable as error:
                logger.warning("%s", error)
            except Exception:
                # A defect, but nothing acknowledged is lost.
                logger.exception("a round of %s failed", self.work)
            self._node.metrics.rounds.labels(done).inc()
            ended = time.monotonic()

    def attempt(self, entry: Entry, step: Callable[[Entry], Any]) -> Any:
        """Run one step for a campaign; returns its result, or None. An error does not hold up other campaigns."""
        try:
            return step(entry)
        except UnknownCampaign:  # deleted meanwhile
            return None
        except DatabaseUnavailable:
            raise
        except Exception:
            self._node.metrics.rounds.labels("failed").inc()
            logger.exception("%s failed for the campaign %s", self.work, entry.campaign.name)
            return None

    def purge(self) -> None:
        """Forget keys whose time is over, now and then."""
        if time.monotonic() >= self._purge_due:
            self._node.purge()
            self._purge_due = time.monotonic() + _PURGE_SECONDS

    @abstractmethod
    def round(self) -> None:
        """Run one round."""


class Workers:
    """Processes that are started when they are first needed, and again if one dies."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a function in one of the processes."""
        if self._pool is None:
            # New interpreters: a fork of a process with threads may hang.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, context, _begin)
        try:
            return self._pool.submit(function, *arguments)
        except BrokenProcessPool:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the processes, in the middle of their work."""
        if self._pool is not None:
            for process in [*(self._pool._processes or {}).values()]:
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _begin() -> None:
    os.nice(5)  # requests come first
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the server does, however that happens."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
