"""The routes that only read: documents, estimates, states, health and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sstq.audit import certify
from sstq.mechanisms import Mechanism
from sstq.service import results
from sstq.service.collector import Collector, Entry
from sstq.service.metrics import render
from sstq.service.openapi import DOCUMENT_ANSWER, OPTIONAL_TOKEN, TOKEN, answers, schema
from sstq.service.security import Problem, bearer_token
from sstq.service.uploads import ALLOW_ANY_ORIGIN

__all__ = ["reading_routes", "status_of"]

_CHUNK = 1 << 18
_CSV = "text/csv; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def reading_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()
    saving = asyncio.Semaphore(1)

    @router.get(
        "/health",
        summary="Whether the collector and its database answer",
        responses=answers({200: {"description": "They do.", "content": schema("Health")}}),
    )
    async def health() -> Response:
        await asyncio.to_thread(collector.store.ping)
        return JSONResponse({"status": "ok"})

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus, for the administrator or the token for metrics",
        responses=answers(
            {200: {"description": "The text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            *(401, 403),
        ),
        openapi_extra=TOKEN,
    )
    async def metrics(request: Request) -> Response:
        collector.require_metrics(_token(request))
        return Response(await asyncio.to_thread(_metrics, collector), media_type=_METRICS)

    @router.get(
        "/v1/campaigns",
        summary="List the campaigns whose estimates the token may read; without a token, the public ones",
        responses=answers({200: {"description": "The campaigns by name.", "content": schema("Campaigns")}}, 401, 403),
        openapi_extra=OPTIONAL_TOKEN,
    )
    async def campaigns(request: Request) -> Response:
        token = _token(request)

        def found() -> list[dict[str, Any]]:
            entries = collector.refresh()
            known = collector.is_administrator(token) or any(collector.has_read_token(e, token) for e in entries)
            if token is not None and not known:
                raise Problem(403, "The token is neither the administrator's nor that of a campaign for readers.")
            return [status_of(collector, entry) for entry in entries if collector.may_read(entry, token)]

        return JSONResponse({"campaigns": await asyncio.to_thread(found)})

    @router.get(
        "/v1/campaigns/{name}",
        summary="Fetch a campaign's signed document",
        responses=answers(DOCUMENT_ANSWER, 304, 404),
    )
    async def document(name: str, request: Request) -> Response:
        entry = await collector.entry(name)
        headers = {"ETag": entry.etag, "SSTQ-Signature": entry.signature, "Cache-Control": "no-cache"}
        if entry.from_anywhere:
            headers |= ALLOW_ANY_ORIGIN
        if _matches(request, entry.etag):
            return Response(status_code=304, headers=headers)
        return Response(entry.document, headers=headers, media_type="application/json")

    @router.get(
        "/v1/campaigns/{name}/status",
        summary="Count a campaign's messages and tokens",
        responses=answers({200: {"description": "The counts.", "content": schema("Status")}}, 401, 403, 404),
        openapi_extra=OPTIONAL_TOKEN,
    )
    async def status(name: str, request: Request) -> Response:
        entry = await _readable(collector, name, request)
        return JSONResponse(await asyncio.to_thread(status_of, collector, entry))

    @router.get(
        "/v1/campaigns/{name}/estimate",
        summary="Read the newest estimate, as JSON or CSV",
        responses=answers(
            {
                200: {
                    "description": "The estimate with the number of messages that it covers.",
                    "content": schema("Estimate") | {"text/csv": {"schema": {"type": "string"}}},
                }
            },
            *(401, 403, 404, 422),
        ),
        openapi_extra=OPTIONAL_TOKEN,
    )
    async def estimate(
        name: str,
        request: Request,
        form: Annotated[
            Literal["json", "csv"] | None, Query(alias="format", description="Instead of the header Accept.")
        ] = None,
    ) -> Response:
        entry = await _readable(collector, name, request)
        as_csv = form == "csv" or (form is None and "text/csv" in request.headers.get("accept", ""))
        headers = {"Vary": "Accept", "Cache-Control": "no-cache"}
        if entry.campaign.readers == "public":
            headers |= ALLOW_ANY_ORIGIN
        if as_csv:
            headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        content = await asyncio.to_thread(_estimate, collector, entry, as_csv)
        return Response(content, headers=headers, media_type=_CSV if as_csv else "application/json")

    @router.get(
        "/v1/campaigns/{name}/progress",
        summary="Read how the error shrank, what is predicted for later, and arrivals per hour",
        responses=answers({200: {"description": "The progress.", "content": schema("Progress")}}, 401, 403, 404),
        openapi_extra=OPTIONAL_TOKEN,
    )
    async def progress(name: str, request: Request) -> Response:
        entry = await _readable(collector, name, request)
        return JSONResponse(await asyncio.to_thread(results.progress, collector.store, entry.campaign))

    @router.get(
        "/v1/campaigns/{name}/certificate",
        summary="Read the certificate of the mechanism's privacy, which `sstq audit verify` checks",
        responses=answers(
            {200: {"description": "The certificate.", "content": schema("Certificate")}},
            *(404, 409),
        ),
    )
    async def certificate(name: str) -> Response:
        entry = await collector.entry(name)
        return Response(await asyncio.to_thread(_certificate, entry.campaign.mechanism), media_type="application/json")

    @router.get(
        "/v1/campaigns/{name}/state",
        summary="Download the state of all folded messages, which `sstq aggregate` goes on from",
        responses=answers(
            {
                200: {
                    "description": "What Aggregator.save writes.",
                    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                }
            },
            *(401, 403, 404),
        ),
        openapi_extra=TOKEN,
    )
    async def state(name: str, request: Request) -> Response:
        collector.require_administrator(_token(request))
        entry = await collector.entry(name)
        async with saving:  # one file at a time: a state may have gigabytes
            file = await asyncio.to_thread(_saved_state, collector, entry)
        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f'attachment; filename="{name}.npz"',
        }
        return StreamingResponse(_chunks(file), headers=headers, media_type="application/octet-stream")

    return router


def status_of(collector: Collector, entry: Entry) -> dict[str, Any]:
    """A campaign's counts, as JSON values."""
    name = entry.campaign.name
    counts = collector.store.counts(name)
    return {
        "name": name,
        "status": "closed" if entry.stored.closed else entry.campaign.status(datetime.now(UTC)),
        "received": counts.received,
        "folded": counts.folded,
        "covered": results.covered(collector.store, name) or 0,
        "tokens_issued": counts.issued,
        "tokens_unspent": counts.unspent,
    }


def _token(request: Request) -> str | None:
    return bearer_token(request.headers.get("authorization"))


async def _readable(collector: Collector, name: str, request: Request) -> Entry:
    token = _token(request)
    entry = await collector.entry(name)
    collector.require_reader(entry, token)
    return entry


def _matches(request: Request, etag: str) -> bool:
    wanted = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in wanted or wanted == ["*"]


def _estimate(collector: Collector, entry: Entry, as_csv: bool) -> bytes:
    newest = results.latest(collector.store, entry.campaign.name)
    if newest is None:
        described = results.describe(entry.campaign, entry.campaign.mechanism.aggregator())
        newest = results.Result(0, json.dumps(described).encode())
    return results.as_csv(entry.campaign, json.loads(newest.json)).encode() if as_csv else newest.json


@lru_cache(maxsize=256)
def _certificate(mechanism: Mechanism) -> str:
    try:
        return certify(mechanism)
    except ValueError as error:
        raise Problem(409, f"There is no certificate: {error}.") from error


def _saved_state(collector: Collector, entry: Entry) -> IO[bytes]:
    """The state in an open file that has no name any more, so that it is gone however the request ends."""
    with tempfile.TemporaryDirectory(prefix="sstq-") as folder:
        path = Path(folder) / "state.npz"
        collector.store.save_state(entry.campaign.name, path)
        return path.open("rb")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def _metrics(collector: Collector) -> str:
    names = [entry.campaign.name for entry in collector.refresh()]
    counts = {name: collector.store.counts(name) for name in names}

    def of_each(field: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {(("campaign", name),): getattr(count, field) for name, count in counts.items()}

    uploads = sorted(collector.metrics.uploads.items())
    return render(
        [
            (
                "sstq_uploads_total",
                "counter",
                "Uploads that this process answered, by status.",
                {(("campaign", name), ("status", str(status))): value for (name, status), value in uploads},
            ),
            ("sstq_messages_received", "gauge", "Messages that are acknowledged.", of_each("received")),
            ("sstq_messages_folded", "gauge", "Messages that are in the state.", of_each("folded")),
            ("sstq_tokens_unspent", "gauge", "Single-use tokens that are left.", of_each("unspent")),
            ("sstq_inbox_uploads", "gauge", "Uploads that wait to be written.", {(): len(collector.inbox)}),
            (
                "sstq_rounds_total",
                "counter",
                "Rounds of folding by this process.",
                {(("result", result),): value for result, value in sorted(collector.metrics.folds.items())},
            ),
        ]
    )
