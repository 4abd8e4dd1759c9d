"""Senders with quotas, estimates released in steps, alarms, and ends that were witnessed."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None  # the first release had no Alembic

_CAMPAIGNS = sa.table("campaigns", sa.column("name"), sa.column("terms"))


def upgrade() -> None:
    """Change the tables; campaigns keep what they allowed before."""
    text = sa.Text()
    number = sa.BigInteger()
    raw = sa.LargeBinary()
    new: dict[str, tuple[tuple[str, Any], ...]] = {
        "senders": (("digest", raw), ("quota", number), ("used", number)),
        "releases": (("stage", text), ("messages", number), ("result", raw)),
        "alarms": (("kind", text), ("messages", number), ("detail", text)),
    }
    for name, (key, *values) in new.items():
        keys = [
            sa.Column(own, kind, primary_key=True)
            for own, kind in (("campaign", text), key)
        ]
        others = [sa.Column(own, kind, nullable=own == "quota") for own, kind in values]
        op.create_table(name, *keys, *others, sqlite_with_rowid=False)
    op.drop_column("campaigns", "last_hour")
    op.add_column("campaigns", sa.Column("ended", sa.BigInteger))
    connection = op.get_bind()
    settings = sa.table("settings", sa.column("name"))
    connection.execute(settings.delete().where(settings.c.name == "schema"))
    rows = [
        (name, json.loads(text))
        for name, text in connection.execute(sa.select(_CAMPAIGNS))
    ]
    _refuse_shuffled(
        [name for name, terms in rows if "document" in terms or "shuffling" in terms]
    )
    for name, terms in rows:
        _upgrade_campaign(connection, name, terms)


def _refuse_shuffled(old: list[str]) -> None:
    if old:
        raise ValueError(
            f"the database has shuffled campaigns of version 1 ({', '.join(old)}), which this release does not read; "
            "nothing was changed. Finish them with the release that created them: `sstq campaign close`, wait until "
            "the shuffler's sstq_people_waiting and sstq_envelopes_outgoing are 0, `sstq campaign export`, and delete "
            "them at the collector. Then give the shuffler an empty database"
        )


def _upgrade_campaign(
    connection: sa.Connection, name: str, terms: dict[str, object]
) -> None:
    digest = terms.pop("send_token", None)
    if digest is not None:
        values = {
            "campaign": name,
            "digest": bytes.fromhex(str(digest)),
            "quota": None,
            "used": 0,
        }
        connection.execute(
            sa.table("senders", *map(sa.column, values)).insert(), values
        )
    terms["origins"] = ["*"]
    text = json.dumps(terms, sort_keys=True, separators=(",", ":"))
    connection.execute(
        _CAMPAIGNS.update().where(_CAMPAIGNS.c.name == name).values(terms=text)
    )
    if terms.get("readers", "administrator") != "administrator":
        # Readers have seen this estimate.
        columns = ("campaign", "messages", "result")
        seen = sa.table("estimates", *map(sa.column, columns))
        releases = sa.table("releases", *map(sa.column, (*columns, "stage")))
        for stage in ("public", "next"):
            found = sa.select(seen, sa.literal(stage)).where(seen.c.campaign == name)
            connection.execute(
                releases.insert().from_select([*columns, "stage"], found)
            )
