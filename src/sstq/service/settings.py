"""The settings of a server process, which are options and environment variables of `sstq serve` and `sstq shuffler`."""

import ipaddress
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from sstq.checks import ArgumentError, check_number, check_option
from sstq.client.campaigns import check_address, check_key

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Settings:
    """The settings of one server process.

    Attributes:
        database: the database's URL, ``sqlite:///FILE`` or ``postgresql+psycopg://…``.
        administrator_token: the token that permits everything.
        metrics_token: a token that permits reading the metrics; None if only the administrator may.
        host: the address to listen on, in plain HTTP; any but the loopback interface needs `behind_proxy`.
        port: the port to listen on; 0 for a free one.
        unix: the path of a Unix socket to listen on instead; its folder says who may connect.
        behind_proxy: the addresses or networks of proxies whose X-Forwarded-For is trusted, separated by commas; empty
            for none. Those who connect through a Unix socket are always trusted.
        messages_per_second: anonymous messages per second and address; 0 for no limit.
        burst: how many anonymous messages an address may send at once.
        reads_per_second: requests for estimates and other answers per second and address, of 64 KiB each; 0 for no
            limit.
        fold_seconds: the seconds between rounds of background work.
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
    unix: Path | None = None
    behind_proxy: str = ""
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
            if token is not None and (
                len(token) < _SHORTEST_TOKEN
                or not token.isascii()
                or not token.isprintable()
            ):
                raise ValueError(
                    f"{name} must be at least {_SHORTEST_TOKEN} printable ASCII characters"
                )
        check_number("port", self.port, 0, 65535, integer=True)
        check_number("messages_per_second", self.messages_per_second, 0, 1e9)
        check_number("reads_per_second", self.reads_per_second, 0, 1e9)
        check_option("log_format", self.log_format, ("text", "json"))
        check_number("burst", self.burst, 1, 10**9, integer=True)
        check_number("fold_seconds", self.fold_seconds, 0.01, 3600)
        check_number("grace_hours", self.grace_hours, 0, 10**6, integer=True)
        for proxy in filter(None, self.behind_proxy.split(",")):
            _check_network("behind_proxy", proxy.strip())
        if not self.behind_proxy and not _is_loopback(self.host):
            raise ArgumentError(
                "behind_proxy",
                f"must be the addresses of a proxy with TLS where host={self.host!r}, got none: this is plain HTTP; "
                "leave host out if the proxy runs on this machine",
            )

    @classmethod
    def from_environment(cls, **given: Any) -> Self:
        """Make settings of what is given and, for the others, of environment variables such as SSTQ_BURST."""
        for own in fields(cls):
            text = os.environ.get(f"SSTQ_{own.name.upper()}")
            if own.name not in given and text:
                kind: Any = own.type if own.type in (int, float) else str
                try:
                    given[own.name] = kind(text)
                except ValueError as error:
                    raise ValueError(
                        f"SSTQ_{own.name.upper()} must be a number, got {text!r}"
                    ) from error
        return cls(**given)


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
        fetch_seconds: how often to ask the collector whether campaigns have changed; while it does not answer, less
            and less often.
    """

    public_url: str | None = None
    collector: str = ""
    collector_key: str | None = None
    closing_seconds: float = 60.0
    fetch_seconds: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_url is None:
            if not self.port or self.unix is not None:
                example = "such as https://shuffle.example, got None"
                raise ValueError(
                    f"public_url must be given with port=0 or unix, {example}"
                )
            host = f"[{self.host}]" if ":" in self.host else self.host
            object.__setattr__(self, "public_url", f"http://{host}:{self.port}")
        check_address("public_url", self.public_url)
        check_address("collector", self.collector)
        if self.collector_key is not None:
            check_key("collector_key", self.collector_key)
        check_number("closing_seconds", self.closing_seconds, 0, 1e6)
        check_number("fetch_seconds", self.fetch_seconds, 0.01, 3600)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_network(name: str, value: str) -> None:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        raise ArgumentError(
            name,
            f"must be addresses or networks such as 127.0.0.1 or 172.30.0.0/24, got {value!r}",
        ) from error
