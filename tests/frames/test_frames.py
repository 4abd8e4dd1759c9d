import numpy as np
import pytest
from scipy.linalg import hadamard

from sstq.baselines.vqsgd import IdentityFrame
from sstq.frames.family import FrameFamily
from sstq.frames.tight import (
    FourierFrame,
    HadamardFrame,
    OrthogonalFrame,
    default_frame_size,
)

FRAMES = [
    *[
        HadamardFrame(d, n, seed=5)
        for d, n in ((1, 1), (1, 4), (3, 8), (8, 8), (13, 32), (100, 256))
    ],
    *[
        HadamardFrame(d, n, seed=5, rounds=r)
        for r in (2, 3)
        for d, n in ((1, 2), (13, 32), (16, 16))
    ],
    *[FourierFrame(d, n, seed=5) for n in (1, 2, 5, 8) for d in range(1, n + 1)],
    FourierFrame(100, 251, seed=2),
    *[OrthogonalFrame(d, n, seed=5) for d, n in ((1, 1), (3, 7), (8, 8), (40, 100))],
    IdentityFrame(4, 4),
]


def name_of(frame):
    return f"{frame.name}-{frame.dim}-{frame.size}-{getattr(frame, 'rounds', '')}"


def dense(frame):
    return frame.analyze(np.eye(frame.dim)).T


@pytest.mark.parametrize("frame", FRAMES, ids=name_of)
def test_tight_and_methods_agree_with_the_dense_matrix(frame):
    u = dense(frame)
    np.testing.assert_allclose(
        u.T @ u, frame.redundancy * np.eye(frame.dim), atol=1e-12 * frame.redundancy
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, frame.dim))
    y = rng.standard_normal((2, frame.size))
    np.testing.assert_allclose(frame.analyze(x), x @ u.T, atol=1e-12 * frame.size)
    np.testing.assert_allclose(
        frame.synthesize(y), y @ u / frame.redundancy, atol=1e-12 * frame.size
    )
    indices = rng.integers(frame.size, size=5)
    np.testing.assert_allclose(frame.rows(indices), u[indices], atol=1e-12)
    weights = rng.random(frame.size)
    np.testing.assert_allclose(
        frame.squared_row_norms(), np.sum(u**2, axis=1), atol=1e-11
    )
    np.testing.assert_allclose(frame.column_power(weights), weights @ u**2, atol=1e-11)
    weights[1:] = 0
    np.testing.assert_allclose(frame.column_power(weights), weights @ u**2, atol=1e-11)


def test_hadamard_frame_is_columns_of_the_hadamard_matrix():
    frame = HadamardFrame(13, 32, seed=9)
    expected = hadamard(32)[:, frame.columns] * frame.signs / 13**0.5
    np.testing.assert_allclose(dense(frame), expected, atol=1e-12)


def test_hadamard_rows_are_distinct_even_when_redundant():
    # The first d columns would repeat rows whenever d ≤ N/2.
    assert len(np.unique(dense(HadamardFrame(16, 64, seed=1)), axis=0)) == 64


@pytest.mark.parametrize(
    "frame",
    [HadamardFrame(100, 256), FourierFrame(100, 251), OrthogonalFrame(20, 50)],
    ids=name_of,
)
def test_single_precision_stays_single(frame):
    x = np.random.default_rng(1).standard_normal((2, frame.dim)).astype(np.float32)
    y = frame.analyze(x)
    assert y.dtype == frame.synthesize(y).dtype == np.float32
    np.testing.assert_allclose(frame.synthesize(y), x, atol=1e-5)


def test_haar_columns_are_not_tied_to_a_sign_convention(seed):
    # E U_00 = 0 for the Haar measure. 400 frames; |z| > 6 has probability 2e-9.
    entries = [OrthogonalFrame(2, 4, seed=seed + k).matrix[0, 0] for k in range(400)]
    assert abs(np.mean(entries)) < 6 * np.std(entries) / 20


@pytest.mark.parametrize("dim", [1, 2, 3, 100, 25_450, 98_666, 10**7])
def test_default_frame_size(dim):
    size = default_frame_size(dim)
    assert size & (size - 1) == 0
    assert size >= 2.5 * dim > size / 2


@pytest.mark.parametrize(
    ("make", "dim", "size", "message"),
    [
        (HadamardFrame, 5, 12, "power of two"),
        (HadamardFrame, 5, 4, r"frame_size must be from dim = 5 ≥ 1 to 2\^32, got 4"),
        (FourierFrame, 0, 4, r"frame_size must be from dim = 0 ≥ 1 to 2\^32, got 4"),
        (OrthogonalFrame, 10_000, 20_000, "dense"),
    ],
)
def test_bad_frames_are_refused(make, dim, size, message):
    with pytest.raises(ValueError, match=message):
        make(dim, size)


def test_bad_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds must be 1, 2 or 3"):
        HadamardFrame(4, 8, rounds=4)


# --- families ---


@pytest.mark.parametrize("rounds", [2, 3])
def test_many_frames_at_once_are_the_frames_one_by_one(rounds):
    family = FrameFamily(
        HadamardFrame(dim=5, size=16, seed=3, rounds=rounds), count=100
    )
    numbers = np.array([0, 99, 7, 7])
    first, later = family.signs(numbers)
    y = np.random.default_rng(1).standard_normal((4, 16))
    x = family.synthesize(y, numbers)
    for row, number in enumerate(numbers):
        frame = family.frame(int(number))
        np.testing.assert_array_equal(first[row], frame.signs)
        np.testing.assert_array_equal(later[row], frame.mixing[2])
        np.testing.assert_allclose(
            x[row], frame.synthesize(y[row : row + 1])[0], atol=1e-14
        )


def test_one_frame_is_the_base_and_several_are_different():
    base = HadamardFrame(dim=5, size=16, seed=3, rounds=2)
    assert FrameFamily(base, 1).frame(0) == base
    assert len({FrameFamily(base, 50).frame(number).seed for number in range(50)}) == 50
    with pytest.raises(ValueError, match="rounds must be 2 or 3"):
        FrameFamily(HadamardFrame(dim=5, size=16), 4)
