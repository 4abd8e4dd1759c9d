"""The state of a shuffler's process: the campaigns that name it, as signed by the collector."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

from sstq.client.campaigns import read_document, sealing_keys_of
from sstq.client.http import Refused, Unreachable, request
from sstq.client.signing import SHUFFLER_PREFIX, signer
from sstq.service.node import Entry, Node
from sstq.service.problems import Problem
from sstq.service.shuffler.crowds import EnvelopePacking
from sstq.service.shuffler.settings import ShufflerSettings
from sstq.service.store import Store, StoredCampaign

__all__ = ["Shuffler"]

_COLLECTOR_KEY = "collector-key"
# How many names may be looked up at the collector at once; strangers can send any name.
_ASKED_AT_ONCE = 4


class Shuffler(Node):
    """The state of one process of a shuffler."""

    role = "shuffler"
    settings: ShufflerSettings

    def __init__(self, settings: ShufflerSettings) -> None:
        super().__init__(settings, Store(settings.database, EnvelopePacking, upgrade=settings.upgrade))
        self.ready.set()  # it looks into no message
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)
        if settings.collector_key is not None:
            self._pin(settings.collector_key)

    def _read(self, stored: StoredCampaign) -> Entry:
        terms = json.loads(stored.terms)
        document = terms["document"].encode()
        campaign, _ = read_document(document)
        keys = tuple(sealing_keys_of(document).values())
        return Entry(stored, campaign, None, keys, document, terms["signature"])

    def countersignature(self, entry: Entry) -> str:
        """The shuffler's signature of the collector's document, the same for every client."""
        return self.key.sign(entry.document, SHUFFLER_PREFIX)

    async def _find(self, name: str) -> StoredCampaign | None:
        stored = await super()._find(name)
        if stored is None:
            async with self._asking:
                await asyncio.to_thread(self._learn, name)
            stored = await super()._find(name)
        return stored

    def _learn(self, name: str) -> None:
        try:
            self.fetch(name)
        except Refused as error:
            if error.status != 404:
                raise _no_collector() from error
        except Unreachable as error:
            raise _no_collector() from error
        except ValueError as error:
            raise Problem(404, f"This shuffler cannot serve the campaign: {error}.") from error

    def fetch(self, name: str) -> None:
        """Fetch a campaign's document from the collector, check and store it; ValueError if it is not for us."""
        answer = request("GET", f"{self.settings.collector.rstrip('/')}/v1/campaigns/{name}")
        signature = answer.headers.get("SSTQ-Signature", "")
        campaign, keys = read_document(answer.content)
        pinned = self.store.known_setting(_COLLECTOR_KEY)
        key = signer(answer.content, signature, keys, None if pinned is None else pinned.hex())
        if campaign.name != name or campaign.shuffling is None or campaign.closes is None:
            raise ValueError("the collector has no shuffled campaign with this name")
        if campaign.shuffling.key != self.key.public.hex():
            raise ValueError(f"it names the shuffler {campaign.shuffling.key}, this one is {self.key.public.hex()}")
        self._pin(key)
        terms = json.dumps({"document": answer.content.decode(), "signature": signature})
        stored = self.store.campaign(name)
        if stored is None:
            self.store.create(name, campaign.mechanism, terms)
        elif stored.terms != terms:
            if stored.mechanism.digest() != campaign.digest:
                raise ValueError("its mechanism has changed")
            self.store.change_terms(name, terms)
        self.forget(name)

    def _pin(self, key: str) -> None:
        kept = self.store.setting(_COLLECTOR_KEY, lambda: bytes.fromhex(key)).hex()
        if kept != key:
            raise ValueError(
                f"collector_key must be the one stored before, {kept}, got {key}; pass an empty database to change it"
            )

    def has_ended(self, entry: Entry, now: datetime) -> bool:
        """Whether no more envelopes of a campaign can arrive, not even late ones."""
        closes = entry.campaign.closes
        return closes is not None and now >= closes + timedelta(seconds=self.settings.closing_seconds)

    def is_over(self, entry: Entry, now: datetime) -> bool:
        """Whether the collector accepts no more batches of a campaign, so it need not be asked."""
        closes = entry.campaign.closes
        return closes is not None and now >= closes + timedelta(hours=self.settings.grace_hours)


def _no_collector() -> Problem:
    return Problem(503, "The collector does not answer; try again.", {"Retry-After": "5"})
