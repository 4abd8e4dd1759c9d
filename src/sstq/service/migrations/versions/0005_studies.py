"""Studies: campaigns whose stages are campaigns."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add what a study needs; all campaigns so far are by themselves."""
    op.add_column("campaigns", sa.Column("study", sa.Text))
    op.add_column("campaigns", sa.Column("room", sa.BigInteger))
    columns = [
        sa.Column("campaign", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
    ]
    op.create_table("studies", *columns, sqlite_with_rowid=False)
