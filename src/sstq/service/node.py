"""The state that collector and shuffler have in common: database, signing key, inbox and permissions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from sstq.client.campaigns import NAME_PATTERN, Campaign
from sstq.client.signing import SigningKey
from sstq.service.inbox import Inbox
from sstq.service.metrics import Metrics
from sstq.service.security import AddressLimits, Problem, is_token, token_hash, unauthorized
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign

__all__ = ["Entry", "Node", "unknown_campaign"]


@dataclass(frozen=True)
class Entry:
    """A campaign with everything that the routes need, prepared once.

    Attributes:
        stored: the campaign's row in the database.
        campaign: the same, parsed.
        tokens: the hashes of its shared tokens, by name: "send_token" and "read_token".
        sealing_keys: the public keys that shuffled messages are sealed for, the newest first.
        document: the bytes that clients fetch.
        signature: the collector's signature of the document.
    """

    stored: StoredCampaign
    campaign: Campaign
    tokens: dict[str, bytes]
    sealing_keys: tuple[bytes, ...]
    document: bytes
    signature: str

    @cached_property
    def etag(self) -> str:
        """The ETag of the document, quoted."""
        return f'"{hashlib.sha256(self.document).hexdigest()[:32]}"'

    @cached_property
    def crowds(self) -> dict[str, bytes]:
        """The sealing keys by the crowds of people who sealed for them, in hexadecimal."""
        return {self.campaign.crowd(key).hex(): key for key in self.sealing_keys}

    @cached_property
    def from_anywhere(self) -> bool:
        """Whether web pages of other origins may send; a shared token does not belong in a web page."""
        return self.campaign.senders != "token"


class Node(ABC):
    """The state of one server process; everything persistent is in the store.

    Attributes:
        role: "collector" or "shuffler"; a database of the other role is refused.
        ready: is set once the kernels that the node needs are loaded; uploads wait for that.
    """

    role: str

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        kept = store.setting("role", lambda: self.role.encode()).decode()
        if kept != self.role:
            store.close()
            raise ValueError(f"database must belong to a {self.role}, got one of a {kept}; pass an empty database")
        _refuse_first_version(store)
        self.ready = threading.Event()
        self.inbox = Inbox(self.store, self.ready)
        self.limits = AddressLimits(settings.uploads_per_second, settings.burst)
        self.metrics = Metrics()
        self.key = SigningKey(self.store.setting("signing-key", lambda: SigningKey.generate().secret))
        self._administrator = token_hash(settings.administrator_token)
        self._metrics_reader = None if settings.metrics_token is None else token_hash(settings.metrics_token)
        self._entries: dict[str, Entry] = {}
        self._forgotten = 0
        self._lock = threading.Lock()
        self.bytes_being_read = 0

    @property
    def public_keys(self) -> dict[str, str]:
        """What this service shows of its keys, in hexadecimal."""
        return {"key": self.key.public.hex()}

    # Campaigns

    def refresh(self) -> list[Entry]:
        """Reload all campaigns: another process may have changed them. Blocks, so call it outside the event loop."""
        while True:
            forgotten = self._forgotten
            entries = {stored.name: self._entry(stored) for stored in self.store.campaigns()}
            if self._remember(entries, forgotten):
                return list(entries.values())

    async def entry(self, name: str) -> Entry:
        """Return the campaign with this name; raises a Problem (404) if there is none."""
        found, forgotten = self._entries.get(name), self._forgotten
        if found is None:
            stored = await self._find(name) if re.fullmatch(NAME_PATTERN, name) else None
            if stored is None:
                raise unknown_campaign()
            found = self._entry(stored)
            self._remember(self._entries | {name: found}, forgotten)
        return found

    async def _find(self, name: str) -> StoredCampaign | None:
        return await asyncio.to_thread(self.store.campaign, name)

    def forget(self, name: str) -> None:
        """Reload a campaign on its next use."""
        with self._lock:
            self._forgotten += 1
            self._entries = {known: entry for known, entry in self._entries.items() if known != name}

    def _remember(self, entries: dict[str, Entry], forgotten: int) -> bool:
        """Cache what was read, unless a campaign was changed or deleted meanwhile; returns whether it did."""
        with self._lock:
            if self._forgotten != forgotten:
                return False
            self._entries = entries
            return True

    def _entry(self, stored: StoredCampaign) -> Entry:
        known = self._entries.get(stored.name)
        return known if known is not None and known.stored == stored else self._read(stored)

    @abstractmethod
    def _read(self, stored: StoredCampaign) -> Entry:
        """Prepare what the routes need of a campaign."""

    # Who may do what

    def is_administrator(self, token: str | None) -> bool:
        """Whether this is the administrator's token."""
        return is_token(token, self._administrator)

    def require_administrator(self, token: str | None) -> None:
        """Raise a Problem unless the token is the administrator's."""
        if token is None:
            raise unauthorized("This needs the administrator's token.")
        if not self.is_administrator(token):
            raise Problem(403, "The token is not the administrator's.")

    def require_metrics(self, token: str | None) -> None:
        """Raise a Problem unless the token is the metrics token or the administrator's."""
        if not is_token(token, self._metrics_reader):
            self.require_administrator(token)


def _refuse_first_version(store: Store) -> None:
    """ValueError if there are shuffled campaigns of version 1: their terms and envelopes mean something else."""
    old = []
    for stored in store.campaigns():
        terms = json.loads(stored.terms)
        shuffling = (json.loads(terms["document"]) if "document" in terms else terms).get("shuffling")
        if shuffling is not None and "sealing_key" not in shuffling:
            old.append(stored.name)
    if old:
        store.close()
        raise ValueError(
            f"the database has shuffled campaigns of version 1 ({', '.join(old)}), which this release does not read; "
            "nothing was changed. Finish them with the release that created them: `sstq campaign close`, wait until "
            "the shuffler's sstq_people_waiting and sstq_envelopes_outgoing are 0, `sstq campaign export`, and delete "
            "them at the collector. Then give the shuffler an empty database"
        )


def unknown_campaign() -> Problem:
    """The refusal for an unknown campaign."""
    return Problem(404, "There is no campaign with this name.")
