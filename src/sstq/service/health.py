"""Whether the service can store: known from its last uploads, or tried now and then while there are none."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sstq.service.database import DatabaseUnavailable
from sstq.service.security import Problem
from sstq.service.store import Store

__all__ = ["Health"]

_IDLE_SECONDS, _STALE_SECONDS = 10.0, 30.0
_LEAST_FREE_BYTES = 1 << 24


class Health:
    """What was seen last; asking for it waits for nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored = time.monotonic()
        self._failed = False

    def saw(self, *, stored: bool) -> None:
        """Note whether something could be stored."""
        self._failed = not stored
        if stored:
            self._stored = time.monotonic()

    def check(self) -> None:
        """Raise a Problem unless the service can store."""
        later = {"Retry-After": "5"}
        if self._failed or time.monotonic() - self._stored > _STALE_SECONDS:
            raise Problem(503, "The database is not available.", later)
        url = self._store.url
        if self._store.sqlite and url.database:
            disk = os.statvfs(Path(url.database).parent)
            if disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES:
                raise Problem(503, "The disk of the database is almost full.", later)

    def look(self) -> None:
        """Try to store something, unless something was stored recently; call it now and then, in a thread."""
        if self._failed or time.monotonic() - self._stored > _IDLE_SECONDS:
            try:
                self._store.ping()
            except DatabaseUnavailable:
                self.saw(stored=False)
            else:
                self.saw(stored=True)
