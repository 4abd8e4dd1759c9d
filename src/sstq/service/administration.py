"""The routes that change campaigns: those of the administrator, and the one by which a shuffler forwards batches."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.service.batches import LARGEST_PART, BatchAnswer, Manifest, read_manifest, receive
from sstq.service.common_routes import BINARY_BODY, Token
from sstq.service.models import CampaignName, Change, NewCampaign, NewSender, Receipt, SenderToken, Tokens
from sstq.service.node import Collector, Entry, is_open_to_batches, take_own
from sstq.service.security import Problem, RequestBody, unknown_campaign

__all__ = ["administration_routes"]

_BODY_TYPE = "application/octet-stream"


def administration_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.post(
        "/v1/campaigns",
        status_code=201,
        summary="Create a campaign and return its shared tokens, which are not stored",
        response_model=Tokens,
    )
    async def create(wanted: NewCampaign, token: Token) -> Response:
        collector.require_administrator(token)
        # In a thread: to make a mechanism may take seconds.
        return JSONResponse(await asyncio.to_thread(_create, collector, wanted), 201)

    @router.patch(
        "/v1/campaigns/{name}",
        summary="Change a campaign's terms, renew its shared tokens, or close it for good",
        response_model=Tokens,
    )
    async def change(name: CampaignName, wanted: Change, token: Token) -> Response:
        collector.require_administrator(token)
        entry = await collector.entry(name)
        tokens = await asyncio.to_thread(_change, collector, entry, wanted)
        return JSONResponse({"name": name} | tokens)

    @router.delete(
        "/v1/campaigns/{name}",
        status_code=204,
        response_class=Response,
        summary="Delete a campaign and everything collected for it",
    )
    async def delete(name: CampaignName, token: Token) -> Response:
        collector.require_administrator(token)
        await asyncio.to_thread(collector.delete, await collector.entry(name))
        return Response(status_code=204)

    @router.post(
        "/v1/campaigns/{name}/senders",
        status_code=201,
        summary="Create a token for batches, with a quota of people",
        response_model=SenderToken,
    )
    async def senders(name: CampaignName, wanted: NewSender, token: Token) -> Response:
        collector.require_administrator(token)
        entry = await collector.entry(name)
        if entry.campaign.shuffling is not None or entry.campaign.senders == "single-use":
            raise Problem(409, "Each upload to this campaign is of one person: there are no batches.")
        made = await asyncio.to_thread(collector.add_sender, entry.campaign, wanted.people)
        return JSONResponse({"send_token": made, "people": wanted.people}, 201)

    @router.post(
        "/v1/campaigns/{name}/batches",
        summary="Forward a part of a batch of envelopes, as the campaign's shuffler; repeating a part changes nothing",
        response_model=Receipt,
        openapi_extra=BINARY_BODY,
    )
    async def forward(
        name: CampaignName,
        request: Request,
        manifest_text: Annotated[
            str,
            Header(
                alias="SSTQ-Batch",
                description="The manifest of this part in canonical JSON; see “Shuffling” in the documentation.",
            ),
        ],
        signature: Annotated[
            str,
            Header(
                alias="SSTQ-Signature",
                description="The shuffler's Ed25519 signature of `sstq-batch-v2`, a zero byte and the manifest.",
            ),
        ],
    ) -> Response:
        entry = await collector.entry(name)
        manifest = _manifest(entry, request, manifest_text, signature)
        if not collector.takes_batches(entry):
            raise Problem(410, "The campaign is closed, and its grace period for late batches is over.")
        size = manifest.count * entry.campaign.envelope_bytes
        if size > LARGEST_PART:
            raise Problem(413, f"A part of a batch must have at most {LARGEST_PART} bytes, got {size}.")
        body = await RequestBody.of(request).read(size)
        if len(body) != size:
            raise Problem(422, f"{manifest.count} envelopes take {size} bytes.")
        if not await asyncio.to_thread(manifest.is_of, body):
            raise Problem(422, "The SHA-256 of the body does not match the manifest.")
        answer = await asyncio.to_thread(receive, collector.store, manifest, body)
        if answer is BatchAnswer.UNKNOWN:
            collector.forget(name)
            raise unknown_campaign()
        if answer is BatchAnswer.CONFLICT:
            raise Problem(409, "A different batch with this name was stored before.")
        return JSONResponse({"count": manifest.count})

    return router


def _create(collector: Collector, wanted: NewCampaign) -> dict[str, Any]:
    terms = wanted.model_dump(exclude_unset=True, exclude_none=True)
    people = terms.pop("people", 0)
    try:
        own = take_own(terms)
        campaign = Campaign.from_dict(terms)
    except ValueError as error:
        raise Problem(422, _sentence(error)) from error
    _refuse_batches(campaign)
    try:
        return {"name": campaign.name} | collector.create(campaign, own, people)
    except ValueError as error:
        raise Problem(409, _sentence(error)) from error


def _change(collector: Collector, entry: Entry, wanted: Change) -> dict[str, str]:
    terms = wanted.model_dump(exclude_unset=True)
    if not terms:
        raise Problem(422, "The body must be a JSON object with the fields to change.")
    close, renewed = terms.pop("closed", None), terms.pop("renew", [])
    people = terms.pop("people", None) or 0
    now = collector.clock.now()
    if "sealing_key" in renewed and entry.campaign.shuffling is None:
        raise Problem(409, "The campaign is not shuffled: it has no sealing key.")
    ended = entry.is_closed(now)
    if ended and {"opens", "closes"} & set(terms):
        # Its keys may have been deleted by now, so a retry would count twice.
        raise Problem(409, "The campaign is closed for good: opens and closes cannot change.")
    if close and entry.campaign.shuffling is not None and not ended:
        # The shuffler learns this from the document and then forwards what it holds.
        opens = entry.campaign.opens
        ends = now if opens is None else max(now, opens + timedelta(seconds=1))
        terms["closes"], close = f"{ends:%Y-%m-%dT%H:%M:%SZ}", None
    try:
        own = take_own(terms)
        campaign = Campaign.from_dict(entry.campaign.to_dict() | terms)
    except ValueError as error:
        raise Problem(422, _sentence(error)) from error
    if {"most_messages", "senders"} & set(terms):
        _refuse_batches(campaign)
    tokens = collector.change(entry, campaign, own, renewed, people)
    if close:
        collector.store.end(campaign.name)
        collector.forget(campaign.name)
    return tokens


def _refuse_batches(campaign: Campaign) -> None:
    if is_open_to_batches(campaign):
        raise Problem(
            422,
            f"most_messages must be {campaign.slots} with senders='everybody', got {campaign.most_messages}: an "
            "anonymous upload carries one person's messages. Batches need a sender's token.",
        )


def _sentence(error: ValueError) -> str:
    return f"{str(error).rstrip('.')}."


def _manifest(entry: Entry, request: Request, text: str, signature: str) -> Manifest:
    """Return the manifest of a request; raise a Problem unless it fits the campaign."""
    campaign = entry.campaign
    if campaign.shuffling is None:
        raise Problem(409, "The campaign is not shuffled: send messages to /messages.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _BODY_TYPE:
        raise Problem(415, f"The Content-Type must be {_BODY_TYPE}.")
    try:
        manifest = read_manifest(text, signature, bytes.fromhex(campaign.shuffling.key))
    except PermissionError as error:
        raise Problem(403, f"{str(error).capitalize()}.") from error
    except ValueError as error:
        raise Problem(400, f"The header SSTQ-Batch cannot be read: {error}.") from error
    if (manifest.campaign, manifest.digest) != (campaign.name, campaign.digest):
        raise Problem(409, "The batch belongs to another campaign or mechanism.")
    if manifest.crowd not in entry.crowds:
        raise Problem(409, "The envelopes are of people who agreed to other terms, or sealed for an unknown key.")
    if manifest.slot >= campaign.slots:
        raise Problem(409, f"The campaign has {campaign.slots} slots, got slot {manifest.slot}.")
    if manifest.size < campaign.shuffling.threshold and campaign.shuffling.below_threshold == "drop":
        raise Problem(409, f"A batch of this campaign must have at least {campaign.shuffling.threshold} envelopes.")
    return manifest
