"""The picture of an estimate: every coordinate with its simultaneous interval."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, INK, require_matplotlib, tidy

_MOST_BARS = 40  # beyond this many coordinates a line with a band is easier to read


def draw_estimate(estimate: Any, labels: Sequence[str] | None, level: float, axes: Any) -> Any:
    """Draw an estimate as bars or, if there are many coordinates, as a band; on new axes if None."""
    dim, half_width = len(estimate.value), estimate.region(level).half_width
    labels = estimate.names or None if labels is None else labels
    if labels is not None and len(labels) != dim:
        raise ValueError(f"labels must be {dim}, one per coordinate, got {len(labels)}")
    if axes is None:
        require_matplotlib()
        from matplotlib import pyplot

        # Created by pyplot, so that notebooks show it; closed, so that no global state is left.
        figure, axes = pyplot.subplots(figsize=(7.0, 3.2), layout="constrained")
        pyplot.close(figure)
    places, low, high = np.arange(dim), estimate.value - half_width, estimate.value + half_width
    if dim <= _MOST_BARS:
        axes.bar(places, estimate.value, color=ACCENT, alpha=0.75)
        axes.errorbar(places, estimate.value, half_width, fmt="none", ecolor=INK, capsize=3, linewidth=1)
    else:
        axes.plot(places, estimate.value, color=ACCENT, linewidth=0.8)
        axes.fill_between(places, low, high, color=ACCENT, alpha=0.2)
    if labels is not None:
        axes.set_xticks(places, labels, rotation=45 if dim > 6 else 0)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_title(f"Mean of {estimate.count:,} messages, all intervals hold at {100 * level:g} %", fontsize=10)
    tidy(axes)
    return axes.figure
