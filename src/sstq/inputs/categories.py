"""Categories: each person holds one of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.array_types import Bools, Floats, Rows
from sstq.inputs.arrays import as_vectors
from sstq.inputs.base import Held, Input
from sstq.inputs.plain_numbers import plain_numbers
from sstq.inputs.reports import LocalReport
from sstq.randomness import streams
from sstq.randomness.secret import BitSource

_MOST_EXTREMES = 6


@dataclass(frozen=True)
class Category(Input):
    """An integer below `categories`.

    Examples:
        >>> Category(5).read([0, 4])
        array([[0.],
               [4.]])
        >>> from sstq.randomness.secret import bit_source
        >>> Category(5).substitute([2, 7, None], source=bit_source(1)).shape
        (3, 1)
    """

    takes = "categories"
    file_options = ("columns", "by")
    dim = 1
    categories: int

    def strict_rows(self, X: Any, groups: Any, report: LocalReport | None) -> Rows:
        """The categories, (n, 1); ValueError for what is none."""
        rows = _one_each(as_vectors(X)).astype(np.float64)
        wrong = np.flatnonzero(~self._known(rows))
        if len(wrong):
            wanted = f"finite integers from 0 to {self.categories - 1}"
            raise ValueError(
                f"X must be {wanted}, got {rows[wrong[0], 0]:g} at row {wrong[0]}"
            )
        return rows

    def mended_rows(
        self, X: Any, groups: Any, source: BitSource, report: LocalReport | None
    ) -> Rows:
        """The categories, with a uniform one in the place of what is none."""
        given = _one_each(plain_numbers(X))
        drawn = streams.multiply_shift(source.words(len(given)), self.categories)
        return np.where(self._known(given), given, drawn[:, None]).astype(np.float64)

    def together(self, values: Sequence[Any]) -> Floats:
        """Integers as they are, and -1 for any other value, which is drawn at random."""
        whole = [
            isinstance(value, int | np.integer) and not isinstance(value, bool)
            for value in values
        ]
        kept = [
            value if is_whole and 0 <= value < self.categories else -1
            for value, is_whole in zip(values, whole, strict=True)
        ]
        return np.array(kept, dtype=np.float64)

    def _known(self, rows: Rows) -> Bools:
        return np.asarray(
            (rows >= 0) & (rows < self.categories) & (rows == np.floor(rows))
        )

    def trial(self, rng: np.random.Generator, count: int) -> Held:
        """Uniform categories."""
        return {"X": rng.integers(self.categories, size=count)}

    def extremes(self, rng: np.random.Generator) -> dict[str, Held]:
        """Some categories, the first and the last among them."""
        some = np.unique(
            np.linspace(0, self.categories - 1, _MOST_EXTREMES).astype(np.int64)
        )
        return {f"category {label}": {"X": np.array([label])} for label in some}

    def refused(self) -> list[Held]:
        """Numbers that are no category, and other shapes and types."""
        wrong: list[Any] = [
            [0, self.categories],
            [-1],
            [0.5],
            [np.nan],
            [None],
            ["0"],
            np.zeros((2, 2)),
            [1j],
        ]
        return [{"X": X} for X in wrong] + [{"X": [0], "groups": [0]}]

    def truth(self, rows: Rows) -> Rows:
        """A one at the place of the category, (n, categories)."""
        return np.asarray(rows[:, :1] == np.arange(self.categories), dtype=np.float64)


def _one_each(rows: Rows) -> Rows:
    """One category per person, (n, 1); ValueError for other shapes."""
    if rows.ndim > 2 or (rows.ndim == 2 and rows.shape[1] != 1):
        raise ValueError(
            f"X must have shape (n,), one category per person, got {rows.shape}"
        )
    return rows.reshape(-1, 1)
