"""The first published schema: a new database gets the newest tables at once, so there is nothing to run."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: no earlier tables are read."""
