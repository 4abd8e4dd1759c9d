"""Every statistical test takes its randomness from `seed`, which differs in every run and is printed.

Set SSTQ_TEST_SEED to repeat a run.
"""

import os
import secrets
import zlib

import pytest

# In the environment, so that the workers of a parallel run have the same.
_SEED = int(os.environ.setdefault("SSTQ_TEST_SEED", str(secrets.randbits(32))))


def pytest_report_header() -> str:
    return f"SSTQ_TEST_SEED={_SEED}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, different in every run."""
    return _SEED ^ zlib.crc32(request.node.nodeid.encode())
