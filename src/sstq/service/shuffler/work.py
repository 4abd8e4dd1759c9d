"""A shuffler's background thread: mixes the crowds of closed campaigns, and forwards them until acknowledged.

One thread per process. Everything it does can be repeated: a crowd becomes batches in one transaction, and a batch is
forwarded under one name until the collector has acknowledged it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Any

from sstq.client.http import Refused, Unreachable, request
from sstq.service.batches import Manifest
from sstq.service.node import Entry
from sstq.service.rounds import Rounds
from sstq.service.shuffler.crowds import drop, forward_later, outgoing_parts, sent, waiting
from sstq.service.shuffler.node import Shuffler

__all__ = ["Work"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
# The campaign is deleted, or its grace period is over: nobody will ever open these batches.
_FOR_GOOD = {404, 410}

logger = logging.getLogger("sstq.service")


class Work(Rounds):
    """A thread that mixes and forwards."""

    work = "mixing"

    def __init__(self, shuffler: Shuffler) -> None:
        super().__init__(shuffler)
        self._shuffler = shuffler
        self._fetch_due = self._forward_due = 0.0
        self._pause = _FIRST_PAUSE

    def round(self) -> None:
        """Fetch changed campaigns, mix the crowds of those that have closed, and forward mixed batches."""
        if time.monotonic() >= self._fetch_due:
            self._fetch()
            self._fetch_due = time.monotonic() + self._shuffler.settings.fetch_seconds
        entries = self._shuffler.refresh()
        for entry in entries:
            self.attempt(entry, self._mix)
        if time.monotonic() >= self._forward_due:
            self._forward(entries)
        self.purge()

    def _fetch(self) -> None:
        now = self._shuffler.clock.now()
        for entry in self._shuffler.refresh():
            try:
                if not self._shuffler.is_over(entry, now):
                    self._shuffler.fetch(entry.campaign.name)
            except ValueError as error:  # keep using the old document
                logger.warning("the campaign %s could not be fetched again: %s", entry.campaign.name, error)

    def _mix(self, entry: Entry) -> None:
        """Mix or drop the crowds of a campaign once nobody can join them: a small crowd cannot be provoked."""
        if not self._shuffler.has_ended(entry, self._shuffler.clock.now()):
            return
        store, campaign, counts = self._shuffler.store, entry.campaign, self._shuffler.metrics.people
        for crowd in waiting(store, campaign.name):
            if self._stopping.is_set() or crowd.name not in entry.crowds or campaign.shuffling is None:
                continue
            terms = campaign.shuffling  # those that the crowd agreed to: its name is their hash
            if crowd.people >= terms.threshold or terms.below_threshold == "local":
                if forward_later(store, campaign, crowd, self._shuffler.settings.folder):
                    counts.labels(campaign.name, "mixed").inc(crowd.people)
            elif drop(store, campaign.name, crowd):
                counts.labels(campaign.name, "dropped").inc(crowd.people)
                said = "%s closed: the envelopes of %d people were dropped, fewer than the threshold"
                logger.warning(said, campaign.name, crowd.people)

    def _forward(self, entries: list[Entry]) -> None:
        """Send all waiting parts; pauses after a failure, longer each time until one succeeds."""
        failed = False
        for entry in entries:
            for part in outgoing_parts(self._shuffler.store, entry.campaign.name):
                if self._stopping.is_set():
                    return
                if not self._is_settled(entry, part):
                    failed = True
                    break  # the campaign's other parts would fail too
                sent(self._shuffler.store, part)
                self._pause = _FIRST_PAUSE
        if failed:
            self._forward_due = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _is_settled(self, entry: Entry, part: dict[str, Any]) -> bool:
        """Send a part; returns whether the collector has it or will never accept it."""
        name, body = entry.campaign.name, bytes(part["body"])
        manifest = Manifest(
            campaign=name,
            digest=entry.campaign.digest,
            crowd=part["sealing_key"],
            batch=bytes(part["batch"]).hex(),
            sha256=hashlib.sha256(body).hexdigest(),
            **{field: part[field] for field in ("slot", "size", "part", "parts", "count")},
        )
        headers = {"Content-Type": "application/octet-stream"} | manifest.signed(self._shuffler.key)
        url = f"{self._shuffler.settings.collector}/v1/campaigns/{name}/batches"
        try:
            if request("POST", url, headers=headers, body=body).json() != {"count": manifest.count}:
                raise Unreachable("the collector's receipt is for another batch")
        except Unreachable as error:
            logger.warning("a batch of %s will be sent again: %s", name, error)
            return False
        except Refused as error:
            logger.warning("a batch of %s was refused: %s", name, error)
            if error.status not in _FOR_GOOD:
                return False
            self._shuffler.metrics.people.labels(name, "refused").inc(manifest.count)
        return True
