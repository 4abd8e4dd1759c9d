"""Terms with a version, one released estimate per campaign, crowds by their name, and pieces of whole states only."""

from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXT = sa.Text()
_NUMBER = sa.BigInteger()
_RAW = sa.LargeBinary()


def upgrade() -> None:
    """Change the tables; what readers have seen stays."""
    op.add_column(
        "campaigns", sa.Column("version", _NUMBER, nullable=False, server_default="0")
    )
    for table in ("batches", "outgoing"):
        op.alter_column(table, "sealing_key", new_column_name="crowd")
    # Its points were of estimates that readers had not seen.
    connection = op.get_bind()
    connection.execute(sa.table("history").delete())
    _rebuild(
        "releases", {"campaign": _TEXT}, {"messages": _NUMBER, "result": _RAW}, _newest
    )
    values = {"level": sa.SmallInteger(), "messages": _NUMBER, "sums": _RAW}
    _rebuild("pieces", {"campaign": _TEXT, "identity": _RAW}, values, _whole)


def _rebuild(
    name: str, keys: dict[str, Any], values: dict[str, Any], changed: Any
) -> None:
    """Make a table anew, with these columns and the rows that `changed` yields of the old one."""
    connection = op.get_bind()
    old = sa.Table(name, sa.MetaData(), autoload_with=connection)
    op.rename_table(name, f"{name}_before")
    old.name = f"{name}_before"
    columns = [
        sa.Column(column, kind, primary_key=True) for column, kind in keys.items()
    ]
    columns += [
        sa.Column(column, kind, nullable=False) for column, kind in values.items()
    ]
    new = op.create_table(name, *columns, sqlite_with_rowid=False)
    for row in changed(connection, old):
        kept = {column: value for column, value in row.items() if column in new.c}
        connection.execute(new.insert(), kept)
    op.drop_table(old.name)


def _newest(connection: sa.Connection, old: sa.Table) -> Any:
    """The newest step of each campaign: the next one was complete."""
    rows = connection.execute(sa.select(old).order_by(old.c.messages)).mappings().all()
    return {row["campaign"]: row for row in rows}.values()


def _whole(connection: sa.Connection, old: sa.Table) -> Any:
    """Pieces whose numbers begin at zero: those of part of a state counted from its first."""
    for key in connection.execute(
        sa.select(old.c.campaign, old.c.first, old.c.width, old.c.identity)
    ).all():
        here = [
            column == value
            for column, value in zip(
                (old.c[name] for name in key._fields), key, strict=True
            )
        ]
        row = dict(connection.execute(sa.select(old).where(*here)).mappings().one())
        if row["first"]:
            row["sums"] = _moved(bytes(row["sums"]), row["first"])
        yield row


def _moved(raw: bytes, first: int) -> bytes:
    """The sums of a sparse piece with larger numbers; its first bytes are the sizes of the columns' types."""
    size = raw[0]
    rows = (len(raw) - 3) // sum(raw[:3])
    end = 3 + rows * size
    numbers = np.frombuffer(raw[3:end], dtype=f"<u{size}").astype(np.int64) + first
    kind = np.min_scalar_type(numbers.max(initial=0)).newbyteorder("<")
    return (
        bytes([kind.itemsize, raw[1], raw[2]])
        + numbers.astype(kind).tobytes()
        + raw[end:]
    )
