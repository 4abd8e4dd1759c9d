"""The routes that change campaigns: those of the administrator, and the one by which a shuffler forwards batches."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, get_args

import rfc8785
from fastapi import APIRouter, Body, Header, Request

from sstq.checks import check_option
from sstq.client.campaigns import Campaign, Readers
from sstq.service import studies
from sstq.service.batches import LARGEST_PART, Manifest, read_manifest, receive
from sstq.service.collector import ChangedMeanwhile, Collector
from sstq.service.common_routes import (
    BINARY_BODY,
    Named,
    TheCollector,
    administrator_router,
    refuse_stage,
)
from sstq.service.models import CHANGE, NEW_CAMPAIGN
from sstq.service.node import RunningCampaign, lasting_terms
from sstq.service.security import BODY, Problem, check_binary
from sstq.service.terms import OWN_ASKED, OwnTerms, take_end, take_renewed, taken
from sstq.studies import Study

router = administrator_router()
forwarding = APIRouter()
"""The route by which a shuffler forwards batches; its manifest is signed."""


@router.post("/v1/campaigns", status_code=201, openapi_extra=NEW_CAMPAIGN)
def create(
    collector: TheCollector, terms: Annotated[dict[str, Any], Body()]
) -> dict[str, str]:
    """Create a campaign or a study and return its shared tokens, which are not stored."""
    with _refusing(422):
        own = OwnTerms(**taken(terms, OWN_ASKED))
        if "study" in terms:
            return _create_study(collector, terms, own)
        if "stage" in terms:
            raise ValueError("stage: only a study has stages; pass study")
        campaign = Campaign.from_dict(terms)
    _refuse_batches(campaign)
    with _refusing(409):
        return {"name": campaign.name} | collector.create(campaign, own)


@router.patch("/v1/campaigns/{name}", openapi_extra=CHANGE)
def change(
    collector: TheCollector, entry: Named, terms: Annotated[dict[str, Any], Body()]
) -> dict[str, str]:
    """Change a campaign's terms, renew its shared tokens, or close it for good."""
    if not terms:
        raise Problem(422, "The body must be a JSON object with the fields to change.")
    return change_terms(collector, entry, terms)


@router.post("/v1/campaigns/{name}/senders", status_code=201)
def senders(
    collector: TheCollector,
    entry: Named,
    people: Annotated[int, Body(embed=True, ge=1, le=10**9, strict=True)],
) -> dict[str, Any]:
    """Create a token for batches, with a quota of people; only its hash is stored."""
    if entry.campaign.shuffling is not None or entry.campaign.senders == "single-use":
        raise Problem(
            409,
            "Each upload to this campaign is of one person: make single-use tokens (count), not a token for "
            "batches (people).",
        )
    return {"send_token": collector.add_sender(entry, people), "people": people}


@forwarding.post("/v1/campaigns/{name}/batches", openapi_extra=BINARY_BODY)
async def forward(
    collector: TheCollector,
    entry: Named,
    request: Request,
    manifest_text: Annotated[str, Header(alias="SSTQ-Batch")],
    signature: Annotated[str, Header(alias="SSTQ-Signature")],
) -> dict[str, int]:
    """Forward a part of a batch of envelopes, as the campaign's shuffler; repeating a part changes nothing.

    SSTQ-Batch is the manifest of this part in canonical JSON, SSTQ-Signature the shuffler's Ed25519 signature of
    `sstq-batch-v2`, a zero byte and the manifest.
    """
    manifest = _manifest(entry, request, manifest_text, signature)
    if entry.stored.closed:
        raise Problem(
            410,
            "The campaign is closed, and its grace period for late batches is over.",
        )
    size = manifest.count * entry.campaign.envelope_bytes
    if size > LARGEST_PART:
        raise Problem(
            413,
            f"A part of a batch must have at most {LARGEST_PART} bytes, got {size}.",
        )
    body: bytes = await request.scope[BODY].read(size)
    if len(body) != size:
        raise Problem(422, f"{manifest.count} envelopes take {size} bytes.")
    if (await asyncio.to_thread(hashlib.sha256, body)).hexdigest() != manifest.sha256:
        raise Problem(422, "The SHA-256 of the body does not match the manifest.")
    if not await asyncio.to_thread(receive, collector.store, manifest, body):
        raise Problem(409, "A different batch with this name was stored before.")
    return {"count": manifest.count}


def _create_study(
    collector: Collector, terms: dict[str, Any], own: OwnTerms
) -> dict[str, str]:
    study = Study.from_json(rfc8785.dumps(terms.pop("study")).decode())
    name = terms.pop("name", "")
    if name in collector.entries:
        raise Problem(409, f"name must be new, got {name!r}, which already exists.")
    return {"name": name} | studies.create(collector, name, study, terms, own)


def change_terms(
    collector: Collector, entry: RunningCampaign, terms: dict[str, Any]
) -> dict[str, str]:
    """Change terms of a campaign; what another administrator changes at the same time stays."""
    while True:
        try:
            return _change(collector, entry, dict(terms))
        except ChangedMeanwhile:
            entry = collector.known(entry.name)


def _change(
    collector: Collector, entry: RunningCampaign, terms: dict[str, Any]
) -> dict[str, str]:
    """Store the changed terms of a campaign; returns its name and new tokens. ChangedMeanwhile as it says."""
    refuse_stage(entry)
    with _refusing(422):
        ends = take_end(terms)
        renewed = take_renewed(terms)
        own = replace(entry.own, **taken(terms, OWN_ASKED))
    if entry.is_study:
        campaign = _changed_study(entry, terms)
        if ends and not entry.stored.closed:
            if not studies.end(collector, entry, "ended by its administrator"):
                raise ChangedMeanwhile
            entry = collector.known(entry.name)
    else:
        campaign, ends = _changed_campaign(collector, entry, terms, ends)
    columns = {"closed": True} if ends else {}
    return {"name": entry.name} | collector.save(
        campaign, own, entry, renewed, **columns
    )


def _changed_campaign(
    collector: Collector, entry: RunningCampaign, terms: dict[str, Any], ends: bool
) -> tuple[Campaign, bool]:
    """Return a campaign with changed terms, and whether it closes at once for good."""
    for fixed in ("name", "mechanism", "shuffling", "stage"):
        if fixed in terms:
            raise Problem(422, f"{fixed}: cannot change; create another campaign.")
    now = collector.clock.now()
    ended = entry.is_closed(now)
    if ended and {"opens", "closes"} & set(terms):
        # Its keys may have been deleted by now, so a retry would count twice.
        raise Problem(
            409, "The campaign is closed for good: opens and closes cannot change."
        )
    if ends and entry.campaign.shuffling is not None and not ended:
        # The shuffler learns this from the document and then forwards what it holds.
        opens = entry.campaign.opens
        closes = now if opens is None else max(now, opens + timedelta(seconds=1))
        terms["closes"] = f"{closes:%Y-%m-%dT%H:%M:%SZ}"
        ends = False
    with _refusing(422):
        campaign = Campaign.from_dict(entry.campaign.to_dict() | terms)
    if campaign.shuffling is not None and lasting_terms(campaign) != lasting_terms(
        entry.campaign
    ):
        raise Problem(
            409,
            "People agreed to the terms of a shuffled campaign: only its times and readers can change.",
        )
    if {"most_messages", "senders"} & set(terms):
        _refuse_batches(campaign)
    return campaign, ends


def _changed_study(entry: RunningCampaign, terms: dict[str, Any]) -> Campaign:
    """Return the newest stage of a study with changed readers; people agreed to all the rest."""
    with _refusing(422):
        readers: Any = check_option(
            "readers", terms.pop("readers", entry.campaign.readers), get_args(Readers)
        )
    if terms:
        raise Problem(
            409,
            f"{next(iter(terms))}: the terms of a study never change; create another one.",
        )
    return replace(entry.campaign, readers=readers)


@contextmanager
def _refusing(status: int) -> Iterator[None]:
    """Answer a ValueError with its sentence and this status."""
    try:
        yield
    except ValueError as error:
        raise Problem(status, f"{str(error).rstrip('.')}.") from error


def _refuse_batches(campaign: Campaign) -> None:
    from_strangers = campaign.senders == "everybody" and campaign.shuffling is None
    if from_strangers and campaign.most_messages > campaign.slots:
        raise Problem(
            422,
            f"most_messages must be {campaign.slots} with senders='everybody', got {campaign.most_messages}: an "
            "anonymous upload carries one person's messages. Batches need a sender's token.",
        )


def _manifest(
    entry: RunningCampaign, request: Request, text: str, signature: str
) -> Manifest:
    """Return the manifest of a request; raise a Problem unless it fits the campaign."""
    campaign = entry.campaign
    if campaign.shuffling is None:
        raise Problem(409, "The campaign is not shuffled: send messages to /messages.")
    check_binary(request.scope[BODY].headers)
    manifest = read_manifest(text, signature, bytes.fromhex(campaign.shuffling.key))
    if (manifest.campaign, manifest.digest) != (campaign.name, campaign.digest):
        raise Problem(409, "The batch belongs to another campaign or mechanism.")
    if manifest.crowd not in entry.crowds:
        raise Problem(
            409,
            "The envelopes are of people who agreed to other terms, or sealed for an unknown key.",
        )
    if manifest.slot >= campaign.slots:
        raise Problem(
            409, f"The campaign has {campaign.slots} slots, got slot {manifest.slot}."
        )
    if (
        manifest.size < campaign.shuffling.threshold
        and campaign.shuffling.below_threshold == "drop"
    ):
        raise Problem(
            409,
            f"A batch of this campaign must have at least {campaign.shuffling.threshold} envelopes.",
        )
    return manifest
