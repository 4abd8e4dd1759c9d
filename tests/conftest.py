"""Every statistical test takes its randomness from `seed`, which differs in every run and is printed.

Set SSTQ_TEST_SEED to repeat a run.
"""

import os
import secrets
import tempfile
import zlib

import pytest

# In the environment, so that the workers of a parallel run have the same.
_SEED = int(os.environ.setdefault("SSTQ_TEST_SEED", str(secrets.randbits(32))))
# Solved channels and data sets of this user are neither used nor touched; workers of a parallel run share the folder.
_CACHE = tempfile.TemporaryDirectory(prefix="sstq-tests-") if "SSTQ_TEST_CACHE" not in os.environ else None
os.environ["SSTQ_CACHE"] = os.environ.setdefault("SSTQ_TEST_CACHE", _CACHE.name if _CACHE else "")


def pytest_report_header() -> str:
    return f"SSTQ_TEST_SEED={_SEED}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, different in every run."""
    return _SEED ^ zlib.crc32(request.node.nodeid.encode())
