"""What encoders take: vectors and groups of people, checked before anything is drawn, and local counts about them."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.checks import check_integers
from sstq.inputs.arrays import as_vectors
from sstq.kernels.threads import row_chunks

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Rows = NDArray[Any]

# Batches of at least so many vectors are checked for clipping, on at most so many of them.
_LEAST_BATCH, _MOST_MEASURED, _CLIPPED_SHARE = 20, 4096, 0.05


class ClippedWarning(UserWarning):
    """Many vectors of a batch are longer than clip. It depends on the data: keep it local.

    Examples:
        >>> issubclass(ClippedWarning, UserWarning)
        True
    """


@dataclass
class LocalReport:
    """Local counts: vectors, vectors longer than clip, and representations that missed the certificate.

    A missed certificate makes estimates slightly biased; privacy is unaffected. The counts depend on the data: keep
    them local.

    Examples:
        >>> import sstq
        >>> report = LocalReport()
        >>> messages = sstq.FrameUnit(dim=2, epsilon=1.0).encode(np.array([[3.0, 4.0], [0.1, 0.2]]), report=report)
        >>> report.vectors, report.clipped
        (2, 1)
    """

    vectors: int = 0
    clipped: int = 0
    missed: int = 0


def check_vectors(X: ArrayLike, dim: int) -> Rows:
    """Return X as (n, d) floats; ValueError for a wrong shape or dtype, masks, nan or infinity."""
    rows = as_vectors(X)
    if rows.shape[-1:] != (dim,) or rows.ndim > 2:
        raise ValueError(f"X must have shape ({dim},) or (n, {dim}), got {rows.shape}")
    rows = np.atleast_2d(rows)
    if not all(np.isfinite(rows[part]).all() for part in row_chunks(len(rows), max(1, dim))):
        row = next(row for row in range(len(rows)) if not np.isfinite(rows[row]).all())
        column = np.flatnonzero(~np.isfinite(rows[row]))[0]
        raise ValueError(f"X must be finite, got {rows[row, column]} at row {row}, column {column}")
    return rows


def with_groups(rows: Rows, groups: ArrayLike | None, count: int) -> Rows:
    """Return rows preceded by their private groups, integers below `count`; floats hold all groups exactly."""
    if groups is None:
        raise ValueError(f"groups must be one integer from 0 to {count - 1} per row of X, got None")
    labels = check_integers("groups", groups, len(rows), count)
    return np.concatenate([labels[:, None].astype(rows.dtype), rows], axis=1)


def placed(vectors: Rows, places: Rows, count: int) -> Rows:
    """Return each vector at its place, an integer below `count`, with zeros elsewhere: (n, d) as (n, count·d)."""
    padded = np.zeros((len(vectors), count, vectors.shape[1]), dtype=vectors.dtype)
    padded[np.arange(len(vectors)), places.astype(np.int64)] = vectors
    return padded.reshape(len(vectors), -1)


def warn_if_clipped(rows: Rows, clip: float) -> None:
    """Warn the owner of the vectors, and nobody else, if many of a batch are longer than clip."""
    if len(rows) < _LEAST_BATCH:
        return
    some = rows[:: -(-len(rows) // _MOST_MEASURED)]
    # Without a copy of the vectors. Rounding must not count those of norm clip.
    lengths = np.sqrt(np.einsum("ij,ij->i", some, some, dtype=np.float64))
    share = float(np.mean(lengths > clip * (1 + 1e-6)))
    if share > _CLIPPED_SHARE:
        warnings.warn(
            f"{100 * share:.0f} % of the vectors are longer than clip = {clip:g} and were scaled down; use a larger "
            "clip, or bounds with the range of each column. This line depends on the data: keep it local",
            ClippedWarning,
            stacklevel=3,  # the line that called encode
        )
