"""The poll of `sstq serve --demo`: a campaign that everybody may send to and read, and its web page.

The page is examples/browser together with the JavaScript client. Wheels contain a copy; a checkout has the files.
"""

from __future__ import annotations

import math
from pathlib import Path

from starlette.routing import Route

from sstq.client.campaigns import Campaign
from sstq.mechanisms.frameunit.mechanism import FrameUnit
from sstq.service.collector import Collector
from sstq.service.dashboard import StaticFile
from sstq.service.node import Policy

__all__ = ["POLL", "demo_routes", "ensure_poll"]

POLL = "demo-poll"
"""The name of the campaign."""

_STATEMENTS = (
    "I am paid fairly",
    "My manager listens to me",
    "I can say what I think",
    "My workload is too high",
    "I am thinking of leaving",
)
_EPSILON, _VISITORS = 2.0, 100_000

_PACKED = Path(__file__).with_name("demo_page")
_CHECKOUT = Path(__file__).parents[3]
_FILES = {
    "index.html": ("examples/browser", "text/html; charset=utf-8"),
    "poll.css": ("examples/browser", "text/css; charset=utf-8"),
    "poll.js": ("examples/browser", "text/javascript; charset=utf-8"),
    "icon.svg": ("examples/browser", "image/svg+xml"),
    "sstq.js": ("clients/js", "text/javascript; charset=utf-8"),
}


def ensure_poll(collector: Collector) -> None:
    """Create the campaign unless it exists."""
    if collector.store.campaign(POLL) is not None:
        return
    # Answers are from −1 to 1, so that no visitor's vector is clipped.
    dim = len(_STATEMENTS)
    mechanism = FrameUnit(dim, _EPSILON, clip=math.sqrt(dim), clients=_VISITORS)
    collector.create(
        Campaign(POLL, mechanism, labels=_STATEMENTS, senders="everybody", readers="public"), Policy(release_every=5)
    )


def demo_routes() -> list[Route]:
    """The routes of the page at /demo/ and its files."""
    found = {name: StaticFile(_read(name, folder), kind) for name, (folder, kind) in _FILES.items()}
    page = Route("/demo/", found.pop("index.html").answer)
    return [page, *(Route(f"/demo/{name}", file.answer) for name, file in found.items())]


def _read(name: str, folder: str) -> bytes:
    path = _PACKED / name
    return (path if path.exists() else _CHECKOUT / folder / name).read_bytes()
