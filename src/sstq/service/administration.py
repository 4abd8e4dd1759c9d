"""The routes of the administrator: campaigns are created, changed, closed and deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.service.collector import DEFAULT_PEOPLE, Collector, is_open_to_batches, policy_of
from sstq.service.common_routes import Token
from sstq.service.models import CampaignName, Change, NewCampaign, NewSender, SenderToken, Tokens, answers
from sstq.service.node import Entry
from sstq.service.problems import Problem

__all__ = ["administration_routes"]


def administration_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.post(
        "/v1/campaigns",
        status_code=201,
        summary="Create a campaign and return its shared tokens, which are not stored",
        responses=answers(400, 401, 403, 408, 409, 413),
        response_model=Tokens,
    )
    async def create(wanted: NewCampaign, token: Token) -> Response:
        collector.require_administrator(token)
        # In a thread: to make a mechanism may take seconds.
        return JSONResponse(await asyncio.to_thread(_create, collector, wanted), 201)

    @router.patch(
        "/v1/campaigns/{name}",
        summary="Change a campaign's terms, renew its shared tokens, or close it for good",
        responses=answers(400, 401, 403, 404, 408, 409, 413),
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
        responses=answers(401, 403, 404),
    )
    async def delete(name: CampaignName, token: Token) -> Response:
        collector.require_administrator(token)
        await asyncio.to_thread(collector.delete, await collector.entry(name))
        return Response(status_code=204)

    @router.post(
        "/v1/campaigns/{name}/senders",
        status_code=201,
        summary="Create a token for batches, with a quota of people",
        responses=answers(400, 401, 403, 404, 408, 409, 413),
        response_model=SenderToken,
    )
    async def senders(name: CampaignName, wanted: NewSender, token: Token) -> Response:
        collector.require_administrator(token)
        entry = await collector.entry(name)
        if entry.campaign.shuffling is not None or entry.campaign.senders == "single-use":
            raise Problem(409, "Each upload to this campaign is of one person: there are no batches.")
        made = await asyncio.to_thread(collector.add_sender, entry.campaign, wanted.people)
        return JSONResponse({"send_token": made, "people": wanted.people}, 201)

    return router


def _create(collector: Collector, wanted: NewCampaign) -> dict[str, Any]:
    terms = wanted.model_dump(exclude_unset=True, exclude_none=True)
    people = terms.pop("people", DEFAULT_PEOPLE)
    try:
        policy = policy_of(terms)
        campaign = Campaign.from_dict(terms)
    except ValueError as error:
        raise Problem(422, _sentence(error)) from error
    _refuse_batches(campaign)
    try:
        return {"name": campaign.name} | collector.create(campaign, policy, people)
    except ValueError as error:
        raise Problem(409, _sentence(error)) from error


def _change(collector: Collector, entry: Entry, wanted: Change) -> dict[str, str]:
    terms = wanted.model_dump(exclude_unset=True)
    if not terms:
        raise Problem(422, "The body must be a JSON object with the fields to change.")
    close, renewed = terms.pop("closed", None), terms.pop("renew", [])
    people = terms.pop("people", None) or DEFAULT_PEOPLE
    now = collector.clock.now()
    if "sealing_key" in renewed and entry.campaign.shuffling is None:
        raise Problem(409, "The campaign is not shuffled: it has no sealing key.")
    ended = entry.stored.closed or entry.campaign.status(now) == "closed"
    if ended and {"opens", "closes"} & set(terms):
        # Its keys may have been deleted by now, so a retry would count twice.
        raise Problem(409, "The campaign is closed for good: opens and closes cannot change.")
    if close and entry.campaign.shuffling is not None and not ended:
        # The shuffler learns this from the document and then forwards what it holds.
        opens = entry.campaign.opens
        ends = now if opens is None else max(now, opens + timedelta(seconds=1))
        terms["closes"], close = f"{ends:%Y-%m-%dT%H:%M:%SZ}", None
    policy = vars(entry.policy) | {name: terms.pop(name) for name in vars(entry.policy) if name in terms}
    try:
        campaign = Campaign.from_dict(entry.campaign.to_dict() | terms)
        chosen = policy_of(policy)
    except ValueError as error:
        raise Problem(422, _sentence(error)) from error
    if {"most_messages", "senders"} & set(terms):
        _refuse_batches(campaign)
    tokens = collector.change(entry, campaign, chosen, renewed, people)
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
