"""The first schema, which only upgrades begin from."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: a new database gets the newest tables at once."""
