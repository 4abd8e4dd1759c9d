"""The shuffler's settings, which are also options and environment variables of `sstq shuffler`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sstq.checks import check_number
from sstq.service.settings import Settings

__all__ = ["ShufflerSettings"]


@dataclass(frozen=True)
class ShufflerSettings(Settings):
    """The settings of one process of a shuffler: those of a server, and these.

    Attributes:
        collector: the address of the collector that batches are forwarded to.
        collector_key: the collector's public key in hexadecimal; None to trust and store the first one seen.
        closing_seconds: how long after a campaign's end to wait for late uploads before envelopes
            below the threshold are dropped or forwarded.
        fetch_seconds: how often to ask the collector whether campaigns have changed.
        folder: the folder for temporary files; None for the system's.
    """

    collector: str = ""
    collector_key: str | None = None
    closing_seconds: float = 60.0
    fetch_seconds: float = 10.0
    folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = urlsplit(self.collector)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"collector must be a URL with http:// or https://, got {self.collector!r}")
        if self.collector_key is not None and not re.fullmatch("[0-9a-f]{64}", self.collector_key):
            raise ValueError(f"collector_key must be 64 hexadecimal digits, got {self.collector_key!r}")
        check_number("closing_seconds", self.closing_seconds, 0, 1e6)
        check_number("fetch_seconds", self.fetch_seconds, 0.01, 3600)
