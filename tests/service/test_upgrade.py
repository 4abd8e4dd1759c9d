"""A database of an earlier release: refused without a word from its operator, upgraded with everything in it.

No later schema has been published, so the tests write the next migration themselves.
"""

import shutil
from contextlib import closing
from dataclasses import replace

import pytest

import sstq

pytest.importorskip("fastapi")

import sqlalchemy as sa

from sstq.service import Settings, migrations, studies
from sstq.service.collector import Collector
from sstq.service.database import metadata
from sstq.service.migrations import NeedsUpgrade
from sstq.service.security import token_hash
from sstq.service.store import Refusal, Store, Upload
from sstq.service.terms import OwnTerms
from tests.service import both
from tests.service.studying import words

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, frames=64)
NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("campaigns", sa.Column("colour", sa.Text, server_default="grey"))
"""


def publish(folder, monkeypatch):
    """Publish the next release, whose tables have one column more."""
    scripts = folder / "scripts"
    shutil.copytree(migrations.SCRIPTS, scripts)
    (scripts / "versions" / "0002_next.py").write_text(NEXT)
    monkeypatch.setattr(migrations, "SCRIPTS", scripts)


def colours(store):
    query = sa.select(sa.column("name"), sa.column("colour"))
    return dict(
        tuple(row) for row in store.rows(query.select_from(sa.text("campaigns")))
    )


@both
def test_an_upgrade_is_asked_for_and_keeps_messages_keys_tokens_and_sums(
    database_url, tmp_path, monkeypatch
):
    tokens = [token_hash(text) for text in ("spent", "left", "staff")]
    messages = MECHANISM.encode([[0.0] * 6] * 60, rng=1)
    sent = [
        Upload("open", bytes([n]) * 16, 20, messages[20 * n : 20 * n + 20].to_bytes())
        for n in range(3)
    ]
    one = messages[:1].to_bytes()
    with closing(Store(database_url)) as store:
        for name in ("open", "invited", "staff"):
            store.create(name, MECHANISM, "{}")
        store.issue("invited", tokens[:2])
        store.add_sender("staff", tokens[2], 5)
        assert store.receive(
            [*sent[:2], Upload("invited", b"i" * 16, 1, one, tokens[0])]
        ) == [20, 20, 1]
        store.fold("open")
    publish(tmp_path, monkeypatch)
    for _ in range(2):
        with pytest.raises(NeedsUpgrade, match="make a copy of it, then add --upgrade"):
            Store(database_url)
    with closing(Store(database_url, upgrade=True)) as store:
        assert colours(store) == dict.fromkeys(("open", "invited", "staff"), "grey")
    with closing(Store(database_url)) as store:  # from now on without asking
        # A retry of an upload from before counts once, and tokens from before are worth what they were.
        assert store.receive(sent) == [20, 20, 20]
        invited = [
            Upload("invited", bytes([n]) * 16, 1, one, token)
            for n, token in enumerate(tokens[:2])
        ]
        assert store.receive(invited) == [Refusal.SPENT, 1]
        assert store.allowance("staff", None, tokens[2]) == 5
        while store.fold("open"):
            pass
        expected = MECHANISM.aggregator().update(messages)
        found = store.state("open")
        assert (found.count, found.sums().tolist()) == (60, expected.sums().tolist())


@both
def test_a_study_goes_on_after_an_upgrade(database_url, tmp_path, monkeypatch):
    settings = Settings(database_url, "administrator-of-the-tests")
    collector = Collector(settings)
    studies.create(collector, "drinks", words(), {"people": 300}, OwnTerms())
    before = collector.entries["drinks"]
    people = before.campaign.stage.people
    messages = before.campaign.question.encode(["tea"] * people)
    stage = before.campaign.name
    assert collector.store.receive(
        [Upload(stage, b"k" * 16, people, messages.to_bytes())]
    ) == [people]
    collector.store.close()
    publish(tmp_path, monkeypatch)
    with pytest.raises(NeedsUpgrade):
        Collector(settings)
    collector = Collector(replace(settings, upgrade=True))
    with closing(collector.store):
        entry = collector.entries["drinks"]
        assert (entry.document, entry.study) == (before.document, before.study)
        while collector.store.fold(stage):
            pass
        for _ in range(2):  # closes the stage, then learns from it
            studies.advance(collector, collector.entries["drinks"], collector.store.run)
        after = collector.entries["drinks"]
        assert [record.learned for record in after.study.stages] == [people, None]
        assert after.campaign.stage.number == 2


def test_tables_of_other_programs_and_of_releases_before_the_first_are_refused(
    database_url,
):
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE campaigns (name TEXT PRIMARY KEY)")
    engine.dispose()
    for upgrade in (False, True):
        with pytest.raises(
            ValueError,
            match=r"the tables campaigns of another program, or of sstq before 0\.3",
        ):
            Store(database_url, upgrade=upgrade)
    with engine.connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["campaigns"]
    engine.dispose()


def test_a_database_of_a_later_release_is_refused(database_url):
    Store(database_url).close()
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(
        ValueError,
        match="version 9999 of the schema, which this release of sstq does not know",
    ):
        Store(database_url, upgrade=True)


@both
def test_a_new_database_has_the_newest_tables(database_url):
    with closing(Store(database_url)) as store:
        assert set(metadata.tables) < set(
            store.read(lambda c: sa.inspect(c).get_table_names())
        )
        assert (
            store.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0001"
        )
