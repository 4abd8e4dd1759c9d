"""The collector's read-only routes: estimates, states and progress."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from sstq.audit import certify
from sstq.mechanisms import Mechanism
from sstq.service import results, studies, study_results
from sstq.service.batches import shuffled_claim
from sstq.service.collector import Collector
from sstq.service.common_routes import (
    BINARY,
    NOT_MODIFIED,
    Named,
    TheCollector,
    Token,
    administrator_router,
    matches,
)
from sstq.service.models import (
    EstimateAnswer,
    Progress,
    Status,
    StudyAnswer,
    optional_token,
)
from sstq.service.node import RunningCampaign
from sstq.service.rendering import as_csv, describe
from sstq.service.security import BODY, Problem, too_fast, unauthorized
from sstq.service.store import UnknownCampaign
from sstq.service.uploads import ALLOW_ANY_ORIGIN

_CHUNK = 1 << 18  # of a file
_PIECE = 1 << 16  # of an answer in memory


async def _reader(
    collector: TheCollector, entry: Named, token: Token
) -> results.Audience:
    """What the holder of the token, if any, may read of a campaign; raises a Problem if nothing."""
    if collector.is_administrator(token):
        return "owner"
    if not entry.is_stage and (
        entry.campaign.readers == "public" or entry.is_reader(token)
    ):
        return "public"
    if token is None:
        raise unauthorized(
            "This needs the campaign's reader token or the administrator's token."
        )
    raise Problem(
        403,
        "The token is neither the campaign's reader token nor the administrator's token.",
    )


_Reader = Annotated[results.Audience, Depends(_reader)]


router = APIRouter()
administration = administrator_router()


@router.get("/v1/campaigns", openapi_extra=optional_token)
def campaigns(
    collector: TheCollector, token: Token
) -> dict[Literal["campaigns"], list[Status]]:
    """List the campaigns whose estimates the token may read; without a token, the public ones."""
    entries = [entry for entry in collector.entries.values() if not entry.is_stage]
    if collector.is_administrator(token):
        return {"campaigns": _statuses(collector, entries, "owner")}
    mine = [entry for entry in entries if entry.is_reader(token)]
    if token is not None and not mine:
        raise Problem(
            403,
            "The token is neither the administrator's token nor a campaign's reader token.",
        )
    shown = [
        entry
        for entry in entries
        if entry.campaign.readers == "public" or entry in mine
    ]
    return {"campaigns": _statuses(collector, shown, "public")}


@router.get("/v1/campaigns/{name}/status", openapi_extra=optional_token)
def status(collector: TheCollector, entry: Named, audience: _Reader) -> Status:
    """Count a campaign's messages and tokens."""
    statuses = _statuses(collector, [entry], audience)
    if not statuses:
        raise UnknownCampaign
    return statuses[0]


@router.get(
    "/v1/campaigns/{name}/estimate",
    responses={
        200: {
            "model": EstimateAnswer | StudyAnswer,
            "content": {"text/csv": {"schema": {"type": "string"}}},
        },
        304: NOT_MODIFIED,
    },
    openapi_extra=optional_token,
)
async def estimate(
    collector: TheCollector,
    entry: Named,
    request: Request,
    audience: _Reader,
    form: Annotated[
        Literal["json", "csv"] | None,
        Query(alias="format", description="The format; overrides the Accept header."),
    ] = None,
) -> Response:
    """Read the newest estimate: readers see it in steps of many messages, the administrator as it is."""
    csv = form == "csv" or (
        form is None and "text/csv" in request.headers.get("accept", "")
    )
    all_covered = await asyncio.to_thread(results.covered, collector.store, audience)
    covered = all_covered.get(entry.name, 0)
    headers = _estimate_headers(entry, f"{audience}-{covered}", csv)
    if "ETag" in headers and matches(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    async with collector.rendering[csv]:
        make = _study_rendered if entry.is_study else _rendered
        content = await asyncio.to_thread(
            make, collector, entry, audience, covered, csv
        )
    # Other requests of this address, sent at the same moment, may have been answered meanwhile.
    wait = collector.reading.take(request.scope[BODY].address, 0)
    if wait:
        raise too_fast("requests", wait)
    headers["Content-Length"] = str(len(content))
    return StreamingResponse(
        _pieces(content, collector.turns),
        200,
        headers,
        "text/csv; charset=utf-8" if csv else "application/json",
    )


@router.get("/v1/campaigns/{name}/progress", openapi_extra=optional_token)
def progress(collector: TheCollector, entry: Named, audience: _Reader) -> Progress:
    """Read the error so far, its prediction, and the arrivals per hour."""
    _refuse_study(entry)
    return Progress(
        **results.progress(
            collector.store, entry.campaign, audience, collector.clock.hour()
        )
    )


@router.get("/v1/campaigns/{name}/certificate", response_model=dict[str, Any])
def certificate(entry: Named) -> Response:
    """Read the certificate of the mechanism's privacy, which `sstq audit verify` checks."""
    return Response(
        _certificate(entry.campaign.mechanism), media_type="application/json"
    )


@administration.get(
    "/v1/campaigns/{name}/state",
    responses={200: {"content": {"application/octet-stream": BINARY}}},
    response_class=Response,
)
async def state(collector: TheCollector, entry: Named) -> Response:
    """Download the state of all folded messages, which `sstq aggregate` can continue from."""
    _refuse_study(entry)
    name = entry.name
    async with collector.saving:
        file = await asyncio.to_thread(_saved_state, collector, name)
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f'attachment; filename="{name}.npz"',
    }
    chunks = iter(partial(file.read, _CHUNK), b"")
    return StreamingResponse(
        chunks, headers=headers, media_type="application/octet-stream"
    )


def _estimate_headers(
    entry: RunningCampaign, version: str, csv: bool
) -> dict[str, str]:
    """The headers of an estimate; that of a study has no ETag, as its stages change while it has the same result."""
    headers = {"Vary": "Accept, Authorization", "Cache-Control": "no-cache"}
    if not entry.is_study:
        document = entry.etag.strip('"')
        headers["ETag"] = f'"{document}-{version}-{"csv" if csv else "json"}"'
    if entry.campaign.readers == "public":
        headers |= ALLOW_ANY_ORIGIN
    if csv:
        headers["Content-Disposition"] = f'attachment; filename="{entry.name}.csv"'
    return headers


def _statuses(
    collector: Collector, entries: list[RunningCampaign], audience: results.Audience
) -> list[Status]:
    """The counts of campaigns; those that were deleted meanwhile are left out."""
    now = collector.clock.now()
    seen = audience == "owner"
    counts = collector.store.counts()
    covered = results.covered(collector.store, audience)
    released = results.covered(collector.store, "public")
    found = []
    for entry in entries:
        name = entry.name
        if name in counts:
            own = counts[name]
            shown = covered.get(name, 0)
            status = Status(
                name=name,
                status="closed"
                if entry.is_closed(now)
                else "open"
                if entry.is_study
                else entry.campaign.status(now),
                received=own.received if seen else shown,
                folded=own.folded if seen else shown,
                covered=shown,
                released=released.get(name, 0),
                release_every=entry.own.release_every,
                tokens_issued=own.issued if seen else None,
                tokens_unspent=own.unspent if seen else None,
                shuffling=None
                if entry.is_study
                else shuffled_claim(collector.store, entry.campaign),  # type: ignore[arg-type]
            )
            if entry.is_study:
                status.study = studies.status(
                    collector, entry, counts, 1 if seen else entry.own.release_every
                )
                status.received = sum(stage.received for stage in status.study.stages)
                status.folded = min(
                    status.received,
                    sum(counts[stage].folded for stage in collector.stages(entry)),
                )
            found.append(status)
    return found


def _refuse_study(entry: RunningCampaign) -> None:
    if entry.is_study:
        raise Problem(
            409,
            f"This is a study: ask for its stage, {entry.campaign.name}, or for its estimate.",
        )


def _study_rendered(
    collector: Collector,
    entry: RunningCampaign,
    audience: results.Audience,
    covered: int,
    csv: bool,
) -> bytes:
    """What a study has found, as JSON or CSV; readers see nothing of what it asks about next."""
    found = json.loads(results.latest(collector.store, entry.name, audience) or b"null")
    if found is not None and audience != "owner":
        found = study_results.for_readers(found)
    if csv:
        return study_results.as_csv(found or {}).encode()
    step = 1 if audience == "owner" else entry.own.release_every
    status = studies.status(collector, entry, collector.store.counts(), step)
    answer = StudyAnswer(
        campaign=entry.name,
        count=covered,
        study=status,
        final=entry.stored.closed,
        result=found,
        note=status.note,
    )
    return answer.model_dump_json().encode()


@lru_cache(maxsize=8)
def _rendered(
    collector: Collector,
    entry: RunningCampaign,
    audience: results.Audience,
    covered: int,  # noqa: ARG001
    csv: bool,
) -> bytes:
    """An estimate as JSON or CSV: one copy for all who read it, per number of messages that it covers."""
    found = results.latest(collector.store, entry.campaign.name, audience)
    if found is None:
        found = json.dumps(
            describe(
                entry.campaign, None, shuffled_claim(collector.store, entry.campaign)
            )
        ).encode()
    return as_csv(entry.campaign, json.loads(found)).encode() if csv else found


async def _pieces(content: bytes, turns: asyncio.Semaphore) -> AsyncIterator[bytes]:
    """Cut an answer into pieces, of which a connection holds one or two until its client has read them.

    Answers take turns: one piece per round of the event loop. A proxy reads so fast that sending never waits, and
    uploads would wait for all of a large answer.
    """
    for start in range(0, len(content), _PIECE):
        async with turns:
            await asyncio.sleep(0)
        yield content[start : start + _PIECE]


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
        collector.store.state(name).save(path)
        return path.open("rb")
