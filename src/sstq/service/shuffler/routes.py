"""The shuffler's own HTTP routes: envelopes, its public key, and how many people wait."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.client.sealing import CROWD_BYTES, cover_info, open_envelopes
from sstq.service.common_routes import token_of
from sstq.service.metrics import render
from sstq.service.node import Entry
from sstq.service.openapi import TOKEN, answers, schema
from sstq.service.security import Problem
from sstq.service.shuffler.crowds import count_outgoing, waiting
from sstq.service.shuffler.node import Shuffler
from sstq.service.uploads import Uploads

__all__ = ["Envelopes", "shuffler_metrics", "shuffler_routes"]


class Envelopes(Uploads):
    """POST /v1/campaigns/NAME/messages of a shuffler: opens the cover of envelopes, which it cannot open."""

    _collector: Shuffler

    def _admit(self, campaign: Campaign) -> None:
        """Accept all campaigns: those of a shuffler are all shuffled."""

    def _unpacked(self, entry: Entry, raw: bytes) -> bytes:
        crowd, cover = raw[:CROWD_BYTES], raw[CROWD_BYTES:]
        if crowd.hex() not in entry.crowds:
            raise Problem(409, "The envelopes are sealed for other terms or another key. Fetch the campaign again.")
        (envelopes,) = open_envelopes(self._collector.sealing_key.secret, cover_info(crowd), [cover])
        if envelopes is None:
            raise Problem(422, "The cover of the envelopes does not open.")
        return crowd + envelopes


def shuffler_routes(shuffler: Shuffler) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.get(
        "/v1/campaigns/{name}/status",
        summary="Count the people whose envelopes are waiting",
        responses=answers({200: {"description": "The counts.", "content": schema("Status")}}, 401, 403, 404),
        openapi_extra=TOKEN,
    )
    async def status(name: str, request: Request) -> Response:
        shuffler.require_administrator(token_of(request))
        entry = await shuffler.entry(name)
        return JSONResponse(await asyncio.to_thread(_status, shuffler, entry))

    return router


def _status(shuffler: Shuffler, entry: Entry) -> dict[str, Any]:
    database, campaign = shuffler.store.database, entry.campaign
    counts = shuffler.store.counts(campaign.name)
    return {
        "name": campaign.name,
        "status": campaign.status(datetime.now(UTC)),
        "threshold": campaign.shuffling.threshold if campaign.shuffling else 0,
        "waiting": {crowd.name: crowd.people for crowd in waiting(database, campaign.name)},
        "outgoing": count_outgoing(database, campaign.name),
        "tokens_issued": counts.issued,
        "tokens_unspent": counts.unspent,
        "refused_change": shuffler.refused_changes.get(campaign.name),
    }


def shuffler_metrics(shuffler: Shuffler) -> str:
    """Return the shuffler's metrics for Prometheus."""
    names = [entry.campaign.name for entry in shuffler.refresh()]
    database, counted = shuffler.store.database, shuffler.metrics
    return render(
        [
            (
                "sstq_uploads_total",
                "counter",
                "Uploads answered by this process, by status.",
                {
                    (("campaign", name), ("status", str(status))): value
                    for (name, status), value in sorted(counted.uploads.items())
                },
            ),
            (
                "sstq_people_waiting",
                "gauge",
                "People whose envelopes are waiting for a crowd.",
                {(("campaign", name),): shuffler.store.counts(name).received for name in names},
            ),
            (
                "sstq_people_total",
                "counter",
                "People whose envelopes this process mixed or dropped.",
                {
                    (("campaign", name), ("result", result)): value
                    for (name, result), value in sorted(counted.people.items())
                },
            ),
            (
                "sstq_envelopes_outgoing",
                "gauge",
                "Mixed envelopes that the collector has not acknowledged.",
                {(("campaign", name),): count_outgoing(database, name) for name in names},
            ),
            ("sstq_inbox_uploads", "gauge", "Uploads waiting to be written.", {(): len(shuffler.inbox)}),
            (
                "sstq_rounds_total",
                "counter",
                "Rounds of mixing and forwarding by this process.",
                {(("result", result),): value for result, value in sorted(counted.folds.items())},
            ),
        ]
    )
