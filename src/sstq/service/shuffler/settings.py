"""The shuffler's settings, which are also options and environment variables of `sstq shuffler`."""

from __future__ import annotations

from dataclasses import dataclass

from sstq.checks import check_number
from sstq.client.campaigns import check_address, check_key
from sstq.service.settings import Settings

__all__ = ["ShufflerSettings"]


@dataclass(frozen=True)
class ShufflerSettings(Settings):
    """The settings of one process of a shuffler: those of a server, and these.

    Attributes:
        public_url: the address under which clients reach this shuffler; it signs no campaign that names another. None
            for the address that it listens on.
        collector: the address of the collector that batches are forwarded to.
        collector_key: the collector's public key in hexadecimal; None to trust and store the first one seen.
        closing_seconds: how long after a campaign's end to wait for late uploads before envelopes
            below the threshold are dropped or forwarded.
        fetch_seconds: how often to ask the collector whether campaigns have changed.
        folder: the folder for temporary files; None for the system's.
    """

    public_url: str | None = None
    collector: str = ""
    collector_key: str | None = None
    closing_seconds: float = 60.0
    fetch_seconds: float = 10.0
    folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_url is None:
            if not self.port:
                raise ValueError("public_url must be given with port=0, such as https://shuffle.example, got None")
            host = f"[{self.host}]" if ":" in self.host else self.host
            listening = f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"
            object.__setattr__(self, "public_url", listening)
        check_address("public_url", self.public_url)
        check_address("collector", self.collector)
        if self.collector_key is not None:
            check_key("collector_key", self.collector_key)
        check_number("closing_seconds", self.closing_seconds, 0, 1e6)
        check_number("fetch_seconds", self.fetch_seconds, 0.01, 3600)
