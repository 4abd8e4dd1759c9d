"""`sstq serve`: runs the collector."""

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

__all__ = ["serve"]


def serve(
    folder: FolderOption,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    database: DatabaseOption = None,
    certificate: CertificateOption = None,
    private_key: PrivateKeyOption = None,
    upgrade: UpgradeOption = False,
    demo: Annotated[
        bool, typer.Option("--demo", envvar="SSTQ_DEMO", help="Serve a demonstration poll at /demo/.")
    ] = False,
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
    from sstq.service.database import sqlite_url

    check_pair(certificate, private_key)
    check_port(host, port)
    guarded_folder(folder)
    token, shown = kept_token(folder)
    with check_usage():
        settings = Settings.from_environment(
            database=database or sqlite_url(folder / "collector.sqlite3"),
            administrator_token=token,
            host=host,
            port=port,
            certificate=certificate,
            private_key=private_key,
            upgrade=upgrade,
            demo=demo,
        )
    with refused_without_upgrade("serve", folder):
        app = create_app(settings)

    def started(url: str) -> None:
        facts = {"poll": f"{url}/demo/"} if demo else {}
        say_started(settings, url, facts, token=shown, warnings=app.state.node.warnings())

    run(app, settings, started)
