"""What an operator decides about a collector; the same names are options and environment variables of `sstq serve`."""

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
        database: where everything is kept, ``sqlite:///FILE`` or ``postgresql+psycopg://…``.
        administrator_token: who sends it may do everything.
        metrics_token: who sends it may read the metrics, as the administrator may; None for nobody else.
        host: the address to listen on.
        port: the port to listen on; 0 for a free one.
        certificate: the file of a TLS certificate chain; None for plain HTTP, behind a proxy that does TLS.
        private_key: the file of the certificate's private key.
        proxies: the addresses of proxies whose X-Forwarded-For is believed, separated by commas; empty for none.
        uploads_per_second: how many uploads an address may send where everybody may; 0 for no limit.
        burst: how many of them it may send at once.
        fold_seconds: how long stored uploads wait before they are folded into the state.
        grace_hours: how long keys are kept after a campaign closes, so that late retries get their answer.
        demo: whether there is a poll for visitors at /demo/.
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
