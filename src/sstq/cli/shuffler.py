"""`sstq shuffler`: runs the shuffler between clients and a collector."""

from __future__ import annotations

from typing import Annotated

import typer

from sstq.cli.listening import (
    CertificateOption,
    DatabaseOption,
    FolderOption,
    HostOption,
    PortOption,
    PrivateKeyOption,
    UpgradeOption,
    check_pair,
    check_port,
    guarded_folder,
    kept_token,
    refused_without_upgrade,
    say_started,
)
from sstq.cli.usage import check_usage

__all__ = ["shuffler"]


def shuffler(
    folder: FolderOption,
    collector: Annotated[str, typer.Option(envvar="SSTQ_COLLECTOR", help="Forward to the collector at this address.")],
    public_url: Annotated[
        str | None,
        typer.Option(
            envvar="SSTQ_PUBLIC_URL",
            help="Sign only campaigns that name this address, under which clients reach this shuffler; "
            "by default the address that it listens on.",
        ),
    ] = None,
    collector_key: Annotated[
        str | None,
        typer.Option(
            envvar="SSTQ_COLLECTOR_KEY",
            help="Refuse a collector without this public key; by default the first one seen is kept.",
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8081,
    database: DatabaseOption = None,
    certificate: CertificateOption = None,
    private_key: PrivateKeyOption = None,
    upgrade: UpgradeOption = False,
) -> None:
    """Run a shuffler that receives sealed messages, mixes those of many people, forwards them and deletes its copies.

    It mixes when a campaign has closed. What people agreed to when they sent stays as it is, whatever the collector
    says later.

    It sees who sends, but not what; the collector sees what, but not who. So run it on another machine, operated by
    others than the collector. It prints its public key for the file of `sstq campaign create --shuffling`.

    Further settings are environment variables: those of `sstq serve`, SSTQ_FETCH_SECONDS and SSTQ_CLOSING_SECONDS.

    Example: sstq shuffler --folder shuffler --collector http://127.0.0.1:8080 --public-url https://shuffle.example
    """
    from sstq.service.database import sqlite_url
    from sstq.service.shuffler import ShufflerSettings, run_shuffler

    check_pair(certificate, private_key)
    check_port(host, port)
    guarded_folder(folder)
    token, shown = kept_token(folder)
    with check_usage():
        settings = ShufflerSettings.from_environment(
            database=database or sqlite_url(folder / "shuffler.sqlite3"),
            administrator_token=token,
            host=host,
            port=port,
            certificate=certificate,
            private_key=private_key,
            upgrade=upgrade,
            public_url=public_url,
            collector=collector.rstrip("/"),
            collector_key=collector_key,
            folder=str(folder),
        )

    def started(url: str, key: str) -> None:
        say_started(settings, url, {"public key": key}, token=shown)

    with refused_without_upgrade("shuffler", folder):
        run_shuffler(settings, started)
