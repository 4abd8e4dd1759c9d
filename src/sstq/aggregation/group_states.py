"""The file of a saved state of public groups, checked before use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.counts import MOST_MESSAGES
from sstq.files.npy import DAMAGED_ARCHIVE, read_archive
from sstq.files.strict_json import read_json
from sstq.messages.labels import check_name

FORMAT, VERSION = "sstq-groups", 2
_NAMES = {"format", "version", "digest", "column", "sources", "labels", "counts", "simulated", "rows", "sums"}


@dataclass(frozen=True)
class GroupsInfo:
    """The description in the file of a saved `GroupedAggregator`."""

    version: int
    digest: str
    column: str
    groups: int
    count: int
    files: int
    simulated: bool


def describe_groups(path: str | os.PathLike[str]) -> GroupsInfo:
    """Read the description of a saved state of groups; ValueError if the file is damaged or something else."""
    return read_groups(path)[0]


def is_grouped_state(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the format of a saved state of groups."""
    try:
        return str(read_archive(path)["format"]) == FORMAT
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE:
        return False


def read_groups(path: str | os.PathLike[str]) -> tuple[GroupsInfo, list[str], dict[str, NDArray[Any]]]:
    """Read the description, labels and arrays of a saved state, as far as that is possible without the mechanism."""
    name = os.fspath(path)
    try:
        stored = read_archive(path)
        if str(stored["format"]) != FORMAT or not set(stored) >= _NAMES:
            raise ValueError("its arrays are not those of this format")
        version = stored["version"].item()
        if version != VERSION:
            raise ValueError(f"its format has version {version}, this library reads version {VERSION}")
        column, labels = (read_json(stored[key].tobytes()) for key in ("column", "labels"))
        if labels != in_order({check_name(label, "labels", "the state") for label in labels}):
            raise ValueError("its labels are not sorted")
        _check_arrays(stored, len(labels))
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{name} is damaged or not a state of groups: {error}") from error
    total, files, simulated = int(stored["counts"].sum()), stored["sources"].size, bool(stored["simulated"].any())
    return GroupsInfo(version, str(stored["digest"]), str(column), len(labels), total, files, simulated), labels, stored


def _check_arrays(stored: dict[str, NDArray[Any]], groups: int) -> None:
    """Raise ValueError for arrays that are not those of this many groups."""
    counts, rows, sums, simulated, sources = (stored[key] for key in ("counts", "rows", "sums", "simulated", "sources"))
    shapes = counts.shape == rows.shape == simulated.shape == (groups,) and sums.ndim == 2 and sources.ndim == 1
    kinds = counts.dtype == rows.dtype == sums.dtype == np.int64 and simulated.dtype == bool
    if not (shapes and kinds) or sources.dtype.kind != "U":
        raise ValueError("its arrays have wrong shapes or types")
    # Each at most 2^32 first, so that no sum can wrap around.
    if np.any(counts < 1) or np.any(counts > MOST_MESSAGES) or np.any(rows < 0) or np.any(rows > len(sums)):
        raise ValueError("its groups have invalid numbers of messages or rows")


def in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels: decimal numbers by value, then text.

    Examples:
        >>> in_order({"b", "10", "9", "a"})
        ['9', '10', 'a', 'b']
    """
    return sorted(labels, key=lambda label: (not label.isdecimal(), len(label) if label.isdecimal() else 0, label))


def as_json(value: Any) -> NDArray[np.uint8]:
    """The UTF-8 of a value's JSON: arrays of text would lose null characters at the end."""
    return np.frombuffer(json.dumps(value, ensure_ascii=False).encode(), dtype=np.uint8)
