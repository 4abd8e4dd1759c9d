"""Nothing lost, nothing doubled: servers are killed under load, and the state has the bits of one pass over all."""

import pytest

pytest.importorskip("fastapi")

from tests.service.killing import Load, differences, killed_under_load, options, prepared, under_load
from tests.service.nursery import nursery

pytestmark = pytest.mark.slow

KILLS = 10


@pytest.fixture
def start(tmp_path):
    """Starts a server of a database."""
    with nursery(tmp_path / "log") as parent:
        yield lambda store: parent.start(*options(store, tmp_path))


@pytest.mark.parametrize(("database_url", "processes"), [("sqlite", 1), ("postgresql", 2)], indirect=["database_url"])
def test_killed_servers_lose_and_double_nothing(database_url, processes, start):
    store = prepared(database_url)
    load = killed_under_load(store, lambda: start(store), KILLS, processes)
    # Every kill cut uploads off, whose clients had to try again.
    assert len(load.lost) >= KILLS
    assert differences(store, load.acknowledged) == 0
    store.close()


def test_a_postgresql_stopped_as_by_a_crash_loses_and_doubles_nothing(own_postgres, start):
    store = prepared(own_postgres.url())
    load = Load(store, [start(store).url for _ in range(2)])
    with load.running():
        for _ in range(KILLS):
            under_load(load)
            own_postgres.stop("immediate")
            own_postgres.start()
    assert load.refused >= KILLS  # uploads came while it was stopped
    assert differences(store, load.acknowledged) == 0
    store.close()
