"""What the tests of the Flower plug-in share."""

import logging
import os
import tempfile
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture(autouse=True)
def _quiet_server():
    """As in a ServerApp's process, but without its log."""
    TaskIdentity.run_id = 1
    TaskIdentity.node_id = 1
    TaskIdentity.task_id = 0
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture
def ledgers():
    """A folder for many ledgers, in memory where there is such a place: each expense waits for the disk."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
