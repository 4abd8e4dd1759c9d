"""`sstq serve` and `sstq shuffler`: run the collector, and the shuffler between clients and a collector."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import WrongUsage, check_usage, flag, option
from sstq.cli.terminal import note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sstq.service import Settings

_TOKEN_FILE = "administrator-token"  # noqa: S105 (the name of a file)

_Folder = Annotated[Path, option("Keep the database and the token here.", "--folder", envvar="SSTQ_FOLDER")]
_Host = Annotated[str, option("Listen on this address.", envvar="SSTQ_HOST")]
_Port = Annotated[int, option("Listen on this port; 0 for a free one.", envvar="SSTQ_PORT")]
_Database = Annotated[str | None, option("Use this database (postgresql+psycopg://…).", envvar="SSTQ_DATABASE")]
_Certificate = Annotated[
    Path | None, option("Use TLS with this certificate (PEM).", envvar="SSTQ_CERTIFICATE", exists=True)
]
_PrivateKey = Annotated[Path | None, option("Use this private key (PEM).", envvar="SSTQ_PRIVATE_KEY", exists=True)]
_Upgrade = Annotated[bool, flag("Upgrade a database of an earlier release; copy it first.", "--upgrade")]


def serve(
    folder: _Folder,
    host: _Host = "127.0.0.1",
    port: _Port = 8080,
    database: _Database = None,
    certificate: _Certificate = None,
    private_key: _PrivateKey = None,
    upgrade: _Upgrade = False,
    demo: Annotated[bool, flag("Serve a demonstration poll at /demo/.", "--demo", envvar="SSTQ_DEMO")] = False,
) -> None:
    """Run a collector that receives messages over HTTP, stores them durably and keeps an estimate up to date.

    The folder is created if it does not exist. The first start stores an administrator token there, readable
    only by you, and prints it once.
    `sstq campaign create` creates a campaign, `sstq send` sends to it. Stop with Ctrl-C.

    Further settings are environment variables: SSTQ_ADMINISTRATOR_TOKEN, SSTQ_METRICS_TOKEN, SSTQ_PROXIES,
    SSTQ_MESSAGES_PER_SECOND, SSTQ_BURST, SSTQ_READS_PER_SECOND, SSTQ_FOLD_SECONDS, SSTQ_GRACE_HOURS and
    SSTQ_LOG_FORMAT.

    Example: sstq serve --folder collector

    Example: sstq serve --folder collector --demo

    Example: sstq serve --folder collector --host 0.0.0.0 --certificate chain.pem --private-key key.pem
    """
    from sstq.service import Settings, create_app
    from sstq.service.app import serve as run

    common, shown = _prepare("collector", folder, host, port, database, certificate, private_key)
    with check_usage():
        settings = Settings.from_environment(**common, upgrade=upgrade, demo=demo)
    with _refused_without_upgrade("serve", folder):
        app = create_app(settings)

    def started(url: str) -> None:
        facts = {"poll": f"{url}/demo/"} if demo else {}
        _say_started(settings, url, facts, token=shown, warnings=app.state.node.warnings())

    run(app, settings, started)


def shuffler(
    folder: _Folder,
    collector: Annotated[str, option("Forward to the collector at this address.", envvar="SSTQ_COLLECTOR")],
    public_url: Annotated[
        str | None,
        option(
            "Sign only campaigns that name this address.",
            envvar="SSTQ_PUBLIC_URL",
            show_default="the address that it listens on",
        ),
    ] = None,
    collector_key: Annotated[
        str | None,
        option(
            "Refuse a collector without this public key.",
            envvar="SSTQ_COLLECTOR_KEY",
            show_default="the first one seen",
        ),
    ] = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8081,
    database: _Database = None,
    certificate: _Certificate = None,
    private_key: _PrivateKey = None,
    upgrade: _Upgrade = False,
) -> None:
    """Run a shuffler that receives sealed messages, mixes those of many people, forwards them and deletes its copies.

    It mixes when a campaign has closed. What people agreed to when they sent stays as it is, whatever the collector
    says later.

    It sees who sends, but not what; the collector sees what, but not who. So run it on another machine, operated by
    others than the collector. It prints its public key for the file of `sstq campaign create --shuffling`.

    Further settings are environment variables: those of `sstq serve`, SSTQ_FETCH_SECONDS and SSTQ_CLOSING_SECONDS.

    Example: sstq shuffler --folder shuffler --collector http://127.0.0.1:8080 --public-url https://shuffle.example
    """
    from sstq.service.app import serve as run
    from sstq.service.shuffler import ShufflerSettings, create_shuffler_app

    common, shown = _prepare("shuffler", folder, host, port, database, certificate, private_key)
    with check_usage():
        settings = ShufflerSettings.from_environment(
            **common,
            upgrade=upgrade,
            public_url=public_url,
            collector=collector.rstrip("/"),
            collector_key=collector_key,
        )

    with _refused_without_upgrade("shuffler", folder):
        app = create_shuffler_app(settings)
    key = app.state.node.key.public.hex()
    run(app, settings, lambda url: _say_started(settings, url, {"public key": key}, token=shown))


def _prepare(
    service: str,
    folder: Path,
    host: str,
    port: int,
    database: str | None,
    certificate: Path | None,
    private_key: Path | None,
) -> tuple[dict[str, Any], str]:
    """Check what can be checked, create the folder, and return settings with what to print of the token.

    From now on nobody else can read what is written: databases, keys and tokens.
    """
    from sstq.service.database import sqlite_url

    if (certificate is None) != (private_key is None):
        raise WrongUsage("--certificate and --private-key must be given together")
    check_port(host, port)
    os.umask(0o077)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        note(f"Other users can look into {folder}; keep them out with: chmod -R go-rwx {folder}")
    token, shown = kept_token(folder)
    url = database or sqlite_url(folder / f"{service}.sqlite3")
    settings = {"database": url, "administrator_token": token, "host": host, "port": port}
    return settings | {"certificate": certificate, "private_key": private_key}, shown


@contextmanager
def _refused_without_upgrade(command: str, folder: Path) -> Iterator[None]:
    """Name the command that upgrades a database of an earlier release."""
    from sstq.service.migrations import NeedsUpgrade

    try:
        yield
    except NeedsUpgrade as error:
        raise ValueError(
            f"{folder} has a database of an earlier release of sstq; make a copy of it, then run: "
            f"sstq {command} --folder {folder} --upgrade"
        ) from error


def _say_started(
    settings: Settings, url: str, facts: Mapping[str, str], *, token: str, warnings: Iterable[str] = ()
) -> None:
    """Print the address, some facts and what to say of the token; say so if others can listen on the network."""
    for name, value in {"address": url, **facts, "administrator token": token}.items():
        typer.echo(f"{name:19}  {value}")
    if settings.certificate is None and settings.host not in ("127.0.0.1", "::1", "localhost"):
        note("This is plain HTTP: put a proxy with TLS in front of it, or pass --certificate and --private-key.")
    for warning in warnings:
        note(warning)


def check_port(host: str, port: int) -> None:
    """Raise ValueError if another program listens on the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ValueError(
                    f"port {port} of {host} is in use; stop the other program, or pass --port {port + 1} or --port 0"
                ) from error


def kept_token(folder: Path) -> tuple[str, str]:
    """Return the administrator's token, and what to print of it: itself once, when it is created.

    It is the one of the environment, or that of the folder, which is created if it does not exist.
    """
    from sstq.service.security import new_token

    given = os.environ.get("SSTQ_ADMINISTRATOR_TOKEN")
    if given:
        return given, "as given"
    path = folder / _TOKEN_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip(), f"in {path}"
    token = new_token()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(descriptor)
    return token, token
