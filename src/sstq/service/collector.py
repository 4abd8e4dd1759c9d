"""The state that a collector's routes share: its campaigns, the keys that open envelopes, and who may read."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import rfc8785

from sstq.client.campaigns import Campaign
from sstq.client.sealing import SealingKey
from sstq.service.node import Entry, Node
from sstq.service.security import Problem, is_token, new_token, token_hash, unauthorized
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign

__all__ = ["SEALING_KEY", "TOKEN_NAMES", "Collector"]

TOKEN_NAMES = ("send_token", "read_token")
SEALING_KEY = "sealing_key"


class Collector(Node):
    """The state of one process of a collector."""

    role = "collector"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Store(settings.database))

    def _read(self, stored: StoredCampaign) -> Entry:
        terms = json.loads(stored.terms)
        tokens = {name: bytes.fromhex(terms.pop(name)) for name in TOKEN_NAMES if name in terms}
        sealing_keys = tuple(bytes.fromhex(key) for key in terms.pop("sealing_keys", ()))
        campaign = Campaign.from_terms(stored.name, stored.mechanism, terms)
        document = campaign.document([self.key.public], sealing_keys)
        return Entry(stored, campaign, tokens, sealing_keys, document, self.key.sign(document))

    def create(self, campaign: Campaign) -> dict[str, str]:
        """Store a new campaign; returns its shared tokens, which are not stored. ValueError if the name is taken."""
        tokens = _needed_tokens(campaign, {})
        sealing_keys = () if campaign.shuffling is None else (self._new_sealing_key(),)
        terms = _terms(campaign, {name: token_hash(token) for name, token in tokens.items()}, sealing_keys)
        self.store.create(campaign.name, campaign.mechanism, terms, last_hour=_last_hour(campaign))
        return tokens

    def change(self, entry: Entry, campaign: Campaign, renewed: tuple[str, ...] = ()) -> dict[str, str]:
        """Replace a campaign's terms; returns the shared tokens that are renewed or needed for the first time."""
        kept = {name: digest for name, digest in entry.tokens.items() if name not in renewed}
        tokens = _needed_tokens(campaign, kept)
        hashes = kept | {name: token_hash(token) for name, token in tokens.items()}
        sealing_keys = entry.sealing_keys
        if SEALING_KEY in renewed:
            sealing_keys = (self._new_sealing_key(), *sealing_keys)
        self.store.change_terms(campaign.name, _terms(campaign, hashes, sealing_keys), last_hour=_last_hour(campaign))
        self.forget(campaign.name)
        return tokens

    def delete(self, entry: Entry) -> None:
        """Delete a campaign, everything collected for it, and the keys that could open its envelopes."""
        self.store.delete(entry.campaign.name)
        self.forget_sealing_keys(entry)
        self.forget(entry.campaign.name)

    # Keys of shuffled campaigns: public keys are in the terms; secret keys are separate, so that they can be deleted.

    def _new_sealing_key(self) -> bytes:
        key = SealingKey.generate()
        self.store.setting(_sealing_setting(key.public), lambda: key.secret)
        return key.public

    def sealing_secrets(self, entry: Entry) -> dict[str, bytes]:
        """A campaign's secret keys, by the crowds that sealed for them."""
        found = {crowd: self.store.known_setting(_sealing_setting(key)) for crowd, key in entry.crowds.items()}
        return {name: secret for name, secret in found.items() if secret is not None}

    def forget_sealing_keys(self, entry: Entry) -> None:
        """Delete a campaign's secret keys: from now on nobody can open its envelopes or any copies of them."""
        self.store.delete_settings([_sealing_setting(key) for key in entry.sealing_keys])

    def takes_batches(self, entry: Entry, now: datetime) -> bool:
        """Whether a shuffler may still forward batches: until the grace period after the campaign's end is over."""
        closes = entry.campaign.closes
        grace = timedelta(hours=self.settings.grace_hours)
        return not entry.stored.closed and (closes is None or now < closes + grace)

    # Who may read

    def may_read(self, entry: Entry, token: str | None) -> bool:
        """Whether the holder of the token, if any, may read the estimate."""
        if entry.campaign.readers == "public" or self.is_administrator(token):
            return True
        return self.has_read_token(entry, token)

    def has_read_token(self, entry: Entry, token: str | None) -> bool:
        """Whether this is the campaign's reader token."""
        return entry.campaign.readers == "token" and is_token(token, entry.tokens.get("read_token"))

    def require_reader(self, entry: Entry, token: str | None) -> None:
        """Raise a Problem unless the token may read the estimate."""
        if self.may_read(entry, token):
            return
        if token is None:
            raise unauthorized("This needs the campaign's reader token or the administrator's token.")
        raise Problem(403, "The token is neither the campaign's reader token nor the administrator's token.")


def _needed_tokens(campaign: Campaign, known: dict[str, Any]) -> dict[str, str]:
    needed = {"send_token": campaign.senders == "token", "read_token": campaign.readers == "token"}
    return {name: new_token() for name in TOKEN_NAMES if needed[name] and name not in known}


def _terms(campaign: Campaign, tokens: dict[str, bytes], sealing_keys: tuple[bytes, ...]) -> str:
    kept: dict[str, Any] = {name: digest.hex() for name, digest in tokens.items()}
    if sealing_keys:
        kept["sealing_keys"] = [key.hex() for key in sealing_keys]
    return rfc8785.dumps(campaign.terms() | kept).decode()


def _sealing_setting(public: bytes) -> str:
    return f"sealing-key-{public.hex()}"


def _last_hour(campaign: Campaign) -> int | None:
    return None if campaign.closes is None else int(campaign.closes.timestamp()) // 3600
