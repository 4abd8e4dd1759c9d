"""The web application of a collector: `create_app(settings)` for uvicorn or any other ASGI server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from sstq._version import __version__
from sstq.service import openapi
from sstq.service.background import Background
from sstq.service.collector import Collector
from sstq.service.database import DatabaseUnavailable
from sstq.service.routes import router
from sstq.service.security import Problem, RequestBody, SecurityHeaders, problem_response
from sstq.service.settings import Settings
from sstq.service.uploads import Uploads, database_gone

__all__ = ["create_app"]

_UPLOADS = "/v1/campaigns/{name}/messages"


def create_app(settings: Settings) -> FastAPI:
    """The application; it opens the database at once, and folds uploads in the background while it runs."""
    collector = Collector(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.saving = asyncio.Lock()
        background = Background(collector)
        try:
            async with collector.inbox:
                background.start()
                try:
                    yield
                finally:
                    await asyncio.to_thread(background.stop)
        finally:
            collector.store.close()

    # The pages that FastAPI offers for the document load scripts from elsewhere.
    app = FastAPI(title="sstq collector", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.collector = collector
    # First, and without FastAPI's own work per request.
    app.router.routes.insert(0, Route(_UPLOADS, Uploads(collector), methods=["POST", "OPTIONS"]))
    app.include_router(router)
    app.add_middleware(SecurityHeaders)
    app.add_exception_handler(Problem, _refuse)
    app.add_exception_handler(DatabaseUnavailable, _refuse)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(Exception, _failed)

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            made["paths"][_UPLOADS] = openapi.UPLOAD
            made["components"] = {"schemas": openapi.SCHEMAS, "securitySchemes": openapi.SECURITY}
            for path in made["paths"].values():
                for operation in path.values():
                    _tidy(operation)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    return app


def _tidy(operation: dict[str, Any]) -> None:
    """Name the problem's schema where FastAPI would name its own."""
    found = operation["responses"].get("422")
    if found is not None and "application/json" in found.get("content", {}):
        operation["responses"]["422"] = openapi.answers(None, 422)[422]


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, DatabaseUnavailable):
        problem = database_gone()
    elif isinstance(error, HTTPException):
        problem = Problem(error.status_code, f"{error.detail}.", error.headers)
    elif isinstance(error, RequestValidationError):
        found = error.errors()[0]
        problem = Problem(422, f"{'.'.join(map(str, found['loc']))}: {found['msg']}.")
    else:
        assert isinstance(error, Problem)  # noqa: S101 (these are all that it is registered for)
        problem = error
    body: RequestBody = request.scope.get("sstq.body") or RequestBody(request.receive)
    return await body.refuse(problem)


async def _failed(_: Request, __: Exception) -> Response:
    return problem_response(Problem(500, "An error of the collector; it is in its log."))
