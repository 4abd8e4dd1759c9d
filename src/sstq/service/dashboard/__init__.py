"""The dashboard that an operator keeps open: static files and the routes that serve them.

The page reads the same routes as any other client. It has no build step and loads nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sstq.client.campaigns import NAME_PATTERN

__all__ = ["StaticFile", "dashboard_routes"]

_SCRIPT = "text/javascript; charset=utf-8"
_STATIC = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": _SCRIPT,
    "campaign.js": _SCRIPT,
    "charts.js": _SCRIPT,
    "collector.js": _SCRIPT,
    "page.js": _SCRIPT,
    "icon.svg": "image/svg+xml",
    "vendor/chart.umd.min.js": _SCRIPT,
    "vendor/chart.js-LICENSE.md": "text/plain; charset=utf-8",
}


class StaticFile:
    """A static file, read once; its ETag lets browsers reuse their copy."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._media_type = media_type
        self._headers = {"ETag": f'"{hashlib.sha256(self._content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}

    async def answer(self, request: Request) -> Response:
        """Return the file, or 304 if the browser has it."""
        if request.headers.get("if-none-match") == self._headers["ETag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._media_type)


def dashboard_routes() -> list[Route]:
    """The page at / and at /NAME of each campaign, and its files under /dashboard/."""
    page = _file("index.html", "text/html; charset=utf-8").answer

    async def page_of_campaign(request: Request) -> Response:
        if not re.fullmatch(NAME_PATTERN, request.path_params["name"]):
            raise HTTPException(404)
        return await page(request)

    found = [Route(f"/dashboard/{name}", _file(name, kind).answer) for name, kind in _STATIC.items()]
    return [*found, Route("/", page), Route("/{name}", page_of_campaign)]


def _file(name: str, media_type: str) -> StaticFile:
    return StaticFile(files(__package__).joinpath("static", *name.split("/")).read_bytes(), media_type)
