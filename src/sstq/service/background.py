"""Background work: threads that work in rounds, and processes for what would hold up the requests.

The collector's fold uploads, renew and release estimates, and open batches. Campaigns that take seconds have a thread
of their own, which computes in another process: the others do not wait.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import lru_cache
from typing import Any

from sstq.mechanisms import Mechanism
from sstq.service import results, studies
from sstq.service.batches import open_next, shuffled_claim
from sstq.service.collector import Collector
from sstq.service.database import DatabaseUnavailable
from sstq.service.node import Node, RunningCampaign
from sstq.service.store import Store, UnknownCampaign

_PURGE_SECONDS = 3600.0
# While messages arrive, an estimate that took one second is renewed after this many seconds, but at the latest after
# the maximum: most of the time is for folding, but a page should not show numbers that are minutes old.
_ESTIMATE_PAUSE = 5.0
_LONGEST_PAUSE = 30.0
# An estimate from more rows than this, in all frames together, takes more than about half a second; one of more
# coordinates takes as long to write as JSON.
_QUICK_ROWS = 1 << 22
_QUICK_DIM = 1 << 13
# A stage that is over is closed after so many rounds, so that answers which are on their way arrive.
_LATE_ROUNDS = 5
# Learning from the messages of so many people takes less time than starting a process.
_QUICK_PEOPLE = 50_000

logger = logging.getLogger("sstq.service")


class Rounds(threading.Thread, ABC):
    """A thread that starts a round every `fold_seconds`. A failed round is logged, and the next one starts afresh."""

    work: str  # for logs
    processes: int | None = 1

    def __init__(self, node: Node) -> None:
        super().__init__(name=f"sstq-{self.work}")
        self._node = node
        self._stopping = threading.Event()
        self._workers = Workers(self.processes)
        self._purge_due = 0.0
        self._rounds_over: Counter[str] = Counter()

    def stop(self) -> None:
        """Stop after the current step, and its processes at once; the rest is done after the next start."""
        self._stopping.set()
        self._workers.stop(for_good=True)
        self.join()

    def run(self) -> None:
        """Run rounds until it is stopped."""
        ended = begun = time.monotonic()
        while not self._stopping.wait(
            max(0.0, self._node.settings.fold_seconds - (ended - begun))
        ):
            begun = time.monotonic()
            done = "failed"
            try:
                self.round()
                done = "done"
            except DatabaseUnavailable as error:
                logger.warning("%s", error)
            except Exception:
                # A defect, but nothing acknowledged is lost; at the end, a process that was stopped.
                if not self._stopping.is_set():
                    logger.exception("a round of %s failed", self.work)
            self._node.metrics.rounds.labels(done).inc()
            ended = time.monotonic()

    def attempt(
        self, entry: RunningCampaign, step: Callable[[RunningCampaign], Any]
    ) -> Any:
        """Run one step for a campaign; returns its result, or None. An error does not hold up other campaigns."""
        try:
            return step(entry)
        except UnknownCampaign:  # deleted meanwhile
            return None
        except DatabaseUnavailable:
            raise
        except Exception:
            if self._stopping.is_set():  # its processes are gone
                return None
            self._node.metrics.rounds.labels("failed").inc()
            logger.exception("%s failed for the campaign %s", self.work, entry.name)
            return None

    def elsewhere(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the store in another process, which only reads."""
        url = self._node.store.url.render_as_string(hide_password=False)
        return self._workers.submit(_read, url, function, *arguments).result()

    def is_settled(self, stage: str) -> bool:
        """Whether a stage has been over for some rounds: who was asked before has sent by now, and it may be closed."""
        self._rounds_over[stage] += 1
        return self._rounds_over[stage] > _LATE_ROUNDS

    def purge(self) -> None:
        """Forget keys whose time is over, now and then."""
        if time.monotonic() >= self._purge_due:
            self._node.purge()
            self._purge_due = time.monotonic() + _PURGE_SECONDS

    @abstractmethod
    def round(self) -> None:
        """Run one round."""


class Workers(Executor):
    """Processes that are started when they are first needed, and again if one dies."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._ended = False
        self._pool: ProcessPoolExecutor | None = None

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **options: Any
    ) -> Future[Any]:
        """Call a function in one of the processes; RuntimeError after the end."""
        # New interpreters: a fork of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        pool = self._pool = self._pool or ProcessPoolExecutor(
            self._count, context, _begin
        )
        try:
            # asked here, so that no pool is made and left after the end
            if self._ended:
                raise RuntimeError("the processes have been stopped for good")
            return pool.submit(function, *arguments, **options)
        except RuntimeError:  # or one of the processes has died
            self.stop()
            raise

    def stop(self, *, for_good: bool = False) -> None:
        """Stop the processes, in the middle of their work."""
        self._ended = self._ended or for_good
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


class Folding(Rounds):
    """A thread that folds and estimates: of the quick campaigns, or of the slow ones in a process of their own."""

    work = "folding"
    _node: Collector

    def __init__(self, collector: Collector, *, slow: bool = False) -> None:
        super().__init__(collector)
        self._slow = slow
        self._estimate_due: dict[str, float] = {}

    def round(self) -> None:
        """Fold waiting uploads, renew and release the estimates that changed, and delete expired keys."""
        store = self._node.store
        known = self._node.entries
        entries = {
            name: entry
            for name, entry in known.items()
            if _is_slow(entry.campaign.mechanism) == self._slow
        }
        if entries:
            # Uploads that arrive meanwhile wait for the next round: folding many costs little more than folding a few.
            arriving = {
                name: count
                for name, count in store.waiting().items()
                if name in entries
            }
            left = dict(arriving)
            while left and not self._stopping.is_set():
                for name in list(left):  # one step of each at a time
                    folded = self.attempt(entries[name], self._fold) or 0
                    left[name] -= folded
                    if left[name] <= 0 or not folded:
                        del left[name]
            for name in store.outdated() & entries.keys():
                due = (
                    name not in arriving
                    or time.monotonic() >= self._estimate_due.get(name, 0.0)
                )
                if due and not self._stopping.is_set():
                    self.attempt(entries[name], self._renew)
            now = self._node.clock.now()
            closed = {
                name: entry.own.release_every
                for name, entry in entries.items()
                if entry.is_closed(now)
            }
            results.release_last(store, closed)
        if not self._slow:
            self.purge()

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the store: slow ones elsewhere."""
        return (self.elsewhere if self._slow else self._node.store.run)(
            function, *arguments
        )

    def _fold(self, entry: RunningCampaign) -> int:
        return self._node.store.fold(
            entry.campaign.name, self._node.clock.hour(), self._run
        )

    def _renew(self, entry: RunningCampaign) -> None:
        begun = time.monotonic()
        results.refresh(
            self._node.store, entry.campaign, entry.own.release_every, self._run
        )
        pause = min(_ESTIMATE_PAUSE * (time.monotonic() - begun), _LONGEST_PAUSE)
        self._estimate_due[entry.campaign.name] = time.monotonic() + pause


def _read(url: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_reader(url), *arguments)


@lru_cache(maxsize=1)
def _reader(url: str) -> Store:
    return Store(url, read_only=True)


class Learning(Rounds):
    """A thread that lets studies learn from their stages, which may take minutes, and publishes the next ones."""

    work = "learning"
    _node: Collector

    def round(self) -> None:
        """Bring every study as far as it can go now."""
        for entry in list(self._node.entries.values()):
            if (
                entry.is_study
                and not entry.stored.closed
                and not self._stopping.is_set()
            ):
                self.attempt(entry, self._advance)

    def _advance(self, entry: RunningCampaign) -> None:
        is_slow = entry.campaign.slots * entry.study.people > _QUICK_PEOPLE
        run = self.elsewhere if is_slow else self._node.store.run
        studies.advance(self._node, entry, run, self.is_settled)


class Opening(Rounds):
    """A thread that opens the batches of shufflers: one may take minutes, and folding goes on meanwhile."""

    work = "opening"
    processes = None  # as many as cores
    _node: Collector

    def round(self) -> None:
        """Open a batch of each campaign that has one, until none has."""
        opened = [True]
        while any(opened) and not self._stopping.is_set():
            entries = list(self._node.entries.values())
            opened = [
                self.attempt(entry, self._open)
                for entry in entries
                if entry.sealing_keys
            ]

    def _open(self, entry: RunningCampaign) -> bool:
        collector = self._node
        secrets = collector.sealing_secrets(entry)
        if secrets and entry.stored.closed:
            collector.forget_sealing_keys(entry)
        if not open_next(collector.store, entry.campaign, secrets, self._workers):
            return False
        # remembered from here on: a page must not wait for it
        shuffled_claim(collector.store, entry.campaign)
        return True


@lru_cache(maxsize=1024)
def _is_slow(mechanism: Mechanism) -> bool:
    return mechanism.dim > _QUICK_DIM or mechanism.estimator.numbers > _QUICK_ROWS
