"""The shuffler's own HTTP routes: envelopes, its public key, and how many people wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

from fastapi import APIRouter
from prometheus_client.core import Metric
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.client.sealing import CROWD_BYTES, cover_info, open_envelopes
from sstq.service.common_routes import Token
from sstq.service.metrics import gauge
from sstq.service.models import CampaignName, answers
from sstq.service.node import Entry
from sstq.service.problems import Problem
from sstq.service.shuffler.crowds import count_outgoing, waiting
from sstq.service.shuffler.node import Shuffler
from sstq.service.uploads import Uploads

__all__ = ["Envelopes", "shuffler_gauges", "shuffler_routes"]


class ShufflerStatus(BaseModel):
    """The people whose envelopes wait, by crowd, and what the collector has not acknowledged or tried to change."""

    name: str
    status: Literal["scheduled", "open", "closed"]
    threshold: int
    waiting: dict[str, int]
    outgoing: int
    tokens_issued: int
    tokens_unspent: int
    refused_change: str | None


class Envelopes(Uploads):
    """POST /v1/campaigns/NAME/messages of a shuffler: opens the cover of envelopes, which it cannot open."""

    _node: Shuffler

    def _admit(self, campaign: Campaign) -> None:
        """Accept all campaigns: those of a shuffler are all shuffled."""

    def _unpacked(self, entry: Entry, raw: bytes) -> bytes:
        crowd, cover = raw[:CROWD_BYTES], raw[CROWD_BYTES:]
        if crowd.hex() not in entry.crowds:
            raise Problem(409, "The envelopes are sealed for other terms or another key. Fetch the campaign again.")
        (envelopes,) = open_envelopes(self._node.sealing_key.secret, cover_info(crowd), [cover])
        if envelopes is None:
            raise Problem(422, "The cover of the envelopes does not open.")
        return crowd + envelopes


def shuffler_routes(shuffler: Shuffler) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.get(
        "/v1/campaigns/{name}/status",
        summary="Count the people whose envelopes are waiting",
        responses=answers(401, 403, 404),
        response_model=ShufflerStatus,
    )
    async def status(name: CampaignName, token: Token) -> Response:
        shuffler.require_administrator(token)
        entry = await shuffler.entry(name)
        return JSONResponse(await asyncio.to_thread(_status, shuffler, entry))

    return router


def _status(shuffler: Shuffler, entry: Entry) -> dict[str, Any]:
    database, campaign = shuffler.store.database, entry.campaign
    counts = shuffler.store.counts(campaign.name)
    return {
        "name": campaign.name,
        "status": campaign.status(shuffler.clock.now()),
        "threshold": campaign.shuffling.threshold if campaign.shuffling else 0,
        "waiting": {crowd.name: crowd.people for crowd in waiting(database, campaign.name)},
        "outgoing": count_outgoing(database, campaign.name),
        "tokens_issued": counts.issued,
        "tokens_unspent": counts.unspent,
        "refused_change": shuffler.refused_changes.get(campaign.name),
    }


def shuffler_gauges(shuffler: Shuffler) -> Iterable[Metric]:
    """The shuffler's metrics that are counted when they are read."""
    counts = shuffler.store.all_counts()
    yield gauge(
        "sstq_people_waiting",
        "People waiting for a crowd.",
        ["campaign"],
        {(n,): c.received for n, c in counts.items()},
    )
    outgoing = {(name,): count_outgoing(shuffler.store.database, name) for name in counts}
    yield gauge("sstq_envelopes_outgoing", "Mixed envelopes not acknowledged yet.", ["campaign"], outgoing)
    yield gauge("sstq_inbox_uploads", "Uploads waiting to be written.", [], {(): len(shuffler.inbox)})
