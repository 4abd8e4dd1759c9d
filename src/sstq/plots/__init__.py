"""Pictures of channels, comparisons of mechanisms and error against bits. Needs the [plots] extra."""

from sstq.plots.channel import draw_channel
from sstq.plots.comparison import draw_comparison, draw_frontier

__all__ = ["draw_channel", "draw_comparison", "draw_frontier"]
