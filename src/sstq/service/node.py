"""The state that routes and background work share: database, signing key, inbox, permissions, and the campaigns."""

import hashlib
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import rfc8785
from prometheus_client.core import GaugeMetricFamily, Metric

from sstq.client.campaigns import Campaign, stage_name
from sstq.client.sealing import SealingKey
from sstq.client.signing import SigningKey
from sstq.mechanisms import FrameUnit
from sstq.service.batches import count_batches
from sstq.service.clock import Clock
from sstq.service.database import OUTCOMES
from sstq.service.inbox import Inbox
from sstq.service.observing import Metrics, gauge
from sstq.service.receiving import Refusal
from sstq.service.results import raised
from sstq.service.security import (
    AddressLimits,
    Problem,
    is_token,
    new_token,
    token_hash,
)
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign
from sstq.service.terms import OwnTerms, StudyTerms

DEFAULT_PEOPLE = 1_000_000
"""The quota of the token that a campaign with senders="token" is created with, in people."""

# Units of reading that an address may take at once: requests, and 64 KiB of answers each.
_READ_BURST = 400
# The setting with what the clock of the next process needs to know.
_CLOCK = "clock"
# The dashboard has paths of these names.
_RESERVED = {"v1", "health", "metrics", "demo", "dashboard"}


_FROM_ANYWHERE = OwnTerms(origins=("*",))


class ChangedMeanwhile(Exception):  # noqa: N818
    """Somebody else has changed the campaign since it was read; nothing was stored."""


@dataclass(frozen=True)
class RunningCampaign:
    """A campaign with everything that the routes need, prepared once."""

    stored: StoredCampaign
    campaign: Campaign
    document: bytes  # what clients fetch
    signature: str  # the collector's, of the document
    # public keys that shuffled messages are sealed for, the newest first
    sealing_keys: tuple[bytes, ...] = ()
    own: OwnTerms = _FROM_ANYWHERE
    study: StudyTerms = None  # type: ignore[assignment]  # of studies at the collector only

    @property
    def name(self) -> str:
        """The name in the link; that of a study has no number, and its campaign is its newest stage."""
        return self.stored.name

    @property
    def is_study(self) -> bool:
        """Whether this is a study, whose campaign is its newest stage."""
        return self.stored.study == self.name

    @property
    def is_stage(self) -> bool:
        """Whether this is a stage of a study by itself."""
        return self.campaign.stage is not None and not self.is_study

    @cached_property
    def etag(self) -> str:
        """The ETag of the document, quoted."""
        return f'"{hashlib.sha256(self.document).hexdigest()[:32]}"'

    @cached_property
    def crowds(self) -> dict[str, bytes]:
        """The sealing keys by the crowds of people who sealed for them, in hexadecimal."""
        return {self.campaign.crowd(key).hex(): key for key in self.sealing_keys}

    def is_closed(self, now: datetime) -> bool:
        """Whether the campaign accepts no more messages, or the study no more stages."""
        return self.stored.closed or (
            not self.is_study and self.campaign.status(now) == "closed"
        )

    def is_reader(self, token: str | None) -> bool:
        """Whether this is the token of the campaign's readers."""
        stored = self.own.read_token
        return (
            self.campaign.readers == "token"
            and stored is not None
            and is_token(token, bytes.fromhex(stored))
        )


class Node(ABC):
    """The state of one server process; everything persistent is in the store."""

    role: str  # "collector" or "shuffler"; a database of the other role is refused

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        kept = store.setting("role", lambda: self.role.encode()).decode()
        if kept != self.role:
            store.close()
            raise ValueError(
                f"database must belong to a {self.role}, got one of a {kept}; pass an empty database"
            )
        self.clock = Clock(store.known_setting(_CLOCK))
        self.inbox = Inbox(self.store)
        self.sending = AddressLimits(settings.messages_per_second, settings.burst)
        self.reading = AddressLimits(settings.reads_per_second, _READ_BURST)
        self.metrics = Metrics()
        self.metrics.registry.register(self)
        self.key = SigningKey(
            self.store.setting("signing-key", lambda: SigningKey.generate().secret)
        )
        self._administrator = token_hash(settings.administrator_token)
        self._metrics_reader = (
            None
            if settings.metrics_token is None
            else token_hash(settings.metrics_token)
        )
        self.entries: dict[str, RunningCampaign] = {}
        self._lock = threading.Lock()
        self.refresh()

    def warm_up(self) -> None:
        """Load the kernels that check, add and estimate, so that no upload waits for a compiler."""
        mechanism = FrameUnit(dim=2, epsilon=1.0)
        aggregator = mechanism.aggregator()
        aggregator.update(
            mechanism.messages_from_bytes(bytes(-(-mechanism.message_bits // 8)), 1)
        )
        aggregator.mean()

    @property
    def public_keys(self) -> dict[str, str]:
        """What this service shows of its keys, in hexadecimal."""
        return {"key": self.key.public.hex()}

    def signatures(self, entry: RunningCampaign) -> dict[str, str]:
        """The signatures of a campaign's document, as headers."""
        return {"SSTQ-Signature": entry.signature}

    def unpacked(self, entry: RunningCampaign, raw: bytes) -> bytes:  # noqa: ARG002
        """Return what to store of an upload's body, whose messages the store checks; raises a Problem if nothing."""
        return raw

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are counted when they are read, as prometheus_client asks for them."""
        meaning = "Whether the time may be wrong, so that nothing is closed for good or deleted."
        yield GaugeMetricFamily("sstq_clock_doubtful", meaning, self.clock.doubtful)
        meaning = "Uploads waiting to be written."
        yield GaugeMetricFamily("sstq_inbox_uploads", meaning, len(self.inbox))

    # Campaigns

    def refresh(self) -> None:
        """Read the campaigns again, after one has changed."""
        with self._lock:  # also while reading: nothing old is remembered after a change
            known = self.entries
            found: dict[str, RunningCampaign] = {}
            rows = self.store.campaigns().values()
            # studies after their stages
            for stored in sorted(rows, key=lambda row: row.study == row.name):
                last = known.get(stored.name)
                same = last is not None and last.stored == stored and not last.is_study
                found[stored.name] = (
                    last if last and same else self._read(stored, found)
                )
            self.entries = found

    async def entry(self, name: str) -> RunningCampaign:
        """Return the campaign with this name; raises a Problem (404) if there is none."""
        return self.known(name)

    def known(self, name: str) -> RunningCampaign:
        """Return a campaign of the database by its name; raises a Problem (404) if there is none."""
        found = self.entries.get(name)
        if found is None:
            raise Problem(*Refusal.UNKNOWN.value)
        return found

    @abstractmethod
    def _read(
        self, stored: StoredCampaign, known: dict[str, RunningCampaign]
    ) -> RunningCampaign:
        """Prepare what the routes need of a campaign; of a study, whose stages are `known`, and of its newest stage."""

    def goes_on(self, name: str) -> bool:
        """Whether another stage of a study may come."""
        study = self.entries.get(name)
        return study is not None and not study.stored.closed

    def delete(self, entry: RunningCampaign) -> None:
        """Delete a campaign and everything of it that is stored."""
        self.store.delete(entry.name)
        self.refresh()

    def purge(self) -> None:
        """Forget the keys of campaigns that ended long ago; called once per hour."""
        if self.clock.doubtful:
            return
        self.store.keep_setting(_CLOCK, self.clock.witness)
        now = self.clock.now()
        stages = [entry.name for entry in self.entries.values() if entry.is_stage]
        rooms = self.store.rooms(stages)
        over = [
            name
            for name, entry in self.entries.items()
            if is_full(rooms.get(name)) or entry.is_closed(now)
        ]
        self.store.purge(over, self.clock.hour(), self.settings.grace_hours)
        self.refresh()

    # Who may do what

    def is_administrator(self, token: str | None) -> bool:
        """Whether this is the administrator's token."""
        return is_token(token, self._administrator)

    def may_read_metrics(self, token: str | None) -> bool:
        """Whether this is the metrics token."""
        return is_token(token, self._metrics_reader)


class Collector(Node):
    """The state of one process of a collector."""

    role = "collector"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Store(settings.database, upgrade=settings.upgrade))

    def _read(
        self, stored: StoredCampaign, known: dict[str, RunningCampaign]
    ) -> RunningCampaign:
        terms = json.loads(stored.terms)
        own = OwnTerms.take(terms)
        if stored.study == stored.name:
            study = StudyTerms(**terms["study"])
            newest = stage_name(stored.name, len(study.stages))
            # Pages that may send to the study may send to its stage.
            sealing_keys = known[newest].own.sealing_keys
            stage = known[newest] = replace(
                known[newest], own=replace(own, sealing_keys=sealing_keys)
            )
            campaign = replace(stage.campaign, readers=terms["readers"])
            return replace(
                stage,
                stored=stored,
                campaign=campaign,
                own=own,
                study=study,
                sealing_keys=(),
            )
        keys = tuple(map(bytes.fromhex, own.sealing_keys))
        campaign = Campaign.from_dict(
            {"name": stored.name, "mechanism": stored.mechanism} | terms
        )
        document = campaign.document([self.key.public], keys)
        return RunningCampaign(
            stored, campaign, document, self.key.sign(document), keys, own
        )

    def save(
        self,
        campaign: Campaign,
        own: OwnTerms,
        entry: RunningCampaign | None = None,
        renewed: Collection[str] = (),
        **columns: bool,
    ) -> dict[str, str]:
        """Store a new campaign, or new terms of an existing one.

        Returns its shared tokens that are new, which are not stored. ValueError if the name is taken, ChangedMeanwhile
        if the existing campaign is no longer `entry`.
        """
        check_free(campaign.name)
        own, tokens = with_reader(campaign.readers, own, renewed)
        if entry is None and campaign.shuffling is not None:
            key = SealingKey.generate()
            self.store.setting(sealing_setting(key.public), lambda: key.secret)
            own = replace(own, sealing_keys=(key.public.hex(),))
        terms = rfc8785.dumps(campaign.terms() | own.as_json()).decode()
        try:
            if entry is None:
                self.store.create(campaign.name, campaign.mechanism, terms)
            elif not self.store.change(entry.stored, terms=terms, **columns):
                raise ChangedMeanwhile
            if "send_token" in renewed:
                self.store.remove_senders(campaign.name)
        finally:  # a new campaign may exist since an attempt before
            self.refresh()
        return tokens | self.first_sender(campaign.name)

    def stages(self, entry: RunningCampaign) -> list[str]:
        """The names of the campaigns of a study's stages, in turn."""
        return [
            stage_name(entry.name, number)
            for number in range(1, len(entry.study.stages) + 1)
        ]

    def first_sender(self, name: str) -> dict[str, str]:
        """Create the shared token of a campaign that needs one and has none."""
        saved = self.entries.get(name)
        if saved is None or saved.campaign.senders != "token" or saved.stored.senders:
            return {}
        return {"send_token": self.add_sender(saved, DEFAULT_PEOPLE)}

    def add_sender(self, entry: RunningCampaign, people: int) -> str:
        """Create a token for batches of messages of up to this many people in all; only its hash is stored."""
        token = new_token()
        self.store.add_sender(
            entry.stored.payer, token_hash(token), people * entry.campaign.slots
        )
        self.refresh()
        return token

    def delete(self, entry: RunningCampaign) -> None:
        """Delete a campaign, everything collected for it, and the keys that could open its envelopes."""
        parts = [own for own in self.entries.values() if own.stored.payer == entry.name]
        super().delete(entry)
        for part in parts:
            self.forget_sealing_keys(part)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are counted when they are read, as prometheus_client asks for them."""
        yield from super().collect()
        counts = self.store.counts()
        for name, meaning, field in (
            ("sstq_messages_received", "Acknowledged messages.", "received"),
            ("sstq_messages_folded", "Messages in the state.", "folded"),
            ("sstq_tokens_unspent", "Unused single-use tokens.", "unspent"),
        ):
            values = {(own,): getattr(found, field) for own, found in counts.items()}
            yield gauge(name, meaning, values)
        meaning = "Tests that an honest crowd passes and this one failed."
        yield gauge("sstq_alarms", meaning, raised(self.store), "test")
        shuffled = [
            name
            for name, entry in self.entries.items()
            if entry.campaign.shuffling is not None
        ]
        batches = {name: count_batches(self.store, name) for name in shuffled}
        opened = {(name,): found["batches"] for name, found in batches.items()}
        yield gauge("sstq_batches_opened", "Opened batches.", opened)
        outcomes = {
            (name, outcome): found[outcome]
            for name, found in batches.items()
            for outcome in OUTCOMES
        }
        meaning = "Envelopes of opened batches, by outcome."
        yield gauge("sstq_envelopes_opened", meaning, outcomes, "result")

    # Keys of shuffled campaigns: public keys are in the terms; secret keys are separate, so that they can be deleted.

    def sealing_secrets(self, entry: RunningCampaign) -> dict[str, bytes]:
        """A campaign's secret keys, by the crowds that sealed for them."""
        found = {
            crowd: self.store.known_setting(sealing_setting(key))
            for crowd, key in entry.crowds.items()
        }
        return {name: secret for name, secret in found.items() if secret is not None}

    def forget_sealing_keys(self, entry: RunningCampaign) -> None:
        """Delete a campaign's secret keys: from now on nobody can open its envelopes or any copies of them."""
        self.store.delete_settings([sealing_setting(key) for key in entry.sealing_keys])


def is_full(room: int | None) -> bool:
    """Whether a stage with this room has its people."""
    return room is not None and room <= 0


def lasting_terms(campaign: Campaign) -> dict[str, Any]:
    """What of a shuffled campaign never changes, labels included: all but its times and who may read."""
    terms = {
        name: value
        for name, value in campaign.terms().items()
        if name not in ("opens", "closes", "readers")
    }
    return {"name": campaign.name, "mechanism": campaign.digest} | terms


def sealing_setting(public: bytes) -> str:
    """The name of the setting with the secret key of a public one."""
    return f"sealing-key-{public.hex()}"


def check_free(name: str) -> None:
    """ValueError for a name that only a page or the stage of a study may have."""
    if name in _RESERVED:
        raise ValueError(
            f"name must not be one of {', '.join(sorted(_RESERVED))}, got {name!r}"
        )
    if re.search("--[0-9]+$", name):
        raise ValueError(
            f"name must not end as those of a study's stages do, got {name!r}"
        )


def with_reader(
    readers: str, own: OwnTerms, renewed: Collection[str] = ()
) -> tuple[OwnTerms, dict[str, str]]:
    """Return own terms with the hash of a reader's token, where one is needed, and this token if it is new."""
    if readers != "token" or (
        "read_token" not in renewed and own.read_token is not None
    ):
        return own, {}
    token = new_token()
    return replace(own, read_token=token_hash(token).hex()), {"read_token": token}
