"""Pictures: channels, mechanisms side by side, error against bits, digits, training. Needs the [plots] extra."""

from sstq.lab.plots.digits import draw_digits
from sstq.lab.plots.training import draw_training
from sstq.plots.channel import draw_channel
from sstq.plots.comparison import draw_comparison
from sstq.plots.frontier import draw_frontier

__all__ = ["draw_channel", "draw_comparison", "draw_digits", "draw_frontier", "draw_training"]
