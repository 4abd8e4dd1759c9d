"""The shuffler's background work: it follows campaigns, mixes the crowds of those that have ended, and forwards them.

Everything can be repeated: a crowd becomes batches in one transaction, and a batch is forwarded under one name until
the collector has acknowledged it.
"""

import hashlib
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from sstq.client.http import RequestError, request
from sstq.service.background import Rounds
from sstq.service.batches import Manifest
from sstq.service.crowds import next_part, sent, settle, waiting
from sstq.service.database import SEALED
from sstq.service.node import RunningCampaign

if TYPE_CHECKING:
    from sstq.service.shuffler import Shuffler

# in seconds, between attempts to reach a collector that does not answer
_LONGEST_PAUSE = 300.0

logger = logging.getLogger("sstq.service")


class Work(Rounds):
    """A thread that mixes and forwards."""

    work = "mixing"

    _node: "Shuffler"

    def __init__(self, shuffler: "Shuffler") -> None:
        super().__init__(shuffler)
        self._pause = shuffler.settings.fetch_seconds
        self._fetch_due = 0.0
        # How long a campaign's batches wait after they were not accepted, and until when.
        self._waits: dict[str, tuple[float, float]] = {}

    def round(self) -> None:
        """Fetch changed campaigns, mix the crowds of those that have closed, and forward mixed batches."""
        if time.monotonic() >= self._fetch_due:
            answered = [
                self._fetch(entry)
                for entry in list(self._node.entries.values())
                if not entry.is_stage
            ]
            self._pause = next_pause(
                self._pause, self._node.settings.fetch_seconds, all(answered)
            )
            self._fetch_due = time.monotonic() + self._pause
        for entry in list(self._node.entries.values()):
            self.attempt(entry, self.mix)
            self.attempt(entry, self.forward_when_due)
        self.purge()

    def _fetch(self, entry: RunningCampaign) -> bool:
        """Fetch a campaign again; returns False if the collector did not answer."""
        if self._node.closed_for(
            entry, timedelta(hours=self._node.settings.grace_hours)
        ):
            return True  # the collector accepts no more batches
        try:
            self._node.fetch(entry.name)
        except ValueError as error:  # keep using the old document
            logger.warning(
                "the campaign %s could not be fetched again: %s",
                entry.campaign.name,
                error,
            )
            return not isinstance(error, RequestError) or error.status is not None
        return True

    def mix(self, entry: RunningCampaign) -> None:
        """Mix the crowd of a campaign once nobody can join it: a small crowd cannot be provoked.

        Too small a crowd waits until the campaign is closed for good, after hours of service.
        """
        store = self._node.store
        campaign = entry.campaign
        terms = entry.campaign.shuffling
        if terms is None or not self._node.has_ended(entry):
            return
        if self._node.has_its_people(entry) and not entry.stored.closed:
            if self.is_settled(campaign.name):
                store.change(entry.stored, closed=True)
                self._node.refresh()
            return
        least = (
            0
            if entry.stored.closed or terms.below_threshold == "local"
            else terms.threshold
        )
        if max(waiting(store, campaign.name).values(), default=-1) < least:
            return
        # The terms are those that the crowds agreed to: their names are hashes of them.
        for result, people in settle(
            store, campaign, terms, entry.crowds, drop=entry.stored.closed
        ).items():
            self._node.metrics.people.labels(campaign.name, result).inc(people)
            if result == "dropped":
                said = "%s closed: the envelopes of %d people were dropped, fewer than the threshold"
                logger.warning(said, campaign.name, people)

    def forward_when_due(self, entry: RunningCampaign) -> None:
        """Forward a campaign's batches; after a failure less and less often."""
        name = entry.campaign.name
        pause, due = self._waits.pop(name, (0.0, 0.0))
        if time.monotonic() >= due:
            if self._forward(entry):
                return
            pause = next_pause(pause, self._node.settings.fetch_seconds, answered=False)
            due = time.monotonic() + pause
        self._waits[name] = pause, due

    def _forward(self, entry: RunningCampaign) -> bool:
        """Send the waiting parts of a campaign; returns False if one must be sent again later."""
        store = self._node.store
        name = entry.campaign.name
        while (
            not self._stopping.is_set() and (part := next_part(store, name)) is not None
        ):
            body = bytes(part["body"])
            manifest = Manifest(
                campaign=name,
                digest=entry.campaign.digest,
                batch=bytes(part["batch"]).hex(),
                sha256=hashlib.sha256(body).hexdigest(),
                part=part["part"],
                count=part["count"],
                **{field: part[field] for field in SEALED},
            )
            headers = {"Content-Type": "application/octet-stream"} | manifest.signed(
                self._node.key
            )
            url = f"{self._node.settings.collector}/v1/campaigns/{name}/batches"
            try:
                if request("POST", url, headers=headers, body=body).json() != {
                    "count": manifest.count
                }:
                    raise RequestError("the collector's receipt is for another batch")
            except ValueError as error:
                # Whatever the status: anybody on the way can answer so. Only the administrator deletes it.
                logger.warning(
                    "a batch of %s was not accepted and waits: %s", name, error
                )
                self._node.refused[name, "batch"] = str(error)
                return False
            sent(store, part)
            self._node.refused.pop((name, "batch"), None)
        return True


def next_pause(last: float, usual: float, answered: bool) -> float:
    """The seconds until the collector is asked again: pauses double while it does not answer."""
    return usual if answered else max(usual, min(2 * last, _LONGEST_PAUSE))
