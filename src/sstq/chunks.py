"""Splitting rows into pieces, so that memory does not grow with their number."""

from collections.abc import Iterator

_NUMBERS_AT_A_TIME = 1 << 21


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Yield slices over the rows, each with a bounded amount of numbers.

    Examples:
        >>> list(row_chunks(3, 1 << 21))
        [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    size = max(1, _NUMBERS_AT_A_TIME // width)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
