import pytest

both = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
"""For tests that need both kinds of database."""
