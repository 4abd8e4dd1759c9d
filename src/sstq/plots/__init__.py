"""Pictures: channels, mechanisms side by side, error against bits, digits, training. Needs the [plots] extra."""

from sstq.plots.channel import draw_channel
from sstq.plots.comparison import draw_comparison
from sstq.plots.digits import draw_digits
from sstq.plots.frontier import draw_frontier
from sstq.plots.training import draw_training

__all__ = ["draw_channel", "draw_comparison", "draw_digits", "draw_frontier", "draw_training"]
