"""The fused projection loop against the textbook loop in float64."""

import subprocess
import sys

import numpy as np
import pytest

from sstq.kernels import kashin_pick

from . import reference

CERTIFIED = np.array(
    [[1.4, 0, np.inf, 1.8]] + [[1, 0, np.inf, 1.8], [1, 2.5, np.inf, 1.8]] * 3,
    np.float32,
)
RELAXED = np.array([[1.45, 0, np.inf, 1.8]] * 12, np.float32)
PAPER = np.array([[1.0, 0, 0.9, np.inf]] * 8 + [[1.0, 0, np.inf, 0.9]], np.float32)


def problem(seed, size, dim, clients):
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(size, dim, replace=False))
    signs = rng.choice(np.array([-1, 1], np.float32), dim)
    x = rng.standard_normal((clients, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype(np.float32), (columns, signs, size)


@pytest.mark.parametrize(
    "schedule", [CERTIFIED, RELAXED, PAPER], ids=["certified", "relaxed", "paper"]
)
@pytest.mark.parametrize(
    "bits",
    [
        *range(13),
        *(pytest.param(bits, marks=pytest.mark.soak) for bits in (13, 14, 17, 18)),
    ],
)
def test_against_the_textbook(bits, schedule, seed):
    size = 1 << bits
    x, columns = problem(seed, size, max(1, int(size / 2.6)), clients=3)
    t, residuals = kashin_pick(x, *columns, schedule)
    expected, expected_residuals, bound = reference.kashin(x, columns, schedule)
    assert np.all(np.linalg.norm(t - expected, axis=1) <= bound)
    # The residual's map x − signs·gather(H t)/N shrinks 2-norms of t by √N.
    np.testing.assert_array_less(
        np.abs(residuals - expected_residuals), 1.01 * bound / np.sqrt(size)
    )


@pytest.mark.soak
def test_rows_longer_than_a_block(seed):
    # 2^21: more rows than fit one column, so some bits are transformed inside the row.
    size = 1 << 21
    schedule = CERTIFIED[:3]
    x, columns = problem(seed, size, 700_000, clients=1)
    t, residuals = kashin_pick(x, *columns, schedule)
    expected, expected_residuals, bound = reference.kashin(x, columns, schedule)
    assert np.linalg.norm(t - expected) <= bound
    np.testing.assert_allclose(residuals, expected_residuals, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 100, 512])
def test_any_dimension_up_to_the_size(dim, seed):
    x, columns = problem(seed, 512, dim, clients=4)
    t, _ = kashin_pick(x, *columns, CERTIFIED)
    expected, _, bound = reference.kashin(x, columns, CERTIFIED)
    assert np.all(np.linalg.norm(t - expected, axis=1) <= bound)


def test_converges_inside_the_box(seed):
    x, columns = problem(seed, 4096, 1500, clients=5)
    schedule = np.repeat(RELAXED, 5, axis=0)
    t, residuals = kashin_pick(x, *columns, schedule)
    assert np.all(np.abs(t) <= np.float32(1.8))
    # The recursion cannot do better than the rounding of a.
    assert np.all(residuals <= 5e-6)
    # Computed afresh from t in double precision.
    np.testing.assert_allclose(
        residuals, reference.residual_norms(x, columns, t), rtol=0, atol=1e-14
    )


def test_no_steps_and_no_clients(seed):
    x, columns = problem(seed, 256, 90, clients=2)
    t, residuals = kashin_pick(x, *columns, CERTIFIED[:0])
    assert not t.any()
    np.testing.assert_allclose(residuals, 1, rtol=1e-6)
    values, residuals = kashin_pick(
        x[:0], *columns, CERTIFIED, np.empty((0, 1), np.int64)
    )
    assert values.shape == (0, 1)
    assert residuals.shape == (0,)


def test_a_zero_vector_and_a_tiny_one(seed):
    # The quotient is 0/0 for the one, and its squares underflow in single precision for the other.
    x, columns = problem(seed, 256, 90, clients=2)
    x *= np.array([[0], [1e-30]], np.float32)
    t, residuals = kashin_pick(x, *columns, CERTIFIED)
    assert not t[0].any()
    assert residuals[0] == 0
    assert residuals[1] <= 1e-35


@pytest.mark.parametrize(
    ("says", "change"),
    [
        ("size must be a power of two", {"size": 7}),
        (r"columns must lie in \[0, 8\), got 8", {"columns": np.array([0, 2, 8])}),
        (r"signs must have shape \(3,\)", {"signs": np.ones(2, np.float32)}),
        (r"x must have shape \(2, 3\)", {"x": np.ones((2, 4), np.float32)}),
        (
            r"schedule must have shape \(1, 4\)",
            {"schedule": np.ones((1, 3), np.float32)},
        ),
        ("picks must lie", {"picks": np.full((2, 1), -1)}),
    ],
)
def test_refuses(says, change):
    arguments = {
        "x": np.ones((2, 3), np.float32),
        "columns": np.array([0, 2, 5]),
        "signs": np.ones(3, np.float32),
    }
    arguments |= {"size": 8, "schedule": CERTIFIED, "picks": np.zeros((2, 1), np.int64)}
    with pytest.raises(ValueError, match=says):
        kashin_pick(**arguments | change)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the peak of the memory is read from /proc"
)
def test_memory_does_not_grow_with_clients():
    # All representations together would take 2000 · 2^14 · 4 bytes = 131 MB; a thread's vectors take 0.26 MB.
    # VmHWM and not ru_maxrss, which a process inherits from its parent: this worker may be larger than either.
    script = """
import re, numpy as np
from pathlib import Path
from sstq.kernels import kashin_pick
columns = np.arange(64), np.ones(64, np.float32), 1 << 14
def run(x):
    kashin_pick(x, *columns, np.ones((1, 4), np.float32), np.zeros((len(x), 1), int))
run(np.ones((8, 64), np.float32))
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
run(np.ones((2000, 64), np.float32))
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 20_000  # KiB
