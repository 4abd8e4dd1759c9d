"""Checked entry to the kernels that solve for Kashin representations."""

import numpy as np
from numpy.typing import NDArray

from sstq.kernels.checks import check_range, checked
from sstq.kernels.columns import SignedColumns
from sstq.kernels.compiling import prepare
from sstq.kernels.threads import run_in_chunks


def kashin_pick(
    x: NDArray[np.float32],
    columns: SignedColumns,
    schedule: NDArray[np.float32],
    picks: NDArray[np.int64],
    *,
    certify: bool = True,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Solve for Kashin representations and return a few of their entries.

    With v = scatter(signs·x) into R^N at the columns, H the unnormalised Hadamard matrix and P = H·mask·H/N, start from
    t = 0 and a = H v and do for every row (ω, γ, cap, box) of the schedule

        t' = clip(t + clip(r·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t',      r = max(ω, min(γ·q, 16)),

    where q = ‖s‖²/‖P s‖² is that of the step s = t' − t before the last (0 in the first two steps). The representation
    t stands for the vector signs·gather(H t)/N. The work is the same for every input.

    Args:
        x: float32 (n, d), one client a row.
        columns: the places of the d coordinates among N, and their signs.
        schedule: float32 (steps, 4), rows (ω, γ, cap, box); cap and box may be infinite.
        picks: int64 (n, k), positions in [0, N).
        certify: whether to compute the residuals, in double precision, from t.

    Returns:
        t at the picks, float32 (n, k), and the residuals ‖x − signs·gather(H t)/N‖₂, float64 (n,), or (0,) without
        `certify`. Memory beyond the result: two vectors of length N for each thread, and one in double precision.

    Examples:
        >>> x, columns = np.ones((1, 1), np.float32), SignedColumns(np.array([0]), np.ones(1, np.float32), size=4)
        >>> schedule = np.array([[1.0, 0.0, np.inf, np.inf]], np.float32)
        >>> kashin_pick(x, columns, schedule, np.array([[0, 3]]))
        (array([[1., 1.]], dtype=float32), array([0.]))

    """
    x = checked("x", x, np.float32, 2)
    picks = checked("picks", picks, np.int64, 2)
    if picks.shape[0] != x.shape[0]:
        raise ValueError(f"picks must have one row for each of the {x.shape[0]} rows of x, not shape {picks.shape}")
    check_range("picks", picks, columns.size)
    values = np.empty(picks.shape, np.float32)
    unused = np.empty((0, columns.size), np.float32)
    residuals = np.empty(len(x) if certify else 0)
    _solve(x, columns, schedule, picks, values, unused, residuals)
    return values, residuals


def kashin_represent(
    x: NDArray[np.float32], columns: SignedColumns, schedule: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Solve for Kashin representations and return them whole: t, float32 (n, N), and the residuals, float64 (n,).

    The arguments and the computation are those of `kashin_pick`.
    """
    x = checked("x", x, np.float32, 2)
    t = np.empty((x.shape[0], columns.size), np.float32)
    no_picks = np.empty((x.shape[0], 0), np.int64)
    no_values = np.empty((x.shape[0], 0), np.float32)
    residuals = np.empty(len(x))
    _solve(x, columns, schedule, no_picks, no_values, t, residuals)
    return t, residuals


def _solve(
    x: NDArray[np.float32],
    columns: SignedColumns,
    schedule: NDArray[np.float32],
    picks: NDArray[np.int64],
    values: NDArray[np.float32],
    t: NDArray[np.float32],
    residuals: NDArray[np.float64],
) -> None:
    """Check what both Kashin functions share and run the kernel on all rows."""
    schedule = checked("schedule", schedule, np.float32, 2)
    if x.shape[1] != columns.dim:
        raise ValueError(f"x must have rows of {columns.dim} entries, one for each column, not shape {x.shape}")
    if schedule.shape[1] != 4:
        raise ValueError(f"schedule must have shape (steps, 4), not {schedule.shape}")
    from sstq.kernels.kashin import solve_rows

    frame = columns.places, columns.signs, columns.mask, schedule, columns.bits
    prepare(solve_rows, x, *frame, picks, values, t, residuals)

    def work(rows: slice) -> None:
        solve_rows(x[rows], *frame, picks[rows], values[rows], t[rows], residuals[rows])

    run_in_chunks(work, x.shape[0], columns.size * (2 * schedule.shape[0] + 1))
