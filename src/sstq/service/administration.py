"""The administrator's routes: create, change, close and delete campaigns, and make single-use tokens."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sstq.files.strict_json import read_json
from sstq.service.campaigns import Campaign
from sstq.service.collector import TOKEN_NAMES, Collector, Entry
from sstq.service.openapi import MOST_TOKENS, TOKEN, answers, json_body, schema
from sstq.service.security import Problem, RequestBody, bearer_token, content_type, new_token, token_hash

__all__ = ["administration_routes"]

# A campaign of 2^21 labels is larger; nobody reads that many.
_LARGEST_JSON = 1 << 22


def administration_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()

    def allow(request: Request) -> None:
        collector.require_administrator(bearer_token(request.headers.get("authorization")))

    @router.post(
        "/v1/campaigns",
        status_code=201,
        summary="Create a campaign; its shared tokens are in the answer and nowhere else",
        responses=answers(
            {201: {"description": "It is there.", "content": schema("Tokens")}}, 400, 401, 403, 408, 409, 413, 415, 422
        ),
        openapi_extra=TOKEN | json_body("NewCampaign"),
    )
    async def create(request: Request) -> Response:
        allow(request)
        data = await _json(request)
        try:
            campaign = Campaign.from_dict(data)
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
            {200: {"description": "It is changed; new shared tokens.", "content": schema("Tokens")}},
            *(400, 401, 403, 404, 408, 409, 413, 415, 422),
        ),
        openapi_extra=TOKEN | json_body("Change"),
    )
    async def change(name: str, request: Request) -> Response:
        allow(request)
        entry = await collector.entry(name)
        tokens = await asyncio.to_thread(_change, collector, entry, await _json(request))
        return JSONResponse({"name": name} | tokens)

    @router.delete(
        "/v1/campaigns/{name}",
        status_code=204,
        response_class=Response,
        summary="Delete a campaign with everything that was collected for it",
        responses=answers({204: {"description": "It is gone."}}, 401, 403, 404),
        openapi_extra=TOKEN,
    )
    async def delete(name: str, request: Request) -> Response:
        allow(request)
        await collector.entry(name)
        await asyncio.to_thread(collector.store.delete, name)
        collector.forget(name)
        return Response(status_code=204)

    @router.post(
        "/v1/campaigns/{name}/tokens",
        status_code=201,
        summary="Make single-use tokens; only their hashes are stored",
        responses=answers(
            {201: {"description": "The tokens.", "content": schema("SingleUseTokens")}},
            *(400, 401, 403, 404, 408, 409, 413, 415, 422),
        ),
        openapi_extra=TOKEN | json_body("TokenRequest"),
    )
    async def make_tokens(name: str, request: Request) -> Response:
        allow(request)
        entry = await collector.entry(name)
        data = await _json(request)
        count = data.get("count") if isinstance(data, dict) and set(data) == {"count"} else None
        if type(count) is not int or not 1 <= count <= MOST_TOKENS:
            raise Problem(422, f'The body must be {{"count": N}} with 1 ≤ N ≤ {MOST_TOKENS}.')
        if entry.campaign.senders != "single-use":
            raise Problem(409, "The campaign takes no single-use tokens; create it with senders = single-use.")
        tokens = [new_token() for _ in range(count)]
        await asyncio.to_thread(collector.store.issue, name, [token_hash(token) for token in tokens])
        return JSONResponse({"tokens": tokens}, 201)

    return router


def _change(collector: Collector, entry: Entry, data: Any) -> dict[str, str]:
    if not isinstance(data, dict) or not data:
        raise Problem(422, "The body must be a JSON object with what is to change.")
    terms = dict(data)
    close, renewed = terms.pop("closed", None), terms.pop("renew", [])
    if close is not None and close is not True:
        raise Problem(422, "closed must be true: a campaign that is closed stays closed.")
    if not isinstance(renewed, list) or not all(name in TOKEN_NAMES for name in renewed):
        raise Problem(422, f"renew must be a list of {' and '.join(TOKEN_NAMES)}.")
    ended = entry.stored.closed or entry.campaign.status(datetime.now(UTC)) == "closed"
    if ended and {"opens", "closes"} & set(terms):
        # Its keys may be forgotten by now: retries would count twice.
        raise Problem(409, "The campaign is closed for good: its times cannot change.")
    for fixed in ("name", "mechanism"):
        if fixed in terms:
            raise Problem(422, f"The {fixed} of a campaign cannot change; create another campaign.")
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


async def _json(request: Request) -> Any:
    """The JSON of a request, read within bounds of size and time."""
    body = RequestBody.of(request)
    # Browsers send other types across origins without asking; tokens would stop them anyway.
    if content_type(request.headers) != "application/json":
        raise Problem(415, "The Content-Type must be application/json.")
    raw = await body.read(_LARGEST_JSON, Problem(413, f"The body may have {_LARGEST_JSON} bytes."))
    try:
        return read_json(raw, booleans=True)
    except ValueError as error:
        raise Problem(400, _sentence(error)) from error


def _sentence(error: ValueError) -> str:
    return f"{str(error).rstrip('.')}."
