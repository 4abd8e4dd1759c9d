"""The fused projection loop against the textbook loop in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sstq.kernels import kashin_pick, kashin_represent

from . import reference

CERTIFIED = np.array([[1.45, np.inf, 1.8]] * 12, np.float32)
PAPER = np.array([[1.0, 0.9, np.inf]] * 8 + [[1.0, np.inf, 0.9]], np.float32)


def problem(seed, size, dim, clients):
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(size, dim, replace=False))
    signs = rng.choice(np.array([-1, 1], np.float32), dim)
    x = rng.standard_normal((clients, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype(np.float32), columns, signs


def rounding_bound(size, schedule):
    # One projection is two transforms of log₂ N levels and a few more roundings, each relative to ‖a‖₂ ≤ √N·‖x‖ = √N.
    # As a map of t a step does not expand errors for relaxations ≤ 2, so they add up, at most quadratically in the
    # number of steps: first in a, then from a into t.
    steps = len(schedule)
    a_step = (2 * np.log2(size) + 8) * reference.FLOAT32_ROUNDING * np.sqrt(size)
    return 1.45 * steps * (steps + 1) / 2 * a_step


@pytest.mark.parametrize("schedule", [CERTIFIED, PAPER], ids=["certified", "paper"])
@pytest.mark.parametrize("bits", [*range(15), 17, 18])
def test_against_the_textbook(bits, schedule, seed):
    size = 1 << bits
    dim = max(1, int(size / 2.6))
    x, columns, signs = problem(seed, size, dim, clients=3)
    t, residuals = kashin_represent(x, columns, signs, size, schedule)
    expected, expected_residuals = reference.kashin(x, columns, signs, size, schedule)
    bound = rounding_bound(size, schedule)
    assert np.all(np.linalg.norm(t - expected, axis=1) <= bound)
    # The residual's map x − signs·gather(H t)/N shrinks 2-norms of t by √N.
    np.testing.assert_allclose(residuals, expected_residuals, rtol=0, atol=1.01 * bound / np.sqrt(size))


def test_rows_longer_than_a_block(seed):
    # 2^21: more rows than fit one column, so some bits are transformed inside the row.
    size = 1 << 21
    schedule = CERTIFIED[:3]
    x, columns, signs = problem(seed, size, 700_000, clients=1)
    t, residuals = kashin_represent(x, columns, signs, size, schedule)
    expected, expected_residuals = reference.kashin(x, columns, signs, size, schedule)
    assert np.linalg.norm(t - expected) <= rounding_bound(size, schedule)
    np.testing.assert_allclose(residuals, expected_residuals, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 100, 512])
def test_any_dimension_up_to_the_size(dim, seed):
    x, columns, signs = problem(seed, 512, dim, clients=4)
    t, _ = kashin_represent(x, columns, signs, 512, CERTIFIED)
    expected, _ = reference.kashin(x, columns, signs, 512, CERTIFIED)
    assert np.all(np.linalg.norm(t - expected, axis=1) <= rounding_bound(512, CERTIFIED))


def test_converges_inside_the_box(seed):
    x, columns, signs = problem(seed, 4096, 1500, clients=5)
    schedule = np.array([[1.45, np.inf, 2.0]] * 60, np.float32)
    t, residuals = kashin_represent(x, columns, signs, 4096, schedule)
    assert np.all(np.abs(t) <= 2)
    # The recursion cannot do better than the rounding of a; FINDINGS 1 gives 20 steps to 1e-6.
    assert np.all(residuals <= 5e-6)
    # Computed afresh from t, so it agrees with the float64 value up to one transform's rounding of ‖x‖ = 1.
    exact = reference.residual_norms(x, columns, signs, 4096, t)
    np.testing.assert_allclose(residuals, exact, rtol=0, atol=13 * reference.FLOAT32_ROUNDING)


@pytest.mark.parametrize("size", [64, 2048, 1 << 15])
def test_picks_are_entries_of_the_representation(size, seed):
    x, columns, signs = problem(seed, size, size // 3, clients=7)
    picks = np.random.default_rng(seed).integers(size, size=(7, 5))
    t, residuals = kashin_represent(x, columns, signs, size, CERTIFIED)
    values, same_residuals = kashin_pick(x, columns, signs, size, CERTIFIED, picks)
    np.testing.assert_array_equal(values, np.take_along_axis(t, picks, axis=1))
    np.testing.assert_array_equal(residuals, same_residuals)


def test_threads_do_not_change_a_bit(seed, monkeypatch):
    x, columns, signs = problem(seed, 4096, 1500, clients=9)
    monkeypatch.setenv("SSTQ_THREADS", "1")
    t, residuals = kashin_represent(x, columns, signs, 4096, CERTIFIED)
    monkeypatch.setenv("SSTQ_THREADS", "2")
    again, residuals_again = kashin_represent(x, columns, signs, 4096, CERTIFIED)
    np.testing.assert_array_equal(t, again)
    np.testing.assert_array_equal(residuals, residuals_again)


def test_no_steps_and_no_clients(seed):
    x, columns, signs = problem(seed, 256, 90, clients=2)
    t, residuals = kashin_represent(x, columns, signs, 256, CERTIFIED[:0])
    assert not t.any()
    np.testing.assert_allclose(residuals, 1, rtol=1e-6)
    values, residuals = kashin_pick(x[:0], columns, signs, 256, CERTIFIED, np.empty((0, 1), np.int64))
    assert values.shape == (0, 1)
    assert residuals.shape == (0,)


def test_read_only_input(seed):
    x, columns, signs = problem(seed, 256, 90, clients=2)
    expected, _ = kashin_represent(x, columns, signs, 256, CERTIFIED)
    for array in (x, columns, signs):
        array.flags.writeable = False
    t, _ = kashin_represent(x, columns, signs, 256, CERTIFIED)
    np.testing.assert_array_equal(t, expected)


def test_refuses():
    x = np.ones((2, 3), np.float32)
    columns = np.array([0, 2, 5])
    signs = np.ones(3, np.float32)

    def refused(error, says, **changes):
        arguments = {"x": x, "columns": columns, "signs": signs, "size": 8, "schedule": CERTIFIED, **changes}
        with pytest.raises(error, match=says):
            kashin_pick(**{"picks": np.zeros((2, 1), np.int64), **arguments})

    refused(TypeError, "x must be a float32", x=x.astype(np.float64))
    refused(ValueError, "power of two", size=7)
    refused(ValueError, "ascending", columns=np.array([0, 5, 2]))
    refused(ValueError, r"columns must lie in \[0, 8\), but one entry is 8", columns=np.array([0, 2, 8]))
    refused(ValueError, "shape", columns=np.array([0, 2]))
    refused(ValueError, r"\+1 or -1", signs=np.array([1, 0, 1], np.float32))
    refused(ValueError, "schedule", schedule=np.ones((2, 2), np.float32))
    refused(ValueError, "picks must lie", picks=np.full((2, 1), -1))
    refused(ValueError, "one row for each", picks=np.zeros((3, 1), np.int64))


def test_memory_does_not_grow_with_clients():
    # All representations together would take 2000 · 2^14 · 4 bytes = 131 MB; a thread's vectors take 0.13 MB.
    script = """
import resource, numpy as np
from sstq.kernels import kashin_pick
def run(x):
    ones = np.ones((1, 3), np.float32)
    kashin_pick(x, np.arange(64), np.ones(64, np.float32), 1 << 14, ones, np.zeros((len(x), 1), int))
run(np.ones((8, 64), np.float32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(np.ones((2000, 64), np.float32))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 20_000  # KiB


def test_wide_vectors_agree(tmp_path):
    size = 1 << 14
    x, columns, signs = problem(5, size, 5000, clients=2)
    path = tmp_path / "problem.npz"
    np.savez(path, x=x, columns=columns, signs=signs, schedule=CERTIFIED)
    script = (
        "import sys, numpy as np; from sstq.kernels import kashin_represent; p = np.load(sys.argv[1])\n"
        f"t, _ = kashin_represent(p['x'], p['columns'], p['signs'], {size}, p['schedule']); np.save(sys.argv[2], t)"
    )
    result = tmp_path / "t.npy"
    environment = {**os.environ, "SSTQ_VECTOR_WIDTH": "16"}
    subprocess.run([sys.executable, "-c", script, path, result], check=True, env=environment)
    expected, _ = reference.kashin(x, columns, signs, size, CERTIFIED)
    t = np.load(result)
    assert np.all(np.linalg.norm(t - expected, axis=1) <= rounding_bound(size, CERTIFIED))
