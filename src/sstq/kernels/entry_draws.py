"""Checked entry to the kernels that draw vectors: normal numbers, vectors around a direction, coordinates."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.kernels.checks import checked
from sstq.kernels.compiling import prepare
from sstq.kernels.threads import run_in_chunks

# A normal number, or one more of a sum, takes as long as so many numbers of a transform.
_COST_OF_A_NORMAL, _COST_OF_A_SUM = 6, 4


def box_muller(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """As many standard normal numbers as words, row by row; none is zero.

    Word i of the first half of a row gives a radius and word i of the second half an angle, whose cosine is number i of
    the first half and whose sine is that of the second. Uniform numbers have 53 bits. Fewer would tell something: where
    they are coarser than the rounding of the numbers sent, as those of 32 bits are for one angle in a hundred, a vector
    can be seen not to come from a direction.

    Args:
        words: uint64 (n, 2·h).

    Examples:
        >>> box_muller(np.array([[1 << 63, 0]], dtype=np.uint64)).round(4)
        array([[1.1774, 0.    ]])

    """
    words = checked("words", words, np.uint64, 2)
    if words.shape[1] % 2:
        raise ValueError(f"words must have an even number of columns, not shape {words.shape}")
    from sstq.kernels.normals import box_muller_rows

    numbers = np.empty(words.shape)
    prepare(box_muller_rows, words, numbers)
    run_in_chunks(
        lambda rows: box_muller_rows(words[rows], numbers[rows]), len(words), _COST_OF_A_NORMAL * words.shape[1]
    )
    return numbers


def draw_around(
    directions: NDArray[np.float64],
    along: NDArray[np.float64],
    across: NDArray[np.float64],
    words: NDArray[np.uint64],
    first: int = 0,
    *,
    to_length: bool,
) -> NDArray[np.float32]:
    """The vectors t·u + w, w being normal numbers in the hyperplane orthogonal to u.

    Args:
        directions: float64 (n, d), unit vectors u, d ≥ 2.
        along: float64 (n,), t.
        across: float64 (n,), the length of w, or what its d − 1 numbers are multiplied by.
        words: uint64 (n, at least first + 2·⌊d/2⌋), secret; the numbers come from those of a row from `first` on.
        first: the words of a row before it are left alone.
        to_length: whether `across` is the length of w.

    Returns:
        float32 (n, d).

    Examples:
        >>> u, words = np.array([[0.6, -0.8]]), np.array([[5, 7]], dtype=np.uint64)
        >>> v = draw_around(u, np.array([0.5]), np.array([2.0]), words, to_length=True)
        >>> np.allclose(v @ u[0], 0.5), np.allclose(np.sum(v**2), 4.25)
        (True, True)

    """
    directions = checked("directions", directions, np.float64, 2)
    along, across = checked("along", along, np.float64, 1), checked("across", across, np.float64, 1)
    words = checked("words", words, np.uint64, 2)
    count, dim = directions.shape
    if not count == len(along) == len(across) == len(words):
        raise ValueError(f"along, across and words must have one entry for each of the {count} directions")
    if dim < 2 or not 0 <= first <= words.shape[1] - dim // 2 * 2:
        raise ValueError(f"words of shape {words.shape} do not suffice for directions of shape {directions.shape}")
    from sstq.kernels import normals

    vectors = np.empty(directions.shape, np.float32)

    def arguments(rows: slice) -> tuple[Any, ...]:
        return directions[rows], along[rows], across[rows], to_length, words[rows], first, vectors[rows]

    prepare(normals.draw_around, *arguments(slice(0, count)))
    run_in_chunks(lambda rows: normals.draw_around(*arguments(rows)), count, _COST_OF_A_NORMAL * dim)
    return vectors


def count_passed(rows: NDArray[np.float32], uniforms: NDArray[np.float64], scale: float) -> NDArray[np.int64]:
    """How many of the cumulative sums of scale·|x|, in double precision, are at most the row's number.

    That is the coordinate which a uniform number picks with probability scale·|x_i|, or d where these leave it over.

    Args:
        rows: float32 (n, d).
        uniforms: float64 (n,), secret numbers in [0, 1).
        scale: positive.

    Returns:
        int64 (n,), from 0 to d.

    Examples:
        >>> rows = np.tile(np.float32([0.5, -0.25]), (3, 1))
        >>> count_passed(rows, np.array([0.49, 0.5, 0.75]), 1.0)
        array([0, 1, 2])

    """
    rows, uniforms = checked("rows", rows, np.float32, 2), checked("uniforms", uniforms, np.float64, 1)
    if len(rows) != len(uniforms):
        raise ValueError(f"uniforms must have one entry for each of the {len(rows)} rows, not {len(uniforms)}")
    from sstq.kernels import vertices

    scale, counts = float(scale), np.empty(len(rows), np.int64)
    prepare(vertices.count_passed, rows, uniforms, scale, counts)
    run_in_chunks(
        lambda part: vertices.count_passed(rows[part], uniforms[part], scale, counts[part]),
        len(rows),
        _COST_OF_A_SUM * rows.shape[1],
    )
    return counts
