"""The routes that a collector and a shuffler both have: health, metrics, the key, documents and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import MOST_TOKENS
from sstq.files.strict_json import read_json
from sstq.service.node import Entry, Node
from sstq.service.openapi import DOCUMENT_ANSWER, TOKEN, answers, json_body, schema
from sstq.service.security import Problem, RequestBody, bearer_token, content_type, new_token, token_hash
from sstq.service.uploads import ALLOW_ANY_ORIGIN

__all__ = ["common_routes", "read_body", "token_of"]

# A campaign with 2^21 labels is larger, but nobody reads that many.
_LARGEST_JSON = 1 << 22
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def common_routes(
    node: Node, metrics: Callable[[], str], signatures: Callable[[Entry], Mapping[str, str]]
) -> APIRouter:
    """Create the routes.

    Args:
        node: the collector or shuffler.
        metrics: returns the metrics as text; may block.
        signatures: returns a document's signatures as headers.
    """
    router = APIRouter()

    @router.head("/health", include_in_schema=False)  # some balancers ask like this
    @router.get(
        "/health",
        summary="Check that the service and its database respond",
        responses=answers(
            {200: {"description": "They do; uploads wait while it starts.", "content": schema("Health")}}
        ),
    )
    async def health() -> Response:
        await asyncio.to_thread(node.store.ping)
        return JSONResponse({"status": "ok" if node.ready.is_set() else "starting"})

    @router.get(
        "/metrics",
        summary="Read the metrics for Prometheus, with the administrator's or the metrics token",
        responses=answers(
            {
                200: {
                    "description": "The metrics in Prometheus's text format.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
            *(401, 403),
        ),
        openapi_extra=TOKEN,
    )
    async def read_metrics(request: Request) -> Response:
        node.require_metrics(token_of(request))
        return Response(await asyncio.to_thread(metrics), media_type=_METRICS)

    @router.get(
        "/v1/key",
        summary="Read the public keys of this service; clients pin the one that signs campaigns",
        responses=answers({200: {"description": "The key.", "content": schema("Key")}}),
    )
    async def key() -> Response:
        return JSONResponse(node.public_keys)

    @router.get(
        "/v1/campaigns/{name}",
        summary="Fetch a campaign's signed document",
        responses=answers(DOCUMENT_ANSWER, 304, 404),
    )
    async def document(name: str, request: Request) -> Response:
        entry = await node.entry(name)
        headers = {"ETag": entry.etag, "Cache-Control": "no-cache", **signatures(entry)}
        if entry.from_anywhere:
            headers |= ALLOW_ANY_ORIGIN
        if _matches(request, entry.etag):
            return Response(status_code=304, headers=headers)
        return Response(entry.document, headers=headers, media_type="application/json")

    @router.post(
        "/v1/campaigns/{name}/tokens",
        status_code=201,
        summary="Create single-use tokens, of which only the hashes are stored",
        responses=answers(
            {201: {"description": "The tokens.", "content": schema("SingleUseTokens")}},
            *(400, 401, 403, 404, 408, 409, 413, 415, 422),
        ),
        openapi_extra=TOKEN | json_body("TokenRequest"),
    )
    async def make_tokens(name: str, request: Request) -> Response:
        node.require_administrator(token_of(request))
        entry = await node.entry(name)
        data = await read_body(request)
        count = data.get("count") if isinstance(data, dict) and set(data) == {"count"} else None
        if type(count) is not int or not 1 <= count <= MOST_TOKENS:
            raise Problem(422, f'The body must be {{"count": N}} with 1 ≤ N ≤ {MOST_TOKENS}.')
        if entry.campaign.shuffling is not None and node.role != "shuffler":
            raise Problem(409, f"Envelopes go to the shuffler: create tokens at {entry.campaign.shuffling.url}.")
        if entry.campaign.senders != "single-use":
            raise Problem(409, "The campaign does not use single-use tokens; create one with --senders single-use.")
        tokens = [new_token() for _ in range(count)]
        await asyncio.to_thread(node.store.issue, name, [token_hash(token) for token in tokens])
        return JSONResponse({"tokens": tokens}, 201)

    return router


def token_of(request: Request) -> str | None:
    """The token that came with a request, if any."""
    return bearer_token(request.headers.get("authorization"))


async def read_body(request: Request) -> Any:
    """Read the JSON body of a request within limits of size and time."""
    body = RequestBody.of(request)
    # Browsers send other types across origins without a preflight; the token would stop them anyway.
    if content_type(request.headers) != "application/json":
        raise Problem(415, "The Content-Type must be application/json.")
    raw = await body.read(_LARGEST_JSON)
    if len(raw) > _LARGEST_JSON:
        raise Problem(413, f"The body must have at most {_LARGEST_JSON} bytes.")
    try:
        return read_json(raw, booleans=True)
    except ValueError as error:
        raise Problem(400, f"{str(error).rstrip('.')}.") from error


def _matches(request: Request, etag: str) -> bool:
    wanted = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in wanted or wanted == ["*"]
