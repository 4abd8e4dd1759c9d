"""The shuffler: it receives sealed messages, mixes those of many people, forwards them and deletes its copies.

It sees who sends and when, but not what; the collector sees what was sent, but not by whom. One thread per process
mixes and forwards (`sstq.service.mixing`).
"""

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI
from prometheus_client.core import Metric

from sstq.client.campaigns import NAME_PATTERN, Campaign, Document, read_document
from sstq.client.http import RequestError, request
from sstq.client.sealing import CROWD_BYTES, SealingKey, cover_info, open_envelopes
from sstq.client.signing import SHUFFLER_PREFIX, signer
from sstq.service.app import new_app
from sstq.service.common_routes import Named, administrator_router, here
from sstq.service.crowds import count_outgoing, joined_by_crowd, waiting
from sstq.service.mixing import Work
from sstq.service.models import ShufflerStatus
from sstq.service.node import Node, RunningCampaign, is_full, lasting_terms
from sstq.service.observing import gauge
from sstq.service.security import Problem
from sstq.service.settings import ShufflerSettings
from sstq.service.store import Store, StoredCampaign, changed, new_campaign

__all__ = ["ShufflerSettings", "create_shuffler_app"]

_COLLECTOR_KEY = "collector-key"
# How many names may be looked up at the collector at once; strangers can send any name.
_ASKED_AT_ONCE = 4

_DESCRIPTION = (
    "Receives sealed messages (HPKE) of differentially private campaigns, mixes those of many people and forwards them "
    "to the collector. Every refusal is application/problem+json (RFC 9457) with a sentence. After 429, "
    "503 or no answer, repeat the request with the same Idempotency-Key: its envelopes count once."
)
_UPLOAD = (
    "SSTQ-Count is 1: one person. The body is the crowd (32 bytes) and, sealed for the shuffler, one envelope of "
    "envelope_bytes bytes per slot, in the order of the slots. The shuffler answers once they are durable."
)


class Shuffler(Node):
    """The state of one process of a shuffler."""

    role = "shuffler"
    settings: ShufflerSettings

    def __init__(self, settings: ShufflerSettings) -> None:
        super().__init__(
            settings,
            Store(settings.database, joined_by_crowd, upgrade=settings.upgrade),
        )
        self.sealing_key = SealingKey(
            self.store.setting("sealing-key", lambda: SealingKey.generate().secret)
        )
        # What the collector tried to "change", and why it did not accept a "batch", by campaign.
        self.refused: dict[tuple[str, str], str] = {}
        # Studies that have ended, as far as the collector says so: nothing is deleted because of that.
        self.ended: set[str] = set()
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)
        if settings.collector_key is not None:
            self._pin(settings.collector_key)

    def warm_up(self) -> None:
        """Load nothing: a shuffler looks into no message."""

    @property
    def public_keys(self) -> dict[str, str]:
        """What this shuffler shows of its keys, in hexadecimal."""
        return super().public_keys | {"sealing_key": self.sealing_key.public.hex()}

    def _read(
        self,
        stored: StoredCampaign,
        known: dict[str, RunningCampaign],  # noqa: ARG002
    ) -> RunningCampaign:
        terms = json.loads(stored.terms)
        raw = terms["document"].encode()
        document = read_document(raw)
        return RunningCampaign(
            stored, document.campaign, raw, terms["signature"], document.sealing_keys
        )

    def signatures(self, entry: RunningCampaign) -> dict[str, str]:
        """The collector's signature of the document and the shuffler's, the same for every client."""
        return super().signatures(entry) | {
            "SSTQ-Shuffler-Signature": self.key.sign(entry.document, SHUFFLER_PREFIX)
        }

    def unpacked(self, entry: RunningCampaign, raw: bytes) -> bytes:
        """Open the cover of a person's envelopes, which the shuffler cannot open."""
        crowd = raw[:CROWD_BYTES]
        cover = raw[CROWD_BYTES:]
        if crowd.hex() not in entry.crowds:
            raise Problem(
                409,
                "The envelopes are sealed for other terms or another key. Fetch the campaign again.",
            )
        (envelopes,) = open_envelopes(
            self.sealing_key.secret, cover_info(crowd), [cover]
        )
        if envelopes is None:
            raise Problem(422, "The cover of the envelopes does not open.")
        return crowd + envelopes

    async def entry(self, name: str) -> RunningCampaign:
        """Return the campaign with this name, which the collector is asked for once; a Problem if there is none."""
        if name not in self.entries and re.fullmatch(NAME_PATTERN, name):
            async with self._asking:
                await asyncio.to_thread(self._learn, name)
        return await super().entry(name)

    def _learn(self, name: str) -> None:
        try:
            self.fetch(name)
        except RequestError as error:
            if error.status != 404:
                later = {"Retry-After": "5"}
                raise Problem(
                    503, "The collector does not answer; try again.", later
                ) from error
        except ValueError as error:
            raise Problem(
                404, f"This shuffler cannot serve the campaign: {error}."
            ) from error

    def fetch(self, name: str) -> None:
        """Fetch a campaign's document from the collector, check and store it.

        ValueError if the campaign is not for this shuffler, or if it changes what people agreed to; then the document
        that is stored remains.
        """
        answer = request("GET", f"{self.settings.collector}/v1/campaigns/{name}")
        signature = answer.headers.get("SSTQ-Signature", "")
        document = read_document(answer.content)
        pinned = self.store.known_setting(_COLLECTOR_KEY)
        key = signer(
            answer.content,
            signature,
            document.keys,
            None if pinned is None else pinned.hex(),
        )
        campaign = document.campaign
        if name != campaign.link_name or campaign.shuffling is None:
            raise ValueError("the collector has no shuffled campaign with this name")
        for field, value in (
            self.public_keys | {"url": self.settings.public_url}
        ).items():
            if (named := getattr(campaign.shuffling, field)) != value:
                raise ValueError(
                    f"it names a shuffler with the {field} {named}, this one has {value}"
                )
        self._pin(key)
        known = self.entries.get(name)
        is_new = known is None or known.campaign.name != campaign.name
        if is_new and len(document.sealing_keys) != 1:
            raise ValueError(
                f"it must have one sealing key, got {len(document.sealing_keys)}"
            )
        if known is not None and (change := self.forbidden_change(known, document)):
            self.refused[name, "change"] = change
            raise ValueError(change)
        terms = json.dumps(
            {"document": answer.content.decode(), "signature": signature}
        )
        if "SSTQ-Study" in answer.headers:
            self.ended.add(name)
        if known is None or known.stored.terms != terms:
            self._keep(known, campaign, terms)

    def _keep(
        self, known: RunningCampaign | None, campaign: Campaign, terms: str
    ) -> None:
        """Store a campaign's document, and in the same transaction a new stage, to which its study's name leads now."""
        stage = campaign.stage
        study = None if stage is None else stage.study

        def work(connection: sa.Connection) -> None:
            name = campaign.link_name
            mechanism = campaign.mechanism
            if known is None:
                new_campaign(connection, name, mechanism, terms, study=study)
            elif not changed(
                connection, known.stored, terms=terms, mechanism=mechanism.to_json()
            ):
                return
            if stage is not None and (
                known is None or known.campaign.name != campaign.name
            ):
                new_campaign(
                    connection,
                    campaign.name,
                    mechanism,
                    terms,
                    study=study,
                    room=stage.people,
                )

        self.write(work)

    def forbidden_change(self, known: RunningCampaign, document: Document) -> str:
        """What has changed although people relied on it, if anything: the document that was first seen holds."""
        follows = known.campaign.name != document.campaign.name
        lasting = _of_study if follows else _of_campaign
        kept = lasting(known.campaign)
        wanted = lasting(document.campaign)
        if follows:
            if document.campaign.staged.number <= known.campaign.staged.number:
                return "the collector went back to an earlier stage"
            # Who could begin a crowd at any moment would choose who is in it.
            if not self.has_ended(self.entries[known.campaign.name]):
                return "the collector went on before the stage had ended"
            if self.is_almost_over(document.campaign):
                return "the collector gave the stage less than a quarter of its hours"
        for field in sorted({*kept, *wanted}):
            if kept.get(field) != wanted.get(field):
                change = f"{field} from {kept.get(field)} to {wanted.get(field)}"
                return f"the collector changed what people agreed to: {change}"
        # Who sealed for another key could be told apart from the others, and would be a crowd of their own.
        if not follows and known.sealing_keys != document.sealing_keys:
            return "the collector changed its sealing key"
        reopened = (
            not follows
            and self.has_ended(known)
            and document.campaign.status(self.clock.now()) != "closed"
        )
        return "the collector reopened the campaign after its end" if reopened else ""

    def goes_on(self, name: str) -> bool:
        """Whether another stage of a study may come."""
        return name not in self.ended

    def _pin(self, key: str) -> None:
        kept = self.store.setting(_COLLECTOR_KEY, lambda: bytes.fromhex(key)).hex()
        if kept != key:
            raise ValueError(
                f"collector_key must be the one stored before, {kept}, got {key}; pass an empty database to change it"
            )

    def delete(self, entry: RunningCampaign) -> None:
        """Delete a campaign with all envelopes that wait, such as those that its collector does not accept."""
        super().delete(entry)
        self.refused.pop((entry.name, "change"), None)
        self.refused.pop((entry.campaign.name, "batch"), None)

    def closed_for(self, entry: RunningCampaign, time: timedelta) -> bool:
        """Whether a campaign closed at least this long ago."""
        closes = entry.campaign.closes
        return closes is not None and self.clock.now() >= closes + time

    def is_almost_over(self, campaign: Campaign) -> bool:
        """Whether less than a quarter of the hours of a stage is left: few people would be in its crowd."""
        least = timedelta(hours=(campaign.staged.hours or 0.0) / 4)
        return (
            campaign.closes is not None and campaign.closes < self.clock.now() + least
        )

    def has_its_people(self, entry: RunningCampaign) -> bool:
        """Whether this is a stage that as many people sent to as it is for."""
        return entry.is_stage and is_full(
            self.store.rooms([entry.name]).get(entry.name)
        )

    def has_ended(self, entry: RunningCampaign) -> bool:
        """Whether no more envelopes of a campaign can arrive, not even late ones."""
        if self.has_its_people(entry):
            return True
        return (
            self.closed_for(entry, timedelta(seconds=self.settings.closing_seconds))
            and not self.clock.doubtful
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are counted when they are read, as prometheus_client asks for them."""
        yield from super().collect()
        counts = self.store.counts()
        people = {(name,): own.received for name, own in counts.items()}
        yield gauge("sstq_people_waiting", "People waiting for a crowd.", people)
        outgoing = {(name,): count_outgoing(self.store, name) for name in counts}
        meaning = "Mixed envelopes not acknowledged yet."
        yield gauge("sstq_envelopes_outgoing", meaning, outgoing)
        alarms = dict.fromkeys(self.refused, 1.0)
        meaning = "What the collector tried to change, or did not accept."
        yield gauge("sstq_alarms", meaning, alarms, "test")


def _of_campaign(campaign: Campaign) -> dict[str, Any]:
    """What of a campaign never changes; of a stage that is its times as well."""
    times = {} if campaign.stage is None else campaign.terms()
    return lasting_terms(campaign) | times


def _of_study(campaign: Campaign) -> dict[str, Any]:
    """What all stages of a study have in common for good; without hours that is their end as well."""
    terms = lasting_terms(campaign)
    stage = campaign.staged
    identity = {
        "study": stage.study,
        "identifier": campaign.question.study,
        "hours": stage.hours,
        "closes": campaign.closes if stage.hours is None else None,
    }
    return {name: terms.get(name) for name in ("senders", "shuffling")} | identity


router = administrator_router()


@router.get("/v1/campaigns/{name}/status")
def status(
    shuffler: Annotated[Shuffler, Depends(here)], entry: Named
) -> ShufflerStatus:
    """Count the people whose envelopes are waiting."""
    campaign = entry.campaign
    counts = shuffler.store.counts()[entry.stored.payer]
    return ShufflerStatus(
        name=entry.name,
        status=campaign.status(shuffler.clock.now()),
        threshold=campaign.shuffling.threshold if campaign.shuffling else 0,
        waiting=waiting(shuffler.store, campaign.name),
        outgoing=count_outgoing(shuffler.store, campaign.name),
        tokens_issued=counts.issued,
        tokens_unspent=counts.unspent,
        refused_change=shuffler.refused.get((entry.name, "change")),
        refused_batch=shuffler.refused.get((campaign.name, "batch")),
        clock_doubtful=shuffler.clock.doubtful,
    )


def create_shuffler_app(settings: ShufflerSettings) -> FastAPI:
    """Create the ASGI application of a shuffler; ValueError if its database cannot be used."""
    app = new_app(Shuffler(settings), _DESCRIPTION, _UPLOAD, Work)
    app.include_router(router)
    return app
