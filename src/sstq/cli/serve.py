"""`sstq serve`: runs the collector."""

from __future__ import annotations

from typing import Annotated

import typer

from sstq.cli.listening import (
    AdministratorOption,
    BurstOption,
    CertificateOption,
    DatabaseOption,
    FolderOption,
    GraceOption,
    HostOption,
    LogOption,
    MessagesOption,
    MetricsOption,
    PortOption,
    PrivateKeyOption,
    ProxiesOption,
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
    administrator_token: AdministratorOption = None,
    metrics_token: MetricsOption = None,
    certificate: CertificateOption = None,
    private_key: PrivateKeyOption = None,
    proxies: ProxiesOption = "",
    messages_per_second: MessagesOption = 100.0,
    burst: BurstOption = 1000,
    fold_seconds: Annotated[
        float,
        typer.Option(
            envvar="SSTQ_FOLD_SECONDS", help="Fold stored uploads into the state at this interval, in seconds."
        ),
    ] = 1.0,
    grace_hours: GraceOption = 72,
    upgrade: UpgradeOption = False,
    log_format: LogOption = "text",
    demo: Annotated[
        bool, typer.Option("--demo", envvar="SSTQ_DEMO", help="Serve a demonstration poll at /demo/.")
    ] = False,
) -> None:
    """Run a collector that receives messages over HTTP, stores them durably and keeps an estimate up to date.

    The folder is created if it does not exist. The first start stores an administrator token there, readable
    only by you, and prints it once.
    `sstq campaign create` creates a campaign, `sstq send` sends to it. Stop with Ctrl-C.

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
    token, shown = kept_token(folder, administrator_token)
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
            messages_per_second=messages_per_second,
            burst=burst,
            fold_seconds=fold_seconds,
            grace_hours=grace_hours,
            upgrade=upgrade,
            log_format=log_format,  # type: ignore[arg-type]  # checked by Settings
            demo=demo,
        )
    with refused_without_upgrade("serve", folder):
        app = create_app(settings)

    def started(url: str) -> None:
        facts = {"poll": f"{url}/demo/"} if demo else {}
        say_started(settings, url, facts, token=shown, warnings=app.state.node.warnings())

    run(app, settings, started)
