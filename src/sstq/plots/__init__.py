"""Pictures that compare mechanisms. Needs the [plots] extra."""

from sstq.plots.comparison import draw_comparison

__all__ = ["draw_comparison"]
