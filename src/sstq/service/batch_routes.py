"""The route by which a shuffler forwards batches: its signature is checked before the body is read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import JSONResponse, Response

from sstq.service.batches import BatchAnswer, receive
from sstq.service.collector import Collector
from sstq.service.manifests import LARGEST_PART, Manifest, read_manifest
from sstq.service.models import CampaignName, Receipt, answers
from sstq.service.node import Entry, unknown_campaign
from sstq.service.problems import Problem
from sstq.service.security import RequestBody

__all__ = ["batch_routes"]

_BODY_TYPE = "application/octet-stream"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {_BODY_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
}


def batch_routes(collector: Collector) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.post(
        "/v1/campaigns/{name}/batches",
        summary="Forward a part of a batch of envelopes, as the campaign's shuffler; repeating a part changes nothing",
        responses=answers(400, 403, 404, 408, 409, 410, 413, 415),
        response_model=Receipt,
        openapi_extra=_BODY,
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
        answer = await asyncio.to_thread(receive, collector.store.database, manifest, body)
        if answer is BatchAnswer.UNKNOWN:
            collector.forget(name)
            raise unknown_campaign()
        if answer is BatchAnswer.CONFLICT:
            raise Problem(409, "A different batch with this name was stored before.")
        return JSONResponse({"count": manifest.count})

    return router


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
