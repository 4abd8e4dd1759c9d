"""The collector's settings, which are also options and environment variables of `sstq serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sstq.checks import check_number, check_option

__all__ = ["Settings"]

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Settings:
    """The settings of one server process.

    Attributes:
        database: the database's URL, ``sqlite:///FILE`` or ``postgresql+psycopg://…``.
        administrator_token: the token that permits everything.
        metrics_token: a token that permits reading the metrics; None if only the administrator may.
        host: the address to listen on.
        port: the port to listen on; 0 for a free one.
        certificate: the file of a TLS certificate chain; None for plain HTTP behind a proxy that does TLS.
        private_key: the file of the certificate's private key.
        proxies: the addresses of proxies whose X-Forwarded-For is trusted, separated by commas; empty for none.
        messages_per_second: anonymous messages per second and address; 0 for no limit.
        burst: how many anonymous messages an address may send at once.
        reads_per_second: requests for estimates and other answers per second and address, of 64 KiB each; 0 for no
            limit.
        fold_seconds: the seconds between rounds that fold stored uploads into the state.
        grace_hours: for how many hours of service keys are kept after a campaign closes, so that late retries are
            answered.
        upgrade: whether to upgrade a database of an earlier release.
        log_format: how log lines are written: "text" or "json".
        demo: whether to serve a demonstration poll at /demo/.

    Examples:
        >>> Settings("sqlite:///collector.sqlite3", administrator_token="x" * 32).port
        8080
    """

    database: str
    administrator_token: str = field(repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    private_key: Path | None = None
    proxies: str = ""
    messages_per_second: float = 100.0
    burst: int = 1000
    reads_per_second: float = 40.0
    fold_seconds: float = 1.0
    grace_hours: int = 72
    upgrade: bool = False
    log_format: Literal["text", "json"] = "text"
    demo: bool = False

    def __post_init__(self) -> None:
        for name in ("administrator_token", "metrics_token"):
            token = getattr(self, name)
            if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
                raise ValueError(f"{name} must be at least {_SHORTEST_TOKEN} printable ASCII characters")
        check_number("port", self.port, 0, 65535, integer=True)
        check_number("messages_per_second", self.messages_per_second, 0, 1e9)
        check_number("reads_per_second", self.reads_per_second, 0, 1e9)
        check_option("log_format", self.log_format, ("text", "json"))
        check_number("burst", self.burst, 1, 10**9, integer=True)
        check_number("fold_seconds", self.fold_seconds, 0.01, 3600)
        check_number("grace_hours", self.grace_hours, 0, 10**6, integer=True)
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key must be given together")
