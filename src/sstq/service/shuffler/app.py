"""The shuffler as an ASGI application, and the server that runs it."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from sstq.service.app import new_app, serve
from sstq.service.common_routes import common_routes
from sstq.service.security import Guard
from sstq.service.shuffler.node import Shuffler
from sstq.service.shuffler.routes import Envelopes, shuffler_gauges, shuffler_routes
from sstq.service.shuffler.settings import ShufflerSettings
from sstq.service.shuffler.work import Work

__all__ = ["create_shuffler_app", "run_shuffler"]

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
    return _app(Shuffler(settings))


def _app(shuffler: Shuffler) -> FastAPI:
    shuffler.metrics.gauges = lambda: shuffler_gauges(shuffler)
    app = new_app(shuffler, "sstq shuffler", _DESCRIPTION, Work)
    app.include_router(
        common_routes(
            shuffler,
            _UPLOAD,
            lambda entry: {
                "SSTQ-Signature": entry.signature,
                "SSTQ-Shuffler-Signature": shuffler.countersignature(entry),
            },
        )
    )
    app.include_router(shuffler_routes(shuffler))
    app.add_middleware(Envelopes, node=shuffler)
    app.add_middleware(Guard, node=shuffler)
    return app


def run_shuffler(settings: ShufflerSettings, started: Callable[[str, str], None] = lambda _, __: None) -> None:
    """Serve until the process is told to stop; acknowledged envelopes survive any kind of exit.

    Args:
        settings: the settings of this process.
        started: called with the address and the shuffler's public key once the server accepts requests.
    """
    shuffler = Shuffler(settings)
    serve(_app(shuffler), settings, lambda url: started(url, shuffler.key.public.hex()))
