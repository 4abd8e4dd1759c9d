"""The comparison with other projects: its promise to skip what is missing, and our own rows."""

import math
import sys

import numpy as np
import pytest

from benchmarks import comparison
from benchmarks.comparison_peers import Task
from benchmarks.harness import Remark
from sstq import FrameUnit


def test_a_peer_that_is_not_there_is_one_remark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSTQ_PROJUNIT", raising=False)
    monkeypatch.setenv("SSTQ_PEERS_PYTHON", sys.executable)
    task = Task(np.eye(4, dtype=np.float32), 4, 1.0, 1e-5)
    remarks = list(comparison.ask(["projunit-privunitg"], task))
    assert remarks == [
        Remark(
            "projunit-privunitg skipped: SSTQ_PROJUNIT names no checkout of apple/ml-projunit"
        )
    ]


def test_our_rows_have_the_error_that_the_mechanism_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round's squared error scatters by about √(2/d) = 4 %; six of these are false failures below one in 10⁷."""
    monkeypatch.setattr(comparison, "ROUNDS", 1)
    dim = 1024
    count = 100
    x = np.random.default_rng(1).standard_normal((count, dim))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    mechanism = FrameUnit(dim, 3.0)
    row = comparison.own("FrameUnit", mechanism, Task(x, dim, 3.0, 1e-5))
    stated = mechanism.expected_mse(x, clients=count).total * count / dim
    assert abs(row.error / stated - 1) < 6 * math.sqrt(2 / dim)
    assert row.bits == mechanism.message_bits
