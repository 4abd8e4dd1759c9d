"""The first schema."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXT, _BYTES, _NUMBER, _SMALL, _FLAG = sa.Text(), sa.LargeBinary(), sa.BigInteger(), sa.Integer(), sa.Boolean()
_CAMPAIGN = ("campaign", _TEXT)
# The columns of the primary key, and the others.
_TABLES: dict[str, tuple[list[Any], list[Any]]] = {
    "settings": ([("name", _TEXT)], [("value", _BYTES)]),
    "campaigns": (
        [("name", _TEXT)],
        [("mechanism", _TEXT), ("terms", _TEXT), ("closed", _FLAG), ("last_hour", None), ("issued", _NUMBER)],
    ),
    "receipts": ([_CAMPAIGN, ("key", _BYTES)], [("messages", _NUMBER)]),
    "uploads": ([_CAMPAIGN, ("key", _BYTES)], [("messages", _NUMBER), ("body", _BYTES)]),
    "pieces": (
        [_CAMPAIGN, ("first", _NUMBER), ("width", _NUMBER), ("identity", _BYTES)],
        [("level", _SMALL), ("messages", _NUMBER), ("sums", _BYTES)],
    ),
    "tokens": ([_CAMPAIGN, ("digest", _BYTES)], []),
    "arrivals": ([_CAMPAIGN, ("hour", _NUMBER)], [("messages", _NUMBER)]),
    "history": ([_CAMPAIGN, ("messages", _NUMBER)], [("error", sa.Double())]),
    "estimates": ([_CAMPAIGN], [("messages", _NUMBER), ("result", _BYTES)]),
    "batches": (
        [_CAMPAIGN, ("batch", _BYTES)],
        [
            *(("slot", _SMALL), ("sealing_key", _TEXT), ("size", _NUMBER), ("parts", _SMALL), ("opened", _FLAG)),
            *((name, _NUMBER) for name in ("accepted", "foreign", "malformed", "repeated")),
        ],
    ),
    "envelopes": ([_CAMPAIGN, ("batch", _BYTES), ("part", _SMALL)], [("count", _NUMBER), ("body", _BYTES)]),
    "seen": ([_CAMPAIGN, ("batch", _BYTES)], [("digests", _BYTES)]),
    "outgoing": (
        [_CAMPAIGN, ("batch", _BYTES), ("part", _SMALL)],
        [
            *(("slot", _SMALL), ("sealing_key", _TEXT), ("size", _NUMBER), ("parts", _SMALL)),
            *(("count", _NUMBER), ("body", _BYTES)),
        ],
    ),
}


def upgrade() -> None:
    """Create the tables."""
    for table, (keys, others) in _TABLES.items():
        columns = [sa.Column(name, kind, primary_key=True) for name, kind in keys]
        columns += [sa.Column(name, kind or _NUMBER, nullable=kind is None) for name, kind in others]
        op.create_table(table, *columns, sqlite_with_rowid=False)
