"""The collection service: it receives messages over HTTP, stores them durably and keeps an estimate up to date.

Install it with ``pip install 'sstq[service]'``.
"""

try:
    from sstq.service.app import create_app, run
    from sstq.service.settings import Settings
except ImportError as error:
    raise ImportError(
        f"the collection service needs more packages ({error}): pip install 'sstq[service]'"
    ) from error

__all__ = ["Settings", "create_app", "run"]
