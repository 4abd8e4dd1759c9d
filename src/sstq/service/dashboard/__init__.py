"""The dashboard that an operator keeps open: static files and the routes that serve them.

The page reads the same routes as any other client. It has no build step and loads nothing from elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sstq.client.campaigns import NAME_PATTERN

__all__ = ["Files", "dashboard_routes"]


class Files(StaticFiles):
    """A folder of static files, which browsers may keep as long as their ETag is the same."""

    def file_response(self, *arguments: object, **options: object) -> Response:
        """Return a file, or 304 if the browser has it."""
        response = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response


def dashboard_routes() -> list[BaseRoute]:
    """The page at / and at /NAME of each campaign, and its files under /dashboard/."""
    files = Files(directory=Path(__file__).with_name("static"))

    async def page(request: Request) -> Response:
        if not re.fullmatch(NAME_PATTERN, request.path_params.get("name", "page")):
            raise HTTPException(404)
        return await files.get_response("index.html", request.scope)

    return [Mount("/dashboard", files), Route("/", page), Route("/{name}", page)]
