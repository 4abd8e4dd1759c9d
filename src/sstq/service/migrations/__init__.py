"""The versions of the database's schema, as Alembic migrations.

A new database gets the newest tables. One of an earlier release is upgraded only when its operator asks for it, after a
copy.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory


class NeedsUpgrade(ValueError):  # noqa: N818
    """The database has the schema of an earlier release."""

    def __init__(self) -> None:
        super().__init__(
            "the database is from an earlier release of sstq; make a copy of it, then add --upgrade"
        )


def migrate(connection: sa.Connection, metadata: sa.MetaData, *, upgrade: bool) -> None:
    """Create the tables in an empty database, or check those of an existing one and upgrade them if asked to.

    It runs in the transaction of the connection. NeedsUpgrade if the database needs an upgrade that was not asked for,
    ValueError for a database of a later release or another program.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    versions = ScriptDirectory.from_config(config)
    found = MigrationContext.configure(connection).get_current_revision()
    if found == versions.get_current_head():
        return
    known = set(sa.inspect(connection).get_table_names()) & set(metadata.tables)
    if found is None and not known:
        metadata.create_all(connection)
        command.stamp(config, "head")
        return
    if found is None and not _is_first(connection, known):
        names = ", ".join(sorted(known))
        raise ValueError(
            f"the database has the tables {names} of another program; pass an empty database"
        )
    if found is not None and found not in {
        version.revision for version in versions.walk_revisions()
    }:
        raise ValueError(
            f"the database has version {found} of the schema, from a later release of sstq; use that one"
        )
    if not upgrade:
        raise NeedsUpgrade
    command.upgrade(config, "head")


def _is_first(connection: sa.Connection, known: set[str]) -> bool:
    """Whether these tables are of the first release, which had a version number of its own instead of Alembic's."""
    if "campaigns" not in known or "settings" not in known:
        return False
    columns = {
        column["name"] for column in sa.inspect(connection).get_columns("settings")
    }
    if columns != {"name", "value"}:
        return False
    settings = sa.table("settings", sa.column("name"), sa.column("value"))
    found = connection.execute(
        sa.select(settings.c.value).where(settings.c.name == "schema")
    ).scalar()
    return found is not None and bytes(found) == b"1"
