"""What a collector and a shuffler share: a database, a key that signs, an inbox, and who may do what."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from sstq.service.campaigns import NAME_PATTERN, Campaign
from sstq.service.inbox import Inbox
from sstq.service.metrics import Metrics
from sstq.service.security import AddressLimits, Problem, is_token, token_hash, unauthorized
from sstq.service.settings import Settings
from sstq.service.signing import SigningKey
from sstq.service.store import Store, StoredCampaign

__all__ = ["Entry", "Node", "unknown_campaign"]


@dataclass(frozen=True)
class Entry:
    """A campaign with what the routes need of it, made once.

    Attributes:
        stored: the campaign as the database has it.
        campaign: the same, read.
        tokens: the hashes of its shared tokens, by name: "send_token" and "read_token".
        sealing_keys: the public keys that messages are sealed for where they are shuffled, the newest first.
        document: the bytes that clients fetch.
        signature: of the document, by the collector.
    """

    stored: StoredCampaign
    campaign: Campaign
    tokens: dict[str, bytes]
    sealing_keys: tuple[bytes, ...]
    document: bytes
    signature: str

    @cached_property
    def etag(self) -> str:
        """Of the document, quoted."""
        return f'"{hashlib.sha256(self.document).hexdigest()[:32]}"'

    @cached_property
    def from_anywhere(self) -> bool:
        """Whether web pages of other origins may send; a shared token has no place in a web page."""
        return self.campaign.senders != "token"


class Node(ABC):
    """The state of one server process; everything that must last is in the store.

    Attributes:
        role: what the database is for; that of another role is refused.
        ready: is set once the kernels that it needs are loaded; uploads wait for that.
    """

    role: str

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        kept = store.setting("role", lambda: self.role.encode()).decode()
        if kept != self.role:
            store.close()
            raise ValueError(f"database must be that of a {self.role}, got that of a {kept}; name an empty one")
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

    # Campaigns

    def refresh(self) -> list[Entry]:
        """Read all campaigns again: another process may have changed them. Blocks; not for the event loop."""
        while True:
            forgotten = self._forgotten
            entries = {stored.name: self._entry(stored) for stored in self.store.campaigns()}
            if self._remember(entries, forgotten):
                return list(entries.values())

    async def entry(self, name: str) -> Entry:
        """The campaign of that name; a refusal if there is none."""
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
        """Read a campaign again when it is asked for next."""
        with self._lock:
            self._forgotten += 1
            self._entries = {known: entry for known, entry in self._entries.items() if known != name}

    def _remember(self, entries: dict[str, Entry], forgotten: int) -> bool:
        """Keep what was read, unless a campaign was changed or deleted meanwhile; returns whether it did."""
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
        """What the routes need of a campaign."""

    # Who may do what

    def is_administrator(self, token: str | None) -> bool:
        """Whether this is the administrator's token."""
        return is_token(token, self._administrator)

    def require_administrator(self, token: str | None) -> None:
        """A refusal unless the token is the administrator's."""
        if token is None:
            raise unauthorized("This needs the administrator's token.")
        if not self.is_administrator(token):
            raise Problem(403, "The token is not the administrator's.")

    def require_metrics(self, token: str | None) -> None:
        """A refusal unless the token is that for metrics or the administrator's."""
        if not is_token(token, self._metrics_reader):
            self.require_administrator(token)


def unknown_campaign() -> Problem:
    """There is no campaign of that name."""
    return Problem(404, "There is no campaign of this name.")
