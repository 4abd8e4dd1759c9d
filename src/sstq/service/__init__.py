"""The collection service: it receives messages over HTTP, stores them durably and keeps an estimate up to date.

Install it with ``pip install 'sstq[service]'``. Names are loaded on first use: `Client` imports neither the server nor
the database, and needs only `cryptography` besides the library itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.client.campaigns import Campaign as Campaign
    from sstq.client.campaigns import Shuffling as Shuffling
    from sstq.client.sending import Client as Client
    from sstq.service.app import create_app as create_app
    from sstq.service.app import run as run
    from sstq.service.settings import Settings as Settings

_HOMES = {
    "Campaign": "sstq.client.campaigns",
    "Client": "sstq.client.sending",
    "Settings": "sstq.service.settings",
    "Shuffling": "sstq.client.campaigns",
    "create_app": "sstq.service.app",
    "run": "sstq.service.app",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            value = getattr(import_module(_HOMES[name]), name)
        except ImportError as error:
            raise ImportError(
                f"sstq.service.{name} needs packages that are not installed ({error}): pip install 'sstq[service]'"
            ) from error
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sstq.service' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
