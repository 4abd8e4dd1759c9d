"""Message files added up, one task per file."""

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
    """Add message files to an aggregator in order, yielding (number of the path, whether it was added).

    The aggregator is then, to the last bit, what `Aggregator.update_from_file` makes of the same files in any order: a
    file is added whole or not at all, once, and passed over (False) if it is in already, under whatever name. It can be
    saved after each step; a run that was cut short is simply repeated.

    Args:
        aggregator: to add to. It stays with this process.
        paths: framed or Parquet files, at paths that all workers can read; relative ones are those of this process.
        skip_bad: whether to yield the error in its place and go on when a file is refused, instead of raising it.

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
    """Add what a task returned; whether that was something new."""
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
    """The sums of one file, or None if it is known."""
    part = kind(shared_mechanism(mechanism))
    part._sources = set(known)
    if not part.update_from_file(path):
        return None
    part._sources -= known
    return without_mechanism(part)


def without_mechanism(aggregator: Aggregator[Any]) -> dict[str, Any]:
    """What an aggregator holds but for its mechanism, which may be large and which the driver has."""
    return {name: value for name, value in vars(aggregator).items() if name != "_mechanism"}


def as_aggregator(held: dict[str, Any], kind: type[Aggregator[Any]], mechanism: Any) -> Aggregator[Any]:
    """The aggregator that `without_mechanism` was made of, with memory of its own."""
    aggregator = kind(mechanism)
    vars(aggregator).update(held)
    aggregator._state = aggregator._state.copy()
    return aggregator
