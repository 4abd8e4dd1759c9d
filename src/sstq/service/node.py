"""What a collector and a shuffler are: database, signing key, inbox, permissions, and the campaigns."""

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from sstq.client.campaigns import Campaign
from sstq.client.signing import SigningKey
from sstq.mechanisms import FrameUnit
from sstq.service.clock import Clock
from sstq.service.inbox import Inbox
from sstq.service.observing import Metrics
from sstq.service.receiving import Refusal
from sstq.service.security import (
    AddressLimits,
    Problem,
    is_token,
    token_hash,
)
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign
from sstq.service.terms import OwnTerms, StudyTerms

# Units of reading that an address may take at once: requests, and 64 KiB of answers each.
_READ_BURST = 400
# The setting with what the clock of the next process needs to know.
_CLOCK = "clock"


T = TypeVar("T")

_FROM_ANYWHERE = OwnTerms(origins=("*",))


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

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Change campaigns in one transaction, and read them again."""
        try:
            return self.store.write(work)
        finally:  # an attempt that failed may have changed them as well
            self.refresh()

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
