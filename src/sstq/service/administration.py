"""The administrator's HTTP routes: create, change, close and delete campaigns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.service.collector import SEALING_KEY, TOKEN_NAMES, Collector
from sstq.service.common_routes import read_body, token_of
from sstq.service.node import Entry
from sstq.service.openapi import TOKEN, answers, json_body, schema
from sstq.service.security import Problem

__all__ = ["administration_routes"]


def administration_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()

    def allow(request: Request) -> None:
        collector.require_administrator(token_of(request))

    @router.post(
        "/v1/campaigns",
        status_code=201,
        summary="Create a campaign and return its shared tokens, which are not stored",
        responses=answers(
            {201: {"description": "The campaign was created.", "content": schema("Tokens")}},
            400,
            401,
            403,
            408,
            409,
            413,
            415,
            422,
        ),
        openapi_extra=TOKEN | json_body("NewCampaign"),
    )
    async def create(request: Request) -> Response:
        allow(request)
        data = await read_body(request)
        try:
            # In a thread: to make a mechanism may take seconds.
            campaign = await asyncio.to_thread(Campaign.from_dict, data)
        except ValueError as error:
            raise Problem(422, _sentence(error)) from error
        try:
            tokens = await asyncio.to_thread(collector.create, campaign)
        except ValueError as error:
            raise Problem(409, _sentence(error)) from error
        return JSONResponse({"name": campaign.name} | tokens, 201)

    @router.patch(
        "/v1/campaigns/{name}",
        summary="Change a campaign's terms, renew its shared tokens, or close it for good",
        responses=answers(
            {200: {"description": "The campaign was changed; the new shared tokens.", "content": schema("Tokens")}},
            *(400, 401, 403, 404, 408, 409, 413, 415, 422),
        ),
        openapi_extra=TOKEN | json_body("Change"),
    )
    async def change(name: str, request: Request) -> Response:
        allow(request)
        entry = await collector.entry(name)
        tokens = await asyncio.to_thread(_change, collector, entry, await read_body(request))
        return JSONResponse({"name": name} | tokens)

    @router.delete(
        "/v1/campaigns/{name}",
        status_code=204,
        response_class=Response,
        summary="Delete a campaign and everything collected for it",
        responses=answers({204: {"description": "The campaign was deleted."}}, 401, 403, 404),
        openapi_extra=TOKEN,
    )
    async def delete(name: str, request: Request) -> Response:
        allow(request)
        await asyncio.to_thread(collector.delete, await collector.entry(name))
        return Response(status_code=204)

    return router


def _change(collector: Collector, entry: Entry, data: Any) -> dict[str, str]:
    if not isinstance(data, dict) or not data:
        raise Problem(422, "The body must be a JSON object with the fields to change.")
    terms = dict(data)
    close, renewed = terms.pop("closed", None), terms.pop("renew", [])
    if close is not None and close is not True:
        raise Problem(422, "closed must be true: a closed campaign cannot be reopened.")
    renewable = (*TOKEN_NAMES, SEALING_KEY)
    if not isinstance(renewed, list) or not all(name in renewable for name in renewed):
        raise Problem(422, f"renew must be a list of {', '.join(renewable)}.")
    if SEALING_KEY in renewed and entry.campaign.shuffling is None:
        raise Problem(409, "The campaign is not shuffled: it has no sealing key.")
    ended = entry.stored.closed or entry.campaign.status(datetime.now(UTC)) == "closed"
    if ended and {"opens", "closes"} & set(terms):
        # Its keys may have been deleted by now, so a retry would count twice.
        raise Problem(409, "The campaign is closed for good: opens and closes cannot change.")
    for fixed in ("name", "mechanism", "shuffling"):
        if fixed in terms:
            raise Problem(422, f"The {fixed} of a campaign cannot change; create another campaign.")
    if close and entry.campaign.shuffling is not None and not ended:
        # The shuffler learns this from the document and then forwards what it holds.
        now, opens = datetime.now(UTC), entry.campaign.opens
        ends = now if opens is None else max(now, opens + timedelta(seconds=1))
        terms["closes"], close = f"{ends:%Y-%m-%dT%H:%M:%SZ}", None
    whole = entry.campaign.to_dict() | terms
    try:
        campaign = Campaign.from_dict(whole)
    except ValueError as error:
        raise Problem(422, _sentence(error)) from error
    tokens = collector.change(entry, campaign, tuple(renewed)) if terms or renewed else {}
    if close:
        collector.store.end(campaign.name)
        collector.forget(campaign.name)
    return tokens


def _sentence(error: ValueError) -> str:
    return f"{str(error).rstrip('.')}."
