from contextlib import closing

import pytest


@pytest.fixture(scope="session")
def postgres():
    # Here, because the quick lane reads this file without the packages of the service.
    from tests.service.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture
def own_postgres():
    """A server to be stopped: the databases of other tests would make its recovery take a minute."""
    from tests.service.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(request, tmp_path):
    """An empty database: SQLite, and for tests with the mark `both` PostgreSQL as well."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/collector.sqlite3"
    return request.getfixturevalue("postgres").url()


@pytest.fixture
def store(database_url):
    from sstq.service.store import Store

    with closing(Store(database_url)) as opened:
        yield opened


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A collector of many tests, which have campaigns of their own."""
    from tests.service.serving import serving

    # Few rounds: it is there until the last test, and each costs as much as an upload.
    limits = {"messages_per_second": 0, "reads_per_second": 0, "fold_seconds": 0.2}
    with serving(tmp_path_factory.mktemp("server"), **limits) as running:
        yield running
