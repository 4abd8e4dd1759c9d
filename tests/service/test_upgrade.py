"""A database of the first schema: refused without a word from its operator, upgraded with everything in it."""

import json
from pathlib import Path

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from sstq.client import Campaign
from sstq.service import migrations, results
from sstq.service.alarms import ALARM
from sstq.service.database import alarms, metadata
from sstq.service.folding import Form
from sstq.service.migrations import NeedsUpgrade
from sstq.service.security import token_hash
from sstq.service.store import Refusal, Store, Upload
from tests.service import both

FOLDER = Path(__file__).with_name("version1")
MECHANISMS = {
    "open": sstq.FrameUnit(dim=6, epsilon=2.0),
    "frames": sstq.FrameUnit(dim=6, epsilon=2.0, frames=64),
}


def build(url):
    """A database as the first release wrote it; returns what is known about it."""
    recorded = json.loads((FOLDER / "rows.json").read_text())
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in (
            (FOLDER / f"{engine.dialect.name}.sql").read_text().split(";\n")[:-1]
        ):
            connection.exec_driver_sql(statement)
        for name, rows in recorded["rows"].items():
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            for row in rows:
                values = {
                    key: bytes.fromhex(own["hex"]) if isinstance(own, dict) else own
                    for key, own in row.items()
                }
                connection.execute(table.insert(), values)
    engine.dispose()
    return recorded


def without_shuffled(url):
    """Delete the shuffled campaign, as the refusal of an upgrade asks for."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM campaigns WHERE name = 'mixed'")
    engine.dispose()


@pytest.fixture
def recorded(database_url):
    return build(database_url)


def test_it_is_refused_and_left_alone_until_an_upgrade_is_asked_for(
    recorded, database_url
):
    for _ in range(2):
        with pytest.raises(NeedsUpgrade, match="make a copy of it, then add --upgrade"):
            Store(database_url)
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        assert "alembic_version" not in sa.inspect(connection).get_table_names()
        found = connection.exec_driver_sql("SELECT count(*) FROM campaigns").scalar()
    engine.dispose()
    assert found == len(recorded["rows"]["campaigns"])


def test_shuffled_campaigns_of_version_1_must_be_finished_first(recorded, database_url):
    for _ in range(2):  # the first try changes nothing
        with pytest.raises(
            ValueError,
            match=r"shuffled campaigns of version 1 \(mixed\).*nothing was changed",
        ):
            Store(database_url, upgrade=True)
    with pytest.raises(NeedsUpgrade):
        Store(database_url)


@both
def test_an_upgrade_keeps_all_campaigns_messages_keys_and_tokens(
    recorded, database_url
):
    without_shuffled(database_url)
    Store(database_url, upgrade=True).close()
    store = Store(database_url)  # from now on without asking
    assert list(store.campaigns()) == ["frames", "invited", "open", "staff"]
    for name, mechanism in MECHANISMS.items():
        expected = mechanism.aggregator()
        for upload in recorded["sent"][name]:
            expected.update(
                mechanism.messages_from_bytes(
                    bytes.fromhex(upload["body"]), upload["count"]
                )
            )
        while store.fold(name):
            pass
        found = store.state(name)
        assert (found.count, found.sums().tolist()) == (
            expected.count,
            expected.sums().tolist(),
        )
    # A retry of an upload from before counts once, and tokens from before are worth what they were.
    old = recorded["sent"]["open"][0]
    again = Upload(
        "open", bytes.fromhex(old["key"]), old["count"], bytes.fromhex(old["body"])
    )
    assert store.receive([again]) == [30]
    assert store.counts()["open"].received == 56
    spent, left = (token_hash(token) for token in recorded["known"]["tokens"][:2])
    body = bytes.fromhex(recorded["sent"]["invited"][0]["body"])
    answers = store.receive(
        [
            Upload("invited", bytes([n]) * 16, 1, body, t)
            for n, t in enumerate([spent, left])
        ]
    )
    assert answers == [Refusal.SPENT, 1]
    sender = token_hash(recorded["known"]["staff"]["send_token"])
    assert store.campaigns()["staff"].senders == {sender}
    assert store.receive([Upload("staff", b"s" * 16, 1, body, sender=sender)]) == [1]
    # Nobody is told to stop by the upgrade: pages of other origins may send as before.
    assert json.loads(store.campaigns()["open"].terms)["origins"] == ["*"]
    store.close()


@both
def test_an_upgraded_database_has_the_tables_of_a_new_one(recorded, database_url):
    without_shuffled(database_url)
    store = Store(database_url, upgrade=True)

    def columns(connection, name):
        return {
            (own["name"], own["nullable"])
            for own in sa.inspect(connection).get_columns(name)
        }

    for name, table in metadata.tables.items():
        expected = {(own.name, own.nullable) for own in table.columns}
        assert (
            store.read(lambda connection, name=name: columns(connection, name))
            == expected
        ), name
    store.close()


@both
def test_the_second_version_of_the_tables_becomes_the_newest(recorded, database_url):
    """Parts of states, two stages of what readers see, and errors that readers should not see."""
    without_shuffled(database_url)
    half = MECHANISMS["frames"].aggregator()
    half.update(MECHANISMS["frames"].encode(np.zeros((300, 6)), rng=1))
    sums, form = half.sums(), Form(half)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(migrations.__file__).parent))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        old = {
            name: sa.Table(name, sa.MetaData(), autoload_with=connection)
            for name in ("pieces", "releases", "history")
        }
        connection.execute(
            old["pieces"].delete().where(old["pieces"].c.campaign == "frames")
        )
        middle = int(sums[len(sums) // 2, 0])
        for first, part in (
            (0, sums[sums[:, 0] < middle]),
            (middle, sums[sums[:, 0] >= middle]),
        ):
            row = {
                "campaign": "frames",
                "first": first,
                "width": middle,
                "identity": bytes([first > 0]) * 16,
                "level": 9,
            }
            row |= {
                "messages": int(part[:, 1:].sum()),
                "sums": form.encode(part - [first, 0, 0]),
            }
            connection.execute(old["pieces"].insert(), row)
        connection.execute(old["releases"].delete())
        for stage, messages in (("public", 40), ("next", 60)):
            connection.execute(
                old["releases"].insert(),
                {
                    "campaign": "open",
                    "stage": stage,
                    "messages": messages,
                    "result": b"{}",
                },
            )
        connection.execute(
            old["history"].insert(), {"campaign": "open", "messages": 2, "error": 1.0}
        )
    engine.dispose()
    store = Store(database_url, upgrade=True)
    found = store.state("frames")
    assert (found.count, found.sums().tolist()) == (half.count, sums.tolist())
    assert results.covered(store, "public") == {"open": 60}
    assert (
        results.progress(store, Campaign("open", MECHANISMS["open"]))["measured"] == []
    )
    known = store.campaigns()["open"]
    assert store.change(known, closed=True)
    store.close()


@both
def test_alarms_are_looked_at_again_after_an_upgrade(database_url):
    """Honest campaigns raised some, and an alarm stays, also in what readers see of a closed campaign."""
    mechanism = sstq.SSTQ(dim=8, epsilon=2.0, bits=2)
    campaign = Campaign("steps", mechanism, readers="public")
    store = Store(database_url)
    store.create("steps", mechanism, "{}")
    messages = mechanism.encode(np.zeros((5000, 8)), rng=1)
    store.receive([Upload("steps", b"k" * 16, 5000, messages.to_bytes())])
    store.fold("steps")
    results.refresh(store, campaign)
    wrong = {
        "campaign": "steps",
        "kind": "counts",
        "messages": 5000,
        "detail": f"{ALARM}false",
    }
    store.execute(
        alarms.delete().where(alarms.c.kind == "counts"), alarms.insert().values(wrong)
    )
    assert results.raised(store) == {("steps", "counts"): 1.0}
    before = json.loads(results.latest(store, "steps", "public"))
    for table in ("batches", "outgoing"):
        store.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN tokens"))
    for column in ("study", "room"):
        store.execute(sa.text(f"ALTER TABLE campaigns DROP COLUMN {column}"))
    store.execute(sa.text("DROP TABLE studies"))
    store.execute(sa.text("UPDATE alembic_version SET version_num = '0003'"))
    store.close()
    store = Store(database_url, upgrade=True)
    assert results.raised(store) == {}
    assert json.loads(results.latest(store, "steps", "public")) == before | {
        "checks": None
    }
    assert store.outdated() == {"steps"}
    results.refresh(store, campaign)
    assert results.raised(store) == {}
    assert json.loads(results.latest(store, "steps"))["checks"]["counts"].startswith(
        "passed"
    )
    store.close()


def test_a_database_of_a_later_release_is_refused(database_url):
    Store(database_url).close()
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(
        ValueError, match="version 9999 of the schema, from a later release"
    ):
        Store(database_url, upgrade=True)
