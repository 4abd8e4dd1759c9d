"""The collection service: it receives messages over HTTP, stores them durably and keeps an estimate up to date.

Install it with ``pip install 'sstq[service]'``. Names are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.service.app import create_app, run
    from sstq.service.settings import Settings

__all__ = ["Settings", "create_app", "run"]

_HOMES = {"Settings": "sstq.service.settings", "create_app": "sstq.service.app", "run": "sstq.service.app"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sstq.service' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ImportError as error:
        raise ImportError(
            f"the collection service needs more packages ({error}): pip install 'sstq[service]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
