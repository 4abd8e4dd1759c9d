"""Converting the arrays of a model to one vector and back: which are private, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from sstq.array_types import Floats


def sole_arrays(content: RecordDict, what: str) -> ArrayRecord:
    """Return the one ArrayRecord of a message; ValueError unless there is exactly one."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ValueError(
            f"{what} must hold exactly one ArrayRecord, got {len(records)}"
        )
    return records[0]


def private_names(record: ArrayRecord, frozen: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the arrays whose updates are private: real numbers, except frozen names or patterns."""
    for pattern in frozen:
        if not any(fnmatchcase(name, pattern) for name in record):
            raise ValueError(
                f"frozen must name arrays of the model ({', '.join(record)}), got {pattern!r}"
            )
    names = []
    for name, array in record.items():
        values = _loaded(name, array)
        if values.dtype.kind == "c":
            raise ValueError(
                f"the array {name!r} is complex; send its real and imaginary parts, or list it in frozen"
            )
        if (
            values.dtype.kind == "f"
            and values.size
            and not any(fnmatchcase(name, pattern) for pattern in frozen)
        ):
            names.append(name)
    if not names:
        raise ValueError(
            "the model must have an array to train: all are frozen, empty or integers"
        )
    return tuple(names)


@dataclass(frozen=True)
class PrivateArrays:
    """The named arrays of a model as one vector, in the order of their names."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, record: ArrayRecord, names: Sequence[str]) -> PrivateArrays:
        """Select these arrays of a model; ValueError unless all exist, once, and hold real numbers."""
        if len(set(names)) != len(names):
            raise ValueError("the names of the private arrays must be distinct")
        return cls(tuple(names), tuple(_real(record, name).shape for name in names))

    @property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    def flatten(self, record: ArrayRecord) -> Floats:
        """Return the vector of a model with these arrays; ValueError if one has another shape."""
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            values = _real(record, name)
            if values.shape != shape:
                raise ValueError(
                    f"the array {name!r} must have shape {shape}, got {values.shape}"
                )
            # A double holds any float but the widest, whose overflow is an infinity and treated as such.
            with np.errstate(over="ignore"):
                parts.append(values.astype(np.float64).reshape(-1))
        return np.concatenate(parts)

    def add(self, record: ArrayRecord, vector: Floats) -> ArrayRecord:
        """Return the model with the vector added to these arrays; OverflowError if one would not be finite."""
        changed = dict(record)
        pieces = np.split(vector, np.cumsum(self._sizes)[:-1])
        for name, piece in zip(self.names, pieces, strict=True):
            before = _real(record, name)
            with np.errstate(over="ignore", invalid="ignore"):
                after = np.asarray(
                    before + piece.reshape(before.shape), dtype=before.dtype
                )
            if not np.isfinite(after).all():
                raise OverflowError(
                    f"the array {name!r} would not be finite as {before.dtype}"
                )
            changed[name] = Array(after)
        return ArrayRecord(changed)


def _loaded(name: str, array: Array) -> NDArray[Any]:
    try:
        values = array.numpy()
    except Exception as error:
        # untrusted bytes, for which NumPy and zip files raise many kinds of errors
        raise ValueError(f"the array {name!r} cannot be read: {error}") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(
            f"the array {name!r} cannot be read: it is a {type(values).__name__}"
        )
    return values


def _real(record: ArrayRecord, name: str) -> NDArray[Any]:
    if name not in record:
        raise ValueError(
            f"there is no array {name!r}; there are {', '.join(record) or 'none'}"
        )
    values = _loaded(name, record[name])
    if values.dtype.kind != "f":
        raise ValueError(
            f"the array {name!r} must hold real numbers, got dtype {values.dtype}"
        )
    return values
