"""Whether the service can store: known from its last uploads, or tried now and then while there are none."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from sstq.service.database import DatabaseUnavailable
from sstq.service.security import Problem
from sstq.service.store import Store

__all__ = ["Health"]

_TRY_SECONDS, _IDLE_SECONDS, _STALE_SECONDS = 1.0, 10.0, 30.0
_LEAST_FREE_BYTES = 1 << 24


class Health:
    """What was seen last; asking for it waits for nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored = time.monotonic()
        self._failed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sstq-health", daemon=True)

    def start(self) -> None:
        """Start to try."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to try."""
        self._stopping.set()

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

    def _run(self) -> None:
        while not self._stopping.wait(_TRY_SECONDS):
            if self._failed or time.monotonic() - self._stored > _IDLE_SECONDS:
                try:
                    self._store.ping()
                except DatabaseUnavailable:
                    self.saw(stored=False)
                else:
                    self.saw(stored=True)
