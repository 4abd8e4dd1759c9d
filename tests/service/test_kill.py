"""Nothing lost, nothing doubled: servers are killed under load, and the state has the bits of one pass over all."""

from contextlib import ExitStack

import pytest

pytest.importorskip("fastapi")

from tests.service import both
from tests.service.killing import (
    Load,
    differences,
    killed_under_load,
    prepared,
    settings_of,
    under_load,
)
from tests.service.serving import free_port, serving

pytestmark = pytest.mark.slow

KILLS = [2, pytest.param(25, marks=pytest.mark.soak)]


@pytest.fixture
def start(tmp_path):
    """Starts a server of a database."""
    with ExitStack() as servers:
        yield lambda store, port: servers.enter_context(
            serving(tmp_path, **settings_of(store, port))
        )


@pytest.mark.parametrize("kills", KILLS)
@both
def test_killed_servers_lose_and_double_nothing(database_url, start, kills):
    store = prepared(database_url)
    load = killed_under_load(store, lambda port: start(store, port), kills)
    assert differences(store, load.acknowledged) == 0
    store.close()


@pytest.mark.soak
@pytest.mark.parametrize("kills", [25])
def test_a_postgresql_stopped_as_by_a_crash_loses_and_doubles_nothing(
    own_postgres, start, kills
):
    store = prepared(own_postgres.url())
    load = Load(store, start(store, free_port()).url)
    with load.running():
        for _ in range(kills):
            under_load(load)
            own_postgres.stop("immediate")
            own_postgres.start()
    assert differences(store, load.acknowledged) == 0
    store.close()
