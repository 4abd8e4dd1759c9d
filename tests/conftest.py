"""Every statistical test takes its randomness from `seed`, which differs in every run and is printed.

Set SSTQ_TEST_SEED to repeat a run.
"""

import functools
import os
import secrets
import tempfile
import zlib

import hypothesis
import pytest

# In the environment, so that the workers of a parallel run have the same.
_SEED = int(os.environ.setdefault("SSTQ_TEST_SEED", str(secrets.randbits(32))))
# Solved channels and data sets of this user are neither used nor touched; workers of a parallel run share the folder.
_CACHE = tempfile.TemporaryDirectory(prefix="sstq-tests-") if "SSTQ_TEST_CACHE" not in os.environ else None
os.environ["SSTQ_CACHE"] = os.environ.setdefault("SSTQ_TEST_CACHE", _CACHE.name if _CACHE else "")

# Nothing here is a matter of time: an example that takes longer than usual on a busy machine is no failure.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Hundreds of processes are started by tests; each would compile the sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_report_header() -> str:
    return f"SSTQ_TEST_SEED={_SEED}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test that would come late comes first: no worker is left with it when the others are done."""
    items.sort(key=lambda item: item.path.name != "test_warmup.py")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own, different in every run."""
    return _SEED ^ zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def remembered_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each public stream once, for tests that take the same clients again for every vector."""
    from sstq.randomness import streams

    monkeypatch.setattr(streams, "words", functools.cache(streams.words))
