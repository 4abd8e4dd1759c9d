"""The collector's settings, which are also options and environment variables of `sstq serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sstq.checks import check_number

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
        uploads_per_second: uploads per second and address, in campaigns open to everybody; 0 for no limit.
        burst: how many uploads an address may send at once.
        fold_seconds: the seconds between rounds that fold stored uploads into the state.
        grace_hours: how long keys are kept after a campaign closes, so that late retries are answered.
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
    uploads_per_second: float = 100.0
    burst: int = 1000
    fold_seconds: float = 1.0
    grace_hours: int = 72
    demo: bool = False

    def __post_init__(self) -> None:
        for name in ("administrator_token", "metrics_token"):
            token = getattr(self, name)
            if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
                raise ValueError(f"{name} must be at least {_SHORTEST_TOKEN} printable ASCII characters")
        check_number("port", self.port, 0, 65535, integer=True)
        check_number("uploads_per_second", self.uploads_per_second, 0, 1e9)
        check_number("burst", self.burst, 1, 10**9, integer=True)
        check_number("fold_seconds", self.fold_seconds, 0.01, 3600)
        check_number("grace_hours", self.grace_hours, 0, 10**6, integer=True)
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key must be given together")
