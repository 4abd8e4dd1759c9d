"""The collector as an ASGI application, and the server that runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sstq._version import __version__
from sstq.service import openapi
from sstq.service.administration import administration_routes
from sstq.service.background import Background
from sstq.service.collector import Collector
from sstq.service.database import DatabaseUnavailable
from sstq.service.logs import LOGS
from sstq.service.protocol import GuardedProtocol
from sstq.service.reading import reading_routes
from sstq.service.security import DEFAULTS, HEADERS, ClientGone, Problem, RequestBody, SecurityHeaders, problem_response
from sstq.service.settings import Settings
from sstq.service.uploads import Uploads, database_gone

__all__ = ["create_app", "run"]

_UPLOADS = "/v1/campaigns/{name}/messages"
_STOP_SECONDS = 30
_MOST_CONNECTIONS = 2000


def create_app(settings: Settings) -> FastAPI:
    """The application of a collector; ValueError if its database cannot be used."""
    collector = Collector(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background = Background(collector)
        async with collector.inbox:
            background.start()
            try:
                yield
            finally:
                await asyncio.to_thread(background.stop)
        collector.store.close()

    app = FastAPI(
        title="sstq collector",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.routes.append(Route(_UPLOADS, Uploads(collector), methods=["POST", "OPTIONS"]))
    app.include_router(reading_routes(collector))
    app.include_router(administration_routes(collector))
    openapi.install(app, _UPLOADS)
    app.add_middleware(SecurityHeaders)
    app.add_exception_handler(Problem, _refuse)
    app.add_exception_handler(DatabaseUnavailable, _refuse_for_the_database)
    app.add_exception_handler(RequestValidationError, _refuse_arguments)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_exception_handler(ClientGone, _nobody_there)
    app.add_exception_handler(Exception, _apologize)
    return app


async def _refuse(request: Request, error: Any) -> Response:
    return await RequestBody.of(request).refuse(error)


async def _refuse_for_the_database(request: Request, error: Any) -> Response:  # noqa: ARG001
    return await _refuse(request, database_gone())


async def _refuse_arguments(request: Request, error: Any) -> Response:
    wrong = error.errors()[0]
    return await _refuse(request, Problem(422, f"{wrong['loc'][-1]}: {wrong['msg']}."))


async def _refuse_route(request: Request, error: Any) -> Response:
    sentences = {404: "There is nothing at this path.", 405: "This path does not take this method."}
    return await _refuse(
        request, Problem(error.status_code, sentences.get(error.status_code, error.detail), error.headers)
    )


async def _nobody_there(request: Request, error: Any) -> Response:  # noqa: ARG001
    return problem_response(Problem(400, "The request ended early."))


async def _apologize(request: Request, error: Any) -> Response:  # noqa: ARG001 (uvicorn logs where it was)
    # This answer does not pass through the middleware.
    return problem_response(Problem(500, "The collector made a mistake; its log says where.", HEADERS | DEFAULTS))


class _Server(uvicorn.Server):
    """Says where it listens."""

    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._started(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")


def run(settings: Settings, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve until the process is told to stop (SIGINT or SIGTERM); what was acknowledged is durable however it ends.

    Args:
        settings: of this process.
        started: is called with the address once requests are taken.
    """
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        log_config=LOGS,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies or None,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    _Server(config, started).run()
