"""Pictures of the demo and of training. Needs the [plots] extra."""

from sstq.lab.plots.digits import draw_digits
from sstq.lab.plots.training import draw_training

__all__ = ["draw_digits", "draw_training"]
