"""Splitting rows into pieces, so that memory does not grow with their number."""

_NUMBERS_AT_A_TIME = 1 << 21


def row_chunks(rows: int, width: int) -> list[slice]:
    """Return slices over the rows, each with a bounded amount of numbers.

    Examples:
        >>> row_chunks(3, 1 << 21)
        [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    size = max(1, _NUMBERS_AT_A_TIME // width)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
