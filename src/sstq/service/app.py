"""The collector as an ASGI application, and the server that runs it."""

import asyncio
import gc
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from sstq._version import __version__
from sstq.service.administration import administration_routes
from sstq.service.background import Folding, Opening, Rounds
from sstq.service.common_routes import common_routes
from sstq.service.database import DatabaseUnavailable
from sstq.service.models import PROBLEMS
from sstq.service.node import Collector, Node
from sstq.service.observing import log_settings, try_to_store
from sstq.service.pages import dashboard_routes, demo_routes, ensure_poll
from sstq.service.protocol import GuardedLoop, guarded_protocol
from sstq.service.reading import reading_routes
from sstq.service.receiving import Refusal
from sstq.service.security import BODY, DEFAULTS, HEADERS, BodyShares, Guard, Problem, database_gone, problem_response
from sstq.service.settings import Settings
from sstq.service.store import UnknownCampaign
from sstq.service.uploads import Uploads

_Node = TypeVar("_Node", bound=Node)

_STOP_SECONDS = 30
_LOOK_SECONDS = 2.0
_ROUTE_THREADS = 6  # more would take the interpreter from uploads
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_MOST_CONNECTIONS = 2000
_DESCRIPTION = (
    "Collects ε-locally differentially private messages and estimates the mean. Every refusal is "
    "application/problem+json (RFC 9457) with a sentence. After 429, 503 or no answer, repeat the request "
    "with the same Idempotency-Key: its messages count once."
)
_UPLOAD = (
    "The body is SSTQ-Count messages of message_bits bits each, packed without gaps, the lowest bit of a byte "
    "first: one person's, or with a sender's token those of many. The collector answers once they are durable."
)


def create_app(settings: Settings) -> FastAPI:
    """Create the ASGI application of a collector; ValueError if its database cannot be used."""
    collector = Collector(settings)
    app = new_app(collector, _DESCRIPTION, _UPLOAD, Folding, partial(Folding, slow=True), Opening)
    app.include_router(reading_routes(collector))
    app.include_router(administration_routes(collector))
    if settings.demo:
        ensure_poll(collector)
        app.router.routes.extend(demo_routes(collector))
    app.router.routes.extend(dashboard_routes())
    return app


def new_app(node: _Node, description: str, upload: str, *work: Callable[[_Node], Rounds]) -> FastAPI:
    """Create an application with the routes of both roles, its background threads, and a sentence for every refusal.

    `upload` describes the body of an upload.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _ROUTE_THREADS
        await asyncio.to_thread(node.warm_up)
        threads = [kind(node) for kind in work]
        async with node.inbox:
            for thread in threads:
                thread.start()
            looking = asyncio.create_task(_look_after(node))
            try:
                yield
            finally:
                looking.cancel()
                for thread in threads:
                    await asyncio.to_thread(thread.stop)
        node.store.close()

    app = FastAPI(
        title=f"sstq {node.role}",
        version=__version__,
        description=description,
        lifespan=lifespan,
        responses=PROBLEMS,
        # FastAPI's documentation pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.node = node
    for kind in (DatabaseUnavailable, UnknownCampaign, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(Exception, _apologize)
    app.include_router(common_routes(node, upload))
    app.add_middleware(Uploads, node=node)
    app.add_middleware(Guard, limits=node.reading, shares=BodyShares())
    return app


async def _look_after(node: Node) -> None:
    """Know whether the database stores, also while nobody sends, and forget addresses that sent nothing recently."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.to_thread(try_to_store, node.store)
        for limits in (node.sending, node.reading):
            limits.forget()


async def _refuse(request: Request, error: Any) -> Response:
    """Answer what a route raised, with a sentence."""
    if isinstance(error, ClientDisconnect):
        return problem_response(Problem(400, "The request ended early."))  # nobody is there
    if isinstance(error, DatabaseUnavailable):
        problem = database_gone()
    elif isinstance(error, UnknownCampaign):  # deleted during the request
        problem = Problem(*Refusal.UNKNOWN.value)
    elif isinstance(error, RequestValidationError):
        wrong = error.errors()[0]
        problem = Problem(422, f"{wrong['loc'][-1]}: {wrong['msg']}.")
    elif error.status_code == 405:
        # The error names the methods of the first route with this path; there may be others.
        scopes = {method: {**request.scope, "method": method} for method in _METHODS}
        routes = request.app.routes
        allowed = [method for method in _METHODS if any(r.matches(scopes[method])[0] is Match.FULL for r in routes)]
        problem = Problem(405, "This path does not support this method.", {"Allow": ", ".join(allowed)})
    elif error.detail == "Not Found":
        problem = Problem(404, "There is nothing at this path.")
    else:
        problem = error
    response: Response = await request.scope[BODY].refuse(problem)
    return response


async def _apologize(request: Request, error: Any) -> Response:  # noqa: ARG001 (uvicorn logs where it was)
    # This answer does not pass through the middleware.
    return problem_response(Problem(500, "Internal error; the service's log has the details.", HEADERS | DEFAULTS))


class _Server(uvicorn.Server):
    """A server that reports the address it listens on."""

    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Objects that exist now stay for good, so the garbage collector should not scan them again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        # A connection is an open file: allow as many as the system does.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._started(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")


def run(settings: Settings, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGINT or SIGTERM, and call `started` with the address; acknowledged uploads survive any exit."""
    serve(create_app(settings), settings, started)


def serve(app: FastAPI, settings: Settings, started: Callable[[str], None]) -> None:
    """Run an app with these settings until the process is told to stop."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=guarded_protocol(settings.proxies),
        ws="none",
        lifespan="on",
        log_config=log_settings(settings.log_format),
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies or None,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    try:
        config.load()
    except ssl.SSLError as error:
        raise ValueError(
            f"certificate and private_key must be a certificate chain and its key (PEM), got {settings.certificate} "
            f"and {settings.private_key}: {error.reason or error}"
        ) from error
    with asyncio.Runner(loop_factory=GuardedLoop) as runner:
        runner.run(_Server(config, started).serve())
