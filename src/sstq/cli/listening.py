"""Helpers of `sstq serve` and `sstq shuffler`: options, the administrator's token, and a note about TLS."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.terminal import note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sstq.service import Settings

__all__ = [
    "AdministratorOption",
    "BurstOption",
    "CertificateOption",
    "DatabaseOption",
    "FolderOption",
    "GraceOption",
    "HostOption",
    "MetricsOption",
    "PortOption",
    "PrivateKeyOption",
    "ProxiesOption",
    "UploadsOption",
    "check_port",
    "kept_token",
    "say_started",
]

_TOKEN_FILE = "administrator-token"  # noqa: S105 (the name of a file)

FolderOption = Annotated[
    Path,
    typer.Option("--folder", envvar="SSTQ_FOLDER", help="Keep the database and the administrator's token here."),
]
HostOption = Annotated[str, typer.Option(envvar="SSTQ_HOST", help="Listen on this address.")]
PortOption = Annotated[int, typer.Option(envvar="SSTQ_PORT", help="Listen on this port; 0 for a free one.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="SSTQ_DATABASE", help="Use this database (postgresql+psycopg://…) instead of a file in the folder."
    ),
]
AdministratorOption = Annotated[
    str | None,
    typer.Option(
        envvar="SSTQ_ADMINISTRATOR_TOKEN",
        help="Use this token instead of the folder's; set it in the environment, as other users can see options.",
    ),
]
MetricsOption = Annotated[
    str | None, typer.Option(envvar="SSTQ_METRICS_TOKEN", help="Allow reading the metrics with this token.")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(envvar="SSTQ_CERTIFICATE", help="Use TLS with this certificate chain (PEM).", exists=True),
]
PrivateKeyOption = Annotated[
    Path | None,
    typer.Option(envvar="SSTQ_PRIVATE_KEY", help="Use this private key for the certificate (PEM).", exists=True),
]
ProxiesOption = Annotated[
    str, typer.Option(envvar="SSTQ_PROXIES", help="Trust X-Forwarded-For from these addresses, such as 10.0.0.1.")
]
UploadsOption = Annotated[
    float,
    typer.Option(
        envvar="SSTQ_UPLOADS_PER_SECOND", help="Allow each address this many uploads per second; 0 for no limit."
    ),
]
BurstOption = Annotated[int, typer.Option(envvar="SSTQ_BURST", help="Allow each address this many uploads at once.")]
GraceOption = Annotated[
    int, typer.Option(envvar="SSTQ_GRACE_HOURS", help="Answer retries for this many hours after a campaign has closed.")
]


def say_started(settings: Settings, url: str, facts: Mapping[str, str], *, given_token: bool) -> None:
    """Print the address, some facts and the token; say so if others can listen on the network."""
    # A given token is known already, and must not end up in logs.
    token = "as given" if given_token else settings.administrator_token
    for name, value in {"address": url, **facts, "administrator token": token}.items():
        typer.echo(f"{name:19}  {value}")
    if settings.certificate is None and settings.host not in ("127.0.0.1", "::1", "localhost"):
        note("This is plain HTTP: put a proxy with TLS in front of it, or pass --certificate and --private-key.")


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


def kept_token(folder: Path) -> str:
    """Return the administrator's token in the folder, created if it does not exist."""
    from sstq.service.security import new_token

    path = folder / _TOKEN_FILE
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
