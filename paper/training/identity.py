"""The identity of a training, which a checkpoint must match: everything that determines the coming rounds."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from paper.training.models import Model
    from paper.training.problems import Problem

__all__ = ["checksum", "description_of", "facts_of_problem"]


def checksum(values: NDArray[Any]) -> str:
    """Return shape, type and CRC-32 of an array.

    Examples:
        >>> checksum(np.arange(3, dtype=np.int64))
        '(3,) int64 4f8c5ccc'
    """
    return f"{values.shape} {values.dtype} {zlib.crc32(np.ascontiguousarray(values).data):08x}"


def facts_of_problem(problem: Problem) -> dict[str, str]:
    """The model, the examples and who holds them, without test examples, which change nothing."""
    lengths = np.array([len(part) for part in problem.parts], dtype=np.int64)
    return {
        "problem": problem.name,
        "model": description_of(problem.model),
        "x": checksum(problem.x),
        "y": checksum(problem.y),
        "parts": f"{checksum(lengths)} {checksum(np.concatenate(problem.parts))}",
    }


def description_of(model: Model) -> str:
    """The model's own ``description``; for a model that has none, its class and its number of parameters."""
    own = getattr(model, "description", None)
    return f"{type(model).__module__}.{type(model).__qualname__} {model.dim}" if own is None else str(own)
