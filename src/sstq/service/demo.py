"""The poll of `sstq serve --demo`: a survey that everybody may send to and read, and its web page.

The page is examples/browser together with the JavaScript client. Wheels contain a copy; a checkout has the files.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from sstq.client.campaigns import Campaign
from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import Choice, MultiChoice, Number
from sstq.service.dashboard import Files
from sstq.service.node import Collector

__all__ = ["POLL", "demo_routes", "ensure_poll"]

POLL = "demo-poll"
"""The name of the campaign."""

_QUESTIONS = {
    "How do you get to work?": Choice(["on foot", "by bike", "by bus or train", "by car", "I work at home"]),
    "What do you like about your work?": MultiChoice(["the tasks", "the people", "the pay", "the freedom"]),
    "How many hours do you work per week?": Number(0, 60, bins=12),
    "My workload is too high": Choice(["strongly disagree", "disagree", "no opinion", "agree", "strongly agree"]),
}
_EPSILON, _VISITORS = 2.0, 100_000

# The files of the page, in a wheel and in a checkout.
_PACKED = Path(__file__).with_name("demo_page")
_CHECKOUT = Path(__file__).parents[3]


def ensure_poll(collector: Collector) -> None:
    """Create the campaign unless it exists."""
    if collector.store.campaign(POLL) is not None:
        return
    survey = Survey(_EPSILON, _QUESTIONS, people=_VISITORS)
    campaign = Campaign(POLL, survey, senders="everybody", readers="public")
    collector.create(campaign, {"release_every": 5})


def demo_routes(collector: Collector) -> list[BaseRoute]:
    """The routes of the page at /demo/ and its files, and a token for the batch of its simulated visitors."""
    campaign = collector.store.campaign(POLL)
    token = None if campaign is None else collector.add_sender(Campaign(POLL, campaign.mechanism), _VISITORS)
    script = (_PACKED if _PACKED.exists() else _CHECKOUT / "clients" / "js") / "sstq.js"
    folder = _PACKED if _PACKED.exists() else _CHECKOUT / "examples" / "browser"

    async def client(_: Request) -> Response:
        return FileResponse(script, headers={"Cache-Control": "no-cache"})

    async def sender(_: Request) -> Response:
        return JSONResponse({"send_token": token})

    own = [Route("/demo/sstq.js", client), Route("/demo/sender.json", sender)]
    return [*own, Mount("/demo", Files(directory=folder, html=True))]
