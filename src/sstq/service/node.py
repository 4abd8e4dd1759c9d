"""The state that collector and shuffler have in common: database, signing key, inbox and permissions."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from sstq.client.campaigns import NAME_PATTERN, Campaign
from sstq.client.signing import SigningKey
from sstq.service.clock import Clock
from sstq.service.health import Health
from sstq.service.inbox import Inbox
from sstq.service.limits import AddressLimits, BodyShares
from sstq.service.metrics import Metrics
from sstq.service.problems import Problem, unauthorized
from sstq.service.security import is_token, token_hash
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign

__all__ = ["Entry", "Node", "Policy", "unknown_campaign"]

# Units of reading that an address may take at once: requests, and 64 KiB of answers each.
_READ_BURST = 400


@dataclass(frozen=True)
class Policy:
    """What a campaign's owner decides and its clients need not know.

    Attributes:
        origins: the origins of web pages that may send, besides this service's own; "*" for all.
        release_every: readers see a new estimate only after this many new messages.
    """

    origins: tuple[str, ...] = ()
    release_every: int = 20

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?", origin):
                raise ValueError(f"origins must be such as https://poll.example, or *, got {origin!r:.100}")

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may send."""
        return "*" in self.origins or origin in self.origins


@dataclass(frozen=True)
class Entry:
    """A campaign with everything that the routes need, prepared once.

    Attributes:
        stored: the campaign's row in the database.
        campaign: the same, parsed.
        read_token: the hash of the token of its readers; None without one.
        sealing_keys: the public keys that shuffled messages are sealed for, the newest first.
        document: the bytes that clients fetch.
        signature: the collector's signature of the document.
        policy: what its owner decides.
    """

    stored: StoredCampaign
    campaign: Campaign
    read_token: bytes | None
    sealing_keys: tuple[bytes, ...]
    document: bytes
    signature: str
    policy: Policy = Policy(origins=("*",))

    @cached_property
    def etag(self) -> str:
        """The ETag of the document, quoted."""
        return f'"{hashlib.sha256(self.document).hexdigest()[:32]}"'

    @cached_property
    def crowds(self) -> dict[str, bytes]:
        """The sealing keys by the crowds of people who sealed for them, in hexadecimal."""
        return {self.campaign.crowd(key).hex(): key for key in self.sealing_keys}


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
        self.ready = threading.Event()
        self.clock = Clock()
        last_hour = store.last_hour()
        if last_hour is not None:
            self.clock.doubt(last_hour)
        self.health = Health(self.store)
        self.inbox = Inbox(self.store, self.ready, self.health)
        self.sending = AddressLimits(settings.messages_per_second, settings.burst)
        self.reading = AddressLimits(settings.reads_per_second, _READ_BURST)
        self.arriving = BodyShares()
        self.metrics = Metrics()
        self.key = SigningKey(self.store.setting("signing-key", lambda: SigningKey.generate().secret))
        self._administrator = token_hash(settings.administrator_token)
        self._metrics_reader = None if settings.metrics_token is None else token_hash(settings.metrics_token)
        self._entries: dict[str, Entry] = {}
        self._forgotten = 0
        self._known: bytes | None = None  # the store's mark when all entries were read
        self._lock = threading.Lock()

    @property
    def public_keys(self) -> dict[str, str]:
        """What this service shows of its keys, in hexadecimal."""
        return {"key": self.key.public.hex()}

    # Campaigns

    def refresh(self) -> list[Entry]:
        """Reload all campaigns: another process may have changed them. Blocks, so call it outside the event loop."""
        while True:
            forgotten, mark = self._forgotten, self.store.changes()
            if mark == self._known:
                return list(self._entries.values())
            entries = {stored.name: self._entry(stored) for stored in self.store.campaigns()}
            if self._remember(entries, forgotten, mark):
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
            self._known = None
            self._entries = {known: entry for known, entry in self._entries.items() if known != name}

    def _remember(self, entries: dict[str, Entry], forgotten: int, mark: bytes | None = None) -> bool:
        """Cache what was read, unless a campaign was changed or deleted meanwhile; returns whether it did."""
        with self._lock:
            if self._forgotten != forgotten:
                return False
            self._entries, self._known = entries, mark
            return True

    def _entry(self, stored: StoredCampaign) -> Entry:
        known = self._entries.get(stored.name)
        return known if known is not None and known.stored == stored else self._read(stored)

    @abstractmethod
    def _read(self, stored: StoredCampaign) -> Entry:
        """Prepare what the routes need of a campaign."""

    def purge(self) -> None:
        """Forget the keys of campaigns that ended long ago; called once per hour."""
        if self.clock.doubtful:
            return
        now = self.clock.now()
        over = [entry.campaign.name for entry in self.refresh() if entry.campaign.status(now) == "closed"]
        self.store.purge(over, self.clock.hour(), self.settings.grace_hours)

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


def unknown_campaign() -> Problem:
    """The refusal for an unknown campaign."""
    return Problem(404, "There is no campaign with this name.")
