"""`sstq serve`: the collector that messages are sent to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.terminal import note
from sstq.cli.usage import check_usage

__all__ = ["serve"]

_TOKEN_FILE = "administrator-token"  # noqa: S105 (the name of a file)


def serve(
    folder: Annotated[
        Path,
        typer.Option("--folder", envvar="SSTQ_FOLDER", help="Keep the database and the administrator's token here."),
    ],
    host: Annotated[str, typer.Option(envvar="SSTQ_HOST", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="SSTQ_PORT", help="Listen on this port; 0 for a free one.")] = 8080,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="SSTQ_DATABASE", help="Use this database (postgresql+psycopg://…) instead of a file in the folder."
        ),
    ] = None,
    administrator_token: Annotated[
        str | None,
        typer.Option(
            envvar="SSTQ_ADMINISTRATOR_TOKEN",
            help="Take this token instead of the folder's. Other users see options; the environment is safer.",
        ),
    ] = None,
    metrics_token: Annotated[
        str | None, typer.Option(envvar="SSTQ_METRICS_TOKEN", help="Let holders of this token read the metrics.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(envvar="SSTQ_CERTIFICATE", help="Speak TLS with this certificate chain (PEM).")
    ] = None,
    private_key: Annotated[
        str | None, typer.Option(envvar="SSTQ_PRIVATE_KEY", help="The file of the certificate's private key (PEM).")
    ] = None,
    proxies: Annotated[
        str, typer.Option(envvar="SSTQ_PROXIES", help="Believe X-Forwarded-For of these addresses, such as 10.0.0.1.")
    ] = "",
    uploads_per_second: Annotated[
        float,
        typer.Option(envvar="SSTQ_UPLOADS_PER_SECOND", help="Allow each address so many uploads; 0 for any number."),
    ] = 100.0,
    burst: Annotated[int, typer.Option(envvar="SSTQ_BURST", help="Allow each address so many uploads at once.")] = 1000,
    fold_seconds: Annotated[
        float, typer.Option(envvar="SSTQ_FOLD_SECONDS", help="Fold stored uploads into the state this often.")
    ] = 1.0,
    grace_hours: Annotated[
        int, typer.Option(envvar="SSTQ_GRACE_HOURS", help="Answer retries so long after a campaign closed.")
    ] = 72,
) -> None:
    """Run a collector: take messages over HTTP, store them durably, and estimate their mean while they arrive.

    The folder is made if it is not there. The first start makes the administrator's token and keeps it there, readable
    for you alone. `sstq campaign create` makes a campaign, `sstq send` sends to it. Stop with Ctrl-C.

    Example: sstq serve --folder collector

    Example: sstq serve --folder collector --host 0.0.0.0 --certificate chain.pem --private-key key.pem
    """
    from sstq.service import Settings, run
    from sstq.service.database import sqlite_url

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = administrator_token or _kept_token(folder / _TOKEN_FILE)
    with check_usage():
        settings = Settings(
            database=database or sqlite_url(folder / "collector.sqlite3"),
            administrator_token=token,
            metrics_token=metrics_token,
            host=host,
            port=port,
            certificate=certificate,
            private_key=private_key,
            proxies=proxies,
            uploads_per_second=uploads_per_second,
            burst=burst,
            fold_seconds=fold_seconds,
            grace_hours=grace_hours,
        )

    def started(url: str) -> None:
        typer.echo(f"address              {url}")
        # What was given is known already, and logs are kept.
        typer.echo(f"administrator token  {'as given' if administrator_token else token}")
        if certificate is None and host not in ("127.0.0.1", "::1", "localhost"):
            note("This is plain HTTP: put a proxy with TLS before it, or pass --certificate and --private-key.")

    run(settings, started)


def _kept_token(path: Path) -> str:
    """The token in the file, which is made with a new one if it is not there."""
    from sstq.service.security import new_token

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    token = new_token()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(descriptor)
    return token
