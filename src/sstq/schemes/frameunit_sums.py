"""FrameUnit's aggregators: sums in one frame or over many, and a word of warning when the frames' bias shows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Protocol

from sstq.aggregation import Estimate, FrameAggregator, GroupAggregator

__all__ = ["FrameBiasWarning", "FrameUnitAggregator", "FrameUnitGroupAggregator"]


class FrameBiasWarning(UserWarning):
    """A mean over so many clients that the bias of the frames is no longer negligible."""


class _Noting(Protocol):
    def note(self, clients: int) -> str:
        """What to know of a mean of so many clients."""
        ...


def _noted(estimate: Estimate, mechanism: _Noting | Any) -> Estimate:
    note = mechanism.note(estimate.count)
    if note:
        warnings.warn(note, FrameBiasWarning, stacklevel=3)
    return replace(estimate, note=note)


class FrameUnitAggregator(FrameAggregator):
    """The sums of one frame."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error; its `note`, also a warning, says when the frame's bias matters."""
        return _noted(super().mean(), self._mechanism)


class FrameUnitGroupAggregator(GroupAggregator):
    """The sums of many frames."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error; its `note`, also a warning, says when the frames' bias matters."""
        return _noted(super().mean(), self._mechanism)
