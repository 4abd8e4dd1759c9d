"""Encoding files, and answers to a server's document: a device sends a message whatever its data are.

Whether a device answers is seen by the server. So data that cannot be encoded are replaced here, where a mechanism's
`encode`, which the owner of the data calls, raises an error. Only what does not depend on private values is refused:
shapes, types, options.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.inputs.files import Read, VectorFile
from sstq.mechanisms.base import Ints, LocalReport, Mechanism, Rows
from sstq.messages.batch import Messages
from sstq.randomness import streams
from sstq.randomness.secret import RngLike, bit_source


def answer(
    mechanism: Mechanism, X: ArrayLike, groups: ArrayLike | None = None, rng: RngLike = None, **options: Any
) -> Messages:
    """Encode each row as one message; what cannot be encoded is replaced by the zero vector and logged.

    A row with nan or infinity becomes the zero vector. So does that of a group that does not exist, and its group is
    drawn uniformly: the same number of random words is taken for every row. For mechanisms without vectors an unknown
    category is drawn uniformly, and a question without a usable value has no answer.

    Args:
        mechanism: the mechanism that the document names.
        X: one vector per row, (n, d), or a single vector, (d,).
        groups: one private group per row, for mechanisms that have them; any value outside of them stands for no group.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        options: those of the mechanism's `encode`.

    Examples:
        >>> import sstq
        >>> len(answer(sstq.GroupUnit(2, 1.0, groups=3), [[1.0, np.nan], [0.0, 1.0]], groups=[0, 7]))
        2
    """
    if isinstance(rng, int | np.integer):
        rng = np.random.default_rng(rng)
    mended = getattr(mechanism, "_mended", None)
    if mended is not None:
        source = bit_source(rng)
        return mechanism._encode_slots(mended(X, source), source, None, mechanism.messages)
    rows = np.atleast_2d(plain_numbers(X))
    bad = ~np.isfinite(rows).all(axis=1)
    if groups is not None and mechanism.groups is not None:
        groups, unknown = _known_groups(groups, mechanism.groups, len(rows), rng)
        bad |= unknown
    return mechanism.encode(_without(rows, bad), rng=rng, groups=groups, **options)


def encode_files(
    mechanism: Mechanism,
    files: Iterable[VectorFile],
    rng: RngLike = None,
    *,
    groups: NDArray[np.int64] | None = None,
    report: LocalReport | None = None,
    advance: Callable[[int], None] = lambda _: None,
    answering: bool = False,
) -> Iterator[Messages]:
    """Yield the messages of files, a bounded piece at a time; `advance` is called with the size of each piece.

    Slots come one after the other, as in `Mechanism.encode`, so files are read once per slot. Files that were opened
    with a column of public labels yield these with the messages. What cannot be encoded is an error or, if `answering`
    a server, replaced as in `answer`.
    """
    several = list(files)
    unknown = np.zeros(sum(file.count for file in several), dtype=bool)
    if answering and groups is not None and mechanism.groups is not None:
        groups, unknown = _known_groups(groups, mechanism.groups, len(unknown), None)
    source = bit_source(rng)
    for slot in range(mechanism.messages):
        start = 0
        for file in several:
            first = start
            for rows, labels in _answers(file, unknown[first:]) if answering else file.pieces():
                stop = start + len(rows)
                try:
                    whole = mechanism._records(rows, None if groups is None else groups[start:stop])
                except ValueError as error:
                    raise ValueError(f"{file.name}, from row {start - first} on: {error}") from error
                # Each vector is reported once.
                once = report if slot == 0 else None
                yield replace(mechanism._encode_slots(whole, source, once, slots=1), labels=labels)
                start = stop
                advance(len(rows))


def _answers(file: VectorFile, unknown: NDArray[np.bool_]) -> Read:
    """Read a file with zero vectors for rows that are not finite or whose group is unknown."""
    start = 0
    for read, labels in file.numbers():
        rows = plain_numbers(read)
        bad = ~np.isfinite(rows).all(axis=1) | unknown[start : start + len(rows)]
        start += len(rows)
        yield _without(rows, bad, f"{file.name}: "), labels


def _without(rows: Rows, bad: Any, place: str = "") -> Rows:
    """Return the rows with zeros for bad ones, whose number is logged."""
    if bad.any():
        logging.getLogger("sstq").warning(
            "%s%d of %d vectors cannot be encoded; zero vectors are sent in their place", place, bad.sum(), len(bad)
        )
    return np.where(bad[:, None], np.zeros_like(rows), rows)


def plain_numbers(X: ArrayLike) -> Rows:
    """Convert X to an array of floats in which whatever is not a number is nan: masked, missing, or anything else."""
    if isinstance(X, np.ma.MaskedArray):
        X = np.where(np.ma.getmaskarray(X), np.nan, np.ma.getdata(X).astype(np.float64))
    values = np.asarray(X)
    if values.dtype.kind in "biuf":
        return values.astype(np.float32 if values.dtype == np.float32 else np.float64, copy=False)
    return np.array([_number(value) for value in values.flat], dtype=np.float64).reshape(values.shape)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _known_groups(groups: ArrayLike, count: int, rows: int, rng: RngLike) -> tuple[Ints, Any]:
    """Groups below `count`, with uniform ones for all others, and which these are."""
    given = np.atleast_1d(np.asarray(groups))
    if given.shape != (rows,):
        raise ValueError(f"groups must be {rows} integers, got an array of shape {given.shape}")
    if given.dtype.kind not in "iu":  # some are missing, which makes floats of the others, or too large for an integer
        numbers = (value if type(value) in (int, float) else -1 for value in given.tolist())
        given = np.fromiter((int(value) if value in range(count) else -1 for value in numbers), np.int64)
    drawn = streams.multiply_shift(bit_source(rng).words(rows), count)
    unknown = (given < 0) | (given >= count)
    return np.where(unknown, drawn, given.astype(np.int64)), unknown
