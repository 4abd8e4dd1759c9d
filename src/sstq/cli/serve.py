"""`sstq serve` and `sstq shuffler`: run the collector, and the shuffler between clients and a collector."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from sstq.cli.common import (
    WrongUsage,
    check_usage,
    flag,
    option,
    refuse_empty_variables,
    required,
)
from sstq.cli.terminal import note

_TOKEN_FILE = "administrator-token"  # noqa: S105 (the name of a file)


def _variable(name: str) -> dict[str, Any]:
    """The environment variable of an option, which the help names once for all."""
    return {"envvar": name, "show_envvar": False}


_FOLDER = required(
    "Keep the database and the token here.", "--folder", **_variable("SSTQ_FOLDER")
)
_HOST = option("Listen on this address.", default="127.0.0.1", **_variable("SSTQ_HOST"))
_PORT = "Listen on this port; 0 for a free one."
_DATABASE = option(
    "Use this database, by its URL.",
    **_variable("SSTQ_DATABASE"),
    show_default="SQLite in the folder",
)
_UNIX = option("Listen on this Unix socket instead.", **_variable("SSTQ_UNIX"))
_BEHIND_PROXY = option(
    "Trust a proxy at these addresses.",
    default="",
    metavar="ADDRESSES",
    **_variable("SSTQ_BEHIND_PROXY"),
)
_UPGRADE = flag("Upgrade an older database; copy it first.", "--upgrade")


def serve(
    folder: Path = _FOLDER,
    host: str = _HOST,
    port: int = option(_PORT, default=8080, **_variable("SSTQ_PORT")),
    database: str | None = _DATABASE,
    unix: Path | None = _UNIX,
    behind_proxy: str = _BEHIND_PROXY,
    upgrade: bool = _UPGRADE,
    demo: bool = flag(
        "Serve a demonstration poll at /demo/.", "--demo", **_variable("SSTQ_DEMO")
    ),
) -> None:
    """Run a collector that receives messages over HTTP, stores them durably and keeps an estimate up to date.

    The first start makes the folder, stores an administrator token there and prints it once. If
    SSTQ_ADMINISTRATOR_TOKEN is set, that is the token, and none is stored. Stop with Ctrl-C.

    Each option is also a variable: --port is SSTQ_PORT. Variables only: SSTQ_ADMINISTRATOR_TOKEN, SSTQ_METRICS_TOKEN,
    SSTQ_MESSAGES_PER_SECOND, SSTQ_BURST, SSTQ_READS_PER_SECOND, SSTQ_FOLD_SECONDS, SSTQ_GRACE_HOURS, SSTQ_LOG_FORMAT.

    Example: sstq serve --folder collector --demo
    """
    from sstq.service import Settings, create_app

    options = {
        "host": host,
        "port": port,
        "unix": unix,
        "behind_proxy": behind_proxy,
        "database": database,
    }
    _run("serve", folder, Settings, create_app, **options, upgrade=upgrade, demo=demo)


def shuffler(
    folder: Path = _FOLDER,
    collector: str = required(
        "Forward to the collector at this address.", **_variable("SSTQ_COLLECTOR")
    ),
    public_url: str | None = option(
        "Sign only campaigns that name this address.",
        **_variable("SSTQ_PUBLIC_URL"),
        show_default="the address that it listens on",
    ),
    collector_key: str | None = option(
        "Refuse a collector without this public key.",
        **_variable("SSTQ_COLLECTOR_KEY"),
        show_default="the first one seen",
    ),
    host: str = _HOST,
    port: int = option(_PORT, default=8081, **_variable("SSTQ_PORT")),
    database: str | None = _DATABASE,
    unix: Path | None = _UNIX,
    behind_proxy: str = _BEHIND_PROXY,
    upgrade: bool = _UPGRADE,
) -> None:
    """Run a shuffler that receives sealed messages, mixes those of many people, forwards them and deletes its copies.

    It mixes when a campaign has closed. What people agreed to when they sent stays as it is, whatever the collector
    says later.

    It sees who sends, but not what; the collector sees what, but not who. So run it on another machine, operated by
    others than the collector. It prints its public key for the file of `sstq campaign create --shuffling`.

    Further settings are environment variables: those of `sstq serve`, SSTQ_FETCH_SECONDS and SSTQ_CLOSING_SECONDS.

    Example: sstq shuffler --folder shuffler --collector http://127.0.0.1:8080 --public-url https://shuffle.example
    """
    from sstq.service.shuffler import ShufflerSettings, create_shuffler_app

    refuse_empty_variables("SSTQ_COLLECTOR_KEY")
    options = {
        "host": host,
        "port": port,
        "unix": unix,
        "behind_proxy": behind_proxy,
        "database": database,
    }
    named = {
        "public_url": public_url,
        "collector": collector.rstrip("/"),
        "collector_key": collector_key,
    }
    _run(
        "shuffler",
        folder,
        ShufflerSettings,
        create_shuffler_app,
        **options,
        upgrade=upgrade,
        **named,
    )


def _run(
    command: str, folder: Path, kind: Any, create: Callable[[Any], Any], **options: Any
) -> None:
    """Run a service until it is told to stop; nobody else can read what it writes: databases, keys and tokens."""
    from sstq.files.atomic import atomic_file
    from sstq.service.app import serve as run
    from sstq.service.database import sqlite_url
    from sstq.service.migrations import NeedsUpgrade

    if folder.exists() and not folder.is_dir():
        raise WrongUsage(f"--folder must be a folder, got the file {folder}")
    token, shown = kept_token(folder)
    role = "collector" if command == "serve" else command
    options["database"] = options["database"] or sqlite_url(folder / f"{role}.sqlite3")
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        note(
            f"Other users can look into {folder}; keep them out with: chmod -R go-rwx {folder}"
        )
    with check_usage():
        settings = kind.from_environment(administrator_token=token, **options)
    os.umask(0o077)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shown == token:  # a new one
        with atomic_file(folder / _TOKEN_FILE, private=True) as file:
            file.write(f"{token}\n".encode())
    try:
        app = create(settings)
    except NeedsUpgrade as error:
        raise ValueError(
            f"{folder} has a database of an earlier release of sstq; make a copy of it, then run: "
            f"sstq {command} --folder {folder} --upgrade"
        ) from error

    def started(url: str) -> None:
        poll = {"poll": f"{url}{app.state.poll}"} if settings.demo else {}
        key = (
            {"public key": app.state.node.key.public.hex()}
            if role == "shuffler"
            else {}
        )
        for name, value in {
            "address": url,
            **poll,
            **key,
            "administrator token": shown,
        }.items():
            typer.echo(f"{name:19}  {value}")

    run(app, settings, started)


def kept_token(folder: Path) -> tuple[str, str]:
    """Return the administrator's token, and what to print of it: itself if it is new.

    It is the one of the environment, or that of the folder, or a new one.
    """
    from sstq.service.security import new_token

    given = os.environ.get("SSTQ_ADMINISTRATOR_TOKEN")
    path = folder / _TOKEN_FILE
    if given:
        return given, "that of SSTQ_ADMINISTRATOR_TOKEN, in no file"
    if path.exists():
        return path.read_text(encoding="ascii").strip(), f"in {path}"
    token = new_token()
    return token, token
