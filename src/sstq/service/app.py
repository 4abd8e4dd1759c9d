"""The collector as an ASGI application, and the server that runs it."""

import asyncio
import errno
import gc
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
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
from sstq.service import administration, common_routes, reading
from sstq.service.background import Folding, Learning, Opening, Rounds
from sstq.service.collector import Collector
from sstq.service.database import DatabaseUnavailable
from sstq.service.models import PROBLEMS
from sstq.service.node import Node
from sstq.service.observing import log_settings, try_to_store
from sstq.service.pages import dashboard_routes, demo_link, demo_routes, ensure_poll
from sstq.service.receiving import Refusal
from sstq.service.security import (
    BODY,
    DEFAULTS,
    HEADERS,
    BodyShares,
    Guard,
    Problem,
    database_gone,
    problem_response,
)
from sstq.service.settings import Settings
from sstq.service.store import UnknownCampaign
from sstq.service.uploads import Uploads

_Node = TypeVar("_Node", bound=Node)

_STOP_SECONDS = 30
_LOOK_SECONDS = 2.0
_ROUTE_THREADS = 6  # more would take the interpreter from uploads
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_MOST_CONNECTIONS = 2000
# longer than the proxies of deploy/ keep theirs: none is closed while a request is on its way
_KEEP_ALIVE_SECONDS = 90
_BACKLOG = 2048
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
    app = new_app(
        collector,
        _DESCRIPTION,
        _UPLOAD,
        Folding,
        partial(Folding, slow=True),
        Opening,
        Learning,
    )
    for router in (
        reading.router,
        reading.administration,
        administration.router,
        administration.forwarding,
    ):
        app.include_router(router)
    if settings.demo:
        ensure_poll(collector)
        app.router.routes.extend(demo_routes())
        app.state.poll = demo_link(collector)
    app.router.routes.extend(dashboard_routes())
    return app


def new_app(
    node: _Node, description: str, upload: str, *work: Callable[[_Node], Rounds]
) -> FastAPI:
    """Create an application with the routes of both roles, its background threads, and a sentence for every refusal.

    `upload` describes the body of an upload.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _ROUTE_THREADS
        await asyncio.to_thread(node.warm_up)
        threads = [kind(node) for kind in work]
        async with node.inbox:
            for thread in threads:
                thread.start()
            looking = asyncio.create_task(_look_after(node))
            app.state.ready()
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
    app.state.ready = lambda: None
    for kind in (
        DatabaseUnavailable,
        UnknownCampaign,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
    ):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(Exception, _apologize)
    for router in (
        common_routes.router,
        common_routes.upload_routes(upload),
        common_routes.administration,
    ):
        app.include_router(router)
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
        # nobody is there
        return problem_response(Problem(400, "The request ended early."))
    if isinstance(error, DatabaseUnavailable):
        problem = database_gone()
    elif isinstance(error, UnknownCampaign):  # deleted during the request
        problem = Problem(*Refusal.UNKNOWN.value)
    elif isinstance(error, RequestValidationError):
        problem = Problem(422, _what_is_wrong(error.errors()[0]))
    elif error.status_code == 405:
        # The error names the methods of the first route with this path; there may be others.
        scopes = {method: {**request.scope, "method": method} for method in _METHODS}
        routes = request.app.routes
        allowed = [
            method
            for method in _METHODS
            if any(r.matches(scopes[method])[0] is Match.FULL for r in routes)
        ]
        problem = Problem(
            405,
            "This path does not support this method.",
            {"Allow": ", ".join(allowed)},
        )
    elif error.detail == "Not Found":
        problem = Problem(404, "There is nothing at this path.")
    else:
        problem = error
    response: Response = await request.scope[BODY].refuse(problem)
    return response


def _what_is_wrong(found: dict[str, Any]) -> str:
    """A sentence for what a body, a header or a parameter is refused for."""
    if found["type"] == "json_invalid":
        return f"The body must be JSON: {found['ctx']['error']} at character {found['loc'][-1]}."
    if found["loc"] == ("body",):
        return "The body must be a JSON object, with the Content-Type application/json."
    return f"{found['loc'][-1]}: {found['msg']}."


async def _apologize(request: Request, error: Any) -> Response:  # noqa: ARG001 (uvicorn logs where it was)
    # This answer does not pass through the middleware.
    return problem_response(
        Problem(
            500,
            "Internal error; the service's log has the details.",
            HEADERS | DEFAULTS,
        )
    )


def run(settings: Settings, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGINT or SIGTERM, and call `started` with the address; acknowledged uploads survive any exit."""
    serve(create_app(settings), settings, started)


def serve(app: FastAPI, settings: Settings, started: Callable[[str], None]) -> None:
    """Run an app with these settings until the process is told to stop."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=log_settings(settings.log_format),
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.behind_proxy or settings.unix),
        # Who reaches the socket is the proxy.
        forwarded_allow_ips=settings.behind_proxy if settings.unix is None else "*",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    with _bound(settings) as listening:

        def ready() -> None:
            # Objects that exist now stay for good, so the garbage collector should not scan them again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 20, 20)
            # A connection is an open file: allow as many as the system does.
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            listening.listen(_BACKLOG)
            started(_address(listening))

        app.state.ready = ready
        uvicorn.Server(config).run(sockets=[listening])


def _bound(settings: Settings) -> socket.socket:
    """Return the socket to listen on; ValueError if it cannot be had."""
    if settings.unix is not None:
        made = socket.socket(socket.AF_UNIX)
        where: Any = str(settings.unix)
        remedy = "pass another --unix"
    else:
        made = socket.socket(
            socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        )
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        where = (settings.host, settings.port)
        remedy = (
            f"stop the other program, or pass --port {settings.port + 1} or --port 0"
        )
    try:
        if settings.unix is not None:
            _remove_unused(settings.unix)
        made.bind(where)
        if settings.unix is not None:
            settings.unix.chmod(0o666)  # the folder says who may enter
    except OSError as error:
        made.close()
        named = (
            where
            if settings.unix is not None
            else f"port {settings.port} of {settings.host}"
        )
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"{named} is in use; {remedy}") from error
        raise ValueError(
            f"nothing can listen on {named}: {error.strerror or error}"
        ) from error
    return made


def _remove_unused(path: Path) -> None:
    """Delete the socket that a killed process left; OSError if one listens on it."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def _address(listening: socket.socket) -> str:
    if listening.family is socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
