"""What the routes share: the store, the campaigns as they are now, and who may do what."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import rfc8785

from sstq.service.campaigns import NAME_PATTERN, Campaign
from sstq.service.inbox import Inbox
from sstq.service.metrics import Metrics
from sstq.service.security import AddressLimits, Problem, is_token, new_token, token_hash, unauthorized
from sstq.service.settings import Settings
from sstq.service.signing import SigningKey
from sstq.service.store import Store, StoredCampaign

__all__ = ["TOKEN_NAMES", "Collector", "Entry", "unknown_campaign"]

TOKEN_NAMES = ("send_token", "read_token")


@dataclass(frozen=True)
class Entry:
    """A campaign with what the routes need of it, made once.

    Attributes:
        stored: the campaign as the database has it.
        campaign: the same, read.
        tokens: the hashes of its shared tokens, by name: "send_token" and "read_token".
        document: the bytes that clients fetch.
        signature: of the document.
        etag: of the document, quoted.
    """

    stored: StoredCampaign
    campaign: Campaign
    tokens: dict[str, bytes]
    document: bytes
    signature: str
    etag: str

    @cached_property
    def from_anywhere(self) -> bool:
        """Whether web pages of other origins may send; a shared token has no place in a web page."""
        return self.campaign.senders != "token"


class Collector:
    """The state of one server process; everything that must last is in the store."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.database)
        self.inbox = Inbox(self.store)
        self.limits = AddressLimits(settings.uploads_per_second, settings.burst)
        self.metrics = Metrics()
        self.key = SigningKey(self.store.setting("signing-key", lambda: SigningKey.generate().secret))
        self._administrator = token_hash(settings.administrator_token)
        self._metrics_reader = None if settings.metrics_token is None else token_hash(settings.metrics_token)
        self._entries: dict[str, Entry] = {}
        self.bytes_being_read = 0

    # Campaigns

    def refresh(self) -> list[Entry]:
        """Read all campaigns again: another process may have changed them. Blocks; not for the event loop."""
        self._entries = {stored.name: self._entry(stored) for stored in self.store.campaigns()}
        return list(self._entries.values())

    async def entry(self, name: str) -> Entry:
        """The campaign of that name; a refusal if there is none."""
        found = self._entries.get(name)
        if found is None:
            named = re.fullmatch(NAME_PATTERN, name)
            stored = await asyncio.to_thread(self.store.campaign, name) if named else None
            if stored is None:
                raise unknown_campaign()
            found = self._entries[name] = self._entry(stored)
        return found

    def forget(self, name: str) -> None:
        """Read a campaign again when it is asked for next."""
        self._entries.pop(name, None)

    def _entry(self, stored: StoredCampaign) -> Entry:
        known = self._entries.get(stored.name)
        if known is not None and known.stored == stored:
            return known
        terms = json.loads(stored.terms)
        tokens = {name: bytes.fromhex(terms.pop(name)) for name in TOKEN_NAMES if name in terms}
        campaign = Campaign.from_terms(stored.name, stored.mechanism, terms)
        document = campaign.document([self.key.public])
        etag = f'"{hashlib.sha256(document).hexdigest()[:32]}"'
        return Entry(stored, campaign, tokens, document, self.key.sign(document), etag)

    def create(self, campaign: Campaign) -> dict[str, str]:
        """Store a new campaign; returns its new shared tokens, which are not kept. ValueError if the name is taken."""
        tokens = _needed_tokens(campaign, {})
        terms = _terms(campaign, {name: token_hash(token) for name, token in tokens.items()})
        self.store.create(campaign.name, campaign.mechanism, terms, last_hour=_last_hour(campaign))
        return tokens

    def change(self, entry: Entry, campaign: Campaign, renewed: tuple[str, ...] = ()) -> dict[str, str]:
        """Replace a campaign's terms; returns new shared tokens, for those that are renewed or were not needed yet."""
        kept = {name: digest for name, digest in entry.tokens.items() if name not in renewed}
        tokens = _needed_tokens(campaign, kept)
        hashes = kept | {name: token_hash(token) for name, token in tokens.items()}
        self.store.change_terms(campaign.name, _terms(campaign, hashes), last_hour=_last_hour(campaign))
        self.forget(campaign.name)
        return tokens

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

    def may_read(self, entry: Entry, token: str | None) -> bool:
        """Whether the holder of the token, if any, may read the estimate."""
        if entry.campaign.readers == "public" or self.is_administrator(token):
            return True
        return self.has_read_token(entry, token)

    def has_read_token(self, entry: Entry, token: str | None) -> bool:
        """Whether this is the campaign's token for readers."""
        return entry.campaign.readers == "token" and is_token(token, entry.tokens.get("read_token"))

    def require_reader(self, entry: Entry, token: str | None) -> None:
        """A refusal unless the holder of the token may read the estimate."""
        if self.may_read(entry, token):
            return
        if token is None:
            raise unauthorized("This needs the campaign's token for readers or the administrator's.")
        raise Problem(403, "The token is neither the campaign's token for readers nor the administrator's.")


def unknown_campaign() -> Problem:
    """There is no campaign of that name."""
    return Problem(404, "There is no campaign of this name.")


def _needed_tokens(campaign: Campaign, known: dict[str, Any]) -> dict[str, str]:
    needed = {"send_token": campaign.senders == "token", "read_token": campaign.readers == "token"}
    return {name: new_token() for name in TOKEN_NAMES if needed[name] and name not in known}


def _terms(campaign: Campaign, tokens: dict[str, bytes]) -> str:
    return rfc8785.dumps(campaign.terms() | {name: digest.hex() for name, digest in tokens.items()}).decode()


def _last_hour(campaign: Campaign) -> int | None:
    return None if campaign.closes is None else int(campaign.closes.timestamp()) // 3600
