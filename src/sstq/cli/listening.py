"""Helpers of `sstq serve` and `sstq shuffler`: options, the administrator's token, and a note about TLS."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.terminal import note
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sstq.service import Settings

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
CertificateOption = Annotated[
    Path | None,
    typer.Option(envvar="SSTQ_CERTIFICATE", help="Use TLS with this certificate chain (PEM).", exists=True),
]
PrivateKeyOption = Annotated[
    Path | None,
    typer.Option(envvar="SSTQ_PRIVATE_KEY", help="Use this private key for the certificate (PEM).", exists=True),
]
UpgradeOption = Annotated[
    bool, typer.Option("--upgrade", help="Upgrade a database of an earlier release; make a copy of it first.")
]


def guarded_folder(folder: Path) -> None:
    """Create the folder, and let nobody else read what is written from now on: databases, keys and tokens."""
    os.umask(0o077)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        note(f"Other users can look into {folder}; keep them out with: chmod -R go-rwx {folder}")


@contextmanager
def refused_without_upgrade(command: str, folder: Path) -> Iterator[None]:
    """Name the command that upgrades a database of an earlier release."""
    from sstq.service.migrations import NeedsUpgrade

    try:
        yield
    except NeedsUpgrade as error:
        raise ValueError(
            f"{folder} has a database of an earlier release of sstq; make a copy of it, then run: "
            f"sstq {command} --folder {folder} --upgrade"
        ) from error


def say_started(
    settings: Settings, url: str, facts: Mapping[str, str], *, token: str, warnings: Iterable[str] = ()
) -> None:
    """Print the address, some facts and what to say of the token; say so if others can listen on the network."""
    for name, value in {"address": url, **facts, "administrator token": token}.items():
        typer.echo(f"{name:19}  {value}")
    if settings.certificate is None and settings.host not in ("127.0.0.1", "::1", "localhost"):
        note("This is plain HTTP: put a proxy with TLS in front of it, or pass --certificate and --private-key.")
    for warning in warnings:
        note(warning)


def check_pair(certificate: Path | None, private_key: Path | None) -> None:
    """Raise WrongUsage if there is a certificate without a private key, or the other way round."""
    if (certificate is None) != (private_key is None):
        raise WrongUsage("--certificate and --private-key must be given together")


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
