"""One server process: uvicorn with deadlines for slow clients, and a log that knows nobody."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

import uvicorn

from sstq.service.app import create_app
from sstq.service.protocol import GuardedProtocol
from sstq.service.settings import Settings

__all__ = ["PrivateFormatter", "configuration", "run"]

_MOST_CONNECTIONS = 2000
_IDLE_SECONDS = 15
_SHUTDOWN_SECONDS = 20


class PrivateFormatter(logging.Formatter):
    """Log lines with the hour and no finer time. Of an error they have its kind and where, not what it says.

    What an error says may hold parts of a request, such as a key or the bytes of a message.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H h")

    def formatException(self, info: Any) -> str:  # noqa: N802 (the name is logging's)
        """The kind of an error and its places in the code."""
        kind, _, places = info
        return "".join([*traceback.format_tb(places), getattr(kind, "__name__", str(kind))])


def configuration(settings: Settings) -> uvicorn.Config:
    """How uvicorn runs the application: no access log, no Server header, bounds for connections and time."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(PrivateFormatter())
    for name in ("uvicorn", "sstq.service"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    return uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=GuardedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies or None,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )


def run(settings: Settings) -> None:
    """Serve until a signal ends it; what was acknowledged is stored, what is stored is folded after the next start."""
    uvicorn.Server(configuration(settings)).run()
