"""The state that a collector's routes share: its campaigns, the keys that open envelopes, and who may read."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import rfc8785

from sstq.client.campaigns import Campaign
from sstq.client.sealing import SealingKey
from sstq.service.node import Entry, Node, Policy
from sstq.service.problems import Problem, unauthorized
from sstq.service.security import is_token, new_token, token_hash
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign

__all__ = ["DEFAULT_PEOPLE", "Collector"]

DEFAULT_PEOPLE = 1_000_000
"""The quota of the token of a campaign's senders, in people, unless its owner states another."""

# The dashboard has paths of these names.
_RESERVED = {"v1", "health", "metrics", "demo", "dashboard"}
_POLICY = ("origins", "release_every")


class Collector(Node):
    """The state of one process of a collector."""

    role = "collector"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Store(settings.database, upgrade=settings.upgrade))

    def _read(self, stored: StoredCampaign) -> Entry:
        terms = json.loads(stored.terms)
        read_token = terms.pop("read_token", None)
        sealing_keys = tuple(bytes.fromhex(key) for key in terms.pop("sealing_keys", ()))
        policy = policy_of(terms)
        campaign = Campaign.from_terms(stored.name, stored.mechanism, terms)
        document = campaign.document([self.key.public], sealing_keys)
        token = None if read_token is None else bytes.fromhex(read_token)
        return Entry(stored, campaign, token, sealing_keys, document, self.key.sign(document), policy)

    def create(self, campaign: Campaign, policy: Policy | None = None, people: int = DEFAULT_PEOPLE) -> dict[str, str]:
        """Store a new campaign; returns its shared tokens, which are not stored. ValueError if the name is taken."""
        if campaign.name in _RESERVED:
            raise ValueError(f"name must not be one of {', '.join(sorted(_RESERVED))}, got {campaign.name!r}")
        token = new_token() if campaign.readers == "token" else None
        sealing_keys = () if campaign.shuffling is None else (self._new_sealing_key(),)
        read_token = None if token is None else token_hash(token)
        self.store.create(
            campaign.name, campaign.mechanism, _terms(campaign, policy or Policy(), read_token, sealing_keys)
        )
        tokens = {} if token is None else {"read_token": token}
        return tokens | self._send_token(campaign, people)

    def _send_token(self, campaign: Campaign, people: int) -> dict[str, str]:
        return {"send_token": self.add_sender(campaign, people)} if campaign.senders == "token" else {}

    def add_sender(self, campaign: Campaign, people: int) -> str:
        """Create a token for batches of messages of up to this many people in all; only its hash is stored."""
        token = new_token()
        self.store.add_sender(campaign.name, token_hash(token), people * campaign.slots)
        self.forget(campaign.name)
        return token

    def change(
        self,
        entry: Entry,
        campaign: Campaign,
        policy: Policy,
        renewed: Collection[str] = (),
        people: int = DEFAULT_PEOPLE,
    ) -> dict[str, str]:
        """Replace a campaign's terms; returns the shared tokens that are renewed or needed for the first time."""
        tokens = {}
        read_token = None if "read_token" in renewed else entry.read_token
        if campaign.readers == "token" and read_token is None:
            tokens["read_token"] = new_token()
            read_token = token_hash(tokens["read_token"])
        sealing_keys = entry.sealing_keys
        if "sealing_key" in renewed:
            sealing_keys = (self._new_sealing_key(), *sealing_keys)
        self.store.change_terms(campaign.name, _terms(campaign, policy, read_token, sealing_keys))
        if "send_token" in renewed:
            self.store.remove_senders(campaign.name)
        if "send_token" in renewed or not entry.stored.senders:
            tokens |= self._send_token(campaign, people)
        self.forget(campaign.name)
        return tokens

    def delete(self, entry: Entry) -> None:
        """Delete a campaign, everything collected for it, and the keys that could open its envelopes."""
        self.store.delete(entry.campaign.name)
        self.forget_sealing_keys(entry)
        self.forget(entry.campaign.name)

    def warnings(self) -> list[str]:
        """Sentences for the operator about campaigns that strangers could abuse."""
        return [
            f"{name}: an anonymous upload may have {most} messages, so one request can move the mean; limit it with "
            f"sstq campaign change {name} --most-messages {slots}"
            for name, most, slots in (
                (entry.campaign.name, entry.campaign.most_messages, entry.campaign.slots)
                for entry in self.refresh()
                if is_open_to_batches(entry.campaign)
            )
        ]

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

    def takes_batches(self, entry: Entry) -> bool:
        """Whether a shuffler may still forward batches: until the campaign is closed for good (`Store.purge`)."""
        return not entry.stored.closed

    # Who may read

    def may_read(self, entry: Entry, token: str | None) -> bool:
        """Whether the holder of the token, if any, may read the estimate."""
        if entry.campaign.readers == "public" or self.is_administrator(token):
            return True
        return self.has_read_token(entry, token)

    def has_read_token(self, entry: Entry, token: str | None) -> bool:
        """Whether this is the campaign's reader token."""
        return entry.campaign.readers == "token" and is_token(token, entry.read_token)

    def require_reader(self, entry: Entry, token: str | None) -> None:
        """Raise a Problem unless the token may read the estimate."""
        if self.may_read(entry, token):
            return
        if token is None:
            raise unauthorized("This needs the campaign's reader token or the administrator's token.")
        raise Problem(403, "The token is neither the campaign's reader token nor the administrator's token.")


def policy_of(terms: dict[str, Any]) -> Policy:
    """Take the fields of a policy out of a campaign's terms."""
    found = {name: terms.pop(name) for name in _POLICY if name in terms}
    return Policy(tuple(found.get("origins", ())), found.get("release_every", Policy.release_every))


def is_open_to_batches(campaign: Campaign) -> bool:
    """Whether strangers may send the messages of several people in one upload."""
    return campaign.senders == "everybody" and campaign.shuffling is None and campaign.most_messages > campaign.slots


def _terms(campaign: Campaign, policy: Policy, read_token: bytes | None, sealing_keys: tuple[bytes, ...]) -> str:
    kept: dict[str, Any] = {"origins": list(policy.origins), "release_every": policy.release_every}
    if read_token is not None:
        kept["read_token"] = read_token.hex()
    if sealing_keys:
        kept["sealing_keys"] = [key.hex() for key in sealing_keys]
    return rfc8785.dumps(campaign.terms() | kept).decode()


def _sealing_setting(public: bytes) -> str:
    return f"sealing-key-{public.hex()}"
