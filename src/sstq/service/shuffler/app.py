"""The shuffler as an ASGI application, its own routes, and the server that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from prometheus_client.core import Metric
from starlette.responses import JSONResponse, Response

from sstq.client.campaigns import Campaign
from sstq.client.sealing import CROWD_BYTES, cover_info, open_envelopes
from sstq.service.app import new_app, serve
from sstq.service.common_routes import ADMINISTRATOR, Named, common_routes
from sstq.service.models import ShufflerStatus
from sstq.service.node import Entry
from sstq.service.observing import gauge
from sstq.service.security import Guard, Problem
from sstq.service.settings import ShufflerSettings
from sstq.service.shuffler.crowds import count_outgoing, waiting
from sstq.service.shuffler.node import Shuffler, Work
from sstq.service.uploads import Uploads

_DESCRIPTION = (
    "Receives sealed messages (HPKE) of differentially private campaigns, mixes those of many people and forwards them "
    "to the collector. Every refusal is application/problem+json (RFC 9457) with a sentence. After 429, "
    "503 or no answer, repeat the request with the same Idempotency-Key: its envelopes count once."
)
_UPLOAD = (
    "SSTQ-Count is 1: one person. The body is the crowd (32 bytes) and, sealed for the shuffler, one envelope of "
    "envelope_bytes bytes per slot, in the order of the slots. The shuffler answers once they are durable."
)


def create_shuffler_app(settings: ShufflerSettings) -> FastAPI:
    """Create the ASGI application of a shuffler; ValueError if its database cannot be used."""
    shuffler = Shuffler(settings)
    shuffler.metrics.gauges = lambda: _gauges(shuffler)
    app = new_app(shuffler, "sstq shuffler", _DESCRIPTION, Work)
    app.include_router(common_routes(shuffler, _UPLOAD))
    app.include_router(_routes(shuffler))
    app.add_middleware(Envelopes, node=shuffler)
    app.add_middleware(Guard, node=shuffler)
    return app


def run_shuffler(settings: ShufflerSettings, started: Callable[[str, str], None] = lambda _, __: None) -> None:
    """Serve until the process is told to stop; acknowledged envelopes survive any kind of exit.

    Args:
        settings: the settings of this process.
        started: called with the address and the shuffler's public key once the server accepts requests.
    """
    app = create_shuffler_app(settings)
    serve(app, settings, lambda url: started(url, app.state.node.key.public.hex()))


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


def _routes(shuffler: Shuffler) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/v1/campaigns/{name}/status",
        summary="Count the people whose envelopes are waiting",
        response_model=ShufflerStatus,
        dependencies=ADMINISTRATOR,
    )
    def status(entry: Named) -> Response:
        campaign, counts = entry.campaign, shuffler.store.counts(entry.campaign.name)
        found: dict[str, Any] = {
            "name": campaign.name,
            "status": campaign.status(shuffler.clock.now()),
            "threshold": campaign.shuffling.threshold if campaign.shuffling else 0,
            "waiting": {crowd.name: crowd.people for crowd in waiting(shuffler.store, campaign.name)},
            "outgoing": count_outgoing(shuffler.store, campaign.name),
            "tokens_issued": counts.issued,
            "tokens_unspent": counts.unspent,
            "refused_change": shuffler.refused_changes.get(campaign.name),
        }
        return JSONResponse(found)

    return router


def _gauges(shuffler: Shuffler) -> Iterable[Metric]:
    """The shuffler's metrics that are counted when they are read."""
    counts = shuffler.store.all_counts()
    people = {(name,): own.received for name, own in counts.items()}
    yield gauge("sstq_people_waiting", "People waiting for a crowd.", ["campaign"], people)
    outgoing = {(name,): count_outgoing(shuffler.store, name) for name in counts}
    yield gauge("sstq_envelopes_outgoing", "Mixed envelopes not acknowledged yet.", ["campaign"], outgoing)
    yield gauge("sstq_inbox_uploads", "Uploads waiting to be written.", [], {(): len(shuffler.inbox)})
