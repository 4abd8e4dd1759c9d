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
