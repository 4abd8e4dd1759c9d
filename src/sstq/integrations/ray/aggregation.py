"""Aggregating message files in Ray, one task per file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sstq.aggregation import Aggregator
from sstq.integrations.ray.tasks import results_of, shared_mechanism

__all__ = ["add_files", "as_aggregator", "without_mechanism"]


def add_files(
    aggregator: Aggregator[Any], paths: Sequence[str | os.PathLike[str]], *, skip_bad: bool = False
) -> Iterator[tuple[int, bool | ValueError | OSError]]:
    """Add message files to an aggregator in order, yielding (index of the path, whether it was added).

    The result is, bit for bit, that of `Aggregator.update_from_file` for the same files in any order: a
    file is added completely or not at all, and skipped (False) if it was already counted under any name. It can be
    saved after each step; an interrupted run can simply be repeated.

    Args:
        aggregator: the aggregator to add to. It stays in this process.
        paths: framed or Parquet files that all workers can read; relative paths are those of this process.
        skip_bad: whether to yield the error of a refused file and continue, instead of raising it.

    Examples:
        >>> import sstq
        >>> from sstq.integrations.ray import connected
        >>> aggregator = sstq.SSTQ(dim=4, epsilon=4.0, bits=2).aggregator()
        >>> with connected():  # doctest: +SKIP
        ...     added = sum(added for _, added in add_files(aggregator, ["day1.sstq", "day2.sstq"]))
    """
    mechanism = aggregator._mechanism
    known = frozenset(aggregator._sources)
    calls = ((Path(path).absolute(), mechanism.to_json(), type(aggregator), known) for path in paths)
    for number, result in enumerate(results_of(_read_file, calls)):
        try:
            yield number, _add(aggregator, result)
        except (ValueError, OSError) as error:
            if not skip_bad:
                raise
            yield number, error


def _add(aggregator: Aggregator[Any], result: dict[str, Any] | Exception | None) -> bool:
    """Add what a task returned; returns whether it was new."""
    if isinstance(result, Exception):
        raise result
    if result is None:
        return False
    part = as_aggregator(result, type(aggregator), aggregator._mechanism)
    # The same file may have been given twice, under two names, and read by two tasks.
    if part._sources <= aggregator._sources:
        return False
    aggregator.merge(part)
    return True


def _read_file(path: Path, mechanism: str, kind: type[Aggregator[Any]], known: frozenset[str]) -> dict[str, Any] | None:
    """Return the sums of one file, or None if it was already counted."""
    part = kind(shared_mechanism(mechanism))
    part._sources = set(known)
    if not part.update_from_file(path):
        return None
    part._sources -= known
    return without_mechanism(part)


def without_mechanism(aggregator: Aggregator[Any]) -> dict[str, Any]:
    """Return an aggregator's state without its mechanism, which may be large and which the driver has."""
    return {name: value for name, value in vars(aggregator).items() if name != "_mechanism"}


def as_aggregator(held: dict[str, Any], kind: type[Aggregator[Any]], mechanism: Any) -> Aggregator[Any]:
    """Restore an aggregator from `without_mechanism`, in its own memory."""
    aggregator = kind(mechanism)
    vars(aggregator).update(held)
    aggregator._state = aggregator._state.copy()
    return aggregator
