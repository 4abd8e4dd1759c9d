"""What the database promises: durable commits, its own schema only, nothing stored that tells people apart."""

import sqlite3

import psycopg
import pytest
import sqlalchemy as sa

from sstq.service import database as tables
from sstq.service.database import Database, DatabaseUnavailable
from tests.service import both


@pytest.fixture
def database(store):
    return store


def one(database, statement):
    return database.write(
        lambda connection: connection.exec_driver_sql(statement).scalar()
    )


@both
def test_commits_wait_for_the_disk(database):
    if database.sqlite:
        assert one(database, "PRAGMA journal_mode") == "wal"
        assert one(database, "PRAGMA synchronous") == 2  # FULL
    else:
        assert [
            one(database, f"SHOW {name}")
            for name in ("fsync", "synchronous_commit", "full_page_writes")
        ] == ["on"] * 3


def test_a_postgresql_default_of_no_durability_is_overruled(postgres):
    url = postgres.url()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    database = Database(url)
    assert one(database, "SHOW synchronous_commit") == "on"
    database.close()


def test_a_server_that_does_not_sync_is_refused(postgres):
    url = postgres.url()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        try:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
            _wait_for(connection, "off")
            with pytest.raises(
                ValueError,
                match=r"has fsync = off, .*set fsync = on in postgresql.conf",
            ):
                Database(url)
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")
            _wait_for(connection, "on")


def _wait_for(connection, value):
    while connection.execute("SHOW fsync").fetchone() != (value,):
        pass


def test_another_program_is_refused(tmp_path):
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE settings (id INTEGER)")
    connection.close()
    with pytest.raises(
        ValueError,
        match="has the tables settings of another program, or of sstq before",
    ):
        Database(f"sqlite:///{path}")


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "text.sqlite3"
    path.write_text("not a database" * 100)
    with pytest.raises(ValueError, match="is not a database"):
        Database(f"sqlite:///{path}")


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/x", "collector"]
)
def test_other_urls_are_refused(url):
    with pytest.raises(ValueError, match="database must be"):
        Database(url)


@both
def test_uploads_have_no_number_time_or_sender(database):
    columns = {
        name: {
            column["name"]
            for column in database.write(lambda c, n=name: sa.inspect(c).get_columns(n))
        }
        for name in tables.metadata.tables
    }
    assert columns["receipts"] == {"campaign", "key", "messages"}
    assert columns["uploads"] == {"campaign", "key", "messages", "body"}
    assert columns["tokens"] == {"campaign", "digest"}
    # Which campaign it was is all that a token's row has in common with an upload's.
    assert columns["tokens"] & (columns["uploads"] | columns["receipts"]) == {
        "campaign"
    }
    # a table with rowid would number its rows in the order of arrival
    if database.sqlite:
        for name in columns:
            with pytest.raises(DatabaseUnavailable, match="no such column: rowid"):
                one(database, f"SELECT max(rowid) FROM {name}")  # noqa: S608


def test_no_time_is_finer_than_the_hour(database):
    kinds = {
        (table.name, column.name): column.type
        for table in tables.metadata.tables.values()
        for column in table.columns
    }
    assert not [
        place
        for place, kind in kinds.items()
        if isinstance(kind, sa.DateTime | sa.Time | sa.Date)
    ]
    assert {name for _, name in kinds if "hour" in name or "time" in name} == {"hour"}


@both
def test_errors_do_not_show_what_was_stored(database):
    secret = b"\x01secret-body"
    row = {"campaign": "c", "key": b"k" * 16, "messages": 1, "body": secret}
    database.write(lambda connection: connection.execute(tables.uploads.insert(), row))
    wrong = tables.uploads.insert()
    with pytest.raises(Exception, match=r"UNIQUE|duplicate|not available") as caught:
        database.write(lambda connection: connection.execute(wrong, row))
    assert "secret" not in str(caught.value)
    assert "kkkk" not in str(caught.value)
