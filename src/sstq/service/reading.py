"""The collector's read-only routes: estimates, states and progress."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from prometheus_client.core import Metric
from starlette.responses import JSONResponse, Response, StreamingResponse

from sstq.audit import certify
from sstq.mechanisms import Mechanism
from sstq.service import results
from sstq.service.batches import count_batches
from sstq.service.claims import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.common_routes import Token, matches
from sstq.service.metrics import gauge
from sstq.service.models import CampaignName, Campaigns, Estimate, Progress, Status, answers, optional_token
from sstq.service.node import Entry
from sstq.service.problems import Problem
from sstq.service.uploads import ALLOW_ANY_ORIGIN

__all__ = ["collector_gauges", "reading_routes"]

_CHUNK = 1 << 18
_CSV = "text/csv; charset=utf-8"
_RENDERED_BYTES = 1 << 26


class _Rendered:
    """Answers made once per estimate, the newest ones in memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
        """Return an answer, made only if nobody has asked for it before; the others wait for who makes it."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
                self._size += len(self._kept[key])
            self._kept.move_to_end(key)
            found = self._kept[key]
            while self._size > _RENDERED_BYTES and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])
            return found


def reading_routes(collector: Collector) -> APIRouter:
    """The routes."""
    router = APIRouter()
    saving = asyncio.Semaphore(1)
    rendered = _Rendered()
    store = collector.store

    async def readable(name: str, token: str | None) -> tuple[Entry, results.Audience]:
        entry = await collector.entry(name)
        collector.require_reader(entry, token)
        return entry, "owner" if collector.is_administrator(token) else "public"

    @router.get(
        "/v1/campaigns",
        summary="List the campaigns whose estimates the token may read; without a token, the public ones",
        responses=answers(401, 403),
        response_model=Campaigns,
        openapi_extra=optional_token,
    )
    async def campaigns(token: Token) -> Response:
        def found() -> list[dict[str, Any]]:
            entries = collector.refresh()
            known = collector.is_administrator(token) or any(collector.has_read_token(e, token) for e in entries)
            if token is not None and not known:
                raise Problem(403, "The token is neither the administrator's token nor a campaign's reader token.")
            return _statuses(
                collector, [entry for entry in entries if collector.may_read(entry, token)], _audience(collector, token)
            )

        return JSONResponse({"campaigns": await asyncio.to_thread(found)})

    @router.get(
        "/v1/campaigns/{name}/status",
        summary="Count a campaign's messages and tokens",
        responses=answers(401, 403, 404),
        response_model=Status,
        openapi_extra=optional_token,
    )
    async def status(name: CampaignName, token: Token) -> Response:
        entry, audience = await readable(name, token)
        found = await asyncio.to_thread(_statuses, collector, [entry], audience)
        if not found:
            collector.forget(name)
            raise Problem(404, "There is no campaign with this name.")
        return JSONResponse(found[0])

    @router.get(
        "/v1/campaigns/{name}/estimate",
        summary="Read the newest estimate, as JSON or CSV",
        description="Readers see it in steps of many messages, the administrator as it is.",
        responses=answers(
            *(401, 403, 404),
            more={
                200: {"model": Estimate, "content": {"text/csv": {"schema": {"type": "string"}}}},
                304: {"description": "The client has this estimate already."},
            },
        ),
        openapi_extra=optional_token,
    )
    async def estimate(
        name: CampaignName,
        request: Request,
        token: Token,
        form: Annotated[
            Literal["json", "csv"] | None, Query(alias="format", description="The format; overrides the Accept header.")
        ] = None,
    ) -> Response:
        entry, audience = await readable(name, token)
        as_csv = form == "csv" or (form is None and "text/csv" in request.headers.get("accept", ""))
        covered = await asyncio.to_thread(results.covered, store, name, audience)
        kind = (name, entry.etag, audience, str(covered), "csv" if as_csv else "json")
        etag = f'"{entry.etag.strip(chr(34))}-{audience}-{covered or 0}-{kind[-1]}"'
        headers = {"ETag": etag, "Vary": "Accept, Authorization", "Cache-Control": "no-cache"}
        if entry.campaign.readers == "public":
            headers |= ALLOW_ANY_ORIGIN
        if as_csv:
            headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
        if matches(request, etag):
            return Response(status_code=304, headers=headers)
        content = await asyncio.to_thread(rendered.get, kind, lambda: _estimate(collector, entry, audience, as_csv))
        return Response(content, headers=headers, media_type=_CSV if as_csv else "application/json")

    @router.get(
        "/v1/campaigns/{name}/progress",
        summary="Read the error so far, its prediction, and the arrivals per hour",
        responses=answers(401, 403, 404),
        response_model=Progress,
        openapi_extra=optional_token,
    )
    async def progress(name: CampaignName, token: Token) -> Response:
        entry, audience = await readable(name, token)
        hour = collector.clock.hour()
        return JSONResponse(await asyncio.to_thread(results.progress, store, entry.campaign, audience, hour))

    @router.get(
        "/v1/campaigns/{name}/certificate",
        summary="Read the certificate of the mechanism's privacy, which `sstq audit verify` checks",
        responses=answers(404, 409),
        response_model=dict[str, Any],
    )
    async def certificate(name: CampaignName) -> Response:
        entry = await collector.entry(name)
        return Response(await asyncio.to_thread(_certificate, entry.campaign.mechanism), media_type="application/json")

    @router.get(
        "/v1/campaigns/{name}/state",
        summary="Download the state of all folded messages, which `sstq aggregate` can continue from",
        responses=answers(
            *(401, 403, 404),
            more={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
        ),
        response_class=Response,
    )
    async def state(name: CampaignName, token: Token) -> Response:
        collector.require_administrator(token)
        await collector.entry(name)
        async with saving:  # one file at a time: a state may take gigabytes
            file = await asyncio.to_thread(_saved_state, collector, name)
        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f'attachment; filename="{name}.npz"',
        }
        return StreamingResponse(_chunks(file), headers=headers, media_type="application/octet-stream")

    return router


def _audience(collector: Collector, token: str | None) -> results.Audience:
    return "owner" if collector.is_administrator(token) else "public"


def _statuses(collector: Collector, entries: list[Entry], audience: results.Audience) -> list[dict[str, Any]]:
    """The counts of campaigns; those that were deleted meanwhile are left out."""
    now, found = collector.clock.now(), []
    counts, covered = collector.store.all_counts(), results.all_covered(collector.store, audience)
    for entry in entries:
        name = entry.campaign.name
        if name not in counts:
            continue
        own, shown = counts[name], covered.get(name, 0)
        seen = audience == "owner"
        found.append(
            {
                "name": name,
                "status": "closed" if entry.stored.closed else entry.campaign.status(now),
                "received": own.received if seen else shown,
                "folded": own.folded if seen else shown,
                "covered": shown,
                "tokens_issued": own.issued if seen else None,
                "tokens_unspent": own.unspent if seen else None,
                "shuffling": shuffled_claim(collector.store, entry.campaign),
            }
        )
    return found


def _estimate(collector: Collector, entry: Entry, audience: results.Audience, as_csv: bool) -> bytes:
    newest = results.latest(collector.store, entry.campaign.name, audience)
    if newest is None:
        described = results.describe(entry.campaign, None, shuffled_claim(collector.store, entry.campaign))
        newest = results.Result(0, json.dumps(described).encode())
    return results.as_csv(entry.campaign, json.loads(newest.json)).encode() if as_csv else newest.json


@lru_cache(maxsize=256)
def _certificate(mechanism: Mechanism) -> str:
    try:
        return certify(mechanism)
    except ValueError as error:
        raise Problem(409, f"This campaign has no certificate: {error}.") from error


def _saved_state(collector: Collector, name: str) -> IO[bytes]:
    """Write the state to an open file without a name, which disappears however the request ends."""
    with tempfile.TemporaryDirectory(prefix="sstq-") as folder:
        path = Path(folder) / "state.npz"
        collector.store.save_state(name, path)
        return path.open("rb")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def collector_gauges(collector: Collector) -> Iterable[Metric]:
    """The collector's metrics that are counted when they are read."""
    counts = collector.store.all_counts()
    yield gauge(
        "sstq_messages_received", "Acknowledged messages.", ["campaign"], {(n,): c.received for n, c in counts.items()}
    )
    yield gauge(
        "sstq_messages_folded", "Messages in the state.", ["campaign"], {(n,): c.folded for n, c in counts.items()}
    )
    yield gauge(
        "sstq_tokens_unspent", "Unused single-use tokens.", ["campaign"], {(n,): c.unspent for n, c in counts.items()}
    )
    raised = results.raised(collector.store)
    yield gauge("sstq_alarms", "Tests that an honest crowd passes and this one failed.", ["campaign", "test"], raised)
    shuffled = [entry.campaign.name for entry in collector.refresh() if entry.campaign.shuffling is not None]
    batches = {name: count_batches(collector.store.database, name) for name in shuffled}
    yield gauge(
        "sstq_batches_opened", "Opened batches.", ["campaign"], {(n,): found["batches"] for n, found in batches.items()}
    )
    outcomes = ("accepted", "foreign", "malformed", "repeated")
    yield gauge(
        "sstq_envelopes_opened",
        "Envelopes of opened batches, by outcome.",
        ["campaign", "result"],
        {(name, outcome): found[outcome] for name, found in batches.items() for outcome in outcomes},
    )
    yield gauge("sstq_inbox_uploads", "Uploads waiting to be written.", [], {(): len(collector.inbox)})
