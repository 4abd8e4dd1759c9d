"""The state of a collector, which its routes and background work share: how campaigns are stored, and their keys."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace

import rfc8785
import sqlalchemy as sa
from prometheus_client.core import Metric

from sstq.client.campaigns import Campaign, stage_name
from sstq.client.sealing import SealingKey
from sstq.service import database as tables
from sstq.service.batches import count_batches
from sstq.service.database import OUTCOMES, put
from sstq.service.node import Node, RunningCampaign
from sstq.service.observing import gauge
from sstq.service.results import raised
from sstq.service.security import new_token, token_hash
from sstq.service.settings import Settings
from sstq.service.store import Store, StoredCampaign, new_campaign
from sstq.service.terms import OwnTerms, StudyTerms

DEFAULT_PEOPLE = 1_000_000
"""The quota of the token that a campaign with senders="token" is created with, in people."""

# The dashboard has paths of these names.
_RESERVED = {"v1", "health", "metrics", "demo", "dashboard"}


class ChangedMeanwhile(Exception):  # noqa: N818
    """Somebody else has changed the campaign since it was read; nothing was stored."""


class Collector(Node):
    """The state of one process of a collector."""

    role = "collector"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Store(settings.database, upgrade=settings.upgrade))
        # Who asks for the same estimate, as JSON or CSV, waits for who makes it; a state may take gigabytes.
        self.rendering = {False: asyncio.Semaphore(1), True: asyncio.Semaphore(1)}
        # Who has the turn sends a piece of a large answer.
        self.turns = asyncio.Semaphore(1)
        self.saving = asyncio.Semaphore(1)

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

    def create(self, campaign: Campaign, own: OwnTerms) -> dict[str, str]:
        """Store a new campaign; returns its shared tokens, which are not stored. ValueError if the name is taken."""
        check_free(campaign.name)
        own, tokens = with_reader(campaign.readers, own)
        self.write(publishing(campaign, own))
        return tokens | self.first_sender(campaign.name)

    def save(
        self,
        campaign: Campaign,
        own: OwnTerms,
        entry: RunningCampaign,
        renewed: Collection[str] = (),
        **columns: bool,
    ) -> dict[str, str]:
        """Store new terms of a campaign or a study; returns its shared tokens that are new.

        ChangedMeanwhile if what is stored is no longer `entry`.
        """
        own, tokens = with_reader(campaign.readers, own, renewed)
        text = terms_text(campaign, own, entry.study)
        try:
            if not self.store.change(entry.stored, terms=text, **columns):
                raise ChangedMeanwhile
            if "send_token" in renewed:
                self.store.remove_senders(entry.name)
        finally:  # who tries again starts from what is stored now
            self.refresh()
        return tokens | self.first_sender(entry.name)

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


def terms_text(
    campaign: Campaign, own: OwnTerms, study: StudyTerms | None = None
) -> str:
    """What is stored of a campaign's terms, or of a study's whose newest stage it is."""
    terms = campaign.terms()
    if study is not None:
        terms = {"readers": campaign.readers, "study": asdict(study)}
    return rfc8785.dumps(terms | own.as_json()).decode()


def publishing(campaign: Campaign, own: OwnTerms) -> Callable[[sa.Connection], None]:
    """What stores a new campaign or stage, with a sealing key of its own if it is shuffled."""
    stage = campaign.stage
    key = None if campaign.shuffling is None else SealingKey.generate()
    columns: dict[str, str | int | None] = {}
    if key is not None:
        own = replace(own, sealing_keys=(key.public.hex(),))
    if stage is not None:
        columns["study"] = stage.study
        if stage.people is not None and key is None:
            columns["room"] = stage.people * campaign.slots
    text = terms_text(campaign, own)

    def work(connection: sa.Connection) -> None:
        if key is not None:
            row = {"name": sealing_setting(key.public), "value": key.secret}
            put(connection, tables.settings, row)
        new_campaign(connection, campaign.name, campaign.mechanism, text, **columns)

    return work


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
