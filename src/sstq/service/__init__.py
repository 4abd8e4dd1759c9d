"""The collection service: it receives messages over HTTP, stores them durably and keeps an estimate up to date.

Install it with ``pip install 'sstq[service]'``. Names are loaded on first use: `Client` imports neither the server nor
the database, and needs only `cryptography` besides the library itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.client import Campaign, Client, Shuffling
    from sstq.service.app import create_app, run
    from sstq.service.settings import Settings

__all__ = ["Campaign", "Client", "Settings", "Shuffling", "create_app", "run"]

_HOMES = {"Settings": "sstq.service.settings", "create_app": "sstq.service.app", "run": "sstq.service.app"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sstq.service' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES.get(name, "sstq.client")), name)
    except ImportError as error:
        raise ImportError(
            f"sstq.service.{name} needs packages that are not installed ({error}): pip install 'sstq[service]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
