"""All routes but the upload: documents, estimates and states, administration, health and metrics."""

from __future__ import annotations

import asyncio
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from sstq.files.strict_json import read_json
from sstq.service import results
from sstq.service.campaigns import Campaign
from sstq.service.collector import Collector, Entry
from sstq.service.metrics import render
from sstq.service.openapi import answers, json_body, secured
from sstq.service.security import Problem, RequestBody, bearer_token, content_type, new_token, token_hash
from sstq.service.uploads import ALLOW_ANY_ORIGIN

__all__ = ["router"]

_LARGEST_JSON = 4 << 20
_MOST_TOKENS = 100_000

router = APIRouter(default_response_class=Response)


def _collector(request: Request) -> Collector:
    collector: Collector = request.app.state.collector
    return collector


def _token(request: Request) -> str | None:
    return bearer_token(request.headers.get("authorization"))


async def _entry(request: Request, name: str) -> Entry:
    return await _collector(request).entry(name)


def _administrator(request: Request) -> None:
    _collector(request).require_administrator(_token(request))


async def _readable(request: Request, name: str) -> Entry:
    entry = await _entry(request, name)
    _collector(request).require_reader(entry, _token(request))
    return entry


ByAdministrator = Depends(_administrator)
ForReaders = Annotated[Entry, Depends(_readable)]
Named = Annotated[Entry, Depends(_entry)]


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(content, allow_nan=False), status, headers, "application/json")


async def _read(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    if content_type(request.headers) != "application/json":
        raise Problem(415, "The Content-Type must be application/json.")
    body = request.scope["sstq.body"] = RequestBody(request.receive)
    raw = await body.read(_LARGEST_JSON, Problem(413, f"The body must have at most {_LARGEST_JSON} bytes."))
    try:
        value = read_json(raw)
    except ValueError as error:
        raise Problem(400, f"The body is not JSON as it should be: {error}.") from error
    if not isinstance(value, dict):
        raise Problem(422, "The body must be a JSON object.")
    return value


def _status(entry: Entry) -> str:
    return "closed" if entry.stored.closed else entry.campaign.status(datetime.now(UTC))


def _summary(collector: Collector, entry: Entry) -> dict[str, Any]:
    campaign, counts = entry.campaign, collector.store.counts(entry.campaign.name)
    return campaign.terms() | {
        "name": campaign.name,
        "status": _status(entry),
        "mechanism": campaign.mechanism.name,
        "dim": campaign.mechanism.dim,
        "epsilon": campaign.mechanism.epsilon,
        "digest": campaign.digest,
        "message_bits": campaign.mechanism.message_bits,
        "received": counts.received,
        "folded": counts.folded,
        "tokens_issued": counts.issued,
        "tokens_unspent": counts.unspent,
    }


@router.get("/health", responses=answers("Health"))
async def health(request: Request) -> Response:
    """Whether the collector and its database answer."""
    await asyncio.to_thread(_collector(request).store.ping)
    return _json({"status": "ok"})


@router.get("/metrics", responses=answers(None, 401, 403, other=("text/plain",)), openapi_extra=secured())
async def metrics(request: Request) -> Response:
    """What Prometheus reads, with the administrator's token or that for metrics."""
    collector = _collector(request)
    collector.require_metrics(_token(request))
    entries = await asyncio.to_thread(collector.refresh)
    counts = {
        entry.campaign.name: await asyncio.to_thread(collector.store.counts, entry.campaign.name) for entry in entries
    }
    uploads = {
        (("campaign", name), ("status", str(status))): float(number)
        for (name, status), number in sorted(collector.metrics.uploads.items())
    }
    text = render(
        [
            ("sstq_uploads_total", "counter", "Uploads answered by this process.", uploads),
            (
                "sstq_rounds_total",
                "counter",
                "Rounds of folding of this process.",
                {(("outcome", name),): float(collector.metrics.folds[name]) for name in ("done", "failed")},
            ),
            ("sstq_inbox_uploads", "gauge", "Uploads that wait to be stored.", {(): float(len(collector.inbox))}),
            *(
                (
                    f"sstq_{name}_messages",
                    "gauge",
                    f"Messages {name}.",
                    {(("campaign", of),): float(getattr(count, name)) for of, count in counts.items()},
                )
                for name in ("received", "folded")
            ),
        ]
    )
    return Response(text, media_type="text/plain; version=0.0.4")


@router.get("/v1/campaigns", responses=answers("Campaigns", 401), openapi_extra=secured(optional=True))
async def list_campaigns(request: Request) -> Response:
    """The campaigns whose estimate the caller may read; all of them for the administrator."""
    collector, token = _collector(request), _token(request)
    entries = [entry for entry in await asyncio.to_thread(collector.refresh) if collector.may_read(entry, token)]
    return _json({"campaigns": [await asyncio.to_thread(_summary, collector, entry) for entry in entries]})


@router.post(
    "/v1/campaigns",
    status_code=201,
    responses=answers("Campaign", 400, 401, 403, 408, 409, 413, 415, 422, status=201),
    openapi_extra=secured() | json_body("NewCampaign"),
    dependencies=[ByAdministrator],
)
async def create_campaign(request: Request) -> Response:
    """Create a campaign. Shared tokens are in the answer and nowhere else."""
    collector, data = _collector(request), await _read(request)
    try:
        campaign = await asyncio.to_thread(Campaign.from_dict, data)
    except ValueError as error:
        raise Problem(422, f"The campaign is refused: {error}.") from error
    try:
        tokens = await asyncio.to_thread(collector.create, campaign)
    except ValueError as error:
        raise Problem(409, "There is a campaign of this name already; choose another name.") from error
    summary = await asyncio.to_thread(_summary, collector, await collector.entry(campaign.name))
    return _json(summary | tokens, 201, {"Location": f"/v1/campaigns/{campaign.name}"})


@router.get(
    "/v1/campaigns/{name}",
    responses=answers("Document", 404) | {304: {"description": "The document is still that of If-None-Match."}},
)
async def fetch_campaign(request: Request, entry: Named) -> Response:
    """The document that clients fetch, signed in the header SSTQ-Signature."""
    headers = {"ETag": entry.etag, "SSTQ-Signature": entry.signature, "Cache-Control": "no-cache"}
    if entry.from_anywhere:
        headers |= ALLOW_ANY_ORIGIN
    asked = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if entry.etag in asked or "*" in asked:
        return Response(status_code=304, headers=headers)
    return Response(entry.document, 200, headers, "application/json")


@router.patch(
    "/v1/campaigns/{name}",
    responses=answers("Campaign", 400, 401, 403, 404, 408, 409, 413, 415, 422),
    openapi_extra=secured() | json_body("Changes"),
    dependencies=[ByAdministrator],
)
async def change_campaign(request: Request, entry: Named) -> Response:
    """Change the terms of a campaign: anything but its name and mechanism. null takes a term away."""
    collector, changes = _collector(request), await _read(request)
    if _status(entry) == "closed" and changes.keys() & {"opens", "closes"}:
        # Its keys may be forgotten by now: retries would count twice.
        raise Problem(409, "The campaign is closed and cannot be opened again; create another one.")
    terms = {name: value for name, value in (entry.campaign.terms() | changes).items() if value is not None}
    whole = {"name": entry.campaign.name, "mechanism": read_json(entry.campaign.mechanism.to_json())}
    if changes.keys() & whole.keys():
        raise Problem(422, "The name and the mechanism of a campaign cannot be changed; create another one.")
    try:
        campaign = await asyncio.to_thread(Campaign.from_dict, whole | terms)
    except ValueError as error:
        raise Problem(422, f"The change is refused: {error}.") from error
    tokens = await asyncio.to_thread(collector.change, entry, campaign)
    return _json(await asyncio.to_thread(_summary, collector, await collector.entry(campaign.name)) | tokens)


@router.delete(
    "/v1/campaigns/{name}",
    status_code=204,
    responses=answers(None, 401, 403, 404, status=204),
    openapi_extra=secured(),
    dependencies=[ByAdministrator],
)
async def delete_campaign(request: Request, entry: Named) -> Response:
    """Delete a campaign with everything that was collected for it."""
    await asyncio.to_thread(_collector(request).store.delete, entry.campaign.name)
    _collector(request).forget(entry.campaign.name)
    return Response(status_code=204)


@router.post(
    "/v1/campaigns/{name}/close",
    responses=answers("Campaign", 401, 403, 404),
    openapi_extra=secured(),
    dependencies=[ByAdministrator],
)
async def close_campaign(request: Request, entry: Named) -> Response:
    """Close a campaign for good, now."""
    collector, name = _collector(request), entry.campaign.name
    await asyncio.to_thread(collector.store.end, name)
    collector.forget(name)
    return _json(await asyncio.to_thread(_summary, collector, await collector.entry(name)))


@router.post(
    "/v1/campaigns/{name}/tokens",
    status_code=201,
    responses=answers("Tokens", 400, 401, 403, 404, 408, 409, 413, 415, 422, status=201),
    openapi_extra=secured() | json_body("Wanted"),
    dependencies=[ByAdministrator],
)
async def issue_tokens(request: Request, entry: Named) -> Response:
    """Issue single-use tokens, or renew a shared one; they are in the answer and nowhere else."""
    collector, wanted = _collector(request), await _read(request)
    if wanted.keys() == {"renew"} and wanted["renew"] in ("send_token", "read_token"):
        if wanted["renew"] not in entry.tokens:
            raise Problem(409, f"The campaign has no {wanted['renew']}.")
        renewed = await asyncio.to_thread(collector.change, entry, entry.campaign, (wanted["renew"],))
        return _json({"tokens": list(renewed.values())}, 201)
    count = wanted.get("count")
    if wanted.keys() != {"count"} or type(count) is not int or not 1 <= count <= _MOST_TOKENS:
        raise Problem(
            422, f'The body must be {{"count": 1 to {_MOST_TOKENS}}} or {{"renew": "send_token" or "read_token"}}.'
        )
    if entry.campaign.senders != "single-use":
        raise Problem(409, "The campaign takes no single-use tokens: its senders are not “single-use”.")
    tokens = [new_token() for _ in range(count)]
    await asyncio.to_thread(collector.store.issue, entry.campaign.name, [token_hash(token) for token in tokens])
    return _json({"tokens": tokens}, 201)


@router.get(
    "/v1/campaigns/{name}/status", responses=answers("Campaign", 401, 403, 404), openapi_extra=secured(optional=True)
)
async def show_campaign(request: Request, entry: ForReaders) -> Response:
    """The terms of a campaign, whether it is open, and how many messages it has."""
    return _json(await asyncio.to_thread(_summary, _collector(request), entry))


@router.get(
    "/v1/campaigns/{name}/estimate",
    responses=answers("Estimate", 401, 403, 404, 422, other=("text/csv",)),
    openapi_extra=secured(optional=True),
)
async def estimate(
    request: Request,
    entry: ForReaders,
    wanted: Annotated[Literal["json", "csv"] | None, Query(alias="format")] = None,
) -> Response:
    """The newest estimate with its region, and the number of messages that it covers."""
    campaign, found = (
        entry.campaign,
        await asyncio.to_thread(results.latest, _collector(request).store, entry.campaign.name),
    )
    raw = (
        json.dumps(results.describe(campaign, campaign.mechanism.aggregator())).encode()
        if found is None
        else found.json
    )
    if wanted is None:
        wanted = "csv" if content_type({"content-type": request.headers.get("accept", "")}) == "text/csv" else "json"
    if wanted == "json":
        return Response(raw, media_type="application/json", headers={"Vary": "Accept"})
    text = await asyncio.to_thread(lambda: results.as_csv(campaign, json.loads(raw)))
    headers = {"Vary": "Accept", "Content-Disposition": f'attachment; filename="{campaign.name}.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get(
    "/v1/campaigns/{name}/state",
    responses=answers(None, 401, 403, 404, other=("application/octet-stream",)),
    openapi_extra=secured(),
)
async def state(request: Request, entry: Named) -> Response:
    """The sums of all folded messages as `Aggregator.save` writes them, for the administrator and readers by token."""
    collector, token = _collector(request), _token(request)
    if entry.campaign.readers == "public":
        collector.require_administrator(token)
    collector.require_reader(entry, token)
    name = entry.campaign.name
    folder = tempfile.TemporaryDirectory(prefix="sstq-state-")
    path = Path(folder.name) / "state.npz"
    try:
        # One at a time: each takes memory and disk.
        async with request.app.state.saving:
            count = await asyncio.to_thread(collector.store.save_state, name, path)
    except BaseException:
        folder.cleanup()
        raise
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=f"{name}.npz",
        headers={"SSTQ-Count": str(count)},
        background=BackgroundTask(folder.cleanup),
    )
