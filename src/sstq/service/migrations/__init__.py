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

SCRIPTS = Path(__file__).parent


class NeedsUpgrade(ValueError):  # noqa: N818
    """The database has the schema of an earlier release."""

    def __init__(self) -> None:
        super().__init__(
            "the database is from an earlier release of sstq; make a copy of it, then add --upgrade"
        )


def migrate(connection: sa.Connection, metadata: sa.MetaData, *, upgrade: bool) -> None:
    """Create the tables in an empty database, or check those of an existing one and upgrade them if asked to.

    It runs in the transaction of the connection. NeedsUpgrade if the database needs an upgrade that was not asked for,
    ValueError for a database whose tables this release does not know.
    """
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    versions = ScriptDirectory.from_config(config)
    found = MigrationContext.configure(connection).get_current_revision()
    known = set(sa.inspect(connection).get_table_names()) & set(metadata.tables)
    if found is None and not known:
        metadata.create_all(connection)
        command.stamp(config, "head")
    elif found is None:
        raise ValueError(
            f"the database has the tables {', '.join(sorted(known))} of another program, or of sstq before 0.3, which "
            "must finish its campaigns itself; pass an empty database"
        )
    elif found not in {version.revision for version in versions.walk_revisions()}:
        raise ValueError(
            f"the database has version {found} of the schema, which this release of sstq does not know; use the one "
            "that wrote it"
        )
    elif found != versions.get_current_head():
        if not upgrade:
            raise NeedsUpgrade
        command.upgrade(config, "head")
