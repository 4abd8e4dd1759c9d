"""The collector's read-only routes: estimates, states and progress."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sstq.audit import certify
from sstq.mechanisms import Mechanism
from sstq.service import results
from sstq.service.batches import count_batches
from sstq.service.claims import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.common_routes import token_of
from sstq.service.metrics import render
from sstq.service.node import Entry
from sstq.service.openapi import OPTIONAL_TOKEN, TOKEN, answers, schema
from sstq.service.security import Problem
from sstq.service.store import UnknownCampaign
from sstq.service.uploads import ALLOW_ANY_ORIGIN

__all__ = ["collector_metrics", "reading_routes", "status_of"]

_CHUNK = 1 << 18
_CSV = "text/csv; charset=utf-8"


def reading_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()
    saving = asyncio.Semaphore(1)

    @router.get(
        "/v1/campaigns",
        summary="List the campaigns whose estimates the token may read; without a token, the public ones",
        responses=answers({200: {"description": "The campaigns by name.", "content": schema("Campaigns")}}, 401, 403),
        openapi_extra=OPTIONAL_TOKEN,
    )
    async def campaigns(request: Request) -> Response:
        token = token_of(request)

        def found() -> list[dict[str, Any]]:
            entries = collector.refresh()
            known = collector.is_administrator(token) or any(collector.has_read_token(e, token) for e in entries)
            if token is not None and not known:
                raise Problem(403, "The token is neither the administrator's token nor a campaign's reader token.")
            return _statuses(collector, [entry for entry in entries if collector.may_read(entry, token)])

        return JSONResponse({"campaigns": await asyncio.to_thread(found)})

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
                    "description": "The estimate with the number of messages it covers.",
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
            Literal["json", "csv"] | None, Query(alias="format", description="The format; overrides the Accept header.")
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
        summary="Read the error so far, its prediction, and the arrivals per hour",
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
        summary="Download the state of all folded messages, which `sstq aggregate` can continue from",
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
        collector.require_administrator(token_of(request))
        entry = await collector.entry(name)
        async with saving:  # one file at a time: a state may take gigabytes
            file = await asyncio.to_thread(_saved_state, collector, entry)
        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f'attachment; filename="{name}.npz"',
        }
        return StreamingResponse(_chunks(file), headers=headers, media_type="application/octet-stream")

    return router


def _statuses(collector: Collector, entries: list[Entry]) -> list[dict[str, Any]]:
    found = []
    for entry in entries:
        with suppress(UnknownCampaign):  # deleted since the list was read
            found.append(status_of(collector, entry))
    return found


def status_of(collector: Collector, entry: Entry) -> dict[str, Any]:
    """Return a campaign's counts as JSON values."""
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
        "shuffling": shuffled_claim(collector.store, entry.campaign),
    }


async def _readable(collector: Collector, name: str, request: Request) -> Entry:
    token = token_of(request)
    entry = await collector.entry(name)
    collector.require_reader(entry, token)
    return entry


def _estimate(collector: Collector, entry: Entry, as_csv: bool) -> bytes:
    newest = results.latest(collector.store, entry.campaign.name)
    if newest is None:
        described = results.describe(
            entry.campaign, entry.campaign.mechanism.aggregator(), shuffled_claim(collector.store, entry.campaign)
        )
        newest = results.Result(0, json.dumps(described).encode())
    return results.as_csv(entry.campaign, json.loads(newest.json)).encode() if as_csv else newest.json


@lru_cache(maxsize=256)
def _certificate(mechanism: Mechanism) -> str:
    try:
        return certify(mechanism)
    except ValueError as error:
        raise Problem(409, f"This campaign has no certificate: {error}.") from error


def _saved_state(collector: Collector, entry: Entry) -> IO[bytes]:
    """Write the state to an open file without a name, which disappears however the request ends."""
    with tempfile.TemporaryDirectory(prefix="sstq-") as folder:
        path = Path(folder) / "state.npz"
        collector.store.save_state(entry.campaign.name, path)
        return path.open("rb")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def collector_metrics(collector: Collector) -> str:
    """Return the collector's metrics for Prometheus."""
    statuses = _statuses(collector, collector.refresh())

    def of_each(field: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {(("campaign", status["name"]),): status[field] for status in statuses}

    shuffled = [entry.campaign.name for entry in collector.refresh() if entry.campaign.shuffling is not None]
    batches = {name: count_batches(collector.store.database, name) for name in shuffled}
    uploads = sorted(collector.metrics.uploads.items())
    return render(
        [
            (
                "sstq_uploads_total",
                "counter",
                "Uploads answered by this process, by status.",
                {(("campaign", name), ("status", str(status))): value for (name, status), value in uploads},
            ),
            ("sstq_messages_received", "gauge", "Acknowledged messages.", of_each("received")),
            ("sstq_messages_folded", "gauge", "Messages added to the state.", of_each("folded")),
            ("sstq_tokens_unspent", "gauge", "Unused single-use tokens.", of_each("tokens_unspent")),
            (
                "sstq_batches_opened",
                "gauge",
                "Opened batches of shufflers.",
                {(("campaign", name),): found["batches"] for name, found in batches.items()},
            ),
            (
                "sstq_envelopes_opened",
                "gauge",
                "Envelopes of opened batches, by outcome.",
                {
                    (("campaign", name), ("result", result)): found[result]
                    for name, found in batches.items()
                    for result in ("accepted", "foreign", "malformed", "repeated")
                },
            ),
            ("sstq_inbox_uploads", "gauge", "Uploads waiting to be written.", {(): len(collector.inbox)}),
            (
                "sstq_rounds_total",
                "counter",
                "Rounds of folding by this process.",
                {(("result", result),): value for result, value in sorted(collector.metrics.folds.items())},
            ),
        ]
    )
